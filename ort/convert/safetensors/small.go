package safetensors

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// errNone is the error of a file that does not exist.
var errNone = fs.ErrNotExist

// readSmall reads a file of JSON that has no reason to be large.
func readSmall(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("not a file")
	}
	if info.Size() > maxHeader {
		return nil, fmt.Errorf("%d bytes, %d are the most", info.Size(), maxHeader)
	}
	return os.ReadFile(path)
}
