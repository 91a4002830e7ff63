package kernels_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/draftmill/draftmill/ort/kernels"
)

// decoder is the attention of all layers of a decoder like Qwen2.5-Coder-1.5B: each
// layer has caches of its own, as in the model.
type decoder struct {
	layers  []kernels.Attention
	hidden  int
	longest int
}

func attentionOfQwen(r *rand.Rand, sequences, longest int) *decoder {
	const heads, kv, size, layers, block = 12, 2, 128, 28, 64
	d := &decoder{hidden: heads * size, longest: longest}
	blocks := (longest + block - 1) / block
	var table []int32
	for _, b := range r.Perm(sequences * blocks) {
		table = append(table, int32(b))
	}
	cos, sin := values(r, longest*size/2), values(r, longest*size/2)
	row := (heads + 2*kv) * size
	qkv, out := values(r, 512*row), make([]float32, 512*heads*size)
	for range layers {
		cache := values(r, sequences*blocks*block*kv*size)
		d.layers = append(d.layers, kernels.Attention{Heads: heads, KVHeads: kv, HeadSize: size, RotaryDim: size, Cos: cos, Sin: sin,
			BlockTable: table, MaxBlocks: blocks, BlockSize: block, KeyCache: cache, ValueCache: append([]float32(nil), cache...),
			Query: qkv, Key: qkv[heads*size:], Value: qkv[(heads+kv)*size:], QueryStride: row, KeyStride: row, ValueStride: row,
			Output: out, OutputStride: heads * size})
	}
	return d
}

func values(r *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = r.Float32() - 0.5
	}
	return x
}

// pass computes all layers for sequences that have `past` tokens each and `rows` new
// ones.
func (d *decoder) pass(b *testing.B, sequences, past, rows int, t kernels.Threads) {
	cumulative, pasts := make([]int32, sequences+1), make([]int32, sequences)
	for s := range pasts {
		cumulative[s+1], pasts[s] = cumulative[s]+int32(rows), int32(past)
	}
	for i := range d.layers {
		a := d.layers[i]
		a.Cumulative, a.Past, a.BlockTable = cumulative, pasts, a.BlockTable[:sequences*a.MaxBlocks]
		if err := a.Attend(t); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkAttention measures the attention of a whole pass of a 1.5B decoder by
// contexts and rows, beside the time that reading the caches takes, in turn in one
// run.
func BenchmarkAttention(b *testing.B) {
	t := threads(b, runtime.NumCPU())
	const most, longest = 8, 4096 + 256
	r := rand.New(rand.NewPCG(1, 2))
	d := attentionOfQwen(r, 1, longest)
	many := attentionOfQwen(r, most, 512+16)
	plenty := make([]uint64, 1<<25)
	for i := range plenty {
		plenty[i] = uint64(i)
	}
	var table strings.Builder
	fmt.Fprintf(&table, "%s, %s, %d threads; 12 heads of 128, 2 KV heads, 28 layers\n", processor(), kernels.Best(), runtime.NumCPU())
	fmt.Fprintf(&table, "%9s %6s %9s %9s %9s %9s %9s\n", "sequences", "rows", "context", "ms", "GB/s", "/ floor", "/ 1 row")
	for _, c := range []struct{ sequences, context int }{{1, 128}, {1, 512}, {1, 2048}, {1, 4096}, {8, 128}, {8, 512}} {
		from := d
		rows := []int{1, 5, 8, 128}
		if c.sequences > 1 {
			from, rows = many, []int{1, 5, 8}
		}
		times := map[int][]time.Duration{}
		for round := range 9 {
			start := time.Now()
			t.Read(plenty)
			times[0] = append(times[0], time.Since(start))
			for _, n := range rows {
				if n > 16 && round > 2 {
					continue
				}
				start := time.Now()
				from.pass(b, c.sequences, c.context, n, t)
				times[n] = append(times[n], time.Since(start))
			}
		}
		perByte := median(times[0]).Seconds() / float64(len(plenty)*8)
		for _, n := range rows {
			bytes := float64(c.sequences * c.context * 28 * 2 * 2 * 128 * 4)
			took := median(times[n]).Seconds()
			fmt.Fprintf(&table, "%9d %6d %9d %9.2f %9.1f %9.2f %9.2f\n", c.sequences, n, c.context, took*1e3, bytes/1e9/took,
				took/(bytes*perByte), took/median(times[1]).Seconds())
		}
	}
	fmt.Print("\n", table.String())
	b.ReportMetric(0, "ns/op")
}
