package tensor

import (
	"fmt"
	"slices"
)

// Tensor is a tensor of a model file. Data belong to the file, which is mapped:
// they are read only, and only until the file is closed.
type Tensor struct {
	Name   string
	Format Format
	Shape  []int // outermost first, rows are consecutive; empty for one number
	Data   []byte
}

// Maximum dimensions of a tensor.
const maxRank = 8

// Size is how many bytes a tensor of this format and shape takes. It is an error
// where that is not known: rows must be whole blocks and sizes must fit.
func Size(f Format, shape []int) (int, error) {
	if f >= formats {
		return 0, fmt.Errorf("unknown format %d", f)
	}
	if len(shape) > maxRank {
		return 0, fmt.Errorf("%d dimensions, %d are the most", len(shape), maxRank)
	}
	n := 1
	for _, size := range shape {
		more, ok := product(n, size)
		if !ok {
			return 0, fmt.Errorf("shape %v is impossible", shape)
		}
		n = more
	}
	elements, bytes := f.Block()
	row := 1
	if len(shape) > 0 {
		row = shape[len(shape)-1]
	}
	if row%elements != 0 {
		return 0, fmt.Errorf("rows of %d numbers are no whole blocks of %s, which has %d", row, f, elements)
	}
	return n / elements * bytes, nil
}

// Rows is how many rows the tensor has, and Cols how long they are. A vector is
// one row.
func (t *Tensor) Rows() int {
	if len(t.Shape) < 2 {
		return 1
	}
	n := 1
	for _, size := range t.Shape[:len(t.Shape)-1] {
		n *= size
	}
	return n
}

// Cols is the length of a row.
func (t *Tensor) Cols() int {
	if len(t.Shape) == 0 {
		return 1
	}
	return t.Shape[len(t.Shape)-1]
}

// Row is the stored bytes of a row.
func (t *Tensor) Row(i int) []byte {
	n := t.Format.Bytes(t.Cols())
	return t.Data[i*n:][:n:n]
}

// Floats decodes all of it.
func (t *Tensor) Floats() []float32 {
	dst := make([]float32, t.Rows()*t.Cols())
	t.Format.Decode(dst, t.Data)
	return dst
}

// Is reports whether the tensor has this shape; sizes of one in front do not
// count.
func (t *Tensor) Is(shape ...int) bool {
	mine := t.Shape
	for len(mine) > len(shape) && mine[0] == 1 {
		mine = mine[1:]
	}
	return slices.Equal(mine, shape)
}

// String is for errors.
func (t *Tensor) String() string { return fmt.Sprintf("%s %s%v", t.Name, t.Format, t.Shape) }
