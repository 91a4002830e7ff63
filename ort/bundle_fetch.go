package ort

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"

	"github.com/draftmill/draftmill/ort/graph"
)

// FetchONNX gets the files of the model in dir that openBundle reads, by the
// configuration that dir has: has knows what there is elsewhere, get brings it.
func FetchONNX(dir string, has func(name string) bool, get func(names ...string) error) error {
	c, err := readGenAI(dir)
	if errors.Is(err, fs.ErrNotExist) {
		c, err = readOptimum(dir)
	}
	if err != nil {
		return err
	}
	for _, encoder := range encoderFiles {
		if !has(encoder) {
			continue
		}
		merged, first, next := decoderFiles(encoder)
		names := []string{encoder, merged}
		if !has(merged) {
			names = []string{encoder, first, next}
		}
		for _, name := range names {
			if !has(name) {
				return fmt.Errorf("%s without %s: %w", encoder, name, errNoDecoder)
			}
			if err := fetchGraph(dir, name, get); err != nil {
				return err
			}
		}
		return nil
	}
	for _, name := range c.files {
		if filepath.IsLocal(name) && has(name) {
			return fetchGraph(dir, name, get)
		}
	}
	return fmt.Errorf("no %s inside", c.files[0])
}

// fetchGraph gets an ONNX file and its external data.
func fetchGraph(dir, name string, get func(names ...string) error) error {
	if err := get(name); err != nil {
		return err
	}
	model, err := graph.Read(filepath.Join(dir, name))
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	var external []string
	for _, location := range graph.Describe(model, name).External {
		if !filepath.IsLocal(location) {
			return fmt.Errorf("%s: external data %q leads out of the folder", name, location)
		}
		external = append(external, path.Join(path.Dir(name), location))
	}
	return get(external...)
}
