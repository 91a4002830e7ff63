package engine

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/draftmill/draftmill/pipeline/engine/remote"
	"github.com/draftmill/draftmill/spec"
)

// sampler is the part of a loop between its passes, for all sequences: drawing what
// is drafted, and deciding over it. An error of one sequence is noted in its lane.
type sampler interface {
	// draft has each sequence that has not failed draw from what the draft step of
	// this number has left.
	draft(step int, lanes []*lane) error
	// verify makes each sequence's outcome of what the target has scored. It reports
	// false where the loop is to be drafted again.
	verify(lanes []*lane) (bool, error)
	// try does what a pass's rows ask for, to measure it.
	try(c *calibration, p *pass, draft bool) error
}

// sampleWith sets the engine's sampler.
func (e *Engine) sampleWith(pair Pair) error {
	if pair.Remote == nil {
		e.sampler = local{e}
		return nil
	}
	if err := e.settings.Remote(pair.Law != nil); err != nil {
		return fmt.Errorf("draw where the models are: %w", err)
	}
	e.sampler = &afar{
		Engine:   e,
		waits:    e.settings.Sampling.Remembers() || e.settings.Lookahead.Kind == spec.ConfidenceLookahead,
		measures: e.settings.Lookahead.Kind == spec.AutoLookahead || e.settings.AutoLanes,
		device:   remote.New(pair.Remote, e.settings.Sampling, e.rule, pair.EOS),
	}
	e.score.keep, e.draft.keep = pair.Remote.KeepTarget, pair.Remote.KeepDraft
	return nil
}

// Remote says why an engine of these settings needs the logits on the host, whatever
// the pair offers; nil where it does not. law says whether something other than a
// draft model drafts.
func (s Settings) Remote(law bool) error {
	switch {
	case s.Beams != nil:
		return errors.New("a beam search (beams) looks at whole rows of logits")
	case s.K > 0 && law:
		return errors.New("a drafter without a model (drafter) has its distributions on the host")
	}
	return nil
}

// local draws and decides on the host, sequence by sequence.
type local struct{ *Engine }

func (s local) draft(_ int, lanes []*lane) error {
	bill := sampling
	if s.pair.Draft == nil { // a distribution that needs no model is all that drafting is
		bill = drafting
	}
	s.each(lanes, bill, func(l *lane) error { return l.drafter.draw(&l.proposal) })
	return nil
}

func (s local) verify(lanes []*lane) (bool, error) {
	s.each(lanes, sampling, (*lane).standardize)
	s.each(lanes, sampling, func(l *lane) error {
		n, k := l.loop.Position, len(l.loop.Drafted)
		if err := spec.Verify(s.rule, l.loop.Drafted, l.proposal.p[:k], l.q[:k+1], l.request.Coins, n, &l.out); err != nil {
			return rowError{fmt.Errorf("verify tokens %d to %d: %w", n, n+k, err)}
		}
		return nil
	})
	return true, nil
}

// standardize makes the target's distributions of its logits.
func (l *lane) standardize() error {
	for t := range len(l.loop.Drafted) + 1 {
		at := l.loop.Position + t
		if err := l.standardizeRow(l.target.row(t), l.tokens[:at], &l.q[t]); err != nil {
			return rowError{fmt.Errorf("score token %d: %w", at, err)}
		}
	}
	return nil
}

func (s local) try(c *calibration, p *pass, _ bool) error {
	for i, f := range p.feeds {
		for row := range p.spans[i].Rows {
			// An error would end a sequence; here there is none.
			_ = s.lanes[0].chain.Standardize(f.cache.row(row), c.text[:c.past+1+row], &c.dist)
		}
	}
	return nil
}

// afar draws where the models are, all sequences at a time. The rows of a pass are
// those of the sequences that have not failed, in their order.
//
// A loop waits for the device once, for its verification: what the draft steps draw
// is fed to the next passes there, and until then remote.Refs stand for it. Each step
// is waited for where the host needs its tokens: penalties and forbidden n-grams look
// at them, a lookahead by confidence at their probability. So it is when a token has
// to be drawn from a whole row, as the nucleus is wide: such a loop is made again, step
// by step, and the loops after it are made so until one has no such row. Where
// lookahead or lanes are chosen by what passes take, the last step is waited for, too.
type afar struct {
	*Engine
	device    *remote.Device
	waits     bool // for each step, always
	measures  bool // what drafting takes
	wide, met bool // the last loop had a wide row, and so has this one
	places    []remote.Place
	loops     []remote.Loop
}

// awaits reports whether a step of these sequences is waited for.
func (s *afar) awaits(lanes []*lane) bool {
	last := func(l *lane) bool { return l.err != nil || l.proposal.drafted()+1 == l.most() }
	return s.waits || s.wide || s.measures && !slices.ContainsFunc(lanes, func(l *lane) bool { return !last(l) })
}

func (s *afar) draft(step int, lanes []*lane) error {
	s.places = s.places[:0]
	for _, l := range lanes {
		if d := &l.proposal; l.err == nil {
			if step == 0 {
				d.rows = d.rows[:0]
			}
			d.rows = append(d.rows, len(s.places))
			s.places = append(s.places, remote.Place{Chain: l.chain, Tokens: d.tokens[l.target.input:], Coins: &d.coins, At: len(d.tokens)})
		}
	}
	if len(s.places) == 0 {
		return nil
	}
	began := s.now()
	if err := s.device.Draft(step, s.places, s.awaits(lanes)); err != nil {
		return err
	}
	s.share(lanes, began)
	for at := 0; len(lanes) > 0; lanes = lanes[1:] {
		l := lanes[0]
		if l.err != nil {
			continue
		}
		x := &s.places[at]
		s.met = s.met || x.Wide
		switch {
		case x.Err == nil:
			l.proposal.add(x.Token, x.Prob)
		case !errors.Is(x.Err, spec.ErrNoMass): // else as in modelDrafter.draw
			l.err = rowError{x.Err}
		}
		at++
	}
	return nil
}

func (s *afar) verify(lanes []*lane) (bool, error) {
	s.loops = s.loops[:0]
	for _, l := range lanes {
		if l.err == nil {
			s.loops = append(s.loops, remote.Loop{
				Chain: l.chain, Tokens: l.tokens[l.target.input:], Drafted: l.loop.Drafted, Rows: l.proposal.rows,
				Coins: l.request.Coins, Start: l.loop.Position, Out: &l.out,
			})
		}
	}
	if len(s.loops) == 0 {
		return true, nil
	}
	began := s.now()
	ok, err := s.device.Verify(s.loops)
	if err != nil {
		return false, err
	}
	s.share(lanes, began)
	s.wide, s.met = !ok || s.met, false
	if !ok {
		return false, nil
	}
	for at := 0; len(lanes) > 0; lanes = lanes[1:] {
		if l := lanes[0]; l.err == nil {
			x := &s.loops[at]
			if at++; x.Err != nil {
				l.err = rowError{x.Err}
			}
			l.settle(x.Drafted)
		}
	}
	return true, nil
}

// settle puts the tokens that were drafted in place of what stood for them.
func (l *lane) settle(drafted []int32) {
	n := l.loop.Position
	l.loop.Drafted, l.loop.Scored = drafted, len(drafted)+1
	l.tokens = append(l.tokens[:n], drafted...)
	for _, c := range l.caches() {
		copy(c.tokens[min(n, len(c.tokens)):], drafted)
	}
}

func (s *afar) try(c *calibration, p *pass, draft bool) error {
	s.places = s.places[:0]
	for i := range p.feeds {
		for row := range p.spans[i].Rows {
			n := c.past + 1 + row
			s.places = append(s.places, remote.Place{Chain: s.lanes[0].chain, Tokens: c.text[:n], Coins: spec.Coins{}, At: n})
		}
	}
	if draft {
		return s.device.Draft(0, s.places, true)
	}
	return s.device.Draw(s.places)
}

// share bills the sequences that have not failed for what was done for all of them.
func (s *afar) share(lanes []*lane, began time.Time) {
	took, left := s.now().Sub(began), 0
	for _, l := range lanes {
		if l.err == nil {
			left++
		}
	}
	for _, l := range lanes {
		if l.err == nil {
			part := took / time.Duration(left) // so that nothing is lost to rounding
			l.loop.Sample += part
			took -= part
			left--
		}
	}
}
