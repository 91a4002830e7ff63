package ort

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/draftmill/draftmill/ort/graph"
)

// Bundle is a folder with an exported model, read and checked, with nothing
// loaded. It is immutable.
type Bundle struct {
	Dir       string
	Model     string // path of the ONNX file; of an encoder-decoder model, the decoder's
	Tokenizer string // path of tokenizer.json
	Family    string // the architecture's name in the configuration ("llama"), informative

	Contract graph.Contract
	Vocab    int // logits per position
	Context  int // tokens that the model was made for, or those that its graph treats alike
	Layers   int
	KVHeads  int
	HeadSize int
	EOS      []int32 // ids that end a text; may be empty
	BOS      int32   // id that begins a text, -1 for none

	// Encoder is nil for a decoder-only model.
	Encoder *Encoder

	// Digest is the SHA-256, in hex, over the names and SHA-256 digests of the
	// model, its external data and tokenizer.json: equal digests mean equal
	// weights and an equal vocabulary.
	Digest string
	Bytes  int64  // size of these files together
	Files  []File // these files, by name

	layout    *graph.Layout
	tolerance float64 // how far rounding alone may move logits when S changes, see distance
}

// File is a file of a bundle.
type File struct {
	Name  string `json:"name"` // relative to the folder, with slashes
	Bytes int64  `json:"bytes"`
}

// CacheBytesPerToken is what one cached token takes in one slot, over all
// layers, keys and values.
func (b *Bundle) CacheBytesPerToken() int {
	return 2 * b.Layers * b.KVHeads * b.HeadSize * b.layout.Cache.Size()
}

// CacheBytes is what a slot takes for sequences of up to so many tokens. A
// growing cache is there twice, as the past and the present of a step.
func (b *Bundle) CacheBytes(tokens int) int {
	n := b.CacheBytesPerToken() * tokens
	switch b.Contract {
	case graph.Growing:
		n *= 2
	case graph.Crossed: // half of the tokens are the input, whose cache does not grow
		n += n / 2
	}
	return n
}

// String is a line for logs.
func (b *Bundle) String() string {
	return fmt.Sprintf("%s: %s, %s contract, %d layers, vocabulary %d, context %d, %.1f MB, digest %.12s",
		b.Dir, b.Family, b.Contract, b.Layers, b.Vocab, b.Context, float64(b.Bytes)/1e6, b.Digest)
}

// OpenBundle reads the model folder dir: genai_config.json (onnxruntime-genai)
// or else config.json and generation_config.json (Optimum), the graph, and the
// digests of the weights and tokenizer.json. Every error names the folder and
// what is wrong with it.
func OpenBundle(dir string) (*Bundle, error) { return OpenBundleWith(dir, nil) }

// OpenBundleWith is OpenBundle that tells how far it is: the digests of a model
// of several GB take a while.
func OpenBundleWith(dir string, p Progress) (*Bundle, error) {
	b, err := openBundle(dir, p)
	if err != nil {
		return nil, fmt.Errorf("model folder %s: %w", dir, err)
	}
	return b, nil
}

func openBundle(dir string, p Progress) (*Bundle, error) {
	if info, err := os.Stat(dir); err != nil {
		return nil, reason(err)
	} else if !info.IsDir() {
		return nil, errors.New("not a folder")
	}
	c, err := readGenAI(dir)
	if errors.Is(err, fs.ErrNotExist) {
		c, err = readOptimum(dir)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errors.New("neither genai_config.json nor config.json inside: export a model into it with onnxruntime-genai's model builder or Optimum")
	}
	if err != nil {
		return nil, err
	}

	b := &Bundle{Dir: dir, Family: c.family, EOS: c.eos, BOS: c.bos, Context: c.context}
	b.Tokenizer = filepath.Join(dir, "tokenizer.json")
	if _, err := os.Stat(b.Tokenizer); err != nil {
		return nil, fmt.Errorf("tokenizer.json: %w", reason(err))
	}
	read := b.readDecoder
	if encoder, err := findModel(dir, encoderFiles); err == nil {
		b.Encoder = &Encoder{Model: encoder}
		read = b.readCrossed
	}
	external, err := read(c)
	if err != nil {
		return nil, err
	}
	if err := b.merge(c); err != nil {
		return nil, err
	}
	if b.layout.Cache == graph.Int8 {
		if err := b.checkScales(); err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Base(b.Model), err)
		}
	}
	if err := b.digest(external, p); err != nil {
		return nil, err
	}
	return b, nil
}

// readDecoder finds and reads the graph of a decoder-only model. It returns the
// paths of its external data.
func (b *Bundle) readDecoder(c *modelConfig) (external []string, err error) {
	if b.Model, err = findModel(b.Dir, c.files); err != nil {
		return nil, err
	}
	g, err := describe(b.Model)
	if err != nil {
		return nil, err
	}
	if b.layout, err = graph.ReadLayout(g); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Base(b.Model), err)
	}
	b.tolerance = rounding(b.layout, g)
	return externalPaths(b.Model, g)
}

// describe sums up the graph in a file.
func describe(path string) (*graph.Summary, error) {
	m, err := graph.Read(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Base(path), err)
	}
	return graph.Describe(m, filepath.Base(path)), nil
}

// externalPaths are the paths of a model's external data.
func externalPaths(model string, g *graph.Summary) (paths []string, err error) {
	for _, location := range g.External {
		if !filepath.IsLocal(location) {
			return nil, fmt.Errorf("%s: external data %q leads out of the folder", filepath.Base(model), location)
		}
		paths = append(paths, filepath.Join(filepath.Dir(model), location))
	}
	return paths, nil
}

// merge joins what the graph fixes with what only the configuration says, and
// refuses a folder whose files belong to different models.
func (b *Bundle) merge(c *modelConfig) error {
	l := b.layout
	b.Contract = l.Contract
	for _, f := range []struct {
		name          string
		graph, config int
		to            *int
		agree         bool
	}{
		{"vocabulary", l.Vocab, c.vocab, &b.Vocab, true},
		{"number of layers", l.Layers, c.layers, &b.Layers, true},
		{"number of KV heads", l.KVHeads, c.kvHeads, &b.KVHeads, false},
		{"head size", l.HeadSize, c.headSize, &b.HeadSize, false},
		{"context length", 0, c.context, &b.Context, false},
	} {
		switch {
		case f.graph > 0:
			*f.to = f.graph
		case f.config > 0:
			*f.to = f.config
		default:
			return fmt.Errorf("%s: no %s", c.source, f.name)
		}
		if f.agree && f.config > 0 && f.config != *f.to {
			return fmt.Errorf("%s: %s %d, but the graph has %d: the files belong to different models", c.source, f.name, f.config, *f.to)
		}
	}
	if l.Limit > 0 {
		b.Context = min(b.Context, l.Limit)
	}
	// Sizes are multiplied later on; a damaged file must not make them overflow.
	if bytes := float64(b.CacheBytesPerToken()) * float64(b.Context); max(b.Vocab, b.Context, b.KVHeads, b.HeadSize) > 1<<24 || bytes > 1<<50 {
		return fmt.Errorf("%s: context %d, %d KV heads of size %d and vocabulary %d cannot be true", c.source, b.Context, b.KVHeads, b.HeadSize, b.Vocab)
	}
	for _, id := range slices.Concat([]int32{b.BOS}, b.EOS, c.start) {
		if int(id) >= b.Vocab || id < -1 {
			return fmt.Errorf("%s: token id %d is outside the vocabulary of %d", c.source, id, b.Vocab)
		}
	}
	return nil
}

func findModel(dir string, files []string) (string, error) {
	for _, name := range files {
		if !filepath.IsLocal(name) {
			return "", fmt.Errorf("the model's name %q leads out of the folder", name)
		}
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return path, nil
		}
	}
	return "", fmt.Errorf("no %s inside", files[0])
}

// digest hashes the model's files, their external data and tokenizer.json.
func (b *Bundle) digest(external []string, p Progress) (err error) {
	paths := slices.Concat(external, []string{b.Model, b.Tokenizer})
	if e := b.Encoder; e != nil {
		paths = append(paths, e.Model)
		if e.Next != "" {
			paths = append(paths, e.Next)
		}
	}
	slices.Sort(paths)
	paths = slices.Compact(paths)
	for _, path := range paths {
		name, err := filepath.Rel(b.Dir, path)
		if err != nil {
			return err
		}
		info, err := os.Stat(path)
		if err != nil {
			return fmt.Errorf("%s: %w", name, reason(err))
		}
		b.Files, b.Bytes = append(b.Files, File{filepath.ToSlash(name), info.Size()}), b.Bytes+info.Size()
	}
	meter := p.start("read", b.Dir, b.Bytes)
	defer func() { meter.end(err) }()
	total := sha256.New()
	for i, path := range paths {
		sum, err := hashFile(path, meter)
		if err != nil {
			return fmt.Errorf("%s: %w", b.Files[i].Name, reason(err))
		}
		fmt.Fprintf(total, "%s %x\n", b.Files[i].Name, sum)
	}
	b.Digest = hex.EncodeToString(total.Sum(nil))
	return nil
}

func hashFile(path string, meter io.Writer) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	h := sha256.New()
	_, err = io.CopyBuffer(io.MultiWriter(h, meter), f, make([]byte, 1<<20))
	return h.Sum(nil), err
}

// reason drops the path from a file error whose message already names it.
func reason(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}
