package ort

import (
	"errors"
	"runtime"
	"strings"
	"testing"
)

// TestCopy: what continues a copy is, to the bit, what continues the original,
// and the original goes on as if there were no copies.
func TestShare(t *testing.T) {
	eachModel(t, func(t *testing.T, m *Model) {
		d := decoderT(t, m)
		src, clean := sequenceT(t, d), sequenceT(t, d)
		tokens, other := selfTestTokens(40, m.Vocab()), selfTestTokens(50, m.Vocab())[10:]
		src.feed(0, tokens[:20]...)
		clean.feed(0, tokens[:20]...)
		for _, c := range []struct{ n, dirt int }{{20, 0}, {13, 7}, {20, 30}, {1, 30}, {0, 5}, {20, 20}} {
			dst := sequenceT(t, d)
			if c.dirt > 0 { // what dst held before leaves no trace
				dst.feed(0, other[:c.dirt]...)
			}
			if err := d.Share(dst.slot, src.slot, c.n); err != nil {
				t.Fatal(err)
			}
			reference := sequenceT(t, d)
			if c.n > 0 {
				reference.feed(0, tokens[:20]...)
			}
			for _, s := range []struct{ past, n int }{{c.n, 5}, {c.n + 5, 1}, {c.n + 3, 4}} {
				fed := other[s.past : s.past+s.n]
				bitEqual(t, "a copy", dst.feed(s.past, fed...), reference.feed(s.past, fed...))
			}
			d.Free(dst.slot)
			d.Free(reference.slot)
		}
		// A copy of a copy, in both directions.
		dst := sequenceT(t, d)
		if err := errors.Join(d.Share(dst.slot, src.slot, 20), d.Share(src.slot, dst.slot, 20)); err != nil {
			t.Fatal(err)
		}
		bitEqual(t, "the original", src.feed(20, tokens[20:25]...), clean.feed(20, tokens[20:25]...))

		d.Free(clean.slot)
		for _, c := range []struct {
			dst, src, n int
			want        string
		}{
			{dst.slot, src.slot, 26, "25 tokens are cached"},
			{dst.slot, src.slot, -1, "25 tokens are cached"},
			{src.slot, src.slot, 3, "they are the same"},
			{clean.slot, src.slot, 3, "is not allocated"},
			{dst.slot, clean.slot, 3, "is not allocated"},
			{-1, src.slot, 3, "slot -1 is not allocated"},
			{dst.slot, 99, 3, "slot 99 is not allocated"},
		} {
			if err := d.Share(c.dst, c.src, c.n); err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "share ") {
				t.Errorf("share of %d tokens from %d to %d: got %v, want %q", c.n, c.src, c.dst, err, c.want)
			}
		}
		bitEqual(t, "after refusals", dst.feed(20, tokens[20:25]...), src.feed(20, tokens[20:25]...))
		if n := testing.AllocsPerRun(50, func() {
			if err := d.Share(dst.slot, src.slot, 25); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%v allocations per copy", n)
		}
		if err := errors.Join(d.Close(), d.Share(dst.slot, src.slot, 1)); !errors.Is(err, ErrClosed) {
			t.Errorf("after Close: got %v", err)
		}
	})
}

func TestDefaultThreads(t *testing.T) {
	for _, c := range []struct {
		bytes int64
		want  int
	}{{oneThreadBytes - 1, 1}, {oneThreadBytes, runtime.GOMAXPROCS(0)}} {
		if got := defaultThreads(c.bytes); got != c.want {
			t.Errorf("%d bytes: %d threads, want %d", c.bytes, got, c.want)
		}
	}
}
