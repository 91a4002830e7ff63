package ort

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/draftmill/draftmill/ort/onnxpb"
)

func readModelT(t *testing.T, name string) *onnxpb.ModelProto {
	t.Helper()
	m, err := readModel(filepath.Join(modelDir(name), "model.onnx"))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestOutline: a model read without its weights, written, and given the weights
// again is the model in the file, with everything that onnxpb does not name.
func TestOutline(t *testing.T) {
	for _, name := range []string{"target", "draft", "bfloat16", "gqa", "growing"} {
		file, err := os.ReadFile(filepath.Join(modelDir(name), "model.onnx"))
		if err != nil {
			t.Fatal(err)
		}
		written, err := proto.Marshal(readModelT(t, name))
		if err != nil {
			t.Fatal(err)
		}
		got, want := &onnxpb.ModelProto{}, &onnxpb.ModelProto{}
		for m, data := range map[*onnxpb.ModelProto][]byte{got: written, want: file} {
			if err := proto.Unmarshal(data, m); err != nil {
				t.Fatal(err)
			}
		}
		moved := 0
		for _, w := range got.Graph.Initializer {
			if externalData(w, "location") != "model.onnx" {
				continue
			}
			offset, _ := strconv.Atoi(externalData(w, "offset"))
			length, _ := strconv.Atoi(externalData(w, "length"))
			w.RawData, w.ExternalData, w.DataLocation = file[offset:offset+length], nil, nil
			moved++
		}
		for _, w := range slices.Concat(got.Graph.Initializer, want.Graph.Initializer) {
			if w.GetDataLocation() != externalLocation {
				w.DataLocation = nil // said or not, it means the same
			}
		}
		if !proto.Equal(got, want) {
			t.Errorf("%s: not the same model", name)
		}
		if (moved > 0) != (name != "gqa") {
			t.Errorf("%s: %d weights were inside", name, moved)
		}
		if len(written) > len(file)/10+100_000 {
			t.Errorf("%s: %d bytes of %d without weights", name, len(written), len(file))
		}
	}
}

// TestLaneGraph: what is shared stays as it is, what is not is there for every
// lane.
func TestLaneGraph(t *testing.T) {
	m := readModelT(t, "target")
	before, _ := proto.Marshal(m)
	const n = 3
	lanes, err := laneGraph(m, n)
	if err != nil {
		t.Fatal(err)
	}
	if after, _ := proto.Marshal(m); !bytes.Equal(before, after) {
		t.Error("the model itself was changed")
	}
	one, many := describe(m, "model.onnx"), describe(lanes, "model.onnx")
	layers := one.ops["GroupQueryAttention"]
	for op, want := range map[string]int{
		"GroupQueryAttention": n * layers, "Split": layers, "Concat": layers, // queries, keys and values come packed
		"MatMul": one.ops["MatMul"], "SkipSimplifiedLayerNormalization": one.ops["SkipSimplifiedLayerNormalization"],
		"ReduceSum": 0, // the mask's length
	} {
		if many.ops[op] != want {
			t.Errorf("%d nodes %s, want %d", many.ops[op], op, want)
		}
	}
	var names []string
	for _, in := range many.inputs {
		names = append(names, in.name)
	}
	for _, name := range []string{"input_ids", "lane.0.seqlens_k", "lane.2.total_sequence_length", "lane.1.past_key_values.5.value"} {
		if !slices.Contains(names, name) {
			t.Errorf("no input %s", name)
		}
	}
	if want := 1 + n*(2+2*layers); len(names) != want || len(many.outputs) != 1+n*2*layers {
		t.Errorf("%d inputs and %d outputs, want %d and %d", len(names), len(many.outputs), want, 1+n*2*layers)
	}
}

func TestLaneGraphRefuses(t *testing.T) {
	attention := func(m *onnxpb.ModelProto) *onnxpb.NodeProto {
		i := slices.IndexFunc(m.Graph.Node, func(n *onnxpb.NodeProto) bool { return n.GetOpType() == "GroupQueryAttention" })
		return m.Graph.Node[i]
	}
	add := func(m *onnxpb.ModelProto, op string, inputs ...string) {
		m.Graph.Node = append(m.Graph.Node, &onnxpb.NodeProto{OpType: &op, Input: inputs, Output: []string{"more"}})
		m.Graph.Output = append(m.Graph.Output, value("more", float32Type, 1))
	}
	for _, c := range []struct {
		name   string
		change func(m *onnxpb.ModelProto)
		want   string
	}{
		{"the mask elsewhere", func(m *onnxpb.ModelProto) { add(m, "Cast", "attention_mask") }, "attention_mask serves more than"},
		{"a cache elsewhere", func(m *onnxpb.ModelProto) { add(m, "Shape", "past_key_values.0.key") }, "past_key_values.0.key serves more"},
		{"the mask in a branch", func(m *onnxpb.ModelProto) {
			add(m, "If", "input_ids")
			branch := &onnxpb.GraphProto{Node: []*onnxpb.NodeProto{{Input: []string{"attention_mask"}, Output: []string{"b"}}}}
			m.Graph.Node[len(m.Graph.Node)-1].Attribute = []*onnxpb.AttributeProto{{G: branch}}
		}, "attention_mask serves more than"},
		{"an attention bias", func(m *onnxpb.ModelProto) {
			n := attention(m)
			for len(n.Input) <= gqaBias {
				n.Input = append(n.Input, "")
			}
			n.Input[gqaBias] = "bias"
		}, "an attention bias"},
		{"a further output", func(m *onnxpb.ModelProto) { n := attention(m); n.Output = append(n.Output, "qk") }, "more than its cache"},
		{"a cache of its own", func(m *onnxpb.ModelProto) { attention(m).Input[gqaPastKey] = "x" }, "not an input of the graph"},
		{"no cache out", func(m *onnxpb.ModelProto) { attention(m).Output[1] = "x" }, "not an output of the graph"},
		{"too few inputs", func(m *onnxpb.ModelProto) { n := attention(m); n.Input = n.Input[:3] }, "not an input of the graph"},
		{"no lengths", func(m *onnxpb.ModelProto) { n := attention(m); n.Input = n.Input[:5] }, "has no lengths"},
		{"old operators", func(m *onnxpb.ModelProto) { m.OpsetImport[0].Version = proto.Int64(12) }, "opset 12"},
	} {
		m := readModelT(t, "gqa")
		c.change(m)
		if _, err := laneGraph(m, 2); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
}

// TestOneLane: a graph that cannot be rewritten runs lane after lane, and says
// why.
func TestOneLane(t *testing.T) {
	dir := copyModel(t, "gqa")
	m := readModelT(t, "gqa")
	m.Graph.Node = append(m.Graph.Node, &onnxpb.NodeProto{OpType: proto.String("Shape"), Input: []string{"attention_mask"}, Output: []string{"more"}})
	m.Graph.Output = append(m.Graph.Output, value("more", int64Type, 2))
	data, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "model.onnx"), string(data))
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
	axes := &onnxpb.TensorProto{Name: proto.String("axes"), Dims: []int64{1}, DataType: proto.Int32(int32(int64Type)), RawData: []byte{2, 0, 0, 0, 0, 0, 0, 0}}
	m.Graph.Initializer = append(m.Graph.Initializer, axes)
	m.Graph.Input = append(m.Graph.Input, value("position_ids", int64Type, -1, -1))
	to := []*onnxpb.AttributeProto{{Name: proto.String("to"), I: proto.Int64(int64(float32Type)), Type: proto.Int32(2)}}
	m.Graph.Node = append(m.Graph.Node,
		&onnxpb.NodeProto{OpType: proto.String("Cast"), Input: []string{"position_ids"}, Output: []string{"places"}, Attribute: to},
		&onnxpb.NodeProto{OpType: proto.String("Unsqueeze"), Input: []string{"places", "axes"}, Output: []string{"raise"}},
		&onnxpb.NodeProto{OpType: proto.String("Add"), Input: []string{"own", "raise"}, Output: []string{"logits"}})
	data, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "model.onnx"), string(data))

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
	first := (&rewriter{n: 1}).ones()
	first.Name, first.RawData = proto.String("first"), make([]byte, 8)
	m.Graph.Initializer = append(m.Graph.Initializer, first)
	for _, n := range []struct{ op, in, with, out string }{
		{"ReduceMean", "own", "first", "mean"}, {"Sub", "mean", "own", "off"}, {"Add", "own", "off", "logits"},
	} {
		m.Graph.Node = append(m.Graph.Node, &onnxpb.NodeProto{OpType: &n.op, Input: []string{n.in, n.with}, Output: []string{n.out}})
	}
	data, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "model.onnx"), string(data))
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

// TestLengthBranchesOfDamagedGraphs end, and find nothing.
func TestLengthBranchesOfDamagedGraphs(t *testing.T) {
	node := func(op, out string, in ...string) *onnxpb.NodeProto {
		return &onnxpb.NodeProto{OpType: &op, Output: []string{out}, Input: in}
	}
	for name, nodes := range map[string][]*onnxpb.NodeProto{
		"a circle":          {node("Gather", "a", "a"), node("Greater", "b", "a", "c"), node("If", "d", "b")},
		"no inputs":         {node("Shape", "a"), node("Greater", "b", "a", "c"), node("If", "d", "b")},
		"an empty constant": {node("Constant", "c"), node("Shape", "a", "attention_mask"), node("Greater", "b", "a", "c"), node("If", "d", "b")},
		"no condition":      {node("If", "d", "b"), node("If", "e")},
	} {
		if found := lengthBranches(&onnxpb.GraphProto{Node: nodes}); len(found) != 0 {
			t.Errorf("%s: %v", name, found)
		}
	}
}
