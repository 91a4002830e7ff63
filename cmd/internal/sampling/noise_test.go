package sampling

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/yalue/onnxruntime_go"
	"google.golang.org/protobuf/proto"

	"github.com/draftmill/draftmill/ort"
	"github.com/draftmill/draftmill/ort/graph"
	"github.com/draftmill/draftmill/spec"
)

// noiseNear is how far the device's exponential numbers are from spec's, relative to
// them.
const noiseNear = 1e-6

// noiseRun is what the graph of the noise makes for some positions.
type noiseRun struct {
	groups, first, tokens []int64 // [position][group or token]
	noise, exponential    []float32
}

// tensor is a tensor of the runtime that lives as long as the test.
func tensor[T onnxruntime_go.TensorData](t *testing.T, data []T, shape ...int64) *onnxruntime_go.Tensor[T] {
	t.Helper()
	x, err := onnxruntime_go.NewTensor(onnxruntime_go.NewShape(shape...), data)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := x.Destroy(); err != nil {
			t.Error(err)
		}
	})
	return x
}

func runNoise(t *testing.T, o ort.Options, vocab int, positions []spec.Noise, bits []int64) noiseRun {
	t.Helper()
	data, err := proto.Marshal(graph.NewNoise(vocab))
	if err != nil {
		t.Fatal(err)
	}
	options, err := onnxruntime_go.NewSessionOptions()
	if err != nil {
		t.Fatal(err)
	}
	defer options.Destroy()
	err = options.SetIntraOpNumThreads(1)
	switch o.Device {
	case "webgpu":
		err = errors.Join(err, options.AppendExecutionProvider("WebGPU", nil))
	case "cuda":
		cuda, e := onnxruntime_go.NewCUDAProviderOptions()
		if e != nil {
			t.Fatal(e)
		}
		defer cuda.Destroy()
		err = errors.Join(err, options.AppendExecutionProviderCUDA(cuda))
	}
	if err != nil {
		t.Fatal(err)
	}
	s, err := onnxruntime_go.NewDynamicAdvancedSessionWithONNXData(data,
		[]string{graph.SamplerCounter, graph.SamplerKeys, graph.NoiseUniforms},
		[]string{graph.NoiseGroups, graph.NoiseFirst, graph.NoiseTokens, graph.NoiseOut, graph.NoiseExponential}, options)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Destroy()
	n, groups := len(positions), (vocab+31)/32
	counters, keys := make([]int64, n), make([]int64, n*graph.NoiseKeys)
	for i, p := range positions {
		counters[i] = graph.Noise(p, keys[i*graph.NoiseKeys:(i+1)*graph.NoiseKeys])
	}
	out := noiseRun{make([]int64, n*groups), make([]int64, n*groups), make([]int64, n*vocab), make([]float32, n*vocab), make([]float32, len(bits))}
	rows := int64(n)
	if err := s.Run(
		[]onnxruntime_go.Value{tensor(t, counters, rows, 1), tensor(t, keys, rows, graph.NoiseKeys), tensor(t, bits, 1, int64(len(bits)))},
		[]onnxruntime_go.Value{
			tensor(t, out.groups, rows, int64(groups)), tensor(t, out.first, rows, int64(groups)), tensor(t, out.tokens, rows, int64(vocab)),
			tensor(t, out.noise, rows, int64(vocab)), tensor(t, out.exponential, 1, int64(len(bits))),
		}); err != nil {
		t.Fatal(err)
	}
	return out
}

// block is the 53 bits of a number of the noise, by spec: the coin that has the same
// counter and key.
func block(n spec.Noise, index, place int) int64 {
	coins := spec.Coins{Seed: uint64(n[1])<<32 | uint64(n[0]), Row: uint64(place)<<32 | uint64(index), Sample: n[3] >> 8}
	return int64(coins.Uniform(spec.Purpose(n[3]), int(n[2])) * 0x1p53)
}

// TestNoise: the device's noise is made of the very integers of spec's, for seeds,
// rows, samples and positions of all sizes and vocabularies that groups and blocks do
// not divide, and its exponential numbers are spec's to float32.
func TestNoise(t *testing.T) {
	eachDevice(t, func(t *testing.T, o ort.Options) {
		r := rand.New(rand.NewPCG(9, 1))
		compared, worst := 0, 0.0
		near := func(what string, got float32, want float64) {
			off := math.Abs(float64(got) - want)
			if want > 0 {
				off /= want
			}
			if !(off <= noiseNear) {
				t.Errorf("%s: %g is %g off, want %g", what, got, off, want)
			}
			worst = max(worst, off)
		}
		vocabs := []int{1, 2, 31, 32, 33, 97, 1001, 4099}
		if o.Device == "webgpu" {
			vocabs = []int{1, 33, 1001}
		}
		bits := []int64{0, 1, 2, 3, 1<<52 - 1, 1 << 52, 1<<52 + 1, 1<<53 - 1, 1<<53 - 2, 1<<53 - 3}
		for k := range 53 {
			for range 40 {
				x := r.Int64N(1<<k) + 1<<k
				bits = append(bits, min(x, 1<<53-1), max(1<<53-x, 0))
			}
		}
		for _, vocab := range vocabs {
			positions := []spec.Noise{
				spec.Coins{}.Noise(0),
				spec.Coins{Seed: math.MaxUint64, Row: math.MaxUint64, Sample: spec.MaxSamples - 1}.Noise(math.MaxInt32),
			}
			for range 3 {
				positions = append(positions, spec.Coins{Seed: r.Uint64(), Row: r.Uint64() >> r.IntN(64), Sample: r.Uint32() >> 8}.Noise(r.IntN(1<<20)))
			}
			got := runNoise(t, o, vocab, positions, bits)
			groups := (vocab + 31) / 32
			for i, n := range positions {
				for g := range groups {
					if got.groups[i*groups+g] != block(n, g, 0) {
						t.Fatalf("vocabulary %d, position %d, group %d: bits %d, want %d", vocab, i, g, got.groups[i*groups+g], block(n, g, 0))
					}
					// The id that has it may lie outside of the vocabulary, in its last group.
					first, least := got.first[i*groups+g], 32*g
					for x := 32 * g; x < 32*g+32; x++ {
						if n.At(int32(x)) < n.At(int32(least)) {
							least = x
						}
					}
					if first != int64(least) {
						t.Fatalf("vocabulary %d, position %d, group %d: token %d is first, want %d", vocab, i, g, first, least)
					}
				}
				for x := range vocab {
					if got.tokens[i*vocab+x] != block(n, x, 1) {
						t.Fatalf("vocabulary %d, position %d, token %d: bits %d, want %d", vocab, i, x, got.tokens[i*vocab+x], block(n, x, 1))
					}
					near("noise", got.noise[i*vocab+x], n.At(int32(x)))
				}
				compared += groups + vocab
			}
			for i, x := range got.exponential {
				near("exponential", x, -math.Log1p(-float64(bits[i])*0x1p-53))
			}
		}
		t.Logf("%d numbers of the noise are made of spec's integers; exponentials are %.2g off at most, relative to them", compared, worst)
	})
}
