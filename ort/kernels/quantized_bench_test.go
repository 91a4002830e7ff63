package kernels_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/draftmill/draftmill/ort/kernels"
)

// layer is a decoder layer's matrices.
type layer struct{ q, k, v, o, gate, up, down *kernels.Matrix }

// network is all quantized matrices of a decoder, as its passes use them.
type network struct {
	layers                   []layer
	head                     *kernels.Matrix
	hidden, inner, kv, vocab int
	bytes                    int
	packing                  time.Duration
}

// qwen has the shapes of Qwen2.5-Coder-1.5B. The weights are the same random ones in
// every layer, in memory of their own, so that caches are of no more help than in
// the model.
func qwen(b *testing.B, bits, block int, zeros bool, scales scales, t kernels.Threads) *network {
	n := &network{hidden: 1536, inner: 8960, kv: 256, vocab: 151936}
	r := rand.New(rand.NewPCG(1, 2))
	sources := map[[2]int]kernels.Source{}
	pack := func(columns, k int) *kernels.Matrix {
		s, ok := sources[[2]int{columns, k}]
		if !ok {
			s = shape{columns, k, bits, block, zeros, scales}.source(r)
			sources[[2]int{columns, k}] = s
		}
		start := time.Now()
		m := pack(b, s, t)
		n.packing += time.Since(start)
		n.bytes += m.Bytes()
		return m
	}
	for range 28 {
		n.layers = append(n.layers, layer{
			q: pack(n.hidden, n.hidden), k: pack(n.kv, n.hidden), v: pack(n.kv, n.hidden), o: pack(n.hidden, n.hidden),
			gate: pack(n.inner, n.hidden), up: pack(n.inner, n.hidden), down: pack(n.hidden, n.inner),
		})
	}
	n.head = pack(n.vocab, n.hidden)
	return n
}

// buffers are for the network's inputs and outputs.
type buffers struct{ x, q, k, v, inner, logits []float32 }

// pass computes all matrices once. Of a prefill only the last row has logits.
func (n *network) pass(b *buffers, rows int, t kernels.Threads) {
	for _, l := range n.layers {
		kernels.MatMul([]kernels.Product{{W: l.q, Y: b.q}, {W: l.k, Y: b.k}, {W: l.v, Y: b.v}}, b.x, rows, t)
		kernels.MatMul([]kernels.Product{{W: l.o, Y: b.q}}, b.x, rows, t)
		kernels.Gated(kernels.Product{W: l.gate}, kernels.Product{W: l.up}, kernels.SiLU, b.inner, b.x, rows, t)
		kernels.MatMul([]kernels.Product{{W: l.down, Y: b.q}}, b.inner, rows, t)
	}
	scored := rows
	if rows > 16 {
		scored = 1
	}
	kernels.MatMul([]kernels.Product{{W: n.head, Y: b.logits}}, b.x, scored, t)
}

func processor() string {
	info, err := os.ReadFile("/proc/cpuinfo")
	if err == nil {
		for line := range strings.Lines(string(info)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				return strings.TrimSpace(value)
			}
		}
	}
	return runtime.GOARCH
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

// BenchmarkQuantized measures a pass over all matrices of a 1.5B decoder by rows,
// beside the time that reading as much memory takes, all in turn in one run.
func BenchmarkQuantized(b *testing.B) {
	for _, c := range []struct {
		bits, block int
		zeros       bool
		scales      scales
	}{{4, 32, false, halves}, {4, 32, true, short}, {4, 128, false, halves}, {8, 32, false, halves}} {
		b.Run(fmt.Sprintf("bits=%d/block=%d/zeros=%t", c.bits, c.block, c.zeros), func(b *testing.B) {
			t := threads(b, runtime.NumCPU())
			n := qwen(b, c.bits, c.block, c.zeros, c.scales, t)
			r := rand.New(rand.NewPCG(3, 4))
			plenty := make([]uint64, n.bytes/8)
			for i := range plenty {
				plenty[i] = uint64(i)
			}
			rows := []int{1, 2, 3, 4, 5, 6, 8, 16, 32, 128, 512}
			const most = 512
			buffer := &buffers{x: activations(r, most, n.hidden), q: make([]float32, most*n.hidden), k: make([]float32, most*n.kv),
				v: make([]float32, most*n.kv), inner: make([]float32, most*n.inner), logits: make([]float32, 16*n.vocab)}
			times := map[int][]time.Duration{}
			measure := func(rows int, f func()) {
				start := time.Now()
				f()
				times[rows] = append(times[rows], time.Since(start))
			}
			for round := range 11 {
				measure(0, func() { t.Read(plenty) })
				for _, rows := range rows {
					if rows <= 16 || round < 3 {
						measure(rows, func() { n.pass(buffer, rows, t) })
					}
				}
			}
			floor, one := median(times[0]), median(times[1])
			var table strings.Builder
			fmt.Fprintf(&table, "%s, %s, %d threads; %d MB packed in %.2f s; read in %.1f ms, %.1f GB/s\n", processor(), kernels.Best(),
				runtime.NumCPU(), n.bytes/1e6, n.packing.Seconds(), ms(floor), float64(n.bytes)/1e9/floor.Seconds())
			fmt.Fprintf(&table, "%6s %9s %9s %9s %9s %9s\n", "rows", "ms", "GB/s", "/ floor", "/ 1 row", "rows/s")
			for _, rows := range rows {
				d := median(times[rows])
				fmt.Fprintf(&table, "%6d %9.1f %9.1f %9.2f %9.2f %9.0f\n", rows, ms(d), float64(n.bytes)/1e9/d.Seconds(),
					d.Seconds()/floor.Seconds(), d.Seconds()/one.Seconds(), float64(rows)/d.Seconds())
			}
			fmt.Print("\n", table.String()) // a log of a benchmark is cut after ten lines
			b.ReportMetric(one.Seconds()/floor.Seconds(), "1row/floor")
			b.ReportMetric(median(times[5]).Seconds()/one.Seconds(), "5rows/1row")
			b.ReportMetric(median(times[8]).Seconds()/one.Seconds(), "8rows/1row")
			b.ReportMetric(median(times[16]).Seconds()/one.Seconds(), "16rows/1row")
			b.ReportMetric(0, "ns/op")
		})
	}
}

func ms(d time.Duration) float64 { return d.Seconds() * 1e3 }
