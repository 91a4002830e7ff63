package ort

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/draftmill/draftmill/ort/graph"
)

// loadChild names the model folder that a child process of this test loads.
const loadChild = "ORT_TEST_LOAD_CHILD"

// runLoadChild makes sessions of one, two and three lanes and prints by how
// many bytes that raised the process's largest resident memory.
func runLoadChild(dir string) int {
	rise, err := loadRise(dir)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println(rise)
	return 0
}

func loadRise(dir string) (int, error) {
	if err := loadLibrary(); err != nil {
		return 0, err
	}
	small, err := OpenBundle(exportedDir("llama-builder"))
	if err != nil {
		return 0, err
	}
	start := 0
	for _, open := range []func() (*Bundle, error){func() (*Bundle, error) { return small, nil }, func() (*Bundle, error) { return OpenBundle(dir) }} {
		b, err := open()
		if err != nil {
			return 0, err
		}
		m, err := Load(b, Options{Threads: 1})
		if err != nil {
			return 0, err
		}
		if err = m.Close(); err != nil {
			return 0, err
		}
		peak, err := peakBytes()
		if b != small || err != nil {
			return peak - start, err
		}
		start = peak // what the library itself takes
	}
	return 0, nil
}

// TestLoadingTakesOneCopy of the weights, on the way too: loading a model of
// 192 MB takes what the kernels pack and little more.
func TestLoadingTakesOneCopy(t *testing.T) {
	const narrow, wide, hidden = 48, 1 << 18, 32 // the layers between: six weights of 32 MB
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(exportedDir("llama-builder"))); err != nil {
		t.Fatal(err)
	}
	path, data := filepath.Join(dir, "model.onnx"), filepath.Join(dir, "model.onnx.data")
	m, err := graph.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(data)
	if err != nil {
		t.Fatal(err)
	}
	size := info.Size()
	for _, w := range m.Graph.Initializer {
		if i := slices.Index(w.Dims, narrow); i >= 0 {
			w.Dims[i] = wide
			graph.SetExternal(w, "model.onnx.data", int(size), 4*wide*hidden)
			size += 4 * wide * hidden
		}
	}
	if size < 6*4*wide*hidden {
		t.Fatalf("a model of %d bytes: another one than expected", size)
	}
	m.Graph.ValueInfo = nil // says narrow
	model, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	write(t, path, string(model))
	if err := os.Truncate(data, size); err != nil { // zeros, none of which are on the disk
		t.Fatal(err)
	}

	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), loadChild+"="+dir)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	rise, err := strconv.Atoi(strings.TrimSpace(string(out)))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d MB of weights, the process grew by %d MB", size>>20, rise>>20)
	if runtime.GOOS == "linux" && rise > int(size)*3/2 {
		t.Errorf("that is more than one and a half times as much")
	}
}
