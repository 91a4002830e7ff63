// Package spectest computes the exact law of anything that is driven by
// [spec.Uniforms]: it integrates over every coin instead of sampling it, so
// that a test can compare an output distribution with a target to rounding
// error, through the production code itself.
package spectest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/draftmill/draftmill/spec"
)

// grid is how many points the search for steps starts from. A step function
// with a piece narrower than 1/grid could hide it; laws of small vocabularies
// with probabilities well above that are safe.
const grid = 32

// bisections brings a step to within 2^-45 of where it is.
const bisections = 40

// Law returns the probability of every output of run, integrated over all the
// coins that it asks for. run must be a pure function of its coins and each
// output a step function of every one of them.
//
// The coins are resolved in the order in which they are first asked for. For
// each, the unit interval is cut where what run does next changes: what it
// notes, the next coin it asks for, or its output. Such a cut is found by
// bisection, knowing nothing of the mathematics under test. run has to note
// whatever a coin decided before it asks for the next one; a scripted model
// that notes the prefixes it is asked to score does.
func Law(run func(*Coins) string) map[string]float64 {
	law := map[string]float64{}
	explore(run, nil, 1, law)
	return law
}

// Coins is the supply of one run.
type Coins struct {
	fixed []float64       // by order of first use
	asked []coin          // the coins they were given for
	trace strings.Builder // what was noted since the last fixed coin was given
}

type coin struct {
	purpose  spec.Purpose
	position int
}

// Note makes a fact of the run observable to [Law].
func (c *Coins) Note(fact ...any) {
	if len(c.asked) == len(c.fixed) {
		fmt.Fprintln(&c.trace, fact...)
	}
}

// Uniform implements [spec.Uniforms]. At the first coin beyond the fixed ones
// it ends the run.
func (c *Coins) Uniform(purpose spec.Purpose, position int) float64 {
	asks := coin{purpose, position}
	if i := slices.Index(c.asked, asks); i >= 0 {
		return c.fixed[i]
	}
	if len(c.asked) == len(c.fixed) {
		panic(question(fmt.Sprint(c.trace.String(), asks)))
	}
	c.asked = append(c.asked, asks)
	return c.fixed[len(c.asked)-1]
}

// Noise implements [spec.Uniforms]. A race depends on the noise of several
// tokens at once, which no cut of one interval after the other resolves.
func (c *Coins) Noise(int) spec.Noise {
	panic("spectest: races are not integrated coin by coin")
}

type question string

// observe runs up to the next coin or to the end, and tells what happened
// after the last fixed coin.
func observe(run func(*Coins) string, fixed []float64) (act string, asks bool) {
	defer func() {
		if r := recover(); r != nil {
			q, ok := r.(question)
			if !ok {
				panic(r)
			}
			act, asks = string(q), true
		}
	}()
	return run(&Coins{fixed: fixed}), false
}

func explore(run func(*Coins) string, fixed []float64, weight float64, law map[string]float64) {
	act, asks := observe(run, fixed)
	if !asks {
		law[act] += weight
		return
	}
	with := func(u float64) []float64 { return append(fixed[:len(fixed):len(fixed)], u) }
	at := func(u float64) string { act, _ := observe(run, with(u)); return act }
	lo, act := 0.0, at(0)
	for i := 1; i <= grid; i++ {
		u := float64(i) / grid
		if i == grid {
			u = 1 - 0x1p-53
		}
		for now := at(u); now != act; {
			a, b := lo, u // act holds at a and no longer at b
			for range bisections {
				if mid := a + (b-a)/2; at(mid) == act {
					a = mid
				} else {
					b = mid
				}
			}
			explore(run, with(lo+(a-lo)/2), weight*(b-lo), law)
			lo, act = b, at(b)
		}
	}
	explore(run, with(lo+(1-lo)/2), weight*(1-lo), law)
}
