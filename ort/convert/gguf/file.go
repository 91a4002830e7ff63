package gguf

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/draftmill/draftmill/ort/convert/tensor"
)

// ggml's numbers for the formats that are read, and its names for the others.
var (
	readable = map[uint32]tensor.Format{
		0: tensor.F32, 1: tensor.F16, 30: tensor.BF16,
		2: tensor.Q4_0, 3: tensor.Q4_1, 6: tensor.Q5_0, 7: tensor.Q5_1, 8: tensor.Q8_0,
		10: tensor.Q2_K, 11: tensor.Q3_K, 12: tensor.Q4_K, 13: tensor.Q5_K, 14: tensor.Q6_K, 20: tensor.IQ4_NL,
	}
	others = map[uint32]string{
		9: "Q8_1", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS",
		24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4",
	}
)

// File is a mapped file. Tensors and strings are valid until Close.
type File struct {
	Version  uint32
	Metadata Metadata
	tensor.File

	others []*File // the other parts of a model in several files; their tensors are among Tensors
}

func openOne(path string) (*File, error) { return tensor.Open(path, Parse) }

// Limits of what a real file says. A name has at most 64 bytes by the format; a
// few files do not keep to it.
const (
	maxName  = 1 << 10
	maxDepth = 4 // of arrays in arrays
)

// place is where a tensor lies among the tensors' bytes.
type place struct {
	t     *tensor.Tensor
	begin uint64
	size  int
}

// Parse reads a file's bytes, of which the tensors are a part.
func Parse(data []byte) (*File, error) {
	r := &reader{data: data}
	if magic, err := r.bytes(4); err != nil || string(magic) != "GGUF" {
		return nil, errors.New("not a GGUF file")
	}
	f := &File{Metadata: Metadata{}, File: tensor.File{Tensors: map[string]*tensor.Tensor{}}}
	var err error
	if f.Version, err = r.uint32(); err != nil {
		return nil, err
	}
	switch f.Version {
	case 2, 3:
	case 2 << 24, 3 << 24:
		return nil, errors.New("a big-endian file, which is not supported")
	default:
		return nil, fmt.Errorf("version %d of the format, 2 and 3 are supported", f.Version)
	}
	tensors, err := r.count(4 + 8 + 8 + 4) // a tensor's least description
	if err != nil {
		return nil, fmt.Errorf("number of tensors: %w", err)
	}
	pairs, err := r.count(8 + 4 + 1)
	if err != nil {
		return nil, fmt.Errorf("number of metadata: %w", err)
	}
	for i := range pairs {
		key, err := r.name()
		if err != nil {
			return nil, fmt.Errorf("metadata %d of %d: %w", i+1, pairs, err)
		}
		if _, twice := f.Metadata[key]; twice {
			return nil, fmt.Errorf("metadata %s is there twice", key)
		}
		if f.Metadata[key], err = r.value(); err != nil {
			return nil, fmt.Errorf("metadata %s: %w", key, err)
		}
	}
	places := make([]place, 0, tensors)
	for i := range tensors {
		p, err := r.tensor()
		if err != nil {
			return nil, fmt.Errorf("tensor %d of %d: %w", i+1, tensors, err)
		}
		if f.Tensors[p.t.Name] != nil {
			return nil, fmt.Errorf("tensor %s is there twice", p.t.Name)
		}
		f.Tensors[p.t.Name] = p.t
		places = append(places, p)
	}
	align := uint64(32)
	if _, ok := f.Metadata["general.alignment"]; ok {
		n, ok := f.Metadata.Int("general.alignment")
		if !ok || n <= 0 || n > 1<<20 || n&(n-1) != 0 {
			return nil, errors.New("metadata general.alignment is no power of two up to 1,048,576")
		}
		align = uint64(n)
	}
	return f, locate(places, r.data, (uint64(r.at)+align-1)/align*align, align)
}

// locate gives the tensors their bytes, which begin at byte start of the file.
func locate(places []place, data []byte, start, align uint64) error {
	slices.SortFunc(places, func(a, b place) int {
		return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(a.size, b.size), strings.Compare(a.t.Name, b.t.Name))
	})
	end := uint64(0)
	for _, p := range places {
		switch room := uint64(len(data)); {
		case start > room || p.begin > room-start || uint64(p.size) > room-start-p.begin:
			return fmt.Errorf("tensor %s: cut short: %d bytes at %d of a file of %d", p.t.Name, p.size, p.begin, room)
		case p.begin%align != 0:
			return fmt.Errorf("tensor %s: byte %d is no multiple of %d", p.t.Name, p.begin, align)
		case p.begin < end:
			return fmt.Errorf("tensor %s: byte %d belongs to the tensor before it", p.t.Name, p.begin)
		}
		from := start + p.begin
		end = p.begin + uint64(p.size)
		p.t.Data = data[from : from+uint64(p.size) : from+uint64(p.size)]
	}
	return nil
}

// tensor reads a tensor's description.
func (r *reader) tensor() (place, error) {
	name, err := r.name()
	if err != nil {
		return place{}, err
	}
	rank, err := r.uint32()
	if err != nil {
		return place{}, err
	}
	if rank > 8 {
		return place{}, fmt.Errorf("%s: %d dimensions", name, rank)
	}
	shape := make([]int, rank)
	for i := range shape {
		n, err := r.uint64()
		if err != nil {
			return place{}, err
		}
		if n > 1<<48 {
			return place{}, fmt.Errorf("%s: a dimension of %d", name, n)
		}
		shape[len(shape)-1-i] = int(n) // the innermost comes first
	}
	kind, err := r.uint32()
	if err != nil {
		return place{}, err
	}
	begin, err := r.uint64()
	if err != nil {
		return place{}, err
	}
	format, ok := readable[kind]
	if !ok {
		what := others[kind]
		if what == "" {
			what = fmt.Sprintf("number %d", kind)
		}
		return place{}, fmt.Errorf("%s has numbers of type %s, which is not supported; %s are", name, what, supported())
	}
	size, err := tensor.Size(format, shape)
	if err != nil {
		return place{}, fmt.Errorf("%s: %w", name, err)
	}
	return place{&tensor.Tensor{Name: name, Format: format, Shape: shape}, begin, size}, nil
}

func supported() string {
	var names []string
	for _, kind := range slices.Sorted(maps.Keys(readable)) {
		names = append(names, readable[kind].String())
	}
	return strings.Join(names, ", ")
}
