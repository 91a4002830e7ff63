package ort

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// modelConfig is what both exporters' configurations say of a model.
type modelConfig struct {
	family   string
	files    []string // where the ONNX file may be, in order of preference
	vocab    int
	context  int
	layers   int
	kvHeads  int
	headSize int
	eos      []int32
	bos      int32
	start    []int32 // of an encoder-decoder model: what its decoder begins with
	source   string  // the file that says it, for errors
}

// tokenIDs reads an id, a list of ids, or null.
type tokenIDs []int32

// UnmarshalJSON implements json.Unmarshaler.
func (t *tokenIDs) UnmarshalJSON(data []byte) error {
	var one *int32
	if err := json.Unmarshal(data, &one); err == nil {
		*t = nil
		if one != nil {
			*t = tokenIDs{*one}
		}
		return nil
	}
	var many []int32
	if err := json.Unmarshal(data, &many); err != nil {
		return errors.New("token ids must be a number or a list of numbers")
	}
	*t = many
	return nil
}

// first is the first id, or -1.
func (t tokenIDs) first() int32 {
	if len(t) == 0 {
		return -1
	}
	return t[0]
}

func readJSON(dir, name string, to any) error {
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, to); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func readGenAI(dir string) (*modelConfig, error) {
	var f struct {
		Model struct {
			BOS     tokenIDs `json:"bos_token_id"`
			EOS     tokenIDs `json:"eos_token_id"`
			Context int      `json:"context_length"`
			Type    string   `json:"type"`
			Vocab   int      `json:"vocab_size"`
			Decoder *struct {
				Filename string `json:"filename"`
				HeadSize int    `json:"head_size"`
				Layers   int    `json:"num_hidden_layers"`
				KVHeads  int    `json:"num_key_value_heads"`
			} `json:"decoder"`
		} `json:"model"`
	}
	if err := readJSON(dir, "genai_config.json", &f); err != nil {
		return nil, err
	}
	d := f.Model.Decoder
	if d == nil {
		return nil, errors.New("genai_config.json: no model.decoder: not a decoder-only text model")
	}
	if d.Filename == "" {
		d.Filename = "model.onnx"
	}
	return &modelConfig{
		family: f.Model.Type, files: []string{d.Filename}, vocab: f.Model.Vocab, context: f.Model.Context,
		layers: d.Layers, kvHeads: d.KVHeads, headSize: d.HeadSize,
		eos: f.Model.EOS, bos: f.Model.BOS.first(), source: "genai_config.json",
	}, nil
}

func readOptimum(dir string) (*modelConfig, error) {
	type generation struct {
		BOS    tokenIDs `json:"bos_token_id"`
		EOS    tokenIDs `json:"eos_token_id"`
		Start  tokenIDs `json:"decoder_start_token_id"` // of encoder-decoder models
		Forced tokenIDs `json:"forced_bos_token_id"`    // the first token behind Start, whatever the logits
	}
	var f struct {
		generation
		Type      string `json:"model_type"`
		Vocab     int    `json:"vocab_size"`
		Positions int    `json:"max_position_embeddings"`
		NPos      int    `json:"n_positions"` // GPT-2's names
		NLayer    int    `json:"n_layer"`
		NHead     int    `json:"n_head"`
		NEmbd     int    `json:"n_embd"`
		Layers    int    `json:"num_hidden_layers"`
		Heads     int    `json:"num_attention_heads"`
		KVHeads   int    `json:"num_key_value_heads"`
		HeadDim   int    `json:"head_dim"`
		Hidden    int    `json:"hidden_size"`
	}
	if err := readJSON(dir, "config.json", &f); err != nil {
		return nil, err
	}
	// generation_config.json is optional and, where it is, decides.
	g := f.generation
	if err := readJSON(dir, "generation_config.json", &g); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	c := &modelConfig{
		family: f.Type, files: []string{"model.onnx", "onnx/model.onnx"}, vocab: f.Vocab,
		context: max(f.Positions, f.NPos), layers: max(f.Layers, f.NLayer),
		kvHeads: f.KVHeads, headSize: f.HeadDim, eos: g.EOS, bos: g.BOS.first(), source: "config.json",
		start: append(g.Start[:len(g.Start):len(g.Start)], g.Forced...),
	}
	heads, hidden := max(f.Heads, f.NHead), max(f.Hidden, f.NEmbd)
	if c.kvHeads == 0 {
		c.kvHeads = heads
	}
	if c.headSize == 0 && heads > 0 {
		c.headSize = hidden / heads
	}
	return c, nil
}
