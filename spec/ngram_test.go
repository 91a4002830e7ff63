package spec_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/draftmill/draftmill/spec"
)

var update = flag.Bool("update", false, "write the golden files anew")

// texts are sequences of a small language with habits: tokens tend to be
// followed by their double.
func texts(vocab, n, length int, seed uint64) [][]int32 {
	r := rand.New(rand.NewPCG(seed, 1))
	out := make([][]int32, n)
	for i := range out {
		x := int32(r.IntN(vocab))
		for range r.IntN(length + 1) {
			out[i] = append(out[i], x)
			if x = 2 * x % int32(vocab); r.IntN(3) == 0 {
				x = int32(r.IntN(vocab))
			}
		}
	}
	return out
}

func train(t testing.TB, order, vocab int, sequences [][]int32) *spec.NGram {
	t.Helper()
	trainer, err := spec.NewNGramTrainer(order, vocab)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range sequences {
		if err := trainer.Add(s); err != nil {
			t.Fatal(err)
		}
	}
	return trainer.Table(spec.Digest{1, 2, 3})
}

// standardizer is the chain of a sampling without memory.
func standardizer(t testing.TB, s spec.Sampling, vocab int) spec.Standardizer {
	t.Helper()
	chain, err := spec.NewChain(s, vocab, nil)
	if err != nil {
		t.Fatal(err)
	}
	return chain.Standardize
}

// wittenBell is the law by its definition, from the texts themselves.
func wittenBell(sequences [][]int32, vocab int, history []int32, x int32) float64 {
	followers, total := map[int32]float64{}, 0.0
	for _, s := range sequences {
		for i := len(history); i < len(s); i++ {
			if slices.Equal(s[i-len(history):i], history) {
				followers[s[i]]++
				total++
			}
		}
	}
	below := 1 / float64(vocab)
	if len(history) > 0 {
		below = wittenBell(sequences, vocab, history[1:], x)
	}
	if total == 0 {
		return below
	}
	kinds := float64(len(followers))
	return (followers[x] + kinds*below) / (total + kinds)
}

// TestNGramIsWittenBell compares the table's law with its definition, for
// histories that were seen, that were not, and that are shorter than the order.
func TestNGramIsWittenBell(t *testing.T) {
	const vocab = 11
	for _, sequences := range [][][]int32{nil, {{}}, {{3}}, texts(vocab, 40, 30, 1), texts(vocab, 1, 400, 2)} {
		for order := 1; order <= 4; order++ {
			drafter := train(t, order, vocab, sequences).Drafter()
			standardize := standardizer(t, spec.Sampling{Temperature: 1}, vocab)
			r := rand.New(rand.NewPCG(uint64(order), 3))
			var p spec.Dist
			for trial := range 60 {
				history := make([]int32, r.IntN(7))
				for i := range history {
					history[i] = int32(r.IntN(vocab))
				}
				if len(sequences) > 1 && trial%2 == 0 {
					if s := sequences[r.IntN(len(sequences))]; len(s) > 0 {
						history = s[:r.IntN(len(s))]
					}
				}
				if ok, err := drafter.Law(history, standardize, &p); !ok || err != nil {
					t.Fatal(ok, err)
				}
				sum := 0.0
				for x := range int32(vocab) {
					want := wittenBell(sequences, vocab, history[max(0, len(history)-order+1):], x)
					if got := p.Prob(x); math.Abs(got-want) > 1e-6*want {
						t.Fatalf("order %d, history %v: p(%d) = %.9f, want %.9f", order, history, x, got, want)
					}
					sum += p.Prob(x)
				}
				if math.Abs(sum-1) > 1e-6 {
					t.Fatalf("order %d, history %v: the law sums to %v", order, history, sum)
				}
			}
		}
	}
}

// TestNGramLearns: more context predicts the language better, and the table
// counts what it was given.
func TestNGramLearns(t *testing.T) {
	const vocab = 50
	sequences, held := texts(vocab, 300, 60, 4), texts(vocab, 20, 60, 5)
	standardize := standardizer(t, spec.Sampling{Temperature: 1}, vocab)
	last := math.Inf(1)
	for order := 1; order <= 2; order++ {
		table := train(t, order, vocab, sequences)
		drafter, bits, n := table.Drafter(), 0.0, 0.0
		var p spec.Dist
		for _, s := range held {
			for i, x := range s {
				if _, err := drafter.Law(s[:i], standardize, &p); err != nil {
					t.Fatal(err)
				}
				bits -= math.Log2(p.Prob(x))
				n++
			}
		}
		if bits/n > last-0.5 {
			t.Errorf("order %d needs %.2f bits a token, the order before %.2f", order, bits/n, last)
		}
		last = bits / n
		want := uint64(0)
		for _, s := range sequences {
			want += uint64(len(s))
		}
		if table.Trained() != want || table.Order() != order || table.Vocab() != vocab || table.Size() < vocab {
			t.Errorf("table of order %d over %d tokens, trained on %d, holding %d; want trained on %d", table.Order(), table.Vocab(), table.Trained(), table.Size(), want)
		}
	}
}

func TestNGramTrainerRefuses(t *testing.T) {
	for _, c := range []struct{ order, vocab int }{{0, 5}, {spec.MaxOrder + 1, 5}, {2, 0}} {
		if _, err := spec.NewNGramTrainer(c.order, c.vocab); err == nil {
			t.Errorf("a trainer of order %d over %d tokens is made", c.order, c.vocab)
		}
	}
	trainer, err := spec.NewNGramTrainer(2, 5)
	if err != nil {
		t.Fatal(err)
	}
	for _, tokens := range [][]int32{{1, 5}, {-1}} {
		if err := trainer.Add(tokens); err == nil {
			t.Errorf("%v is taken for a text over 5 tokens", tokens)
		}
	}
}

// TestNGramFile: a table survives its file, which is the same whatever the
// order of the texts, and the same as it was (the golden file).
func TestNGramFile(t *testing.T) {
	const vocab = 30
	sequences := texts(vocab, 25, 20, 6)
	table := train(t, 3, vocab, sequences)
	data, err := table.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	slices.Reverse(sequences)
	if other, _ := train(t, 3, vocab, sequences).AppendBinary(nil); !bytes.Equal(data, other) {
		t.Error("the table depends on the order of the texts")
	}
	golden := filepath.Join("testdata", "order3.ngram")
	if *update {
		if err := os.WriteFile(golden, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(data, want) {
		t.Errorf("the file of a table has changed: %d bytes, the golden file %d; a new layout needs a new version", len(data), len(want))
	}
	again, err := spec.ParseNGram(want, vocab, spec.Digest{1, 2, 3})
	if err != nil {
		t.Fatal(err)
	}
	if again.Digest() != table.Digest() || again.Trained() != table.Trained() || again.Size() != table.Size() || again.Order() != 3 {
		t.Errorf("read back: %s, %d tokens, %d n-grams", again.Digest(), again.Trained(), again.Size())
	}
	standardize := standardizer(t, spec.Sampling{Temperature: 0.7, TopP: 0.9}, vocab)
	var a, b spec.Dist
	for _, s := range sequences {
		if _, err := table.Drafter().Law(s, standardize, &a); err != nil {
			t.Fatal(err)
		}
		if _, err := again.Drafter().Law(s, standardize, &b); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(a.W, b.W) || a.Sum != b.Sum {
			t.Fatalf("after %v the law differs from that of the table read back", s)
		}
	}
}

// sealed gives a body the checksum that its file would have.
func sealed(body []byte) []byte {
	sum := sha256.Sum256(body)
	return append(slices.Clone(body), sum[:]...)
}

func TestNGramFileRefused(t *testing.T) {
	const vocab = 30
	digest := spec.Digest{1, 2, 3}
	good, err := train(t, 3, vocab, texts(vocab, 5, 20, 7)).AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	body := good[:len(good)-sha256.Size]
	at := len("draftmill-ngram\n") // of the version; then order, vocabulary, trained
	changed := func(i int, b byte) []byte {
		c := slices.Clone(body)
		c[i] = b
		return sealed(c)
	}
	for _, c := range []struct {
		name  string
		data  []byte
		vocab int
		tok   spec.Digest
		want  string
	}{
		{"empty", nil, vocab, digest, "not an n-gram table"},
		{"another file", []byte("PAR1 and so on, long enough to hold a checksum of its own"), vocab, digest, "not an n-gram table"},
		{"the magic alone", []byte("draftmill-ngram\n"), vocab, digest, "damaged"},
		{"cut", good[:len(good)-1], vocab, digest, "damaged"},
		{"longer", append(slices.Clone(good), 0), vocab, digest, "damaged"},
		{"a bit", func() []byte { c := slices.Clone(good); c[len(c)/2] ^= 1; return c }(), vocab, digest, "damaged"},
		{"another version", changed(at, 2), vocab, digest, "version 2"},
		{"order 0", changed(at+1, 0), vocab, digest, "malformed"},
		{"order 9", changed(at+1, 9), vocab, digest, "malformed"},
		{"an order more than it holds", changed(at+1, 4), vocab, digest, "malformed"},
		{"an order less", changed(at+1, 2), vocab, digest, "malformed"},
		{"header alone", sealed(body[:at+3]), vocab, digest, "malformed"},
		{"a token outside", sealed(body[:len(body)-1]), vocab, digest, "malformed"},
		{"another vocabulary", good, vocab + 1, digest, "vocabulary of 30 tokens, the target's has 31"},
		{"another tokenizer", good, vocab, spec.Digest{9}, "another tokenizer"},
	} {
		_, err := spec.ParseNGram(c.data, c.vocab, c.tok)
		if !errors.Is(err, spec.ErrNGram) || !strings.Contains(fmt.Sprint(err), c.want) {
			t.Errorf("%s: error %v, want one with %q", c.name, err, c.want)
		}
	}
}

// FuzzParseNGram reads anything that carries the right checksum. What is taken
// for a table has a law that sums to one, and a file that is read back.
func FuzzParseNGram(f *testing.F) {
	const vocab = 20
	for order := 1; order <= 3; order++ {
		data, err := train(f, order, vocab, texts(vocab, 4, 12, uint64(order))).AppendBinary(nil)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data[:len(data)-sha256.Size])
	}
	f.Add([]byte("draftmill-ngram\n\x01\x03\x14\x00"))
	f.Fuzz(func(t *testing.T, body []byte) {
		table, err := spec.ParseNGram(sealed(body), vocab, spec.Digest{1, 2, 3})
		if err != nil {
			if !errors.Is(err, spec.ErrNGram) {
				t.Fatalf("error %v is no ErrNGram", err)
			}
			return
		}
		standardize := standardizer(t, spec.Sampling{Temperature: 1}, vocab)
		var p spec.Dist
		drafter := table.Drafter()
		for x := range int32(vocab) {
			for _, prefix := range [][]int32{nil, {x}, {x, (x + 1) % vocab}, {x, x, x, x}} {
				if ok, err := drafter.Law(prefix, standardize, &p); !ok || err != nil {
					t.Fatal(ok, err)
				}
				sum := 0.0
				for y := range int32(vocab) {
					sum += p.Prob(y)
				}
				if math.Abs(sum-1) > 1e-6 {
					t.Fatalf("after %v the law sums to %v", prefix, sum)
				}
			}
		}
		data, err := table.AppendBinary(nil)
		if err != nil {
			t.Fatal(err)
		}
		again, err := spec.ParseNGram(data, vocab, spec.Digest{1, 2, 3})
		if err != nil || again.Size() != table.Size() {
			t.Fatalf("its own file: %v", err)
		}
	})
}

func BenchmarkNGramLaw(b *testing.B) {
	const vocab = 50257
	table := train(b, 3, vocab, texts(vocab, 200, 500, 1))
	standardize := standardizer(b, spec.Sampling{Temperature: 0.8}, vocab)
	drafter, prefix := table.Drafter(), texts(vocab, 1, 500, 2)[0]
	var p spec.Dist
	b.ReportAllocs()
	for b.Loop() {
		if _, err := drafter.Law(prefix, standardize, &p); err != nil {
			b.Fatal(err)
		}
	}
}
