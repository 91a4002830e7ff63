package graph

import (
	"slices"

	"github.com/draftmill/draftmill/ort/graph/onnxpb"
)

// Matrix is a constant matrix that rows are multiplied with, [K, N] seen from the
// rows, and a bias that is added. Its tensors are initializers of the model
// before the rewriting.
type Matrix struct {
	Name string // of the node that multiplied with it
	K, N int
	Bias *onnxpb.TensorProto // float of any width, N numbers; nil: none

	// Weights are, where Bits is 0, numbers of a float type: [K, N], or [N, K]
	// where Transposed says so. Where there are Columns they are int8 [K, N], times
	// the float32 number of their column. Else they are com.microsoft.MatMulNBits' B, uint8
	// [N, blocks, Block*Bits/8], and Scales and ZeroPoints are its inputs of that
	// name.
	Weights    *onnxpb.TensorProto
	Transposed bool
	Columns    *onnxpb.TensorProto // N numbers

	Bits, Block int
	Accuracy    int // MatMulNBits' accuracy_level: 4 for activations of 8 bits, 0 for unset
	Scales      *onnxpb.TensorProto
	ZeroPoints  *onnxpb.TensorProto // uint8, packed as Weights are; nil: the middle of the range
}

// Activation is the function of a node Gated.
type Activation int

// Activations, by the number that a node Gated has in its attribute activation.
const (
	SiLU     Activation = 0 // x / (1 + exp(-x))
	GELUErf  Activation = 1 // x/2 (1 + erf(x / sqrt 2))
	GELUTanh Activation = 2 // x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
)

// mostMatrices is how many matrices a node may have.
const mostMatrices = 16

// multiply is a matrix's place in the graph.
type multiply struct {
	matrix *Matrix
	node   *onnxpb.NodeProto // MatMul, Gemm or MatMulNBits
	x, y   string            // y with the bias
	number int
	half   ElementType // type of x and y where they are not float32, else Float32
}

// matrices makes the matrices ours that the caller takes: those that share an
// input become one node, and a gated pair becomes one with its activation.
func (r *ragging) matrices() error {
	var found []*multiply
	for _, n := range r.nodes {
		m := r.multiply(n)
		if m == nil || !r.options.Take(m.matrix) {
			continue
		}
		found = append(found, m)
	}
	gone := map[*onnxpb.NodeProto]bool{}
	for _, m := range found {
		m.number = r.number(m.matrix)
		gone[m.node] = true
		if add := r.maker[m.y]; add != m.node {
			gone[add] = true
		}
	}
	r.nodes = slices.DeleteFunc(r.nodes, func(n *onnxpb.NodeProto) bool { return gone[n] })
	r.index()

	grouped := map[*multiply]bool{}
	for _, m := range found {
		if grouped[m] {
			continue
		}
		group := []*multiply{m}
		for _, other := range found {
			if other != m && !grouped[other] && other.x == m.x && together(m.matrix, other.matrix) && len(group) < mostMatrices {
				group = append(group, other)
			}
		}
		for _, m := range group {
			grouped[m] = true
		}
		r.multiplied(r.gated(group))
	}
	r.index()
	return nil
}

// together reports whether one node can have both matrices: activations are
// quantized once for all of a node, and its kernels read one type of numbers.
func together(a, b *Matrix) bool {
	return a.K == b.K && a.Bits == b.Bits && a.Block == b.Block && (a.Bits > 0 || a.Weights.GetDataType() == b.Weights.GetDataType() && (a.Columns == nil) == (b.Columns == nil))
}

// number is a matrix's place in the result; the same weights are packed once.
func (r *ragging) number(m *Matrix) int {
	for i, o := range r.result.Matrices {
		if o.Weights == m.Weights && o.Columns == m.Columns && o.Transposed == m.Transposed && o.Bias == m.Bias && o.Scales == m.Scales && o.ZeroPoints == m.ZeroPoints &&
			o.K == m.K && o.N == m.N && o.Bits == m.Bits && o.Block == m.Block {
			return i
		}
	}
	r.result.Matrices = append(r.result.Matrices, m)
	return len(r.result.Matrices) - 1
}

// multiplied appends the node that multiplies one input with the matrices.
func (r *ragging) multiplied(group []*multiply) {
	if len(group) == 0 {
		return
	}
	if r.residual(group) {
		return
	}
	x, widen := r.operand(group[0])
	var numbers []int64
	var outputs []string
	for _, m := range group {
		numbers = append(numbers, int64(m.number))
		outputs = append(outputs, r.narrowed(m.y, m, widen))
	}
	r.add(OwnDomain, "Matrices", group[0].matrix.Name, []string{x}, outputs, intsAttribute("matrices", numbers...))
}

// residual appends the node of a single matrix together with the sum that its product
// goes into, where it does.
func (r *ragging) residual(group []*multiply) bool {
	m := group[0]
	add := r.only(m.y)
	if len(group) > 1 || m.half != Float32 || m.y == Logits || add.GetOpType() != "Add" || len(add.Input) != 2 || len(add.Output) != 1 {
		return false
	}
	other := add.Input[0]
	if other == m.y {
		other = add.Input[1]
	}
	x, y := r.source(other), r.source(m.y)
	if x == nil || y == nil || x.typ != Float32 || !x.tokens() || !slices.Equal(x.dims, y.dims) {
		return false
	}
	r.nodes = slices.DeleteFunc(r.nodes, func(n *onnxpb.NodeProto) bool { return n == add })
	r.add(OwnDomain, "Matrices", m.matrix.Name, []string{m.x, other}, add.Output, intsAttribute("matrices", int64(m.number)), intAttribute("residual", 1))
	r.index()
	return true
}

// operand is the float32 form of a node's input, and whether it had another.
func (r *ragging) operand(m *multiply) (string, bool) {
	if m.half == Float32 {
		return m.x, false
	}
	return r.cast(m.x, Float32), true
}

// narrowed is the name under which a float32 result becomes y.
func (r *ragging) narrowed(y string, m *multiply, widen bool) string {
	if !widen {
		return y
	}
	// Logits are cast to float32 next: they need not be rounded before.
	if c := r.only(y); c.GetOpType() == "Cast" && slices.Equal(c.Output, []string{Logits}) {
		r.nodes = slices.DeleteFunc(r.nodes, func(n *onnxpb.NodeProto) bool { return n == c })
		return Logits
	}
	out := r.name("wide")
	r.add("", "Cast", r.name("cast"), []string{out}, []string{y}, intAttribute("to", int64(m.half)))
	return out
}

// multiply recognizes a product with a constant matrix, nil where there is none.
func (r *ragging) multiply(n *onnxpb.NodeProto) *multiply {
	if len(n.Output) != 1 || len(n.Input) < 2 {
		return nil
	}
	x := r.flow.of(n.Input[0])
	if x == nil { // a gathered row: of the type that was gathered
		x = r.source(n.Input[0])
	}
	if !x.tokens() || !x.typ.float() {
		return nil
	}
	m := &multiply{node: n, x: n.Input[0], y: n.Output[0], half: x.typ}
	switch n.GetOpType() {
	case "MatMulNBits":
		m.matrix = r.quantized(n)
	case "MatMul", "Gemm":
		m.matrix = r.plain(n)
	}
	if m.matrix == nil {
		return nil
	}
	m.matrix.Name = n.GetName()
	r.bias(m)
	return m
}

// source is what is known of the rows behind a Gather or Squeeze of wantedRows.
func (r *ragging) source(name string) *tensor {
	for range 4 {
		if t := r.flow.of(name); t != nil {
			return t
		}
		name = input(r.maker[name], 0)
	}
	return nil
}

// quantized describes a MatMulNBits.
func (r *ragging) quantized(n *onnxpb.NodeProto) *Matrix {
	number := func(name string) int { return int(Attribute(n, name).GetI()) }
	m := &Matrix{
		K: number("K"), N: number("N"), Bits: 4, Block: number("block_size"), Accuracy: number("accuracy_level"),
		Weights: r.weights[input(n, 1)], Scales: r.weights[input(n, 2)],
	}
	if a := Attribute(n, "bits"); a != nil {
		m.Bits = int(a.GetI())
	}
	switch {
	case n.GetDomain() != MicrosoftDomain, input(n, 4) != "", number("weight_prepacked") != 0,
		m.K <= 0 || m.N <= 0 || m.Block <= 0 || m.Bits <= 0 || m.Bits > 8,
		m.K > 1<<32 || m.N > 1<<32 || m.Block > 1<<20,
		m.Weights == nil || ElementType(m.Weights.GetDataType()) != Uint8,
		m.Scales == nil || !ElementType(m.Scales.GetDataType()).float():
		return nil
	}
	blocks := (int64(m.K) + int64(m.Block) - 1) / int64(m.Block)
	if !holds(m.Weights, int64(m.N)*blocks*int64(m.Block*m.Bits)/8) || !holds(m.Scales, int64(m.N)*blocks) {
		return nil
	}
	if zero := input(n, 3); zero != "" {
		m.ZeroPoints = r.weights[zero]
		if m.ZeroPoints == nil || ElementType(m.ZeroPoints.GetDataType()) != Uint8 || !holds(m.ZeroPoints, int64(m.N)*((blocks*int64(m.Bits)+7)/8)) {
			return nil
		}
	}
	if bias := input(n, 5); bias != "" {
		if m.Bias = r.vector(bias, m.N); m.Bias == nil {
			return nil
		}
	}
	return m
}

// holds reports whether a tensor has so many elements.
func holds(t *onnxpb.TensorProto, want int64) bool {
	n, ok := elements(t)
	return ok && n == want
}

// plain describes a MatMul or Gemm with a constant of a float type.
func (r *ragging) plain(n *onnxpb.NodeProto) *Matrix {
	w, transposed := r.stored(n.Input[1])
	var columns *onnxpb.TensorProto
	if w == nil {
		w, columns = r.scaled(n.Input[1])
	}
	if w == nil || len(w.Dims) != 2 || columns == nil && !ElementType(w.GetDataType()).float() {
		return nil
	}
	m := &Matrix{Weights: w, Transposed: transposed, Columns: columns}
	if n.GetOpType() == "Gemm" {
		for _, name := range []string{"alpha", "beta"} {
			if a := Attribute(n, name); a != nil && a.GetF() != 1 {
				return nil
			}
		}
		if Attribute(n, "transA").GetI() != 0 {
			return nil
		}
		m.Transposed = m.Transposed != (Attribute(n, "transB").GetI() != 0)
	}
	k, wide := w.Dims[0], w.Dims[1]
	if m.Transposed {
		k, wide = wide, k
	}
	if count, ok := elements(w); !ok || count == 0 {
		return nil
	}
	m.K, m.N = int(k), int(wide)
	if c := input(n, 2); c != "" {
		if m.Bias = r.vector(c, m.N); m.Bias == nil {
			return nil
		}
	}
	return m
}

// stored is the initializer of a float type behind casts and transposes, and
// whether it is seen transposed.
func (r *ragging) stored(name string) (*onnxpb.TensorProto, bool) {
	transposed := false
	for range 8 {
		if t := r.weights[name]; t != nil {
			return t, transposed
		}
		switch n := r.maker[name]; n.GetOpType() {
		case "Identity":
		case "Cast":
			if !ElementType(Attribute(n, "to").GetI()).float() {
				return nil, false
			}
		case "Transpose":
			if perm := Attribute(n, "perm"); perm != nil && !slices.Equal(perm.Ints, []int64{1, 0}) {
				return nil, false
			}
			transposed = !transposed
		default:
			return nil, false
		}
		name = input(r.maker[name], 0)
	}
	return nil, false
}

// scaled recognizes int8 weights times a number for each column.
func (r *ragging) scaled(name string) (weights, columns *onnxpb.TensorProto) {
	n := r.maker[name]
	if n.GetOpType() != "Mul" || len(n.Input) != 2 {
		return nil, nil
	}
	for i := range 2 {
		cast, s := r.maker[n.Input[i]], r.weights[n.Input[1-i]]
		w := r.weights[input(cast, 0)]
		if cast.GetOpType() == "Cast" && ElementType(Attribute(cast, "to").GetI()) == Float32 && ElementType(w.GetDataType()) == Int8 && len(w.Dims) == 2 &&
			ElementType(s.GetDataType()) == Float32 && len(s.Dims) > 0 && s.Dims[len(s.Dims)-1] == w.Dims[1] && holds(s, w.Dims[1]) {
			return w, s
		}
	}
	return nil, nil
}

// vector is a constant of n numbers along the last axis.
func (r *ragging) vector(name string, n int) *onnxpb.TensorProto {
	t, transposed := r.stored(name)
	if t == nil || transposed || len(t.Dims) == 0 || t.Dims[len(t.Dims)-1] != int64(n) || !holds(t, int64(n)) || !ElementType(t.GetDataType()).float() {
		return nil
	}
	return t
}

// bias joins the Add behind a product, where it is one.
func (r *ragging) bias(m *multiply) {
	add := r.only(m.y)
	if m.matrix.Bias != nil || add.GetOpType() != "Add" || len(add.Input) != 2 || len(add.Output) != 1 || m.y == Logits {
		return
	}
	other := add.Input[0]
	if other == m.y {
		other = add.Input[1]
	}
	if b := r.vector(other, m.matrix.N); b != nil && len(b.Dims) == 1 {
		m.matrix.Bias, m.y = b, add.Output[0]
	}
}
