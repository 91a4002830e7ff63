package ort

import (
	"fmt"
	"os"
	"path/filepath"

	"google.golang.org/protobuf/proto"

	"github.com/draftmill/draftmill/ort/graph"
	"github.com/draftmill/draftmill/ort/graph/onnxpb"
)

// isLink reports whether a file is a symbolic link, as all are in the Hub's cache.
func isLink(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode()&os.ModeSymlink != 0
}

// resolve lets the external data of the model at path be files of one folder,
// which it returns, by their own names: ONNX Runtime refuses links that lead out
// of the folder.
func resolve(m *onnxpb.ModelProto, path string) (dir string, err error) {
	own, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", reason(err)
	}
	dir = filepath.Dir(own)
	names := map[string]string{}
	for _, t := range m.Graph.Initializer {
		for _, e := range t.ExternalData {
			location := e.GetValue()
			if e.GetKey() != "location" {
				continue
			}
			if names[location] == "" {
				file, err := filepath.EvalSymlinks(filepath.Join(filepath.Dir(path), location))
				if err != nil {
					return "", fmt.Errorf("external data %s: %w", location, reason(err))
				}
				name, err := filepath.Rel(dir, file)
				if err != nil || !filepath.IsLocal(name) {
					return "", fmt.Errorf("external data %s is a link to %s, and the model one to %s: put both into one folder", location, file, own)
				}
				names[location] = name
			}
			e.Value = proto.String(names[location])
		}
	}
	return dir, nil
}

// readLinked is graph.Read and resolve.
func readLinked(path string) (m *onnxpb.ModelProto, dir string, err error) {
	if m, err = graph.Read(path); err == nil {
		dir, err = resolve(m, path)
	}
	return m, dir, err
}
