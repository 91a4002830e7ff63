package tokenize

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"unicode/utf8"
)

// unigram takes the segmentation of a piece with the highest sum of log probabilities.
type unigram struct {
	vocabulary
	entries      int // of the vocabulary in the file, repetitions included
	scores       []float64
	trie         *trie
	unk          int32 // -1: none, an unknown character is an error
	unkScore     float64
	byteFallback bool
	scratch      sync.Pool // of *[]step
}

// step is the best segmentation that ends at a byte: its last token begins at from (-1: not reached yet).
type step struct {
	score float64
	from  int32
	id    int32
}

// unkPenalty is how much worse than the worst token an unknown character is.
const unkPenalty = 10

func newUnigram(raw json.RawMessage) (model, error) {
	var c struct {
		Vocab        []scored `json:"vocab"`
		Unk          *int32   `json:"unk_id"`
		ByteFallback bool     `json:"byte_fallback"`
	}
	if err := require("model Unigram", raw, "vocab"); err != nil {
		return nil, err
	}
	if err := read("model Unigram", raw, &c); err != nil {
		return nil, err
	}
	m := &unigram{vocabulary: vocabulary{}, entries: len(c.Vocab), unk: -1, byteFallback: c.ByteFallback}
	m.scratch.New = func() any { return new([]step) }
	keys := map[string]int32{}
	for i, s := range c.Vocab {
		m.vocabulary[s.token] = int32(i)
		m.scores = append(m.scores, s.score)
		if i == 0 || s.score < m.unkScore {
			m.unkScore = s.score
		}
		if s.token != "" {
			keys[s.token] = int32(i)
		}
	}
	m.unkScore -= unkPenalty
	m.trie = newTrie(keys)
	if c.Unk != nil {
		if *c.Unk < 0 || int(*c.Unk) >= len(c.Vocab) {
			return nil, fmt.Errorf("model Unigram: unk_id %d is not in the vocabulary of %d", *c.Unk, len(c.Vocab))
		}
		m.unk = *c.Unk
	}
	return m, nil
}

func (m *unigram) size() int { return m.entries }

var errNoUnk = errors.New("the text has a character that is not in the vocabulary, and the model has no unknown token")

func (m *unigram) tokenize(dst []int32, piece string) ([]int32, error) {
	memory := m.scratch.Get().(*[]step)
	defer m.scratch.Put(memory)
	best := (*memory)[:0]
	for range len(piece) + 1 {
		best = append(best, step{from: -1})
	}
	*memory = best
	if err := m.forward(best, piece); err != nil {
		return nil, err
	}
	// Follow the path back; begins holds where the tokens begin, last first. Neighbouring unknown characters are one token.
	var begins []int32
	unknown := false
	for end := int32(len(piece)); end > 0; end = best[end].from {
		now := best[end].id == m.unk
		if !(now && unknown) {
			begins = append(begins, best[end].from)
		}
		begins[len(begins)-1] = best[end].from
		unknown = now
	}
	for i := len(begins) - 1; i >= 0; i-- {
		end := int32(len(piece))
		if i > 0 {
			end = begins[i-1]
		}
		token := piece[begins[i]:end]
		if id, ok := m.vocabulary[token]; ok {
			dst = append(dst, id)
			continue
		}
		if m.byteFallback {
			var ok bool
			if dst, ok = m.fallback(dst, token); ok {
				continue
			}
		}
		if m.unk < 0 {
			return nil, errNoUnk
		}
		dst = append(dst, m.unk)
	}
	return dst, nil
}

// forward fills best, which has one step for each byte of piece and one more.
func (m *unigram) forward(best []step, piece string) error {
	for at := 0; at < len(piece); {
		score := best[at].score
		_, n := utf8.DecodeRuneInString(piece[at:])
		single := false // a token covers exactly this character
		reach := func(end int, s float64, id int32) {
			if b := &best[end]; b.from < 0 || s > b.score {
				*b = step{s, int32(at), id}
			}
		}
		node := int32(0)
		for i := at; i < len(piece); i++ {
			if node = m.trie.child(node, piece[i]); node == 0 {
				break
			}
			if id := m.trie.value[node]; id >= 0 {
				reach(i+1, m.scores[id]+score, id)
				single = single || i+1 == at+n
			}
		}
		if !single {
			if m.unk < 0 && (best[at+n].from < 0 || m.unkScore+score > best[at+n].score) {
				return errNoUnk
			}
			reach(at+n, m.unkScore+score, m.unk)
		}
		at += n
	}
	return nil
}
