package graph

import (
	"errors"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/draftmill/draftmill/ort/graph/onnxpb"
)

// Ragged is a model rewritten for ragged passes over a paged cache: one run takes
// the tokens of any number of sequences, any number of each, packed into one row
// of T tokens. Sequence b of B owns tokens cumulative[b] to cumulative[b+1]-1 of
// the row; they follow past[b] tokens that its cache holds already. Inputs, with
// the names of the constants below:
//
//	input_ids                   int64 [1, T]
//	position_ids                int64 [1, T], only where Positions says so
//	cumulative_sequence_length  int32 [B+1]
//	past_seqlens                int32 [B]
//	block_table                 int32 [B, most blocks of a sequence]
//	attention_metadata          int32 [3], only with RaggedOptions.Metadata
//	logit_rows                  int64 [R], the tokens of the row whose logits are wanted
//	input_lengths               int32 [B], only where Crossed says so, see InputLengths
//	copies                      int32 [C, 2], only in OwnDomain: of cache slots (block x block size + place), which is
//	                            copied to which after the new tokens are written and before any is read; C may be 0
//	key_cache.N, value_cache.N  [blocks, block size, KV heads, head size]
//
// Outputs:
//
//	logits                               float32 [R, vocabulary]
//	key_cache_out.N, value_cache_out.N   the memory of the caches that went in
//
// R may not be 0. Whatever follows the last attention runs on the wanted rows only.
type Ragged struct {
	Model *onnxpb.ModelProto

	Caches    []string    // cache inputs: key and value of layer 0, of layer 1, ...
	CachesOut []string    // CachesOut[i] is the output for Caches[i]
	Cache     ElementType // type of the caches
	KVHeads   int
	HeadSize  int
	Positions bool // whether there is an input position_ids
	Crossed   bool // whether it is the decoder of an encoder-decoder model

	// Matrices are what the nodes Matrices and Gated multiply with, by number.
	// Bind puts the caller's handles in place of the numbers.
	Matrices []*Matrix
}

// Names of a ragged graph's inputs and of its first output.
const (
	InputIDs          = "input_ids"
	PositionIDs       = "position_ids"
	CumulativeLengths = "cumulative_sequence_length"
	PastLengths       = "past_seqlens"
	BlockTable        = "block_table"
	AttentionMetadata = "attention_metadata"
	LogitRows         = "logit_rows"
	Copies            = "copies"
	Logits            = "logits"
)

// Domains of the attention operator.
const (
	// OwnDomain is that of draftmill's operators for the CPU: PagedAttention,
	// PagedAttention8 with caches of 8 bits, Matrices and Gated, all in float32 and for any leading dimensions.
	OwnDomain = "draftmill"
	// MicrosoftDomain is that of ONNX Runtime's own operators. Its
	// PagedAttention takes operands of two dimensions, in half precision.
	MicrosoftDomain = "com.microsoft"
)

// RaggedOptions say for which kernels a graph is rewritten.
type RaggedOptions struct {
	Domain string // of the attention operator: OwnDomain or MicrosoftDomain

	// Metadata gives the attention bounds that the host knows: at least as many as
	// the most tokens that a sequence feeds, at least as many as the most it has
	// then, and at most as many as that. Without them a device's kernels ask the
	// device, and wait, in every layer.
	Metadata bool

	// Copies gives the attention the places whose keys and values it copies. It is
	// for OwnDomain only.
	Copies bool

	// Half is the type of the caches with MicrosoftDomain where the model's are of
	// float32, which its kernels do not take: Float16, also where it is zero, or
	// BFloat16.
	Half ElementType

	// Read reads a small constant that lies in another file, nil where it cannot.
	// Without it such constants are not known.
	Read func(*onnxpb.TensorProto) []byte

	// Take decides which matrices become ours; what it refuses stays as it is.
	// nil takes none. It is for OwnDomain only.
	Take func(*Matrix) bool
}

// NewRagged rewrites a model for ragged passes. The model is left as it is and
// shares what does not change with the result. The error says why it cannot be
// rewritten; it can still be run as it is, one sequence after another.
//
// Every operator that is left must be known to treat tokens one by one
// (flow.go), as sequences would see each other otherwise.
func NewRagged(m *onnxpb.ModelProto, o RaggedOptions) (*Ragged, error) {
	l, err := ReadLayout(Describe(m, ""))
	if err != nil {
		return nil, err
	}
	r, err := newRagging(m, l, o)
	if err != nil {
		return nil, err
	}
	switch {
	case o.Domain == OwnDomain:
		r.work = Float32
	case r.typ == Float32 && o.Half == BFloat16:
		r.work = BFloat16
	case r.typ == Float32:
		r.work = Float16
	}
	if l.Cache != Int8 {
		r.result.Cache = r.work
	}
	r.dropBranches()
	switch l.Contract {
	case GQA:
		err = r.gqa()
	default:
		err = r.growing()
	}
	if err == nil {
		err = r.assemble()
	}
	if err != nil {
		return nil, err
	}
	return r.finish(m), nil
}

// newRagging begins a rewriting.
func newRagging(m *onnxpb.ModelProto, l *Layout, o RaggedOptions) (*ragging, error) {
	for _, n := range m.Graph.Node {
		if n.GetOpType() == "DynamicQuantizeLinear" || n.GetOpType() == "DynamicQuantizeMatMul" {
			return nil, fmt.Errorf("node %s (%s): all tokens of a pass get one scale together", n.GetName(), n.GetOpType())
		}
	}
	e, err := newEditor(m.Graph)
	if err != nil {
		return nil, err
	}
	r := &ragging{editor: e, options: o, layout: l, typ: l.Cache, result: &Ragged{Cache: l.Cache}}
	if l.Cache == Int8 {
		r.typ = r.operands()
	}
	r.work = r.typ
	return r, nil
}

// ragging is one rewriting under way.
type ragging struct {
	*editor
	options RaggedOptions
	layout  *Layout
	typ     ElementType // of what attention takes and gives in the graph
	work    ElementType // of what its successor takes and gives
	result  *Ragged
	flow    *flow
	made    int               // names given so far
	casts   map[string]string // what cast made
	most    int64             // tokens that the decoder of an encoder-decoder model takes, else 0
	tables  [][]float32       // what table made
}

// name gives a new name to a value or a node.
func (r *ragging) name(of string) string {
	r.made++
	return fmt.Sprintf("ragged.%d.%s", r.made, of)
}

// dropBranches takes the branch of texts within the limit; Layout.Limit keeps
// longer ones away.
func (r *ragging) dropBranches() {
	branches := lengthBranches(&onnxpb.GraphProto{Node: r.nodes})
	if len(branches) == 0 {
		return
	}
	var nodes []*onnxpb.NodeProto
	for _, n := range r.nodes {
		if branches[n] > 0 {
			nodes = append(nodes, withinLimit(n)...)
		} else {
			nodes = append(nodes, n)
		}
	}
	r.nodes = nodes
	r.index()
}

// assemble follows the attention's rewriting: what nobody needs any more goes,
// what is left is checked, and the rest is made ours.
func (r *ragging) assemble() error {
	needed, err := r.sort(r.outputs()...)
	if err != nil {
		return err
	}
	if needed["attention_mask"] {
		return errors.New("attention_mask serves more than attention")
	}
	for name := range needed {
		if pastName.MatchString(name) || crossPastName.MatchString(name) || r.layout.Cross != nil && slices.Contains(encoderInputs, name) {
			return fmt.Errorf("%s serves more than attention", name)
		}
	}
	if r.flow, err = r.follow(); err != nil {
		return err
	}
	if err := r.sizes(); err != nil {
		return err
	}
	r.settleShapes()
	if _, err = r.sort(r.outputs()...); err != nil {
		return err
	}
	if err := r.wantedRows(); err != nil {
		return err
	}
	if r.options.Domain == OwnDomain && r.options.Take != nil {
		if err := r.matrices(); err != nil {
			return err
		}
	}
	needed, err = r.sort(r.outputs()...)
	r.result.Positions = needed[PositionIDs]
	return err
}

// settleShapes puts constants in the place of shapes and ranges that the graph
// computes from the shapes of other values: exporters leave chains of them, each
// node of which costs as much as a small product.
func (r *ragging) settleShapes() {
	for _, n := range r.nodes {
		if n.GetOpType() == "Reshape" && n.Output[0] != Logits {
			if x, y := r.flow.of(n.Input[0]), r.flow.of(n.Output[0]); x != nil && y != nil && slices.Equal(x.dims, y.dims) {
				r.replace(n.Output[0], n.Input[0]) // it has its shape already
			}
		}
		for i, name := range n.Input {
			x := r.flow.values[name]
			if x == nil || x.ints == nil || len(x.ints) > 16 || len(x.dims) != 1 || x.typ != Int64 || r.maker[name] == nil || r.maker[name].GetOpType() == "Constant" {
				continue
			}
			values, open := []int64{}, 0
			for _, v := range x.ints {
				if v.tokens != 0 {
					open++
					v.fixed = -1 // what a Reshape finds out for itself
				}
				values = append(values, v.fixed)
			}
			if len(values) > 0 && (open == 0 || open == 1 && n.GetOpType() == "Reshape" && i == 1 && onlyOpen(values)) {
				n.Input[i] = r.ints(values...)
			}
		}
	}
}

// onlyOpen reports whether a shape leaves one size open and copies none.
func onlyOpen(shape []int64) bool {
	open := 0
	for _, n := range shape {
		if n == -1 {
			open++
		}
	}
	return open == 1 && !slices.Contains(shape, 0)
}

// sizes finds the caches' sizes, which layers share.
func (r *ragging) sizes() error {
	for _, n := range r.nodes {
		if n.GetOpType() != "PagedAttention" {
			continue
		}
		heads, size := int(Attribute(n, "kv_num_heads").GetI()), 0
		if out := r.flow.of(n.Output[0]); out != nil {
			size = int(out.last().fixed / Attribute(n, "num_heads").GetI())
		}
		if r.result.HeadSize == 0 {
			r.result.KVHeads, r.result.HeadSize = heads, size
		}
		l := r.layout
		if size <= 0 || heads != r.result.KVHeads || size != r.result.HeadSize || l.KVHeads > 0 && heads != l.KVHeads || l.HeadSize > 0 && size != l.HeadSize {
			return fmt.Errorf("node %s: %d KV heads of size %d, where another layer or the cache has others", n.GetName(), heads, size)
		}
	}
	return nil
}

// outputs are the names of the graph's outputs.
func (r *ragging) outputs() []string {
	return append([]string{Logits}, r.result.CachesOut...)
}

// addCache names a layer's cache in the graph and returns the names of inputs
// and outputs.
func (r *ragging) addCache(layer int) (in, out []string) {
	for _, kind := range []string{"key", "value"} {
		in = append(in, fmt.Sprintf("%s_cache.%d", kind, layer))
		out = append(out, fmt.Sprintf("%s_cache_out.%d", kind, layer))
	}
	return in, out
}

// setCaches lists the caches of all layers.
func (r *ragging) setCaches() {
	for layer := range r.layout.Layers {
		in, out := r.addCache(layer)
		r.result.Caches = append(r.result.Caches, in...)
		r.result.CachesOut = append(r.result.CachesOut, out...)
	}
}

// BlockTokens is how many tokens a block of the cache must hold, or a multiple of
// it, for ONNX Runtime's FlashAttention on CUDA to read it in place: its tiles of
// keys, which are as long as the size of heads lets them be, lie in one block each.
func BlockTokens(headSize int) int {
	switch {
	case headSize <= 64:
		return 256
	case headSize <= 128:
		return 128
	}
	return 64
}

// MostSequences is how many sequences ONNX Runtime's PagedAttention takes at once.
const MostSequences = 256

// finish makes the model.
func (r *ragging) finish(m *onnxpb.ModelProto) *Ragged {
	for _, n := range r.nodes {
		if n.GetOpType() == "PagedAttention" && r.options.Domain == OwnDomain && r.result.Cache == Int8 {
			n.OpType = proto.String("PagedAttention8") // an operator of ours has fixed types
		}
	}
	g := &onnxpb.GraphProto{Name: m.Graph.Name, Node: r.nodes}
	needed := map[string]bool{}
	for _, n := range r.nodes {
		need(n, needed)
	}
	for _, t := range m.Graph.Initializer {
		if needed[t.GetName()] {
			g.Initializer = append(g.Initializer, t)
		}
	}
	for _, t := range r.added {
		if needed[t.GetName()] {
			g.Initializer = append(g.Initializer, t)
		}
	}
	g.Input = append(g.Input, Value(InputIDs, Int64, 1, -1))
	if r.result.Positions {
		g.Input = append(g.Input, Value(PositionIDs, Int64, 1, -1))
	}
	g.Input = append(g.Input, Value(CumulativeLengths, Int32, -1), Value(PastLengths, Int32, -1), Value(BlockTable, Int32, -1, -1), Value(LogitRows, Int64, -1))
	if r.options.Metadata {
		g.Input = append(g.Input, Value(AttentionMetadata, Int32, 3))
	}
	if r.result.Crossed {
		g.Input = append(g.Input, Value(InputLengths, Int32, -1))
	}
	if r.options.Copies {
		g.Input = append(g.Input, Value(Copies, Int32, -1, 2))
	}
	g.Output = append(g.Output, Value(Logits, Float32, -1, int64(max(r.layout.Vocab, 0))))
	if r.layout.Vocab <= 0 {
		g.Output[0] = Value(Logits, Float32, -1, -1)
	}
	heads, size := int64(r.result.KVHeads), int64(r.result.HeadSize)
	for i, name := range r.result.Caches {
		g.Input = append(g.Input, Value(name, r.result.Cache, -1, -1, heads, size))
		g.Output = append(g.Output, Value(r.result.CachesOut[i], r.result.Cache, -1, -1, heads, size))
	}
	g.ProtoReflect().SetUnknown(m.Graph.ProtoReflect().GetUnknown())
	out := &onnxpb.ModelProto{IrVersion: m.IrVersion, Graph: g}
	out.ProtoReflect().SetUnknown(m.ProtoReflect().GetUnknown())
	domains := []string{r.options.Domain}
	for _, o := range m.OpsetImport {
		out.OpsetImport = append(out.OpsetImport, o)
		domains = slices.DeleteFunc(domains, func(d string) bool { return d == o.GetDomain() })
	}
	for _, d := range domains {
		out.OpsetImport = append(out.OpsetImport, &onnxpb.OperatorSetIdProto{Domain: proto.String(d), Version: proto.Int64(1)})
	}
	r.result.Model = out
	return r.result
}

// Bind puts the caller's handles in place of the matrices' numbers, and tells
// the operators of OwnDomain how many threads the session has. It is called once.
func (r *Ragged) Bind(handle func(matrix int) int64, threads int) {
	for _, n := range r.Model.Graph.Node {
		if n.GetDomain() != OwnDomain {
			continue
		}
		if a := Attribute(n, "matrices"); a != nil {
			for i, number := range a.Ints {
				a.Ints[i] = handle(int(number))
			}
		}
		n.Attribute = append(n.Attribute, intAttribute("threads", int64(threads)))
	}
}
