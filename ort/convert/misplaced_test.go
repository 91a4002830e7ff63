package convert

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestMisplaced: what is no model, or not one that can be read, is refused in one
// line that says what to do.
func TestMisplaced(t *testing.T) {
	const lfs = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
	for _, c := range []struct {
		name  string
		files map[string]string // a value of @NAME is a file of testdata
		at    string
		want  string
	}{
		{"PyTorch", map[string]string{"config.json": "{}", "pytorch_model.bin": ""}, "", "weights in pytorch_model.bin, which is not supported; save it with safetensors"},
		{"PyTorch in parts", map[string]string{"config.json": "{}", "pytorch_model.bin.index.json": "{}"}, "", "weights in pytorch_model.bin, which"},
		{"Mistral's own form", map[string]string{"params.json": "{}", "consolidated.safetensors": ""}, "", "take model.safetensors of the same model"},
		{"adapter", map[string]string{"adapter_config.json": "{}", "adapter_model.safetensors": ""}, "", "an adapter (LoRA), not a model; merge it"},
		{"a folder of GGUF files", map[string]string{"b.gguf": "", "a.gguf": ""}, "", "a folder of GGUF files; name one of them: "},
		{"vision", map[string]string{"config.json": `{"model_type": "llava", "text_config": {"model_type": "llama"}}`, "model.safetensors": "", "tokenizer.json": "{}"}, "", `architecture "llava" is not supported`},
		{"a pointer of Git LFS", map[string]string{"config.json": "@llama/config.json", "tokenizer.json": "{}", "model.safetensors": lfs}, "", "a pointer of Git LFS, not the file itself"},
		{"a GGUF pointer of Git LFS", map[string]string{"a.gguf": lfs}, "a.gguf", "a pointer of Git LFS, not the file itself"},
		{"no GGUF", map[string]string{"a.gguf": "text"}, "a.gguf", "not a GGUF file"},
		{"a part", map[string]string{"a-00002-of-00003.gguf": pairs("split.count", 3)}, "a-00002-of-00003.gguf", "part 2 of 3 of a model; name its first part, a-00001-of-00003.gguf"},
		{"a part alone", map[string]string{"a-00001-of-00003.gguf": pairs("split.count", 3)}, "a-00001-of-00003.gguf", "part 2 of 3 is missing: a-00002-of-00003.gguf belongs in the same folder"},
		{"a part of another name", map[string]string{"a.gguf": pairs("split.count", 3)}, "a.gguf", "one of 3 parts of a model, which are to be named as they were"},
		{"GGUF adapter", map[string]string{"a.gguf": pairs("general.type", "adapter")}, "a.gguf", `no model, but what is added to one (general.type "adapter")`},
		{"experts", map[string]string{"a.gguf": pairs("general.architecture", "llama", "llama.expert_count", 8)}, "a.gguf", "a mixture of 8 experts, which is not supported"},
		{"another architecture", map[string]string{"a.gguf": pairs("general.architecture", "mamba")}, "a.gguf", `architecture "mamba" is not supported; Llama 1 to 3.x`},
	} {
		dir := t.TempDir()
		for name, content := range c.files {
			if from, ok := strings.CutPrefix(content, "@"); ok {
				data, err := os.ReadFile(filepath.Join("testdata", from))
				if err != nil {
					t.Fatal(err)
				}
				content = string(data)
			}
			if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		_, err := open(filepath.Join(dir, c.at))
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
}

// pairs is a GGUF file of metadata alone: keys, and strings or numbers.
func pairs(all ...any) string {
	text := func(b []byte, s string) []byte {
		return append(binary.LittleEndian.AppendUint64(b, uint64(len(s))), s...)
	}
	b := binary.LittleEndian.AppendUint32([]byte("GGUF"), 3)
	b = binary.LittleEndian.AppendUint64(b, 0)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(all)/2))
	for i := 0; i < len(all); i += 2 {
		b = text(b, all[i].(string))
		switch v := all[i+1].(type) {
		case string:
			b = text(binary.LittleEndian.AppendUint32(b, 8), v)
		case int:
			b = binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(b, 4), uint32(v))
		}
	}
	return string(b)
}
