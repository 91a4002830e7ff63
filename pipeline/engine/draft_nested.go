package engine

import (
	"errors"
	"time"

	"github.com/draftmill/draftmill/spec"
)

// InnerLookahead bounds how many tokens an inner loop drafts.
const InnerLookahead = min(4, spec.MaxInnerLookahead)

// nestedDrafter drafts with a model that is itself accelerated: a step is one
// loop of speculative sampling in which the draft model is the target and a
// law without a model its draft.
//
// By Theorem 1 of Chen et al., applied to that inner loop, its tokens have the
// draft model's law p, exactly, whatever the inner draft is worth. The model's
// distributions, which the inner loop has standardized as its q, are the outer
// loop's p.
//
// All tokens that the inner loop keeps are verified by the outer one, so that
// a policy may stop after any step: how many tokens a step yields is settled by
// coins of positions up to its last, and says nothing about those behind it.
// Inner coins have purposes of their own, and every inner loop its own coins.
type nestedDrafter struct {
	modelDrafter
	law spec.Drafter

	drafted []int32
	p       []spec.Dist // of the law; d.p is the model's
	coins   spec.InnerCoins
	out     spec.Outcome
}

func (s *nestedDrafter) feed(d *proposal, most int, p *pass, bill *time.Duration) error {
	n := len(d.tokens)
	s.coins = spec.InnerCoins{Uniforms: &d.coins, Start: n}
	s.drafted = s.drafted[:0]
	for t := range min(most-1, len(s.p)) {
		ok, err := s.law.Law(d.tokens, d.standardize, &s.p[t])
		if err != nil {
			return rowError{err}
		}
		if !ok {
			break
		}
		x := d.rule.Draft(&s.p[t], &s.coins, n+t)
		d.tokens, s.drafted = append(d.tokens, x), append(s.drafted, x)
	}
	p.add(s.cache, d.tokens, min(s.cache.held(), n-1), len(s.drafted)+1, bill)
	return nil
}

func (s *nestedDrafter) draw(d *proposal) error {
	k := len(s.drafted)
	n := len(d.tokens) - k
	have := n - d.start
	q := d.p[have : have+k+1]
	row := func(t int) []float32 { return s.cache.row(t - len(s.drafted) - 1) }
	ends := false // no token may come behind the first k, see modelDrafter.draw
	for t := 0; t <= k; t++ {
		err := d.standardize(row(t), d.tokens[:n+t], &q[t])
		if ends = errors.Is(err, spec.ErrNoMass); ends {
			k = t
			_, err = spec.Uniform{Vocab: len(row(t))}.Law(nil, nil, &q[t]) // for a token that is left out
		}
		if err != nil {
			return rowError{err}
		}
	}
	if err := spec.Verify(d.rule.Inner(), s.drafted[:k], s.p[:k], q[:k+1], &s.coins, n, &s.out); err != nil {
		return rowError{err}
	}
	d.tokens = d.tokens[:n+s.out.Accepted]
	if !ends || s.out.Kind == spec.Recovered {
		d.tokens = append(d.tokens, s.out.Token)
	}
	for t, x := range d.tokens[n:] {
		d.least = min(d.least, q[t].Prob(x))
		d.sure(row(t), x)
	}
	s.cache.rollback(len(d.tokens) - 1)
	return nil
}
