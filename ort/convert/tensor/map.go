package tensor

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"syscall"
)

// File is the tensors of a mapped file, valid until Close. Formats embed it.
type File struct {
	Tensors map[string]*Tensor

	data []byte
}

func (f *File) file() *File { return f }

// Close unmaps the file.
func (f *File) Close() error {
	if f.data == nil {
		return nil
	}
	data := f.data
	f.data, f.Tensors = nil, nil
	return syscall.Munmap(data)
}

// Open maps the file at path for parse, whose tensors are a part of the bytes.
func Open[F interface{ file() *File }](path string, parse func(data []byte) (F, error)) (F, error) {
	var none F
	data, err := mapFile(path)
	if err != nil {
		return none, fmt.Errorf("read %s: %w", path, err)
	}
	if bytes.HasPrefix(data, []byte("version https://git-lfs")) {
		return none, errors.Join(fmt.Errorf("read %s: a pointer of Git LFS, not the file itself; fetch it with git lfs pull", path), syscall.Munmap(data))
	}
	f, err := parse(data)
	if err != nil {
		return none, errors.Join(fmt.Errorf("read %s: %w", path, err), syscall.Munmap(data))
	}
	f.file().data = data
	return f, nil
}

func mapFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("not a file")
	}
	if info.Size() == 0 {
		return nil, errors.New("the file is empty")
	}
	data, err := syscall.Mmap(int(f.Fd()), 0, int(info.Size()), syscall.PROT_READ, syscall.MAP_PRIVATE)
	if err != nil {
		return nil, fmt.Errorf("map: %w", err)
	}
	return data, nil
}
