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
