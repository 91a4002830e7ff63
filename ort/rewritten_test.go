package ort

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/draftmill/draftmill/ort/graph"
	"github.com/draftmill/draftmill/ort/graph/onnxpb"
)

func readModelT(t *testing.T, name string) *onnxpb.ModelProto {
	t.Helper()
	m, err := graph.Read(filepath.Join(modelDir(name), "model.onnx"))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestNotRewritten: a graph that cannot be rewritten runs sequence after
// sequence, and says why.
func TestNotRewritten(t *testing.T) {
	dir := copyModel(t, "gqa")
	m := readModelT(t, "gqa")
	// Logits that depend on the sum over all tokens of the pass.
	for _, n := range m.Graph.Node {
		if slices.Equal(n.Output, []string{"logits"}) {
			n.Output[0] = "own"
		}
	}
	m.Graph.Node = append(m.Graph.Node,
		&onnxpb.NodeProto{OpType: proto.String("ReduceSum"), Input: []string{"own"}, Output: []string{"sum"}},
		&onnxpb.NodeProto{OpType: proto.String("Sub"), Input: []string{"own", "sum"}, Output: []string{"sub"}},
		&onnxpb.NodeProto{OpType: proto.String("Add"), Input: []string{"sub", "sum"}, Output: []string{"logits"}})
	writeModel(t, dir, m)
	model := loadT(t, dir, Options{Context: 16})
	if why := model.Ragged(); why == nil || !strings.Contains(why.Error(), "ReduceSum") {
		t.Errorf("not rewritten because of %v", why)
	}
	if err := model.SelfTest(3); err != nil {
		t.Error(err)
	}
	if model := loadT(t, modelDir("gqa"), Options{}); model.Ragged() != nil {
		t.Error(model.Ragged())
	}
}

// TestPositions: position_ids are those of each token in its own sequence, for
// the graph and for its attention.
func TestPositions(t *testing.T) {
	dir := copyModel(t, "gqa")
	m := readModelT(t, "gqa")
	for _, n := range m.Graph.Node {
		if n.GetOpType() == "GroupQueryAttention" {
			n.Input = append(n.Input, "position_ids")
		}
		if slices.Equal(n.Output, []string{"logits"}) {
			n.Output[0] = "own"
		}
	}
	// Every logit is raised by its position.
	axes := &onnxpb.TensorProto{Name: proto.String("axes"), Dims: []int64{1}, DataType: proto.Int32(int32(graph.Int64)), RawData: []byte{2, 0, 0, 0, 0, 0, 0, 0}}
	m.Graph.Initializer = append(m.Graph.Initializer, axes)
	m.Graph.Input = append(m.Graph.Input, graph.Value("position_ids", graph.Int64, -1, -1))
	to := []*onnxpb.AttributeProto{{Name: proto.String("to"), I: proto.Int64(int64(graph.Float32)), Type: proto.Int32(2)}}
	m.Graph.Node = append(m.Graph.Node,
		&onnxpb.NodeProto{OpType: proto.String("Cast"), Input: []string{"position_ids"}, Output: []string{"places"}, Attribute: to},
		&onnxpb.NodeProto{OpType: proto.String("Unsqueeze"), Input: []string{"places", "axes"}, Output: []string{"raise"}},
		&onnxpb.NodeProto{OpType: proto.String("Add"), Input: []string{"own", "raise"}, Output: []string{"logits"}})
	writeModel(t, dir, m)

	m2 := loadT(t, dir, Options{})
	if m2.Ragged() != nil {
		t.Fatal(m2.Ragged())
	}
	d, alone := decoderT(t, m2), decoderT(t, m2)
	var pairs []*pair
	for i := range 3 {
		pairs = append(pairs, &pair{slot: sequenceT(t, d).slot, alone: sequenceT(t, alone), text: selfTestTokens(d.Context()+i, d.Vocab())[i:]})
	}
	plain := sequenceT(t, decoderT(t, loadT(t, modelDir("gqa"), Options{})))
	want := plain.feed(0, pairs[0].text[:8]...)
	got := pairs[0].alone.feed(0, pairs[0].text[:8]...)
	for i := range want {
		want[i] += float32(i / d.Vocab())
	}
	near(t, "raised logits", got, want, 1e-5)
	for _, n := range []int{4, 1, 5, 2} {
		feedPairs(t, d, pairs, func() (int, int) { return n, n - 1 })
	}
}
