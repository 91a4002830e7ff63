package orttest

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/draftmill/draftmill/ort"
)

// mirror makes every call twice, on the device and on the CPU.
type mirror struct {
	t         *testing.T
	s         Subject
	device    *ort.Decoder
	reference *ort.Decoder
}

// sequence is one slot in both decoders.
type sequence struct {
	device, reference int
	text              []int32 // what it feeds, position by position
	past              int
}

func (s Subject) mirror(t *testing.T, o ort.Options) *mirror {
	t.Helper()
	o.Context = context48(o.Context)
	m := &mirror{t: t, s: s, device: decoder(t, s.open(t, s.Device, o)), reference: decoder(t, s.open(t, ort.Options{}, ort.Options{Context: o.Context}))}
	return m
}

// context48 keeps caches small where a test does not care.
func context48(n int) int {
	if n == 0 {
		return 48
	}
	return n
}

func decoder(t *testing.T, m *ort.Model) *ort.Decoder {
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

// sequence allocates; seed chooses the text.
func (m *mirror) sequence(seed int) *sequence {
	m.t.Helper()
	a, err := m.device.Alloc()
	b, err2 := m.reference.Alloc()
	if err := errors.Join(err, err2); err != nil {
		m.t.Fatal(err)
	}
	return &sequence{device: a, reference: b, text: tokens(seed, m.device.Context(), m.device.Vocab())}
}

func (m *mirror) free(q *sequence) {
	m.device.Free(q.device)
	m.reference.Free(q.reference)
}

// feed feeds the next n tokens of each sequence in one Forward on the device,
// and in one Forward each on the CPU.
func (m *mirror) feed(n int, sequences ...*sequence) []float32 {
	m.t.Helper()
	var spans []ort.Span
	for _, q := range sequences {
		spans = append(spans, ort.Span{Slot: q.device, Past: q.past, Tokens: q.text[q.past : q.past+n], Rows: n})
	}
	got, err := m.device.Forward(context.Background(), spans)
	if err != nil {
		m.t.Fatal(err)
	}
	per := n * m.device.Vocab()
	if len(got) != per*len(sequences) {
		m.t.Fatalf("%d logits for %d sequences of %d", len(got), len(sequences), per)
	}
	for i, q := range sequences {
		want, err := forward(m.reference, q.reference, q.past, spans[i].Tokens...)
		if err != nil {
			m.t.Fatal(err)
		}
		m.compare(q, n, got[i*per:(i+1)*per], want)
		q.past += n
	}
	return slices.Clone(got)
}

// forward feeds some tokens to one slot and returns the logits of all.
func forward(d *ort.Decoder, slot, past int, tokens ...int32) ([]float32, error) {
	return d.Forward(context.Background(), []ort.Span{{Slot: slot, Past: past, Tokens: tokens, Rows: len(tokens)}})
}

// compare looks at each position by itself.
func (m *mirror) compare(q *sequence, n int, got, want []float32) {
	m.t.Helper()
	v := m.device.Vocab()
	for i := range n {
		if off := distance(want[i*v:(i+1)*v], got[i*v:(i+1)*v]); !(off <= m.s.Tolerance) {
			m.t.Fatalf("slot %d: token %d of %d after %d is off by %.3g of the logits' range, at most %.3g is allowed", q.device, i+1, n, q.past, off, m.s.Tolerance)
		}
	}
}

// back takes n tokens back and makes the text go on differently.
func (m *mirror) back(q *sequence, n int) {
	q.past -= n
	for i := range n {
		q.text[q.past+i] = (q.text[q.past+i] + 1) % int32(m.device.Vocab())
	}
}

// copyTo makes dst hold the first n tokens of src.
func (m *mirror) copyTo(dst, src *sequence, n int) {
	m.t.Helper()
	if err := errors.Join(m.device.Share(dst.device, src.device, n), m.reference.Share(dst.reference, src.reference, n)); err != nil {
		m.t.Fatal(err)
	}
	copy(dst.text, src.text[:n])
	dst.past = n
}

// same demands that two results of the device agree: to the bit where the
// device always computes alike, else within its tolerance.
func (s Subject) same(t *testing.T, what string, got, want []float32) {
	t.Helper()
	off := distance(want, got)
	if s.Exact && off != 0 || !(off <= s.Tolerance) {
		t.Errorf("%s: off by %.3g of the logits' range", what, off)
	}
}

// tokens are n ids that look like noise.
func tokens(seed, n, vocab int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(uint32(seed*1009+i+1) * 2654435761 % uint32(vocab))
	}
	return ids
}

// distance is the largest difference over the range of the first list; NaN
// where either has one.
func distance(a, b []float32) float64 {
	lo, hi, off := math.Inf(1), math.Inf(-1), 0.0
	for i := range a {
		x, y := float64(a[i]), float64(b[i])
		lo, hi, off = min(lo, x), max(hi, x), max(off, math.Abs(x-y))
	}
	return off / max(hi-lo, math.SmallestNonzeroFloat32)
}
