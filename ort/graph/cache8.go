package graph

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/draftmill/draftmill/ort/graph/onnxpb"
)

// Kinds of scales, as GroupQueryAttention and PagedAttention name them.
const (
	perTensor  = "PER_TENSOR"
	perChannel = "PER_CHANNEL"
)

// CacheScale is what the integers of a cache of 8 bits are multiplied with, as
// GroupQueryAttention has it.
type CacheScale struct {
	Node   string              // that has it
	Tensor *onnxpb.TensorProto // float32, of one number or of one for each KV head and channel
}

// CacheScales are those of all layers of a model whose cache is Int8, none of any
// other. The error says which is missing or has another shape; the numbers are
// not looked at.
func CacheScales(m *onnxpb.ModelProto) ([]CacheScale, error) {
	l, err := ReadLayout(Describe(m, ""))
	if err != nil {
		return nil, err
	}
	e, err := newEditor(m.Graph)
	if err != nil {
		return nil, err
	}
	r := &ragging{editor: e, layout: l}
	var all []CacheScale
	for _, n := range r.nodes {
		if n.GetOpType() != "GroupQueryAttention" {
			continue
		}
		scales, err := r.scalesOf(n)
		if err != nil {
			return nil, fmt.Errorf("node %s: %w", n.GetName(), err)
		}
		for _, s := range scales {
			all = append(all, CacheScale{n.GetName(), s.tensor})
		}
	}
	return all, nil
}

// cacheScale is a scale as a node has it.
type cacheScale struct {
	tensor    *onnxpb.TensorProto
	attribute string // that names its kind
	kind      string
}

// scalesOf are the scales of keys and values of a GroupQueryAttention, nil where
// the cache has none.
func (r *ragging) scalesOf(n *onnxpb.NodeProto) (scales []cacheScale, err error) {
	if bits := Attribute(n, "kv_cache_bit_width").GetI(); r.layout.Cache == Int8 && bits != 8 {
		return nil, fmt.Errorf("kv_cache_bit_width is %d for a cache of int8", bits)
	}
	for i, name := range []string{"k", "v"} {
		s := cacheScale{attribute: name + "_quant_type", kind: "NONE"}
		if a := Attribute(n, s.attribute); a != nil {
			s.kind = string(a.S)
		}
		given := input(n, gqaScale+i)
		if r.layout.Cache != Int8 {
			if given != "" || s.kind != "NONE" {
				return nil, fmt.Errorf("%s_scale for a cache of %s", name, r.layout.Cache)
			}
			continue
		}
		if s.tensor = r.constant(given); s.tensor == nil {
			return nil, fmt.Errorf("%s_scale is missing or no constant, and the cache is int8", name)
		}
		kvHeads, dims := Attribute(n, "kv_num_heads").GetI(), s.tensor.Dims
		for len(dims) > 3 && dims[0] == 1 {
			dims = dims[1:] // it is broadcast over sequences
		}
		size, ok := elements(s.tensor)
		switch {
		case ElementType(s.tensor.GetDataType()) != Float32:
			ok = false
		case s.kind == perTensor:
			ok = ok && size == 1
		case s.kind == perChannel:
			ok = ok && len(dims) == 3 && dims[0] == kvHeads && dims[1] == 1 && dims[2] > 0 && (r.layout.HeadSize == 0 || dims[2] == int64(r.layout.HeadSize))
		default:
			return nil, fmt.Errorf("%s is %q: want PER_TENSOR or PER_CHANNEL", s.attribute, s.kind)
		}
		if !ok {
			return nil, fmt.Errorf("%s_scale is %s %v: want float32, one number (PER_TENSOR) or [%d, 1, head size] (PER_CHANNEL), as %s says",
				name, ElementType(s.tensor.GetDataType()), s.tensor.Dims, kvHeads, s.attribute)
		}
		if s.kind == perTensor && r.options.Domain == OwnDomain && r.layout.HeadSize == 0 {
			return nil, fmt.Errorf("%s_scale is one number, and the graph leaves the size of heads open", name)
		}
		scales = append(scales, s)
	}
	return scales, nil
}

// scale is the input that PagedAttention takes for a scale: ONNX Runtime's one
// number or [KV heads, 1, head size], ours always the latter.
func (r *ragging) scale(a *attention, s cacheScale) string {
	t := proto.CloneOf(s.tensor)
	t.Name = proto.String(r.name("scale"))
	t.Dims = []int64{1}
	if s.kind == perChannel {
		t.Dims = slices.Clone(s.tensor.Dims[len(s.tensor.Dims)-3:])
	}
	r.weights[t.GetName()] = t
	r.added = append(r.added, t)
	if s.kind == perChannel || r.options.Domain != OwnDomain {
		return t.GetName()
	}
	out := r.name("expand")
	r.add("", "Expand", out, []string{t.GetName(), r.ints(a.kvHeads, 1, int64(r.layout.HeadSize))}, []string{out})
	return out
}

// operands is the type that attention computes in, where the cache does not say it:
// that of what queries are made of.
func (r *ragging) operands() ElementType {
	seen := map[string]bool{}
	var of func(name string) ElementType
	of = func(name string) ElementType {
		if seen[name] {
			return 0
		}
		seen[name] = true
		n := r.maker[name]
		if n.GetOpType() == "Cast" {
			return ElementType(Attribute(n, "to").GetI())
		}
		if t := r.constant(name); t != nil {
			return ElementType(t.GetDataType())
		}
		for _, in := range n.GetInput() {
			if t := of(in); in != "" && t.float() {
				return t
			}
		}
		return 0
	}
	for _, n := range r.nodes {
		if n.GetOpType() == "GroupQueryAttention" {
			if t := of(input(n, 0)); t.float() {
				return t
			}
		}
	}
	return r.layout.Logits
}

// NarrowCache gives a model whose cache is of a float type one of 8 bits, in the
// form of GroupQueryAttention: keys and values of layer i become integers with the
// scales keys[i] and values[i], [KV heads, head size] each.
func NarrowCache(m *onnxpb.ModelProto, keys, values [][]float32) error {
	l, err := ReadLayout(Describe(m, ""))
	if err != nil {
		return err
	}
	if l.Contract != GQA || !l.Cache.float() {
		return fmt.Errorf("a cache of 8 bits is made of one of a float type in a graph with GroupQueryAttention, and this one is %s with the %s contract", l.Cache, l.Contract)
	}
	done := 0
	for _, n := range m.Graph.Node {
		past := pastName.FindStringSubmatch(input(n, gqaPastKey))
		if n.GetOpType() != "GroupQueryAttention" || past == nil {
			continue
		}
		layer, heads := 0, Attribute(n, "kv_num_heads").GetI()
		if _, err := fmt.Sscan(past[1], &layer); err != nil || layer >= len(keys) || layer >= len(values) || heads <= 0 {
			return fmt.Errorf("node %s: layer %s of %d, %d KV heads", n.GetName(), past[1], len(keys), heads)
		}
		for i, scale := range [][]float32{keys[layer], values[layer]} {
			if len(scale) == 0 || int64(len(scale))%heads != 0 {
				return fmt.Errorf("node %s: %d scales for %d KV heads", n.GetName(), len(scale), heads)
			}
			kind := string("kv"[i])
			name := fmt.Sprintf("cache.%d.%s_scale", layer, kind)
			for len(n.Input) <= gqaScale+i {
				n.Input = append(n.Input, "")
			}
			n.Input[gqaScale+i] = name
			m.Graph.Initializer = append(m.Graph.Initializer, floats(name, scale, 1, heads, 1, int64(len(scale))/heads))
			setAttribute(n, stringAttribute(kind+"_quant_type", perChannel))
		}
		setAttribute(n, intAttribute("kv_cache_bit_width", 8))
		done++
	}
	if done != l.Layers {
		return fmt.Errorf("%d of %d layers have a GroupQueryAttention with their cache", done, l.Layers)
	}
	for _, v := range slices.Concat(m.Graph.Input, m.Graph.Output) {
		if t := v.GetType().GetTensorType(); t != nil && (pastName.MatchString(v.GetName()) || presentName.MatchString(v.GetName())) {
			t.ElemType = proto.Int32(int32(Int8))
		}
	}
	return nil
}

// floats is a float32 tensor.
func floats(name string, values []float32, dims ...int64) *onnxpb.TensorProto {
	t := &onnxpb.TensorProto{Name: &name, Dims: dims, DataType: proto.Int32(int32(Float32)), RawData: []byte{}}
	for _, v := range values {
		t.RawData = binary.LittleEndian.AppendUint32(t.RawData, math.Float32bits(v))
	}
	return t
}

// setAttribute gives a node an attribute in place of one of that name.
func setAttribute(n *onnxpb.NodeProto, a *onnxpb.AttributeProto) {
	n.Attribute = append(slices.DeleteFunc(n.Attribute, func(old *onnxpb.AttributeProto) bool { return old.GetName() == a.GetName() }), a)
}
