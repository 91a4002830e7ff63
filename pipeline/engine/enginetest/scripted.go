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

// Model is a decoder whose logits are a function of the whole prefix. Its cache
// blocks hold token ids in place of keys and values, so that a cache that was fed,
// shared or rolled back wrongly gives wrong logits; writing where nothing was
// reserved, or where others read, fails the test.
type Model struct {
	Logits func(prefix []int32) []float32
	Length int           // of the context
	Slots  map[int]*slot // in use
	Blocks int           // of the pool; 0: as many as are asked for
	Fed    int           // tokens over all passes
	Passes int
	Input  int    // tokens that every pass must say an encoder reads
	Fail   error  // what the next pass returns
	Before func() // every pass; may be nil
	// Refuse, if not nil, is asked by every Reserve for which there is room
	// whether to fail, unless only this slot has blocks.
	Refuse func() bool
	// Note, if not nil, is told of the prefixes that are scored, for exact
	// distributions.
	Note func(...any)
	// A pass over so many tokens puts Clock, if not nil, forward by Cost.
	Clock *Clock
	Cost  func(tokens int) time.Duration

	t     testing.TB
	vocab int
	next  int // slot
	used  int // blocks
}

// slot is a sequence's cache.
type slot struct {
	table []*block
	held  int
}

type block struct {
	tokens [blockLen]int32
	refs   int
}

// blockLen is small, so that short sequences have several blocks.
const blockLen = 4

// Clock is a time that passes only when told to.
type Clock struct{ At time.Time }

// Now is the time.
func (c *Clock) Now() time.Time { return c.At }

// New makes a model with a context of a million tokens.
func New(t testing.TB, vocab int, logits func([]int32) []float32) *Model {
	return &Model{t: t, vocab: vocab, Length: 1 << 20, Logits: logits, Slots: map[int]*slot{}}
}

// Vocab implements engine.Decoder.
func (m *Model) Vocab() int { return m.vocab }

// Context implements engine.Decoder.
func (m *Model) Context() int { return m.Length }

// Capacity implements engine.Decoder.
func (m *Model) Capacity() int { return m.Blocks * blockLen }

// Used is how many blocks are in use.
func (m *Model) Used() int { return m.used }

// Close implements engine.Decoder.
func (m *Model) Close() error { return nil }

// Alloc implements engine.Decoder.
func (m *Model) Alloc() (int, error) {
	m.next++
	m.Slots[m.next] = &slot{}
	return m.next, nil
}

// Free implements engine.Decoder.
func (m *Model) Free(slot int) {
	m.Truncate(slot, 0)
	delete(m.Slots, slot)
}

// slot is one that has to exist.
func (m *Model) slot(n int) *slot {
	s := m.Slots[n]
	if s == nil {
		m.t.Fatalf("slot %d is not in use", n)
	}
	return s
}

// Share implements engine.Decoder.
func (m *Model) Share(dst, src, n int) error {
	to, from := m.slot(dst), m.slot(src)
	if dst == src || n > from.held || len(to.table) > 0 {
		m.t.Fatalf("share %d tokens of slot %d, which holds %d, with slot %d, which has %d blocks", n, src, from.held, dst, len(to.table))
	}
	to.table = slices.Clone(from.table[:blocks(n)])
	for _, b := range to.table {
		b.refs++
	}
	to.held = n
	return nil
}

// Reserve implements engine.Decoder.
func (m *Model) Reserve(slot, past, n int) bool {
	s := m.slot(slot)
	if past > s.held {
		m.t.Fatalf("reserve behind %d tokens of slot %d, which holds %d", past, slot, s.held)
	}
	written := s.table[min(past/blockLen, len(s.table)):min(blocks(past+n), len(s.table))]
	need := max(0, blocks(past+n)-len(s.table))
	for _, b := range written {
		if b.refs > 1 {
			need++
		}
	}
	if m.Blocks > 0 && m.used+need > m.Blocks {
		return false
	}
	if m.Refuse != nil && m.used > len(s.table) && m.Refuse() {
		return false
	}
	for i, b := range written {
		if b.refs > 1 { // copy on write
			b.refs--
			written[i] = &block{tokens: b.tokens, refs: 1}
		}
	}
	for len(s.table) < blocks(past+n) {
		s.table = append(s.table, &block{refs: 1})
	}
	m.used += need
	return true
}

// Truncate implements engine.Decoder.
func (m *Model) Truncate(slot, n int) {
	s := m.slot(slot)
	s.held = min(s.held, n)
	for len(s.table) > blocks(s.held) {
		last := s.table[len(s.table)-1]
		s.table = s.table[:len(s.table)-1]
		if last.refs--; last.refs == 0 {
			m.used--
		}
	}
}

// blocks is how many blocks n tokens take.
func blocks(n int) int { return (n + blockLen - 1) / blockLen }

// Forward implements engine.Decoder.
func (m *Model) Forward(ctx context.Context, spans []struct {
	Slot   int
	Past   int
	Tokens []int32
	Rows   int
	Input  int
	From   int
}) ([]float32, error) {
	if m.Fail != nil || ctx.Err() != nil {
		return nil, errors.Join(m.Fail, ctx.Err())
	}
	if m.Before != nil {
		m.Before()
	}
	m.Passes++
	var out []float32
	rows, seen := 0, map[int]bool{}
	for i, span := range spans {
		s := m.slot(span.Slot)
		if span.From > 0 && span.From <= i {
			m.lend(span.Slot, spans[span.From-1].Slot, span.Past)
		}
		if seen[span.Slot] || span.Past > s.held || len(span.Tokens) == 0 || span.Rows > len(span.Tokens) {
			m.t.Fatalf("slot %d holds %d tokens; it is fed %d behind %d for %d rows", span.Slot, s.held, len(span.Tokens), span.Past, span.Rows)
		}
		if span.Input != m.Input || span.Rows > max(0, span.Past+len(span.Tokens)-m.Input) {
			m.t.Fatalf("slot %d: input %d and %d rows after %d tokens, where the input is %d", span.Slot, span.Input, span.Rows, span.Past+len(span.Tokens), m.Input)
		}
		seen[span.Slot] = true
		rows += len(span.Tokens)
		var prefix []int32
		for i := range span.Past {
			prefix = append(prefix, s.table[i/blockLen].tokens[i%blockLen])
		}
		for i, x := range span.Tokens {
			at := span.Past + i
			if at >= m.Length || at/blockLen >= len(s.table) || s.table[at/blockLen].refs > 1 {
				m.t.Fatalf("slot %d is fed at %d, where it has nothing reserved", span.Slot, at)
			}
			s.table[at/blockLen].tokens[at%blockLen] = x
			prefix = append(prefix, x)
			if i < len(span.Tokens)-span.Rows {
				continue
			}
			if m.Note != nil {
				m.Note(m.vocab, prefix)
			}
			out = append(out, m.Logits(prefix)...)
		}
		s.held = span.Past + len(span.Tokens)
	}
	m.Fed += rows
	if m.Clock != nil {
		m.Clock.At = m.Clock.At.Add(m.Cost(rows))
	}
	return out, nil
}

// lend gives a slot what it lacks of the first n tokens, from another that was fed
// before in the same pass.
func (m *Model) lend(dst, src, n int) {
	to, from := m.slot(dst), m.slot(src)
	if n > from.held {
		m.t.Fatalf("slot %d takes %d tokens from slot %d, which holds %d", dst, n, src, from.held)
	}
	for at := range n {
		x := from.table[at/blockLen].tokens[at%blockLen]
		if at < to.held {
			if have := to.table[at/blockLen].tokens[at%blockLen]; have != x {
				m.t.Fatalf("slot %d has %d at %d, slot %d, with which it begins, %d", dst, have, at, src, x)
			}
			continue
		}
		if at/blockLen >= len(to.table) || to.table[at/blockLen].refs > 1 {
			m.t.Fatalf("slot %d is to hold token %d, where it has nothing reserved", dst, at)
		}
		to.table[at/blockLen].tokens[at%blockLen] = x
	}
	to.held = max(to.held, n)
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
