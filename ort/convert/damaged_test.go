package convert

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// copyT copies a checkpoint.
func copyT(t *testing.T, from string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "model")
	if err := os.CopyFS(dir, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// graphOf opens a model and builds its graph, as an import does before it
// writes anything.
func graphOf(path string) error {
	s, err := open(path)
	if err != nil {
		return err
	}
	defer s.close()
	p, err := Options{}.plan()
	if err == nil {
		_, err = build(s, p)
	}
	return err
}

// TestDamaged: 2,900 files with bytes that are changed, cut off or doubled are
// an error or a model, and never a crash.
func TestDamaged(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	dir := t.TempDir()
	refused := 0
	mutate := func(data []byte, head int) []byte {
		data = append([]byte(nil), data...)
		switch rng.IntN(4) {
		case 0:
			return data[:rng.IntN(len(data))]
		case 1: // a number becomes a huge one
			at := rng.IntN(head)
			for i := range min(8, len(data)-at) {
				data[at+i] = 0xff >> rng.IntN(8)
			}
		case 2:
			at := rng.IntN(head)
			n := min(1+rng.IntN(64), len(data)-at)
			data = append(data[:at+n], data[at:]...)
		}
		for range 1 + rng.IntN(4) {
			if len(data) > 0 {
				data[rng.IntN(min(head, len(data)))] = byte(rng.Uint32())
			}
		}
		return data
	}
	try := func(path string, write string, data []byte) {
		if err := os.WriteFile(write, data, 0o644); err != nil {
			t.Fatal(err)
		}
		if graphOf(path) != nil {
			refused++
		}
	}
	for _, name := range []string{"llama-q4_0", "phi3"} {
		data, err := os.ReadFile(filepath.Join("testdata", "gguf", name+".gguf"))
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, name+".gguf")
		for range 600 {
			try(path, path, mutate(data, 9000))
		}
	}
	parts := copyT(t, "testdata/gguf/parts")
	for i, head := range []int{9000, 700, 700} {
		path := filepath.Join(parts, fmt.Sprintf("llama-%05d-of-00003.gguf", i+1))
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for range 300 {
			try(filepath.Join(parts, "llama-00001-of-00003.gguf"), path, mutate(data, head))
		}
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		file string
		head int
	}{{"model.safetensors", 2500}, {"config.json", 600}} {
		folder := copyT(t, "testdata/gemma2")
		data, err := os.ReadFile(filepath.Join(folder, c.file))
		if err != nil {
			t.Fatal(err)
		}
		for range 400 {
			try(folder, filepath.Join(folder, c.file), mutate(data, min(c.head, len(data))))
		}
	}
	if refused < 2200 {
		t.Errorf("only %d of 2,900 are refused", refused)
	}
	t.Logf("%d of 2,900 are refused", refused)
}

// edit changes the keys of config.json.
func edit(t *testing.T, dir string, change map[string]any) {
	t.Helper()
	path := filepath.Join(dir, "config.json")
	config := map[string]any{}
	if err := readJSON(path, &config); err != nil {
		t.Fatal(err)
	}
	for key, value := range change {
		if config[key] = value; value == nil {
			delete(config, key)
		}
	}
	data, err := json.Marshal(config)
	if err == nil {
		err = os.WriteFile(path, data, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestRefused: what cannot be converted is refused by name.
func TestRefused(t *testing.T) {
	for _, c := range []struct {
		name, checkpoint string
		change           map[string]any
		want             string
	}{
		{"another architecture", "llama", map[string]any{"model_type": "mamba"}, `architecture "mamba" is not supported; Llama 1 to 3.x`},
		{"a layer more", "llama", map[string]any{"num_hidden_layers": 3}, "tensor model.layers.2.input_layernorm.weight is missing"},
		{"a layer less", "llama", map[string]any{"num_hidden_layers": 1}, "tensor model.layers.1.input_layernorm.weight and 8 more is no part"},
		{"another width", "llama", map[string]any{"intermediate_size": 48}, "has shape [32 64], the configuration asks for 32 outputs of 48 inputs"},
		{"another vocabulary", "llama", map[string]any{"vocab_size": 300}, "asks for 300 outputs"},
		{"no head", "qwen2", map[string]any{"tie_word_embeddings": false}, "tensor lm_head.weight is missing"},
		{"norms that are missing", "llama", map[string]any{"model_type": "qwen3"}, "q_norm.weight is missing"},
		{"a token outside", "llama", map[string]any{"eos_token_id": 272}, "token id 272 is outside"},
		{"no sense", "llama", map[string]any{"num_key_value_heads": 3}, "4 heads cannot share 3 KV heads"},
		{"huge", "llama", map[string]any{"hidden_size": 1 << 40}, "hidden size"},
		{"dynamic scaling", "llama", map[string]any{"rope_parameters": map[string]any{"rope_type": "dynamic", "factor": 2}}, `"dynamic" are not supported; linear, llama3, yarn and longrope are`},
		{"a part of each head", "llama", map[string]any{"partial_rotary_factor": 0.5}, "a part of each head (0.5)"},
		{"another activation", "llama", map[string]any{"hidden_act": "relu"}, `activation "relu" is not supported in llama`},
		{"quantized already", "llama", map[string]any{"quantization_config": map[string]any{"quant_method": "gptq"}}, "quantized already (gptq"},
	} {
		dir := copyT(t, filepath.Join("testdata", c.checkpoint))
		edit(t, dir, c.change)
		if err := graphOf(dir); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
	dir := copyT(t, "testdata/llama")
	if err := os.Remove(filepath.Join(dir, "tokenizer.json")); err != nil {
		t.Fatal(err)
	}
	if err := graphOf(dir); err == nil || !strings.Contains(err.Error(), "no tokenizer.json") {
		t.Errorf("no tokenizer: %v", err)
	}
}
