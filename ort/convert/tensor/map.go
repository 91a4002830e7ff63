package tensor

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// Map maps a file for reading. The caller gives it back with Unmap.
func Map(path string) ([]byte, error) {
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

// Unmap gives a mapped file back.
func Unmap(data []byte) error { return syscall.Munmap(data) }
