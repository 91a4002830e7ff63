package configs

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// configurations are the files of this folder and of testdata.
func configurations(t testing.TB) (texts [][]byte) {
	t.Helper()
	for _, pattern := range []string{"*.yaml", "testdata/*.yaml"} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			texts = append(texts, text)
		}
	}
	return texts
}

// pieces are put into damaged configurations.
var pieces = []string{
	": ", "- ", "\n", "  ", "\t", "&a ", "*a", "<<: *a", "{", "}", "[", "]", "'", "\"", "|", ">", "#", "---\n", "!!binary ", "!!float ", "null", "~", "NaN", ".inf", "-.inf",
	"-1", "0x7fffffffffffffff", "99999999999999999999", "1e400", "\x00", "\xff", "☢", "true", "sampling:\n  ", "nats: ", strings.Repeat("[", 2000), "a: &a [*a]\n",
}

// damage makes the n-th damaged file of one.
func damage(text []byte, n int) []byte {
	r := rand.New(rand.NewPCG(17, uint64(n)))
	bad := slices.Clone(text)
	for range 1 + r.IntN(3) {
		at := r.IntN(len(bad) + 1)
		switch r.IntN(5) {
		case 0:
			bad = bad[:at]
		case 1:
			bad = slices.Delete(bad, at, min(len(bad), at+1+r.IntN(20)))
		case 2:
			if at < len(bad) {
				bad[at] = byte(r.UintN(256))
			}
		default:
			bad = slices.Insert(bad, at, []byte(pieces[r.IntN(len(pieces))])...)
		}
	}
	return bad
}

// loadText puts a text through all that submit and worker do with a configuration
// before they open anything that it names. Every error is bad usage in one line.
func loadText(t *testing.T, path string, text []byte) (refused bool) {
	t.Helper()
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, register := range []func(*pflag.FlagSet){SubmitFlags, WorkerFlags} {
		c, err := load(t, register, "--config", path)
		if err == nil {
			err = checkSubmitValues(c)
		}
		if err == nil {
			continue
		}
		refused = true
		if usage, ok := errors.AsType[*UsageError](err); !ok || strings.Contains(usage.Msg, "\n") || len(err.Error()) > 4096 {
			t.Errorf("%q: not one line of bad usage: %.500q", text, err)
		}
	}
	return refused
}

// A damaged configuration is bad usage, or a configuration. MUTATIONS says how many.
func TestDamagedConfigurations(t *testing.T) {
	count, err := strconv.Atoi(os.Getenv("MUTATIONS"))
	if err != nil {
		count = 300
	}
	texts, path, refused := configurations(t), filepath.Join(t.TempDir(), "c.yaml"), 0
	for n := range count {
		if loadText(t, path, damage(texts[n%len(texts)], n)) {
			refused++
		}
	}
	t.Logf("%d of %d were refused", refused, count)
	if refused < count/4 {
		t.Errorf("only %d of %d were refused: the files are not damaged", refused, count)
	}
}

// FuzzConfiguration: a text is bad usage, or a configuration, and never a crash.
func FuzzConfiguration(f *testing.F) {
	for _, text := range configurations(f) {
		f.Add(text)
	}
	path := filepath.Join(f.TempDir(), "c.yaml")
	f.Fuzz(func(t *testing.T, text []byte) { loadText(t, path, text) })
}
