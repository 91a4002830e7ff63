// Package remote draws from rows of logits that stay where a model computed them,
// on a device, and decides over drafted tokens from the few numbers that come back.
// It joins package spec's settings, sequences and coins with a [Sampler], which
// knows none of them.
//
// A device computes in float32. Probabilities are spec's to 1e-5, and decisions are
// spec's but where a coin, or a boundary of top-k, top-p or min-p, lies that near.
// What decides is spec.Decide, from the numbers that the log keeps, so that a log
// replays as any other.
//
// Under the rule coupled the device makes the noise of a position itself, of the four
// words that a spec.Noise is. Penalties and forbidden n-grams see drafted tokens only
// where the host has them.
//
// A draft step need not be waited for. Then a [Ref] stands for each token that it has
// drawn, in the sequences and in the spans of passes, until the verification says
// which it is.
package remote

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/draftmill/draftmill/spec"
)

// Row is what is drawn from one row of logits with. (The types of a Sampler are
// aliases of unnamed ones, so that packages which run models can declare them
// without importing this one.)
type Row = struct {
	Edits   []spec.Edit
	Uniform float64   // in [0, 1)
	Noise   [4]uint32 // rule coupled: spec.Noise
}

// Drawn is what was drawn from a row.
type Drawn = struct {
	Token     int32
	Prob      float64
	Margin    float64 // at temperature zero, and under coupled, see spec.Outcome; else 0
	NaN, None bool    // a logit is NaN or +Inf, no token is possible; then the rest is void
	// Wide says that the nucleus has more tokens than a row is sorted by, or a race
	// more than noise was made for. Draft and Draw have drawn again from the whole
	// row; to Verify the rest is void then.
	Wide bool
}

// Drafted is a token that a step drew, in the order of the steps' rows.
type Drafted = struct {
	Row     int     // of the target's, which decides over it
	Uniform float64 // for the token in its place
}

// Verified is a drafted token, and the numbers that decide over it, see spec.Scored.
type Verified = struct {
	Drafted                                  Drawn
	P, Q, Overlap, Below, Scaled, Unadjusted float64
	Recovered                                int32
}

// Ref stands in spans for the i-th token that the steps since step 0 have drawn, in
// the order of their rows.
func Ref(i int) int32 { return -1 - int32(i) }

// Sampler is the device's part, made for the settings that the Device has. The rows
// are those of the model's last pass, of which each is drawn from once.
type Sampler interface {
	// Draft draws from the draft model's rows, as step 0, 1, .. of a loop. Tokens and
	// laws stay on the device until the next draft of that step. It answers what was
	// drawn where it is to wait for that.
	Draft(step int, rows []Row, wait bool) ([]Drawn, error)
	// Draw draws from the target's rows.
	Draw(rows []Row) ([]Drawn, error)
	// Verify draws from the target's rows, too, and compares the laws of all steps
	// since step 0 with them. Rows may be Wide unless it is done for whole rows.
	Verify(rows []Row, drafted []Drafted, whole bool) ([]Drawn, []Verified, error)
}

// Device draws and decides. One goroutine uses it at a time.
type Device struct {
	sampler  Sampler
	sampling spec.Sampling
	rule     spec.Rule
	ends     []int32

	rows    []Row
	steps   []int // rows of each step of the loop under way
	drafted []Drafted
	scored  []spec.Scored
	refs    []Drawn
}

// New makes a Device. The rule is as it applies to the sampling, see [spec.Rule.For];
// ends are the tokens behind which nothing is drafted.
func New(sampler Sampler, s spec.Sampling, rule spec.Rule, ends []int32) *Device {
	return &Device{sampler: sampler, sampling: s, rule: rule, ends: ends}
}

// Place is where a token is to be drawn.
type Place struct {
	Chain  *spec.Chain // of the sequence, with the settings of the Device
	Tokens []int32     // that the chain sees, all before the token
	Coins  spec.Uniforms
	At     int // absolute position of the token

	// Token, its probability and Err are what Draft and Draw answer; only the
	// sequence of an error is affected by it.
	Token int32
	Prob  float64
	Wide  bool // see Drawn
	Err   error
}

// Draft draws x~ at each place, from the row of the same number of the draft
// model's last pass, as the draft step of this number, from 0 on. Where it is not to
// wait for them, the tokens are Refs, whose probability it does not say.
func (d *Device) Draft(step int, places []Place, wait bool) error {
	first := 0
	for _, n := range d.steps[:step] {
		first += n
	}
	d.steps = append(d.steps[:step], len(places))
	return d.draw(spec.DraftCoin, places, func() ([]Drawn, error) {
		drawn, err := d.sampler.Draft(step, d.rows, wait)
		if !wait {
			drawn = d.refs[:0]
			for i := range places {
				drawn = append(drawn, Drawn{Token: Ref(first + i), Prob: 1})
			}
			d.refs = drawn
		}
		return drawn, err
	})
}

// Draw draws at each place as autoregressive sampling does.
func (d *Device) Draw(places []Place) error {
	return d.draw(spec.BonusCoin, places, func() ([]Drawn, error) { return d.sampler.Draw(d.rows) })
}

func (d *Device) draw(purpose spec.Purpose, places []Place, draw func() ([]Drawn, error)) error {
	d.rows = d.rows[:0]
	for i := range places {
		p := &places[i]
		p.Err = d.add(p.Chain, p.Tokens, p.Coins, purpose, p.At)
	}
	drawn, err := draw()
	if err != nil {
		return err
	}
	for i := range places {
		p := &places[i]
		if p.Err == nil {
			x := &drawn[i]
			p.Token, p.Prob, p.Wide, p.Err = x.Token, x.Prob, x.Wide, flagged(x)
		}
	}
	return nil
}

// flagged is the error of a row that is no distribution.
func flagged(d *Drawn) error {
	switch {
	case d.NaN:
		return spec.ErrNotANumber
	case d.None:
		return spec.ErrNoMass
	}
	return nil
}

// add puts a row into the next call; after an error, one that is not looked at.
func (d *Device) add(chain *spec.Chain, tokens []int32, coins spec.Uniforms, purpose spec.Purpose, at int) (err error) {
	n := len(d.rows)
	if n < cap(d.rows) {
		d.rows = d.rows[:n+1]
	} else {
		d.rows = append(d.rows, Row{})
	}
	row := &d.rows[n]
	row.Edits, row.Uniform = row.Edits[:0], 0
	if d.sampling.Edits() {
		if row.Edits, err = chain.Edits(tokens, row.Edits); err != nil {
			return err
		}
	}
	if d.rule.Replays() || d.sampling.Greedy() { // of one possible token nothing is raced
		row.Uniform = coins.Uniform(purpose, at)
	} else {
		row.Noise = coins.Noise(at)
	}
	return nil
}

// Loop is one sequence's part of a verification.
type Loop struct {
	Chain   *spec.Chain
	Tokens  []int32 // that the chain sees, the drafted ones included
	Drafted []int32 // the last of Tokens
	// Rows say of each drafted token which place of its step it was drawn at: the
	// first in step 0, the second in step 1, and so on.
	Rows  []int
	Coins spec.Uniforms
	Start int // absolute position of the first drafted token

	// The answer. Verify puts the tokens into Drafted that Refs stand for, and cuts it
	// where the draft had nothing to propose, and behind an end.
	Out *spec.Outcome
	Err error // of this sequence alone

	asked int // tokens that were drafted
}

// Verify does for some sequences what spec.Verify does for one: the rows of the
// target's last pass are K+1 of each, in their order. It reports false, and answers
// nothing, where a token has to be drawn again from a whole row: then the loop is to be
// drafted again, with every step waited for, which comes to what it would have come to.
func (d *Device) Verify(loops []Loop) (ok bool, err error) {
	first := d.ask(loops)
	whole := false
	for {
		drawn, verified, err := d.numbers(whole)
		if err != nil {
			return false, err
		}
		for i := range loops {
			if !d.settle(&loops[i], first, verified) {
				return false, nil
			}
		}
		if !whole && len(verified) > 0 && wide(loops, drawn) { // else Draw has drawn again
			whole = true
			continue
		}
		d.decide(loops, first, drawn, verified)
		return true, nil
	}
}

// ask puts the rows of a verification together. It answers where in drafted each
// step begins.
func (d *Device) ask(loops []Loop) (first []int) {
	d.rows, d.drafted = d.rows[:0], d.drafted[:0]
	steps := d.longest(loops)
	first = make([]int, steps)
	for t, n := range d.steps[:steps] {
		first[t] = len(d.drafted)
		for range n {
			d.drafted = append(d.drafted, Drafted{}) // of what was drawn and not used
		}
	}
	for i := range loops {
		l := &loops[i]
		l.asked = len(l.Drafted)
		before := len(l.Tokens) - l.asked
		for t := range l.asked + 1 {
			if t < l.asked {
				x := &d.drafted[first[t]+l.Rows[t]]
				*x = Drafted{Row: len(d.rows)}
				if !d.rule.Invariant() {
					x.Uniform = l.Coins.Uniform(spec.ResidualCoin, l.Start+t)
				}
			}
			if err := d.add(l.Chain, l.Tokens[:before+t], l.Coins, spec.BonusCoin, l.Start+t); err != nil && l.Err == nil {
				l.Err = fmt.Errorf("score token %d: %w", l.Start+t, err)
			}
		}
	}
	return first
}

// longest is how many steps there were. Where the last ones drew nothing that is
// used, the sampler has to be told of them all the same.
func (d *Device) longest(loops []Loop) int {
	for i := range loops {
		if len(loops[i].Drafted) > 0 {
			return len(d.steps)
		}
	}
	return 0
}

func (d *Device) numbers(whole bool) ([]Drawn, []Verified, error) {
	if len(d.drafted) == 0 {
		drawn, err := d.sampler.Draw(d.rows)
		return drawn, nil, err
	}
	return d.sampler.Verify(d.rows, d.drafted, whole)
}

// settle makes the drafted tokens of a loop what the steps have drawn, up to where a
// host that had seen each of them would have stopped. It reports false where one of
// them has to be drawn again.
func (d *Device) settle(l *Loop, first []int, verified []Verified) bool {
	for t := range l.Drafted {
		x := &verified[first[t]+l.Rows[t]].Drafted
		err := flagged(x)
		switch {
		case err == nil && x.Wide:
			return false
		case err != nil:
			if !errors.Is(err, spec.ErrNoMass) && l.Err == nil {
				l.Err = err
			}
			l.Drafted = l.Drafted[:t]
			return true
		}
		if l.Drafted[t] = x.Token; slices.Contains(d.ends, x.Token) {
			l.Drafted = l.Drafted[:t+1]
			return true
		}
	}
	return true
}

// wide reports whether a row that counts was drawn from in part.
func wide(loops []Loop, drawn []Drawn) bool {
	row := 0
	for i := range loops {
		l := &loops[i]
		if l.Err == nil && slices.ContainsFunc(drawn[row:row+len(l.Drafted)+1], func(x Drawn) bool { return x.Wide }) {
			return true
		}
		row += l.asked + 1
	}
	return false
}

// decide makes the outcomes.
func (d *Device) decide(loops []Loop, first []int, drawn []Drawn, verified []Verified) {
	margin := func(row int) float64 {
		if d.sampling.Greedy() || !d.rule.Replays() {
			return drawn[row].Margin
		}
		return math.NaN()
	}
	row := 0
	for i := range loops {
		l := &loops[i]
		d.scored = d.scored[:0]
		for t := range l.Drafted {
			v := &verified[first[t]+l.Rows[t]]
			d.scored = append(d.scored, spec.Scored{
				P: v.P, Q: v.Q, Overlap: v.Overlap, Below: v.Below, Scaled: v.Scaled, Unadjusted: v.Unadjusted,
				Recovered: v.Recovered, Drawn: drawn[row+t].Token, Margin: margin(row + t),
			})
		}
		k := len(l.Drafted)
		for t := 0; t <= k && l.Err == nil; t++ {
			if err := flagged(&drawn[row+t]); err != nil {
				l.Err = fmt.Errorf("score token %d: %w", l.Start+t, err)
			}
		}
		if l.Err == nil {
			l.Err = spec.Decide(d.rule, l.Drafted, d.scored, drawn[row+k].Token, margin(row+k), l.Coins, l.Start, l.Out)
		}
		row += l.asked + 1
	}
}
