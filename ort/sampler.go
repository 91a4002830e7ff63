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
	steps []block // weights of the steps drafted, on the device
	sizes []int   // their rows
	spare block   // weights of the last draw that was not a step, on the device
	host  block   // and of the last whose weights were asked for
	reran int     // rows computed again because their nucleus was wide
}

// samplerKind says which of a sampler's graphs.
type samplerKind struct {
	steps  int // 0: a draw
	wide   bool
	logits graph.ElementType
}

// SamplerRow is what is drawn from one row of logits with. Slices are read during
// the call. (This and the types behind it are aliases, so that packages which
// sample can declare the same without importing this one.)
type SamplerRow = struct {
	Edits   []Edit
	Uniform float64   // in [0, 1)
	Noise   []float32 // with Race, by token
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
	Margin    float64 // see graph.SamplerMargin
	NaN, None bool    // a logit is NaN or +Inf, no token is possible; then the rest is void
}

// Drafted is a token that a step drew, in the order of the steps' rows.
type Drafted = struct {
	Token   int32
	Row     int     // of the target's logits, which decides over it
	Uniform float64 // for the token in its place
}

// Verified are the numbers that decide over a drafted token; graph.VerifyP and the
// names after it say what they are.
type Verified = struct {
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
// The weights stay on the device as those of a step, from 0 on, until the next draw
// of that step; those of steps after it are forgotten. With step -1 they are no
// step's.
func (s *Sampler) Draw(from Rows, rows []SamplerRow, step int) (drawn []Drawn, err error) {
	err = s.with(from, func(x *lent) (err error) {
		if step > len(s.sizes) {
			return fmt.Errorf("it is step %d after %d steps", step, len(s.sizes))
		}
		to := &s.spare
		if step >= 0 {
			s.steps = append(s.steps, make([]block, max(0, step+1-len(s.steps)))...)
			s.sizes = append(s.sizes[:step], len(rows))
			to = &s.steps[step]
		}
		if err := growBlockOn(s.runtime, s.device.memory, to, s.row()*len(rows)); err != nil {
			return err
		}
		drawn, err = s.draw(x, rows, to, false)
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
		drawn, err = s.draw(x, rows, &s.host, false)
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

func (s *Sampler) draw(from *lent, rows []SamplerRow, to *block, wide bool) ([]Drawn, error) {
	r, err := s.run(samplerKind{wide: wide, logits: from.elem})
	if err != nil {
		return nil, err
	}
	if err := r.rows(s.options, from, rows); err != nil {
		return nil, err
	}
	r.out(graph.SamplerOut).at(to, len(rows), s.options.Stride())
	drawn, wideRows, err := r.forward(len(rows))
	if err != nil || wideRows == 0 || wide {
		return drawn, err
	}
	s.reran += wideRows
	return s.draw(from, rows, to, true)
}

// Verify draws from each of the target's rows, and compares the laws that the
// drafted tokens were drawn from, all that the steps since step 0 have made, with
// the rows that decide over them.
func (s *Sampler) Verify(from Rows, rows []SamplerRow, drafted []Drafted) (drawn []Drawn, verified []Verified, err error) {
	err = s.with(from, func(x *lent) (err error) {
		drawn, verified, err = s.verify(x, rows, drafted, false)
		return err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("verify %d drafted tokens with %d rows: %w", len(drafted), len(rows), err)
	}
	return drawn, verified, nil
}

func (s *Sampler) verify(from *lent, rows []SamplerRow, drafted []Drafted, wide bool) ([]Drawn, []Verified, error) {
	have := 0
	for _, n := range s.sizes {
		have += n
	}
	if len(drafted) == 0 || len(drafted) != have || len(rows) == 0 {
		return nil, nil, fmt.Errorf("the steps drew %d tokens", have)
	}
	r, err := s.run(samplerKind{steps: len(s.sizes), wide: wide, logits: from.elem})
	if err != nil {
		return nil, nil, err
	}
	if err := r.rows(s.options, from, rows); err != nil {
		return nil, nil, err
	}
	for i, n := range s.sizes {
		r.in(graph.DraftWeights(i)).at(&s.steps[i], n, s.options.Stride())
	}
	if err := r.drafted(s.options, drafted, len(rows)); err != nil {
		return nil, nil, err
	}
	drawn, wideRows, err := r.forward(len(rows))
	if err != nil {
		return nil, nil, err
	}
	if wideRows > 0 && !wide {
		s.reran += wideRows
		return s.verify(from, rows, drafted, true)
	}
	return drawn, r.verified(len(drafted)), nil
}

// Reran is how many rows were computed again because their nucleus was wider than
// the candidates.
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
	for _, r := range s.runs {
		r.free()
	}
	for i := range s.steps {
		s.steps[i].free()
	}
	s.spare.free()
	s.host.free()
	s.runs, s.steps, s.sizes = nil, nil, nil
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
	if kind.wide {
		o.Candidates = o.Stride()
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
		err = r.prepare(m, !s.device.onCPU())
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
