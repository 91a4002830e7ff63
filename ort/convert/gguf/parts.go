package gguf

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
)

// partName is how llama.cpp's gguf-split and the Python package name the parts of a
// model that is in several files.
var partName = regexp.MustCompile(`^(.*)-([0-9]{5})-of-([0-9]{5})\.gguf$`)

// Parts are the names of all files of a model, by the name of its first or only one,
// which has slashes. Part 1 of n is named BASE-00001-of-0000n.gguf.
func Parts(name string) ([]string, error) {
	dir, file := path.Split(name)
	m := partName.FindStringSubmatch(file)
	if m == nil {
		return []string{name}, nil
	}
	no, _ := strconv.Atoi(m[2])
	count, _ := strconv.Atoi(m[3])
	part := func(no int) string { return fmt.Sprintf("%s%s-%05d-of-%05d.gguf", dir, m[1], no, count) }
	switch {
	case no < 1 || no > count:
		return nil, fmt.Errorf("%s: part %d of %d cannot be", file, no, count)
	case no > 1:
		return nil, fmt.Errorf("part %d of %d of a model; name its first part, %s", no, count, path.Base(part(1)))
	}
	names := make([]string, count)
	for i := range names {
		names[i] = part(i + 1)
	}
	return names, nil
}

// Find returns the paths of all files of a model, which are there.
func Find(file string) ([]string, error) {
	paths, err := Parts(filepath.ToSlash(file))
	if err != nil {
		return nil, err
	}
	for i, name := range paths {
		paths[i] = filepath.FromSlash(name)
		if _, err := os.Stat(paths[i]); len(paths) > 1 && errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("part %d of %d is missing: %s belongs in the same folder", i+1, len(paths), filepath.Base(paths[i]))
		}
	}
	return paths, nil
}

// Open maps the file at path and reads all but the tensors' numbers. Of a model in
// several files it takes the path of the first, as llama.cpp does: that one has the
// metadata, the others have more tensors.
func Open(path string) (_ *File, err error) {
	paths, err := Find(path)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	var all *File
	defer func() {
		if err != nil && all != nil {
			err = errors.Join(err, all.Close())
		}
	}()
	for i, path := range paths {
		f, err := openOne(path)
		if err != nil {
			return nil, err
		}
		if all == nil {
			all = f
		} else {
			all.others = append(all.others, f)
		}
		if err := f.isPart(i, len(paths)); err != nil {
			return nil, fmt.Errorf("read %s: %w", path, err)
		}
		for name, t := range f.Tensors {
			if f == all {
				continue
			}
			if all.Tensors[name] != nil {
				return nil, fmt.Errorf("read %s: tensor %s is in another part, too", path, name)
			}
			all.Tensors[name] = t
		}
	}
	if want, ok := all.Metadata.Int("split.tensors.count"); ok && want != len(all.Tensors) {
		return nil, fmt.Errorf("read %s: it says that the model has %d tensors, its %d files have %d", path, want, len(paths), len(all.Tensors))
	}
	return all, nil
}

// isPart is an error where the metadata do not say that the file is part i, from 0,
// of so many.
func (f *File) isPart(i, of int) error {
	count, ok := f.Metadata.Int("split.count")
	switch {
	case of == 1 && (!ok || count <= 1):
		return nil
	case of == 1:
		return fmt.Errorf("one of %d parts of a model, which are to be named as they were, NAME-00001-of-%05d.gguf", count, count)
	case !ok:
		return fmt.Errorf("part %d of %d by its name alone: its metadata have no split.count; rename the file if it is whole", i+1, of)
	}
	if no, ok := f.Metadata.Int("split.no"); count != of || !ok || no != i {
		return fmt.Errorf("its metadata say part %d of %d, its name part %d of %d", no+1, count, i+1, of)
	}
	return nil
}

// Close unmaps the file, and the other parts.
func (f *File) Close() error {
	err := f.File.Close()
	for _, other := range f.others {
		err = errors.Join(err, other.Close())
	}
	f.others = nil
	return err
}
