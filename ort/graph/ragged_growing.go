package graph

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/draftmill/draftmill/ort/graph/onnxpb"
)

// growing puts one PagedAttention in the place of each layer's attention of plain
// operators, as Optimum exports it. What the operators between the cache and the
// Softmax amount to is not read from their order but from trials:
//
//   - from present.N.key, which must be the past and the new keys, forward to the
//     product with the queries, and from present.N.value to the product with the
//     probabilities. A trial in which every entry of the cache is a number of its
//     own shows that heads are shared in order, and by what keys are scaled.
//   - from the scores to the Softmax, scales, a softcap and the mask. Trials of
//     several lengths show that the mask hides what is later than a token or
//     further back than a window, and nothing else; and, in an encoder-decoder
//     model, that it adds numbers that depend on the head and the distance.
func (r *ragging) growing() error {
	l := r.layout
	if l.KVHeads <= 0 || l.HeadSize <= 0 || l.KVHeads > 1<<12 || l.HeadSize >= 1000 {
		return fmt.Errorf("caches of %d heads of size %d", l.KVHeads, l.HeadSize)
	}
	if _, err := r.sort(append([]string{Logits}, l.Present...)...); err != nil {
		return err
	}
	probe := r.try(probeTokens, probePast, true, nil)
	var found []*plainAttention
	for layer := range l.Layers {
		p, err := r.plainAttention(layer, probe)
		if err != nil {
			return notRecognized(layer, err)
		}
		found = append(found, p)
	}
	if l.Cross != nil {
		for layer := range l.Layers {
			p, err := r.crossAttention(layer, probe)
			if err != nil {
				return notRecognized(layer, fmt.Errorf("to the encoder's states: %w", err))
			}
			found = append(found, p)
		}
	}
	if err := r.windows(found); err != nil {
		return err
	}
	for _, p := range found {
		r.replaceAttention(p, probe)
	}
	r.positions(probe)
	r.index()
	r.setCaches()
	return nil
}

// positions takes the tokens' places from position_ids where the graph counts
// them itself, by the length of the cache or by the mask.
func (r *ragging) positions(probe *trial) {
	const tokens, past = 5, 9 // another trial, so that chance plays no part
	other := r.try(tokens, past, false, nil)
	for _, n := range slices.Clone(r.nodes) {
		if len(n.Output) != 1 {
			continue
		}
		name := n.Output[0]
		if x := probe.flow.of(name); x == nil || x.typ != Int64 || !counts(probe.numbers(name), probeTokens, probePast) || !counts(other.numbers(name), tokens, past) {
			continue
		}
		switch dims := probe.sizes(name); {
		case slices.Equal(dims, []int64{1, probeTokens}):
			r.without(name)
			r.add("", "Identity", r.name("positions"), []string{PositionIDs}, n.Output)
		case slices.Equal(dims, []int64{probeTokens}):
			r.without(name)
			r.add("", "Squeeze", r.name("positions"), []string{PositionIDs, r.ints(0)}, n.Output)
		}
	}
}

// counts reports whether numbers are the places of tokens behind a past.
func counts(v []float64, tokens, past int) bool {
	for i := range v {
		if v[i] != float64(past+i) {
			return false
		}
	}
	return len(v) == tokens
}

func notRecognized(layer int, err error) error {
	return fmt.Errorf("the attention of layer %d is not recognized: %w", layer, err)
}

// The probing trial's sizes; no head is as small or as large.
const (
	probeTokens = 3
	probePast   = 4
)

// plainAttention is a layer's attention of plain operators.
type plainAttention struct {
	layer             int
	query, key, value string // [1, heads, T, head size]
	output            string // [1, heads, T, head size]
	heads             int64
	scale, softcap    float64
	mask              string // added to scores, or a condition where they count
	condition         bool   // which of the two
	window            int64  // tokens that are seen, its own included; -1: all
	cross             bool   // to an encoder's states

	// What is added to scores by head and distance, [heads, r.most]; nil: nothing.
	bias []float32
}

// plainAttention recognizes a layer's attention.
func (r *ragging) plainAttention(layer int, probe *trial) (*plainAttention, error) {
	l := r.layout
	p := &plainAttention{layer: layer, scale: 1}
	var err error
	if p.key, err = r.appended(l.Past[2*layer], l.Present[2*layer]); err != nil {
		return nil, err
	}
	if p.value, err = r.appended(l.Past[2*layer+1], l.Present[2*layer+1]); err != nil {
		return nil, err
	}
	return p, r.products(p, l.Present[2*layer], l.Present[2*layer+1], probeTokens+probePast, probe)
}

// products recognizes a layer's attention to keys and values of so many entries.
func (r *ragging) products(p *plainAttention, ofKeys, ofValues string, entries int64, probe *trial) error {
	l := r.layout
	scores, keys, err := r.productWith(ofKeys, probe)
	if err != nil {
		return err
	}
	mixed, values, err := r.productWith(ofValues, probe)
	if err != nil {
		return err
	}
	if p.query, p.scale, err = r.unscaled(input(scores, 0), probe); err != nil {
		return err
	}
	q := probe.sizes(p.query)
	if len(q) != 4 || q[0] != 1 || q[2] != probeTokens || q[3] != int64(l.HeadSize) || q[1]%int64(l.KVHeads) != 0 {
		return fmt.Errorf("queries of shape %v", q)
	}
	p.heads = q[1]
	scale, err := repeated(probe.numbers(keys), probe.sizes(keys), p.heads, entries, l, true)
	if err != nil {
		return fmt.Errorf("keys: %w", err)
	}
	p.scale *= scale
	if scale, err = repeated(probe.numbers(values), probe.sizes(values), p.heads, entries, l, false); err != nil || scale != 1 {
		return fmt.Errorf("values, scaled by %g: %w", scale, errors.Join(err))
	}
	if p.output = mixed.Output[0]; !slices.Equal(probe.sizes(p.output), q) {
		return fmt.Errorf("an output of shape %v for queries of %v", probe.sizes(p.output), q)
	}
	return r.softmax(p, scores.Output[0], mixed, probe)
}

// appended is what is put behind a past to make a present.
func (r *ragging) appended(past, present string) (string, error) {
	n := r.maker[present]
	if n.GetOpType() != "Concat" || len(n.Input) != 2 || n.Input[0] != past {
		return "", fmt.Errorf("%s is not %s with more behind it", present, past)
	}
	if axis := Attribute(n, "axis").GetI(); axis != 2 && axis != -2 {
		return "", fmt.Errorf("%s grows along axis %d", present, axis)
	}
	return n.Input[1], nil
}

// productWith is the one product that has what a present becomes as its second
// operand, and the name of that.
func (r *ragging) productWith(present string, probe *trial) (*onnxpb.NodeProto, string, error) {
	var found *onnxpb.NodeProto
	seen := map[string]bool{}
	names := []string{present}
	for len(names) > 0 {
		name := names[0]
		names = names[1:]
		for _, u := range r.users[name] {
			if u.GetOpType() == "MatMul" {
				if input(u, 1) != name || found != nil && found != u || len(u.Output) != 1 {
					return nil, "", fmt.Errorf("%s is in several products", present)
				}
				found = u
				continue
			}
			for _, out := range u.Output {
				if u.GetOpType() != "Shape" && out != "" && !seen[out] && probe.numbers(out) != nil {
					seen[out] = true
					names = append(names, out)
				}
			}
		}
	}
	if found == nil {
		return nil, "", fmt.Errorf("%s is in no product that is known", present)
	}
	return found, found.Input[1], nil
}

// repeated sees that the operand of a product is the probed cache with every KV
// head once for each of the heads that share it, in order, and returns by what it
// is scaled. Keys are [1, heads, head size, entries], values [1, heads, entries,
// head size].
func repeated(data []float64, dims []int64, heads, entries int64, l *Layout, keys bool) (float64, error) {
	size := int64(l.HeadSize)
	want := []int64{1, heads, entries, size}
	if keys {
		want = []int64{1, heads, size, entries}
	}
	if !slices.Equal(dims, want) || int64(len(data)) != heads*entries*size {
		return 0, fmt.Errorf("an operand of shape %v, want %v", dims, want)
	}
	share := heads / int64(l.KVHeads)
	scale := data[0] / probeAt(0, 0, 0)
	i := 0
	for h := range heads {
		for a := range want[2] {
			for b := range want[3] {
				s, c := a, b
				if keys {
					s, c = b, a
				}
				if at := scale * probeAt(h/share, s, c); !(math.Abs(data[i]-at) <= 1e-5*math.Abs(at)) {
					return 0, fmt.Errorf("head %d holds other entries than those of KV head %d", h, h/share)
				}
				i++
			}
		}
	}
	return scale, nil
}

// unscaled goes back from a value to what was scaled by numbers to make it.
func (r *ragging) unscaled(name string, probe *trial) (string, float64, error) {
	scale := 1.0
	for range 16 {
		n := r.maker[name]
		switch n.GetOpType() {
		case "Identity", "Cast":
			name = n.Input[0]
			continue
		case "Mul", "Div":
			if x, by, ok := byNumber(n, probe); ok {
				name, scale = x, scale*by
				continue
			}
		}
		break
	}
	if !(math.Abs(scale) > 1e-6 && math.Abs(scale) < 1e6) {
		return "", 0, fmt.Errorf("queries scaled by %g", scale)
	}
	return name, scale, nil
}

// byNumber recognizes a product with, or a division by, one number.
func byNumber(n *onnxpb.NodeProto, probe *trial) (x string, by float64, ok bool) {
	if len(n.Input) != 2 {
		return "", 0, false
	}
	if v, ok := probe.number(n.Input[1]); ok && v != 0 {
		if n.GetOpType() == "Div" {
			v = 1 / v
		}
		return n.Input[0], v, true
	}
	if v, ok := probe.number(n.Input[0]); ok && n.GetOpType() == "Mul" {
		return n.Input[1], v, true
	}
	return "", 0, false
}

// softmax follows the scores to the product with the values.
func (r *ragging) softmax(p *plainAttention, at string, mixed *onnxpb.NodeProto, probe *trial) error {
	inside, done := 0.0, false // the scale within a tanh, 0: there is none; behind the Softmax
	for range 32 {
		n, err := r.next(at)
		if err != nil {
			return err
		}
		switch op := n.GetOpType(); {
		case n == mixed:
			if !done || inside != 0 && p.softcap == 0 || input(n, 0) != at {
				return errors.New("scores meet values without a Softmax")
			}
			return nil
		case op == "Identity" || op == "Cast":
		case done && op == "Where" && r.nothing(n, at, probe): // probabilities of rows that see nothing
		case done:
			return fmt.Errorf("%s behind the Softmax", op)
		case op == "Mul" || op == "Div":
			x, by, ok := byNumber(n, probe)
			switch {
			case !ok || x != at || p.mask != "":
				return fmt.Errorf("scores in a %s", op)
			case inside == 0:
				p.scale *= by
			case p.softcap == 0:
				p.softcap = by
			default:
				return errors.New("scores scaled behind their softcap")
			}
		case op == "Tanh" && inside == 0 && p.mask == "":
			inside = p.scale
		case op == "Add" && p.mask == "":
			other := n.Input[0]
			if other == at {
				other = input(n, 1)
			}
			p.mask = other
		case op == "Where" && p.mask == "" && input(n, 1) == at:
			if v, ok := probe.number(input(n, 2)); !ok || v > -1e4 {
				return errors.New("scores in a Where")
			}
			p.mask, p.condition = n.Input[0], true
		case op == "Softmax":
			dims := probe.sizes(at)
			if axis := Attribute(n, "axis"); axis != nil && axis.GetI() != -1 && axis.GetI() != int64(len(dims)-1) || p.mask == "" && !p.cross {
				return errors.New("a Softmax over something else, or without a mask")
			}
			done = true
		default:
			return fmt.Errorf("scores in %s %s", op, n.GetName())
		}
		at = n.Output[0]
	}
	return errors.New("scores that end nowhere")
}

// next is the one node that goes on with a value; that its shape or its missing
// numbers are asked for too does not count.
func (r *ragging) next(name string) (*onnxpb.NodeProto, error) {
	var found *onnxpb.NodeProto
	for _, u := range r.users[name] {
		if op := u.GetOpType(); op == "Shape" || op == "IsNaN" {
			continue
		}
		if found != nil && found != u || len(u.Output) == 0 {
			return nil, fmt.Errorf("%s goes two ways", name)
		}
		found = u
	}
	if found == nil {
		return nil, fmt.Errorf("%s goes nowhere", name)
	}
	return found, nil
}

// nothing recognizes Where(IsNaN(x), 0, x).
func (r *ragging) nothing(n *onnxpb.NodeProto, x string, probe *trial) bool {
	v, ok := probe.number(input(n, 1))
	c := r.maker[input(n, 0)]
	return ok && v == 0 && input(n, 2) == x && c.GetOpType() == "IsNaN" && input(c, 0) == x
}

// replaceAttention puts PagedAttention in the place of a layer's attention.
func (r *ragging) replaceAttention(p *plainAttention, probe *trial) {
	l := r.layout
	size := int64(l.HeadSize)
	out := r.name("attention")
	a := &attention{
		layer: p.layer, name: fmt.Sprintf("ragged.attention.%d", p.layer), output: out, query: r.packed(p.query, p.heads, probe),
		heads: p.heads, kvHeads: int64(l.KVHeads), typ: probe.flow.of(p.query).typ,
	}
	if p.cross {
		a.name = fmt.Sprintf("ragged.cross.%d", p.layer)
	} else {
		a.key, a.value = r.packed(p.key, a.kvHeads, probe), r.packed(p.value, a.kvHeads, probe)
	}
	scale := p.scale
	if p.softcap != 0 { // softcap tanh(scale q k / softcap)
		scale *= p.softcap
		a.attributes = append(a.attributes, floatAttribute("softcap", p.softcap))
	}
	a.attributes = append(a.attributes, floatAttribute("scale", scale))
	a.bias = r.table(p)
	if p.window > 0 {
		a.attributes = append(a.attributes, intAttribute("local_window_size", p.window))
	}
	// What made the output is gone; what only turned and joined its heads is too.
	r.without(p.output)
	heads := r.name("heads")
	r.add("", "Reshape", heads, []string{out, r.ints(1, -1, p.heads, size)}, []string{heads})
	for _, turn := range slices.Clone(r.users[p.output]) {
		if !turns(turn) {
			continue
		}
		turned := turn.Output[0]
		for _, join := range slices.Clone(r.users[turned]) {
			if join.GetOpType() == "Reshape" && slices.Equal(probe.sizes(join.Output[0]), []int64{1, probeTokens, p.heads * size}) {
				joined := join.Output[0]
				r.without(joined)
				r.replace(joined, out)
			}
		}
		r.without(turned)
		r.replace(turned, heads)
	}
	r.add("", "Transpose", r.name("transpose"), []string{heads}, []string{p.output}, intsAttribute("perm", 0, 2, 1, 3))
	if p.cross {
		r.crossed(a)
	} else {
		r.paged(a)
	}
	r.index()
}

// turns reports whether a node exchanges heads and tokens.
func turns(n *onnxpb.NodeProto) bool {
	return n.GetOpType() == "Transpose" && slices.Equal(Attribute(n, "perm").GetInts(), []int64{0, 2, 1, 3}) && len(n.Output) == 1
}

// without drops the node that makes a value.
func (r *ragging) without(name string) {
	n := r.maker[name]
	r.nodes = slices.DeleteFunc(r.nodes, func(m *onnxpb.NodeProto) bool { return m == n })
}

// packed is a value of [1, heads, T, head size] as rows of [1, T, heads x head
// size], which it often was before.
func (r *ragging) packed(name string, heads int64, probe *trial) string {
	size := int64(r.layout.HeadSize)
	width := heads * size
	var from string
	if n := r.maker[name]; turns(n) {
		from = n.Input[0]
		if parts := r.maker[from]; parts.GetOpType() == "Reshape" && slices.Equal(probe.sizes(parts.Input[0]), []int64{1, probeTokens, width}) {
			return parts.Input[0]
		}
	} else {
		from = r.name("transpose")
		r.add("", "Transpose", from, []string{name}, []string{from}, intsAttribute("perm", 0, 2, 1, 3))
	}
	out := r.name("rows")
	r.add("", "Reshape", out, []string{from, r.ints(1, -1, width)}, []string{out})
	return out
}
