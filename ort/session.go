package ort

// #include <stdlib.h>
// #include "operators.h"
import "C"

import (
	"errors"
	"fmt"
	"path/filepath"
	"unsafe"

	"google.golang.org/protobuf/proto"

	"github.com/draftmill/draftmill/ort/graph"
	"github.com/draftmill/draftmill/ort/graph/onnxpb"
)

// session is a model's session, the one for all its decoders. On the CPU it is
// of a rewritten graph, whose passes are ragged and whose matrices and attention
// are our own (ort/kernels); where a graph cannot be rewritten, and on devices,
// it is of the graph as it is, which takes one sequence a run.
type session struct {
	runtime  *C.dm_runtime
	device   *device
	session  unsafe.Pointer // OrtSession
	ragged   *graph.Ragged  // nil: one sequence a run
	why      error          // why it is nil
	inexact  bool           // ragged, but some matrices are ONNX Runtime's, whose last bits depend on the number of rows
	matrices *matrices      // of the rewritten graph
}

func newSession(rt *C.dm_runtime, d *device, b *Bundle, o Options) (_ *session, err error) {
	s := &session{runtime: rt, device: d}
	if err := d.open(rt, b); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.free())
		}
	}()
	options, err := newSessionOptions(o, d)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, options.Destroy()) }()
	if err := s.rewrite(b, o); err != nil {
		return nil, err
	}
	if s.ragged == nil {
		path := C.CString(b.Model)
		defer C.free(unsafe.Pointer(path))
		if err := goError(C.dm_session_open(rt, path, rawSessionOptions(options), &s.session)); err != nil {
			return nil, d.explain(err)
		}
		return s, d.runs(s.session, b.layout.Past)
	}
	model, err := proto.Marshal(s.ragged.Model)
	if err != nil {
		return nil, err
	}
	if err := options.AddSessionConfigEntry("session.model_external_initializers_file_folder_path", filepath.Dir(b.Model)); err != nil {
		return nil, err
	}
	if err := useOperators(rt, rawSessionOptions(options)); err != nil {
		return nil, err
	}
	if err := goError(C.dm_session_new(rt, unsafe.Pointer(&model[0]), C.size_t(len(model)), rawSessionOptions(options), &s.session)); err != nil {
		return nil, err
	}
	s.ragged.Model = nil
	return s, nil
}

// rewrite makes the graph of ragged passes where that can be, and packs its
// matrices.
func (s *session) rewrite(b *Bundle, o Options) error {
	if o.AsExported {
		s.why = errors.New("the graph runs as it was exported")
		return nil
	}
	if !s.device.onCPU() {
		s.why = fmt.Errorf("device %s runs the graph as it is", s.device.name)
		return nil
	}
	m, err := graph.Read(b.Model)
	if err != nil {
		return err
	}
	if s.ragged, s.why = newRagged(m, func(*graph.Matrix) { s.inexact = true }); s.why != nil {
		return nil
	}
	if s.matrices, err = packMatrices(filepath.Dir(b.Model), s.ragged.Matrices, o.Threads); err != nil {
		return err
	}
	s.ragged.Bind(s.matrices.address, o.Threads)
	return nil
}

// newRagged rewrites a graph for our operators. left is told of each matrix that
// stays with ONNX Runtime.
func newRagged(m *onnxpb.ModelProto, left func(*graph.Matrix)) (*graph.Ragged, error) {
	return graph.NewRagged(m, graph.RaggedOptions{Domain: graph.OwnDomain, Take: func(x *graph.Matrix) bool {
		if takes(x) {
			return true
		}
		left(x)
		return false
	}})
}

// free ends the session and then what it computes with.
func (s *session) free() error {
	if s.session != nil {
		C.dm_session_free(s.runtime, s.session)
		s.session = nil
	}
	if s.matrices != nil {
		s.matrices.free()
		s.matrices = nil
	}
	C.dm_operators_trim()
	C.dm_trim()
	return s.device.free()
}
