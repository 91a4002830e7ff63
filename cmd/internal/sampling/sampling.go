// Package sampling joins package spec's settings, sequences and coins with the
// sampler that package ort runs on a device: what draws there, and decides here
// from the few numbers that come back, as spec does from whole distributions.
//
// The device computes in float32. Probabilities are spec's to 1e-5, and decisions
// are spec's but where a coin, or a boundary of top-k, top-p or min-p, lies that
// near. What decides is spec.Decide, from the numbers that the log keeps, so that
// a log replays as any other.
//
// Under the rule coupled the noise of a whole vocabulary goes to the device for
// each row: the operators of a device have no exact integer arithmetic to make it
// there. Penalties and bans see drafted tokens only where the host has them, so
// that with them each draft step waits for the one before it.
package sampling

import (
	"fmt"
	"math"

	"github.com/draftmill/draftmill/ort"
	"github.com/draftmill/draftmill/ort/graph"
	"github.com/draftmill/draftmill/spec"
)

// Device samples on a device. One goroutine uses it at a time.
type Device struct {
	sampler  *ort.Sampler
	sampling spec.Sampling
	rule     spec.Rule
	vocab    int
	rows     []ort.SamplerRow
	edits    []spec.Edit
}

// New makes the sampler of some settings on the device of the options. candidates
// is that of graph.SamplerOptions. The caller closes it.
func New(o ort.Options, s spec.Sampling, rule spec.Rule, vocab, candidates int) (*Device, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	coupled, err := spec.ParseRule("coupled")
	if err != nil {
		return nil, err
	}
	d := &Device{sampling: s, rule: rule.For(s), vocab: vocab}
	d.sampler, err = ort.NewSampler(o, graph.SamplerOptions{
		Vocab: vocab, Temperature: s.Temperature, TopK: s.TopK, TopP: s.TopP, MinP: s.MinP,
		Edits: s.Edits(), Race: d.rule == coupled, Candidates: candidates,
	})
	return d, err
}

// Close frees what the device holds.
func (d *Device) Close() error { return d.sampler.Close() }

// Reran is that of ort.Sampler.
func (d *Device) Reran() int { return d.sampler.Reran() }

// Row is a row of logits for the token after a sequence.
type Row struct {
	Logits []float32
	Chain  *spec.Chain // of the sequence, with the settings of the Device
	Tokens []int32     // the whole sequence
	Coins  spec.Uniforms
	At     int // absolute position of the token
}

// Draft draws x~ from each row as the draft step of this number, from 0 on; its
// laws stay on the device for Verify.
func (d *Device) Draft(step int, rows []Row) ([]ort.Drawn, error) {
	return d.draw(step, spec.DraftCoin, rows)
}

// Draw draws as autoregressive sampling does.
func (d *Device) Draw(rows []Row) ([]ort.Drawn, error) { return d.draw(-1, spec.BonusCoin, rows) }

func (d *Device) draw(step int, purpose spec.Purpose, rows []Row) ([]ort.Drawn, error) {
	d.rows = d.rows[:0]
	for i := range rows {
		if err := d.add(&rows[i], purpose); err != nil {
			return nil, err
		}
	}
	drawn, err := d.sampler.Draw(d.rows, step)
	if err != nil {
		return nil, err
	}
	for i := range drawn {
		if err := flagged(&drawn[i]); err != nil {
			return drawn, fmt.Errorf("draw the token at %d: %w", rows[i].At, err)
		}
	}
	return drawn, nil
}

// flagged is the error of a row that is no distribution.
func flagged(d *ort.Drawn) error {
	switch {
	case d.Flags&graph.FlagNaN != 0:
		return spec.ErrNotANumber
	case d.Flags&graph.FlagNone != 0:
		return spec.ErrNoMass
	}
	return nil
}

// add puts a row into the next call.
func (d *Device) add(r *Row, purpose spec.Purpose) (err error) {
	row := ort.SamplerRow{Logits: r.Logits}
	if d.sampling.Edits() {
		if d.edits, err = r.Chain.Edits(r.Tokens, d.edits[:0]); err != nil {
			return err
		}
		for _, e := range d.edits {
			row.Edits = append(row.Edits, ort.Edit(e))
		}
	}
	if d.rule.Invariant() && !d.rule.Replays() { // coupled
		noise := r.Coins.Noise(r.At)
		row.Noise = make([]float32, d.vocab)
		for x := range row.Noise {
			row.Noise[x] = float32(noise.At(int32(x)))
		}
	} else {
		row.Uniform = r.Coins.Uniform(purpose, r.At)
	}
	d.rows = append(d.rows, row)
	return nil
}

// Loop is one sequence's part of a verification.
type Loop struct {
	Chain   *spec.Chain
	Tokens  []int32 // the sequence, the drafted tokens included
	Drafted []int32 // the last of Tokens
	Logits  []float32
	Coins   spec.Uniforms
	Out     *spec.Outcome
}

// Verify does for some sequences what spec.Verify does for one. Logits of a loop
// are the target's K+1 rows, one behind the other. The steps of Draft since step 0
// drew the drafted tokens: step t of the loops that drafted more than t, in their
// order.
func (d *Device) Verify(loops []Loop) error {
	d.rows = d.rows[:0]
	first, longest := make([]int, len(loops)), 0
	for i := range loops {
		l := &loops[i]
		k := len(l.Drafted)
		if len(l.Logits) != (k+1)*d.vocab {
			return fmt.Errorf("verify %d drafted tokens with %d logits: %w", k, len(l.Logits), spec.ErrShape)
		}
		first[i], longest = len(d.rows), max(longest, k)
		start := len(l.Tokens) - k
		for t := range k + 1 {
			r := Row{Logits: l.Logits[t*d.vocab : (t+1)*d.vocab], Chain: l.Chain, Tokens: l.Tokens[:start+t], Coins: l.Coins, At: start + t}
			if err := d.add(&r, spec.BonusCoin); err != nil {
				return err
			}
		}
	}
	var drafted []ort.Drafted
	for t := range longest {
		for i := range loops {
			if l := &loops[i]; t < len(l.Drafted) {
				x := ort.Drafted{Token: l.Drafted[t], Row: first[i] + t}
				if !d.rule.Invariant() {
					x.Uniform = l.Coins.Uniform(spec.ResidualCoin, len(l.Tokens)-len(l.Drafted)+t)
				}
				drafted = append(drafted, x)
			}
		}
	}
	drawn, verified, err := d.verify(drafted)
	if err != nil {
		return err
	}
	return d.decide(loops, first, drafted, drawn, verified)
}

func (d *Device) verify(drafted []ort.Drafted) ([]ort.Drawn, []ort.Verified, error) {
	if len(drafted) == 0 {
		drawn, err := d.sampler.Draw(d.rows, -1)
		return drawn, nil, err
	}
	return d.sampler.Verify(d.rows, drafted)
}

// decide makes the outcomes.
func (d *Device) decide(loops []Loop, first []int, drafted []ort.Drafted, drawn []ort.Drawn, verified []ort.Verified) error {
	of := make([]spec.Scored, len(d.rows)) // by row
	margin := func(row int) float64 {
		if d.sampling.Greedy() || !d.rule.Replays() {
			return drawn[row].Margin
		}
		return math.NaN()
	}
	for i, v := range verified {
		row := drafted[i].Row
		of[row] = spec.Scored{
			P: v.P, Q: v.Q, Overlap: v.Overlap, Below: v.Below, Scaled: v.Scaled, Unadjusted: v.Unadjusted,
			Recovered: v.Recovered, Drawn: drawn[row].Token, Margin: margin(row),
		}
	}
	for i := range loops {
		l, at := &loops[i], first[i]
		last := at + len(l.Drafted)
		for row := at; row <= last; row++ {
			if err := flagged(&drawn[row]); err != nil {
				return fmt.Errorf("verify the token at %d: %w", len(l.Tokens)-last+row, err)
			}
		}
		err := spec.Decide(d.rule, l.Drafted, of[at:last], drawn[last].Token, margin(last), l.Coins, len(l.Tokens)-len(l.Drafted), l.Out)
		if err != nil {
			return err
		}
	}
	return nil
}
