package ort

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// linked makes a folder of links to the files of a model, which lie under other
// names elsewhere, as in the cache of the Hugging Face Hub.
func linked(t *testing.T, dir string) (snapshot string) {
	t.Helper()
	root := t.TempDir()
	blobs := filepath.Join(root, "blobs")
	snapshot = filepath.Join(root, "snapshots", "1")
	for _, d := range []string{snapshot, blobs} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range files {
		data, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		blob := string(rune('a' + i))
		if err := os.WriteFile(filepath.Join(blobs, blob), data, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("../../blobs/"+blob, filepath.Join(snapshot, f.Name())); err != nil {
			t.Fatal(err)
		}
	}
	return snapshot
}

// TestModelOfLinks: a model whose files are links runs, rewritten and as it was
// exported, to the logits of the files themselves.
func TestModelOfLinks(t *testing.T) {
	dir := exportedDir("qwen2-builder-int4") // with a file of external data
	snapshot := linked(t, dir)
	for _, o := range []Options{{}, {AsExported: true}} {
		var rows [][]float32
		for _, d := range []string{dir, snapshot} {
			m := loadT(t, d, o)
			rows = append(rows, slices.Clone(sequenceT(t, decoderT(t, m)).feed(0, 5, 6, 7)))
		}
		bitEqual(t, "through links", rows[1], rows[0])
	}
	// Data that a link puts elsewhere than the model are refused by name.
	data := filepath.Join(snapshot, "model.onnx.data")
	if err := os.Remove(data); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(absolute(t, dir), "model.onnx.data"), data); err != nil {
		t.Fatal(err)
	}
	b, err := OpenBundle(snapshot)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Load(b, Options{}); err == nil || !strings.Contains(err.Error(), "put both into one folder") {
		t.Error(err)
	}
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	abs, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return abs
}
