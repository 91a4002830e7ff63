package certify

import (
	"context"
	"fmt"
	"slices"

	"github.com/draftmill/draftmill/pipeline/engine"
	"github.com/draftmill/draftmill/spec"
)

// Partitions of the vocabulary, see the package's doc.
const (
	byRank = iota
	bySpread
	byDraft
	partitions
)

var partitionNames = [partitions]string{"rank", "spread", "draft"}
var partitionCells = [partitions]int{7, 8, 2}

// law is the target's exact distribution after one prefix, as far as the test
// needs it.
type law struct {
	cells [partitions][]float64 // probability of each cell
	token []uint8               // per token: rank cell, draft cell, support
}

const (
	rankBits   = 0b0111
	draftBit   = 0b1000
	supportBit = 0b1_0000
)

// cell says where token x falls; possible is false when the target cannot
// draw it at all.
func (l *law) cell(partition int, x int32) (cell int, possible bool) {
	t := l.token[x]
	switch partition {
	case byRank:
		cell = int(t & rankBits)
	case bySpread:
		cell = spread(x)
	case byDraft:
		cell = int(t&draftBit) / draftBit
	}
	return cell, t&supportBit != 0
}

// spread hashes a token id into one of eight cells.
func spread(x int32) int { return int(uint32(x) * 0x9E3779B9 >> 29) }

// reference reads exact laws from the two models, one token a pass.
type reference struct {
	target *follower
	draft  *follower // nil: drafting needs no model, and partition draft is one cell
	prompt []int32
	known  map[string]*law
	q, p   spec.Dist
	order  []int32
}

func newReference(pair engine.Pair, s spec.Sampling) (*reference, error) {
	target, err := newFollower(pair, pair.Target, s)
	if err != nil {
		return nil, err
	}
	r := &reference{target: target}
	if pair.Draft != nil {
		if r.draft, err = newFollower(pair, pair.Draft, s); err != nil {
			target.free()
			return nil, err
		}
	}
	return r, nil
}

func (r *reference) free() {
	r.target.free()
	if r.draft != nil {
		r.draft.free()
	}
}

func (r *reference) begin(ctx context.Context, prompt []int32) error {
	r.prompt, r.known = prompt, map[string]*law{}
	if err := r.target.begin(ctx, prompt); err != nil || r.draft == nil {
		return err
	}
	return r.draft.begin(ctx, prompt)
}

// after returns the law of the token after the prompt and these tokens.
func (r *reference) after(ctx context.Context, tokens []int32) (*law, error) {
	key := fmt.Sprint(tokens)
	if l := r.known[key]; l != nil {
		return l, nil
	}
	if err := r.target.law(ctx, tokens, &r.q); err != nil {
		return nil, err
	}
	if r.draft != nil {
		if err := r.draft.law(ctx, tokens, &r.p); err != nil {
			return nil, err
		}
	}
	l := &law{token: make([]uint8, len(r.q.W))}
	for i := range l.cells {
		l.cells[i] = make([]float64, partitionCells[i])
	}
	r.order = r.order[:0]
	for x := range r.q.W {
		if r.q.W[x] > 0 {
			r.order = append(r.order, int32(x))
		}
	}
	slices.SortFunc(r.order, func(a, b int32) int {
		switch wa, wb := r.q.W[a], r.q.W[b]; {
		case wa > wb:
			return -1
		case wa < wb:
			return 1
		}
		return int(a - b)
	})
	for rank, x := range r.order {
		t := uint8(rankCell(rank)) | supportBit
		if r.draft != nil && r.p.Prob(x) > r.q.Prob(x) {
			t |= draftBit
		}
		l.token[x] = t
		for i := range l.cells {
			cell, _ := l.cell(i, x)
			l.cells[i][cell] += r.q.Prob(x)
		}
	}
	r.known[key] = l
	return l, nil
}

// rankCell is 0, 1, 2, 3 for the four likeliest tokens, 4 for ranks 5 to 8, 5
// for 9 to 32 and 6 beyond.
func rankCell(rank int) int {
	switch {
	case rank < 4:
		return rank
	case rank < 8:
		return 4
	case rank < 32:
		return 5
	}
	return 6
}

// follower reads one model's laws behind a prompt, feeding one token a pass:
// nothing of the speculative loop's shapes or roll-backs is in it.
type follower struct {
	pair   engine.Pair
	model  engine.Decoder
	chain  *spec.Chain
	slot   int
	prompt []int32
}

func newFollower(pair engine.Pair, model engine.Decoder, s spec.Sampling) (*follower, error) {
	chain, err := spec.NewChain(s, model.Vocab(), pair.EOS)
	if err != nil {
		return nil, err
	}
	slot, err := model.Alloc()
	if err != nil {
		return nil, fmt.Errorf("allocate a cache for exact laws: %w", err)
	}
	return &follower{pair: pair, model: model, chain: chain, slot: slot}, nil
}

func (f *follower) free() { f.model.Free(f.slot) }

func (f *follower) begin(ctx context.Context, prompt []int32) error {
	f.prompt = prompt
	if err := f.chain.Begin(prompt[f.pair.Input(prompt):]); err != nil {
		return err
	}
	for i := range len(prompt) - 1 {
		if _, err := f.feed(ctx, prompt, i); err != nil {
			return err
		}
	}
	return nil
}

// feed feeds the i-th of the tokens and returns the logits after it.
func (f *follower) feed(ctx context.Context, tokens []int32, i int) ([]float32, error) {
	if !f.model.Reserve(f.slot, i, 1) {
		return nil, fmt.Errorf("the cache has no room for %d tokens; give it more memory", i+1)
	}
	span := engine.Span{Slot: f.slot, Past: i, Tokens: tokens[i : i+1], Rows: 1, Input: f.pair.Input(f.prompt)}
	if i < span.Input { // it has none
		span.Rows = 0
	}
	return f.model.Forward(ctx, []engine.Span{span})
}

func (f *follower) law(ctx context.Context, tokens []int32, d *spec.Dist) error {
	all := append(slices.Clone(f.prompt), tokens...)
	var logits []float32
	for i := len(f.prompt) - 1; i < len(all); i++ {
		var err error
		if logits, err = f.feed(ctx, all, i); err != nil {
			return err
		}
	}
	return f.chain.Standardize(logits, all[f.pair.Input(f.prompt):], d)
}
