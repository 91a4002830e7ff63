package ort

import (
	"context"
	"errors"
	"fmt"
	"unsafe"

	"github.com/draftmill/draftmill/ort/graph"
)

// kept are rows of logits where a pass left them.
type kept struct {
	data unsafe.Pointer // [rows, vocabulary]
	info unsafe.Pointer // OrtMemoryInfo; nil on the CPU
	elem graph.ElementType
	rows int
}

// Keep is Forward with the logits left where the model runs: a Sampler on the same
// device draws from them, until the decoder's next pass. On a device it may return
// before the pass has ended; the draw, or any other run there, comes after it.
func (d *Decoder) Keep(ctx context.Context, spans []Span) error { return d.keep(ctx, spans, nil) }

// keep makes a pass over spans that may name what was drawn.
func (d *Decoder) keep(ctx context.Context, spans []Span, drawn []drawnTokens) error {
	d.enter()
	defer d.leave()
	d.refs = refs(drawn)
	defer func() { d.refs = 0 }()
	err := d.run(ctx, spans, func(rows int) (err error) {
		d.kept, err = d.caches.keep(d.spans, rows, drawn)
		return err
	})
	if err != nil {
		d.kept = kept{}
		return fmt.Errorf("forward: %w", err)
	}
	return nil
}

// Rows are rows of logits that a Sampler draws from: those that a Decoder's last
// Keep has left, or HostRows.
type Rows interface {
	// lend gives the rows, which stay as they are until back is called.
	lend() (rows kept, back func(), err error)
}

func (d *Decoder) lend() (kept, func(), error) {
	d.mu.Lock()
	if d.closed || d.kept.rows == 0 {
		defer d.mu.Unlock()
		if d.closed {
			return kept{}, nil, ErrClosed
		}
		return kept{}, nil, errors.New("the decoder's last pass has kept no logits")
	}
	return d.kept, d.mu.Unlock, nil
}

// HostRows are logits in Go's memory, row after row. A sampler copies them.
type HostRows []float32

func (h HostRows) lend() (kept, func(), error) { return kept{}, func() {}, nil }
