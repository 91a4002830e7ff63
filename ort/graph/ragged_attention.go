package graph

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/draftmill/draftmill/ort/graph/onnxpb"
)

// Further places among the inputs of GroupQueryAttention.
const (
	gqaCos   = 7
	gqaSin   = 8
	gqaSink  = 11
	gqaScale = 12 // of keys; that of values follows
	gqaQNorm = 14
	gqaKNorm = 15
)

// Places among the inputs of PagedAttention.
const (
	pagedKeyCache   = 3
	pagedValueCache = 4
	pagedCumulative = 5
	pagedPast       = 6
	pagedTable      = 7
	pagedCos        = 8
	pagedSin        = 9
	pagedSink       = 11
	pagedQNorm      = 12
	pagedKNorm      = 13
	pagedScale      = 14 // of keys; that of values follows
	pagedMetadata   = 16
	pagedCopies     = 17 // this and what follows: of OwnDomain only
	pagedLengths    = 18
	pagedBias       = 19
	pagedInputs     = 20
)

// attention is what PagedAttention needs to know of one layer.
type attention struct {
	layer             int
	name              string // of the node, for its successor
	query, key, value string // [1, T, heads x head size]; key and value "" where query is packed
	output            string // [1, T, heads x head size]
	cos, sin          string // "": rotary embedding happens outside
	sink              string
	qNorm, kNorm      string
	bias              string       // [heads, distances], added to scores
	scales            []cacheScale // of keys and of values, where the cache has 8 bits
	heads, kvHeads    int64
	typ               ElementType              // of query and output; cos, sin, sink and norms have the graph's
	attributes        []*onnxpb.AttributeProto // but for the numbers of heads
}

// gqa puts one PagedAttention in the place of each GroupQueryAttention.
func (r *ragging) gqa() error {
	layers := map[int]bool{}
	var nodes []*onnxpb.NodeProto
	for _, n := range slices.Clone(r.nodes) {
		if n.GetOpType() != "GroupQueryAttention" {
			nodes = append(nodes, n)
			continue
		}
		a, err := r.readGQA(n)
		if err != nil {
			return fmt.Errorf("node %s: %w", n.GetName(), err)
		}
		if layers[a.layer] {
			return fmt.Errorf("node %s: a second attention on the cache of layer %d", n.GetName(), a.layer)
		}
		layers[a.layer] = true
		r.nodes = nil
		r.paged(a)
		nodes = append(nodes, r.nodes...)
	}
	r.nodes = nodes
	if len(layers) != r.layout.Layers {
		return fmt.Errorf("%d layers with GroupQueryAttention for %d caches", len(layers), r.layout.Layers)
	}
	r.setCaches()
	return nil
}

// readGQA says what a GroupQueryAttention computes, or why it has no successor.
func (r *ragging) readGQA(n *onnxpb.NodeProto) (*attention, error) {
	in := func(i int) string { return input(n, i) }
	past := pastName.FindStringSubmatch(in(gqaPastKey))
	number := func(name string, otherwise int64) int64 {
		if a := Attribute(n, name); a != nil {
			return a.GetI()
		}
		return otherwise
	}
	switch {
	case n.GetDomain() != MicrosoftDomain:
		return nil, fmt.Errorf("GroupQueryAttention of domain %q is not known", n.GetDomain())
	case in(gqaBias) != "":
		return nil, errors.New("an attention bias belongs to one shape of a pass")
	case len(n.Output) > 3 && strings.Join(n.Output[3:], "") != "":
		return nil, errors.New("it returns more than its cache")
	case past == nil || past[2] != "key" || in(gqaPastValue) != "past_key_values."+past[1]+".value":
		return nil, errors.New("its cache is not an input of the graph")
	case len(n.Output) < 3 || n.Output[1] != "present."+past[1]+".key" || n.Output[2] != "present."+past[1]+".value":
		return nil, errors.New("its cache is not an output of the graph")
	case in(gqaPositions) != "" && in(gqaPositions) != PositionIDs:
		return nil, errors.New("its positions are not the graph's input")
	case (in(1) == "") != (in(gqaValue) == ""):
		return nil, errors.New("it has a key or a value alone")
	case (in(gqaQNorm) == "") != (in(gqaKNorm) == ""):
		return nil, errors.New("it normalizes queries or keys alone")
	case number("causal", 1) != 1:
		return nil, errors.New("it looks ahead")
	case number("smooth_softmax", 0) > 0:
		return nil, errors.New("smooth_softmax has no successor")
	case in(gqaSink) != "" && r.options.Domain == OwnDomain:
		return nil, errors.New("head_sink has no successor on the CPU")
	case number("num_heads", 0) <= 0 || number("kv_num_heads", 0) <= 0 || number("num_heads", 0)%number("kv_num_heads", 1) != 0:
		return nil, fmt.Errorf("%d heads for %d KV heads", number("num_heads", 0), number("kv_num_heads", 0))
	}
	layer, err := strconv.Atoi(past[1])
	if err != nil || layer >= r.layout.Layers {
		return nil, fmt.Errorf("cache %s of %d layers", past[1], r.layout.Layers)
	}
	a := &attention{
		layer: layer, name: n.GetName(), output: n.Output[0],
		query: in(0), key: in(1), value: in(gqaValue),
		sink: in(gqaSink), qNorm: in(gqaQNorm), kNorm: in(gqaKNorm),
		heads: number("num_heads", 0), kvHeads: number("kv_num_heads", 0), typ: r.typ,
	}
	if a.scales, err = r.scalesOf(n); err != nil {
		return nil, err
	}
	if number("do_rotary", 0) != 0 {
		if a.cos, a.sin = in(gqaCos), in(gqaSin); a.cos == "" || a.sin == "" {
			return nil, errors.New("rotary embedding without tables")
		}
	}
	for _, name := range []string{"scale", "softcap", "local_window_size", "do_rotary", "rotary_interleaved", "qk_norm_epsilon"} {
		if x := Attribute(n, name); x != nil {
			a.attributes = append(a.attributes, x)
		}
	}
	return a, nil
}

// paged appends the nodes of a layer's PagedAttention. Ours computes in float32
// on operands as they are; ONNX Runtime's takes two dimensions.
func (r *ragging) paged(a *attention) {
	own := r.options.Domain == OwnDomain
	narrow := a.typ != r.work
	operand := func(name string) string {
		if name != "" && (narrow || a.typ != r.typ) { // then keys and values may be of either type
			name = r.cast(name, r.work)
		}
		if name != "" && !own {
			out := r.name("squeeze")
			r.add("", "Squeeze", out, []string{name, r.ints(0)}, []string{out})
			return out
		}
		return name
	}
	table := func(name string) string {
		if name != "" && narrow {
			return r.cast(name, r.work)
		}
		return name
	}
	cacheIn, cacheOut := r.addCache(a.layer)
	in := make([]string, pagedInputs)
	in[0], in[1], in[2] = operand(a.query), operand(a.key), operand(a.value)
	in[pagedKeyCache], in[pagedValueCache] = cacheIn[0], cacheIn[1]
	in[pagedCumulative], in[pagedPast], in[pagedTable] = CumulativeLengths, PastLengths, BlockTable
	in[pagedCos], in[pagedSin] = table(a.cos), table(a.sin)
	in[pagedSink], in[pagedQNorm], in[pagedKNorm] = table(a.sink), table(a.qNorm), table(a.kNorm)
	attributes := append([]*onnxpb.AttributeProto{intAttribute("num_heads", a.heads), intAttribute("kv_num_heads", a.kvHeads)}, a.attributes...)
	for i, s := range a.scales {
		in[pagedScale+i] = r.scale(a, s)
		if !own {
			attributes = append(attributes, stringAttribute(s.attribute, s.kind))
		}
	}
	if r.options.Metadata {
		in[pagedMetadata] = AttentionMetadata
	}
	if r.options.Copies {
		in[pagedCopies] = Copies
	}
	if r.result.Crossed {
		in[pagedLengths], in[pagedBias] = InputLengths, a.bias
	}
	for in[len(in)-1] == "" {
		in = in[:len(in)-1]
	}
	out := a.output
	if narrow || !own {
		out = r.name("attention")
	}
	r.add(r.options.Domain, "PagedAttention", a.name, in, []string{out, cacheOut[0], cacheOut[1]}, attributes...)
	if !own {
		flat := out
		if out = a.output; narrow {
			out = r.name("unsqueeze")
		}
		r.add("", "Unsqueeze", r.name("unsqueeze"), []string{flat, r.ints(0)}, []string{out})
	}
	if narrow {
		r.add("", "Cast", r.name("cast"), []string{out}, []string{a.output}, intAttribute("to", int64(a.typ)))
	}
}

// cast is a value as another type; layers that share a table share its Cast.
func (r *ragging) cast(name string, to ElementType) string {
	key := fmt.Sprint(to, " ", name)
	if r.casts == nil {
		r.casts = map[string]string{}
	}
	if r.casts[key] == "" {
		out := r.name("cast")
		r.add("", "Cast", out, []string{name}, []string{out}, intAttribute("to", int64(to)))
		r.casts[key] = out
	}
	return r.casts[key]
}
