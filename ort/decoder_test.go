package ort

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/draftmill/draftmill/ort/graph"
)

// A decoder is what the decode loop asks for, in basic types.
var _ interface {
	Vocab() int
	Context() int
	Alloc() (slot int, err error)
	Free(slot int)
	Share(dst, src, n int) error
	Reserve(slot, past, n int) bool
	Truncate(slot, n int)
	Capacity() int
	Forward(ctx context.Context, spans []struct {
		Slot, Past int
		Tokens     []int32
		Rows       int
		Input      int
		From       int
	}) ([]float32, error)
	Close() error
} = (*Decoder)(nil)

// TestGolden compares with logits that numpy computed from the same weights,
// for a whole prompt, in pieces, and token by token.
func TestGolden(t *testing.T) {
	data, err := os.ReadFile("testdata/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		Tokens []int32
		Logits [][]float32
	}
	if err := json.Unmarshal(data, &golden); err != nil {
		t.Fatal(err)
	}
	for name, tolerance := range map[string]float64{"gqa": 1e-5, "growing": 1e-5, "float16": 2e-3, "bfloat16": 4e-3, "gqa-float16": 5e-3} {
		t.Run(name, func(t *testing.T) {
			m := loadT(t, modelDir(name), Options{})
			d := decoderT(t, m)
			for _, piece := range []int{len(golden.Tokens), 7, 1} {
				s := sequenceT(t, d)
				for from := 0; from < len(golden.Tokens); from += piece {
					tokens := golden.Tokens[from:min(from+piece, len(golden.Tokens))]
					logits := s.feed(from, tokens...)
					for i := range tokens {
						near(t, "position", logits[i*m.Vocab():(i+1)*m.Vocab()], golden.Logits[from+i], tolerance)
					}
				}
				d.Free(s.slot)
			}
		})
	}
}

// TestContractsAgree: the demo's draft and its Optimum export hold the same
// weights, so that their logits are the same through both contracts.
func TestContractsAgree(t *testing.T) {
	gqa := sequenceT(t, decoderT(t, loadT(t, modelDir("draft"), Options{})))
	growing := sequenceT(t, decoderT(t, loadT(t, modelDir("draft-optimum"), Options{})))
	tokens := selfTestTokens(60, gqa.d.Vocab())
	past := 0
	for _, s := range []int{20, 1, 5, 3, 1, 7} {
		near(t, "logits", growing.feed(past, tokens[past:past+s]...), gqa.feed(past, tokens[past:past+s]...), 1e-4)
		past += max(1, s-2) // some are taken back
	}
}

// TestTogetherEqualsAlone: one forward of S tokens equals S forwards of one.
func TestTogetherEqualsAlone(t *testing.T) {
	eachModel(t, func(t *testing.T, m *Model) {
		d := decoderT(t, m)
		together, alone := sequenceT(t, d), sequenceT(t, d)
		tokens := selfTestTokens(30, m.Vocab())
		for _, c := range []struct{ past, s int }{{0, 1}, {0, 5}, {5, 2}, {7, 5}, {12, 9}, {21, 1}, {22, 8}} {
			logits := together.feed(c.past, tokens[c.past:c.past+c.s]...)
			for i := range c.s {
				single := alone.feed(c.past+i, tokens[c.past+i])
				near(t, "token", logits[i*m.Vocab():(i+1)*m.Vocab()], single, m.bundle.tolerance)
			}
		}
	})
}

// TestRollbackLeavesNoTrace: truncate then run again is bit-equal to never
// having run.
func TestRollbackLeavesNoTrace(t *testing.T) {
	eachModel(t, func(t *testing.T, m *Model) {
		d := decoderT(t, m)
		tokens, wrong := selfTestTokens(24, m.Vocab()), []int32{3, 2, 1, 3, 2, 1}
		clean, dirty := sequenceT(t, d), sequenceT(t, d)
		for _, c := range []struct{ past, wrong int }{{0, 6}, {8, 1}, {12, 5}, {16, 6}, {20, 3}} {
			n := min(4, 24-c.past)
			if c.past == 0 {
				n = 8
			}
			dirty.feed(c.past, wrong[:c.wrong]...)
			if c.past > 4 {
				dirty.feed(c.past-3, wrong[:2]...) // deeper than the last feed
				dirty.feed(c.past-3, tokens[c.past-3:c.past]...)
				clean.feed(c.past-3, tokens[c.past-3:c.past]...)
			}
			bitEqual(t, "after a rollback", dirty.feed(c.past, tokens[c.past:c.past+n]...), clean.feed(c.past, tokens[c.past:c.past+n]...))
		}
	})
}

// TestFeedingAgainChangesNothing: a token fed again at its own place gives the
// same logits, and what follows is the same (design: two tokens on the draft's
// first step, rewinding by one).
func TestFeedingAgainChangesNothing(t *testing.T) {
	eachModel(t, func(t *testing.T, m *Model) {
		d := decoderT(t, m)
		s := sequenceT(t, d)
		tokens := selfTestTokens(12, m.Vocab())
		s.feed(0, tokens[:10]...)
		last := s.feed(10, tokens[10])
		bitEqual(t, "the last token again", s.feed(10, tokens[10]), last)
		two := s.feed(9, tokens[9], tokens[10])
		near(t, "the last two again", two[m.Vocab():], last, m.bundle.tolerance)
	})
}

func TestSlotsDoNotDisturb(t *testing.T) {
	eachModel(t, func(t *testing.T, m *Model) {
		v := m.Vocab()
		texts := [][]int32{selfTestTokens(20, v), selfTestTokens(40, v)[20:], selfTestTokens(60, v)[40:]}
		want := make([][][]float32, len(texts))
		for i, text := range texts {
			alone := sequenceT(t, decoderT(t, m))
			for from := 0; from < 20; from += 4 {
				want[i] = append(want[i], alone.feed(from, text[from:from+4]...))
			}
		}

		d := decoderT(t, m)
		var slots []int
		for range texts {
			slots = append(slots, sequenceT(t, d).slot)
		}
		// Lane by lane, then all in one call, then in another order.
		for step := range 5 {
			past := []int{4 * step, 4 * step, 4 * step}
			order := [][]int{{0, 1, 2}, {2, 0, 1}}[step%2]
			var lanes []int
			var tokens [][]int32
			for _, i := range order {
				lanes = append(lanes, slots[i])
				tokens = append(tokens, texts[i][4*step:4*step+4])
			}
			if step == 1 {
				for i := range order {
					logits, err := d.Forward(context.Background(), whole(lanes[i:i+1], past[:1], tokens[i:i+1]))
					if err != nil {
						t.Fatal(err)
					}
					bitEqual(t, "one lane", logits, want[order[i]][step])
				}
				continue
			}
			logits, err := d.Forward(context.Background(), whole(lanes, past, tokens))
			if err != nil {
				t.Fatal(err)
			}
			for i := range order {
				bitEqual(t, "three lanes", logits[i*4*v:(i+1)*4*v], want[order[i]][step])
			}
		}

		// A freed slot's memory is used again, and shows no trace.
		live := liveBytes.Load()
		d.Free(slots[1])
		again := sequenceT(t, d)
		if again.slot != slots[1] || liveBytes.Load() != live {
			t.Errorf("got slot %d and %d bytes, want slot %d and %d bytes", again.slot, liveBytes.Load(), slots[1], live)
		}
		bitEqual(t, "a used slot", again.feed(0, texts[2][:4]...), want[2][0])
	})
}

// TestDecodersShareAModel runs one decoder per goroutine.
func TestDecodersShareAModel(t *testing.T) {
	eachModel(t, func(t *testing.T, m *Model) {
		tokens := selfTestTokens(24, m.Vocab())
		reference := sequenceT(t, decoderT(t, m))
		var want [][]float32
		for from := 0; from < 24; from += 3 {
			want = append(want, reference.feed(from, tokens[from:from+3]...))
		}
		var wg sync.WaitGroup
		for range 4 {
			s := sequenceT(t, decoderT(t, m))
			wg.Go(func() {
				for i, logits := range want {
					got, err := s.d.Forward(context.Background(), whole([]int{s.slot}, []int{3 * i}, [][]int32{tokens[3*i : 3*i+3]}))
					if err != nil {
						t.Error(err)
						return
					}
					near(t, "concurrent", got, logits, 1e-6)
				}
			})
		}
		wg.Wait()
	})
}

func TestForwardRefuses(t *testing.T) {
	for _, name := range []string{"gqa", "growing"} {
		m := loadT(t, modelDir(name), Options{Context: 16})
		d := decoderT(t, m)
		a := sequenceT(t, d)
		freed := sequenceT(t, d)
		d.Free(freed.slot)
		want := a.feed(0, 1, 2, 3, 4)
		ids := func(lists ...[]int32) [][]int32 { return lists }
		for _, c := range []struct {
			name   string
			slots  []int
			past   []int
			tokens [][]int32
			want   string
		}{
			{"no spans", nil, nil, nil, "no spans"},
			{"no tokens", []int{a.slot}, []int{0}, ids([]int32{}), "no tokens"},
			{"slot twice", []int{a.slot, a.slot}, []int{0, 0}, ids([]int32{1}, []int32{1}), "named twice"},
			{"unknown slot", []int{7}, []int{0}, ids([]int32{1}), "slot 7 is not allocated"},
			{"negative slot", []int{-1}, []int{0}, ids([]int32{1}), "slot -1 is not allocated"},
			{"freed slot", []int{freed.slot}, []int{0}, ids([]int32{1}), "is not allocated"},
			{"hole in the cache", []int{a.slot}, []int{5}, ids([]int32{1}), "past 5, but 4 tokens are cached"},
			{"negative past", []int{a.slot}, []int{-1}, ids([]int32{1}), "past -1"},
			{"context overflow", []int{a.slot}, []int{4}, ids(make([]int32, 13)), "13 tokens after 4: context is full: it holds 16"},
			{"token too large", []int{a.slot}, []int{4}, ids([]int32{64}), "token 64 is outside the vocabulary of 64"},
			{"negative token", []int{a.slot}, []int{4}, ids([]int32{-1}), "token -1 is outside"},
		} {
			t.Run(name+"/"+c.name, func(t *testing.T) {
				_, err := d.Forward(context.Background(), whole(c.slots, c.past, c.tokens))
				if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "forward: ") {
					t.Errorf("got %v, want %q", err, c.want)
				}
				if got := errors.Is(err, ErrContextFull); got != (c.name == "context overflow") {
					t.Errorf("is ErrContextFull: %v", got)
				}
			})
		}
		// To the brim, and nothing was harmed.
		bitEqual(t, "after refusals", a.feed(0, 1, 2, 3, 4), want)
		a.feed(4, make([]int32, 12)...)
	}
}

func TestFreeOfAFreeSlotPanics(t *testing.T) {
	d := decoderT(t, loadT(t, modelDir("gqa"), Options{}))
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	d.Free(0)
}

// TestStepsAllocateNothing in Go's heap.
func TestStepsAllocateNothing(t *testing.T) {
	eachModel(t, func(t *testing.T, m *Model) {
		s := sequenceT(t, decoderT(t, m))
		s.feed(0, 1, 2, 3)
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		spans := whole([]int{s.slot}, []int{3}, [][]int32{{4, 5, 6, 7, 8}})
		n := testing.AllocsPerRun(50, func() {
			if _, err := s.d.Forward(ctx, spans); err != nil {
				t.Fatal(err)
			}
		})
		if n != 0 {
			t.Errorf("%v allocations per step", n)
		}
	})
}

// TestWiden checks every number of half precision against its definition.
func TestWiden(t *testing.T) {
	src, dst := make([]uint16, 1<<16), make([]float32, 1<<16)
	for i := range src {
		src[i] = uint16(i)
	}
	for _, typ := range []graph.ElementType{graph.Float16, graph.BFloat16} {
		widen(unsafe.Pointer(&dst[0]), unsafe.Pointer(&src[0]), len(src), typ)
		for i, h := range src {
			want := widenByDefinition(h, typ)
			if dst[i] != want && !(dst[i] != dst[i] && want != want) {
				t.Fatalf("%s %#04x: got %v, want %v", typ, h, dst[i], want)
			}
		}
	}
}
