package graph

import (
	"errors"
	"fmt"
	"slices"
)

// reshape keeps tokens in order: what comes before and after them along the axes
// may be divided anew, and a row of T tokens may become one of n T parts.
func reshape(o *operands) ([]*tensor, error) {
	x, err := o.get(0)
	if err != nil {
		return nil, err
	}
	to, err := o.get(1)
	if err != nil {
		return nil, err
	}
	if to.ints == nil {
		return nil, errors.New("its shape is not known")
	}
	out := x.with(slices.Clone(to.ints)...)
	open := -1
	for i, d := range out.dims {
		switch {
		case d == fixed(0) && o.attribute("allowzero", 0) == 0:
			if i >= len(x.dims) {
				return nil, errors.New("its shape copies a size that is not there")
			}
			out.dims[i] = x.dims[i]
		case d == fixed(-1) && open >= 0:
			return nil, errors.New("its shape leaves two sizes open")
		case d == fixed(-1):
			open = i
			out.dims[i] = fixed(1)
		}
	}
	all, err := product(x.dims)
	if err != nil {
		return nil, err
	}
	if open >= 0 {
		rest, err := product(out.dims)
		if err != nil {
			return nil, err
		}
		if out.dims[open], err = quotient(all, rest); err != nil {
			return nil, err
		}
	}
	if got, err := product(out.dims); err != nil || got != all {
		return nil, fmt.Errorf("%v does not become %v", x.dims, out.dims)
	}
	if x.ints != nil {
		out.ints = x.ints
	}
	return []*tensor{out}, keepsOrder(x, out)
}

// keepsOrder sees that the numbers of a token stay together.
func keepsOrder(x, y *tensor) error {
	i, err := x.axis()
	if err != nil {
		return err
	}
	j, err := y.axis()
	if err != nil {
		return err
	}
	if i < 0 && j < 0 {
		return nil
	}
	if i < 0 || j < 0 {
		return errors.New("tokens come or go")
	}
	before, _ := product(x.dims[:i])
	after, _ := product(y.dims[:j])
	if before != after || before != fixed(1) && x.dims[i] != y.dims[j] {
		return fmt.Errorf("%v becomes %v, which tears tokens apart", x.dims, y.dims)
	}
	return nil
}

// product is the number of elements: fixed, or so many for each token.
func product(dims []size) (size, error) {
	p := fixed(1)
	for _, d := range dims {
		switch {
		case d.tokens != 0 && (p.tokens != 0 || d.fixed != 0):
			return size{}, errors.New("tokens meet tokens")
		case d.tokens != 0:
			p = size{tokens: p.fixed * d.tokens}
		default:
			p = size{p.fixed * d.fixed, p.tokens * d.fixed}
		}
		if n := max(p.fixed, p.tokens); n < 0 || n > 1<<40 || p.fixed < 0 || p.tokens < 0 {
			return size{}, errors.New("sizes that cannot be true")
		}
	}
	return p, nil
}

func quotient(a, b size) (size, error) {
	switch {
	case b.tokens == 0 && b.fixed > 0 && a.fixed%b.fixed == 0 && a.tokens%b.fixed == 0:
		return size{a.fixed / b.fixed, a.tokens / b.fixed}, nil
	case b.tokens > 0 && b.fixed == 0 && a.fixed == 0 && a.tokens%b.tokens == 0:
		return fixed(a.tokens / b.tokens), nil
	}
	return size{}, errors.New("its sizes do not divide each other")
}

func transpose(o *operands) ([]*tensor, error) {
	x, err := o.get(0)
	if err != nil {
		return nil, err
	}
	perm := Attribute(o.node, "perm").GetInts()
	if perm == nil {
		for i := range x.dims {
			perm = append(perm, int64(len(x.dims)-1-i))
		}
	}
	if len(perm) != len(x.dims) {
		return nil, fmt.Errorf("an order of %d axes for %d", len(perm), len(x.dims))
	}
	out := x.with()
	seen := map[int64]bool{}
	for _, p := range perm {
		if p < 0 || p >= int64(len(x.dims)) || seen[p] {
			return nil, errors.New("an order that is none")
		}
		seen[p] = true
		out.dims = append(out.dims, x.dims[p])
	}
	return []*tensor{out}, nil
}

func unsqueeze(o *operands) ([]*tensor, error) {
	x, err := o.get(0)
	if err != nil {
		return nil, err
	}
	axes, err := o.axes(1)
	if err != nil {
		return nil, err
	}
	rank := len(x.dims) + len(axes)
	if rank > 16 {
		return nil, errors.New("too many axes")
	}
	isNew := make([]bool, rank)
	for _, a := range axes {
		axis, err := place(a, rank)
		if err != nil || isNew[axis] {
			return nil, fmt.Errorf("axis %d of %d", a, rank)
		}
		isNew[axis] = true
	}
	out := x.with()
	left := x.dims
	for _, n := range isNew {
		if n {
			out.dims = append(out.dims, fixed(1))
		} else {
			out.dims, left = append(out.dims, left[0]), left[1:]
		}
	}
	out.ints = x.ints
	return []*tensor{out}, nil
}

func squeeze(o *operands) ([]*tensor, error) {
	x, err := o.get(0)
	if err != nil {
		return nil, err
	}
	axes, err := o.axes(1)
	if err != nil {
		return nil, err
	}
	var drop []int
	for _, a := range axes {
		axis, err := place(a, len(x.dims))
		if err != nil {
			return nil, err
		}
		drop = append(drop, axis)
	}
	if axes == nil {
		for i, d := range x.dims {
			if d.tokens != 0 {
				return nil, errors.New("it drops what happens to be one token")
			}
			if d == fixed(1) {
				drop = append(drop, i)
			}
		}
	}
	for _, i := range drop {
		if x.dims[i] != fixed(1) {
			return nil, fmt.Errorf("it drops axis %d of %v", i, x.dims)
		}
	}
	out := x.with(without(x.dims, drop)...)
	out.ints = x.ints
	return []*tensor{out}, nil
}

func expand(o *operands) ([]*tensor, error) {
	x, err := o.get(0)
	if err != nil {
		return nil, err
	}
	to, err := o.get(1)
	if err != nil {
		return nil, err
	}
	if to.ints == nil {
		return nil, errors.New("its shape is not known")
	}
	dims, err := broadcast(x.dims, to.ints)
	if err != nil {
		return nil, err
	}
	return []*tensor{x.with(dims...)}, nil
}

func concat(o *operands) ([]*tensor, error) {
	x, err := o.get(0)
	if err != nil {
		return nil, err
	}
	axis, err := place(o.attribute("axis", 0), len(x.dims))
	if err != nil {
		return nil, err
	}
	out := x.same()
	out.dims = slices.Clone(x.dims)
	ints := x.ints
	for i := range o.in {
		y, err := o.get(i)
		if err != nil {
			return nil, err
		}
		if len(y.dims) != len(x.dims) || y.dims[axis].tokens != 0 {
			return nil, errors.New("it puts tokens behind tokens")
		}
		for j := range x.dims {
			if j != axis && y.dims[j] != x.dims[j] {
				return nil, fmt.Errorf("%v beside %v", x.dims, y.dims)
			}
		}
		if i == 0 {
			continue
		}
		out.dims[axis].fixed += y.dims[axis].fixed
		if ints = append(slices.Clip(ints), y.ints...); y.ints == nil || x.ints == nil {
			ints = nil
		}
	}
	if len(x.dims) == 1 {
		out.ints = ints
	}
	return []*tensor{out}, nil
}

func split(o *operands) ([]*tensor, error) {
	x, err := o.get(0)
	if err != nil {
		return nil, err
	}
	axis, err := place(o.attribute("axis", 0), len(x.dims))
	if err != nil {
		return nil, err
	}
	d := x.dims[axis]
	if d.tokens != 0 {
		return nil, errors.New("it parts tokens")
	}
	sizes := Attribute(o.node, "split").GetInts()
	if len(o.in) > 1 && o.in[1] != nil {
		if sizes, err = numbers(o.in[1]); err != nil {
			return nil, err
		}
	}
	if sizes == nil {
		n := int64(len(o.node.Output))
		if n == 0 || d.fixed%n != 0 {
			return nil, errors.New("it parts unevenly")
		}
		sizes = slices.Repeat([]int64{d.fixed / n}, int(n))
	}
	total := int64(0)
	var out []*tensor
	for _, n := range sizes {
		total += n
		y := x.with(slices.Clone(x.dims)...)
		y.dims[axis] = fixed(n)
		out = append(out, y)
	}
	if total != d.fixed || slices.ContainsFunc(sizes, func(n int64) bool { return n < 0 }) {
		return nil, fmt.Errorf("parts %v of %d", sizes, d.fixed)
	}
	return out, nil
}

// slice takes a part along axes without tokens, or all along one with them.
func slice(o *operands) ([]*tensor, error) {
	x, err := o.get(0)
	if err != nil {
		return nil, err
	}
	read := func(i int, name string) ([]size, error) {
		if a := Attribute(o.node, name); a != nil {
			var v []size
			for _, n := range a.Ints {
				v = append(v, fixed(n))
			}
			return v, nil
		}
		if i >= len(o.in) || o.in[i] == nil {
			return nil, nil
		}
		if o.in[i].ints == nil {
			return nil, errors.New("its range is not known")
		}
		return o.in[i].ints, nil
	}
	var part [4][]size // starts, ends, axes, steps
	for i, name := range []string{"starts", "ends", "axes", "steps"} {
		if part[i], err = read(i+1, name); err != nil {
			return nil, err
		}
	}
	out := x.with(slices.Clone(x.dims)...)
	ints := x.ints
	for i := range part[0] {
		axis := i
		if part[2] != nil && i < len(part[2]) {
			if axis, err = place(part[2][i].fixed, len(x.dims)); err != nil {
				return nil, err
			}
		}
		if axis >= len(x.dims) || i >= len(part[1]) || part[3] != nil && (i >= len(part[3]) || part[3][i] != fixed(1)) {
			return nil, errors.New("a range that is none")
		}
		d, from, to := x.dims[axis], part[0][i], part[1][i]
		whole := from == fixed(0) && (to == d || to.tokens == 0 && to.fixed >= 1<<30)
		if whole {
			continue
		}
		if d.tokens != 0 || from.tokens != 0 || to.tokens != 0 {
			return nil, errors.New("it takes some of the tokens")
		}
		lo, hi := inside(from.fixed, d.fixed), inside(to.fixed, d.fixed)
		out.dims[axis] = fixed(max(hi-lo, 0))
		if ints != nil && len(x.dims) == 1 {
			ints = ints[min(lo, int64(len(ints))):min(max(lo, hi), int64(len(ints)))]
		}
	}
	if len(x.dims) == 1 {
		out.ints = ints
	}
	return []*tensor{out}, nil
}

// inside is a place of a range, which may count from the end.
func inside(i, n int64) int64 {
	if i < 0 {
		i += n
	}
	return min(max(i, 0), n)
}

func constantOfShape(o *operands) ([]*tensor, error) {
	x, err := o.get(0)
	if err != nil {
		return nil, err
	}
	if x.ints == nil {
		return nil, errors.New("its shape is not known")
	}
	out := &tensor{typ: Float32, dims: x.ints}
	if v := Attribute(o.node, "value").GetT(); v != nil {
		out.typ = ElementType(v.GetDataType())
		n, err := product(x.ints)
		if values, ok := intsOf(v); ok && err == nil && len(values) == 1 && n.tokens == 0 && n.fixed <= 16 {
			out.ints = slices.Repeat([]size{fixed(values[0])}, int(n.fixed))
		}
	}
	return []*tensor{out}, nil
}
