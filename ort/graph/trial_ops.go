package graph

import (
	"math"
	"slices"
)

// computed are the operators whose numbers a trial computes where it knows those
// of the inputs; out has the result's shape. They return nil for what they do not
// know.
var computed = map[string]func(o *operands, in [][]float64, out *tensor) []float64{
	"Identity": copied, "Reshape": copied, "Unsqueeze": copied, "Squeeze": copied, "Cast": castNumbers,
	"Add":            binary2(func(a, b float64) float64 { return a + b }),
	"Sub":            binary2(func(a, b float64) float64 { return a - b }),
	"Mul":            binary2(func(a, b float64) float64 { return a * b }),
	"Div":            divide,
	"Pow":            binary2(math.Pow),
	"Min":            binary2(math.Min),
	"Max":            binary2(math.Max),
	"Equal":          binary2(func(a, b float64) float64 { return truth(a == b) }),
	"Greater":        binary2(func(a, b float64) float64 { return truth(a > b) }),
	"GreaterOrEqual": binary2(func(a, b float64) float64 { return truth(a >= b) }),
	"Less":           binary2(func(a, b float64) float64 { return truth(a < b) }),
	"LessOrEqual":    binary2(func(a, b float64) float64 { return truth(a <= b) }),
	"And":            binary2(func(a, b float64) float64 { return truth(a != 0 && b != 0) }),
	"Or":             binary2(func(a, b float64) float64 { return truth(a != 0 || b != 0) }),
	"Not":            unary(func(a float64) float64 { return truth(a == 0) }),
	"Neg":            unary(func(a float64) float64 { return -a }),
	"Abs":            unary(math.Abs),
	"Log":            unary(math.Log),
	"Sqrt":           unary(math.Sqrt),
	"Reciprocal":     unary(func(a float64) float64 { return 1 / a }),
	"Where":          choose, "Expand": stretched, "Gather": picked, "Concat": joined, "Slice": cut, "Transpose": turned,
	"ConstantOfShape": filled,
}

// trials are operators that only a trial knows: their shapes depend on numbers, or
// they mix tokens.
var trials = map[string]func(o *operands, in [][]float64) (*tensor, []float64){
	"Range": counting, "IsNaN": isNaN, "Flatten": flattened, "Trilu": triangle, "CumSum": running, "ScatterND": scattered,
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func copied(_ *operands, in [][]float64, _ *tensor) []float64 { return in[0] }

func castNumbers(_ *operands, in [][]float64, out *tensor) []float64 {
	if in[0] == nil {
		return nil
	}
	v := slices.Clone(in[0])
	for i := range v {
		switch out.typ {
		case Bool:
			v[i] = truth(v[i] != 0)
		case Int64, Int32:
			v[i] = math.Trunc(v[i])
		case Float32:
			v[i] = float64(float32(v[i]))
		}
	}
	return v
}

func unary(f func(a float64) float64) func(*operands, [][]float64, *tensor) []float64 {
	return func(_ *operands, in [][]float64, _ *tensor) []float64 {
		if in[0] == nil {
			return nil
		}
		v := slices.Clone(in[0])
		for i := range v {
			v[i] = f(v[i])
		}
		return v
	}
}

// strides are how far apart neighbours along out's axes lie in a tensor that is
// stretched to out.
func strides(x *tensor, out []size) []int {
	s := make([]int, len(out))
	step := 1
	for i := len(x.dims) - 1; i >= 0; i-- {
		if j := i + len(out) - len(x.dims); j >= 0 && x.dims[i] != fixed(1) {
			s[j] = step
		}
		step *= int(x.dims[i].fixed)
	}
	return s
}

// walk calls f for every element of a shape, row-major, with the offsets that
// strides give.
func walk(dims []size, strides [][]int, f func(at []int)) {
	at, place := make([]int, len(strides)), make([]int, len(dims))
	for _, d := range dims {
		if d.fixed == 0 {
			return
		}
	}
	for {
		f(at)
		i := len(dims) - 1
		for ; i >= 0; i-- {
			place[i]++
			for j := range at {
				at[j] += strides[j][i]
			}
			if place[i] < int(dims[i].fixed) {
				break
			}
			for j := range at {
				at[j] -= place[i] * strides[j][i]
			}
			place[i] = 0
		}
		if i < 0 {
			return
		}
	}
}

func binary2(f func(a, b float64) float64) func(*operands, [][]float64, *tensor) []float64 {
	return func(o *operands, in [][]float64, out *tensor) []float64 {
		if len(in) != 2 || in[0] == nil || in[1] == nil {
			return nil
		}
		var v []float64
		walk(out.dims, [][]int{strides(o.in[0], out.dims), strides(o.in[1], out.dims)}, func(at []int) {
			v = append(v, f(in[0][at[0]], in[1][at[1]]))
		})
		return v
	}
}

func divide(o *operands, in [][]float64, out *tensor) []float64 {
	whole := out.typ == Int64 || out.typ == Int32
	return binary2(func(a, b float64) float64 {
		if whole {
			return math.Trunc(a / b)
		}
		return a / b
	})(o, in, out)
}

func choose(o *operands, in [][]float64, out *tensor) []float64 {
	if len(in) != 3 || in[0] == nil || in[1] == nil || in[2] == nil {
		return nil
	}
	var v []float64
	walk(out.dims, [][]int{strides(o.in[0], out.dims), strides(o.in[1], out.dims), strides(o.in[2], out.dims)}, func(at []int) {
		if in[0][at[0]] != 0 {
			v = append(v, in[1][at[1]])
		} else {
			v = append(v, in[2][at[2]])
		}
	})
	return v
}

func stretched(o *operands, in [][]float64, out *tensor) []float64 {
	if in[0] == nil {
		return nil
	}
	var v []float64
	walk(out.dims, [][]int{strides(o.in[0], out.dims)}, func(at []int) { v = append(v, in[0][at[0]]) })
	return v
}

func turned(o *operands, in [][]float64, out *tensor) []float64 {
	x := o.in[0]
	if in[0] == nil || len(x.dims) == 0 {
		return nil
	}
	step := make([]int, len(x.dims))
	n := 1
	for i := len(x.dims) - 1; i >= 0; i-- {
		step[i] = n
		n *= int(x.dims[i].fixed)
	}
	perm := Attribute(o.node, "perm").GetInts()
	s := make([]int, len(x.dims))
	for i := range s {
		if perm != nil {
			s[i] = step[perm[i]]
		} else {
			s[i] = step[len(step)-1-i]
		}
	}
	var v []float64
	walk(out.dims, [][]int{s}, func(at []int) { v = append(v, in[0][at[0]]) })
	return v
}

// around is the number of elements before and behind an axis.
func around(dims []size, axis int) (before, after int) {
	before, after = 1, 1
	for i, d := range dims {
		switch {
		case i < axis:
			before *= int(d.fixed)
		case i > axis:
			after *= int(d.fixed)
		}
	}
	return before, after
}

func picked(o *operands, in [][]float64, _ *tensor) []float64 {
	x := o.in[0]
	axis, err := place(o.attribute("axis", 0), len(x.dims))
	if err != nil || in[0] == nil || in[1] == nil {
		return nil
	}
	before, after := around(x.dims, axis)
	n := int(x.dims[axis].fixed)
	v := []float64{}
	for b := range before {
		for _, i := range in[1] {
			at := int(i)
			if at < 0 {
				at += n
			}
			if at < 0 || at >= n {
				return nil
			}
			v = append(v, in[0][(b*n+at)*after:(b*n+at+1)*after]...)
		}
	}
	return v
}

func joined(o *operands, in [][]float64, out *tensor) []float64 {
	axis, err := place(o.attribute("axis", 0), len(out.dims))
	if err != nil {
		return nil
	}
	before, after := around(out.dims, axis)
	v := []float64{}
	for b := range before {
		for i, data := range in {
			if data == nil {
				return nil
			}
			n := int(o.in[i].dims[axis].fixed) * after
			v = append(v, data[b*n:(b+1)*n]...)
		}
	}
	return v
}

// cut is a Slice along one axis after the other, all of step 1.
func cut(o *operands, in [][]float64, out *tensor) []float64 {
	if len(in) < 3 || in[0] == nil || in[1] == nil || in[2] == nil {
		return nil
	}
	dims, data := slices.Clone(o.in[0].dims), in[0]
	for i := range in[1] {
		axis := i
		if len(in) > 3 && in[3] != nil {
			var err error
			if axis, err = place(int64(in[3][i]), len(dims)); err != nil {
				return nil
			}
		}
		n := dims[axis].fixed
		lo := inside(whole(in[1][i]), n)
		hi := max(inside(whole(in[2][i]), n), lo)
		before, after := around(dims, axis)
		part := []float64{}
		for b := range before {
			part = append(part, data[(b*int(n)+int(lo))*after:(b*int(n)+int(hi))*after]...)
		}
		data, dims[axis] = part, fixed(hi-lo)
	}
	if !slices.Equal(dims, out.dims) {
		return nil
	}
	return data
}

// whole is a number of a range, which may be the largest integer.
func whole(v float64) int64 {
	return int64(min(max(v, -1<<40), 1<<40))
}

func filled(o *operands, _ [][]float64, out *tensor) []float64 {
	v := 0.0
	if t := Attribute(o.node, "value").GetT(); t != nil {
		data := floatsOf(t)
		if len(data) != 1 {
			return nil
		}
		v = data[0]
	}
	return slices.Repeat([]float64{v}, int(count(out)))
}

func counting(o *operands, in [][]float64) (*tensor, []float64) {
	if len(in) != 3 || len(in[0]) != 1 || len(in[1]) != 1 || len(in[2]) != 1 || in[2][0] == 0 {
		return nil, nil
	}
	n := math.Ceil((in[1][0] - in[0][0]) / in[2][0])
	if !(n <= mostNumbers) {
		return nil, nil
	}
	v := []float64{}
	for i := range int(max(n, 0)) {
		v = append(v, in[0][0]+float64(i)*in[2][0])
	}
	return o.in[0].with(fixed(int64(len(v)))), v
}

func isNaN(o *operands, in [][]float64) (*tensor, []float64) {
	return o.in[0].as(Bool), unary(func(a float64) float64 { return truth(a != a) })(o, in, nil)
}

func flattened(o *operands, in [][]float64) (*tensor, []float64) {
	x := o.in[0]
	axis := int(o.attribute("axis", 1))
	if axis < 0 || axis > len(x.dims) {
		return nil, nil
	}
	a, err := product(x.dims[:axis])
	b, err2 := product(x.dims[axis:])
	if err != nil || err2 != nil {
		return nil, nil
	}
	return x.with(a, b), in[0]
}

func triangle(o *operands, in [][]float64) (*tensor, []float64) {
	x := o.in[0]
	if in[0] == nil || len(x.dims) < 2 {
		return x.same(), nil
	}
	k := 0
	if len(in) > 1 && len(in[1]) == 1 {
		k = int(in[1][0])
	}
	upper := o.attribute("upper", 1) != 0
	rows, columns := int(x.dims[len(x.dims)-2].fixed), int(x.last().fixed)
	v := slices.Clone(in[0])
	for i := range v {
		row, column := i/columns%rows, i%columns
		if upper && column < row+k || !upper && column > row+k {
			v[i] = 0
		}
	}
	return x.same(), v
}

func running(o *operands, in [][]float64) (*tensor, []float64) {
	x := o.in[0]
	if in[0] == nil {
		return x.same(), nil
	}
	if len(in) != 2 || len(in[1]) != 1 || o.attribute("exclusive", 0) != 0 || o.attribute("reverse", 0) != 0 {
		return nil, nil
	}
	axis, err := place(int64(in[1][0]), len(x.dims))
	if err != nil {
		return nil, nil
	}
	_, after := around(x.dims, axis)
	n := int(x.dims[axis].fixed)
	v := slices.Clone(in[0])
	for i := range v {
		if i/after%n > 0 {
			v[i] += v[i-after]
		}
	}
	return x.same(), v
}

// scattered is a ScatterND that puts numbers, or runs of them, into others' places.
func scattered(o *operands, in [][]float64) (*tensor, []float64) {
	if len(in) != 3 || in[0] == nil || in[1] == nil || in[2] == nil || Attribute(o.node, "reduction") != nil {
		return nil, nil
	}
	x, at := o.in[0], o.in[1]
	if len(at.dims) == 0 || at.last().fixed < 1 || at.last().fixed > int64(len(x.dims)) {
		return nil, nil
	}
	depth := int(at.last().fixed)
	_, run := around(x.dims, depth-1)
	places := len(in[1]) / depth
	if len(in[2]) != places*run {
		return nil, nil
	}
	v := slices.Clone(in[0])
	for i := range places {
		to := 0
		for j := range depth {
			n := int(x.dims[j].fixed)
			k := int(in[1][i*depth+j])
			if k < 0 {
				k += n
			}
			if k < 0 || k >= n {
				return nil, nil
			}
			to = to*n + k
		}
		copy(v[to*run:(to+1)*run], in[2][i*run:(i+1)*run])
	}
	return x.same(), v
}
