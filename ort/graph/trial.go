package graph

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/draftmill/draftmill/ort/graph/onnxpb"
)

// A trial runs the part of a graph that depends on nothing but shapes, constants
// and the mask, for one number of tokens and one length of the cache. It knows the
// shape of every value that it can follow, and the numbers of some: enough to see
// what a mask hides and by what scores are scaled, however an exporter wrote that
// down. What it does not know how to compute stays unknown.
type trial struct {
	flow   *flow
	values map[string][]float64 // row-major; bool as 0 and 1
	read   func(*onnxpb.TensorProto) []byte
}

// mostNumbers is how many numbers a trial computes of one value.
const mostNumbers = 1 << 20

// mostRead is how many bytes a constant in another file may have that a trial reads.
const mostRead = 1 << 16

// trialInput is how many tokens a trial's input has in an encoder-decoder model.
const trialInput = 6

// try runs a trial for tokens behind past cached ones. Where probe is set, each
// layer's cache together with the new tokens holds probeAt's numbers, and so do keys
// and values of an encoder's states. Where only names nodes, no others are run.
func (r *ragging) try(tokens, past int64, probe bool, only map[*onnxpb.NodeProto]bool) *trial {
	t := &trial{flow: &flow{editor: r.editor, values: map[string]*tensor{}}, values: map[string][]float64{}, read: r.options.Read}
	row := []size{fixed(1), fixed(tokens)}
	t.flow.values[InputIDs] = &tensor{typ: Int64, dims: row}
	var places []float64
	for i := range tokens {
		places = append(places, float64(past+i))
	}
	t.set(PositionIDs, &tensor{typ: Int64, dims: row}, places)
	ones := slices.Repeat([]float64{1}, int(past+tokens))
	t.set("attention_mask", &tensor{typ: Int64, dims: []size{fixed(1), fixed(past + tokens)}}, ones)
	for _, name := range r.layout.Past {
		t.flow.values[name] = r.cache(past)
	}
	if c := r.layout.Cross; c != nil {
		t.set("encoder_attention_mask", &tensor{typ: Int64, dims: []size{fixed(1), fixed(trialInput)}}, slices.Repeat([]float64{1}, trialInput))
		t.flow.values["encoder_hidden_states"] = &tensor{typ: c.States, dims: []size{fixed(1), fixed(trialInput), fixed(int64(c.Width))}}
		for _, name := range c.Past {
			if t.flow.values[name] = r.cache(trialInput); probe {
				t.set(name, r.cache(trialInput), probeNumbers(r.cache(trialInput)))
			}
		}
	}
	for _, n := range r.nodes {
		if only != nil && !only[n] {
			continue
		}
		t.node(n)
		if !probe {
			continue
		}
		for _, name := range n.Output {
			if x := t.flow.values[name]; slices.Contains(r.layout.Present, name) && x != nil && len(x.dims) == 4 && count(x) <= mostNumbers {
				t.set(name, x, probeNumbers(x))
			}
		}
	}
	return t
}

// cache is the shape of a layer's keys or values of so many tokens.
func (r *ragging) cache(tokens int64) *tensor {
	l := r.layout
	return &tensor{typ: l.Cache, dims: []size{fixed(1), fixed(int64(l.KVHeads)), fixed(tokens), fixed(int64(l.HeadSize))}}
}

// behind are the nodes that values depend on.
func (r *ragging) behind(names []string) map[*onnxpb.NodeProto]bool {
	nodes := map[*onnxpb.NodeProto]bool{}
	for len(names) > 0 {
		n := r.maker[names[len(names)-1]]
		names = names[:len(names)-1]
		if n != nil && !nodes[n] {
			nodes[n] = true
			names = append(names, n.Input...)
		}
	}
	return nodes
}

// probeAt is the number of entry s and element c of a KV head: different for all
// of a trial's.
func probeAt(head, s, c int64) float64 { return float64(1 + c + 1000*(s+1000*head)) }

func probeNumbers(x *tensor) []float64 {
	var data []float64
	for head := range x.dims[1].fixed {
		for s := range x.dims[2].fixed {
			for c := range x.dims[3].fixed {
				data = append(data, probeAt(head, s, c))
			}
		}
	}
	return data
}

// count is the number of elements, all of whose sizes are fixed in a trial.
func count(x *tensor) int64 {
	p, err := product(x.dims)
	if err != nil {
		return mostNumbers + 1
	}
	return p.fixed
}

// sizes are the dimensions of a value, nil where they are not known.
func (t *trial) sizes(name string) []int64 {
	x := t.flow.of(name)
	if x == nil {
		return nil
	}
	dims := []int64{}
	for _, d := range x.dims {
		dims = append(dims, d.fixed)
	}
	return dims
}

// numbers are the numbers of a value, nil where they are not known.
func (t *trial) numbers(name string) []float64 {
	if v, ok := t.values[name]; ok {
		return v
	}
	c := t.flow.editor.constant(name)
	if n, ok := elements(c); ok && c.GetDataLocation() == External && t.read != nil && n*int64(ElementType(c.GetDataType()).Size()) <= mostRead {
		if data := t.read(c); data != nil {
			c = &onnxpb.TensorProto{Dims: c.Dims, DataType: c.DataType, RawData: data}
		}
	}
	v := floatsOf(c)
	t.values[name] = v
	return v
}

// number is the one number of a value.
func (t *trial) number(name string) (float64, bool) {
	if v := t.numbers(name); len(v) == 1 {
		return v[0], true
	}
	return 0, false
}

func (t *trial) set(name string, x *tensor, data []float64) {
	if data != nil && (x.typ == Int64 || x.typ == Int32) && len(data) <= 1<<10 {
		x = x.same()
		x.ints = []size{}
		for _, v := range data {
			x.ints = append(x.ints, fixed(int64(v)))
		}
	}
	t.flow.values[name] = x
	t.values[name] = data
}

// node runs one node; what it cannot run leaves its outputs unknown.
func (t *trial) node(n *onnxpb.NodeProto) {
	if n.GetOpType() == "Constant" || len(n.Output) == 0 {
		return
	}
	o := &operands{flow: t.flow, node: n}
	var data [][]float64
	for _, name := range n.Input {
		if name == "" {
			o.in, data = append(o.in, nil), append(data, nil)
			continue
		}
		x := t.flow.of(name)
		if x == nil {
			return
		}
		o.in, data = append(o.in, x), append(data, t.numbers(name))
	}
	if f := trials[n.GetOpType()]; f != nil && len(o.in) > 0 && o.in[0] != nil {
		if x, v := f(o, data); x != nil {
			t.set(n.Output[0], x, v)
			return
		}
	}
	rule := rules[n.GetOpType()]
	if rule == nil {
		return
	}
	out, err := rule(o)
	if err != nil {
		return
	}
	for i, name := range n.Output {
		if name == "" || i >= len(out) || out[i] == nil {
			continue
		}
		var v []float64
		if compute := computed[n.GetOpType()]; i == 0 && compute != nil && count(out[i]) <= mostNumbers {
			if v = compute(o, data, out[i]); int64(len(v)) != count(out[i]) {
				v = nil
			}
		}
		t.set(name, out[i], v)
		if v == nil && out[i].ints != nil { // known as sizes are
			t.values[name] = []float64{}
			for _, s := range out[i].ints {
				t.values[name] = append(t.values[name], float64(s.fixed))
			}
		}
	}
}

// floatsOf are the numbers of a constant inside the model.
func floatsOf(t *onnxpb.TensorProto) []float64 {
	n, ok := elements(t)
	if !ok || n > mostNumbers || t.GetDataLocation() == External {
		return nil
	}
	data := []float64{}
	raw := t.GetRawData()
	typ := ElementType(t.GetDataType())
	switch {
	case typ == Float32 && int64(len(t.FloatData)) == n:
		for _, v := range t.FloatData {
			data = append(data, float64(v))
		}
		return data
	case (typ == Int32 || typ == Bool) && int64(len(t.Int32Data)) == n && n > 0:
		for _, v := range t.Int32Data {
			data = append(data, float64(v))
		}
		return data
	case typ == Int64 && int64(len(t.Int64Data)) == n && n > 0:
		for _, v := range t.Int64Data {
			data = append(data, float64(v))
		}
		return data
	case typ.Size() == 0 || int64(len(raw)) != n*int64(typ.Size()):
		return nil
	}
	for i := range n {
		at := raw[i*int64(typ.Size()):]
		switch typ {
		case Float32:
			data = append(data, float64(math.Float32frombits(binary.LittleEndian.Uint32(at))))
		case Float16:
			data = append(data, half(binary.LittleEndian.Uint16(at)))
		case BFloat16:
			data = append(data, float64(math.Float32frombits(uint32(binary.LittleEndian.Uint16(at))<<16)))
		case Int64:
			data = append(data, float64(int64(binary.LittleEndian.Uint64(at))))
		case Int32:
			data = append(data, float64(int32(binary.LittleEndian.Uint32(at))))
		case Int8:
			data = append(data, float64(int8(at[0])))
		default:
			data = append(data, float64(at[0]))
		}
	}
	return data
}
