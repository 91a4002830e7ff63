package graph

import (
	"fmt"
	"regexp"
	"strconv"
)

// Contract is how a graph expects its KV cache, as its inputs, outputs and
// operators show it.
type Contract string

const (
	// GQA graphs append to a cache of full length in place: past and present
	// are one buffer, [1, kv heads, context, head size], and attention_mask
	// tells how much of it counts (onnxruntime-genai's model builder).
	GQA Contract = "gqa"
	// Growing graphs take a cache of the exact length and return a longer one:
	// past [1, kv heads, P, head size], present [1, kv heads, P+S, head size]
	// (Optimum's text-generation-with-past).
	Growing Contract = "growing"
	// Crossed graphs are an encoder and a decoder that also attends to the
	// encoder's states: one cache grows with the decoder's tokens, another is
	// made of the states once (Optimum's text2text-generation-with-past).
	Crossed Contract = "encoder-decoder"
)

// ElementType is ONNX's TensorProto.DataType.
type ElementType int32

// Element types that weights, caches, tokens and lengths have.
const (
	Float32  ElementType = 1
	Uint8    ElementType = 2
	Int8     ElementType = 3
	Int32    ElementType = 6
	Int64    ElementType = 7
	Bool     ElementType = 9
	Float16  ElementType = 10
	Uint64   ElementType = 13
	BFloat16 ElementType = 16
)

func (t ElementType) String() string {
	switch t {
	case Float32:
		return "float32"
	case Uint8:
		return "uint8"
	case Int8:
		return "int8"
	case Int32:
		return "int32"
	case Int64:
		return "int64"
	case Uint64:
		return "uint64"
	case Float16:
		return "float16"
	case BFloat16:
		return "bfloat16"
	}
	return "ONNX type " + strconv.Itoa(int(t))
}

// float reports whether logits and caches may have the type.
func (t ElementType) float() bool {
	return t == Float32 || t == Float16 || t == BFloat16
}

// Weight reports whether parameters may have the type; other tensors are
// shapes and indices.
func (t ElementType) Weight() bool { return t.float() || t == Int8 || t == Uint8 }

// Size is the number of bytes of one element, 0 for types that are not made of
// whole bytes, or not known here.
func (t ElementType) Size() int {
	switch t {
	case Uint8, Int8, Bool:
		return 1
	case Float16, BFloat16:
		return 2
	case Float32, Int32:
		return 4
	case Int64, Uint64:
		return 8
	}
	return 0
}

// Layout is a decoder graph as the engine sees it.
type Layout struct {
	Contract  Contract
	Layers    int
	KVHeads   int // 0 where the graph leaves it open
	HeadSize  int // 0 where the graph leaves it open
	Vocab     int // 0 where the graph leaves it open
	Logits    ElementType
	Cache     ElementType // a float type, or Int8 with scales, see CacheScales
	Mask      bool        // the graph has attention_mask
	Positions bool        // the graph has position_ids
	Limit     int         // tokens of a sequence that the graph treats alike, 0 for no limit, see lengthBranches
	Past      []string
	Present   []string // past[i] continues as present[i]
	Cross     *Cross   // of a Crossed contract, else nil
}

var (
	pastName    = regexp.MustCompile(`^past_key_values\.(\d+)\.(key|value)$`)
	presentName = regexp.MustCompile(`^present\.(\d+)\.(key|value)$`)
)

// ReadLayout detects the contract, or refuses the graph and says what about it
// cannot be used.
func ReadLayout(g *Summary) (*Layout, error) {
	switch {
	case g.Ops["PagedAttention"] > 0:
		return nil, fmt.Errorf("PagedAttention: a cache in pages is not supported; export it without use_paged_attention")
	case g.Windowed != "":
		return nil, fmt.Errorf("%s keeps a window of its cache only, and what has left it cannot be taken back; export it with windowed_kv_cache=false", g.Windowed)
	}
	l := &Layout{Contract: Growing, Limit: int(g.Branches)}
	if g.Ops["GroupQueryAttention"] > 0 {
		l.Contract = GQA
	}
	ids := false
	pasts := map[string]Tensor{}
	for _, in := range g.Inputs {
		switch {
		case in.Name == "input_ids":
			ids = true
		case in.Name == "attention_mask":
			l.Mask = true
		case in.Name == "position_ids":
			l.Positions = true
		case pastName.MatchString(in.Name):
			pasts[in.Name] = in
			continue
		case in.Name == "use_cache_branch":
			return nil, fmt.Errorf("input use_cache_branch: a merged decoder is not supported; export it without merging")
		default:
			return nil, fmt.Errorf("input %s is not one of a decoder-only text model (input_ids, attention_mask, position_ids, past_key_values.N.key and .value)", in.Name)
		}
		if in.Type != Int64 || len(in.Shape) != 2 {
			return nil, fmt.Errorf("input %s is %s with %d dimensions, want int64 with 2", in.Name, in.Type, len(in.Shape))
		}
	}
	if !ids {
		return nil, fmt.Errorf("no input input_ids: not a text model")
	}
	if len(pasts) == 0 {
		return nil, fmt.Errorf("no cache inputs (past_key_values.N.key): export it with its KV cache (task text-generation-with-past)")
	}
	if l.Contract == GQA && !l.Mask {
		return nil, fmt.Errorf("GroupQueryAttention without an input attention_mask: the cached length cannot be given; export it with onnxruntime-genai's model builder")
	}

	outputs := map[string]Tensor{}
	presents := 0
	for _, out := range g.Outputs {
		outputs[out.Name] = out
		if presentName.MatchString(out.Name) {
			presents++
		}
	}
	if err := l.readLogits(outputs); err != nil {
		return nil, err
	}
	if len(pasts)%2 != 0 || presents != len(pasts) {
		return nil, fmt.Errorf("%d cache inputs and %d cache outputs: want a key and a value for each layer in both", len(pasts), presents)
	}
	l.Layers = len(pasts) / 2
	for i := range l.Layers {
		for _, kind := range []string{"key", "value"} {
			if err := l.readCache(i, kind, pasts, outputs); err != nil {
				return nil, err
			}
		}
	}
	return l, nil
}

func (l *Layout) readLogits(outputs map[string]Tensor) error {
	logits, ok := outputs["logits"]
	if !ok {
		return fmt.Errorf("no output logits: not a language model with its head")
	}
	if !logits.Type.float() || len(logits.Shape) != 3 {
		return fmt.Errorf("output logits is %s with %d dimensions, want a float type with 3", logits.Type, len(logits.Shape))
	}
	if logits.Shape[1] == 1 {
		return fmt.Errorf("output logits covers the last position only, which cannot verify drafts: export it without prune_lm_head")
	}
	l.Logits = logits.Type
	l.Vocab = int(max(0, logits.Shape[2]))
	return nil
}

func (l *Layout) readCache(layer int, kind string, pasts, outputs map[string]Tensor) error {
	pastKey := fmt.Sprintf("past_key_values.%d.%s", layer, kind)
	presentKey := fmt.Sprintf("present.%d.%s", layer, kind)
	past, ok := pasts[pastKey]
	if !ok {
		return fmt.Errorf("no input %s among the %d layers: layers without a plain KV cache are not supported", pastKey, l.Layers)
	}
	present, ok := outputs[presentKey]
	if !ok {
		return fmt.Errorf("no output %s for the input %s", presentKey, pastKey)
	}
	narrow := past.Type == present.Type && (past.Type == Int8 || past.Type == Uint8)
	if narrow && (past.Type == Uint8 || l.Contract != GQA) {
		return fmt.Errorf("input %s is %s: a quantized cache is supported in 8 bits (int8) with GroupQueryAttention only; export it so, or in a float type", pastKey, past.Type)
	}
	if !past.Type.float() && !narrow || past.Type != present.Type || len(past.Shape) != 4 {
		return fmt.Errorf("input %s is %s with %d dimensions and output %s is %s: want one float type and 4 dimensions",
			pastKey, past.Type, len(past.Shape), presentKey, present.Type)
	}
	heads, size := int(max(0, past.Shape[1])), int(max(0, past.Shape[3]))
	if len(l.Past) == 0 {
		l.Cache, l.KVHeads, l.HeadSize = past.Type, heads, size
	}
	if past.Type != l.Cache || heads != l.KVHeads || size != l.HeadSize {
		return fmt.Errorf("input %s differs in shape or type from the other layers' caches: not supported", pastKey)
	}
	l.Past = append(l.Past, pastKey)
	l.Present = append(l.Present, presentKey)
	return nil
}
