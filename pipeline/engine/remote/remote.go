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
// Under the rule coupled the noise of a whole vocabulary goes to the device for
// each row: the operators of a device have no exact integer arithmetic to make it
// there. Penalties and bans see drafted tokens only where the host has them.
package remote

import (
	"fmt"
	"math"

	"github.com/draftmill/draftmill/spec"
)

// Row is what is drawn from one row of logits with. (The types of a Sampler are
// aliases of unnamed ones, so that packages which run models can declare them
// without importing this one.)
type Row = struct {
	Edits   []spec.Edit
	Uniform float64   // in [0, 1)
	Noise   []float32 // rule coupled: by token
}

// Drawn is what was drawn from a row.
type Drawn = struct {
	Token     int32
	Prob      float64
	Margin    float64 // at temperature zero, and under coupled, see spec.Outcome; else 0
	NaN, None bool    // a logit is NaN or +Inf, no token is possible; then the rest is void
}

// Drafted is a token that a step drew, in the order of the steps' rows.
type Drafted = struct {
	Token   int32
	Row     int     // of the target's, which decides over it
	Uniform float64 // for the token in its place
}

// Verified are the numbers that decide over a drafted token, see spec.Scored.
type Verified = struct {
	P, Q, Overlap, Below, Scaled, Unadjusted float64
	Recovered                                int32
}

// Sampler is the device's part, made for the settings that the Device has. The rows
// are those of the model's last pass, of which each is drawn from once.
type Sampler interface {
	// Draft draws from the draft model's rows, as step 0, 1, .. of a loop. The laws
	// stay on the device until the next draft of that step.
	Draft(step int, rows []Row) ([]Drawn, error)
	// Draw draws from the target's rows.
	Draw(rows []Row) ([]Drawn, error)
	// Verify draws from the target's rows, too, and compares the laws of all steps
	// since step 0 with them.
	Verify(rows []Row, drafted []Drafted) ([]Drawn, []Verified, error)
}

// Device draws and decides. One goroutine uses it at a time.
type Device struct {
	sampler  Sampler
	sampling spec.Sampling
	rule     spec.Rule
	vocab    int

	rows    []Row
	steps   []int // rows of each step of the loop under way
	drafted []Drafted
	scored  []spec.Scored
}

// New makes a Device. The rule is as it applies to the sampling, see [spec.Rule.For].
func New(sampler Sampler, s spec.Sampling, rule spec.Rule, vocab int) *Device {
	return &Device{sampler: sampler, sampling: s, rule: rule, vocab: vocab}
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
	Err   error
}

// Draft draws x~ at each place, from the row of the same number of the draft
// model's last pass, as the draft step of this number, from 0 on.
func (d *Device) Draft(step int, places []Place) error {
	d.steps = append(d.steps[:step], len(places))
	return d.draw(spec.DraftCoin, places, func() ([]Drawn, error) { return d.sampler.Draft(step, d.rows) })
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
			p.Token, p.Prob, p.Err = drawn[i].Token, drawn[i].Prob, flagged(&drawn[i])
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
	coupled := !d.rule.Replays()
	if coupled && len(row.Noise) != d.vocab {
		row.Noise = make([]float32, d.vocab)
	}
	if d.sampling.Edits() {
		if row.Edits, err = chain.Edits(tokens, row.Edits); err != nil {
			return err
		}
	}
	if coupled {
		noise := coins.Noise(at)
		for x := range row.Noise {
			row.Noise[x] = float32(noise.At(int32(x)))
		}
	} else {
		row.Uniform = coins.Uniform(purpose, at)
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

	Out *spec.Outcome // the answer
	Err error         // of this sequence alone
}

// Verify does for some sequences what spec.Verify does for one: the rows of the
// target's last pass are K+1 of each, in their order.
func (d *Device) Verify(loops []Loop) error {
	d.rows, d.drafted = d.rows[:0], d.drafted[:0]
	steps := d.longest(loops)
	first := make([]int, len(d.steps[:steps])) // in drafted, of each step
	for t, n := range d.steps[:steps] {
		first[t] = len(d.drafted)
		for range n {
			d.drafted = append(d.drafted, Drafted{}) // of what was drawn and not used
		}
	}
	for i := range loops {
		l := &loops[i]
		k := len(l.Drafted)
		before := len(l.Tokens) - k
		for t := range k + 1 {
			if t < k {
				x := &d.drafted[first[t]+l.Rows[t]]
				*x = Drafted{Token: l.Drafted[t], Row: len(d.rows)}
				if !d.rule.Invariant() {
					x.Uniform = l.Coins.Uniform(spec.ResidualCoin, l.Start+t)
				}
			}
			if err := d.add(l.Chain, l.Tokens[:before+t], l.Coins, spec.BonusCoin, l.Start+t); err != nil && l.Err == nil {
				l.Err = fmt.Errorf("score token %d: %w", l.Start+t, err)
			}
		}
	}
	drawn, verified, err := d.numbers()
	if err != nil {
		return err
	}
	d.decide(loops, first, drawn, verified)
	return nil
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

func (d *Device) numbers() ([]Drawn, []Verified, error) {
	if len(d.drafted) == 0 {
		drawn, err := d.sampler.Draw(d.rows)
		return drawn, nil, err
	}
	return d.sampler.Verify(d.rows, d.drafted)
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
		last := row + len(l.Drafted)
		for ; row <= last && l.Err == nil; row++ {
			if err := flagged(&drawn[row]); err != nil {
				l.Err = fmt.Errorf("score token %d: %w", l.Start+len(l.Drafted)-last+row, err)
			}
		}
		row = last + 1
		if l.Err == nil {
			l.Err = spec.Decide(d.rule, l.Drafted, d.scored, drawn[last].Token, margin(last), l.Coins, l.Start, l.Out)
		}
	}
}
