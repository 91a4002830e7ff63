package ort

import (
	"context"
	"slices"
	"testing"
	"unsafe"

	"github.com/draftmill/draftmill/ort/graph"
)

// TestKeptRows: what a pass keeps are the rows that Forward brings, to the bit: in
// blocks, in several runs, recorded, and from graphs that run as they were exported,
// whose long spans take several runs each.
func TestKeptRows(t *testing.T) {
	few := paging{block: 16, sequences: 2}
	for name, c := range map[string]struct {
		model string
		o     Options
	}{
		"paged":        {"gqa", Options{}},
		"several runs": {"gqa", Options{paging: &few}},
		"recorded":     {"gqa", Options{paging: &recordedPaging}},
		"exported":     {"growing", Options{AsExported: true}},
		"exported gqa": {"gqa", Options{AsExported: true}},
		"float16":      {"float16", Options{AsExported: true}},
	} {
		t.Run(name, func(t *testing.T) {
			d := decoderT(t, loadT(t, modelDir(c.model), c.o))
			var spans []Span
			for i := range 3 {
				spans = append(spans, Span{Slot: sequenceT(t, d).slot, Tokens: []int32{int32(i + 1), 2, 3}, Rows: 3})
			}
			passes := [][]Span{spans, spans, spans, spans, spans, {spans[1]}}
			if d.Context() > runTokens+2 {
				long := Span{Slot: spans[0].Slot, Tokens: make([]int32, runTokens+2), Rows: 4}
				passes = append(passes, []Span{spans[1], long, {Slot: spans[2].Slot, Tokens: []int32{4, 5}, Rows: 0}})
			}
			for i, pass := range passes {
				logits, err := d.Forward(context.Background(), pass)
				if err != nil {
					t.Fatal(err)
				}
				want := slices.Clone(logits)
				if err := d.Keep(context.Background(), pass); err != nil {
					t.Fatal(err)
				}
				rows, back, err := d.lend()
				if err != nil {
					t.Fatal(err)
				}
				got := make([]float32, len(want))
				if rows.elem == graph.Float32 {
					copy(got, unsafe.Slice((*float32)(rows.data), len(got)))
				} else {
					widen(unsafe.Pointer(&got[0]), rows.data, len(got), rows.elem)
				}
				back()
				if rows.rows*d.Vocab() != len(want) || !slices.Equal(got, want) {
					t.Errorf("pass %d: %d rows are kept, and not those of Forward", i, rows.rows)
				}
			}
			if p, ok := d.caches.(*paged); ok && c.o.paging == &recordedPaging && len(p.capturing.shapes) == 0 {
				t.Error("nothing was recorded")
			}
		})
	}
}
