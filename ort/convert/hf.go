package convert

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/draftmill/draftmill/ort/convert/safetensors"
)

// A Hugging Face folder: config.json, safetensors, tokenizer.json.

// llamaNames are what most checkpoints call their tensors.
var llamaNames = map[role]string{
	embedding: "model.embed_tokens", finalNorm: "model.norm", head: "lm_head",
	inputNorm: "model.layers.%d.input_layernorm", mlpNorm: "model.layers.%d.post_attention_layernorm",
	query: "model.layers.%d.self_attn.q_proj", keyRole: "model.layers.%d.self_attn.k_proj", valueRole: "model.layers.%d.self_attn.v_proj",
	queryKeyValue: "model.layers.%d.self_attn.qkv_proj", attentionOutput: "model.layers.%d.self_attn.o_proj",
	queryNorm: "model.layers.%d.self_attn.q_norm", keyNorm: "model.layers.%d.self_attn.k_norm",
	gate: "model.layers.%d.mlp.gate_proj", up: "model.layers.%d.mlp.up_proj", gateUp: "model.layers.%d.mlp.gate_up_proj", down: "model.layers.%d.mlp.down_proj",
}

var gemmaNames = with(llamaNames, map[role]string{
	attentionNorm: "model.layers.%d.post_attention_layernorm",
	mlpNorm:       "model.layers.%d.pre_feedforward_layernorm", outputNorm: "model.layers.%d.post_feedforward_layernorm",
})

var gpt2Names = map[role]string{
	embedding: "transformer.wte", positionTable: "transformer.wpe", finalNorm: "transformer.ln_f", head: "lm_head",
	inputNorm: "transformer.h.%d.ln_1", mlpNorm: "transformer.h.%d.ln_2",
	queryKeyValue: "transformer.h.%d.attn.c_attn", attentionOutput: "transformer.h.%d.attn.c_proj",
	up: "transformer.h.%d.mlp.c_fc", down: "transformer.h.%d.mlp.c_proj",
}

func with(names, more map[role]string) map[role]string {
	all := map[role]string{}
	for r, name := range names {
		all[r] = name
	}
	for r, name := range more {
		all[r] = name
	}
	return all
}

var hfUseless = regexp.MustCompile(`rotary_emb\.inv_freq$|\.attn\.(masked_)?bias$|\.(input|activation|k|v)_scale$`)

// numbers reads a number, or a list of numbers, or null.
type numbers []float64

// UnmarshalJSON implements json.Unmarshaler.
func (n *numbers) UnmarshalJSON(data []byte) error {
	var one *float64
	if json.Unmarshal(data, &one) == nil {
		*n = nil
		if one != nil {
			*n = numbers{*one}
		}
		return nil
	}
	return json.Unmarshal(data, (*[]float64)(n))
}

func (n numbers) ids() (ids []int) {
	for _, x := range n {
		ids = append(ids, int(x))
	}
	return ids
}

// hfRope is rope_parameters, or rope_scaling of older files.
type hfRope struct {
	Type      string   `json:"rope_type"`
	OldType   string   `json:"type"`
	Theta     float64  `json:"rope_theta"`
	Factor    float64  `json:"factor"`
	Original  int      `json:"original_max_position_embeddings"`
	Low       float64  `json:"low_freq_factor"`
	High      float64  `json:"high_freq_factor"`
	Fast      *float64 `json:"beta_fast"`
	Slow      *float64 `json:"beta_slow"`
	Attention float64  `json:"attention_factor"`
	MScale    float64  `json:"mscale"`
	MScaleAll float64  `json:"mscale_all_dim"`
	Truncate  *bool    `json:"truncate"`
	Short     numbers  `json:"short_factor"`
	Partial   *float64 `json:"partial_rotary_factor"`
}

// hfConfig is config.json, as far as it matters.
type hfConfig struct {
	Type          string   `json:"model_type"`
	Architectures []string `json:"architectures"`

	Vocab     int     `json:"vocab_size"`
	Positions int     `json:"max_position_embeddings"`
	Hidden    int     `json:"hidden_size"`
	Layers    int     `json:"num_hidden_layers"`
	Inner     int     `json:"intermediate_size"`
	Heads     int     `json:"num_attention_heads"`
	KVHeads   int     `json:"num_key_value_heads"`
	HeadDim   int     `json:"head_dim"`
	RMSEps    float64 `json:"rms_norm_eps"`
	Act       string  `json:"hidden_act"`
	GemmaAct  string  `json:"hidden_activation"`

	NPositions int     `json:"n_positions"` // GPT-2's names
	NEmbd      int     `json:"n_embd"`
	NLayer     int     `json:"n_layer"`
	NHead      int     `json:"n_head"`
	NInner     int     `json:"n_inner"`
	LayerEps   float64 `json:"layer_norm_epsilon"`
	GPT2Act    string  `json:"activation_function"`
	ByLayer    bool    `json:"scale_attn_by_inverse_layer_idx"`
	ScaleAttn  *bool   `json:"scale_attn_weights"`

	Theta    float64  `json:"rope_theta"`
	Scaling  *hfRope  `json:"rope_scaling"`
	Rope     *hfRope  `json:"rope_parameters"`
	Original int      `json:"original_max_position_embeddings"`
	Partial  *float64 `json:"partial_rotary_factor"`
	NoRope   []int    `json:"no_rope_layers"`
	NoRopeBy int      `json:"no_rope_layer_interval"`

	Window     *int     `json:"sliding_window"`
	UseWindow  *bool    `json:"use_sliding_window"`
	MaxWindow  int      `json:"max_window_layers"`
	LayerTypes []string `json:"layer_types"`

	QueryScalar float64  `json:"query_pre_attn_scalar"`
	AttnCap     *float64 `json:"attn_logit_softcapping"`
	LogitCap    *float64 `json:"final_logit_softcapping"`

	Tied  *bool   `json:"tie_word_embeddings"`
	BOS   numbers `json:"bos_token_id"`
	EOS   numbers `json:"eos_token_id"`
	Pad   numbers `json:"pad_token_id"`
	Quant *struct {
		Method string `json:"quant_method"`
		Format string `json:"format"`
	} `json:"quantization_config"`
}

func readJSON(path string, to any) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.Size() > 1<<26 {
		return fmt.Errorf("read %s: %d bytes are too many", path, info.Size())
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, to); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return nil
}

func openFolder(dir string) (*source, error) {
	var c hfConfig
	if err := readJSON(filepath.Join(dir, "config.json"), &c); err != nil {
		return nil, err
	}
	var g struct {
		BOS numbers `json:"bos_token_id"`
		EOS numbers `json:"eos_token_id"`
		Pad numbers `json:"pad_token_id"`
	}
	if err := readJSON(filepath.Join(dir, "generation_config.json"), &g); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	// Where generation_config.json says something, it decides.
	for _, ids := range []struct{ from, to *numbers }{{&g.BOS, &c.BOS}, {&g.EOS, &c.EOS}, {&g.Pad, &c.Pad}} {
		if len(*ids.from) > 0 {
			*ids.to = *ids.from
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "tokenizer.json")); err != nil {
		return nil, fmt.Errorf("no tokenizer.json in %s: save the tokenizer there with tokenizers or transformers, or import a GGUF file, which has its own", dir)
	}
	m, err := c.model()
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", filepath.Join(dir, "config.json"), err)
	}
	m.license = licenseOf(dir)
	folder, err := safetensors.OpenFolder(dir)
	if err != nil {
		return nil, err
	}
	s := &source{
		model: m, kind: "Hugging Face folder", names: llamaNames, tensors: folder.Tensors, unread: folder.Unread,
		offset: m.normOffset, useless: hfUseless, used: map[string]bool{}, close: folder.Close,
	}
	switch m.family {
	case "gemma2":
		s.names = gemmaNames
	case "gpt2":
		s.names, s.columns = gpt2Names, true
		if s.tensors["wte.weight"] != nil { // saved without its head
			s.names = map[role]string{}
			for r, name := range gpt2Names {
				s.names[r] = strings.TrimPrefix(name, "transformer.")
			}
		}
	}
	hasHead := s.tensors["lm_head.weight"] != nil
	m.tied = c.Tied != nil && *c.Tied || c.Tied == nil && !hasHead
	if m.tied {
		s.used["lm_head.weight"] = true // a copy
	}
	return s, nil
}

// model is what the configuration says.
func (c *hfConfig) model() (*model, error) {
	a, err := familyOf(c.Type)
	if err != nil {
		return nil, err
	}
	if q := c.Quant; q != nil && q.Method != "fp8" && !(q.Method == "compressed-tensors" && q.Format == "float-quantized") {
		return nil, fmt.Errorf("the checkpoint is quantized already (%s), which is not supported; take the original one, or a GGUF file", strings.TrimSpace(q.Method+" "+q.Format))
	}
	m := &model{
		family: c.Type, architecture: a,
		vocab: c.Vocab, context: max(c.Positions, c.NPositions), hidden: max(c.Hidden, c.NEmbd), layers: max(c.Layers, c.NLayer), inner: max(c.Inner, c.NInner),
		heads: max(c.Heads, c.NHead), kvHeads: c.KVHeads, headSize: c.HeadDim, epsilon: max(c.RMSEps, c.LayerEps),
		bos: -1, pad: -1, eos: c.EOS.ids(),
	}
	if len(c.BOS) > 0 {
		m.bos = int(c.BOS[0])
	}
	if len(c.Pad) > 0 {
		m.pad = int(c.Pad[0])
	}
	if m.inner == 0 && c.Type == "gpt2" {
		m.inner = 4 * m.hidden
	}
	if m.epsilon == 0 {
		m.epsilon = map[string]float64{"gpt2": 1e-5, "phi3": 1e-5, "mistral": 1e-6}[c.Type]
		if m.epsilon == 0 {
			m.epsilon = 1e-6
		}
	}
	if err := c.activation(m); err != nil {
		return nil, err
	}
	if c.ByLayer || c.ScaleAttn != nil && !*c.ScaleAttn {
		return nil, errors.New("attention scaled by layer, or not at all, is not supported")
	}
	if c.QueryScalar > 0 {
		m.attentionScale = 1 / math.Sqrt(c.QueryScalar)
	}
	if c.AttnCap != nil {
		m.attentionCap = *c.AttnCap
	}
	if c.LogitCap != nil {
		m.logitCap = *c.LogitCap
	}
	if c.Type == "gemma2" {
		m.embeddingScale = math.Sqrt(float64(m.hidden))
	}
	if m.layers > maxLayers || m.layers < 1 {
		return nil, fmt.Errorf("number of layers %d", m.layers)
	}
	c.windows(m)
	if len(c.NoRope) > 0 || c.Type == "smollm3" {
		by := max(c.NoRopeBy, 0)
		if by == 0 {
			by = 4
		}
		for i := range m.layers {
			still := (i+1)%by == 0
			if i < len(c.NoRope) {
				still = c.NoRope[i] == 0
			}
			m.still = append(m.still, still)
		}
	}
	if !a.positions {
		if err := c.rotary(m); err != nil {
			return nil, err
		}
	}
	return m, m.check()
}

func (c *hfConfig) activation(m *model) error {
	name := c.Act
	for _, other := range []string{c.GemmaAct, c.GPT2Act} {
		if other != "" {
			name = other
		}
	}
	want := map[activation][]string{silu: {"", "silu", "swish"}, geluTanh: {"", "gelu_pytorch_tanh", "gelu_new", "gelu_fast"}}[m.activation]
	for _, known := range want {
		if name == known {
			return nil
		}
	}
	if c.Type == "gemma2" && name == "gelu" && c.GemmaAct == "" {
		return nil // early files; what they mean is the other
	}
	return fmt.Errorf("activation %q is not supported in %s; %s are", name, c.Type, strings.Join(want[1:], ", "))
}

// windows reads sliding windows.
func (c *hfConfig) windows(m *model) {
	if c.Window == nil || *c.Window <= 0 || c.UseWindow != nil && !*c.UseWindow || *c.Window >= m.context {
		return
	}
	for i := range m.layers {
		slides := true
		switch {
		case i < len(c.LayerTypes):
			slides = c.LayerTypes[i] == "sliding_attention"
		case c.Type == "gemma2":
			slides = i%2 == 0
		case c.Type == "qwen2" || c.Type == "qwen3":
			slides = c.UseWindow != nil && i >= c.MaxWindow
		case c.Type == "llama" || c.Type == "smollm3":
			slides = false
		}
		w := 0
		if slides {
			w = *c.Window
		}
		m.windows = append(m.windows, w)
	}
}

// rotary reads rotary embeddings. Where texts longer than those of training get
// other tables, the context ends there: a table that changes between two tokens
// would make verifying a draft another computation than decoding.
func (c *hfConfig) rotary(m *model) error {
	p := hfRope{}
	for _, from := range []*hfRope{c.Scaling, c.Rope} {
		if from != nil {
			p = *from
		}
	}
	if p.Type == "" {
		p.Type = p.OldType
	}
	if p.Theta == 0 {
		p.Theta = c.Theta
	}
	if p.Theta == 0 {
		p.Theta = 10000
	}
	for _, part := range []*float64{p.Partial, c.Partial} {
		if part != nil && *part != 1 {
			return fmt.Errorf("rotary embeddings of a part of each head (%g) are not supported", *part)
		}
	}
	if p.Original == 0 {
		p.Original = c.Original
	}
	r := &m.rotary
	*r = rotary{base: p.Theta, kind: p.Type, factor: p.Factor, trained: p.Original, lowFactor: p.Low, highFactor: p.High, fast: 32, slow: 1, magnitude: p.Attention}
	switch p.Type {
	case "default":
		r.kind = ""
	case "su":
		r.kind = "longrope"
	case "yarn":
		if r.trained == 0 {
			r.trained = m.context
		}
		if p.Fast != nil {
			r.fast = *p.Fast
		}
		if p.Slow != nil {
			r.slow = *p.Slow
		}
		r.exact = p.Truncate != nil && !*p.Truncate
		if p.MScale > 0 && p.MScaleAll > 0 && r.magnitude == 0 && r.factor > 1 {
			r.magnitude = (0.1*p.MScale*math.Log(r.factor) + 1) / (0.1*p.MScaleAll*math.Log(r.factor) + 1)
		}
	}
	if r.kind == "longrope" {
		if r.trained < 1 || len(p.Short) == 0 {
			return errors.New("rotary embeddings scaled (longrope) without original_max_position_embeddings or short_factor")
		}
		for _, x := range p.Short {
			r.divisors = append(r.divisors, float32(x))
		}
		longContext(m)
	}
	return nil
}

// longContext ends the context where long texts begin. The magnitude is of the
// whole context.
func longContext(m *model) {
	r := &m.rotary
	if scale := float64(m.context) / float64(r.trained); scale > 1 && r.magnitude == 0 && r.trained > 1 {
		r.magnitude = math.Sqrt(1 + math.Log(scale)/math.Log(float64(r.trained)))
	}
	m.context = min(m.context, r.trained)
}

var licenseLine = regexp.MustCompile(`(?m)^license:\s*"?([^"\n]+?)"?\s*$`)

// licenseOf is the license that the model card names, or "".
func licenseOf(dir string) string {
	data, err := os.ReadFile(filepath.Join(dir, "README.md"))
	if err != nil || !strings.HasPrefix(string(data), "---") {
		return ""
	}
	head, _, _ := strings.Cut(string(data[3:]), "\n---")
	if m := licenseLine.FindStringSubmatch(head); m != nil {
		return m[1]
	}
	return ""
}
