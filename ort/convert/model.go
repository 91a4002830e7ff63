package convert

import (
	"fmt"
	"math"
	"slices"
)

// model is a decoder-only transformer: what its architecture fixes and what its
// configuration says.
type model struct {
	family string // the architecture's name, "llama"

	vocab, context, hidden, layers, inner int
	heads, kvHeads, headSize              int
	epsilon                               float64

	architecture
	rotary         rotary
	windows        []int   // of attention by layer, 0: none
	still          []bool  // by layer: no rotary embedding
	attentionScale float64 // of q k
	attentionCap   float64 // softcap of q k, 0: none
	logitCap       float64
	embeddingScale float64 // 1: none
	tied           bool    // the head is the embeddings

	bos     int // -1: none
	eos     []int
	pad     int
	license string
	name    string
}

// architecture is what the family alone decides.
type architecture struct {
	layerNorm  bool // with mean and bias, not the root of mean squares
	normOffset bool // a checkpoint's norm weights are relative to 1
	sandwich   bool // norms behind attention and MLP, too
	qkNorm     bool // queries and keys are normalized by head
	positions  bool // learned positions, no rotary embedding
	activation activation
	ungated    bool // one projection up, not two
}

type activation int

const (
	silu activation = iota
	geluTanh
)

// architectures are the families that can be imported, by their names in
// config.json and in GGUF files (general.architecture), which agree but for
// Mistral, whose GGUF files say llama.
var architectures = map[string]architecture{
	"llama":   {}, // SmolLM2 and TinyLlama, too
	"mistral": {},
	"qwen2":   {},
	"qwen3":   {qkNorm: true},
	"smollm3": {},
	"phi3":    {},
	"gemma2":  {normOffset: true, sandwich: true, activation: geluTanh},
	"gpt2":    {layerNorm: true, positions: true, activation: geluTanh, ungated: true},
}

const families = "Llama 1 to 3.x (with SmolLM2 and TinyLlama), Mistral, Qwen2 and 2.5, Qwen3, SmolLM3, Phi-3, Gemma 2 and GPT-2"

// familyOf finds an architecture.
func familyOf(name string) (architecture, error) {
	a, ok := architectures[name]
	if !ok {
		return a, fmt.Errorf("architecture %q is not supported; %s are; export it with onnxruntime-genai's model builder or Optimum", name, families)
	}
	return a, nil
}

// Limits of what can be true of a model; sizes are multiplied later on.
const (
	maxSize   = 1 << 24
	maxLayers = 1 << 12
)

// check refuses what cannot be, and fills in what follows from the rest.
func (m *model) check() error {
	if m.kvHeads == 0 {
		m.kvHeads = m.heads
	}
	if m.headSize == 0 && m.heads > 0 {
		m.headSize = m.hidden / m.heads
	}
	for _, f := range []struct {
		name      string
		value, to int
	}{
		{"vocabulary", m.vocab, maxSize}, {"context length", m.context, maxSize}, {"hidden size", m.hidden, maxSize},
		{"number of layers", m.layers, maxLayers}, {"size of the MLP", m.inner, maxSize}, {"number of heads", m.heads, maxSize},
		{"number of KV heads", m.kvHeads, maxSize}, {"head size", m.headSize, 1 << 10},
	} {
		if f.value < 1 || f.value > f.to {
			return fmt.Errorf("%s %d, from 1 to %d is possible", f.name, f.value, f.to)
		}
	}
	switch {
	case m.heads%m.kvHeads != 0:
		return fmt.Errorf("%d heads cannot share %d KV heads", m.heads, m.kvHeads)
	case m.heads*m.headSize > maxSize:
		return fmt.Errorf("%d heads of size %d", m.heads, m.headSize)
	case m.headSize%8 != 0:
		return fmt.Errorf("a head size of %d, which attention on ONNX Runtime cannot do: it must be a multiple of 8", m.headSize)
	case !(m.epsilon > 0 && m.epsilon < 1):
		return fmt.Errorf("norms with epsilon %g", m.epsilon)
	case m.bos >= m.vocab || m.bos < -1:
		return fmt.Errorf("token id %d is outside the vocabulary of %d", m.bos, m.vocab)
	}
	for _, id := range m.eos {
		if id < 0 || id >= m.vocab {
			return fmt.Errorf("token id %d is outside the vocabulary of %d", id, m.vocab)
		}
	}
	if m.attentionScale == 0 {
		m.attentionScale = 1 / math.Sqrt(float64(m.headSize))
	}
	if m.embeddingScale == 0 {
		m.embeddingScale = 1
	}
	for len(m.windows) < m.layers {
		m.windows = append(m.windows, 0)
	}
	for len(m.still) < m.layers {
		m.still = append(m.still, m.positions)
	}
	for _, x := range []float64{m.attentionScale, m.attentionCap, m.logitCap, m.embeddingScale} {
		if math.IsNaN(x) || math.IsInf(x, 0) || x < 0 {
			return fmt.Errorf("a scale or cap of %g", x)
		}
	}
	if !m.positions && slices.Contains(m.still, false) {
		return m.rotary.check(m.headSize)
	}
	return nil
}

// rotary is how positions turn queries and keys (Su et al. 2021, RoFormer), with
// the ways of reaching beyond the length of training that checkpoints use.
type rotary struct {
	base    float64
	kind    string  // "", or: linear, llama3, yarn, longrope
	factor  float64 // of the context
	trained int     // tokens of a sequence in training: original_max_position_embeddings

	lowFactor, highFactor float64   // llama3
	fast, slow            float64   // yarn: rotations beyond which nothing, or everything, is interpolated
	exact                 bool      // yarn: bounds are not rounded to whole dimensions
	magnitude             float64   // of cosines and sines, 0: as the kind says, which for longrope is 1
	divisors              []float32 // of each frequency; given by the file (GGUF), or longrope's short ones
}

func (r *rotary) check(headSize int) error {
	if !(r.base > 1) || math.IsInf(r.base, 0) {
		return fmt.Errorf("rotary embeddings with base %g", r.base)
	}
	if n := len(r.divisors); n > 0 && n != headSize/2 {
		return fmt.Errorf("%d factors of rotary embeddings for %d frequencies", n, headSize/2)
	}
	switch r.kind {
	case "", "longrope":
	case "linear", "yarn", "llama3":
		if !(r.factor >= 1) || math.IsInf(r.factor, 0) {
			return fmt.Errorf("rotary embeddings scaled (%s) by a factor of %g", r.kind, r.factor)
		}
		if r.kind != "linear" && r.trained < 1 {
			return fmt.Errorf("rotary embeddings scaled (%s) without original_max_position_embeddings", r.kind)
		}
		if r.kind == "llama3" && !(r.highFactor > r.lowFactor && r.lowFactor > 0) {
			return fmt.Errorf("rotary embeddings scaled (llama3) between %g and %g", r.lowFactor, r.highFactor)
		}
	default:
		return fmt.Errorf("rotary embeddings scaled by %q are not supported; linear, llama3, yarn and longrope are", r.kind)
	}
	for _, d := range r.divisors {
		if !(d > 0) || math.IsInf(float64(d), 0) {
			return fmt.Errorf("a factor of %g of rotary embeddings", d)
		}
	}
	return nil
}

// frequencies are the angles by which a position turns the pairs of a head, and
// the factor of cosines and sines. They are rounded as transformers rounds them,
// to float32.
func (r *rotary) frequencies(headSize int) (angles []float32, magnitude float64) {
	magnitude = 1
	angles = make([]float32, headSize/2)
	for i := range angles {
		f := 1 / float64(float32(math.Pow(r.base, float64(2*i)/float64(headSize))))
		switch r.kind {
		case "linear":
			f /= r.factor
		case "llama3":
			f = r.bend(f)
		case "yarn":
			stay := r.stay(i, headSize)
			f = f/r.factor*(1-stay) + f*stay
		}
		if len(r.divisors) > 0 {
			f /= float64(r.divisors[i])
		}
		angles[i] = float32(f)
	}
	if r.kind == "yarn" && r.factor > 1 {
		magnitude = 0.1*math.Log(r.factor) + 1
	}
	if r.magnitude > 0 {
		magnitude = r.magnitude
	}
	return angles, magnitude
}

// bend is Llama 3's scaling of a frequency: long waves are stretched, short ones
// are not, and those between in part.
func (r *rotary) bend(f float64) float64 {
	wave := 2 * math.Pi / f
	switch trained := float64(r.trained); {
	case wave > trained/r.lowFactor:
		return f / r.factor
	case wave < trained/r.highFactor:
		return f
	default:
		smooth := (trained/wave - r.lowFactor) / (r.highFactor - r.lowFactor)
		return (1-smooth)*f/r.factor + smooth*f
	}
}

// stay is how much of a frequency YaRN leaves as it was (Peng et al. 2023).
func (r *rotary) stay(i, headSize int) float64 {
	bound := func(rotations float64) float64 {
		return float64(headSize) * math.Log(float64(r.trained)/(rotations*2*math.Pi)) / (2 * math.Log(r.base))
	}
	low, high := bound(r.fast), bound(r.slow)
	if !r.exact {
		low, high = math.Floor(low), math.Ceil(high)
	}
	low, high = max(low, 0), min(high, float64(headSize-1))
	if low == high {
		high += 0.001
	}
	return 1 - min(max((float64(i)-low)/(high-low), 0), 1)
}
