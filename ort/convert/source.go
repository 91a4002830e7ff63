package convert

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/draftmill/draftmill/ort/convert/tensor"
)

// role is what a tensor is for, in any source.
type role int

const (
	embedding role = iota
	positionTable
	finalNorm
	head
	inputNorm // in front of attention
	query
	keyRole
	valueRole
	queryKeyValue // the three below each other
	queryNorm
	keyNorm
	attentionOutput
	attentionNorm // behind attention, where the architecture has one
	mlpNorm       // in front of the MLP
	gate
	up
	gateUp // both below each other
	down
	outputNorm // behind the MLP, where the architecture has one
)

// source is an open checkpoint.
type source struct {
	*model
	kind    string // "Hugging Face folder" or "GGUF file", for people
	names   map[role]string
	tensors map[string]*tensor.Tensor
	columns bool // matrices are stored turned
	offset  bool // norm weights are relative to 1
	// permuted says that queries and keys are in llama.cpp's order: pairs that
	// rotate together are neighbours, not half a head apart.
	permuted bool
	unread   map[string]string // tensors of types that are not read
	useless  *regexp.Regexp    // names of tensors that nobody needs
	used     map[string]bool
	close    func() error
	// writeTokenizer writes the tokenizer's files; nil where they are files of
	// the source.
	writeTokenizer func(dir string) error
}

func (s *source) name(r role, layer int, suffix string) string {
	name := s.names[r]
	if strings.Contains(name, "%d") {
		name = fmt.Sprintf(name, layer)
	}
	return name + suffix
}

// find is a role's tensor, nil where there is none.
func (s *source) find(r role, layer int, suffix string) *tensor.Tensor {
	if s.names[r] == "" {
		return nil
	}
	name := s.name(r, layer, suffix)
	t := s.tensors[name]
	if t != nil {
		s.used[name] = true
	}
	return t
}

func (s *source) missing(r role, layer int, suffix string) error {
	name := s.name(r, layer, suffix)
	if kind := s.unread[name]; kind != "" {
		return fmt.Errorf("tensor %s has numbers of type %s, which is not supported", name, kind)
	}
	return fmt.Errorf("tensor %s is missing", name)
}

// vector is a norm's weight or the like, nil where optional and missing.
func (s *source) vector(r role, layer int, suffix string, size int, optional bool) ([]float32, error) {
	t := s.find(r, layer, suffix)
	if t == nil {
		if optional && s.unread[s.name(r, layer, suffix)] == "" {
			return nil, nil
		}
		return nil, s.missing(r, layer, suffix)
	}
	if !t.Is(size) {
		return nil, fmt.Errorf("tensor %s has shape %v, the configuration asks for [%d]", t.Name, t.Shape, size)
	}
	return t.Floats(), nil
}

// norm is the weight of a norm as it is multiplied.
func (s *source) norm(r role, layer, size int) ([]float32, error) {
	w, err := s.vector(r, layer, ".weight", size, false)
	if err == nil && s.offset {
		for i := range w {
			w[i]++
		}
	}
	return w, err
}

// matrix is a role's weight of this shape, outputs by inputs, nil where it is
// missing.
func (s *source) matrix(r role, layer, rows, cols int) (*weight, error) {
	t := s.find(r, layer, ".weight")
	if t == nil {
		return nil, nil
	}
	w := matrix(t)
	if s.columns && r != embedding && r != positionTable && r != head {
		if !t.Format.Float() {
			return nil, fmt.Errorf("tensor %s: %s, turned", t.Name, t.Format)
		}
		w = &weight{rows: t.Cols(), cols: t.Rows(), parts: []part{{t: t, rows: t.Cols()}}, columns: true}
	}
	if len(t.Shape) != 2 || w.rows != rows || w.cols != cols {
		return nil, fmt.Errorf("tensor %s has shape %v, the configuration asks for %d outputs of %d inputs", t.Name, t.Shape, rows, cols)
	}
	if t.Format == tensor.F8E4M3 {
		var err error
		if w.parts[0].scale, err = s.scaling(t); err != nil {
			return nil, err
		}
	}
	if s.permuted && (r == query || r == keyRole) {
		w.parts[0].order = interleaved(s.headSize)
	}
	return w, nil
}

// need is matrix, with an error where it is missing.
func (s *source) need(r role, layer, rows, cols int) (*weight, error) {
	w, err := s.matrix(r, layer, rows, cols)
	if err == nil && w == nil {
		err = s.missing(r, layer, ".weight")
	}
	return w, err
}

// interleaved undoes llama.cpp's order of a head's rows: pairs that rotate
// together are neighbours there.
func interleaved(size int) func(int) int {
	return func(row int) int {
		at := row % size
		return row - at + at%(size/2)*2 + at/(size/2)
	}
}

// scaling finds the factors of a weight of 8-bit floats.
func (s *source) scaling(t *tensor.Tensor) (scaling, error) {
	for _, suffix := range []string{"_scale_inv", "_scale"} {
		f := s.tensors[t.Name+suffix]
		if f == nil {
			continue
		}
		s.used[f.Name] = true
		if !f.Format.Float() || f.Format == tensor.F8E4M3 {
			return scaling{}, fmt.Errorf("tensor %s: factors in %s", f.Name, f.Format)
		}
		rows, cols := t.Rows(), t.Cols()
		switch n := f.Rows() * f.Cols(); {
		case n == 1:
			return scaling{f.Floats(), rows, cols, 1}, nil
		case n == rows && (f.Is(rows) || f.Is(rows, 1)):
			return scaling{f.Floats(), 1, cols, 1}, nil
		}
		const side = 128 // of the blocks that checkpoints use
		if f.Is((rows+side-1)/side, (cols+side-1)/side) {
			return scaling{f.Floats(), side, side, f.Cols()}, nil
		}
		return scaling{}, fmt.Errorf("tensor %s: factors of shape %v for numbers of shape %v", f.Name, f.Shape, t.Shape)
	}
	return scaling{}, fmt.Errorf("tensor %s: 8-bit floats without their factors %s_scale_inv or %s_scale", t.Name, t.Name, t.Name)
}

// leftover is an error where a tensor has not been used: the checkpoint is of
// another model than its configuration says.
func (s *source) leftover() error {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(s.tensors)) {
		if !s.used[name] && !s.useless.MatchString(name) {
			names = append(names, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.unread)) {
		if !s.useless.MatchString(name) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	more := ""
	if len(names) > 1 {
		more = fmt.Sprintf(" and %d more", len(names)-1)
	}
	return fmt.Errorf("tensor %s%s is no part of the architecture %s as it is known here", names[0], more, s.family)
}
