package spec

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
)

// ErrNGram reports an n-gram table that cannot be used: damaged, of another
// version, or of another vocabulary.
var ErrNGram = errors.New("n-gram table unusable")

// MaxOrder is the largest order of an n-gram table.
const MaxOrder = 8

// NGram is a table of n-gram counts, orders 1 (unigrams) to [NGram.Order]: a
// language model that costs next to nothing, kept in one file. It is immutable
// and safe for concurrent use.
//
// Its law interpolates over the orders after Witten and Bell (1991): with
// c(h, x) the number of times that x followed the history h, N(h) their sum
// and T(h) the number of different x among them,
//
//	p(x | h) = (c(h, x) + T(h) p(x | h')) / (N(h) + T(h)),
//
// where h' is h without its first token and the law below the unigrams is
// uniform. So it backs off to shorter histories as far as a history is new or
// rich in continuations, is positive everywhere, and sums to one for every
// history by construction.
type NGram struct {
	vocab     int
	tokenizer Digest
	trained   uint64  // tokens
	levels    []level // levels[n] holds the n-grams of order n+1

	unigram []float64 // p(x) without a history
	logits  []float32 // their logarithms
	digest  Digest
}

// Digest is a SHA-256.
type Digest [32]byte

// level is the n-grams of one order, ascending: those that share their first
// tokens lie together.
type level struct {
	tokens []int32  // the last token
	counts []uint32 // how often it was seen, at least once
	first  []uint32 // where its continuations begin in the next level; one entry more than tokens, none in the last level
}

// Order is the length of the longest n-grams.
func (t *NGram) Order() int { return len(t.levels) }

// Vocab is the number of tokens that the law is over.
func (t *NGram) Vocab() int { return t.vocab }

// Trained is how many tokens the table was trained on.
func (t *NGram) Trained() uint64 { return t.trained }

// Size is how many different n-grams the table holds, over all orders.
func (t *NGram) Size() int {
	n := 0
	for _, l := range t.levels {
		n += len(l.tokens)
	}
	return n
}

// Frequent lists the n tokens that were seen most often, the most frequent first;
// of equally frequent ones, and behind those that were seen, those with the
// smallest ids come first, which vocabularies made by merging give to what is
// frequent.
func (t *NGram) Frequent(n int) []int32 {
	seen := make([]uint32, t.vocab)
	for i, x := range t.levels[0].tokens {
		seen[x] = t.levels[0].counts[i]
	}
	all := make([]int32, t.vocab)
	for i := range all {
		all[i] = int32(i)
	}
	slices.SortStableFunc(all, func(a, b int32) int { return cmp.Compare(seen[b], seen[a]) })
	return all[:min(n, t.vocab)]
}

// Digest is what the table's file ends in: equal digests mean equal tables.
func (t *NGram) Digest() Digest { return t.digest }

// children returns where the continuations of the last n tokens of prefix lie
// in levels[n].
func (t *NGram) children(prefix []int32, n int) (from, to uint32) {
	from, to = 0, uint32(len(t.levels[0].tokens))
	for at, x := range prefix[len(prefix)-n:] {
		i, ok := slices.BinarySearch(t.levels[at].tokens[from:to], x)
		if !ok {
			return 0, 0
		}
		node := from + uint32(i)
		from, to = t.levels[at].first[node], t.levels[at].first[node+1]
	}
	return from, to
}

// smooth computes the unigrams' law, which every other starts from.
func (t *NGram) smooth() {
	t.unigram, t.logits = make([]float64, t.vocab), make([]float32, t.vocab)
	l := t.levels[0]
	total, kinds := 0.0, float64(len(l.tokens))
	for _, c := range l.counts {
		total += float64(c)
	}
	floor := 1 / float64(t.vocab)
	if kinds > 0 {
		floor *= kinds / (total + kinds)
	}
	for i := range t.unigram {
		t.unigram[i] = floor
	}
	for i, x := range l.tokens {
		t.unigram[x] += float64(l.counts[i]) / (total + kinds)
	}
	for i, w := range t.unigram {
		t.logits[i] = float32(math.Log(w))
	}
}

// Drafter returns a drafter over the table, for one goroutine. Its law is the
// table's after the same standardization as the models': temperature and all
// else apply to it as to a model's output.
func (t *NGram) Drafter() Drafter {
	return &ngramDrafter{table: t, more: make([]float64, t.vocab)}
}

type ngramDrafter struct {
	table  *NGram
	logits []float32
	more   []float64 // what histories add to the unigrams, relative to them; all zero between calls
	seen   []int32   // where more is not
}

// Law implements [Drafter].
func (d *ngramDrafter) Law(prefix []int32, standardize Standardizer, p *Dist) (bool, error) {
	d.logits = append(d.logits[:0], d.table.logits...)
	// Divided by T(h) / (N(h) + T(h)), the law of a history is that of the
	// shorter one plus c(h, x) / T(h): only the tokens seen after it change.
	scale := 1.0
	for n := 1; n < min(len(d.table.levels), len(prefix)+1); n++ {
		from, to := d.table.children(prefix, n)
		if from == to {
			break // longer histories are new too
		}
		l, total, kinds := d.table.levels[n], 0.0, float64(to-from)
		for i := from; i < to; i++ {
			x, c := l.tokens[i], float64(l.counts[i])
			if d.more[x] == 0 {
				d.seen = append(d.seen, x)
			}
			d.more[x] += scale * c / kinds
			total += c
		}
		scale *= 1 + total/kinds
	}
	for _, x := range d.seen {
		d.logits[x] = float32(math.Log(d.table.unigram[x] + d.more[x]))
		d.more[x] = 0
	}
	d.seen = d.seen[:0]
	return true, standardize(d.logits, prefix, p)
}

// NGramTrainer counts the n-grams of texts.
type NGramTrainer struct {
	order, vocab int
	text         []int32 // of all sequences, each followed by boundary
	trained      uint64
}

// boundary stands between sequences; no n-gram reaches across.
const boundary = -1

// NewNGramTrainer returns a trainer of tables of the given order, at most
// [MaxOrder], over a vocabulary.
func NewNGramTrainer(order, vocab int) (*NGramTrainer, error) {
	if order < 1 || order > MaxOrder {
		return nil, fmt.Errorf("train an n-gram table: the order %d is not between 1 and %d", order, MaxOrder)
	}
	if vocab < 1 {
		return nil, fmt.Errorf("train an n-gram table: the vocabulary has %d tokens", vocab)
	}
	return &NGramTrainer{order: order, vocab: vocab}, nil
}

// Add counts one sequence.
func (t *NGramTrainer) Add(tokens []int32) error {
	for _, x := range tokens {
		if x < 0 || int(x) >= t.vocab {
			return fmt.Errorf("train an n-gram table: token %d lies outside the vocabulary of %d", x, t.vocab)
		}
	}
	if len(t.text)+len(tokens) >= math.MaxUint32 {
		return fmt.Errorf("train an n-gram table: the texts have more than %d tokens; train on a part of them", uint32(math.MaxUint32))
	}
	t.text = append(append(t.text, tokens...), boundary)
	t.trained += uint64(len(tokens))
	return nil
}

// Table makes the table of all that was added, for the tokenizer of this
// digest.
func (t *NGramTrainer) Table(tokenizer Digest) *NGram {
	// Sorted by the tokens from there on, positions that begin with the same
	// n-gram lie together.
	at := make([]uint32, 0, t.trained)
	for i, x := range t.text {
		if x != boundary {
			at = append(at, uint32(i))
		}
	}
	slices.SortFunc(at, func(a, b uint32) int { return slices.Compare(t.gram(a), t.gram(b)) })

	table := &NGram{vocab: t.vocab, tokenizer: tokenizer, trained: t.trained, levels: make([]level, t.order)}
	var last []int32
	for _, i := range at {
		gram := t.gram(i)
		same := 0
		for same < min(len(gram), len(last)) && gram[same] == last[same] {
			same++
		}
		for n, x := range gram {
			l := &table.levels[n]
			if n < same {
				l.counts[len(l.counts)-1]++
				continue
			}
			l.tokens, l.counts = append(l.tokens, x), append(l.counts, 1)
			if n+1 < t.order {
				l.first = append(l.first, uint32(len(table.levels[n+1].tokens)))
			}
		}
		last = gram
	}
	for n := range t.order - 1 {
		table.levels[n].first = append(table.levels[n].first, uint32(len(table.levels[n+1].tokens)))
	}
	table.smooth()
	table.seal()
	return table
}

// gram is the n-gram at a position: as many tokens as the order has, or as the
// sequence has left.
func (t *NGramTrainer) gram(at uint32) []int32 {
	gram := t.text[at:min(int(at)+t.order, len(t.text))]
	if end := slices.Index(gram, boundary); end >= 0 {
		gram = gram[:end]
	}
	return gram
}
