package convert

import (
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/draftmill/draftmill/ort/convert/gguf"
	"github.com/draftmill/draftmill/ort/convert/safetensors"
)

// A Listing is what a repository offers: a model's files somewhere else.
type Listing struct {
	Files []string // with slashes
	At    string   // the model's folder, or its .gguf file; empty for the top
	// Get brings files here, into one folder by their names, and returns it.
	Get func(files ...string) (dir string, err error)
	// ONNX brings the files of an ONNX folder in dir that its configuration
	// there, which it has, says are needed.
	ONNX func(dir string, has func(name string) bool, get func(names ...string) error) error
}

// Bring gets those files of a model that are needed to run it, or to convert it,
// and no other ones. It returns the model's path here, which KindOf sees as it
// would see the whole repository's.
func (l *Listing) Bring() (string, error) {
	if strings.EqualFold(path.Ext(l.At), ".gguf") {
		files, err := gguf.Parts(l.At)
		if err != nil {
			return "", err
		}
		dir, err := l.Get(files...)
		return filepath.Join(dir, filepath.FromSlash(l.At)), err
	}
	has := func(name string) bool { return slices.Contains(l.Files, path.Join(l.At, name)) }
	dir := ""
	get := func(names ...string) error {
		there := make([]string, len(names))
		for i, name := range names {
			there[i] = path.Join(l.At, name)
		}
		root, err := l.Get(there...)
		dir = filepath.Join(root, filepath.FromSlash(l.At))
		return err
	}
	kind, err := kindIn(has)
	if err != nil {
		return "", err
	}
	small := append([]string{"config.json", "generation_config.json", "genai_config.json"}, companions...)
	small = slices.DeleteFunc(small, func(name string) bool { return !has(name) })
	if len(small) == 0 {
		return "", l.nothing()
	}
	if err := get(small...); err != nil {
		return "", err
	}
	if kind == ONNX {
		return dir, l.ONNX(dir, has, get)
	}
	if index := "model.safetensors.index.json"; has(index) {
		if err := get(index); err != nil {
			return "", err
		}
	}
	shards, _, err := safetensors.Find(dir)
	if err != nil {
		return "", err
	}
	for i := range shards {
		shards[i] = filepath.Base(shards[i])
	}
	return dir, get(shards...)
}

// nothing says what there is where there is no model.
func (l *Listing) nothing() error {
	var ggufs []string
	for _, file := range l.Files {
		if _, err := gguf.Parts(file); err == nil && strings.EqualFold(path.Ext(file), ".gguf") && strings.HasPrefix(file, l.At) { // of several parts the first
			ggufs = append(ggufs, file)
		}
	}
	if len(ggufs) > 0 {
		return fmt.Errorf("it has GGUF files; name one of them behind a slash: %s", strings.Join(ggufs[:min(8, len(ggufs))], ", "))
	}
	return errNothing
}
