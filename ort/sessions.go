package ort

// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"errors"
	"path/filepath"
	"sync"
	"unsafe"

	"google.golang.org/protobuf/proto"

	"github.com/draftmill/draftmill/ort/graph"
	"github.com/draftmill/draftmill/ort/graph/onnxpb"
)

// sessions are a model's sessions, by the number of lanes that one run of
// theirs takes. The first is there from the start; others are made when a
// Forward first needs them, over the same weights.
type sessions struct {
	runtime *C.dm_runtime
	bundle  *Bundle
	options Options
	device  *device

	lanes   int // the most that a run takes
	oneLane error
	graph   *onnxpb.ModelProto // what the others are made from; nil where all runs take one lane
	weights *weights

	mu   sync.Mutex
	made map[int]unsafe.Pointer // OrtSession
}

// newSessions makes the session of one lane.
func newSessions(rt *C.dm_runtime, d *device, b *Bundle, o Options) (_ *sessions, err error) {
	s := &sessions{runtime: rt, bundle: b, options: o, device: d, lanes: 1, made: map[int]unsafe.Pointer{}}
	if err := d.open(rt, b); err != nil {
		return nil, err
	}
	if o.Lanes > 1 {
		err = s.prepareLanes()
	}
	if err == nil {
		_, err = s.of(1)
	}
	if err != nil {
		return nil, errors.Join(err, s.free())
	}
	return s, nil
}

// prepareLanes finds out whether the graph can be rewritten and takes hold of
// the weights if so.
func (s *sessions) prepareLanes() error {
	m, err := graph.Read(s.bundle.Model)
	if err != nil {
		return err
	}
	if s.oneLane = oneLane(s.bundle.Contract, m); s.oneLane != nil {
		return nil
	}
	if s.weights, err = newWeights(s.device, filepath.Dir(s.bundle.Model), m); err != nil {
		return err
	}
	s.graph, s.lanes = m, s.options.Lanes
	return nil
}

// of is the session whose runs take n lanes, at most s.lanes.
func (s *sessions) of(n int) (unsafe.Pointer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if session := s.made[n]; session != nil {
		return session, nil
	}
	session, err := s.open(n)
	if err != nil {
		return nil, s.device.explain(err)
	}
	s.made[n] = session
	if n == 1 {
		if err := s.device.runs(session, s.bundle.layout.Past); err != nil {
			return nil, err
		}
	}
	return session, nil
}

func (s *sessions) open(n int) (session unsafe.Pointer, err error) {
	options, err := newSessionOptions(s.options, s.device)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, options.Destroy()) }()
	if s.graph == nil {
		path := C.CString(s.bundle.Model)
		defer C.free(unsafe.Pointer(path))
		err = goError(C.dm_session_open(s.runtime, path, rawSessionOptions(options), &session))
		return session, err
	}

	model := s.graph
	if n > 1 {
		if model, err = graph.Lanes(s.graph, n); err != nil {
			return nil, err
		}
	}
	data, err := proto.Marshal(model)
	if err != nil {
		return nil, err
	}
	if err := options.AddSessionConfigEntry("session.model_external_initializers_file_folder_path", s.weights.dir); err != nil {
		return nil, err
	}
	if err := s.weights.share(rawSessionOptions(options), model.Graph); err != nil {
		return nil, err
	}
	stop := s.weights.forgetting()
	err = goError(C.dm_session_new(s.runtime, unsafe.Pointer(&data[0]), C.size_t(len(data)), rawSessionOptions(options), s.weights.packed, &session))
	return session, errors.Join(err, stop(), s.weights.forget())
}

func (s *sessions) free() error {
	for _, session := range s.made {
		C.dm_session_free(s.runtime, session)
	}
	s.made = nil
	var err error
	if s.weights != nil {
		err = s.weights.free()
	}
	return errors.Join(err, s.device.free())
}
