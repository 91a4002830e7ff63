package main

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/draftmill/draftmill/configs"
)

const exported = "../../testdata/models/"

func TestInspectText(t *testing.T) {
	out, err := output("inspect", exported+"llama-builder", "--draft", exported+"llama-optimum-int8")
	if err != nil {
		t.Fatal(err)
	}
	const label = 26
	table, row := map[string][]string{}, ""
	for line := range strings.Lines(out) {
		line = strings.TrimSuffix(line, "\n")
		if len(line) <= label {
			continue
		}
		name, text := strings.TrimSpace(line[:label]), strings.TrimSpace(line[label:])
		if name != "" {
			row = name
			table[row] = append(table[row], text)
		} else { // the text goes on
			table[row][len(table[row])-1] += " " + text
		}
	}
	for name, want := range map[string][]string{
		"architecture":             {"llama", "llama"},
		"contract":                 {"gqa", "growing"},
		"files":                    {"model.onnx 14.3 kB, model.onnx.data 164 kB, tokenizer.json 5.92 kB", "model.onnx 190 kB, tokenizer.json 5.92 kB"},
		"parameters":               {"39.1 k, stored as float32", "39.1 k, stored as int8, uint8, float32"},
		"quantization":             {"none", "8 bits, activations scaled at run time (DynamicQuantizeLinear)"},
		"vocabulary":               {"272 logits, 272 tokens", "272 logits, 272 tokens"},
		"context":                  {"128 tokens", "128 tokens"},
		"end of text":              {`0 "<|endoftext|>"`, `0 "<|endoftext|>"`},
		"cache":                    {"float32, layers 2, KV heads 2, head size 16", "float32, layers 2, KV heads 2, head size 16"},
		"cache of a token":         {"512 B", "1.02 kB"},
		"cache of a full sequence": {"65.5 kB", "131 kB"},
		"inputs":                   {"input_ids, attention_mask", "input_ids, attention_mask, position_ids"},
		"passes":                   {"several sequences in one, the same to the bit as alone (CPU)", "one sequence at a time: node /model/layers.0/input_layernorm/Mul_1_output_0_QuantizeLinear (DynamicQuantizeLinear): all tokens of a pass get one scale together"},
	} {
		if !slices.Equal(table[name], want) {
			t.Errorf("%s: got %q, want %q", name, table[name], want)
		}
	}
	if want := "the pair fits: 272 logits each, every token id the same token, 128 tokens of context"; !strings.Contains(strings.ReplaceAll(out, "\n", " "), want) {
		t.Errorf("no verdict in\n%s", out)
	}
}

func TestInspectJSON(t *testing.T) {
	out, err := output("inspect", exported+"qwen2-builder-int4-cuda", "--json")
	if err != nil {
		t.Fatal(err)
	}
	var found inspection
	if err := json.Unmarshal([]byte(out), &found); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	m := found.Target
	if found.Draft != nil || found.Pair != nil || m.Contract != "gqa" || len(m.Digest) != 64 || len(m.Files) != 3 ||
		m.Bytes != m.Files[0].Bytes+m.Files[1].Bytes+m.Files[2].Bytes || m.Logits != "float16" || m.Cache != "float16" ||
		m.TokenBytes != 2*2*1*16*2 || m.ContextBytes != 128*m.TokenBytes || !m.Ragged || m.NotRagged != "" ||
		len(m.EOS) != 1 || m.EOS[0].Text != "<|endoftext|>" || !strings.Contains(out, `"<|endoftext|>"`) {
		t.Errorf("got %+v\n%s", m, out)
	}
}

// TestInspectEncoderDecoder: passes of encoder-decoder models are a decoder's.
func TestInspectEncoderDecoder(t *testing.T) {
	out, err := output("inspect", exported+"bart-optimum-split", "--json")
	if err != nil {
		t.Fatal(err)
	}
	var found inspection
	if err := json.Unmarshal([]byte(out), &found); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if m := found.Target; m.Contract != "encoder-decoder" || m.Encoder == nil || m.Encoder.Most != 64 || !m.Ragged || m.NotRagged != "" {
		t.Errorf("got %+v", m)
	}
}

// TestInspectMisfit: both models are described, and then the pair is refused.
func TestInspectMisfit(t *testing.T) {
	out, err := output("inspect", demo+"target", "--draft", exported+"qwen2-builder", "--json")
	var found inspection
	if decode := json.Unmarshal([]byte(out), &found); decode != nil {
		t.Fatalf("%v\n%s", decode, out)
	}
	if err == nil || found.Pair.Fits || found.Pair.Why != err.Error() || !strings.Contains(err.Error(), "272 logits") || found.Draft.Vocabulary != 272 {
		t.Errorf("%v: %s", err, out)
	}
	if _, usage := errors.AsType[*configs.UsageError](err); usage {
		t.Errorf("%v is bad usage", err)
	}
	if out, err := output("inspect", demo+"target", "--draft", exported+"qwen2-builder"); err == nil || !strings.Contains(out, "the pair does not fit") {
		t.Errorf("%v: %s", err, out)
	}
}

func TestInspectRefuses(t *testing.T) {
	for _, c := range []struct {
		args  []string
		want  string
		usage bool
	}{
		{nil, "name one model: submit inspect MODEL", true},
		{[]string{"a", "b"}, "name one model", true},
		{[]string{"nowhere"}, "model folder nowhere: no such file or directory", false},
		{[]string{exported + "refused/pruned"}, "the last position only", false},
		{[]string{demo + "target", "--draft", exported + "refused/window"}, "keeps a window of its cache only", false},
	} {
		out, err := output(append([]string{"inspect"}, c.args...)...)
		if err == nil || !strings.Contains(err.Error(), c.want) || out != "" {
			t.Errorf("%v: got %v, want %q; printed %q", c.args, err, c.want, out)
		}
		if _, usage := errors.AsType[*configs.UsageError](err); usage != c.usage {
			t.Errorf("%v: bad usage %v, want %v", c.args, usage, c.usage)
		}
	}
}

func TestDecimal(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0 B", 999: "999 B", 1000: "1.00 kB", 9994: "9.99 kB", 9996: "10.0 kB", 99960: "100 kB", 999_499: "999 kB", 999_500: "1.00 MB",
		1_234_567: "1.23 MB", 13_500_000_000: "13.5 GB", 4e15: "4000 TB",
	} {
		if got := decimal(n, "B"); got != want {
			t.Errorf("%d: got %s, want %s", n, got, want)
		}
	}
	if got := decimal(17, ""); got != "17" {
		t.Errorf("without a unit: %q", got)
	}
}
