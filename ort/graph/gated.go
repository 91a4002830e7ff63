package graph

import (
	"math"
	"slices"

	"github.com/draftmill/draftmill/ort/graph/onnxpb"
)

// gated makes nodes of the pairs of a group that are the gated part of an MLP,
// act(x G) * (x U), and returns what is left of the group.
func (r *ragging) gated(group []*multiply) []*multiply {
	for _, gate := range group {
		for _, up := range group {
			if gate == up || gate.matrix.N != up.matrix.N || up.y == gate.y {
				continue
			}
			product := r.only(up.y)
			if product.GetOpType() != "Mul" || len(product.Input) != 2 || len(product.Output) != 1 {
				continue
			}
			other := product.Input[0]
			if other == up.y {
				other = product.Input[1]
			}
			act, nodes := r.activation(other, gate.y)
			if nodes == nil || r.only(other) != product {
				continue
			}
			y := product.Output[0]
			r.nodes = slices.DeleteFunc(r.nodes, func(n *onnxpb.NodeProto) bool { return n == product || slices.Contains(nodes, n) })
			r.index()
			x, widen := r.operand(gate)
			r.add(OwnDomain, "Gated", gate.matrix.Name, []string{x}, []string{r.narrowed(y, gate, widen)},
				intsAttribute("matrices", int64(gate.number), int64(up.number)), intAttribute("activation", int64(act)))
			r.index()
			rest := slices.DeleteFunc(slices.Clone(group), func(m *multiply) bool { return m == gate || m == up })
			return r.gated(rest)
		}
	}
	return group
}

// activation recognizes the nodes that make y of x alone, nil where they are no
// activation known.
func (r *ragging) activation(y, x string) (Activation, []*onnxpb.NodeProto) {
	n := r.maker[y]
	if n == nil || len(n.Output) != 1 {
		return 0, nil
	}
	alone := func(nodes ...*onnxpb.NodeProto) []*onnxpb.NodeProto {
		for _, u := range r.users[x] {
			if !slices.Contains(nodes, u) {
				return nil
			}
		}
		for _, n := range nodes {
			if n.Output[0] == y {
				continue
			}
			for _, u := range r.users[n.Output[0]] {
				if !slices.Contains(nodes, u) {
					return nil
				}
			}
		}
		return nodes
	}
	alpha := func() float64 {
		if a := Attribute(n, "alpha"); a != nil {
			return float64(a.GetF())
		}
		if n.GetOpType() == "QuickGelu" {
			return 1.702
		}
		return 1
	}
	switch op := n.GetOpType(); {
	case op == "Gelu" && input(n, 0) == x && string(Attribute(n, "approximate").GetS()) == "tanh":
		return GELUTanh, alone(n)
	case op == "FastGelu" && input(n, 0) == x && input(n, 1) == "":
		return GELUTanh, alone(n)
	case op == "Gelu" && input(n, 0) == x:
		return GELUErf, alone(n)
	case (op == "QuickGelu" || op == "Swish") && input(n, 0) == x && alpha() == 1:
		return SiLU, alone(n)
	case op == "Mul" && len(n.Input) == 2:
		for i := range 2 {
			s := r.maker[n.Input[1-i]]
			if n.Input[i] == x && s.GetOpType() == "Sigmoid" && input(s, 0) == x && len(s.Output) == 1 {
				return SiLU, alone(n, s)
			}
		}
		if nodes := r.tanhGelu(n, x); nodes != nil {
			return GELUTanh, alone(nodes...)
		}
	}
	return 0, nil
}

// tanhGelu recognizes x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) written out,
// whose last node n multiplies. It returns its nodes.
func (r *ragging) tanhGelu(n *onnxpb.NodeProto, x string) []*onnxpb.NodeProto {
	var nodes []*onnxpb.NodeProto
	// with is the other operand of a product or a sum with about that number.
	with := func(n *onnxpb.NodeProto, op string, number float64) (string, bool) {
		if n.GetOpType() != op || len(n.Input) != 2 || len(n.Output) != 1 {
			return "", false
		}
		for i := range 2 {
			if v, ok := r.float(n.Input[1-i]); ok && math.Abs(v-number) < 2e-3*number {
				nodes = append(nodes, n)
				return n.Input[i], true
			}
		}
		return "", false
	}
	// product is the other operand of a product with x.
	product := func(n *onnxpb.NodeProto) (string, bool) {
		if n.GetOpType() != "Mul" || len(n.Input) != 2 || len(n.Output) != 1 {
			return "", false
		}
		for i := range 2 {
			if n.Input[i] == x {
				nodes = append(nodes, n)
				return n.Input[1-i], true
			}
		}
		return "", false
	}
	// rest is what follows from 1 + tanh(..) on, whose name is known.
	rest := func(name string) []*onnxpb.NodeProto {
		t, ok := with(r.maker[name], "Add", 1)
		tanh := r.maker[t]
		if !ok || tanh.GetOpType() != "Tanh" || len(tanh.Output) != 1 {
			return nil
		}
		nodes = append(nodes, tanh)
		inner, ok := with(r.maker[input(tanh, 0)], "Mul", math.Sqrt(2/math.Pi))
		sum := r.maker[inner]
		if !ok || sum.GetOpType() != "Add" || len(sum.Input) != 2 || len(sum.Output) != 1 {
			return nil
		}
		nodes = append(nodes, sum)
		cubic := sum.Input[0]
		if cubic == x {
			cubic = sum.Input[1]
		} else if sum.Input[1] != x {
			return nil
		}
		power, ok := with(r.maker[cubic], "Mul", 0.044715)
		if !ok {
			return nil
		}
		cube := r.maker[power]
		if e, ok := r.float(input(cube, 1)); ok && cube.GetOpType() == "Pow" && e == 3 && input(cube, 0) == x && len(cube.Output) == 1 {
			return append(nodes, cube)
		}
		if square, ok := product(cube); ok {
			if again, ok := product(r.maker[square]); ok && again == x {
				return nodes
			}
		}
		return nil
	}
	if len(n.Input) != 2 {
		return nil
	}
	for i := range 2 { // (x/2) (1 + tanh(..))
		nodes = []*onnxpb.NodeProto{n}
		if h, ok := with(r.maker[n.Input[i]], "Mul", 0.5); ok && h == x {
			if all := rest(n.Input[1-i]); all != nil {
				return all
			}
		}
	}
	nodes = nil // (x (1 + tanh(..))) / 2
	if whole, ok := with(n, "Mul", 0.5); ok {
		if one, ok := product(r.maker[whole]); ok {
			return rest(one)
		}
	}
	return nil
}
