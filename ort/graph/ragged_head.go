package graph

import (
	"errors"
	"fmt"
	"slices"

	"github.com/draftmill/draftmill/ort/graph/onnxpb"
)

// wantedRows makes everything behind the last attention work on the wanted rows:
// going back from the logits, every node whose result serves nothing but them
// joins the tail, and what the tail reads of other nodes' rows is gathered. The
// head is the last part of the tail, where rows may lie in one dimension as well
// as in two; in front of it the axis of length 1 goes.
func (r *ragging) wantedRows() error {
	logits := r.flow.of(Logits)
	if logits == nil {
		return errors.New("nothing is known of the logits")
	}
	if len(logits.dims) != 3 || logits.dims[0] != fixed(1) || logits.dims[1] != (size{tokens: 1}) || logits.dims[2].tokens != 0 {
		return fmt.Errorf("logits of shape %v", logits.dims)
	}
	if v := r.layout.Vocab; v > 0 && logits.dims[2] != fixed(int64(v)) {
		return fmt.Errorf("logits of shape %v for a vocabulary of %d", logits.dims, v)
	}
	tail := r.tail()
	for _, name := range r.edges(tail) {
		out := r.name("rows")
		r.add("", "Gather", out, []string{name, LogitRows}, []string{out}, intAttribute("axis", 1))
		for n := range tail {
			for i, in := range n.Input {
				if in == name {
					n.Input[i] = out
				}
			}
		}
	}
	if len(tail) == 0 { // attention itself is the last node
		return errors.New("logits come from attention")
	}
	r.index()
	return r.flatten(tail, logits.typ)
}

// tail are the nodes that can work on the wanted rows alone.
func (r *ragging) tail() map[*onnxpb.NodeProto]bool {
	tail := map[*onnxpb.NodeProto]bool{}
	kept := map[string]bool{}
	for _, name := range r.outputs() {
		kept[name] = name != Logits
	}
	for _, n := range slices.Backward(r.nodes) { // users have been seen
		if !r.rowwise(n) {
			continue
		}
		joins := false
		for _, name := range n.Output {
			if kept[name] {
				joins = false
				break
			}
			if name == Logits {
				joins = true
			}
			users := r.users[name]
			if slices.ContainsFunc(users, func(u *onnxpb.NodeProto) bool { return !tail[u] }) {
				joins = false
				break
			}
			joins = joins || len(users) > 0
		}
		if joins {
			tail[n] = true
		}
	}
	return tail
}

// rowwise reports whether a node gives each row of [1, T, ..] a row of its own,
// whatever T is.
func (r *ragging) rowwise(n *onnxpb.NodeProto) bool {
	switch n.GetOpType() {
	case "Cast", "Identity", "Add", "Sub", "Mul", "Div", "Pow",
		"Sigmoid", "Tanh", "Erf", "Gelu", "FastGelu", "BiasGelu", "QuickGelu", "Relu", "Sqrt", "Reciprocal", "Neg", "Exp", "Swish",
		"ReduceMean", "SimplifiedLayerNormalization", "RMSNormalization", "LayerNormalization",
		"SkipSimplifiedLayerNormalization", "SkipLayerNormalization", "MatMulNBits":
	case "MatMul":
		if b := r.flow.of(input(n, 1)); b == nil || len(b.dims) != 2 || b.tokens() {
			return false
		}
	case "Gather": // columns of each row
		if at := r.flow.of(input(n, 1)); Attribute(n, "axis").GetI() != -1 || at == nil || at.tokens() || len(at.dims) != 1 {
			return false
		}
	default:
		return false
	}
	rows := false
	for _, name := range slices.Concat(n.Input, n.Output) {
		if name == "" {
			continue
		}
		t := r.flow.of(name)
		switch {
		case t == nil:
			if len(r.users[name]) > 0 {
				return false
			}
		case t.tokens():
			if len(t.dims) != 3 || t.dims[0] != fixed(1) || t.dims[1] != (size{tokens: 1}) {
				return false
			}
			rows = true
		}
	}
	return rows
}

// edges are the rows that the tail reads of others, in the order of the nodes.
func (r *ragging) edges(tail map[*onnxpb.NodeProto]bool) []string {
	var names []string
	for _, n := range r.nodes {
		if !tail[n] {
			continue
		}
		for _, name := range n.Input {
			if t := r.flow.of(name); name != "" && t.tokens() && !tail[r.maker[name]] && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// flatten makes logits of [1, R, vocabulary] and some float type float32 of
// [R, vocabulary].
func (r *ragging) flatten(tail map[*onnxpb.NodeProto]bool, typ ElementType) error {
	// Back through the head, as far as each node has one input with rows and works
	// on any number of dimensions.
	at := Logits
	for {
		n := r.maker[at]
		if n == nil || !tail[n] {
			break
		}
		row, others := "", false
		for _, name := range n.Input {
			if name == "" {
				continue
			}
			switch made := r.maker[name]; {
			case made != nil && (tail[made] || made.GetOpType() == "Gather" && input(made, 1) == LogitRows):
				others = others || row != "" && row != name
				row = name
			case n.GetOpType() != "MatMulNBits":
				t := r.flow.of(name)
				others = others || t == nil || len(t.dims) > 2
			}
		}
		if row == "" || others || !flat(n) || at != Logits && r.only(at) == nil {
			break
		}
		at = row
	}
	// logits' own name is the output's.
	if at == Logits || typ != Float32 {
		own := r.name(Logits)
		n := r.maker[Logits]
		for i, name := range n.Output {
			if name == Logits {
				n.Output[i] = own
			}
		}
		last := own
		if at == Logits {
			if last = Logits; typ != Float32 {
				last = r.name("squeeze")
			}
			r.add("", "Squeeze", r.name("squeeze"), []string{own, r.ints(0)}, []string{last})
			at = ""
		}
		if typ != Float32 {
			r.add("", "Cast", r.name("cast"), []string{last}, []string{Logits}, intAttribute("to", int64(Float32)))
		}
	}
	if at != "" {
		out := r.name("squeeze")
		users := r.users[at]
		r.add("", "Squeeze", out, []string{at, r.ints(0)}, []string{out})
		for _, n := range users {
			for i, name := range n.Input {
				if name == at {
					n.Input[i] = out
				}
			}
		}
	}
	r.index()
	return nil
}

// flat reports whether a node of the head works on rows of any leading
// dimensions.
func flat(n *onnxpb.NodeProto) bool {
	switch n.GetOpType() {
	case "Cast", "Identity", "Add", "Sub", "Mul", "Div", "Tanh", "MatMul", "MatMulNBits", "Neg":
		return true
	case "Gather":
		return Attribute(n, "axis").GetI() == -1
	}
	return false
}
