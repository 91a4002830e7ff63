package ort

// #include "operators.h"
import "C"

import (
	"errors"
	"fmt"
	"path/filepath"

	yort "github.com/yalue/onnxruntime_go"

	"github.com/draftmill/draftmill/ort/graph"
	"github.com/draftmill/draftmill/ort/graph/onnxpb"
)

// openCrossed makes sessions of the graphs of an encoder-decoder model. The encoder
// runs as it was exported. The decoder is rewritten where it can be.
func (s *session) openCrossed(b *Bundle, options *yort.SessionOptions, o Options) (err error) {
	if s.encoder, err = openFile(s.runtime, b.Encoder.Model, options); err != nil {
		return err
	}
	if o.AsExported {
		s.why = errors.New("the graph runs as it was exported")
	} else if err := s.rewriteCrossed(b, options, o); err != nil || s.ragged != nil {
		return err
	}
	if s.session, err = openFile(s.runtime, b.Model, options); err != nil {
		return err
	}
	if b.Encoder.Next != "" {
		s.next, err = openFile(s.runtime, b.Encoder.Next, options)
	}
	return err
}

// rewriteCrossed makes the sessions of a decoder that can be rewritten.
func (s *session) rewriteCrossed(b *Bundle, options *yort.SessionOptions, o Options) error {
	s.paging = pagingOn(s.device, b.HeadSize)
	d, why, err := rewriteCrossed(b, s.paging, func(*graph.Matrix) { s.inexact = true })
	if s.why = why; why != nil || err != nil {
		return err
	}
	s.ragged = d.ragged
	if err := s.pack(d.dir, o); err != nil {
		return err
	}
	if err := useOperators(s.runtime, rawSessionOptions(options)); err != nil {
		return err
	}
	model := s.ragged.Model
	s.ragged.Model = nil
	if s.session, err = openModel(s.runtime, model, d.dir, options); err != nil {
		return err
	}
	s.keys, err = openModel(s.runtime, d.keys, d.keysDir, options)
	return err
}

// crossedGraphs is a rewritten decoder.
type crossedGraphs struct {
	ragged *graph.Ragged
	keys   *onnxpb.ModelProto // makes keys and values of the encoder's states

	dir, keysDir string // of their external data
}

// rewriteCrossed rewrites the decoder of an encoder-decoder model for ragged passes;
// why says why that cannot be. left is told of each matrix that stays with ONNX
// Runtime.
func rewriteCrossed(b *Bundle, p paging, left func(*graph.Matrix)) (d *crossedGraphs, why, err error) {
	first, dir, err := readLinked(b.Model)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", filepath.Base(b.Model), reason(err))
	}
	d = &crossedGraphs{dir: dir, keysDir: dir}
	next := first
	if b.Encoder.Next != "" {
		if next, d.dir, err = readLinked(b.Encoder.Next); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", filepath.Base(b.Encoder.Next), reason(err))
		}
	}
	f := &initializers{dir: d.dir, files: map[string][]byte{}}
	o := raggedOptions(p, left)
	o.Read = f.small
	if d.ragged, why = graph.NewRaggedCrossed(next, b.layout, b.Encoder.Most, o); why == nil {
		d.keys, why = graph.NewCrossKeys(first, b.layout)
	}
	return d, why, f.close()
}
