package graph

import (
	"fmt"

	"github.com/draftmill/draftmill/ort/graph/onnxpb"
)

// Names of the inputs and the output of NewGather's graph.
const (
	GatherRows = "rows" // int64 [R], which rows of all pieces, one behind the other
	GatherOut  = "out"  // [R, width]
)

// GatherPiece is the name of a piece: [any number of rows, width].
func GatherPiece(i int) string { return fmt.Sprintf("piece.%d", i) }

// NewGather makes the graph that takes rows of n pieces, as one tensor.
func NewGather(n int, t ElementType) *onnxpb.ModelProto {
	f := newFormula()
	var pieces []string
	for i := range n {
		f.input(GatherPiece(i), t, -1, -1)
		pieces = append(pieces, GatherPiece(i))
	}
	f.input(GatherRows, Int64, -1)
	all := pieces[0]
	if n > 1 {
		all = f.along("Concat", 0, pieces...)
	}
	f.output(GatherOut, t, f.along("Gather", 0, all, GatherRows), -1, -1)
	return f.model("gather")
}
