package convert

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/draftmill/draftmill/ort/graph/onnxpb"
)

// builder turns a source into a graph.
type builder struct {
	emitter
	*source
	o plan

	lengths, total string // of sequences, as GroupQueryAttention takes them
	cos, sin       string

	kept, again map[string]int // see Report
	zeros       bool           // some weight has zero points
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// build emits the whole graph.
func build(s *source, o plan) (*builder, error) {
	b := &builder{source: s, o: o, kept: map[string]int{}, again: map[string]int{}}
	b.graph, b.known = &onnxpb.GraphProto{Name: proto.String("main_graph")}, map[string]bool{}
	b.inputs()
	b.mask()
	hidden, err := b.embed()
	if err != nil {
		return nil, err
	}
	residual, last := hidden, "" // the sum so far, and what is still to be added
	for layer := range s.layers {
		if residual, last, err = b.layer(layer, residual, last); err != nil {
			return nil, fmt.Errorf("layer %d: %w", layer, err)
		}
	}
	name := fmt.Sprintf("layers.%d/final_norm_layernorm", s.layers)
	out, _, err := b.addNorm(name, finalNorm, 0, residual, last, false)
	if err != nil {
		return nil, err
	}
	if err := b.head(out); err != nil {
		return nil, err
	}
	return b, s.leftover()
}

// inputs declares what goes in and out.
func (b *builder) inputs() {
	g := b.graph
	g.Input = append(g.Input, value("input_ids", int64Type, "batch_size", "sequence_length"), value("attention_mask", int64Type, "batch_size", "total_sequence_length"))
	if b.positions {
		g.Input = append(g.Input, value("position_ids", int64Type, "batch_size", "sequence_length"))
	}
	g.Output = append(g.Output, value("logits", b.o.io, "batch_size", "sequence_length", b.vocab))
	for layer := range b.layers {
		for _, kind := range []string{"key", "value"} {
			g.Input = append(g.Input, value(fmt.Sprintf("past_key_values.%d.%s", layer, kind), b.o.io, "batch_size", b.kvHeads, "past_sequence_length", b.headSize))
			g.Output = append(g.Output, value(fmt.Sprintf("present.%d.%s", layer, kind), b.o.io, "batch_size", b.kvHeads, "total_sequence_length", b.headSize))
		}
	}
}

// mask turns attention_mask into the lengths of the sequences, less one, and
// the longest possible length.
func (b *builder) mask() {
	const at = "/model/attn_mask_reformat/attn_mask_subgraph/"
	one := b.ints(false, 1)
	sum := b.node("ReduceSum", at+"ReduceSum", []string{"attention_mask", one}, attributes{"keepdims": 0})
	less := b.node("Sub", at+"Sub", []string{sum, one}, nil)
	b.lengths = b.node("Cast", at+"Sub/Cast", []string{less}, attributes{"to": int(int32Type)})
	shape := b.node("Shape", at+"Shape", []string{"attention_mask"}, nil)
	total := b.node("Gather", at+"Gather", []string{shape, b.ints(true, 1)}, attributes{"axis": 0})
	b.total = b.node("Cast", at+"Gather/Cast", []string{total}, attributes{"to": int(int32Type)})
	if !b.positions && slices.Contains(b.still, false) {
		angles, magnitude := b.rotary.frequencies(b.headSize)
		turn := func(name string, f func(float64) float64) string {
			return b.initializer(name, b.o.io, rotaryTable(angles, magnitude, b.context, b.o.io, f), b.context, len(angles))
		}
		b.cos, b.sin = turn("cos_cache", math.Cos), turn("sin_cache", math.Sin)
	}
}

// layer emits one layer. residual is the sum of the layers before, last what the
// MLP before adds to it, empty in front of the first.
func (b *builder) layer(layer int, residual, last string) (string, string, error) {
	at := fmt.Sprintf("layers.%d/", layer)
	normed, residual, err := b.addNorm(at+"input_layernorm", inputNorm, layer, residual, last, true)
	if err != nil {
		return "", "", err
	}
	attended, err := b.attention(layer, "/model/"+at+"attn", normed)
	if err != nil {
		return "", "", err
	}
	before := "post_attention_layernorm"
	if b.sandwich {
		if attended, err = b.plainNorm(at+before, attentionNorm, layer, attended); err != nil {
			return "", "", err
		}
		before = "pre_feedforward_layernorm"
	}
	normed, residual, err = b.addNorm(at+before, mlpNorm, layer, residual, attended, true)
	if err != nil {
		return "", "", err
	}
	out, err := b.mlp(layer, "/model/"+at+"mlp", normed)
	if err == nil && b.sandwich {
		out, err = b.plainNorm(at+"post_feedforward_layernorm", outputNorm, layer, out)
	}
	return residual, out, err
}

// normWeights are the initializers of a norm: its weight, and its bias where it
// has one.
func (b *builder) normWeights(name string, r role, layer int) ([]string, error) {
	w, err := b.source.norm(r, layer, b.hidden)
	if err != nil {
		return nil, err
	}
	dotted := "model." + slashless(name)
	names := []string{b.floats(dotted+".weight", w, b.o.io, b.hidden)}
	if b.layerNorm {
		bias, err := b.source.vector(r, layer, ".bias", b.hidden, false)
		if err != nil {
			return nil, err
		}
		names = append(names, b.floats(dotted+".bias", bias, b.o.io, b.hidden))
	}
	return names, nil
}

// plainNorm normalizes x.
func (b *builder) plainNorm(name string, r role, layer int, x string) (string, error) {
	w, err := b.normWeights(name, r, layer)
	if err != nil {
		return "", err
	}
	op := "SimplifiedLayerNormalization"
	if b.layerNorm {
		op = "LayerNormalization"
	}
	a := attributes{"axis": -1, "epsilon": b.epsilon, "stash_type": 1}
	return b.node(op, "/model/"+name+"/LayerNorm", append([]string{x}, w...), a, "/model/"+name+"/output_0"), nil
}

// addNorm adds last to residual and normalizes the sum, which it returns too
// where more is to be added to it.
func (b *builder) addNorm(name string, r role, layer int, residual, last string, more bool) (normed, sum string, err error) {
	if last == "" {
		normed, err = b.plainNorm(name, r, layer, residual)
		return normed, residual, err
	}
	w, err := b.normWeights(name, r, layer)
	if err != nil {
		return "", "", err
	}
	op := "SkipSimplifiedLayerNormalization"
	if b.layerNorm {
		op = "SkipLayerNormalization"
	}
	outputs := []string{"/model/" + name + "/output_0"}
	if more {
		sum = "/model/" + name + "/output_3"
		outputs = append(outputs, "", "", sum)
	}
	normed = b.node(op, "/model/"+name+"/SkipLayerNorm", append([]string{residual, last}, w...), attributes{"epsilon": b.epsilon}, outputs...)
	return normed, sum, nil
}

// attention emits queries, keys and values, attention, and the projection of
// what it found.
func (b *builder) attention(layer int, at, x string) (string, error) {
	q, k, v, err := b.queries(layer, at, x)
	if err != nil {
		return "", err
	}
	window, rotate := -1, 0
	if b.windows[layer] > 0 {
		window = b.windows[layer]
	}
	inputs := []string{q, k, v, fmt.Sprintf("past_key_values.%d.key", layer), fmt.Sprintf("past_key_values.%d.value", layer), b.lengths, b.total, "", "", "", "", ""}
	if !b.still[layer] {
		rotate, inputs[7], inputs[8] = 1, b.cos, b.sin
	}
	name := at + "/GroupQueryAttention"
	out := b.node("GroupQueryAttention", name, inputs, attributes{
		"num_heads": b.heads, "kv_num_heads": b.kvHeads, "scale": b.attentionScale, "local_window_size": window,
		"softcap": b.attentionCap, "do_rotary": rotate, "rotary_interleaved": 0,
	}, name+"/output_0", fmt.Sprintf("present.%d.key", layer), fmt.Sprintf("present.%d.value", layer))
	w, err := b.need(attentionOutput, layer, b.hidden, b.heads*b.headSize)
	if err != nil {
		return "", err
	}
	return b.project(at+"/o_proj", out, w, attentionOutput, layer)
}

// queries are what attention takes: queries, keys and values in one where they
// can be, then k and v are empty.
func (b *builder) queries(layer int, at, x string) (q, k, v string, err error) {
	heads, kv := b.heads*b.headSize, b.kvHeads*b.headSize
	all, err := b.matrix(queryKeyValue, layer, heads+2*kv, b.hidden)
	if err != nil {
		return "", "", "", err
	}
	var bias []float32
	if all != nil {
		bias, err = b.bias(queryKeyValue, layer, heads+2*kv)
	} else {
		parts, sizes := make([]*weight, 3), []int{heads, kv, kv}
		for i, r := range []role{query, keyRole, valueRole} {
			if parts[i], err = b.need(r, layer, sizes[i], b.hidden); err != nil {
				return "", "", "", err
			}
		}
		if same(b.o, parts) {
			all, err = stack(parts...)
			if err == nil {
				bias, err = b.joinedBias(layer, sizes)
			}
		} else {
			return b.separate(layer, at, x, parts)
		}
	}
	if err != nil {
		return "", "", "", err
	}
	packed := b.matmul(at+"/qkv_proj", x, all, bias)
	if !b.qkNorm {
		return packed, "", "", nil
	}
	split := at + "/qkv_proj/Split/output_"
	b.node("Split", at+"/qkv_proj/Split", []string{packed, b.ints(false, int64(heads), int64(kv), int64(kv))}, attributes{"axis": -1}, split+"0", split+"1", split+"2")
	if q, err = b.headNorm(at+"/q_norm", queryNorm, layer, split+"0", heads); err == nil {
		k, err = b.headNorm(at+"/k_norm", keyNorm, layer, split+"1", kv)
	}
	return q, k, split + "2", err
}

// separate emits queries, keys and values that are stored in different ways.
func (b *builder) separate(layer int, at, x string, parts []*weight) (q, k, v string, err error) {
	outs := make([]string, 3)
	for i, r := range []role{query, keyRole, valueRole} {
		name := at + []string{"/q_proj", "/k_proj", "/v_proj"}[i]
		if outs[i], err = b.project(name, x, parts[i], r, layer); err != nil {
			return "", "", "", err
		}
	}
	if b.qkNorm {
		for i, r := range []role{queryNorm, keyNorm} {
			if outs[i], err = b.headNorm(at+[]string{"/q_norm", "/k_norm"}[i], r, layer, outs[i], parts[i].rows); err != nil {
				return "", "", "", err
			}
		}
	}
	return outs[0], outs[1], outs[2], nil
}

// joinedBias is the bias of queries, keys and values together, nil where they
// have none.
func (b *builder) joinedBias(layer int, sizes []int) (all []float32, err error) {
	any := false
	for i, r := range []role{query, keyRole, valueRole} {
		part, err := b.bias(r, layer, sizes[i])
		if err != nil {
			return nil, err
		}
		any = any || part != nil
		if part == nil {
			part = make([]float32, sizes[i])
		}
		all = append(all, part...)
	}
	if !any {
		return nil, nil
	}
	return all, nil
}

// bias is a projection's bias, nil where it has none.
func (b *builder) bias(r role, layer, size int) ([]float32, error) {
	bias, err := b.plainBias(r, layer, size)
	if err != nil || bias == nil || !b.permuted || r != query && r != keyRole {
		return bias, err
	}
	order, ours := interleaved(b.headSize), make([]float32, size)
	for i := range ours {
		ours[i] = bias[order(i)]
	}
	return ours, nil
}

func (b *builder) plainBias(r role, layer, size int) ([]float32, error) {
	return b.source.vector(r, layer, ".bias", size, true)
}

// headNorm normalizes each head by itself.
func (b *builder) headNorm(at string, r role, layer int, x string, size int) (string, error) {
	w, err := b.source.norm(r, layer, b.headSize)
	if err != nil {
		return "", err
	}
	dotted := "model." + slashless(at[len("/model/"):])
	name := b.floats(dotted+".layernorm.weight", w, b.o.io, b.headSize)
	x = b.node("Reshape", at+"/Reshape_1", []string{x, b.ints(false, 0, -1, int64(b.headSize))}, nil)
	x = b.node("SimplifiedLayerNormalization", at+"/SimplifiedLayerNormalization", []string{x, name}, attributes{"axis": -1, "epsilon": b.epsilon, "stash_type": 1})
	return b.node("Reshape", at+"/Reshape_2", []string{x, b.ints(false, 0, -1, int64(size))}, nil), nil
}

// mlp emits the two or three projections of an MLP.
func (b *builder) mlp(layer int, at, x string) (string, error) {
	shrink, err := b.need(down, layer, b.hidden, b.inner)
	if err != nil {
		return "", err
	}
	var inner string
	if b.ungated {
		w, err := b.need(up, layer, b.inner, b.hidden)
		if err != nil {
			return "", err
		}
		if inner, err = b.project(at+"/fc1", x, w, up, layer); err != nil {
			return "", err
		}
		inner = b.activate(at, inner)
	} else {
		gated, upped, err := b.gates(layer, at, x)
		if err != nil {
			return "", err
		}
		inner = b.node("Mul", at+"/Mul", []string{b.activate(at, gated), upped}, nil)
	}
	return b.project(at+"/down_proj", inner, shrink, down, layer)
}

// gates emits the two projections of a gated MLP.
func (b *builder) gates(layer int, at, x string) (gated, upped string, err error) {
	both, err := b.matrix(gateUp, layer, 2*b.inner, b.hidden)
	if err != nil {
		return "", "", err
	}
	ws := make([]*weight, 2)
	for i, r := range []role{gate, up} {
		if both != nil {
			ws[i], err = both.slice(i*b.inner, b.inner)
		} else {
			ws[i], err = b.need(r, layer, b.inner, b.hidden)
		}
		if err != nil {
			return "", "", err
		}
	}
	if gated, err = b.project(at+"/gate_proj", x, ws[0], gate, layer); err != nil {
		return "", "", err
	}
	upped, err = b.project(at+"/up_proj", x, ws[1], up, layer)
	return gated, upped, err
}

func (b *builder) activate(at, x string) string {
	if b.activation == geluTanh {
		return b.node("Gelu", at+"/act_fn/FastGelu", []string{x}, attributes{"approximate": "tanh"})
	}
	s := b.node("Sigmoid", at+"/act_fn/Sigmoid", []string{x}, nil)
	return b.node("Mul", at+"/act_fn/Mul", []string{x, s}, nil)
}

// project multiplies by a role's weight and adds its bias.
func (b *builder) project(at, x string, w *weight, r role, layer int) (string, error) {
	bias, err := b.bias(r, layer, w.rows)
	if err != nil {
		return "", err
	}
	return b.matmul(at, x, w, bias), nil
}
