package spec

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
)

// rowsBehind are the log-probabilities of a model behind each beam.
type beamModel func(completion []int32) []float32

func (m beamModel) behind(beams []*Beam) [][]float32 {
	rows := make([][]float32, len(beams))
	for i, b := range beams {
		rows[i] = m(b.AppendTokens(nil))
	}
	return rows
}

// newStopped begins a search whose beams end in any of these tokens, too.
func newStopped(b Beams, eos []int32, limit int, stops [][]int32) *Search {
	s := NewSearch(b, eos, limit)
	s.Stops = func(b *Beam) bool {
		tokens := b.AppendTokens(nil)
		return slices.ContainsFunc(stops, func(stop []int32) bool {
			at := len(tokens) - len(stop)
			return at >= 0 && slices.Equal(tokens[at:], stop)
		})
	}
	return s
}

// plainSearch is beam search, one step after another.
func plainSearch(m beamModel, b Beams, eos []int32, limit int, stops ...[]int32) *Search {
	s := newStopped(b, eos, limit, stops)
	for !s.Over() {
		s.Step(m.behind(s.Running))
	}
	return s
}

// draftedSearch is the same with drafts of k steps, and how often the target was asked.
func draftedSearch(t *testing.T, target, draft beamModel, b Beams, k int, eos []int32, limit int, stops ...[]int32) (s *Search, loops int) {
	t.Helper()
	s = newStopped(b, eos, limit, stops)
	for ; !s.Over(); loops++ {
		from := s.Running
		var drafts [][]*Beam
		for last := from; len(drafts) < k && len(last) > 0; {
			last = DraftBeams(last, draft.behind(last), b, eos)
			drafts = append(drafts, last)
		}
		before := s.Steps()
		out, err := s.Advance(drafts, func(t, i int) ([]float32, error) {
			if t == 0 {
				return target(from[i].AppendTokens(nil)), nil
			}
			return target(drafts[t-1][i].AppendTokens(nil)), nil
		})
		if err != nil {
			t.Fatal(err)
		}
		whole := 0
		for _, share := range out.Share {
			if share == 1 {
				whole++
			}
		}
		if out.Steps != s.Steps()-before || out.Accepted > len(drafts) || out.Accepted != whole || out.Steps != out.Accepted+1 {
			t.Fatalf("%+v for %d steps with %d drafted", out, s.Steps()-before, len(drafts))
		}
	}
	return s, loops
}

// sameFound compares what two searches found, to the bit.
func sameFound(t *testing.T, name string, got, want *Search) {
	t.Helper()
	if len(got.Found) != len(want.Found) {
		t.Fatalf("%s: found %d sequences, want %d", name, len(got.Found), len(want.Found))
	}
	for i, w := range want.Found {
		g := got.Found[i]
		if !slices.Equal(g.AppendTokens(nil), w.AppendTokens(nil)) || g.Score != w.Score || g.Ended != w.Ended || !slices.Equal(g.Logs(), w.Logs()) {
			t.Fatalf("%s: %d: %v scores %v, want %v with %v", name, i, g.AppendTokens(nil), g.Score, w.AppendTokens(nil), w.Score)
		}
	}
}

func logSoftmax(row []float32) []float32 {
	sum := 0.0
	for _, l := range row {
		sum += math.Exp(float64(l))
	}
	out := make([]float32, len(row))
	for i, l := range row {
		out[i] = float32(float64(l) - math.Log(sum))
	}
	return out
}

// hashedBeams is a model in which no two contexts are alike.
func hashedBeams(vocab int, seed uint64, scale float64) beamModel {
	return func(completion []int32) []float32 {
		h := seed
		for _, x := range completion {
			h = h*0x9E3779B97F4A7C15 + uint64(x) + 1
		}
		r := rand.New(rand.NewPCG(h, seed))
		row := make([]float32, vocab)
		for i := range row {
			row[i] = float32(scale * r.NormFloat64())
		}
		return logSoftmax(row)
	}
}

// Over every pair of models of two tokens and an end with probabilities of a small
// set, a search with drafts is the plain search.
func TestDraftedBeamsAreBeamsExhaustively(t *testing.T) {
	levels := [][]float32{logSoftmax([]float32{0, 1, 0.5}), logSoftmax([]float32{2, 0, -1})}
	eos := []int32{2}
	const contexts = 7 // of up to two tokens, 0 or 1
	model := func(bits int) beamModel {
		return func(completion []int32) []float32 {
			at := 0
			for _, x := range completion {
				at = 2*at + 1 + int(x)
			}
			return levels[bits>>min(at, contexts-1)&1]
		}
	}
	drafts := 0
	for target := range 1 << contexts {
		for draft := range 1 << contexts {
			b := Beams{Width: 1 + (target+draft)%2, EarlyStopping: []string{StopHeuristic, StopEarly, StopNever}[(target+2*draft)%3], LengthPenalty: float64((target/2+draft)%3) - 0.5}
			b.DraftWidth = b.Width + draft%2
			want := plainSearch(model(target), b, eos, 4)
			got, loops := draftedSearch(t, model(target), model(draft), b, 1+target%3, eos, 4)
			sameFound(t, fmt.Sprint(target, draft, b), got, want)
			drafts += want.Steps() - loops
		}
	}
	if drafts == 0 {
		t.Error("no drafted step was ever accepted")
	}
}

func TestDraftedBeamsAreBeams(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		vocab := 4 + r.IntN(6)
		b := Beams{Width: 1 + r.IntN(4), LengthPenalty: r.Float64()*3 - 1, EarlyStopping: []string{"", StopEarly, StopNever}[r.IntN(3)]}
		b.DraftWidth = b.Width + r.IntN(5)
		eos := []int32{int32(vocab - 1), int32(vocab - 2)}[:1+r.IntN(2)]
		target := hashedBeams(vocab, seed, 2)
		draft := hashedBeams(vocab, seed+uint64(r.IntN(2)), 2)
		limit := 1 + r.IntN(12)
		var stops [][]int32
		if seed%3 == 0 {
			stops = [][]int32{{int32(r.IntN(vocab))}, {1, int32(r.IntN(vocab))}}[r.IntN(2):]
		}
		want := plainSearch(target, b, eos, limit, stops...)
		got, _ := draftedSearch(t, target, draft, b, r.IntN(6), eos, limit, stops...)
		sameFound(t, fmt.Sprint(seed, b), got, want)
	}
}

// A draft that is the target has every step accepted, with the target's own width too.
func TestBeamsOfTheTargetItselfAreAccepted(t *testing.T) {
	for seed := range uint64(40) {
		m := hashedBeams(6, seed, 1)
		b := Beams{Width: 3, DraftWidth: 3, LengthPenalty: 1}
		s, loops := draftedSearch(t, m, m, b, 3, []int32{5}, 24)
		if most := (s.Steps() + 3) / 4; loops != most {
			t.Fatalf("seed %d: %d loops for %d steps with three drafted", seed, loops, s.Steps())
		}
	}
}

// A search that is wide enough to hold everything finds the best of all sequences,
// as listing them does.
func TestWideBeamsFindTheBest(t *testing.T) {
	const vocab, limit = 3, 3
	eos := []int32{2}
	for seed := range uint64(200) {
		m := hashedBeams(vocab, seed, 1.5)
		b := Beams{Width: 12, LengthPenalty: []float64{0, 0.7, 1, 2}[seed%4], EarlyStopping: StopNever}
		type sequence struct {
			tokens []int32
			score  float64
		}
		var all []sequence
		var list func(tokens []int32, sum float64)
		list = func(tokens []int32, sum float64) {
			n := len(tokens)
			if n == limit || n > 0 && tokens[n-1] == eos[0] {
				all = append(all, sequence{tokens, sum / math.Pow(float64(n), b.LengthPenalty)})
				return
			}
			for x, l := range m(tokens) {
				list(append(slices.Clone(tokens), int32(x)), sum+float64(l))
			}
		}
		list(nil, 0)
		slices.SortStableFunc(all, func(a, b sequence) int {
			if a.score > b.score {
				return -1
			}
			return 1
		})
		s := plainSearch(m, b, eos, limit)
		if len(s.Found) != b.Width {
			t.Fatalf("seed %d: found %d", seed, len(s.Found))
		}
		for i, f := range s.Found {
			if math.Abs(f.Score-all[i].score) > 1e-12 {
				t.Fatalf("seed %d: %d: %v scores %v; of all sequences %v has %v", seed, i, f.AppendTokens(nil), f.Score, all[i].tokens, all[i].score)
			}
		}
	}
}

func TestBeamsAreTransformers(t *testing.T) {
	var golden struct {
		Tables [][][][]float32
		Max    int `json:"max_new_tokens"`
		Cases  []struct {
			Model             int
			Prompt            []int32
			Beams             int
			LengthPenalty     float64 `json:"length_penalty"`
			EarlyStopping     string  `json:"early_stopping"`
			EOS               []int32
			RepetitionPenalty float64 `json:"repetition_penalty"`
			NoRepeat          int     `json:"no_repeat_ngram_size"`
			MinNewTokens      int     `json:"min_new_tokens"`
			Stops             [][]int32
			Found             []struct {
				Tokens []int32
				Score  float64
			}
		}
	}
	f, err := os.Open(filepath.Join("..", "testdata", "beams", "tables.json.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // only read
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.NewDecoder(z).Decode(&golden); err != nil {
		t.Fatal(err)
	}
	if len(golden.Cases) < 400 {
		t.Fatalf("%d cases", len(golden.Cases))
	}
	for n, c := range golden.Cases {
		table := golden.Tables[c.Model]
		vocab := len(table[0])
		chain, err := NewChain(Sampling{RepetitionPenalty: c.RepetitionPenalty, NoRepeatNGramSize: c.NoRepeat, MinNewTokens: c.MinNewTokens}, vocab, c.EOS)
		if err != nil {
			t.Fatal(err)
		}
		if err := chain.Begin(c.Prompt); err != nil {
			t.Fatal(err)
		}
		m := beamModel(func(completion []int32) []float32 {
			tokens := append(slices.Clone(c.Prompt), completion...)
			row := make([]float32, vocab)
			if err := chain.LogProbs(table[len(tokens)][tokens[len(tokens)-1]], tokens, row); err != nil {
				t.Fatal(err)
			}
			return row
		})
		b := Beams{Width: c.Beams, LengthPenalty: c.LengthPenalty, EarlyStopping: c.EarlyStopping}
		if err := b.Validate(); err != nil {
			t.Fatal(err)
		}
		s := plainSearch(m, b, c.EOS, golden.Max, c.Stops...)
		if len(s.Found) != len(c.Found) {
			t.Fatalf("case %d: found %d sequences, transformers %d", n, len(s.Found), len(c.Found))
		}
		for i, want := range c.Found {
			if got := s.Found[i]; !reflect.DeepEqual(got.AppendTokens(nil), want.Tokens) || math.Abs(got.Score-want.Score) > 1e-4*math.Max(1, math.Abs(want.Score)) {
				t.Errorf("case %d (%+v, ends %v): %d: %v with %v; transformers %v with %v", n, b, c.EOS, i, got.AppendTokens(nil), got.Score, want.Tokens, want.Score)
			}
		}
	}
}

// Draft beams that are far less likely than the w-th are left out, ends of sequence are, and w are kept whatever
// they are.
func TestDraftBeams(t *testing.T) {
	row := []float32{-1, -3.9, -1.5, -4.1, -0.5, -2, -9}
	for _, c := range []struct {
		w, u int
		want []int32
	}{
		{3, 5, []int32{0, 2, 5, 1}},
		{3, 3, []int32{0, 2, 5}},
		{1, 5, []int32{0, 2, 5}},
		{6, 6, []int32{0, 2, 5, 1, 3, 6}},
	} {
		var got []int32
		for _, b := range DraftBeams([]*Beam{{}}, [][]float32{row}, Beams{Width: c.w, DraftWidth: c.u}, []int32{4}) {
			got = append(got, b.Token)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("w %d, u %d: %v, want %v", c.w, c.u, got, c.want)
		}
	}
}

func TestBeamsOutOfRange(t *testing.T) {
	for _, b := range []Beams{{}, {Width: 65}, {Width: 4, DraftWidth: 3}, {Width: 4, DraftWidth: 65}, {Width: 4, LengthPenalty: math.NaN()}, {Width: 4, EarlyStopping: "maybe"}} {
		if b.Validate() == nil {
			t.Errorf("%+v is taken", b)
		}
	}
	if err := (Beams{Width: 4, DraftWidth: 8, LengthPenalty: -0.5, EarlyStopping: StopNever}).Validate(); err != nil {
		t.Error(err)
	}
}
