package spec

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
)

// TestChainAgreesWithTransformers holds the chain, its order included, to what
// Hugging Face transformers makes of the same logits and sequences
// (testdata/make_golden.py).
func TestChainAgreesWithTransformers(t *testing.T) {
	file, err := os.Open("testdata/chain.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	unzipped, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		EOS   []int32
		Scale float32
		Cases []struct {
			Sampling Sampling
			Tokens   []int32
			Prompt   int
			Logits   []float32
			IDs      []int32
			Law      []float64
		}
	}
	if err := json.NewDecoder(unzipped).Decode(&golden); err != nil {
		t.Fatal(err)
	}
	if len(golden.Cases) < 200 {
		t.Fatalf("%d cases", len(golden.Cases))
	}
	for name, k := range map[string]kernel{"native": native{}, "plain": plain{}} {
		for i, c := range golden.Cases {
			logits := slices.Clone(c.Logits)
			for j := range logits {
				logits[j] /= golden.Scale
			}
			chain, err := NewChain(c.Sampling, len(logits), golden.EOS)
			if err != nil {
				t.Fatal(err)
			}
			chain.kernel = k
			if err := chain.Begin(c.Tokens[:c.Prompt]); err != nil {
				t.Fatal(err)
			}
			var d Dist
			if err := chain.Standardize(logits, c.Tokens, &d); err != nil {
				t.Fatalf("%s: case %d, %+v: %v", name, i, c.Sampling, err)
			}
			want := make([]float64, len(logits))
			for j, x := range c.IDs {
				want[x] = c.Law[j]
			}
			for x := range want {
				if got := d.Prob(int32(x)); math.Abs(got-want[x]) > 1e-6*want[x]+0x1p-126 {
					t.Errorf("%s: case %d, %+v: token %d has %.9g, transformers gives %.9g", name, i, c.Sampling, x, got, want[x])
					break
				}
			}
		}
	}
}

// processed is what the processors before the temperature do, written the
// direct way: from the whole sequence, in float32, one after the other.
func processed(s Sampling, eos []int32, prompt int, tokens []int32, logits []float32) []float32 {
	row, forbidden := slices.Clone(logits), float32(math.Inf(-1))
	for x, b := range s.LogitBias {
		row[x] += float32(b)
	}
	if s.RepetitionPenalty != 0 && s.RepetitionPenalty != 1 {
		for x := range row {
			if !slices.Contains(tokens, int32(x)) {
				continue
			}
			if row[x] < 0 {
				row[x] *= float32(s.RepetitionPenalty)
			} else {
				row[x] /= float32(s.RepetitionPenalty)
			}
		}
	}
	if n := s.NoRepeatNGramSize; n > 0 {
		for i := 0; i+n <= len(tokens); i++ {
			if slices.Equal(tokens[i:i+n-1], tokens[len(tokens)-n+1:]) {
				row[tokens[i+n-1]] = forbidden
			}
		}
	}
	if len(tokens)-prompt < s.MinNewTokens {
		for _, x := range eos {
			row[x] = forbidden
		}
	}
	for _, x := range s.ForbiddenTokens {
		row[x] = forbidden
	}
	for x := range row {
		if n := float32(count(tokens[prompt:], int32(x))); n > 0 {
			row[x] -= float32(float32(s.FrequencyPenalty) * n)
			row[x] -= float32(s.PresencePenalty)
		}
	}
	return row
}

func count(tokens []int32, x int32) (n int) {
	for _, y := range tokens {
		if x == y {
			n++
		}
	}
	return n
}

// wander drives a chain through a sequence that grows, is rolled back and
// grows differently, as the loops of a decoder do, and compares every
// distribution with the one of the direct way. script decides every turn.
func wander(t testing.TB, script []byte) {
	next := func() byte {
		if len(script) == 0 {
			return 0
		}
		b := script[0]
		script = script[1:]
		return b
	}
	const vocab = 7
	eos := []int32{3, 90}
	s := Sampling{Temperature: 1}
	options := next()
	if options&1 != 0 {
		s.RepetitionPenalty = 1.3
	}
	if options&2 != 0 {
		s.PresencePenalty = 0.4
	}
	if options&4 != 0 {
		s.FrequencyPenalty = -0.2
	}
	if options&8 != 0 {
		s.NoRepeatNGramSize = 1 + int(next()%4)
	}
	if options&16 != 0 {
		s.MinNewTokens = int(next() % 9)
	}
	if options&32 != 0 {
		s.ForbiddenTokens = []int32{5}
	}
	if options&64 != 0 {
		s.LogitBias = map[int32]float64{1: -2, 4: 1.5}
	}
	chain, err := NewChain(s, vocab, eos)
	if err != nil {
		t.Fatal(err)
	}
	plainChain := &Chain{sampling: Sampling{Temperature: 1}, vocab: vocab, kernel: chain.kernel}
	logits := make([]float32, vocab)
	var tokens []int32
	prompt := -1
	for len(script) > 0 {
		switch turn := next(); {
		case prompt < 0 || turn >= 250: // another sequence
			tokens = tokens[:0]
			for range turn % 16 {
				tokens = append(tokens, int32(next()%vocab))
			}
			prompt = len(tokens)
			if err := chain.Begin(tokens); err != nil {
				t.Fatal(err)
			}
		case turn >= 180: // a roll-back
			tokens = tokens[:prompt+(len(tokens)-prompt)*int(turn-180)/70]
		default:
			for range 1 + turn%5 {
				tokens = append(tokens, int32(next()%vocab))
			}
		}
		for x := range logits {
			logits[x] = float32(int8(next())) / 16
		}
		var got, want Dist
		err := chain.Standardize(logits, tokens, &got)
		if row := processed(s, eos[:1], prompt, tokens, logits); err == nil {
			if err := plainChain.Standardize(row, nil, &want); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got.W, want.W) {
				t.Fatalf("%+v, prompt of %d in %v: weights %v, want %v", s, prompt, tokens, got.W, want.W)
			}
		} else if !errors.Is(err, ErrNoMass) || slices.Max(row) > math.MaxFloat32*-1 {
			t.Fatalf("%+v, prompt of %d in %v: %v", s, prompt, tokens, err)
		}
	}
}

func TestChainFollowsRollbacks(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 300 {
		script := make([]byte, 600)
		for i := range script {
			script[i] = byte(r.Uint32())
		}
		wander(t, script)
	}
}

func FuzzChainFollowsRollbacks(f *testing.F) {
	f.Add([]byte("\xff\x02\x05speculative sampling\xfa"))
	f.Fuzz(func(t *testing.T, script []byte) { wander(t, script) })
}

// TestPenaltiesSeeTheDraftedPrefix: the row of the third drafted token is
// penalized for the first two, and no longer once they are rolled back.
func TestPenaltiesSeeTheDraftedPrefix(t *testing.T) {
	chain, err := NewChain(Sampling{Temperature: 1, PresencePenalty: 1}, 4, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := chain.Begin([]int32{3}); err != nil {
		t.Fatal(err)
	}
	e := float32(math.Exp(-1))
	for _, c := range []struct {
		tokens []int32
		want   []float32
	}{
		{[]int32{3}, []float32{1, 1, 1, 1}},
		{[]int32{3, 0}, []float32{e, 1, 1, 1}},
		{[]int32{3, 0, 1}, []float32{e, e, 1, 1}},
		{[]int32{3, 2}, []float32{1, 1, e, 1}},
		{[]int32{3, 2, 3}, []float32{1, 1, e, e}},
	} {
		var d Dist
		if err := chain.Standardize(make([]float32, 4), c.tokens, &d); err != nil {
			t.Fatal(err)
		}
		for x := range d.W {
			if math.Abs(float64(d.W[x]-c.want[x])) > 1e-6 {
				t.Errorf("after %v: weights %v, want %v", c.tokens, d.W, c.want)
				break
			}
		}
	}
}

func TestChainRefuses(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	begin := []int32{1, 2}
	penalty := Sampling{Temperature: 1, RepetitionPenalty: 1.2}
	for _, c := range []struct {
		name   string
		s      Sampling
		logits []float32
		tokens []int32
		want   error
	}{
		{"another vocabulary", Sampling{Temperature: 1}, []float32{1, 2}, begin, ErrShape},
		{"a sequence shorter than its prompt", Sampling{Temperature: 1}, []float32{1, 2, 3}, begin[:1], ErrShape},
		{"another prompt", penalty, []float32{1, 2, 3}, []int32{1, 1, 1}, ErrShape},
		{"an id outside the vocabulary", penalty, []float32{1, 2, 3}, []int32{1, 2, 3}, ErrShape},
		{"a negative id", penalty, []float32{1, 2, 3}, []int32{1, 2, -1}, ErrShape},
		{"NaN at a forbidden token", Sampling{ForbiddenTokens: []int32{1}}, []float32{1, nan, 3}, begin, ErrNotANumber},
		{"+Inf at a forbidden token", Sampling{ForbiddenTokens: []int32{1}}, []float32{1, inf, 3}, begin, ErrNotANumber},
		{"NaN at a token that repeats an n-gram", Sampling{NoRepeatNGramSize: 1}, []float32{1, nan, 3}, begin, ErrNotANumber},
		{"NaN at a penalized token", penalty, []float32{1, nan, 3}, begin, ErrNotANumber},
		{"everything forbidden", Sampling{ForbiddenTokens: []int32{0, 1, 2}}, []float32{1, 2, 3}, begin, ErrNoMass},
		{"a bias that overflows", Sampling{LogitBias: map[int32]float64{0: math.MaxFloat32}}, []float32{math.MaxFloat32, 2, 3}, begin, ErrNotANumber},
	} {
		for name, k := range map[string]kernel{"native": native{}, "plain": plain{}} {
			chain, err := NewChain(c.s, 3, []int32{0})
			if err != nil {
				t.Fatal(err)
			}
			chain.kernel = k
			if err := chain.Begin(begin); err != nil {
				t.Fatal(err)
			}
			var d Dist
			if err := chain.Standardize(c.logits, c.tokens, &d); !errors.Is(err, c.want) {
				t.Errorf("%s (%s): error %v, want %v", c.name, name, err, c.want)
			}
		}
	}
	for _, s := range []Sampling{
		{Temperature: -1}, {Temperature: math.NaN()}, {Temperature: math.Inf(1)}, {TopK: -1}, {TopP: 1.1}, {TopP: math.NaN()},
		{MinP: -0.1}, {MinP: 2}, {RepetitionPenalty: -1}, {RepetitionPenalty: math.Inf(1)}, {PresencePenalty: math.NaN()},
		{FrequencyPenalty: math.Inf(-1)}, {NoRepeatNGramSize: -1}, {MinNewTokens: -1}, {LogitBias: map[int32]float64{1: math.NaN()}},
		{LogitBias: map[int32]float64{3: 1}}, {ForbiddenTokens: []int32{3}}, {ForbiddenTokens: []int32{-1}},
	} {
		if _, err := NewChain(s, 3, nil); err == nil {
			t.Errorf("%+v is taken", s)
		}
	}
}

// TestSamplingJSON: settings that are off leave no trace, and a job's text is
// the same every time.
func TestSamplingJSON(t *testing.T) {
	for want, s := range map[string]Sampling{
		`{"temperature":1,"top_k":0,"top_p":0.9}`: {Temperature: 1, TopP: 0.9},
		`{"temperature":0,"top_k":2,"top_p":0,"min_p":0.1,"repetition_penalty":1.1,"presence_penalty":1,"frequency_penalty":-1,"logit_bias":{"10":1,"2":-1},"no_repeat_ngram_size":3,"min_new_tokens":4,"forbidden_tokens":[7,5]}`: {
			TopK: 2, MinP: 0.1, RepetitionPenalty: 1.1, PresencePenalty: 1, FrequencyPenalty: -1, NoRepeatNGramSize: 3, MinNewTokens: 4,
			LogitBias: map[int32]float64{2: -1, 10: 1}, ForbiddenTokens: []int32{7, 5},
		},
	} {
		text, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		if string(text) != want {
			t.Errorf("%s, want %s", text, want)
		}
		var back Sampling
		if err := json.Unmarshal(text, &back); err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(back) != fmt.Sprint(s) {
			t.Errorf("%+v became %+v", s, back)
		}
	}
}
