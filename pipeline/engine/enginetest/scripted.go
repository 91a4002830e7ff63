package enginetest

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/draftmill/draftmill/pipeline/tokenize"
)

// Model is a decoder whose logits are a function of the whole prefix. Its slots
// hold token ids in place of keys and values, so that a cache that was fed or
// rolled back wrongly gives wrong logits.
type Model struct {
	Logits func(prefix []int32) []float32
	Length int             // of the context
	Slots  map[int][]int32 // what each of them holds
	Fed    int             // tokens over all passes
	Passes int
	Fail   error // what the next pass returns
	// Note, if not nil, is told of the prefixes that are scored, for exact
	// distributions.
	Note func(...any)
	// A pass over so many tokens puts Clock, if not nil, forward by Cost.
	Clock *Clock
	Cost  func(tokens int) time.Duration

	t     testing.TB
	vocab int
}

// Clock is a time that passes only when told to.
type Clock struct{ At time.Time }

// Now is the time.
func (c *Clock) Now() time.Time { return c.At }

// New makes a model with a context of a million tokens.
func New(t testing.TB, vocab int, logits func([]int32) []float32) *Model {
	return &Model{t: t, vocab: vocab, Length: 1 << 20, Logits: logits, Slots: map[int][]int32{}}
}

// Vocab implements engine.Decoder.
func (m *Model) Vocab() int { return m.vocab }

// Context implements engine.Decoder.
func (m *Model) Context() int { return m.Length }

// Close implements engine.Decoder.
func (m *Model) Close() error { return nil }

// Alloc implements engine.Decoder.
func (m *Model) Alloc() (int, error) {
	slot := len(m.Slots)
	m.Slots[slot] = nil
	return slot, nil
}

// Free implements engine.Decoder.
func (m *Model) Free(slot int) { delete(m.Slots, slot) }

// Copy implements engine.Decoder.
func (m *Model) Copy(dst, src, n int) error {
	if dst == src || n > len(m.Slots[src]) {
		m.t.Fatalf("copy %d tokens of slot %d, which holds %d, to slot %d", n, src, len(m.Slots[src]), dst)
	}
	m.Slots[dst] = slices.Clone(m.Slots[src][:n])
	return nil
}

// Forward implements engine.Decoder.
func (m *Model) Forward(ctx context.Context, slots, past []int, tokens [][]int32) ([]float32, error) {
	if m.Fail != nil || ctx.Err() != nil {
		return nil, errors.Join(m.Fail, ctx.Err())
	}
	m.Passes++
	if m.Clock != nil {
		m.Clock.At = m.Clock.At.Add(m.Cost(len(tokens[0])))
	}
	var out []float32
	for i, slot := range slots {
		held, ok := m.Slots[slot]
		if !ok || past[i] > len(held) {
			m.t.Fatalf("slot %d holds %d tokens, past is %d", slot, len(held), past[i])
		}
		held = slices.Clone(held[:past[i]])
		for _, x := range tokens[i] {
			held = append(held, x)
			if len(held) > m.Length {
				m.t.Fatalf("slot %d is fed past its context of %d", slot, m.Length)
			}
			if m.Note != nil {
				m.Note(m.vocab, held)
			}
			out = append(out, m.Logits(held)...)
			m.Fed++
		}
		m.Slots[slot] = held
	}
	return out, nil
}

// Hashed gives logits from a hash of the prefix: no two contexts are alike.
func Hashed(vocab int, seed uint64) func([]int32) []float32 {
	return func(prefix []int32) []float32 {
		h := seed
		for _, x := range prefix {
			h = h*0x9E3779B97F4A7C15 + uint64(x) + 1
		}
		r := rand.New(rand.NewPCG(h, seed))
		logits := make([]float32, vocab)
		for i := range logits {
			logits[i] = float32(r.NormFloat64())
		}
		return logits
	}
}

// Reciting gives all the mass to text's next token, for any prompt of length n.
func Reciting(vocab, n int, text []int32) func([]int32) []float32 {
	return func(prefix []int32) []float32 {
		logits := make([]float32, vocab)
		for i := range logits {
			logits[i] = float32(math.Inf(-1))
		}
		next := int32(0)
		if at := len(prefix) - n; at >= 0 && at < len(text) {
			next = text[at]
		}
		logits[next] = 0
		return logits
	}
}

// Letters is a tokenizer whose token i is the i-th letter, and eos the id after
// the last one.
func Letters(t testing.TB, alphabet string) (*tokenize.Tokenizer, int32) {
	t.Helper()
	vocab := map[string]int{}
	for i, c := range alphabet {
		name := string(c)
		if c == '\n' {
			name = "Ċ" // byte-level name of a new line
		}
		vocab[name] = i
	}
	eos := len(vocab)
	vocab["<eos>"] = eos
	file := map[string]any{
		"version":        "1.0",
		"added_tokens":   []map[string]any{{"id": eos, "content": "<eos>", "special": true, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false}},
		"normalizer":     nil,
		"pre_tokenizer":  map[string]any{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false},
		"post_processor": nil,
		"decoder":        map[string]any{"type": "ByteLevel"},
		"model":          map[string]any{"type": "BPE", "vocab": vocab, "merges": []string{}},
	}
	data, err := json.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "tokenizer.json")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	tok, err := tokenize.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	return tok, int32(eos)
}
