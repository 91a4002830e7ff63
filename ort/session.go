package ort

// #include <stdlib.h>
// #include "operators.h"
import "C"

import (
	"errors"
	"fmt"
	"unsafe"

	yort "github.com/yalue/onnxruntime_go"
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
	encoder  unsafe.Pointer // of an encoder-decoder model: the encoder's
	next     unsafe.Pointer // of one whose decoder is two graphs, and runs as exported: that of runs with a past
	keys     unsafe.Pointer // of one whose decoder is rewritten: what makes the keys of the encoder's states
	ragged   *graph.Ragged  // nil: one sequence a run
	paging   paging         // of the caches, where it is not nil
	why      error          // why it is nil
	inexact  bool           // ragged, but some matrices are ONNX Runtime's, whose last bits depend on the number of rows
	matrices *matrices      // of the rewritten graph
}

func newSession(rt *C.dm_runtime, d *device, b *Bundle, o Options) (_ *session, err error) {
	s := &session{runtime: rt, device: d}
	if err := d.open(rt, b, o.AsExported); err != nil {
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
	if b.Encoder != nil {
		return s, s.openCrossed(b, options, o)
	}
	model, dir, err := readLinked(b.Model)
	if err != nil {
		return nil, err
	}
	if err := s.rewrite(model, dir, b, o); err != nil {
		return nil, err
	}
	if s.ragged != nil && d.onCPU() {
		model, s.ragged.Model = s.ragged.Model, nil
		if err := useOperators(rt, rawSessionOptions(options)); err != nil {
			return nil, err
		}
		s.session, err = openModel(rt, model, dir, options)
		return s, err
	}
	if s.ragged != nil && s.openPaged(dir, o) {
		return s, nil
	}
	// As it is, whatever was tried with it.
	if err := d.fitsAsIs(b); err != nil {
		return nil, err
	}
	if s.session, err = openFile(rt, b.Model, options); err != nil {
		return nil, d.explain(err)
	}
	return s, d.runs(s.session, b.layout.Past)
}

// openPaged makes a session of the graph that was rewritten for a device, which
// records passes where it is told to and can. It returns false where the library,
// or the device, has no kernel for it; then why says so, and the graph as it is may
// still run.
func (s *session) openPaged(dir string, o Options) bool {
	model := s.ragged.Model
	s.ragged.Model = nil
	var err error
	for _, s.paging.capture = range []bool{true, false} {
		if s.paging.capture && !s.device.records() {
			continue
		}
		if err = s.openRewritten(model, dir, o); err == nil {
			return true
		}
	}
	s.ragged, s.why = nil, fmt.Errorf("device %s does not take paged attention: %w", s.device.name, err)
	return false
}

func (s *session) openRewritten(model *onnxpb.ModelProto, dir string, o Options) (err error) {
	o.capture = s.paging.capture
	options, err := newSessionOptions(o, s.device)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, options.Destroy()) }()
	if s.session, err = openModel(s.runtime, model, dir, options); err != nil {
		return err
	}
	if err = s.device.runs(s.session, s.ragged.Caches); err != nil {
		freeSession(s.runtime, s.session)
		s.session = nil
	}
	return err
}

// openFile makes a session of the graph in a file, as it is.
func openFile(rt *C.dm_runtime, path string, options *yort.SessionOptions) (session unsafe.Pointer, err error) {
	if isLink(path) {
		model, dir, err := readLinked(path)
		if err != nil {
			return nil, err
		}
		return openModel(rt, model, dir, options)
	}
	cpath := C.CString(path)
	defer C.free(unsafe.Pointer(cpath))
	err = goError(C.dm_session_open(rt, cpath, rawSessionOptions(options), &session))
	return session, err
}

// openModel makes a session of a model whose external data are in dir.
func openModel(rt *C.dm_runtime, model *onnxpb.ModelProto, dir string, options *yort.SessionOptions) (session unsafe.Pointer, err error) {
	data, err := proto.Marshal(model)
	if err != nil {
		return nil, err
	}
	if err := options.AddSessionConfigEntry("session.model_external_initializers_file_folder_path", dir); err != nil {
		return nil, err
	}
	err = goError(C.dm_session_new(rt, unsafe.Pointer(&data[0]), C.size_t(len(data)), rawSessionOptions(options), &session))
	return session, err
}

// rewrite makes the graph of ragged passes of m, whose data are in dir, where that
// can be, and packs its matrices.
func (s *session) rewrite(m *onnxpb.ModelProto, dir string, b *Bundle, o Options) (err error) {
	s.paging = pagingOn(s.device, b.HeadSize)
	if o.paging != nil {
		s.paging = *o.paging
	}
	if o.AsExported {
		s.why = errors.New("the graph runs as it was exported")
		return nil
	}
	switch {
	case s.device.kind == cudaDevice && b.HeadSize%pagedHeads != 0:
		s.why = fmt.Errorf("heads of size %d: paged attention takes multiples of %d on device %s", b.HeadSize, pagedHeads, s.device.name)
		return nil
	case s.device.kind == cudaDevice:
		s.ragged, s.why = graph.NewRagged(m, graph.RaggedOptions{Domain: graph.MicrosoftDomain, Metadata: s.paging.metadata})
		return nil
	case !s.device.onCPU():
		s.why = fmt.Errorf("device %s runs the graph as it is", s.device.name)
		return nil
	}
	if s.ragged, s.why = newRagged(m, s.paging, func(*graph.Matrix) { s.inexact = true }); s.why != nil {
		return nil
	}
	return s.pack(dir, o)
}

// pack packs the rewritten graph's matrices, and lets it name them.
func (s *session) pack(dir string, o Options) (err error) {
	if s.matrices, err = packMatrices(dir, s.ragged.Matrices, o.Threads); err != nil {
		return err
	}
	s.ragged.Bind(s.matrices.address, o.Threads)
	return nil
}

// pagedHeads is what divides the size of heads that ONNX Runtime's PagedAttention
// takes.
const pagedHeads = 8

// newRagged rewrites a graph for our operators. left is told of each matrix that
// stays with ONNX Runtime.
func newRagged(m *onnxpb.ModelProto, p paging, left func(*graph.Matrix)) (*graph.Ragged, error) {
	return graph.NewRagged(m, raggedOptions(p, left))
}

func raggedOptions(p paging, left func(*graph.Matrix)) graph.RaggedOptions {
	return graph.RaggedOptions{Domain: graph.OwnDomain, Metadata: p.metadata, Copies: p.copies, Take: func(x *graph.Matrix) bool {
		if takes(x) {
			return true
		}
		left(x)
		return false
	}}
}

// free ends the session and then what it computes with.
func (s *session) free() error {
	for _, p := range []*unsafe.Pointer{&s.session, &s.encoder, &s.next, &s.keys} {
		if *p != nil {
			C.dm_session_free(s.runtime, *p)
			*p = nil
		}
	}
	if s.matrices != nil {
		s.matrices.free()
		s.matrices = nil
	}
	C.dm_operators_trim()
	C.dm_trim()
	return s.device.free()
}

// freeSession ends a session that is nobody's part.
func freeSession(rt *C.dm_runtime, session unsafe.Pointer) { C.dm_session_free(rt, session) }
