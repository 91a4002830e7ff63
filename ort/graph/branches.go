package graph

import (
	"encoding/binary"

	"google.golang.org/protobuf/proto"

	"github.com/draftmill/draftmill/ort/graph/onnxpb"
)

// lengthBranches are the If nodes of a graph that ask whether attention_mask
// covers more than so many tokens, with that number. Phi-3 with a long context has one: once
// a sequence is longer than what the model was first trained on, all tokens of a
// run are rotated by another table. Around that length a token's logits depend on
// which others are fed with it, so that drafts cannot be verified without a trace;
// up to it the other branch is never taken. Bundle.Context ends there.
func lengthBranches(g *onnxpb.GraphProto) map[*onnxpb.NodeProto]int64 {
	limits := map[*onnxpb.NodeProto]int64{}
	made := map[string]*onnxpb.NodeProto{}
	for _, n := range g.Node { // producers stand before their users
		if n.GetOpType() == "If" && len(n.Input) == 1 {
			if greater := made[n.Input[0]]; greater.GetOpType() == "Greater" && len(greater.Input) == 2 && maskLength(made, greater.Input[0]) {
				if limit := constant(made[greater.Input[1]]); limit > 0 {
					limits[n] = limit
				}
			}
		}
		for _, name := range n.Output {
			made[name] = n
		}
	}
	return limits
}

// maskLength reports whether a tensor is the shape of attention_mask, or taken
// from it.
func maskLength(made map[string]*onnxpb.NodeProto, name string) bool {
	shape := false
	for range made { // no longer, though a damaged graph may go round
		n := made[name]
		if n == nil {
			return shape && name == "attention_mask"
		}
		switch n.GetOpType() {
		case "Shape":
			shape = true
		case "Gather", "Cast", "Squeeze":
		default:
			return false
		}
		if len(n.Input) == 0 {
			return false
		}
		name = n.Input[0]
	}
	return false
}

// constant is the int64 that a Constant node holds, or 0.
func constant(n *onnxpb.NodeProto) int64 {
	if n.GetOpType() != "Constant" {
		return 0
	}
	t := Attribute(n, "value").GetT()
	if ElementType(t.GetDataType()) == Int64 && len(t.GetRawData()) == 8 {
		return int64(binary.LittleEndian.Uint64(t.RawData))
	}
	return 0
}

// withinLimit are the nodes of the branch that is taken up to the limit, which
// give their outputs the names of the If node's.
func withinLimit(n *onnxpb.NodeProto) []*onnxpb.NodeProto {
	branch := Attribute(n, "else_branch").GetG()
	nodes := append([]*onnxpb.NodeProto(nil), branch.GetNode()...)
	for i, v := range branch.GetOutput() {
		if i < len(n.Output) {
			nodes = append(nodes, &onnxpb.NodeProto{
				OpType: proto.String("Identity"), Name: proto.String(n.GetName() + "." + n.Output[i]),
				Input: []string{v.GetName()}, Output: []string{n.Output[i]},
			})
		}
	}
	return nodes
}
