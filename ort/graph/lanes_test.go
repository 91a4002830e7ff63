package graph

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/draftmill/draftmill/ort/graph/onnxpb"
)

// modelDir is the folder of one of the repository's models.
func modelDir(name string) string {
	switch {
	case slices.Contains([]string{"target", "draft", "draft-optimum"}, name):
		return filepath.Join("..", "..", "testdata", "demo", name)
	case slices.Contains([]string{"gqa", "gqa-float16", "growing", "float16", "bfloat16", "acausal"}, name):
		return filepath.Join("..", "testdata", name)
	}
	return filepath.Join("..", "..", "testdata", "models", name)
}

func readModelT(t *testing.T, name string) *onnxpb.ModelProto {
	t.Helper()
	m, err := Read(filepath.Join(modelDir(name), "model.onnx"))
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
			if ExternalData(w, "location") != "model.onnx" {
				continue
			}
			offset, _ := strconv.Atoi(ExternalData(w, "offset"))
			length, _ := strconv.Atoi(ExternalData(w, "length"))
			w.RawData, w.ExternalData, w.DataLocation = file[offset:offset+length], nil, nil
			moved++
		}
		for _, w := range slices.Concat(got.Graph.Initializer, want.Graph.Initializer) {
			if w.GetDataLocation() != External {
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
	lanes, err := Lanes(m, n)
	if err != nil {
		t.Fatal(err)
	}
	if after, _ := proto.Marshal(m); !bytes.Equal(before, after) {
		t.Error("the model itself was changed")
	}
	one, many := Describe(m, "model.onnx"), Describe(lanes, "model.onnx")
	layers := one.Ops["GroupQueryAttention"]
	for op, want := range map[string]int{
		"GroupQueryAttention": n * layers, "Split": layers, "Concat": layers, // queries, keys and values come packed
		"MatMul": one.Ops["MatMul"], "SkipSimplifiedLayerNormalization": one.Ops["SkipSimplifiedLayerNormalization"],
		"ReduceSum": 0, // the mask's length
	} {
		if many.Ops[op] != want {
			t.Errorf("%d nodes %s, want %d", many.Ops[op], op, want)
		}
	}
	var names []string
	for _, in := range many.Inputs {
		names = append(names, in.Name)
	}
	for _, name := range []string{"input_ids", "lane.0.seqlens_k", "lane.2.total_sequence_length", "lane.1.past_key_values.5.value"} {
		if !slices.Contains(names, name) {
			t.Errorf("no input %s", name)
		}
	}
	if want := 1 + n*(2+2*layers); len(names) != want || len(many.Outputs) != 1+n*2*layers {
		t.Errorf("%d inputs and %d outputs, want %d and %d", len(names), len(many.Outputs), want, 1+n*2*layers)
	}
}

func TestLaneGraphRefuses(t *testing.T) {
	attention := func(m *onnxpb.ModelProto) *onnxpb.NodeProto {
		i := slices.IndexFunc(m.Graph.Node, func(n *onnxpb.NodeProto) bool { return n.GetOpType() == "GroupQueryAttention" })
		return m.Graph.Node[i]
	}
	add := func(m *onnxpb.ModelProto, op string, inputs ...string) {
		m.Graph.Node = append(m.Graph.Node, &onnxpb.NodeProto{OpType: &op, Input: inputs, Output: []string{"more"}})
		m.Graph.Output = append(m.Graph.Output, Value("more", Float32, 1))
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
		if _, err := Lanes(m, 2); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
}

// TestLengthBranches: Phi-3's tables for long texts are found, in the export that
// has them, and are gone from what lanes run.
func TestLengthBranches(t *testing.T) {
	if limit := Describe(readModelT(t, "phi3-builder"), "model.onnx").Branches; limit != 32 {
		t.Errorf("limit %d, want 32", limit)
	}
	lanes, err := Lanes(readModelT(t, "phi3-builder"), 2)
	if err != nil {
		t.Fatal(err)
	}
	if ops := Describe(lanes, "model.onnx").Ops; ops["If"] != 0 || ops["Greater"] != 0 || ops["GroupQueryAttention"] != 4 {
		t.Errorf("operators %v", ops)
	}
	// Other branches are no limit. Lanes have no mask for them.
	for _, c := range []struct {
		name   string
		change func(greater *onnxpb.NodeProto)
		lanes  bool
	}{
		{"another operator", func(n *onnxpb.NodeProto) { n.OpType = proto.String("Less") }, false},
		{"the mask's numbers", func(n *onnxpb.NodeProto) { n.Input[0] = "attention_mask" }, false},
		{"no constant", func(n *onnxpb.NodeProto) { n.Input[1] = n.Input[0] }, false},
		{"something else", func(n *onnxpb.NodeProto) { n.Input[0] = "input_ids" }, true},
	} {
		m := readModelT(t, "phi3-builder")
		c.change(m.Graph.Node[slices.IndexFunc(m.Graph.Node, func(n *onnxpb.NodeProto) bool { return n.GetOpType() == "Greater" })])
		if limits := lengthBranches(m.Graph); len(limits) != 0 {
			t.Errorf("%s: %v", c.name, limits)
		}
		if _, err := Lanes(m, 2); (err == nil) != c.lanes {
			t.Errorf("%s: %v", c.name, err)
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
