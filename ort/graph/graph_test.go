package graph

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
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

// TestLengthBranches: Phi-3's tables for long texts are found, in the export that
// has them, and are gone from the rewritten graph.
func TestLengthBranches(t *testing.T) {
	if limit := Describe(readModelT(t, "phi3-builder"), "model.onnx").Branches; limit != 32 {
		t.Errorf("limit %d, want 32", limit)
	}
	r, err := NewRagged(readModelT(t, "phi3-builder"), takeAll())
	if err != nil {
		t.Fatal(err)
	}
	if ops := Describe(r.Model, "model.onnx").Ops; ops["If"] != 0 || ops["Greater"] != 0 || ops["PagedAttention"] != 2 {
		t.Errorf("operators %v", ops)
	}
	// Other branches are no limit, and are not rewritten.
	for _, c := range []struct {
		name   string
		change func(greater *onnxpb.NodeProto)
	}{
		{"another operator", func(n *onnxpb.NodeProto) { n.OpType = proto.String("Less") }},
		{"the mask's numbers", func(n *onnxpb.NodeProto) { n.Input[0] = "attention_mask" }},
		{"no constant", func(n *onnxpb.NodeProto) { n.Input[1] = n.Input[0] }},
		{"something else", func(n *onnxpb.NodeProto) { n.Input[0] = "input_ids" }},
	} {
		m := readModelT(t, "phi3-builder")
		c.change(m.Graph.Node[slices.IndexFunc(m.Graph.Node, func(n *onnxpb.NodeProto) bool { return n.GetOpType() == "Greater" })])
		if limits := lengthBranches(m.Graph); len(limits) != 0 {
			t.Errorf("%s: %v", c.name, limits)
		}
		if _, err := NewRagged(m, takeAll()); err == nil {
			t.Errorf("%s: rewritten", c.name)
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
