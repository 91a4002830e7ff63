package ort

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
)

// elementType is ONNX's TensorProto.DataType.
type elementType int32

const (
	float32Type  elementType = 1
	uint8Type    elementType = 2
	int8Type     elementType = 3
	int32Type    elementType = 6
	int64Type    elementType = 7
	boolType     elementType = 9
	float16Type  elementType = 10
	bfloat16Type elementType = 16
)

func (t elementType) String() string {
	switch t {
	case float32Type:
		return "float32"
	case uint8Type:
		return "uint8"
	case int8Type:
		return "int8"
	case int32Type:
		return "int32"
	case int64Type:
		return "int64"
	case float16Type:
		return "float16"
	case bfloat16Type:
		return "bfloat16"
	}
	return "ONNX type " + strconv.Itoa(int(t))
}

// float reports whether logits and caches may have the type.
func (t elementType) float() bool {
	return t == float32Type || t == float16Type || t == bfloat16Type
}

// weight reports whether parameters may have the type; other tensors are
// shapes and indices.
func (t elementType) weight() bool { return t.float() || t == int8Type || t == uint8Type }

// size is the number of bytes of one element of a float type.
func (t elementType) size() int { return t.width() }

// width is the number of bytes of one element, 0 for types that are not made of
// whole bytes, or not known here.
func (t elementType) width() int {
	switch t {
	case uint8Type, int8Type, boolType:
		return 1
	case float16Type, bfloat16Type:
		return 2
	case float32Type, int32Type:
		return 4
	case int64Type:
		return 8
	}
	return 0
}

// layout is a decoder graph as the engine sees it.
type layout struct {
	contract  Contract
	layers    int
	kvHeads   int // 0 where the graph leaves it open
	headSize  int // 0 where the graph leaves it open
	vocab     int // 0 where the graph leaves it open
	logits    elementType
	cache     elementType
	mask      bool    // the graph has attention_mask
	positions bool    // the graph has position_ids
	limit     int     // tokens of a sequence that the graph treats alike, 0 for no limit, see lengthBranches
	tolerance float64 // how far rounding alone may move logits when S changes, see distance
	past      []string
	present   []string // past[i] continues as present[i]
}

var (
	pastName    = regexp.MustCompile(`^past_key_values\.(\d+)\.(key|value)$`)
	presentName = regexp.MustCompile(`^present\.(\d+)\.(key|value)$`)
)

// readLayout detects the contract, or refuses the graph and says what about it
// cannot be used.
func readLayout(g *graph) (*layout, error) {
	switch {
	case g.ops["PagedAttention"] > 0:
		return nil, fmt.Errorf("PagedAttention: a cache in pages is not supported; export it without use_paged_attention")
	case g.windowed != "":
		return nil, fmt.Errorf("%s keeps a window of its cache only, and what has left it cannot be taken back; export it with windowed_kv_cache=false", g.windowed)
	}
	l := &layout{contract: Growing, limit: int(g.branches)}
	if g.ops["GroupQueryAttention"] > 0 {
		l.contract = GQA
	}
	ids := false
	pasts := map[string]tensorInfo{}
	for _, in := range g.inputs {
		switch {
		case in.name == "input_ids":
			ids = true
		case in.name == "attention_mask":
			l.mask = true
		case in.name == "position_ids":
			l.positions = true
		case pastName.MatchString(in.name):
			pasts[in.name] = in
			continue
		case in.name == "use_cache_branch":
			return nil, fmt.Errorf("input use_cache_branch: a merged decoder is not supported; export it without merging")
		default:
			return nil, fmt.Errorf("input %s is not one of a decoder-only text model (input_ids, attention_mask, position_ids, past_key_values.N.key and .value)", in.name)
		}
		if in.typ != int64Type || len(in.shape) != 2 {
			return nil, fmt.Errorf("input %s is %s with %d dimensions, want int64 with 2", in.name, in.typ, len(in.shape))
		}
	}
	if !ids {
		return nil, fmt.Errorf("no input input_ids: not a text model")
	}
	if len(pasts) == 0 {
		return nil, fmt.Errorf("no cache inputs (past_key_values.N.key): export it with its KV cache (task text-generation-with-past)")
	}
	if l.contract == GQA && !l.mask {
		return nil, fmt.Errorf("GroupQueryAttention without an input attention_mask: the cached length cannot be given; export it with onnxruntime-genai's model builder")
	}

	outputs := map[string]tensorInfo{}
	presents := 0
	for _, out := range g.outputs {
		outputs[out.name] = out
		if presentName.MatchString(out.name) {
			presents++
		}
	}
	if err := l.readLogits(outputs); err != nil {
		return nil, err
	}
	if len(pasts)%2 != 0 || presents != len(pasts) {
		return nil, fmt.Errorf("%d cache inputs and %d cache outputs: want a key and a value for each layer in both", len(pasts), presents)
	}
	l.layers = len(pasts) / 2
	for i := range l.layers {
		for _, kind := range []string{"key", "value"} {
			if err := l.readCache(i, kind, pasts, outputs); err != nil {
				return nil, err
			}
		}
	}
	l.tolerance = l.rounding(g)
	return l, nil
}

func (l *layout) readLogits(outputs map[string]tensorInfo) error {
	logits, ok := outputs["logits"]
	if !ok {
		return fmt.Errorf("no output logits: not a language model with its head")
	}
	if !logits.typ.float() || len(logits.shape) != 3 {
		return fmt.Errorf("output logits is %s with %d dimensions, want a float type with 3", logits.typ, len(logits.shape))
	}
	if logits.shape[1] == 1 {
		return fmt.Errorf("output logits covers the last position only, which cannot verify drafts: export it without prune_lm_head")
	}
	l.logits = logits.typ
	l.vocab = int(max(0, logits.shape[2]))
	return nil
}

func (l *layout) readCache(layer int, kind string, pasts, outputs map[string]tensorInfo) error {
	pastKey := fmt.Sprintf("past_key_values.%d.%s", layer, kind)
	presentKey := fmt.Sprintf("present.%d.%s", layer, kind)
	past, ok := pasts[pastKey]
	if !ok {
		return fmt.Errorf("no input %s among the %d layers: layers without a plain KV cache are not supported", pastKey, l.layers)
	}
	present, ok := outputs[presentKey]
	if !ok {
		return fmt.Errorf("no output %s for the input %s", presentKey, pastKey)
	}
	if past.typ == present.typ && (past.typ == int8Type || past.typ == uint8Type) {
		return fmt.Errorf("input %s is %s: a quantized cache is not supported; export it without kv_cache_quant_scheme", pastKey, past.typ)
	}
	if !past.typ.float() || past.typ != present.typ || len(past.shape) != 4 {
		return fmt.Errorf("input %s is %s with %d dimensions and output %s is %s: want one float type and 4 dimensions",
			pastKey, past.typ, len(past.shape), presentKey, present.typ)
	}
	heads, size := int(max(0, past.shape[1])), int(max(0, past.shape[3]))
	if len(l.past) == 0 {
		l.cache, l.kvHeads, l.headSize = past.typ, heads, size
	}
	if past.typ != l.cache || heads != l.kvHeads || size != l.headSize {
		return fmt.Errorf("input %s differs in shape or type from the other layers' caches: not supported", pastKey)
	}
	l.past = append(l.past, pastKey)
	l.present = append(l.present, presentKey)
	return nil
}
