package spec

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// Chain turns rows of logits into the distributions that tokens are drawn
// from: a [Sampling] together with the sequence that its penalties look at.
//
// One Chain standardizes p and q alike. It is told the whole sequence with
// every row, the drafted tokens included, so that a penalty at the third
// drafted token sees the first two, in the draft and in the target: the
// distribution of a token is a function of the tokens before it and of
// nothing else, which is what makes a loop lossless (Leviathan et al., 2.2).
//
// A Chain is used by one goroutine at a time and allocates nothing once its
// buffers have grown.
type Chain struct {
	sampling Sampling
	kernel   kernel
	vocab    int
	eos      []int32
	bias     []bias // ascending ids
	prompt   int
	history  *history      // nil where nothing looks back
	place    map[int32]int // scratch of Edits
	blocks   []float64     // scratch of LogProbs
}

type bias struct {
	token int32
	add   float32
}

// NewChain makes the chain of one sequence at a time over a vocabulary of
// vocab tokens. eos are the tokens that end a sequence; those outside the
// vocabulary are ignored, as no row of logits has them.
func NewChain(s Sampling, vocab int, eos []int32) (*Chain, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	c := &Chain{sampling: s, kernel: native{}, vocab: vocab}
	inside := func(x int32) bool { return x >= 0 && int(x) < vocab }
	for _, x := range eos {
		if inside(x) {
			c.eos = append(c.eos, x)
		}
	}
	for x, b := range s.LogitBias {
		if !inside(x) {
			return nil, fmt.Errorf("logit bias of token %d, outside the vocabulary of %d", x, vocab)
		}
		c.bias = append(c.bias, bias{x, float32(b)})
	}
	slices.SortFunc(c.bias, func(a, b bias) int { return cmp.Compare(a.token, b.token) })
	for _, x := range s.ForbiddenTokens {
		if !inside(x) {
			return nil, fmt.Errorf("forbidden token %d lies outside the vocabulary of %d", x, vocab)
		}
	}
	if s.Remembers() {
		c.history = newHistory(vocab, s.NoRepeatNGramSize)
	}
	return c, nil
}

// Begin starts a sequence.
func (c *Chain) Begin(prompt []int32) error {
	c.prompt = len(prompt)
	if c.history == nil {
		return nil
	}
	return c.history.begin(prompt)
}

// Standardize fills d with the distribution of the token after tokens, from
// the row of logits that the model gave for it (length: the vocabulary).
// tokens is the whole sequence: prompt, kept tokens and drafted ones; it may
// have become shorter or different since the last call, but begins with
// Begin's prompt.
//
// The logits are only read. -Inf forbids a token; NaN and +Inf are
// ErrNotANumber; a row in which nothing is possible is ErrNoMass. At
// temperature zero d refers to logits until its next use: see [Dist.Margin].
func (c *Chain) Standardize(logits []float32, tokens []int32, d *Dist) error {
	if err := c.check(logits, tokens); err != nil {
		return err
	}
	if c.processes(tokens) {
		d.row = append(d.row[:0], logits...)
		if err := c.process(d.row, tokens); err != nil {
			return err
		}
		logits = d.row
	}
	return c.sampling.warp(c.kernel, logits, d)
}

// LogProbs fills row with what a beam search adds up for the token after tokens:
// the logarithms of the model's probabilities, and then everything before the
// temperature applied to them, as transformers does it there. Temperature and
// truncations have no part in it. The rest is as for Standardize; that nothing is
// possible is no error after the first of the two.
func (c *Chain) LogProbs(logits []float32, tokens []int32, row []float32) error {
	if err := c.check(logits, tokens); err != nil {
		return err
	}
	at, err := c.kernel.peak(logits)
	if err != nil {
		return err
	}
	top, blocks := float64(logits[at]), grow(c.blocks, blocksOf(len(logits)))
	c.blocks = blocks
	all := top + math.Log(c.kernel.exps(logits, top, math.Log2E, row, blocks))
	for x, l := range logits {
		row[x] = float32(float64(l) - all)
	}
	if c.processes(tokens) {
		return c.process(row, tokens)
	}
	return nil
}

func (c *Chain) check(logits []float32, tokens []int32) error {
	if len(logits) != c.vocab {
		return fmt.Errorf("%d logits for a vocabulary of %d: %w", len(logits), c.vocab, ErrShape)
	}
	if len(tokens) < c.prompt {
		return fmt.Errorf("a sequence of %d tokens is shorter than its prompt of %d: %w", len(tokens), c.prompt, ErrShape)
	}
	return nil
}

// processes reports whether there is anything before the temperature.
func (c *Chain) processes(tokens []int32) bool {
	return c.history != nil || c.ending(tokens) || len(c.bias) > 0 || len(c.sampling.ForbiddenTokens) > 0
}

// ending says that the sequence may not end yet.
func (c *Chain) ending(tokens []int32) bool {
	return len(tokens)-c.prompt < c.sampling.MinNewTokens && len(c.eos) > 0
}

// process applies everything before the temperature to row, in order.
func (c *Chain) process(row []float32, tokens []int32) error {
	s, h := &c.sampling, c.history
	for _, b := range c.bias {
		row[b.token] += b.add
	}
	ban := func(x int32) error { return forbid(row, x) }
	if h != nil {
		if err := h.follow(tokens); err != nil {
			return err
		}
		if s.penalizesRepetition() {
			penalty := float32(s.RepetitionPenalty)
			for _, x := range h.kinds {
				if row[x] < 0 {
					row[x] *= penalty
				} else {
					row[x] /= penalty
				}
			}
		}
		if s.NoRepeatNGramSize > 0 {
			if err := h.completions(ban); err != nil {
				return err
			}
		}
	}
	if c.ending(tokens) {
		for _, x := range c.eos {
			if err := ban(x); err != nil {
				return err
			}
		}
	}
	for _, x := range s.ForbiddenTokens {
		if err := ban(x); err != nil {
			return err
		}
	}
	if s.FrequencyPenalty != 0 || s.PresencePenalty != 0 {
		frequency, presence := float32(s.FrequencyPenalty), float32(s.PresencePenalty)
		for _, x := range h.kinds {
			if n := h.made[x]; n > 0 {
				row[x] -= float32(frequency * float32(n))
				row[x] -= presence
			}
		}
	}
	return nil
}

// forbid makes token x impossible, but hides no number that is none.
func forbid(row []float32, x int32) error {
	if l := row[x]; l != l || l > math.MaxFloat32 {
		return ErrNotANumber
	}
	row[x] = float32(math.Inf(-1))
	return nil
}
