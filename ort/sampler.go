package ort

// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"unsafe"

	"google.golang.org/protobuf/proto"

	"github.com/draftmill/draftmill/ort/graph"
)

// Sampler draws tokens, and compares a draft's laws with a target's, by graphs
// that run on a device (graph.NewSampler). What crosses to the host is a few
// numbers a row; the weights of a draw stay on the device until the verification
// that needs them. One goroutine uses it at a time.
type Sampler struct {
	runtime *C.dm_runtime
	device  *device
	options graph.SamplerOptions
	session Options

	mu    sync.Mutex
	runs  map[samplerKind]*samplerRun
	steps []samplerStep // of the loop under way, and room for more
	drawn int           // steps of it that there were
	spare samplerStep   // the last draw that was not a step
	host  block         // weights of the last draw of which they were asked for
	reran int           // rows computed again that were Wide
}

// samplerStep is what a draw has left on the device.
type samplerStep struct {
	rows            int
	tokens, weights block
	numbers         block  // of a step that is not waited for
	read            block  // on the host, of one that is
	said            *block // the one of them that counts
}

func (s *samplerStep) free() {
	for _, b := range []*block{&s.tokens, &s.weights, &s.numbers, &s.read} {
		b.free()
	}
}

// samplerKind says which of a sampler's graphs.
type samplerKind struct {
	steps  int  // 0: a draw
	whole  bool // rows are sorted
	logits graph.ElementType
}

// SamplerRow is what is drawn from one row of logits with. Slices are read during
// the call. (This and the types behind it are aliases, so that packages which
// sample can declare the same without importing this one.)
type SamplerRow = struct {
	Edits   []Edit
	Uniform float64   // in [0, 1)
	Noise   [4]uint32 // with Race, see graph.Noise
}

// Edit changes the logit of one token, in the order of the fields: Add is added,
// Penalty divides what is positive and multiplies what is negative, Ban makes the
// token impossible, Less and then Presence are subtracted.
type Edit = struct {
	Token          int32
	Add, Penalty   float32 // Penalty 1 is neutral
	Ban            bool
	Less, Presence float32
}

// Drawn is what was drawn from a row.
type Drawn = struct {
	Token     int32
	Prob      float64
	Margin    float64 // see graph.DrawnMargin
	NaN, None bool    // a logit is NaN or +Inf, no token is possible; then the rest is void
	// Wide says that the nucleus has more tokens than a row is sorted by, or a race
	// more than noise was made for. A draw has been made again from the whole row; of
	// a verification the rest is void then.
	Wide bool
}

// Drafted is a token that a step drew, in the order of the steps' rows.
type Drafted = struct {
	Row     int     // of the target's logits, which decides over it
	Uniform float64 // for the token in its place
}

// Verified is a drafted token, and the numbers that decide over it; graph.VerifyP and
// the names after it say what they are.
type Verified = struct {
	Drafted                                  Drawn
	P, Q, Overlap, Below, Scaled, Unadjusted float64
	Recovered                                int32
}

// NewSampler makes a sampler on the device of the session options, of which
// Device, ProviderOptions, Threads and SessionConfig count. Init must have been
// called. The caller closes it.
func NewSampler(session Options, o graph.SamplerOptions) (*Sampler, error) {
	s := &Sampler{options: o, session: session, runs: map[samplerKind]*samplerRun{}}
	if err := s.open(); err != nil {
		return nil, fmt.Errorf("new sampler: %w", errors.Join(err, s.Close()))
	}
	return s, nil
}

func (s *Sampler) open() (err error) {
	if s.runtime, err = current(); err != nil {
		return err
	}
	if s.session.Threads == 0 {
		s.session.Threads = 1
	}
	if s.device, err = parseDevice(s.session); err != nil {
		return err
	}
	s.options.Steps = 0
	s.device.runtime = s.runtime
	s.device.lock()
	defer s.device.unlock()
	if !s.device.onCPU() {
		if err := s.device.openMemory(); err != nil {
			return s.device.explain(err)
		}
	}
	_, err = s.run(samplerKind{logits: graph.Float32})
	return err
}

// Draw draws a token from each row, of which there is one for every SamplerRow.
// Tokens and weights stay on the device as those of a step, from 0 on, until the next
// draw of that step; those of steps after it are forgotten. With step -1 they are no
// step's. Without wait nothing is answered, and Verify says what was drawn; until then
// passes may be fed the tokens, see PairSampler.
func (s *Sampler) Draw(from Rows, rows []SamplerRow, step int, wait bool) (drawn []Drawn, err error) {
	err = s.with(from, func(x *lent) (err error) {
		if step > s.drawn || step < 0 && !wait {
			return fmt.Errorf("it is step %d after %d steps", step, s.drawn)
		}
		to := &s.spare
		if step >= 0 {
			s.steps = append(s.steps, make([]samplerStep, max(0, step+1-len(s.steps)))...)
			s.drawn, to = step+1, &s.steps[step]
		}
		drawn, err = s.draw(x, rows, to, wait)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("draw from %d rows: %w", len(rows), err)
	}
	return drawn, nil
}

// Weights draws as a Draw that is no step's does, and brings the weights to the
// host: relative to each other, by row and token. They are valid until the next
// call of it.
func (s *Sampler) Weights(from Rows, rows []SamplerRow) (drawn []Drawn, weights [][]float32, err error) {
	err = s.with(from, func(x *lent) (err error) {
		if err := growBlock(s.runtime, &s.host, s.row()*len(rows)); err != nil {
			return err
		}
		drawn, err = s.drawTo(&s.host, x, rows, &s.spare, true)
		return err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("weights of %d rows: %w", len(rows), err)
	}
	for i := range rows {
		weights = append(weights, view[float32](&s.host, s.row()*i, s.options.Vocab))
	}
	return drawn, weights, nil
}

// row is the size in bytes of a row of weights.
func (s *Sampler) row() int { return 4 * s.options.Stride() }

// lent are the rows of a call.
type lent struct {
	kept
	host HostRows // in their place
}

// with makes a call over rows that stay as they are until it returns.
func (s *Sampler) with(from Rows, call func(*lent) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	rows, back, err := from.lend()
	if err != nil {
		return err
	}
	defer back()
	s.device.lock()
	defer s.device.unlock()
	x := &lent{kept: rows}
	if x.host, _ = from.(HostRows); x.data == nil {
		x.elem, x.rows = graph.Float32, len(x.host)/s.options.Vocab
	}
	return s.device.explain(call(x))
}

// draw draws, and again from whole rows where that is waited for and has to be.
func (s *Sampler) draw(from *lent, rows []SamplerRow, to *samplerStep, wait bool) ([]Drawn, error) {
	if err := growBlockOn(s.runtime, s.device.memory, &to.weights, s.row()*len(rows)); err != nil {
		return nil, err
	}
	return s.drawTo(&to.weights, from, rows, to, wait)
}

func (s *Sampler) drawTo(weights *block, from *lent, rows []SamplerRow, to *samplerStep, wait bool) ([]Drawn, error) {
	to.rows = len(rows)
	drawn, err := s.drawOnce(weights, from, rows, to, wait, false)
	n := countWide(drawn)
	if err != nil || n == 0 {
		return drawn, err
	}
	s.reran += n
	again, err := s.drawOnce(weights, from, rows, to, wait, true)
	for i := range again {
		again[i].Wide = drawn[i].Wide
	}
	return again, err
}

func countWide(drawn []Drawn) (n int) {
	for i := range drawn {
		if drawn[i].Wide {
			n++
		}
	}
	return n
}

func (s *Sampler) drawOnce(weights *block, from *lent, rows []SamplerRow, to *samplerStep, wait, whole bool) ([]Drawn, error) {
	r, err := s.run(samplerKind{whole: whole, logits: from.elem})
	if err != nil {
		return nil, err
	}
	if err := r.rows(s.options, from, rows); err != nil {
		return nil, err
	}
	n := len(rows)
	if err := growBlockOn(s.runtime, s.device.memory, &to.tokens, 8*n); err != nil {
		return nil, err
	}
	memory := s.device.memory
	if to.said = &to.numbers; wait {
		to.said, memory = &to.read, nil
	}
	if err := growBlockOn(s.runtime, memory, to.said, 4*graph.DrawnNumbers*n); err != nil {
		return nil, err
	}
	r.out(graph.SamplerOut).at(weights, n, s.options.Stride())
	r.out(graph.SamplerTokens).at(&to.tokens, n, 1)
	r.out(graph.SamplerNumbers).at(to.said, n, graph.DrawnNumbers)
	if err := r.forward(s.device, wait); err != nil || !wait {
		return nil, err
	}
	return drawnOf(to.said, n), nil
}

// Verify draws from each of the target's rows, and compares the laws that the
// drafted tokens were drawn from, all that the steps since step 0 have made, with
// the rows that decide over them. Where it is not done for whole rows, rows of either
// model may turn out to be Wide.
func (s *Sampler) Verify(from Rows, rows []SamplerRow, drafted []Drafted, whole bool) (drawn []Drawn, verified []Verified, err error) {
	err = s.with(from, func(x *lent) (err error) {
		drawn, verified, err = s.verify(x, rows, drafted, whole)
		return err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("verify %d drafted tokens with %d rows: %w", len(drafted), len(rows), err)
	}
	return drawn, verified, nil
}

func (s *Sampler) verify(from *lent, rows []SamplerRow, drafted []Drafted, whole bool) ([]Drawn, []Verified, error) {
	have := 0
	for _, step := range s.steps[:s.drawn] {
		have += step.rows
	}
	if len(drafted) == 0 || len(drafted) != have || len(rows) == 0 {
		return nil, nil, fmt.Errorf("the steps drew %d tokens", have)
	}
	r, err := s.run(samplerKind{steps: s.drawn, whole: whole, logits: from.elem})
	if err != nil {
		return nil, nil, err
	}
	if err := r.rows(s.options, from, rows); err != nil {
		return nil, nil, err
	}
	for i := range s.drawn {
		step := &s.steps[i]
		r.in(graph.DraftWeights(i)).at(&step.weights, step.rows, s.options.Stride())
		r.in(graph.DraftNumbers(i)).at(step.said, step.rows, graph.DrawnNumbers)
	}
	if err := r.drafted(drafted, len(rows)); err != nil {
		return nil, nil, err
	}
	said := r.out(graph.SamplerNumbers)
	if err := said.make(r.runtime, len(rows), graph.DrawnNumbers); err != nil {
		return nil, nil, err
	}
	if err := r.forward(s.device, true); err != nil {
		return nil, nil, err
	}
	drawn := drawnOf(&said.memory, len(rows))
	if whole {
		s.reran += len(rows)
	}
	return drawn, r.verified(len(drafted), s.options.Race), nil
}

// tokens are what the steps since step 0 have drawn, on the device.
func (s *Sampler) tokens() (steps []drawnTokens) {
	for i := range s.steps[:s.drawn] {
		steps = append(steps, drawnTokens{&s.steps[i].tokens, s.steps[i].rows})
	}
	return steps
}

// Reran is how many rows of draws were computed again because they were Wide, and how
// many rows were verified again for that.
func (s *Sampler) Reran() int { return s.reran }

// Close frees the sessions and the weights. Closing twice is harmless.
func (s *Sampler) Close() error {
	if s.device == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.device.lock()
	defer s.device.unlock()
	s.device.settle()
	for _, r := range s.runs {
		r.free()
	}
	for i := range s.steps {
		s.steps[i].free()
	}
	s.spare.free()
	s.host.free()
	s.runs, s.steps, s.drawn = nil, nil, 0
	return s.device.free()
}

// run is the session of a graph and what it is bound to, made when it is first
// asked for.
func (s *Sampler) run(kind samplerKind) (*samplerRun, error) {
	if r := s.runs[kind]; r != nil {
		return r, nil
	}
	o := s.options
	o.Steps, o.Logits = kind.steps, kind.logits
	if kind.whole {
		o.Candidates, o.Racers = o.Stride(), graph.MaxRacers
	}
	m, err := graph.NewSampler(o)
	if err != nil {
		return nil, err
	}
	data, err := proto.Marshal(m)
	if err != nil {
		return nil, err
	}
	options, err := newSessionOptions(s.session, s.device)
	if err != nil {
		return nil, err
	}
	r := &samplerRun{runtime: s.runtime, tensors: map[string]*samplerTensor{}}
	err = goError(C.dm_session_new(s.runtime, unsafe.Pointer(&data[0]), C.size_t(len(data)), rawSessionOptions(options), &r.session))
	if err = errors.Join(err, options.Destroy()); err == nil {
		err = r.prepare(m, s.device)
	}
	if err != nil {
		r.free()
		return nil, s.device.explain(err)
	}
	s.runs[kind] = r
	return r, nil
}

// belowOne is the largest float32 below 1.
const belowOne = 1 - 0x1p-24

// uniform is u as the graph takes it: not rounded up to 1.
func uniform(u float64) float32 { return float32(math.Min(u, belowOne)) }
