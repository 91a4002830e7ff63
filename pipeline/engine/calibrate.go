package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/draftmill/draftmill/spec"
)

const (
	// calibrationBudget bounds the time that measuring takes, beyond the first
	// few passes, without which nothing is known.
	calibrationBudget = 3 * time.Second
	calibrationRounds = 12
	// calibrationPast is how many tokens the caches hold meanwhile.
	calibrationPast = 96
)

// calibration measures passes of the target and of what drafts, by their rows.
type calibration struct {
	e    *Engine
	text []int32
	past int
	// input is how many of them an encoder reads.
	input int
	dist  spec.Dist
}

// calibrate lets the policy know what passes cost, if it asks for that.
func (e *Engine) calibrate(ctx context.Context) error {
	costs := e.policy.Costs()
	if costs == nil {
		return nil
	}
	c := &calibration{e: e}
	rows := [2][]int{costs.Target.Rows(false)}
	room := e.pair.Target.Context()
	if e.settings.K > 0 {
		rows[1] = costs.Draft.Rows(e.pair.Draft != nil)
	}
	if e.pair.Draft != nil {
		room = min(room, e.pair.Draft.Context())
	}
	c.past = max(0, min(calibrationPast, room-e.settings.K-2))
	if e.pair.Encoder != nil {
		c.input = max(1, c.past/2)
		c.past = max(c.past, c.input)
	}
	for i := range c.past + max(spec.MaxLookahead, e.settings.PassTokens) {
		c.text = append(c.text, int32(i%e.pair.Target.Vocab()))
	}
	if err := e.lanes[0].chain.Begin(c.text[:1]); err != nil {
		costs.Ready()
		return nil //nolint:nilerr // such sampling fails row by row, with an error of its own
	}
	began := e.now()
	for round := range calibrationRounds {
		for i := range max(len(rows[0]), len(rows[1])) {
			for model, curve := range []*spec.Curve{&costs.Target, &costs.Draft} {
				late := e.now().Sub(began) > calibrationBudget
				if i >= len(rows[model]) || late && (round > 0 || i > 1) {
					continue
				}
				if err := c.measure(ctx, curve, rows[model][i], model == 1, round == 0 && !late); err != nil {
					return err
				}
			}
		}
	}
	for _, l := range e.lanes {
		for _, cache := range l.caches() {
			cache.truncate(0)
		}
	}
	costs.Ready()
	return nil
}

// measure adds a pass of so many rows to a curve; the first of its kind is run
// twice, as it sets up what later ones find.
func (c *calibration) measure(ctx context.Context, curve *spec.Curve, rows int, draft, first bool) error {
	of, per := (*lane).targets, c.e.settings.K+1
	if draft {
		of, per = (*lane).draft, 1
	}
	if draft && c.e.pair.Draft == nil {
		began := c.e.now()
		for range rows {
			// An error of its own would end a row; here it only ends the measuring.
			_, _ = c.e.pair.Law.Law(c.text[:max(1, c.past)], c.e.lanes[0].chain.Standardize, &c.dist)
		}
		curve.Measured(rows, c.e.now().Sub(began))
		return nil
	}
	if draft && rows > c.e.settings.Lanes { // what feeding a draft that lags costs
		per = rows
	}
	if ok, err := c.ready(ctx, of, (rows+per-1)/per, per); err != nil || !ok {
		return err // no room for so many: loops will not have it either
	}
	for range 2 {
		took, err := c.pass(ctx, of, rows, per, draft)
		if err != nil {
			return fmt.Errorf("a pass of %d rows: %w", rows, err)
		}
		curve.Measured(rows, took)
		if !first {
			break
		}
	}
	return nil
}

// ready gives so many lanes' caches the same past, with room for n tokens behind
// it; it reports whether there is room.
func (c *calibration) ready(ctx context.Context, of func(*lane) *cache, lanes, n int) (bool, error) {
	e := c.e
	for len(e.lanes) < lanes {
		l, err := e.newLane()
		if err != nil {
			return false, err
		}
		e.lanes = append(e.lanes, l)
	}
	first := of(e.lanes[0])
	if c.past+n > first.model.Context() || e.pair.Encoder != nil && c.past-c.input+n > e.pair.Encoder.Most {
		return false, nil
	}
	for _, l := range e.lanes[:lanes] {
		cache := of(l)
		cache.input = c.input
		cache.rollback(c.past)
		if cache.held() < c.past && cache != first {
			if err := cache.share(first, c.past); err != nil {
				return false, err
			}
		}
		if !cache.reserve(cache.held(), c.past+n-cache.held()) {
			return false, nil
		}
		if cache.held() < c.past {
			p := pass{model: cache.model, now: e.now}
			var took time.Duration
			p.add(cache, c.text[:c.past], cache.held(), 0, &took)
			if err := p.run(ctx); err != nil {
				return false, err
			}
		}
	}
	return true, nil
}

// pass is the time of one pass, and of making distributions of its rows.
func (c *calibration) pass(ctx context.Context, of func(*lane) *cache, rows, per int, draft bool) (time.Duration, error) {
	e := c.e
	p := &e.score
	if draft {
		p = &e.draft
	}
	p.begin()
	var bill time.Duration
	for i := 0; rows > 0; i++ {
		n := min(per, rows)
		wanted := n
		if draft {
			wanted = 1
		}
		p.add(of(e.lanes[i]), c.text[:c.past+n], c.past, wanted, &bill)
		rows -= n
	}
	began := e.now()
	if err := p.run(ctx); err != nil {
		return 0, err
	}
	if err := e.sampler.try(c, p, draft); err != nil {
		return 0, err
	}
	return e.now().Sub(began), nil
}
