package ort

// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"
	"runtime"
	"sync"

	yort "github.com/yalue/onnxruntime_go"
)

// Options of a session. The zero value is the default.
type Options struct {
	// Threads that one run computes with on the CPU; 0 takes one for a bundle
	// below 4 MiB, whose operators are too small for more, and otherwise
	// GOMAXPROCS, the CPUs that this process may use.
	Threads int
	// Device that runs the model and holds the caches: "cpu", also when empty;
	// "cuda" or "cuda:N", an NVIDIA GPU, from 0; "webgpu", a GPU by way of
	// Vulkan, Metal or Direct3D.
	Device string
	// ProviderOptions are options of the device's execution provider in ONNX
	// Runtime, by their names there ("gpu_mem_limit").
	ProviderOptions map[string]string
	// Context limits the tokens of a sequence below the model's own context; 0
	// sets no limit.
	Context int
	// AsExported runs the graph as the exporter wrote it, one sequence at a time,
	// with ONNX Runtime's kernels: what the rewritten graph is compared with.
	AsExported bool
	// SessionConfig are further session configuration entries of ONNX Runtime,
	// by their names there ("session.use_device_allocator_for_initializers").
	SessionConfig map[string]string
	// Progress, if not nil, is told how long loading takes.
	Progress Progress

	paging  *paging // of tests, in place of the device's own
	capture bool    // the session's provider records graphs
}

// Model is a loaded model: the weights, shared by all decoders made from it.
// It may be used by several goroutines.
type Model struct {
	bundle  *Bundle
	context int
	runtime *C.dm_runtime
	session *session

	mu   sync.Mutex
	refs int // open decoders, and one for the model until Close
	open bool
}

// Load makes the session of a bundle. Init must have been called.
func Load(b *Bundle, o Options) (*Model, error) {
	m, err := load(b, o)
	if err != nil {
		return nil, fmt.Errorf("load model %s: %w", b.Dir, err)
	}
	return m, nil
}

func load(b *Bundle, o Options) (*Model, error) {
	rt, err := current()
	if err != nil {
		return nil, err
	}
	d, err := parseDevice(o)
	if err != nil {
		return nil, err
	}
	if o.Threads < 0 {
		return nil, fmt.Errorf("%d threads: want 0 (as many as suit the model) or more", o.Threads)
	}
	if o.Context < 0 {
		return nil, fmt.Errorf("context of %d tokens: want 0 (the model's own) or more", o.Context)
	}
	if o.Threads == 0 {
		o.Threads = defaultThreads(b.Bytes)
	}
	m := &Model{bundle: b, context: b.Context, runtime: rt, refs: 1, open: true}
	if o.Context > 0 {
		m.context = min(o.Context, b.Context)
	}
	meter := o.Progress.start("load", b.Dir, b.Bytes)
	d.lock()
	defer d.unlock()
	m.session, err = newSession(rt, d, b, o)
	if meter.end(err); err != nil {
		return nil, err
	}
	return m, nil
}

// oneThreadBytes is the size below which a model runs on one thread: waking
// others for its small operators costs more than they save. (The demo's draft,
// of 2 MB, takes two thirds of the time on one thread.)
const oneThreadBytes = 4 << 20

// defaultThreads is how many threads suit a bundle of so many bytes.
func defaultThreads(bytes int64) int {
	if bytes < oneThreadBytes {
		return 1
	}
	return runtime.GOMAXPROCS(0)
}

// newSessionOptions sets what all sessions here have in common. Decoding feeds
// another length at every step, so memory patterns, which are kept per input
// shape, would grow without end. Threads that spin after a run hold the cores
// that the other model's session needs next: force_spinning_stop ends spinning
// with the run, and a draft-verify loop then costs what its parts cost.
func newSessionOptions(o Options, d *device) (*yort.SessionOptions, error) {
	so, err := yort.NewSessionOptions()
	if err != nil {
		return nil, err
	}
	err = errors.Join(
		so.SetIntraOpNumThreads(o.Threads),
		so.SetInterOpNumThreads(1),
		so.SetExecutionMode(yort.ExecutionModeSequential),
		so.SetGraphOptimizationLevel(yort.GraphOptimizationLevelEnableAll),
		so.SetMemPattern(false),
		so.AddSessionConfigEntry("session.force_spinning_stop", "1"),
	)
	for key, value := range o.SessionConfig {
		if e := so.AddSessionConfigEntry(key, value); e != nil {
			err = errors.Join(err, fmt.Errorf("session option %s=%s: %w", key, value, e))
		}
	}
	if err == nil {
		err = d.provider(so, o.capture)
	}
	if err != nil {
		return nil, errors.Join(err, so.Destroy())
	}
	return so, nil
}

// Bundle is what the model was loaded from.
func (m *Model) Bundle() *Bundle { return m.bundle }

// Vocab is the number of logits per position.
func (m *Model) Vocab() int { return m.bundle.Vocab }

// Context is the number of tokens that one slot's cache can hold.
func (m *Model) Context() int { return m.context }

// Ragged says why a pass over several sequences is one run of the graph for each
// of them; nil where it is one run for all.
func (m *Model) Ragged() error { return m.session.why }

// Exact says that a row's logits do not depend, to the bit, on what else is in
// its pass or on how its tokens were cut into passes.
func (m *Model) Exact() bool {
	return m.session.ragged != nil && !m.session.inexact && m.session.device.onCPU()
}

// WeightBytes is what a pass over one token reads of our kernels' matrices; 0
// where the graph runs as it was exported.
func (m *Model) WeightBytes() int {
	if m.session.matrices == nil {
		return 0
	}
	return m.session.matrices.bytes
}

// Device is Options.Device, "cpu" where that was empty.
func (m *Model) Device() string { return m.session.device.name }

// CacheBytes is what a sequence of the whole context takes, on the model's
// device.
func (m *Model) CacheBytes() int {
	if m.session.ragged == nil {
		return m.bundle.CacheBytes(m.context)
	}
	return m.CacheBytesPerToken() * m.context
}

// CacheBytesPerToken is what one cached token takes there.
func (m *Model) CacheBytesPerToken() int {
	r := m.session.ragged
	if r == nil {
		return m.bundle.CacheBytesPerToken()
	}
	return len(r.Caches) * r.KVHeads * r.HeadSize * r.Cache.Size()
}

// Close lets the session go; decoders that are still open keep it until they
// are closed. Closing twice is harmless.
func (m *Model) Close() error {
	m.mu.Lock()
	open := m.open
	m.open = false
	m.mu.Unlock()
	if !open {
		return nil
	}
	m.session.device.lock()
	defer m.session.device.unlock()
	return m.release()
}

// acquire takes a reference for a decoder.
func (m *Model) acquire() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.open {
		return errors.New("the model is closed")
	}
	m.refs++
	return nil
}

// release drops a reference and, with the last one, the session. The device is
// locked.
func (m *Model) release() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refs--
	if m.refs > 0 {
		return nil
	}
	return m.session.free()
}
