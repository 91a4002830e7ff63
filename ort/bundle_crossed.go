package ort

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/draftmill/draftmill/ort/graph"
)

// Encoder is what a bundle of an encoder-decoder model (T5, BART, Marian) has
// beside its decoder. A sequence of such a model is the input, which the encoder
// reads as a whole; then Start; then what is generated. The decoder sees the
// tokens from Start on, and the encoder's states.
type Encoder struct {
	Model string  // path of the encoder's ONNX file
	Next  string  // path of the decoder's for runs with a past; empty where Bundle.Model is for all runs
	Start []int32 // decoder_start_token_id, and forced_bos_token_id where there is one
	Most  int     // tokens of the input, and of what the decoder sees
}

// encoderFiles are where an encoder may be.
var encoderFiles = []string{"encoder_model.onnx", "onnx/encoder_model.onnx"}

// decoderFiles are where the decoder that belongs to an encoder may be: in one
// file, or in two.
func decoderFiles(encoder string) (merged, first, next string) {
	beside := func(name string) string { return filepath.Join(filepath.Dir(encoder), name) }
	return beside("decoder_model_merged.onnx"), beside("decoder_model.onnx"), beside("decoder_with_past_model.onnx")
}

// errNoDecoder says what belongs to an encoder.
var errNoDecoder = errors.New("an encoder-decoder model is encoder_model.onnx with decoder_model_merged.onnx, or with decoder_model.onnx and decoder_with_past_model.onnx (Optimum, task text2text-generation-with-past)")

// relativePositions is Encoder.Most where the configuration names no number of
// positions, as in mT5: positions are relative, and so many are what T5 and its
// kin were trained with.
const relativePositions = 512

// readCrossed reads the graphs of an encoder-decoder model. It returns the paths
// of their external data.
func (b *Bundle) readCrossed(c *modelConfig) (external []string, err error) {
	e := b.Encoder
	if e.Start = c.start; len(e.Start) == 0 {
		return nil, fmt.Errorf("%s: no decoder_start_token_id, with which the decoder of an encoder-decoder model begins", c.source)
	}
	if e.Most = c.context; e.Most == 0 {
		e.Most = relativePositions
	}
	merged, first, next := decoderFiles(e.Model)
	b.Model = merged
	if _, err := os.Stat(b.Model); errors.Is(err, fs.ErrNotExist) {
		b.Model, e.Next = first, next
	}
	paths := []string{e.Model, b.Model}
	if e.Next != "" {
		paths = append(paths, e.Next)
	}
	graphs := make([]*graph.Summary, 3)
	for i, path := range paths {
		if _, err := os.Stat(path); err != nil {
			return nil, fmt.Errorf("%s: %w: %w", filepath.Base(path), reason(err), errNoDecoder)
		}
		if graphs[i], err = describe(path); err != nil {
			return nil, err
		}
		more, err := externalPaths(path, graphs[i])
		if err != nil {
			return nil, err
		}
		external = append(external, more...)
	}
	if b.layout, err = graph.ReadCrossLayout(graphs[0], graphs[1], graphs[2]); err != nil {
		return nil, err
	}
	for _, g := range graphs[:len(paths)] {
		b.tolerance = max(b.tolerance, rounding(b.layout, g))
	}
	// The graph fixes these; a configuration has more than one of each.
	c.layers, c.kvHeads, c.headSize = 0, 0, 0
	c.context = 2 * e.Most
	slices.Sort(external)
	return slices.Compact(external), nil
}
