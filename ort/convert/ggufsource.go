package convert

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"regexp"

	"github.com/draftmill/draftmill/ort/convert/gguf"
)

// A GGUF file, or the parts of one, as llama.cpp's converter writes it.

var ggufNames = map[role]string{
	embedding: "token_embd", positionTable: "position_embd", finalNorm: "output_norm", head: "output",
	inputNorm: "blk.%d.attn_norm", mlpNorm: "blk.%d.ffn_norm",
	query: "blk.%d.attn_q", keyRole: "blk.%d.attn_k", valueRole: "blk.%d.attn_v", queryKeyValue: "blk.%d.attn_qkv",
	attentionOutput: "blk.%d.attn_output", queryNorm: "blk.%d.attn_q_norm", keyNorm: "blk.%d.attn_k_norm",
	attentionNorm: "blk.%d.post_attention_norm", outputNorm: "blk.%d.post_ffw_norm",
	gate: "blk.%d.ffn_gate", up: "blk.%d.ffn_up", down: "blk.%d.ffn_down",
}

// Tables for rotary embeddings are read by their names.
const (
	ropeDivisors = "rope_freqs.weight"
	ropeShort    = "rope_factors_short.weight"
)

var ggufUseless = regexp.MustCompile(`^rope_(freqs|factors_(short|long))\.weight$|\.attn_rot_embd$`)

func openGGUF(path string) (_ *source, err error) {
	f, err := gguf.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	m, err := ggufModel(f)
	if err != nil {
		return nil, fmt.Errorf("metadata: %w", err)
	}
	tokens, err := readVocabulary(f.Metadata, m.vocab)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	s := &source{
		model: m, kind: "GGUF file", names: ggufNames, tensors: f.Tensors, useless: ggufUseless, used: map[string]bool{}, close: f.Close,
		permuted: m.family == "llama" || m.family == "smollm3",
		writeTokenizer: func(dir string) error {
			data, err := tokens.json()
			if err == nil {
				err = writeFile(filepath.Join(dir, "tokenizer.json"), data)
			}
			if err != nil {
				return err
			}
			return tokens.writeConfig(dir)
		},
	}
	if m.family == "phi3" { // both halves of the MLP's input are in one
		s.names = with(ggufNames, map[role]string{gateUp: "blk.%d.ffn_up", gate: "", up: ""})
	}
	m.tied = f.Tensors["output.weight"] == nil
	return s, nil
}

// ggufModel is what the metadata say.
func ggufModel(f *gguf.File) (*model, error) {
	meta := f.Metadata
	if kind := meta.Text("general.type"); kind != "" && kind != "model" {
		return nil, fmt.Errorf("no model, but what is added to one (general.type %q)", kind)
	}
	family := meta.Text("general.architecture")
	a, err := familyOf(family)
	if err != nil {
		return nil, err
	}
	if n, _ := meta.Int(family + ".expert_count"); n > 0 {
		return nil, fmt.Errorf("a mixture of %d experts, which is not supported", n)
	}
	a.normOffset = false // the converter has added it
	number := func(key string) int {
		n, _ := meta.Int(family + "." + key)
		return n
	}
	float := func(key string) float64 {
		x, _ := meta.Float(family + "." + key)
		return x
	}
	m := &model{
		family: family, architecture: a, name: meta.Text("general.name"), license: meta.Text("general.license"),
		context: number("context_length"), hidden: number("embedding_length"), layers: number("block_count"), inner: number("feed_forward_length"),
		heads: number("attention.head_count"), kvHeads: number("attention.head_count_kv"), headSize: number("attention.key_length"),
		epsilon: float("attention.layer_norm_rms_epsilon"), attentionCap: float("attn_logit_softcapping"), logitCap: float("final_logit_softcapping"),
		bos: -1, pad: -1,
	}
	if a.layerNorm {
		m.epsilon = float("attention.layer_norm_epsilon")
	}
	if t := f.Tensors["token_embd.weight"]; t != nil {
		m.vocab = t.Rows()
	} else {
		return nil, errors.New("tensor token_embd.weight is missing")
	}
	if m.layers < 1 || m.layers > maxLayers {
		return nil, fmt.Errorf("%s.block_count %d", family, m.layers)
	}
	m.ids(meta)
	if n := number("attention.value_length"); n != 0 && m.headSize != 0 && n != m.headSize {
		return nil, fmt.Errorf("keys of size %d and values of size %d are not supported", m.headSize, n)
	}
	if family == "gemma2" {
		m.embeddingScale = math.Sqrt(float64(m.hidden))
		if m.layers == 46 && m.heads > 0 { // of 27B parameters, whose scale the file does not tell
			m.attentionScale = 1 / math.Sqrt(float64(m.hidden/m.heads))
		}
	}
	if w := number("attention.sliding_window"); w > 0 && w < m.context {
		for i := range m.layers {
			if family == "gemma2" && i%2 == 1 {
				w = 0
			} else {
				w = number("attention.sliding_window")
			}
			m.windows = append(m.windows, w)
		}
	}
	if family == "smollm3" {
		for i := range m.layers {
			m.still = append(m.still, (i+1)%4 == 0)
		}
	}
	if !a.positions {
		if err := ggufRotary(f, m, number, float); err != nil {
			return nil, err
		}
	}
	return m, m.check()
}

// ids reads the tokens that begin and end a text.
func (m *model) ids(meta gguf.Metadata) {
	if id, ok := meta.Int("tokenizer.ggml.bos_token_id"); ok {
		m.bos = id
	}
	if id, ok := meta.Int("tokenizer.ggml.padding_token_id"); ok && id < m.vocab {
		m.pad = id
	}
	for _, key := range []string{"eos", "eot", "eom"} {
		id, ok := meta.Int("tokenizer.ggml." + key + "_token_id")
		for _, known := range m.eos {
			ok = ok && id != known
		}
		if ok {
			m.eos = append(m.eos, id)
		}
	}
}

func ggufRotary(f *gguf.File, m *model, number func(string) int, float func(string) float64) error {
	r := &m.rotary
	*r = rotary{base: float("rope.freq_base"), factor: float("rope.scaling.factor"), trained: number("rope.scaling.original_context_length"), magnitude: float("rope.scaling.attn_factor"), fast: 32, slow: 1}
	if r.base == 0 {
		r.base = 10000
	}
	size := m.headSize
	if size == 0 && m.heads > 0 {
		size = m.hidden / m.heads
	}
	if n := number("rope.dimension_count"); n != 0 && n != size {
		return fmt.Errorf("rotary embeddings of %d of %d dimensions are not supported", n, size)
	}
	switch kind := f.Metadata.Text(m.family + ".rope.scaling.type"); kind {
	case "", "none", "longrope":
	case "linear", "yarn":
		r.kind = kind
		if kind == "yarn" {
			r.magnitude = 0 // attn_factor is beside what YaRN itself asks for
			if x := float("rope.scaling.attn_factor"); x > 0 && x != 1 && r.factor > 1 {
				r.magnitude = x * (0.1*math.Log(r.factor) + 1)
			}
		}
	default:
		return fmt.Errorf("rotary embeddings scaled by %q are not supported; linear, yarn and longrope are", kind)
	}
	if t := f.Tensors[ropeDivisors]; t != nil { // Llama 3's scaling, worked out
		r.divisors = t.Floats()[:min(t.Cols(), 1<<10)]
	}
	if t := f.Tensors[ropeShort]; t != nil {
		if r.trained < 1 {
			return errors.New("tables for long texts without rope.scaling.original_context_length")
		}
		r.kind, r.divisors = "longrope", t.Floats()[:min(t.Cols(), 1<<10)]
		longContext(m)
	}
	return nil
}
