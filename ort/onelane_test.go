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

// TestOneLane: a graph that cannot be rewritten runs lane after lane, and says
// why.
func TestOneLane(t *testing.T) {
	dir := copyModel(t, "gqa")
	m := readModelT(t, "gqa")
	m.Graph.Node = append(m.Graph.Node, &onnxpb.NodeProto{OpType: proto.String("Shape"), Input: []string{"attention_mask"}, Output: []string{"more"}})
	m.Graph.Output = append(m.Graph.Output, graph.Value("more", graph.Int64, 2))
	writeModel(t, dir, m)
	for dir, want := range map[string]string{dir: "attention_mask serves more", modelDir("growing"): "growing contract"} {
		model := loadT(t, dir, Options{Lanes: 4, Context: 16})
		if why := model.OneLane(); model.Lanes() != 1 || why == nil || !strings.Contains(why.Error(), want) {
			t.Errorf("%d lanes, because: %v", model.Lanes(), why)
		}
		if err := model.SelfTest(3); err != nil {
			t.Error(err)
		}
	}
	if model := loadT(t, modelDir("gqa"), Options{Lanes: 4}); model.Lanes() != 4 || model.OneLane() != nil {
		t.Errorf("%d lanes, because: %v", model.Lanes(), model.OneLane())
	}
}

// TestLanesWithPositions: position_ids are given for every lane, to the graph and
// to the attention of each.
func TestLanesWithPositions(t *testing.T) {
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

	d, alone := decoderT(t, loadT(t, dir, Options{Lanes: 3})), decoderT(t, loadT(t, dir, Options{}))
	pairs := newPairs(t, d, alone, 3)
	plain := sequenceT(t, decoderT(t, loadT(t, modelDir("gqa"), Options{})))
	want := plain.feed(0, pairs[0].text[:8]...)
	got := pairs[0].alone.feed(0, pairs[0].text[:8]...)
	for i := range want {
		want[i] += float32(i / d.Vocab())
	}
	near(t, "raised logits", got, want, 1e-5)
	for _, s := range []int{1, 5, 2} {
		feedPairs(t, d, pairs, s)
	}
}

// TestSelfTestOfLanes: a graph whose sequences see each other passes alone, and
// is found out with lanes.
func TestSelfTestOfLanes(t *testing.T) {
	dir := copyModel(t, "gqa")
	m := readModelT(t, "gqa")
	i := slices.IndexFunc(m.Graph.Node, func(n *onnxpb.NodeProto) bool { return slices.Equal(n.Output, []string{"logits"}) })
	m.Graph.Node[i].Output[0] = "own"
	first := &onnxpb.TensorProto{Name: proto.String("first"), Dims: []int64{1}, DataType: proto.Int32(int32(graph.Int64)), RawData: make([]byte, 8)}
	m.Graph.Initializer = append(m.Graph.Initializer, first)
	for _, n := range []struct{ op, in, with, out string }{
		{"ReduceMean", "own", "first", "mean"}, {"Sub", "mean", "own", "off"}, {"Add", "own", "off", "logits"},
	} {
		m.Graph.Node = append(m.Graph.Node, &onnxpb.NodeProto{OpType: &n.op, Input: []string{n.in, n.with}, Output: []string{n.out}})
	}
	writeModel(t, dir, m)
	if err := loadT(t, dir, Options{}).SelfTest(4); err != nil {
		t.Error(err)
	}
	if err := loadT(t, dir, Options{Lanes: 2}).SelfTest(4); err == nil || !strings.Contains(err.Error(), "cannot run lanes with this model") {
		t.Errorf("got %v", err)
	}
}

func TestTranspose(t *testing.T) {
	for _, size := range [][2]int{{1, 1}, {1, 70}, {70, 1}, {32, 64}, {33, 31}, {100, 37}} {
		rows, columns := size[0], size[1]
		src, dst := make([]float32, rows*columns), make([]float32, rows*columns)
		for i := range src {
			src[i] = float32(i)
		}
		transpose(dst, src, rows, columns)
		for r := range rows {
			for c := range columns {
				if dst[c*rows+r] != src[r*columns+c] {
					t.Fatalf("%v: row %d, column %d", size, r, c)
				}
			}
		}
	}
}
