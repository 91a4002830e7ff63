package e2e

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/draftmill/draftmill/storage"
)

// beamGolden is what transformers' beam search found, see testdata/beams.
type beamGolden struct {
	Beams int
	Max   int `json:"max_new_tokens"`
	Rows  []struct {
		Prompt []int32
		Found  []struct {
			Tokens []int32
			Score  float64
		}
	}
}

func readBeamGolden(t *testing.T, name string) (g beamGolden) {
	t.Helper()
	f, err := os.Open(filepath.Join(root, "testdata", "beams", name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // only read
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.NewDecoder(z).Decode(&g); err != nil {
		t.Fatal(err)
	}
	return g
}

// TestBeams runs beam searches of the demo pair and of the translation pair, with
// drafts and without, in lanes: both modes find the same, and what they find is what
// transformers finds. The jobs verify with the models and without.
func TestBeams(t *testing.T) {
	for _, c := range []struct {
		golden string
		rows   int
		lanes  string
		config []string
		models []string
	}{
		{"demo.json.gz", 16, "3", []string{"--dataset", "testdata/demo/minieval.parquet"},
			[]string{"--target", "testdata/demo/target", "--draft", "testdata/demo/draft", "--dataset", "testdata/demo/minieval.parquet"}},
		{"translate.json.gz", 8, "2", []string{"--config", "configs/translate.yaml"},
			[]string{"--target", "testdata/translate/target", "--draft", "testdata/translate/draft", "--dataset", "testdata/translate/sentences.parquet"}},
	} {
		t.Run(c.golden, func(t *testing.T) {
			g, out := readBeamGolden(t, c.golden), t.TempDir()
			run(t, "submit", append(c.config, "--limit", fmt.Sprint(c.rows), "--beams", fmt.Sprint(g.Beams), "--n", fmt.Sprint(g.Beams), "--k", "2",
				"--max-new-tokens", fmt.Sprint(g.Max), "--lanes", c.lanes, "--job", "beams", "--out", out)...)
			for _, more := range [][]string{nil, append([]string{"--models"}, c.models...)} {
				p := run(t, "submit", append([]string{"verify", "beams", "--out", out}, more...)...)
				if !strings.Contains(p.stdout.String(), "Rule beams of 4 is lossless") {
					t.Errorf("verify %v: %s", more, &p.stdout)
				}
			}
			p := run(t, "submit", "report", "beams", "--out", out)
			if said := p.stdout.String(); !strings.Contains(said, "Rule beams of 4 is lossless") || strings.Contains(said, "rejection") || strings.Contains(said, "certify") {
				t.Errorf("report: %s", said)
			}
			job, err := storage.OpenJob(filepath.Join(out, "beams"))
			if err != nil {
				t.Fatal(err)
			}
			accepted := int32(0)
			for _, mode := range []string{"ars", "sps"} {
				same, n := 0, 0
				if err := job.ReadCompletions(mode, func(x storage.Completion) error {
					want := g.Rows[x.Row].Found[x.Sample]
					n++
					if !slices.Equal(x.Tokens, want.Tokens) || math.Abs(*x.Score-want.Score) > 1e-3*math.Max(1, math.Abs(want.Score)) {
						t.Errorf("%s row %d sample %d: %v with %v; transformers finds %v with %v", mode, x.Row, x.Sample, x.Tokens, *x.Score, want.Tokens, want.Score)
					} else {
						same++
					}
					accepted += x.Accepted
					return nil
				}); err != nil {
					t.Fatal(err)
				}
				t.Logf("%s: %d of %d sequences are those of transformers", mode, same, n)
				if n != c.rows*g.Beams {
					t.Errorf("%s: %d sequences", mode, n)
				}
			}
			if accepted == 0 {
				t.Error("no drafted step was accepted")
			}
		})
	}
}
