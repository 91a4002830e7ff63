package convert

import (
	"crypto/sha256"
	"fmt"

	"github.com/draftmill/draftmill/ort/convert/tensor"
)

// Options say what an import makes.
type Options struct {
	// Precision of the weights: fp32, fp16, bf16, int8 or int4; empty for what
	// the device runs best, where GGUF's Q8_0 stays what it is.
	Precision string
	Block     int    // numbers that share a scale: 32, 64 or 128; 0 for 32
	Device    string // cpu, cuda or webgpu; empty for cpu
	Mixed     bool   // int4 with 8 bits for the head and the first and the last layer
	// Asymmetric gives each block a zero point beside its scale; nil where that is
	// best: int4 on the CPU, whose kernels read no more bytes for it.
	Asymmetric *bool
	// Head lists the tokens that the head scores; the others get logits of -Inf,
	// that is probability zero. It is for drafts (FR-Spec, arXiv 2502.14856):
	// sampling with one stays lossless, and its head costs less. Ends of sequence
	// are scored beside them. nil: all tokens.
	Head []int32
	Name string // of the folder that Cached makes; empty for the source's
	// Progress is told how far an import is; nil is told nothing.
	Progress func(Step)

	wide bool // for tests: activations stay as they are
}

// Step is how far an import has come.
type Step struct {
	Name        string // "read", for the digest of the source, or "convert"
	Done, Total int64  // bytes
}

// plan is checked options.
type plan struct {
	precision string
	io        element // of activations, logits and caches
	store     element // of weights that are not quantized
	quantized bool
	scheme    scheme
	mixed     bool
	keepEight bool // Q8_0 stays 8 bits
	accuracy  int  // MatMulNBits' accuracy_level, 0: none
	head      []int32
}

// DefaultPrecision is what a device runs best: the CPU's speed is that of
// reading the weights, a GPU with CUDA has float16 arithmetic for many
// sequences at once.
func DefaultPrecision(device string) string {
	if device == "cuda" {
		return "fp16"
	}
	return "int4"
}

func (o Options) plan() (plan, error) {
	p := plan{precision: o.Precision, scheme: scheme{block: o.Block}, mixed: o.Mixed, head: o.Head}
	device := o.Device
	if device == "" {
		device = "cpu"
	}
	switch device {
	case "cpu":
		if p.io = float32Type; !o.wide {
			p.accuracy = 4
		}
	case "cuda", "webgpu":
		p.io = float16Type
	default:
		return p, fmt.Errorf("device %q is not known; cpu, cuda and webgpu are", o.Device)
	}
	if p.precision == "" {
		p.precision, p.keepEight = DefaultPrecision(device), true
	}
	if p.scheme.block == 0 {
		p.scheme.block = 32
	}
	if b := p.scheme.block; b != 32 && b != 64 && b != 128 {
		return p, fmt.Errorf("blocks of %d are not known; 32, 64 and 128 are", b)
	}
	switch p.precision {
	case "fp32":
		if device == "cuda" {
			return p, fmt.Errorf("attention on cuda has no float32; take fp16, bf16, int8 or int4")
		}
		p.io, p.store = float32Type, float32Type
	case "fp16":
		p.store = float16Type
	case "bf16":
		p.store = bfloat16Type
		if device == "webgpu" {
			return p, fmt.Errorf("webgpu has no bfloat16; take fp16, int8 or int4")
		}
		if device == "cuda" {
			p.io = bfloat16Type
		}
	case "int8", "int4":
		p.quantized, p.store = true, p.io
		p.scheme.bits = map[string]int{"int8": 8, "int4": 4}[p.precision]
		p.keepEight = p.keepEight || p.precision == "int8"
		if p.scheme.asymmetric = p.precision == "int4" && device == "cpu"; o.Asymmetric != nil {
			p.scheme.asymmetric = *o.Asymmetric
		}
	default:
		return p, fmt.Errorf("precision %q is not known; fp32, fp16, bf16, int8 and int4 are", o.Precision)
	}
	if o.Head != nil && len(o.Head) == 0 {
		return p, fmt.Errorf("a head for no token")
	}
	if o.Mixed && p.precision != "int4" {
		return p, fmt.Errorf("mixed is int4 with some weights of 8 bits; the precision is %s", p.precision)
	}
	return p, nil
}

// settings is what distinguishes one import of a source from another, for
// people and for digests.
func (p plan) settings() string {
	s := p.precision
	if p.quantized {
		s += fmt.Sprintf(", blocks of %d", p.scheme.block)
		if p.scheme.asymmetric {
			s += " with zero points"
		}
		if p.mixed {
			s += ", mixed"
		}
		if p.keepEight {
			s += ", 8 bits kept"
		}
	}
	if p.head != nil {
		s += fmt.Sprintf(", a head for the tokens of digest %.6x", sha256.Sum256(fmt.Append(nil, p.head)))
	}
	return s + map[element]string{float32Type: ", float32 activations", float16Type: ", float16 activations", bfloat16Type: ", bfloat16 activations"}[p.io]
}

// kept is the scheme of a weight whose integers and scales are taken over as
// they are.
func (p plan) kept(w *weight) (scheme, bool) {
	format, ok := w.format()
	if !ok || !p.quantized {
		return scheme{}, false
	}
	switch format {
	case tensor.Q4_0:
		return scheme{bits: 4, block: 32}, true
	case tensor.Q4_1:
		// Its minima are zero points with fractions. The CPU's kernels take whole
		// ones; ONNX Runtime's own give a row other bits in other company.
		return scheme{bits: 4, block: 32, asymmetric: true}, p.accuracy == 0
	case tensor.Q8_0:
		return scheme{bits: 8, block: 32}, p.keepEight
	}
	return scheme{}, false
}

// schemeOf is how a weight is stored. fine asks for 8 bits where the plan is
// mixed.
func (p plan) schemeOf(w *weight, fine bool) (s scheme, kept bool) {
	if s, kept := p.kept(w); kept {
		return s, true
	}
	s = p.scheme
	if format, _ := w.format(); fine && p.mixed || format == tensor.Q4_1 && p.keepEight { // of 4 bits again little would be left
		s.bits, s.asymmetric = 8, false
	}
	return s, false
}

// same reports whether weights can be one: stored alike, and not turned.
func same(p plan, ws []*weight) bool {
	for _, w := range ws {
		if w.columns || w.cols != ws[0].cols {
			return false
		}
		s, kept := p.schemeOf(w, false)
		if first, firstKept := p.schemeOf(ws[0], false); p.quantized && (s != first || kept != firstKept) {
			return false
		}
		// What is kept is of one format; the formats of a float may differ.
		if a, _ := w.format(); kept {
			if b, _ := ws[0].format(); a != b {
				return false
			}
		}
	}
	return true
}

// Validate returns an error for options that do not exist or do not go
// together.
func (o Options) Validate() error {
	_, err := o.plan()
	return err
}
