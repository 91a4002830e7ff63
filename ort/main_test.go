package ort

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/draftmill/draftmill/ort/library"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(initChild); path != "" {
		os.Exit(runInitChild(path))
	}
	if dir := os.Getenv(loadChild); dir != "" {
		os.Exit(runLoadChild(dir))
	}
	if text := os.Getenv(damagedChild); text != "" {
		os.Exit(runDamagedChild(text))
	}
	goleak.VerifyTestMain(m)
}

// tiny are the models of this folder's testdata: every contract and type of
// number. demo are those that the project trains and exports with the tools
// that users have.
var (
	tiny = []string{"gqa", "growing", "float16", "bfloat16", "gqa-float16"}
	demo = []string{"target", "draft", "draft-optimum"}
)

func modelDir(name string) string {
	if slices.Contains(demo, name) {
		return filepath.Join("..", "testdata", "demo", name)
	}
	return filepath.Join("testdata", name)
}

var loadLibrary = sync.OnceValue(func() error {
	path, err := library.Find("")
	if err != nil {
		return err // it says: run `make ort`
	}
	return Init(path)
})

func needLibrary(t testing.TB) {
	t.Helper()
	if err := loadLibrary(); err != nil {
		t.Fatal(err)
	}
}

func openBundleT(t testing.TB, dir string) *Bundle {
	t.Helper()
	b, err := OpenBundle(dir)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// loadT loads a model for the length of a test.
func loadT(t testing.TB, dir string, o Options) *Model {
	t.Helper()
	needLibrary(t)
	m, err := Load(openBundleT(t, dir), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

func decoderT(t testing.TB, m *Model) *Decoder {
	t.Helper()
	d, err := m.NewDecoder(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// sequence is one slot, with calls that fail the test.
type sequence struct {
	t    testing.TB
	d    *Decoder
	slot int
}

func sequenceT(t testing.TB, d *Decoder) *sequence {
	t.Helper()
	slot, err := d.Alloc()
	if err != nil {
		t.Fatal(err)
	}
	return &sequence{t, d, slot}
}

// feed returns a copy of the logits.
func (s *sequence) feed(past int, tokens ...int32) []float32 {
	s.t.Helper()
	logits, err := s.d.Forward(context.Background(), whole([]int{s.slot}, []int{past}, [][]int32{tokens}))
	if err != nil {
		s.t.Fatal(err)
	}
	if len(logits) != len(tokens)*s.d.Vocab() {
		s.t.Fatalf("%d logits for %d tokens of a vocabulary of %d", len(logits), len(tokens), s.d.Vocab())
	}
	return slices.Clone(logits)
}

// whole are spans that want the logits of all their tokens.
func whole(slots, past []int, tokens [][]int32) []Span {
	spans := make([]Span, len(slots))
	for i, slot := range slots {
		spans[i] = Span{Slot: slot, Past: past[i], Tokens: tokens[i], Rows: len(tokens[i])}
	}
	return spans
}

func bitEqual(t testing.TB, what string, got, want []float32) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d logits, want %d", what, len(got), len(want))
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("%s: logit %d is %v, want %v", what, i, got[i], want[i])
		}
	}
}

func near(t testing.TB, what string, got, want []float32, tolerance float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d logits, want %d", what, len(got), len(want))
	}
	if off := distance(want, got); !(off <= tolerance) {
		t.Errorf("%s: differs by %.3g of the range, at most %.3g is allowed", what, off, tolerance)
	}
}

// eachModel runs a test on every model, with caches of the tiny ones' length,
// and on those whose graph is rewritten once more as they were exported.
func eachModel(t *testing.T, f func(t *testing.T, m *Model)) {
	t.Helper()
	for _, name := range slices.Concat(tiny, demo) {
		t.Run(name, func(t *testing.T) { f(t, loadT(t, modelDir(name), Options{Context: 48})) })
		if details, err := openBundleT(t, modelDir(name)).Details(); err != nil {
			t.Fatal(err)
		} else if details.Ragged == nil {
			t.Run(name+"/exported", func(t *testing.T) { f(t, loadT(t, modelDir(name), Options{Context: 48, AsExported: true})) })
		}
	}
}
