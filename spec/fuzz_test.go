package spec

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"testing"
)

// bytesOf reads numbers from a fuzzer's bytes, and zeros after their end.
type bytesOf []byte

func (b *bytesOf) byte() byte {
	if len(*b) == 0 {
		return 0
	}
	x := (*b)[0]
	*b = (*b)[1:]
	return x
}

// float is mostly an ordinary number, and sometimes one of any bits.
func (b *bytesOf) float() float32 {
	switch x := b.byte(); x {
	case 255:
		return math.Float32frombits(binary.LittleEndian.Uint32([]byte{b.byte(), b.byte(), b.byte(), b.byte()}))
	case 254:
		return float32(math.NaN())
	case 253:
		return float32(math.Inf(1))
	case 252:
		return float32(math.Inf(-1))
	case 251:
		return math.SmallestNonzeroFloat32
	default:
		return float32(x) / 16
	}
}

// named reports whether an error is one of those that the package promises.
func named(err error) bool {
	return errors.Is(err, ErrNotANumber) || errors.Is(err, ErrNoMass) || errors.Is(err, ErrImpossibleDraft) || errors.Is(err, ErrShape)
}

// FuzzVerify hands Verify rows of any numbers, with sums that may be wrong. It
// returns a named error for what is no distribution and for a token that was
// not drawn from its row, and never emits a token that the target cannot draw.
func FuzzVerify(f *testing.F) {
	f.Add([]byte{2, 4, 1, 0, 16, 16, 16, 0, 16, 16, 0, 16, 1, 2})
	f.Add([]byte{1, 3, 0, 0, 254, 16, 16, 16, 16, 16, 16, 16, 16, 0})
	f.Add([]byte{1, 2, 2, 0, 0, 16, 16, 0, 16, 16, 0, 0})
	f.Add([]byte{3, 1, 3, 255, 255, 127, 127, 127, 255, 1, 1, 0, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		in := bytesOf(data)
		k, vocab := int(in.byte()%4), 1+int(in.byte()%6)
		rule := []Rule{Rejection, {kind: match}, {lenient, 0.5}, {capped, 0.25}, {lenientGreedy, 0.5}}[in.byte()%5]
		dist := func() (d Dist, good bool) {
			n := vocab
			if in.byte() == 200 {
				n++
			}
			d.W = make([]float32, n)
			good = n == vocab
			for i := range d.W {
				d.W[i] = in.float()
				d.Sum += float64(d.W[i])
				good = good && d.W[i] >= 0 && !math.IsInf(float64(d.W[i]), 0)
			}
			if in.byte() == 200 {
				d.Sum = float64(in.float())
				good = false // or it may happen to be right
			}
			return d, good && d.Sum > 0
		}
		p, q, drafted, good := make([]Dist, k), make([]Dist, k+1), make([]int32, k), true
		for i := range p {
			ok := false
			p[i], ok = dist()
			good = good && ok
			drafted[i] = int32(in.byte()%8) - 1
			good = good && drafted[i] >= 0 && int(drafted[i]) < vocab && p[i].W[drafted[i]] > 0
		}
		for i := range q {
			ok := false
			q[i], ok = dist()
			good = good && ok
		}
		var out Outcome
		err := Verify(rule, drafted, p, q, Coins{Row: uint64(in.byte())}, 0, &out)
		if err != nil {
			if !named(err) {
				t.Fatalf("an error without a name: %v", err)
			}
			if good && rule.kind != lenientGreedy {
				t.Fatalf("good rows are refused: %v", err)
			}
			return
		}
		for i := range q {
			if err := q[i].check(); err != nil {
				t.Fatalf("target row %d passes: %v", i, err)
			}
		}
		for i := range p {
			if err := p[i].check(); err != nil || p[i].W[drafted[i]] <= 0 {
				t.Fatalf("draft row %d passes: %v, weight %v at the drafted token", i, err, p[i].W[drafted[i]])
			}
		}
		if out.Accepted < 0 || out.Accepted > k || out.Token < 0 || int(out.Token) >= len(q[0].W) {
			t.Fatalf("outcome %+v", out)
		}
		for i, x := range append(drafted[:out.Accepted:out.Accepted], out.Token) {
			if q[i].W[x] <= 0 {
				t.Fatalf("token %d is emitted at %d, where the target gives it %v", x, i, q[i].W[x])
			}
		}
		for i := range p {
			if o := out.Overlap[i]; !(o >= 0 && o <= 1) || !(out.P[i] > 0 && out.P[i] <= 1) || !(out.Q[i] >= 0 && out.Q[i] <= 1) {
				t.Fatalf("outcome %+v", out)
			}
		}
	})
}

// FuzzStandardize hands the chain logits of any bits. What comes out is a
// distribution or a named error, the same by both kernels.
func FuzzStandardize(f *testing.F) {
	f.Add([]byte{1, 3, 9, 40, 41, 252, 254, 0, 255, 1, 2, 3, 4})
	f.Add([]byte{0, 0, 0, 253, 1})
	f.Add([]byte{2, 5, 255, 252, 252, 252})
	f.Fuzz(func(t *testing.T, data []byte) {
		in := bytesOf(data)
		s := Sampling{
			Temperature: []float64{0, 1, 1e-300, 1e300, 0.7}[in.byte()%5],
			TopK:        int(in.byte() % 4),
			TopP:        float64(in.byte()) / 255,
			MinP:        float64(in.byte()%8) / 8,
		}
		tokens := []int32{0, 0}
		if in.byte()&1 != 0 {
			s.ForbiddenTokens, s.RepetitionPenalty = []int32{0}, 1.5
		}
		logits := make([]float32, 1+min(len(in), 40))
		bad := false
		for i := range logits {
			logits[i] = in.float()
			bad = bad || logits[i] != logits[i] || logits[i] > math.MaxFloat32
		}
		before := slices.Clone(logits)
		var kept [2]int
		for i, k := range []kernel{native{}, plain{}} {
			chain, err := NewChain(s, len(logits), nil)
			if err != nil {
				t.Fatal(err)
			}
			chain.kernel = k
			if err := chain.Begin(tokens); err != nil {
				t.Fatal(err)
			}
			var d Dist
			if err := chain.Standardize(logits, tokens, &d); err != nil {
				if !named(err) {
					t.Fatalf("an error without a name: %v", err)
				}
				kept[i] = -1
				continue
			}
			if bad {
				t.Fatalf("%T takes %v", k, logits)
			}
			probe := Dist{W: d.W, Sum: d.Sum}
			if err := probe.check(); err != nil {
				t.Fatalf("%T: %v of %v", k, err, logits)
			}
			for x, w := range d.W {
				if w > 0 {
					kept[i]++
					if math.IsInf(float64(logits[x]), -1) {
						t.Fatalf("%T: token %d is possible again", k, x)
					}
				}
			}
			for _, u := range []float64{0, 0.5, 1 - 0x1p-53} {
				if x := d.Sample(u); d.W[x] <= 0 {
					t.Fatalf("%T draws token %d of weight %v", k, x, d.W[x])
				}
			}
		}
		if kept[0] < 0 != (kept[1] < 0) {
			t.Fatalf("%+v: the kernels keep %d and %d of %v", s, kept[0], kept[1], logits)
		}
		if !slices.EqualFunc(before, logits, func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }) {
			t.Fatal("the logits were written to")
		}
	})
}
