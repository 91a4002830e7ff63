package convert

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"github.com/draftmill/draftmill/ort/convert/gguf"
	"github.com/draftmill/draftmill/ort/convert/safetensors"
	"github.com/draftmill/draftmill/ort/convert/tensor"
)

// Kind is what kind of model a path names.
type Kind string

// The kinds of models.
const (
	ONNX   Kind = "ONNX folder"
	Folder Kind = "Hugging Face folder"
	GGUF   Kind = "GGUF file"
)

// KindOf looks at a path. A folder that holds an ONNX model is one, whatever
// else it holds. It is an error where there is no model.
func KindOf(path string) (Kind, error) {
	info, err := os.Stat(path)
	if err != nil {
		var pe *fs.PathError
		if errors.As(err, &pe) {
			err = pe.Err
		}
		return "", fmt.Errorf("model %s: %w", path, err)
	}
	switch {
	case !info.IsDir() && strings.EqualFold(filepath.Ext(path), ".gguf"):
		return GGUF, nil
	case !info.IsDir():
		return "", fmt.Errorf("model %s: neither a folder nor a .gguf file", path)
	}
	has := func(name string) bool {
		_, err := os.Stat(filepath.Join(path, name))
		return err == nil
	}
	kind, err := kindIn(has)
	if ggufs, _ := filepath.Glob(filepath.Join(path, "*.gguf")); err == nil && len(ggufs) > 0 && kind == ONNX && !has("genai_config.json") && !has("config.json") {
		err = fmt.Errorf("a folder of GGUF files; name one of them: %s", ggufs[0])
	}
	return kind, named(path, err)
}

// kindIn is the kind of the model in a folder that has some files.
func kindIn(has func(name string) bool) (Kind, error) {
	switch {
	case has("genai_config.json") || has("model.onnx") || has("onnx/model.onnx"), has("encoder_model.onnx") || has("onnx/encoder_model.onnx"):
		return ONNX, nil
	case has("config.json") && (has("model.safetensors") || has("model.safetensors.index.json")):
		return Folder, nil
	case has("config.json") && (has("pytorch_model.bin") || has("pytorch_model.bin.index.json")):
		return "", errors.New("weights in pytorch_model.bin, which is not supported; save it with safetensors")
	case has("consolidated.safetensors") || has("consolidated.safetensors.index.json"):
		return "", errors.New("weights in consolidated.safetensors, which is not supported; take model.safetensors of the same model")
	case has("adapter_config.json"):
		return "", errors.New("an adapter (LoRA), not a model; merge it into the model that it is for, and save that one")
	}
	return ONNX, nil // ort says what is missing
}

var errNothing = errors.New("nothing to convert: neither a folder with config.json and model.safetensors nor a .gguf file")

func open(path string) (*source, error) {
	kind, err := KindOf(path)
	if err != nil {
		return nil, err
	}
	var s *source
	switch kind {
	case Folder:
		s, err = openFolder(path)
	case GGUF:
		s, err = openGGUF(path)
	default:
		err = errNothing
	}
	return s, named(path, err)
}

// named puts the model's path in front of an error that does not have it.
func named(path string, err error) error {
	if err == nil || strings.HasPrefix(err.Error(), "model "+path+": ") {
		return err
	}
	return fmt.Errorf("model %s: %w", path, err)
}

// files are the files of a source that decide what is made of it.
func files(path string) ([]string, error) {
	switch kind, err := KindOf(path); {
	case err != nil:
		return nil, err
	case kind == GGUF:
		return gguf.Find(path)
	case kind == ONNX:
		return nil, errNothing
	}
	weights, _, err := safetensors.Find(path)
	if err != nil {
		return nil, err
	}
	var found []string
	for _, name := range append([]string{"config.json", "generation_config.json"}, companions...) {
		if _, err := os.Stat(filepath.Join(path, name)); err == nil {
			found = append(found, filepath.Join(path, name))
		}
	}
	return append(found, weights...), nil
}

// companions are the files that go along as they are.
var companions = []string{"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja"}

// Report is what an import did.
type Report struct {
	Source   string `json:"source"` // digest, SHA-256 in hex
	Family   string `json:"family"`
	Settings string `json:"settings"`
	Bytes    int64  `json:"bytes"` // written
	// Kept and Again count the weights by format whose integers were taken over,
	// and those that were decoded and quantized again.
	Kept  map[string]int `json:"kept"`
	Again map[string]int `json:"quantized_again"`
	// Notes are what a user should know of this model.
	Notes []string `json:"notes"`
}

// Import converts the model at src, a Hugging Face folder or a GGUF file, into
// the folder dst, which must not exist yet: model.onnx, its external data,
// genai_config.json and the tokenizer. dst is there whole or not at all.
func Import(ctx context.Context, src, dst string, o Options) (*Report, error) {
	if _, err := os.Lstat(dst); err == nil {
		return nil, fmt.Errorf("%s exists already; name another folder, or remove it", dst)
	}
	digest, err := Digest(ctx, src, o.Progress)
	if err != nil {
		return nil, named(src, err)
	}
	return importAs(ctx, src, dst, digest, o)
}

func importAs(ctx context.Context, src, dst, digest string, o Options) (_ *Report, err error) {
	defer func() { err = named(src, err) }()
	p, err := o.plan()
	if err != nil {
		return nil, err
	}
	s, err := open(src)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	b, err := build(s, p)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(dst), 0o755); err != nil {
		return nil, err
	}
	partial, err := os.MkdirTemp(filepath.Dir(dst), filepath.Base(partialOf(dst)))
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(partial)
	if err := os.Chmod(partial, 0o755); err != nil {
		return nil, err
	}
	p.scheme.asymmetric = b.zeros // none, where all weights were kept as they are
	r := &Report{Source: digest, Family: s.family, Settings: p.settings(), Kept: b.kept, Again: b.again, Notes: b.notes()}
	if err := b.folder(ctx, src, partial, r, o.Progress); err != nil {
		return nil, err
	}
	if err := os.Rename(partial, dst); err != nil {
		return nil, err
	}
	return r, syncDir(filepath.Dir(dst))
}

// folder writes everything into dir.
func (b *builder) folder(ctx context.Context, src, dir string, r *Report, progress func(Step)) error {
	properties := map[string]string{
		"source_sha256": r.Source, "source_kind": b.kind, "architecture": b.family, "settings": r.Settings,
	}
	for key, value := range map[string]string{"license": b.license, "name": b.source.model.name} {
		if value != "" {
			properties[key] = value
		}
	}
	model, err := b.bytes(properties)
	if err != nil {
		return err
	}
	if err := writeFile(filepath.Join(dir, "model.onnx"), model); err != nil {
		return err
	}
	r.Bytes = b.length + int64(len(model))
	file, err := os.OpenFile(filepath.Join(dir, dataName), os.O_CREATE|os.O_RDWR|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := file.Truncate(b.length); err != nil {
		return err
	}
	var done atomic.Int64
	tell := report(progress, "convert", b.length)
	err = fillAll(ctx, file, b.blobs, func(n int64) { tell(done.Add(n)) })
	if err == nil {
		err = file.Sync()
	}
	if err == nil {
		err = file.Close()
	}
	if err != nil {
		return err
	}
	config, err := b.genaiConfig()
	if err != nil {
		return err
	}
	if err := writeFile(filepath.Join(dir, "genai_config.json"), config); err != nil {
		return err
	}
	if b.writeTokenizer != nil {
		if err := b.writeTokenizer(dir); err != nil {
			return err
		}
	} else {
		for _, name := range companions {
			data, err := os.ReadFile(filepath.Join(src, name))
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err == nil {
				err = writeFile(filepath.Join(dir, name), data)
			}
			if err != nil {
				return err
			}
		}
	}
	return syncDir(dir)
}

// report makes progress of byte counts: not more often than every hundredth.
func report(progress func(Step), name string, total int64) func(done int64) {
	if progress == nil {
		return func(int64) {}
	}
	var last atomic.Int64
	return func(done int64) {
		before := last.Load()
		if (done-before >= total/100 || done >= total) && last.CompareAndSwap(before, done) {
			progress(Step{name, min(done, total), total})
		}
	}
}

// Digest is the SHA-256, in hex, over the names and SHA-256 digests of a
// source's files. The name of a GGUF file is no part of it, only which part of a
// model it is.
func Digest(ctx context.Context, src string, progress func(Step)) (string, error) {
	paths, err := files(src)
	if err != nil {
		return "", err
	}
	var total, done int64
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return "", err
		}
		total += info.Size()
	}
	tell := report(progress, "read", total)
	all := sha256.New()
	buffer := make([]byte, 1<<20)
	for i, path := range paths {
		sum, err := digestFile(ctx, path, buffer, func(n int) { done += int64(n); tell(done) })
		if err != nil {
			return "", err
		}
		name := filepath.Base(path)
		switch {
		case paths[0] != src: // a folder's
		case len(paths) == 1:
			name = "model.gguf"
		default:
			name = fmt.Sprintf("model-%d-of-%d.gguf", i+1, len(paths))
		}
		fmt.Fprintf(all, "%s %x\n", name, sum)
	}
	return hex.EncodeToString(all.Sum(nil)), nil
}

func digestFile(ctx context.Context, path string, buffer []byte, read func(int)) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	h := sha256.New()
	for {
		n, err := f.Read(buffer)
		h.Write(buffer[:n])
		read(n)
		if errors.Is(err, io.EOF) {
			return h.Sum(nil), nil
		}
		if err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return nil, err
		}
	}
}

// genaiConfig is genai_config.json, as onnxruntime-genai reads it.
func (b *builder) genaiConfig() ([]byte, error) {
	var eos any
	switch ids := b.eos; len(ids) {
	case 0:
	case 1:
		eos = ids[0]
	default:
		eos = ids
	}
	inputs := map[string]any{
		"input_ids": "input_ids", "attention_mask": "attention_mask",
		"past_key_names": "past_key_values.%d.key", "past_value_names": "past_key_values.%d.value",
	}
	if b.positions {
		inputs["position_ids"] = "position_ids"
	}
	model := map[string]any{
		"context_length": b.context, "type": b.family, "vocab_size": b.vocab,
		"decoder": map[string]any{
			"session_options": map[string]any{"log_id": "onnxruntime-genai", "provider_options": []any{}},
			"filename":        "model.onnx", "head_size": b.headSize, "hidden_size": b.source.model.hidden,
			"num_attention_heads": b.heads, "num_hidden_layers": b.layers, "num_key_value_heads": b.kvHeads,
			"inputs":  inputs,
			"outputs": map[string]any{"logits": "logits", "present_key_names": "present.%d.key", "present_value_names": "present.%d.value"},
		},
	}
	if b.bos >= 0 {
		model["bos_token_id"] = b.bos
	}
	if eos != nil {
		model["eos_token_id"] = eos
	}
	if b.pad >= 0 {
		model["pad_token_id"] = b.pad
	} else if len(b.eos) > 0 {
		model["pad_token_id"] = b.eos[0]
	}
	return json.MarshalIndent(map[string]any{
		"model":  model,
		"search": map[string]any{"max_length": b.context, "past_present_share_buffer": true},
	}, "", "  ")
}

// writeFile writes a small file and brings it to the disk.
func writeFile(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	if _, err = f.Write(data); err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// notes are what a user should know of the model.
func (b *builder) notes() (notes []string) {
	if b.rotary.kind == "longrope" {
		notes = append(notes, fmt.Sprintf("the context ends at %d tokens, where the checkpoint has other rotary tables for longer texts", b.context))
	}
	return notes
}

// count notes how a weight's numbers came here.
func (b *builder) count(w *weight, kept bool) {
	for _, p := range w.parts {
		format := p.t.Format
		switch {
		case kept:
			b.kept[format.String()]++
		case !format.Float() || format == tensor.F8E4M3:
			b.again[format.String()]++
		}
	}
}
