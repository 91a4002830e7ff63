package safetensors

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/draftmill/draftmill/ort/convert/tensor"
)

// maxHeader is the most bytes of a header, as the format says.
const maxHeader = 100_000_000

// readable are the types that become tensors, and sized the bytes of the others.
var (
	readable = map[string]tensor.Format{"F32": tensor.F32, "F16": tensor.F16, "BF16": tensor.BF16, "F8_E4M3": tensor.F8E4M3}
	sized    = map[string]int{"BOOL": 1, "U8": 1, "I8": 1, "F8_E5M2": 1, "U16": 2, "I16": 2, "U32": 4, "I32": 4, "U64": 8, "I64": 8, "F64": 8}
)

// File is a mapped file. Tensors are valid until Close.
type File struct {
	tensor.File
	// Unread are the tensors of types that hold no weights, such as masks and
	// indices: their types by name.
	Unread map[string]string
	// Metadata is what the file says of itself.
	Metadata map[string]string
}

// Open maps the file at path and checks all of its header.
func Open(path string) (*File, error) { return tensor.Open(path, Parse) }

// entry is a tensor in a header.
type entry struct {
	DType   string    `json:"dtype"`
	Shape   []int     `json:"shape"`
	Offsets [2]uint64 `json:"data_offsets"`
}

// Parse reads a file's bytes, of which the tensors are a part.
func Parse(data []byte) (*File, error) {
	if len(data) < 8 {
		return nil, errors.New("not a safetensors file: shorter than its header's length")
	}
	n, body := binary.LittleEndian.Uint64(data), data[8:]
	switch {
	case n > maxHeader:
		return nil, fmt.Errorf("not a safetensors file, or damaged: a header of %d bytes, %d are the most", n, maxHeader)
	case n > uint64(len(body)):
		return nil, fmt.Errorf("cut short: a header of %d bytes in a file of %d", n, len(data))
	case n == 0 || body[0] != '{':
		return nil, errors.New("not a safetensors file: the header is no JSON object")
	}
	f := &File{File: tensor.File{Tensors: map[string]*tensor.Tensor{}}, Unread: map[string]string{}}
	entries, err := f.header(body[:n])
	if err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	body = body[n:]
	type span struct {
		name       string
		begin, end uint64
	}
	var spans []span
	for name, e := range entries {
		begin, end := e.Offsets[0], e.Offsets[1]
		if begin > end || end > uint64(len(body)) {
			return nil, fmt.Errorf("tensor %s: bytes %d to %d of %d", name, begin, end, len(body))
		}
		size, err := e.size()
		if err != nil {
			return nil, fmt.Errorf("tensor %s: %w", name, err)
		}
		if uint64(size) != end-begin {
			return nil, fmt.Errorf("tensor %s: %s%v takes %d bytes, the header gives it %d", name, e.DType, e.Shape, size, end-begin)
		}
		spans = append(spans, span{name, begin, end})
		if format, ok := readable[e.DType]; ok {
			f.Tensors[name] = &tensor.Tensor{Name: name, Format: format, Shape: e.Shape, Data: body[begin:end:end]}
		} else {
			f.Unread[name] = e.DType
		}
	}
	slices.SortFunc(spans, func(a, b span) int { return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(a.end, b.end)) })
	at := uint64(0)
	for _, s := range spans {
		if s.begin != at {
			return nil, fmt.Errorf("tensor %s begins at byte %d, the one before it ends at %d: tensors overlap or leave a hole", s.name, s.begin, at)
		}
		at = s.end
	}
	if at != uint64(len(body)) {
		return nil, fmt.Errorf("%d bytes behind the last tensor", uint64(len(body))-at)
	}
	return f, nil
}

// header reads the JSON object; a name that is there twice is an error, which
// encoding/json alone would not notice.
func (f *File) header(data []byte) (map[string]entry, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	entries := map[string]entry{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, err
		}
		name, ok := t.(string)
		if !ok {
			return nil, fmt.Errorf("%v is not a name", t)
		}
		if name == "__metadata__" {
			if err := d.Decode(&f.Metadata); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			continue
		}
		if _, twice := entries[name]; twice {
			return nil, fmt.Errorf("tensor %s is there twice", name)
		}
		var e entry
		if err := d.Decode(&e); err != nil {
			return nil, fmt.Errorf("tensor %s: %w", name, err)
		}
		entries[name] = e
	}
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	if rest := bytes.TrimLeft(data[d.InputOffset():], " \t\r\n"); len(rest) > 0 {
		return nil, errors.New("more behind the JSON object")
	}
	return entries, nil
}

func (e *entry) size() (int, error) {
	if format, ok := readable[e.DType]; ok {
		return tensor.Size(format, e.Shape)
	}
	width, ok := sized[e.DType]
	if !ok {
		return 0, fmt.Errorf("type %q is not known", e.DType)
	}
	n, err := tensor.Size(tensor.F8E4M3, e.Shape) // one byte each
	return n * width, err
}

// Folder is a checkpoint: one file, or shards with an index.
type Folder struct {
	Tensors map[string]*tensor.Tensor
	Unread  map[string]string // see File.Unread
	Paths   []string          // of the files, in order of their names

	files []*File
}

const (
	single = "model.safetensors"
	index  = "model.safetensors.index.json"
)

// Find returns the paths of the files of the checkpoint in a folder: what the
// index names, else model.safetensors. where is the index's map from tensors to
// files, nil without an index.
func Find(dir string) (paths []string, where map[string]string, err error) {
	data, err := readSmall(filepath.Join(dir, index))
	if errors.Is(err, errNone) {
		return []string{filepath.Join(dir, single)}, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read %s: %w", filepath.Join(dir, index), err)
	}
	var i struct {
		Map map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal(data, &i); err != nil {
		return nil, nil, fmt.Errorf("read %s: %w", filepath.Join(dir, index), err)
	}
	if len(i.Map) == 0 {
		return nil, nil, fmt.Errorf("read %s: no weight_map", filepath.Join(dir, index))
	}
	for name, file := range i.Map {
		if filepath.Base(file) != file || !filepath.IsLocal(file) || filepath.Ext(file) != ".safetensors" {
			return nil, nil, fmt.Errorf("read %s: tensor %s is in %q, which is no safetensors file of this folder", filepath.Join(dir, index), name, file)
		}
		paths = append(paths, filepath.Join(dir, file))
	}
	slices.Sort(paths)
	return slices.Compact(paths), i.Map, nil
}

// OpenFolder opens the checkpoint in a folder.
func OpenFolder(dir string) (_ *Folder, err error) {
	f := &Folder{Tensors: map[string]*tensor.Tensor{}, Unread: map[string]string{}}
	paths, where, err := Find(dir)
	if err != nil {
		return nil, err
	}
	f.Paths = paths
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	for _, path := range paths {
		file, err := Open(path)
		if err != nil {
			return nil, err
		}
		f.files = append(f.files, file)
		for name, t := range file.Tensors {
			if f.Tensors[name] != nil {
				return nil, fmt.Errorf("read %s: tensor %s is in another shard too", path, name)
			}
			f.Tensors[name] = t
		}
		for name, dtype := range file.Unread {
			f.Unread[name] = dtype
		}
		for name, in := range where {
			if in == filepath.Base(path) && file.Tensors[name] == nil && file.Unread[name] == "" {
				return nil, fmt.Errorf("read %s: tensor %s, which the index places here, is missing", path, name)
			}
		}
	}
	return f, nil
}

// Close unmaps all files.
func (f *Folder) Close() (err error) {
	for _, file := range f.files {
		err = errors.Join(err, file.Close())
	}
	f.files, f.Tensors = nil, nil
	return err
}
