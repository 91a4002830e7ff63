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

// BenchmarkFloat measures a pass over all matrices of a float32 decoder of 110M
// parameters (hidden 768, 12 layers, inner 2048, 32000 tokens) by rows, beside the
// time that reading as much memory takes, all in turn in one run.
func BenchmarkFloat(b *testing.B) {
	const hidden, inner, vocab, layers, most = 768, 2048, 32000, 12, 256
	t := threads(b, runtime.NumCPU())
	r := rand.New(rand.NewPCG(1, 2))
	bytes, flops := 0, 0
	pack := func(k, n int) *kernels.FloatMatrix {
		m, err := kernels.PackFloats(values(r, k*n), k, n, false, t)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(m.Free)
		bytes += m.Bytes()
		flops += 2 * k * n
		return m
	}
	type matrices struct{ q, k, v, o, gate, up, down *kernels.FloatMatrix }
	var all []matrices
	for range layers {
		all = append(all, matrices{pack(hidden, hidden), pack(hidden, hidden), pack(hidden, hidden), pack(hidden, hidden),
			pack(hidden, inner), pack(hidden, inner), pack(inner, hidden)})
	}
	head := pack(hidden, vocab)
	x := values(r, most*hidden)
	q, k, v := make([]float32, most*hidden), make([]float32, most*hidden), make([]float32, most*hidden)
	mid, logits := make([]float32, most*inner), make([]float32, most*vocab)
	pass := func(rows int) {
		for _, l := range all {
			kernels.FloatMatMul([]kernels.FloatProduct{{W: l.q, Y: q}, {W: l.k, Y: k}, {W: l.v, Y: v}}, x, rows, t)
			kernels.FloatMatMul([]kernels.FloatProduct{{W: l.o, Y: q}}, x, rows, t)
			kernels.FloatGated(kernels.FloatProduct{W: l.gate}, kernels.FloatProduct{W: l.up}, kernels.SiLU, mid, x, rows, t)
			kernels.FloatMatMul([]kernels.FloatProduct{{W: l.down, Y: q}}, mid, rows, t)
		}
		kernels.FloatMatMul([]kernels.FloatProduct{{W: head, Y: logits}}, x, rows, t)
	}
	plenty := make([]uint64, bytes/8)
	for i := range plenty {
		plenty[i] = uint64(i)
	}
	rows := []int{1, 2, 4, 5, 8, 16, 64, 256}
	times := map[int][]time.Duration{}
	for round := range 15 {
		start := time.Now()
		t.Read(plenty)
		times[0] = append(times[0], time.Since(start))
		for _, n := range rows {
			if n > 16 && round > 4 {
				continue
			}
			start := time.Now()
			pass(n)
			times[n] = append(times[n], time.Since(start))
		}
	}
	floor, one := median(times[0]), median(times[1])
	var table strings.Builder
	fmt.Fprintf(&table, "%s, %s, %d threads; %d MB read in %.1f ms, %.1f GB/s\n", processor(), kernels.Best(), runtime.NumCPU(),
		bytes/1e6, ms(floor), float64(bytes)/1e9/floor.Seconds())
	fmt.Fprintf(&table, "%6s %9s %9s %9s %9s\n", "rows", "ms", "/ floor", "/ 1 row", "GFLOP/s")
	for _, n := range rows {
		d := median(times[n])
		fmt.Fprintf(&table, "%6d %9.1f %9.2f %9.2f %9.0f\n", n, ms(d), d.Seconds()/floor.Seconds(), d.Seconds()/one.Seconds(),
			float64(flops*n)/1e9/d.Seconds())
	}
	fmt.Print("\n", table.String())
	b.ReportMetric(one.Seconds()/floor.Seconds(), "1row/floor")
	b.ReportMetric(median(times[8]).Seconds()/one.Seconds(), "8rows/1row")
	b.ReportMetric(0, "ns/op")
}
