package convert

import (
	"fmt"

	"github.com/draftmill/draftmill/ort/convert/tensor"
)

// weight is a matrix [rows, cols] of a model, outputs by inputs, as rows of the
// tensors of the source: some of one, or all of several below each other.
type weight struct {
	rows, cols int
	parts      []part
	// columns says that the source stores the matrix turned, [cols, rows], as
	// GPT-2's checkpoints do. There is one part then.
	columns bool
	// pick says which rows of the parts these are; nil: all, in order.
	pick []int32
}

// part is some rows of a tensor.
type part struct {
	t          *tensor.Tensor
	from, rows int
	order      func(row int) int // the tensor's row that is row of the matrix; nil: the same
	scale      scaling           // of numbers of 8 bits
}

// scaling gives the factors of F8 numbers: one for a tensor, for a row, or for
// blocks of rows and columns.
type scaling struct {
	factors    []float32
	rows, cols int // that share a factor; rows 0: there is no scaling
	across     int // factors of a row of blocks
}

// matrix is all of t.
func matrix(t *tensor.Tensor) *weight {
	return &weight{rows: t.Rows(), cols: t.Cols(), parts: []part{{t: t, rows: t.Rows()}}}
}

// slice is rows of w, which must lie within one part.
func (w *weight) slice(from, rows int) (*weight, error) {
	if w.columns {
		p := w.parts[0]
		p.from += from
		return &weight{rows: rows, cols: w.cols, parts: []part{p}, columns: true}, nil
	}
	if len(w.parts) != 1 || w.parts[0].order != nil || from+rows > w.rows {
		return nil, fmt.Errorf("rows %d to %d of %d", from, from+rows, w.rows)
	}
	p := w.parts[0]
	p.from, p.rows = p.from+from, rows
	return &weight{rows: rows, cols: w.cols, parts: []part{p}}, nil
}

// picked is some rows of w, which is not turned.
func (w *weight) picked(rows []int32) *weight {
	return &weight{rows: len(rows), cols: w.cols, parts: w.parts, pick: rows}
}

// stack puts matrices below each other.
func stack(ws ...*weight) (*weight, error) {
	all := &weight{cols: ws[0].cols}
	for _, w := range ws {
		if w.cols != all.cols || w.columns {
			return nil, fmt.Errorf("matrices of %d and %d columns do not fit below each other", all.cols, w.cols)
		}
		all.rows += w.rows
		all.parts = append(all.parts, w.parts...)
	}
	return all, nil
}

// at is the part that has a row, and which row of its tensor that is.
func (w *weight) at(row int) (*part, int) {
	if w.pick != nil {
		row = int(w.pick[row])
	}
	i := 0
	for row >= w.parts[i].rows {
		row -= w.parts[i].rows
		i++
	}
	p := &w.parts[i]
	if p.order != nil {
		row = p.order(row)
	}
	return p, p.from + row
}

// format is the one of all parts, false where they differ or are turned.
func (w *weight) format() (tensor.Format, bool) {
	f := w.parts[0].t.Format
	for _, p := range w.parts {
		if p.t.Format != f || p.scale.rows != 0 {
			return f, false
		}
	}
	return f, !w.columns
}

// read decodes a row into dst, which has cols numbers.
func (w *weight) read(dst []float32, row int) {
	if w.columns {
		w.readColumn(dst, w.parts[0].from+row)
		return
	}
	p, at := w.at(row)
	p.t.Format.Decode(dst, p.t.Row(at))
	if s := p.scale; s.rows > 0 {
		factors := s.factors[at/s.rows*s.across:]
		for i := range dst {
			dst[i] *= factors[i/s.cols]
		}
	}
}

func (w *weight) readColumn(dst []float32, column int) {
	t := w.parts[0].t
	width := t.Format.Bytes(1)
	for i := range dst {
		t.Format.Decode(dst[i:i+1], t.Row(i)[column*width:])
	}
}
