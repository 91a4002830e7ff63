// Package graph reads and rewrites ONNX graphs of language models.
// It needs no runtime and no C: what it returns is handed to ONNX Runtime by
// package ort.
//
//	Read, Parse   an ONNX file without its weights         (graph.go)
//	Describe      inputs, outputs, operators, files        (graph.go)
//	ReadLayout    the contract of the KV cache, or why not (contract.go;
//	              of encoder-decoder models crossed.go)
//	CacheScales   what a cache of 8 bits is multiplied with;
//	NarrowCache   makes one of a float cache       (cache8.go)
//	Weigh         types and number of the parameters       (weigh.go)
//	NewRagged     ragged passes over a paged cache         (ragged.go;
//	              of encoder-decoder models ragged_crossed.go)
//	NewSampler    draws and verification on a device       (sampler.go)
//
// The messages of a file are the generated types of onnxpb, whose doc.go says how
// they are made. A graph with a branch that depends on the length of the text is
// used up to that length (branches.go).
//
// # Ragged passes
//
// NewRagged works on a copy of the nodes (editor.go) in four steps. Attention
// becomes one node a layer (ragged_attention.go; where it consists of plain
// operators, trials show what they amount to: ragged_growing.go, ragged_mask.go,
// trial.go). What nobody needs any more goes, and the packed row of tokens is followed through what is left (flow.go, rules
// in flow_rules.go and flow_shapes.go): an operator that may mix tokens is
// refused. What follows the last attention is given the wanted rows only
// (ragged_head.go). On the CPU, matrices become ours (matrices.go, gated.go).
//
// # Invariants
//
//   - A rewriting leaves the model that it is given as it is. The result shares
//     what does not change.
//   - Damaged files are refused with an error; none makes a function panic or run
//     for ever (FuzzParse).
//   - Weights are never read here: a tensor of more than 1 KiB is described by the
//     file, the offset and the length where its data are.
//
// Sources: ONNX's onnx.proto; the operators are those of ONNX Runtime's
// ContribOperators.md; what exporters write is onnxruntime-genai's
// models/builder.py and Optimum's ONNX exporter.
package graph
