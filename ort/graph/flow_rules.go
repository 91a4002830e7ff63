package graph

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// rules are the operators that treat tokens one by one, in the domains where
// exporters find them.
var rules map[string]rule

func init() {
	rules = map[string]rule{
		"Add": arithmetic, "Sub": arithmetic, "Mul": arithmetic, "Div": arithmetic,
		"Pow": elementwise, "Min": elementwise, "Max": elementwise, "Mod": elementwise,
		"Equal": comparison, "Greater": comparison, "GreaterOrEqual": comparison, "Less": comparison, "LessOrEqual": comparison,
		"And": comparison, "Or": comparison,
		"Where": where,
		"Cast":  cast, "Shape": shape, "Gather": gather, "GatherBlockQuantized": gatherQuantized,
		"Reshape": reshape, "Transpose": transpose, "Unsqueeze": unsqueeze, "Squeeze": squeeze, "Expand": expand,
		"Concat": concat, "Split": split, "Slice": slice, "ConstantOfShape": constantOfShape,
		"MatMul": matMul, "Gemm": gemm, "MatMulNBits": matMulNBits,
		"ReduceMean": reduce, "ReduceSum": reduce, "ReduceMax": reduce, "ReduceL2": reduce,
		"Softmax": alongAxis, "LayerNormalization": alongAxis, "SimplifiedLayerNormalization": alongAxis, "RMSNormalization": alongAxis,
		"SkipLayerNormalization": skip, "SkipSimplifiedLayerNormalization": skip,
		"RotaryEmbedding": rotary, "PagedAttention": pagedAttention, "CrossAttention": crossAttention,
		"MoE": like, "QMoE": like,
	}
	for _, op := range []string{
		"Abs", "BiasGelu", "Celu", "Clip", "Cos", "Elu", "Erf", "Exp", "FastGelu", "Gelu", "HardSigmoid", "HardSwish", "Identity", "LeakyRelu",
		"Log", "Mish", "Neg", "Not", "QuickGelu", "Reciprocal", "Relu", "Sigmoid", "Sign", "Sin", "Softplus", "Softsign", "Sqrt", "Swish", "Tanh",
	} {
		rules[op] = like
	}
	rules["Identity"] = identity
}

// like makes a tensor of the first input's shape and type.
func like(o *operands) ([]*tensor, error) {
	x, err := o.get(0)
	if err != nil {
		return nil, err
	}
	return []*tensor{x.same()}, nil
}

func identity(o *operands) ([]*tensor, error) {
	x, err := o.get(0)
	return []*tensor{x}, err
}

func cast(o *operands) ([]*tensor, error) {
	x, err := o.get(0)
	if err != nil {
		return nil, err
	}
	to := ElementType(o.attribute("to", 0))
	out := x.as(to)
	if to == Int64 || to == Int32 {
		out.ints = x.ints
	}
	return []*tensor{out}, nil
}

func elementwise(o *operands) ([]*tensor, error) {
	x, err := o.get(0)
	if err != nil {
		return nil, err
	}
	out := x.same()
	for i := 1; i < len(o.in); i++ {
		y, err := o.get(i)
		if err != nil {
			return nil, err
		}
		if out.dims, err = broadcast(out.dims, y.dims); err != nil {
			return nil, err
		}
	}
	return []*tensor{out}, nil
}

func comparison(o *operands) ([]*tensor, error) {
	out, err := elementwise(o)
	if err != nil {
		return nil, err
	}
	out[0].typ = Bool
	if o.node.GetOpType() == "Equal" && len(o.in) == 2 {
		out[0].ints = numberwise(o.in[0].ints, o.in[1].ints, func(a, b size) (size, bool) {
			switch {
			case a == b:
				return fixed(1), true
			case a.tokens == 0 && b.tokens == 0,
				a.tokens > 0 && a.fixed >= 0 && b.tokens == 0 && b.fixed < 0,
				b.tokens > 0 && b.fixed >= 0 && a.tokens == 0 && a.fixed < 0:
				return fixed(0), true
			}
			return size{}, false
		})
	}
	return out, nil
}

// numberwise computes with the numbers of shapes; nil where they are not known.
func numberwise(x, y []size, f func(a, b size) (size, bool)) []size {
	n := max(len(x), len(y))
	if x == nil || y == nil || n > 16 || len(x) == 0 || len(y) == 0 || len(x) != n && len(x) != 1 || len(y) != n && len(y) != 1 {
		return nil
	}
	out := make([]size, n)
	for i := range out {
		var ok bool
		if out[i], ok = f(x[i%len(x)], y[i%len(y)]); !ok {
			return nil
		}
	}
	return out
}

func where(o *operands) ([]*tensor, error) {
	out, err := elementwise(o)
	if err != nil {
		return nil, err
	}
	x, err := o.get(1)
	if err != nil {
		return nil, err
	}
	out[0].typ = x.typ
	if c := o.in[0].ints; c != nil && len(o.in) == 3 {
		yes := numberwise(x.ints, slices.Repeat([]size{{}}, len(c)), func(a, _ size) (size, bool) { return a, true })
		no := numberwise(o.in[2].ints, slices.Repeat([]size{{}}, len(c)), func(a, _ size) (size, bool) { return a, true })
		if len(yes) == len(c) && len(no) == len(c) {
			for i := range c {
				if c[i] == fixed(0) {
					yes[i] = no[i]
				}
			}
			out[0].ints = yes
		}
	}
	return out, nil
}

// arithmetic is elementwise, and computes with the numbers of shapes.
func arithmetic(o *operands) ([]*tensor, error) {
	out, err := elementwise(o)
	if err != nil || len(o.in) != 2 {
		return out, err
	}
	out[0].ints = numberwise(o.in[0].ints, o.in[1].ints, func(a, b size) (size, bool) {
		switch op := o.node.GetOpType(); {
		case op == "Add":
			return size{a.fixed + b.fixed, a.tokens + b.tokens}, true
		case op == "Sub":
			return size{a.fixed - b.fixed, a.tokens - b.tokens}, true
		case op == "Mul" && a.tokens == 0:
			return size{a.fixed * b.fixed, a.fixed * b.tokens}, true
		case op == "Mul" && b.tokens == 0:
			return size{a.fixed * b.fixed, a.tokens * b.fixed}, true
		case op == "Div" && a.tokens == 0 && b.tokens == 0 && b.fixed > 0:
			return fixed(a.fixed / b.fixed), true // of integers, towards zero
		case op == "Div" && b.tokens == 0 && b.fixed > 0 && a.fixed%b.fixed == 0 && a.tokens%b.fixed == 0:
			return size{a.fixed / b.fixed, a.tokens / b.fixed}, true
		}
		return size{}, false
	})
	return out, nil
}

func shape(o *operands) ([]*tensor, error) {
	x, err := o.get(0)
	if err != nil {
		return nil, err
	}
	start, end := o.attribute("start", 0), o.attribute("end", math.MaxInt64)
	rank := int64(len(x.dims))
	at := func(i int64) int64 {
		if i < 0 {
			i += rank
		}
		return min(max(i, 0), rank)
	}
	dims := slices.Clone(x.dims[at(start):max(at(start), at(end))])
	if dims == nil {
		dims = []size{}
	}
	return []*tensor{{typ: Int64, dims: []size{fixed(int64(len(dims)))}, ints: dims}}, nil
}

func gather(o *operands) ([]*tensor, error) {
	x, err := o.get(0)
	if err != nil {
		return nil, err
	}
	at, err := o.get(1)
	if err != nil {
		return nil, err
	}
	axis, err := place(o.attribute("axis", 0), len(x.dims))
	if err != nil {
		return nil, err
	}
	if x.dims[axis].tokens != 0 {
		return nil, errors.New("it picks tokens")
	}
	out := x.with(slices.Concat(x.dims[:axis], at.dims, x.dims[axis+1:])...)
	if x.ints != nil && len(x.dims) == 1 && at.ints != nil {
		out.ints = []size{}
		for _, i := range at.ints {
			j, err := place(i.fixed, len(x.ints))
			if err != nil || i.tokens != 0 {
				return nil, errors.New("it picks beyond the end")
			}
			out.ints = append(out.ints, x.ints[j])
		}
	}
	return []*tensor{out}, nil
}

// gatherQuantized is com.microsoft.GatherBlockQuantized, whose bytes may hold two
// numbers each.
func gatherQuantized(o *operands) ([]*tensor, error) {
	out, err := gather(&operands{flow: o.flow, node: o.node, in: o.in})
	if err != nil {
		return nil, err
	}
	scales, err := o.get(2)
	if err != nil {
		return nil, err
	}
	x := out[0]
	if bits := o.attribute("bits", 4); x.typ == Uint8 && bits > 0 && bits < 8 {
		x.dims = slices.Clone(x.dims)
		x.dims[len(x.dims)-1].fixed *= 8 / bits
	}
	return []*tensor{x.as(scales.typ)}, nil
}

func alongAxis(o *operands) ([]*tensor, error) {
	x, err := o.get(0)
	if err != nil {
		return nil, err
	}
	axis, err := place(o.attribute("axis", -1), len(x.dims))
	if err != nil {
		return nil, err
	}
	if o.node.GetOpType() == "Softmax" {
		if x.dims[axis].tokens != 0 {
			return nil, errors.New("it mixes tokens")
		}
		return []*tensor{x.same()}, nil
	}
	for _, d := range x.dims[axis:] { // normalizations take all axes from this one on
		if d.tokens != 0 {
			return nil, errors.New("it mixes tokens")
		}
	}
	return []*tensor{x.same()}, nil
}

func skip(o *operands) ([]*tensor, error) {
	x, err := o.get(0)
	if err != nil {
		return nil, err
	}
	y, err := o.get(1)
	if err != nil {
		return nil, err
	}
	if !slices.Equal(x.dims, y.dims) || len(x.dims) == 0 || x.last().tokens != 0 {
		return nil, errors.New("its two inputs differ in shape")
	}
	return []*tensor{x.same(), nil, nil, x.same()}, nil
}

func rotary(o *operands) ([]*tensor, error) {
	x, err := o.get(0)
	if err != nil {
		return nil, err
	}
	if len(x.dims) == 0 || x.last().tokens != 0 || o.attribute("is_packed_batching", 0) != 0 {
		return nil, errors.New("it mixes tokens")
	}
	return []*tensor{x.same()}, nil
}

func reduce(o *operands) ([]*tensor, error) {
	x, err := o.get(0)
	if err != nil {
		return nil, err
	}
	axes, err := o.axes(1)
	if err != nil {
		return nil, err
	}
	if len(axes) == 0 {
		return nil, errors.New("it mixes tokens")
	}
	out := x.same()
	out.dims = slices.Clone(x.dims)
	var drop []int
	for _, a := range axes {
		axis, err := place(a, len(x.dims))
		if err != nil {
			return nil, err
		}
		if x.dims[axis].tokens != 0 {
			return nil, errors.New("it mixes tokens")
		}
		out.dims[axis] = fixed(1)
		drop = append(drop, axis)
	}
	if o.attribute("keepdims", 1) == 0 {
		out.dims = without(out.dims, drop)
	}
	return []*tensor{out}, nil
}

func without(dims []size, drop []int) []size {
	var out []size
	for i, d := range dims {
		if !slices.Contains(drop, i) {
			out = append(out, d)
		}
	}
	return out
}

func matMul(o *operands) ([]*tensor, error) {
	a, err := o.get(0)
	if err != nil {
		return nil, err
	}
	b, err := o.get(1)
	if err != nil {
		return nil, err
	}
	if len(a.dims) < 2 || len(b.dims) < 2 {
		return nil, errors.New("an operand of one dimension")
	}
	m, k := a.dims[len(a.dims)-2], a.last()
	k2, n := b.dims[len(b.dims)-2], b.last()
	if k != k2 || k.tokens != 0 {
		return nil, fmt.Errorf("it mixes tokens, or %v and %v do not fit", a.dims, b.dims)
	}
	batch, err := broadcast(a.dims[:len(a.dims)-2], b.dims[:len(b.dims)-2])
	if err != nil {
		return nil, err
	}
	return []*tensor{a.with(append(batch, m, n)...)}, nil
}

func gemm(o *operands) ([]*tensor, error) {
	a, err := o.get(0)
	if err != nil {
		return nil, err
	}
	b, err := o.get(1)
	if err != nil {
		return nil, err
	}
	if len(a.dims) != 2 || len(b.dims) != 2 || o.attribute("transA", 0) != 0 {
		return nil, errors.New("its operands are not two matrices in order")
	}
	k, n := b.dims[0], b.dims[1]
	if o.attribute("transB", 0) != 0 {
		k, n = n, k
	}
	if a.dims[1] != k || k.tokens != 0 || n.tokens != 0 {
		return nil, fmt.Errorf("it mixes tokens, or %v and %v do not fit", a.dims, b.dims)
	}
	return []*tensor{a.with(a.dims[0], n)}, nil
}

func matMulNBits(o *operands) ([]*tensor, error) {
	x, err := o.get(0)
	if err != nil {
		return nil, err
	}
	k, n := o.attribute("K", 0), o.attribute("N", 0)
	if len(x.dims) == 0 || x.last() != fixed(k) || n <= 0 {
		return nil, fmt.Errorf("%v times a matrix of %d by %d", x.dims, k, n)
	}
	return []*tensor{x.with(append(slices.Clone(x.dims[:len(x.dims)-1]), fixed(n))...)}, nil
}

// pagedAttention is the node that NewRagged made: its output is as wide as the
// queries.
func pagedAttention(o *operands) ([]*tensor, error) {
	q, err := o.get(0)
	if err != nil {
		return nil, err
	}
	heads, kvHeads := o.attribute("num_heads", 0), o.attribute("kv_num_heads", 0)
	if len(q.dims) == 0 || q.last().tokens != 0 {
		return nil, errors.New("its queries are not rows of tokens")
	}
	width := q.last().fixed
	if o.in[1] == nil {
		if all := heads + 2*kvHeads; width%all != 0 {
			return nil, fmt.Errorf("a row of %d for %d heads", width, all)
		}
		width = width / (heads + 2*kvHeads) * heads
	}
	if width%heads != 0 {
		return nil, fmt.Errorf("a row of %d for %d heads", width, heads)
	}
	for _, t := range o.in[:3] {
		if t == nil {
			continue
		}
		rank := len(t.dims)
		if rank < 2 || t.dims[rank-2] != (size{tokens: 1}) || rank == 3 && t.dims[0] != fixed(1) || rank > 3 {
			return nil, fmt.Errorf("an operand of %v is not one row of tokens", t.dims)
		}
	}
	return []*tensor{q.with(append(slices.Clone(q.dims[:len(q.dims)-1]), fixed(width))...)}, nil
}

// crossAttention is the node that NewRaggedCrossed made.
func crossAttention(o *operands) ([]*tensor, error) {
	q, err := o.get(0)
	if err != nil {
		return nil, err
	}
	if len(q.dims) != 3 || q.dims[0] != fixed(1) || q.dims[1] != (size{tokens: 1}) || q.last().tokens != 0 {
		return nil, fmt.Errorf("queries of %v are not one row of tokens", q.dims)
	}
	return []*tensor{q.same()}, nil
}
