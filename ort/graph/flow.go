package graph

import (
	"errors"
	"fmt"
	"slices"

	"github.com/draftmill/draftmill/ort/graph/onnxpb"
)

// A flow follows the packed row of tokens through a graph: for each value its
// type, and its shape as far as the row's length T goes into it. It refuses every
// operator that is not known to treat tokens one by one, and so proves that no
// sequence of a pass sees another but through attention.
type flow struct {
	editor *editor
	values map[string]*tensor
}

// size is a length along an axis, or a number of an integer tensor: fixed, or so
// many for each token of the row, or both.
type size struct{ fixed, tokens int64 }

// tensor is what is known of a value.
type tensor struct {
	typ  ElementType
	dims []size
	ints []size // the numbers of a small int64 tensor, row-major; nil where they are not known
}

// axis is the one axis along which tokens lie, -1 where there is none, or an
// error where there are several.
func (t *tensor) axis() (int, error) {
	axis := -1
	for i, d := range t.dims {
		if d.tokens != 0 {
			if axis >= 0 {
				return 0, errors.New("tokens meet tokens")
			}
			axis = i
		}
	}
	return axis, nil
}

func (t *tensor) last() size { return t.dims[len(t.dims)-1] }

// with is a tensor of other sizes.
func (t *tensor) with(dims ...size) *tensor { return &tensor{typ: t.typ, dims: dims} }

// same is a tensor like t whose numbers are not known.
func (t *tensor) same() *tensor { return t.with(t.dims...) }

func (t *tensor) as(typ ElementType) *tensor { return &tensor{typ: typ, dims: t.dims} }

func fixed(n int64) size { return size{fixed: n} }

// follow follows the row from the inputs on. Nodes are sorted.
func (r *ragging) follow() (*flow, error) {
	f := &flow{editor: r.editor, values: map[string]*tensor{}}
	row := []size{fixed(1), {tokens: 1}}
	f.values[InputIDs] = &tensor{typ: Int64, dims: row}
	f.values[PositionIDs] = &tensor{typ: Int64, dims: row}
	for _, n := range r.nodes {
		if err := f.node(n); err != nil {
			return nil, fmt.Errorf("node %s (%s): %w", n.GetName(), n.GetOpType(), err)
		}
	}
	return f, nil
}

// of is what is known of a value, nil where nothing is.
func (f *flow) of(name string) *tensor {
	if t := f.values[name]; t != nil {
		return t
	}
	c := f.editor.constant(name)
	if _, ok := elements(c); !ok {
		return nil
	}
	t := &tensor{typ: ElementType(c.GetDataType())}
	for _, d := range c.Dims {
		t.dims = append(t.dims, fixed(d))
	}
	if values, ok := intsOf(c); ok {
		t.ints = []size{}
		for _, v := range values {
			t.ints = append(t.ints, fixed(v))
		}
	}
	f.values[name] = t
	return t
}

// operands are a node's inputs with what is known of them. A missing one is nil.
type operands struct {
	flow *flow
	node *onnxpb.NodeProto
	in   []*tensor
}

// attribute is an integer attribute.
func (o *operands) attribute(name string, otherwise int64) int64 {
	if a := Attribute(o.node, name); a != nil {
		return a.GetI()
	}
	return otherwise
}

// get is the i-th input.
func (o *operands) get(i int) (*tensor, error) {
	if i >= len(o.in) || o.in[i] == nil {
		return nil, fmt.Errorf("no input %d", i)
	}
	return o.in[i], nil
}

// tokens reports whether an input depends on the row.
func (t *tensor) tokens() bool {
	return t != nil && (slices.ContainsFunc(t.dims, func(d size) bool { return d.tokens != 0 }) ||
		slices.ContainsFunc(t.ints, func(d size) bool { return d.tokens != 0 }))
}

// rule says what a node makes of its inputs: what is known of the outputs that
// have a meaning here.
type rule func(o *operands) ([]*tensor, error)

// node follows the row through a node.
func (f *flow) node(n *onnxpb.NodeProto) error {
	if n.GetOpType() == "Constant" {
		if t := f.of(n.Output[0]); t == nil {
			return errors.New("a constant of an unknown kind")
		}
		return nil
	}
	o := &operands{flow: f, node: n}
	for i, name := range n.Input {
		if name == "" {
			o.in = append(o.in, nil)
			continue
		}
		t := f.of(name)
		if t == nil && !(n.GetOpType() == "PagedAttention" && i > 2) && !(n.GetOpType() == "CrossAttention" && i > 0) {
			return fmt.Errorf("nothing is known of its input %s", name)
		}
		o.in = append(o.in, t)
	}
	rule := rules[n.GetOpType()]
	if rule == nil {
		return errors.New("not known to treat tokens one by one")
	}
	out, err := rule(o)
	if err != nil {
		return err
	}
	for i, name := range n.Output {
		if name == "" {
			continue
		}
		if i >= len(out) || out[i] == nil {
			if n.GetOpType() != "PagedAttention" && (len(f.editor.users[name]) > 0 || name == Logits) {
				return fmt.Errorf("its output %d is used", i)
			}
			continue
		}
		if _, err := out[i].axis(); err != nil {
			return err
		}
		f.values[name] = out[i]
	}
	return nil
}

// place is an axis in 0..rank-1 of one that may count from the end.
func place(axis int64, rank int) (int, error) {
	if axis < 0 {
		axis += int64(rank)
	}
	if axis < 0 || axis >= int64(rank) {
		return 0, fmt.Errorf("axis %d of %d dimensions", axis, rank)
	}
	return int(axis), nil
}

// numbers are an integer input's values without tokens in them.
func numbers(t *tensor) ([]int64, error) {
	if t == nil || t.ints == nil {
		return nil, errors.New("its sizes are not constant")
	}
	var out []int64
	for _, v := range t.ints {
		if v.tokens != 0 {
			return nil, errors.New("its sizes depend on the tokens")
		}
		out = append(out, v.fixed)
	}
	return out, nil
}

// axes are a node's axes, of an attribute (old operators) or of input i.
func (o *operands) axes(i int) ([]int64, error) {
	if a := Attribute(o.node, "axes"); a != nil {
		return a.Ints, nil
	}
	if i >= len(o.in) || o.in[i] == nil {
		return nil, nil
	}
	return numbers(o.in[i])
}

// broadcast is the shape of operands that numpy's rules stretch to each other.
func broadcast(a, b []size) ([]size, error) {
	rank := max(len(a), len(b))
	out := make([]size, rank)
	at := func(dims []size, i int) size {
		if i -= rank - len(dims); i < 0 {
			return fixed(1)
		}
		return dims[i]
	}
	for i := range out {
		x, y := at(a, i), at(b, i)
		switch {
		case x == y || y == fixed(1):
			out[i] = x
		case x == fixed(1):
			out[i] = y
		default:
			return nil, fmt.Errorf("sizes %v and %v do not fit", a, b)
		}
	}
	return out, nil
}
