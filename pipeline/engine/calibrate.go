package engine

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/draftmill/draftmill/spec"
)

// measuring is a policy that wants to know what loops cost before the first.
type measuring interface {
	Measured(lanes, k int, draft, verify time.Duration)
	Ready()
}

const (
	// calibrationBudget bounds the time that measuring takes, beyond the first
	// few passes, without which nothing is known.
	calibrationBudget = 3 * time.Second
	calibrationRounds = 12
	// calibrationPast is how many tokens the caches hold meanwhile.
	calibrationPast = 96
)

// calibration measures the passes that loops are made of: for some numbers of
// lanes and of drafted tokens, the corners first.
type calibration struct {
	e      *Engine
	policy measuring
	text   []int32
	past   int
}

// calibrate lets the policy know what loops cost, if it asks for that.
func (e *Engine) calibrate(ctx context.Context) error {
	policy, ok := e.policy.(measuring)
	if !ok {
		return nil
	}
	for len(e.lanes) < e.settings.Lanes {
		l, err := e.newLane()
		if err != nil {
			return err
		}
		e.lanes = append(e.lanes, l)
	}
	c := &calibration{e: e, policy: policy}
	room := e.pair.Target.Context()
	if e.pair.Draft != nil {
		room = min(room, e.pair.Draft.Context())
	}
	c.past = max(0, min(calibrationPast, room-e.settings.K-2))
	for i := range c.past + e.settings.K + 2 {
		c.text = append(c.text, int32(i%e.pair.Target.Vocab()))
	}
	if err := c.fill(ctx); err != nil {
		return err
	}
	if err := c.measure(ctx); err != nil {
		return err
	}
	for _, l := range e.lanes {
		l.rollback(0)
	}
	policy.Ready()
	return nil
}

// fill gives all caches the same past.
func (c *calibration) fill(ctx context.Context) error {
	if c.past == 0 {
		return nil
	}
	first := c.e.lanes[0]
	caches := []*cache{first.target}
	if d := first.draft(); d != nil {
		caches = append(caches, d)
	}
	for i, cache := range caches {
		if _, err := cache.fill(ctx, c.text[:c.past]); err != nil {
			return err
		}
		for _, l := range c.e.lanes[1:] {
			to := l.target
			if i > 0 {
				to = l.draft()
			}
			if err := to.share(cache, c.past); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *calibration) measure(ctx context.Context) error {
	widths, ks := steps(1, c.e.settings.Lanes), steps(0, c.e.settings.K)
	if auto, ok := c.policy.(interface{ Fixed() bool }); ok && auto.Fixed() {
		ks = []int{c.e.settings.K}
	}
	began := c.e.now()
	for round := range calibrationRounds {
		for i, lanes := range widths {
			draft, err := c.drafting(ctx, lanes, round == 0)
			if err != nil {
				return err
			}
			for j, k := range ks {
				corner := round == 0 && i < 2 && j < 2
				if !corner && c.e.now().Sub(began) > calibrationBudget {
					continue
				}
				verify, err := c.scoring(ctx, lanes, max(k+1, c.e.least), round == 0)
				if err != nil {
					return err
				}
				c.policy.Measured(lanes, k, draft(k), verify)
			}
		}
	}
	return nil
}

// steps is first, last, and what lies between them in doubling steps.
func steps(first, last int) []int {
	s := []int{first}
	if last > first {
		s = append(s, last)
	}
	for n := max(1, 2*first); n < last; n *= 2 {
		s = append(s, n)
	}
	return slices.Compact(s)
}

// scoring is the time of one pass of the target that scores s tokens in each of
// so many lanes. The first of its kind sets up what later ones find.
func (c *calibration) scoring(ctx context.Context, lanes, s int, first bool) (time.Duration, error) {
	return c.pass(ctx, lanes, s, first, func(l *lane) *cache { return l.target })
}

// drafting returns the time of drafting as a function of the number of tokens.
func (c *calibration) drafting(ctx context.Context, lanes int, first bool) (func(k int) time.Duration, error) {
	if c.e.settings.K == 0 {
		return func(int) time.Duration { return 0 }, nil
	}
	if c.e.pair.Draft == nil {
		one, err := c.law()
		return func(k int) time.Duration { return time.Duration(k*lanes) * one }, err
	}
	draft := func(l *lane) *cache { return l.draft() }
	two, err := c.pass(ctx, lanes, 2, first, draft)
	if err != nil {
		return nil, err
	}
	one, err := c.pass(ctx, lanes, 1, first, draft)
	return func(k int) time.Duration {
		if k == 0 {
			return 0
		}
		return two + time.Duration(k-1)*one
	}, err
}

func (c *calibration) pass(ctx context.Context, lanes, s int, first bool, of func(*lane) *cache) (time.Duration, error) {
	p := &c.e.score
	run := func() (time.Duration, error) {
		began := c.e.now()
		p.begin(s)
		for _, l := range c.e.lanes[:lanes] {
			p.add(of(l), c.text[:c.past+s], c.past)
		}
		if err := p.run(ctx); err != nil {
			return 0, fmt.Errorf("a pass of %d tokens in %d lanes: %w", s, lanes, err)
		}
		return c.e.now().Sub(began), nil
	}
	if first {
		if _, err := run(); err != nil {
			return 0, err
		}
	}
	return run()
}

// law is the time that drafting one token with the law takes.
func (c *calibration) law() (time.Duration, error) {
	var p spec.Dist
	l := c.e.lanes[0]
	if err := l.chain.Begin(c.text[:1]); err != nil {
		return 0, nil //nolint:nilerr // such sampling fails row by row, with an error of its own
	}
	began := c.e.now()
	if _, err := c.e.pair.Law.Law(c.text[:max(1, c.past)], l.chain.Standardize, &p); err != nil {
		return 0, nil //nolint:nilerr // likewise
	}
	return c.e.now().Sub(began), nil
}
