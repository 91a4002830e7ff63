package rouge

import (
	"compress/gzip"
	"encoding/json"
	"math"
	"os"
	"testing"
)

type golden struct {
	Stems map[string]string
	Pairs [][4]json.RawMessage // reference, prediction, scores without and with the stemmer
}

func load(t *testing.T) *golden {
	t.Helper()
	f, err := os.Open("testdata/golden.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	g := &golden{}
	if err := json.NewDecoder(z).Decode(g); err != nil {
		t.Fatal(err)
	}
	return g
}

func TestStemsAsNLTK(t *testing.T) {
	g := load(t)
	if len(g.Stems) < 5000 {
		t.Fatalf("only %d words", len(g.Stems))
	}
	for word, want := range g.Stems {
		if got := Stem(word); got != want {
			t.Errorf("Stem(%q) = %q, NLTK has %q", word, got, want)
		}
	}
}

func TestScoresAsRougeScore(t *testing.T) {
	g := load(t)
	if len(g.Pairs) < 3000 {
		t.Fatalf("only %d pairs", len(g.Pairs))
	}
	for _, p := range g.Pairs {
		var reference, prediction string
		if json.Unmarshal(p[0], &reference) != nil || json.Unmarshal(p[1], &prediction) != nil {
			t.Fatal("golden.json.gz: a pair has no texts")
		}
		for i, stem := range []bool{false, true} {
			var want [12]float64
			if err := json.Unmarshal(p[2+i], &want); err != nil {
				t.Fatal(err)
			}
			s := Compute(reference, prediction, stem)
			for k, got := range []Score{s.R1, s.R2, s.L, s.LSum} {
				for m, v := range []float64{got.Precision, got.Recall, got.F} {
					if math.Abs(v-want[3*k+m]) > 1e-9 {
						t.Fatalf("%q against %q, stemmer %v, measure %d.%d: %v, rouge-score has %v", prediction, reference, stem, k, m, v, want[3*k+m])
					}
				}
			}
		}
	}
}

// TestAWordOfManyYs takes time that grows with the word, not with its square.
func TestAWordOfManyYs(t *testing.T) {
	word := make([]byte, 1<<16)
	for i := range word {
		word[i] = 'y'
	}
	for _, ending := range []string{"", "ed", "ing"} {
		if got := Stem(string(word) + ending); len(got) < len(word)-4 {
			t.Errorf("%d letters became %d", len(word), len(got))
		}
	}
}
