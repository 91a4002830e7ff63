package graph

import (
	"errors"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/draftmill/draftmill/ort/graph/onnxpb"
)

// InputLengths is an input of a rewritten decoder that attends to an encoder's
// states, int32 [B]: how many tokens the input of each sequence has. The cache's
// first places hold the keys and values of their states, and what the decoder is fed
// follows them. So past_seqlens and block_table count the input's tokens too, but
// position_ids are of the decoder's own.
const InputLengths = "input_lengths"

// encoderInputs are a decoder's inputs that CrossAttention does without.
var encoderInputs = []string{"encoder_attention_mask", "encoder_hidden_states"}

// NewRaggedCrossed rewrites the decoder of an encoder-decoder model, whose layout is
// l, for ragged passes: m is the graph of runs with a past, or the merged one. The
// decoder takes up to most tokens. It is for OwnDomain and float32 only.
//
// Self-attention becomes PagedAttention, with a table of what it adds to scores by
// head and distance where it has relative positions; attention to the encoder's
// states becomes CrossAttention over the same cache.
func NewRaggedCrossed(m *onnxpb.ModelProto, l *Layout, most int, o RaggedOptions) (*Ragged, error) {
	if l.Cache != Float32 || l.Logits != Float32 || o.Domain != OwnDomain {
		return nil, fmt.Errorf("caches of %s and logits of %s: encoder-decoder graphs are rewritten in float32 only", l.Cache, l.Logits)
	}
	m, err := crossBranch(m, l, "then_branch")
	if err != nil {
		return nil, err
	}
	r, err := newRagging(m, l, o)
	if err != nil {
		return nil, err
	}
	r.most, r.result.Crossed = int64(most), true
	if err := r.growing(); err != nil {
		return nil, err
	}
	if err := r.assemble(); err != nil {
		return nil, err
	}
	return r.finish(m), nil
}

// NewCrossKeys cuts out of the decoder's graph of first runs, or the merged one, what
// makes the keys and values of the encoder's states. Its input is
// encoder_hidden_states [1, tokens, width], its outputs have the names l.Cross.Present
// and are [1, tokens, heads x head size], as a cache has them.
func NewCrossKeys(m *onnxpb.ModelProto, l *Layout) (*onnxpb.ModelProto, error) {
	m, err := crossBranch(m, l, "else_branch")
	if err != nil {
		return nil, err
	}
	e, err := newRagging(m, l, RaggedOptions{})
	if err != nil {
		return nil, err
	}
	if _, err := e.sort(append([]string{Logits}, l.Cross.Present...)...); err != nil {
		return nil, err
	}
	probe := e.try(probeTokens, 0, false, nil)
	width := int64(l.KVHeads * l.HeadSize)
	for _, name := range l.Cross.Present {
		parts := e.maker[input(e.maker[name], 0)]
		if !turns(e.maker[name]) || parts.GetOpType() != "Reshape" || !slices.Equal(probe.sizes(input(parts, 0)), []int64{1, trialInput, width}) {
			return nil, fmt.Errorf("%s is not made of rows of the encoder's states", name)
		}
		e.without(name)
		e.add("", "Identity", e.name("keys"), []string{input(parts, 0)}, []string{name})
	}
	needed, err := e.sort(l.Cross.Present...)
	if err != nil {
		return nil, err
	}
	g := &onnxpb.GraphProto{Name: proto.String("keys"), Node: e.nodes}
	for _, t := range m.Graph.Initializer {
		if needed[t.GetName()] {
			g.Initializer = append(g.Initializer, t)
		}
	}
	for _, v := range m.Graph.Input {
		switch name := v.GetName(); {
		case name == "encoder_hidden_states":
			g.Input = append(g.Input, v)
		case needed[name] && e.weights[name] == nil:
			return nil, fmt.Errorf("the keys of the encoder's states depend on %s", name)
		}
	}
	for _, name := range l.Cross.Present {
		g.Output = append(g.Output, Value(name, l.Cache, 1, -1, width))
	}
	g.ProtoReflect().SetUnknown(m.Graph.ProtoReflect().GetUnknown())
	out := &onnxpb.ModelProto{IrVersion: m.IrVersion, OpsetImport: m.OpsetImport, Graph: g}
	out.ProtoReflect().SetUnknown(m.ProtoReflect().GetUnknown())
	return out, nil
}

// crossBranch is a merged graph with the nodes of one branch in the place of its If;
// a graph that is not merged is returned as it is.
func crossBranch(m *onnxpb.ModelProto, l *Layout, branch string) (*onnxpb.ModelProto, error) {
	if !l.Cross.Merged {
		return m, nil
	}
	g := &onnxpb.GraphProto{Name: m.Graph.Name, Initializer: slices.Clip(m.Graph.Initializer), Input: m.Graph.Input, Output: m.Graph.Output}
	found := false
	for _, n := range m.Graph.Node {
		if n.GetOpType() != "If" || !slices.Equal(n.Input, []string{"use_cache_branch"}) {
			g.Node = append(g.Node, n)
			continue
		}
		inner := Attribute(n, branch).GetG()
		if found || inner == nil || len(inner.Output) != len(n.Output) {
			return nil, errors.New("use_cache_branch chooses between more than two branches")
		}
		found = true
		g.Initializer = append(g.Initializer, inner.Initializer...)
		g.Node = append(g.Node, inner.Node...)
		for i, v := range inner.Output {
			if name := n.Output[i]; v.GetName() != name {
				g.Node = append(g.Node, &onnxpb.NodeProto{OpType: proto.String("Identity"), Name: proto.String("merged." + name), Input: []string{v.GetName()}, Output: []string{name}})
			}
		}
	}
	if !found {
		return nil, errors.New("use_cache_branch chooses no branch")
	}
	g.ProtoReflect().SetUnknown(m.Graph.ProtoReflect().GetUnknown())
	out := &onnxpb.ModelProto{IrVersion: m.IrVersion, OpsetImport: m.OpsetImport, Graph: g}
	out.ProtoReflect().SetUnknown(m.ProtoReflect().GetUnknown())
	return out, nil
}

// crossAttention recognizes a layer's attention to the encoder's states.
func (r *ragging) crossAttention(layer int, probe *trial) (*plainAttention, error) {
	c := r.layout.Cross
	p := &plainAttention{layer: layer, scale: 1, cross: true}
	if err := r.products(p, c.Past[2*layer], c.Past[2*layer+1], trialInput, probe); err != nil {
		return nil, err
	}
	if p.softcap != 0 {
		return nil, errors.New("scores with a cap")
	}
	return p, nil
}

// crossed appends the node of a layer's attention to the encoder's states. It reads
// the cache behind the layer's own attention, which copies what sequences of a pass
// begin with.
func (r *ragging) crossed(a *attention) {
	_, cache := r.addCache(a.layer)
	r.add(OwnDomain, "CrossAttention", a.name, []string{a.query, cache[0], cache[1], CumulativeLengths, InputLengths, BlockTable}, []string{a.output},
		append([]*onnxpb.AttributeProto{intAttribute("num_heads", a.heads), intAttribute("kv_num_heads", a.kvHeads)}, a.attributes...)...)
}

// table is an initializer of what a layer's attention adds to scores, [heads,
// distances]; layers that add the same share it. It is "" where nothing is added.
func (r *ragging) table(p *plainAttention) string {
	plain := true
	for i, v := range p.bias {
		if v != v { // a distance that no token sees
			p.bias[i] = 0
		}
		plain = plain && p.bias[i] == 0
	}
	if plain {
		return ""
	}
	for i, known := range r.tables {
		if slices.Equal(known, p.bias) {
			return fmt.Sprintf("ragged.distances.%d", i)
		}
	}
	name := fmt.Sprintf("ragged.distances.%d", len(r.tables))
	r.tables = append(r.tables, p.bias)
	t := &onnxpb.TensorProto{Name: &name, Dims: []int64{p.heads, r.most}, DataType: proto.Int32(int32(Float32)), FloatData: p.bias}
	r.weights[name] = t
	r.added = append(r.added, t)
	return name
}
