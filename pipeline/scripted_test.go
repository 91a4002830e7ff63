package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/draftmill/draftmill/pipeline/tokenize"
	"github.com/draftmill/draftmill/spec"
)

// scripted is a model whose logits are a function of the whole prefix. Its
// slots hold token ids in place of keys and values, so that a cache that was
// fed or rolled back wrongly gives wrong logits.
type scripted struct {
	t       testing.TB
	vocab   int
	context int
	logits  func(prefix []int32) []float32
	slots   map[int][]int32
	fed     int // tokens over all passes
	passes  int
	fail    error // what the next pass returns
	// Prefixes that were scored are noted here, for exact laws.
	note func(...any)
	// A pass over so many tokens puts the clock forward by cost.
	clock *clock
	cost  func(tokens int) time.Duration
}

// clock is a time that passes only when told to.
type clock struct{ at time.Time }

func (c *clock) now() time.Time { return c.at }

func newScripted(t testing.TB, vocab int, logits func([]int32) []float32) *scripted {
	return &scripted{t: t, vocab: vocab, context: 1 << 20, logits: logits, slots: map[int][]int32{}}
}

func (m *scripted) Vocab() int   { return m.vocab }
func (m *scripted) Context() int { return m.context }
func (m *scripted) Close() error { return nil }

func (m *scripted) Alloc() (int, error) {
	slot := len(m.slots)
	m.slots[slot] = nil
	return slot, nil
}

func (m *scripted) Free(slot int) { delete(m.slots, slot) }

func (m *scripted) Copy(dst, src, n int) error {
	if dst == src || n > len(m.slots[src]) {
		m.t.Fatalf("copy %d tokens of slot %d, which holds %d, to slot %d", n, src, len(m.slots[src]), dst)
	}
	m.slots[dst] = slices.Clone(m.slots[src][:n])
	return nil
}

func (m *scripted) Forward(ctx context.Context, slots, past []int, tokens [][]int32) ([]float32, error) {
	if m.fail != nil || ctx.Err() != nil {
		return nil, errors.Join(m.fail, ctx.Err())
	}
	m.passes++
	if m.clock != nil {
		m.clock.at = m.clock.at.Add(m.cost(len(tokens[0])))
	}
	var out []float32
	for i, slot := range slots {
		held, ok := m.slots[slot]
		if !ok || past[i] > len(held) {
			m.t.Fatalf("slot %d holds %d tokens, past is %d", slot, len(held), past[i])
		}
		held = slices.Clone(held[:past[i]])
		for _, x := range tokens[i] {
			held = append(held, x)
			if len(held) > m.context {
				m.t.Fatalf("slot %d is fed past its context of %d", slot, m.context)
			}
			if m.note != nil {
				m.note(m.vocab, held)
			}
			out = append(out, m.logits(held)...)
			m.fed++
		}
		m.slots[slot] = held
	}
	return out, nil
}

// hashed gives logits from a hash of the prefix: no two contexts are alike.
func hashed(vocab int, seed uint64) func([]int32) []float32 {
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

// reciting gives all the mass to text's next token, for any prompt of length n.
func reciting(vocab, n int, text []int32) func([]int32) []float32 {
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

// letters is a tokenizer whose token i is the i-th letter, and eos the id after
// the last one.
func letters(t testing.TB, alphabet string) (*tokenize.Tokenizer, int32) {
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

// run decodes one completion with a fresh engine and returns what happened.
type ran struct {
	text, reason, stop string
	tokens             []int32
	loops              []Loop
}

func decodeOnce(t testing.TB, pair Pair, k int, s spec.Sampling, coins spec.Uniforms, prompt []int32, stop []string, limit int) ran {
	t.Helper()
	e, err := NewEngine(t.Context(), pair, Settings{K: k, Sampling: s})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	return decodeAll(t, e, Request{Prompt: prompt, Coins: coins, Stop: stop, Limit: limit})[0]
}

// decodeAll decodes sequences together and returns what happened to each.
func decodeAll(t testing.TB, e *Engine, requests ...Request) []ran {
	t.Helper()
	all := make([]ran, len(requests))
	for i := range requests {
		r := &all[i]
		requests[i].Loop = func(l *Loop) error {
			kept, out := *l, *l.Outcome
			out.P, out.Q, out.Overlap, out.Coins = slices.Clone(l.P), slices.Clone(l.Q), slices.Clone(l.Overlap), slices.Clone(l.Coins)
			kept.Drafted, kept.Outcome = slices.Clone(l.Drafted), &out
			r.loops = append(r.loops, kept)
			return nil
		}
		requests[i].Done = func(s *Sequence) error {
			r.text, r.reason, r.stop = s.Text, s.Reason, s.Stop
			return nil
		}
	}
	tokens, err := e.DrawAll(t.Context(), requests)
	if err != nil {
		t.Fatal(err)
	}
	for i := range all {
		all[i].tokens = tokens[i]
	}
	return all
}

func (r ran) String() string { return fmt.Sprintf("%v %s %q", r.tokens, r.reason, r.text) }
