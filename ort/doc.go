// Package ort runs decoder-only language models with ONNX Runtime: bundles
// (a folder with an exported model), sessions, and KV caches that can be rolled
// back, which is what speculative sampling asks of an engine.
//
//	Init       loads the library, once per process   (runtime.go, shim.c)
//	OpenBundle reads a model folder, no runtime needed (bundle.go, graph.go)
//	Load       makes the session: one copy of weights (model.go)
//	NewDecoder makes caches and bindings over it      (decoder.go)
//
// # Contracts
//
// What a graph does with its cache is read from the graph (contract.go), never
// configured. A GQA graph (onnxruntime-genai's model builder) appends to one
// buffer of full length in place (gqa.go); a growing graph (Optimum's
// text-generation-with-past) returns a longer copy (growing.go). A caller sees
// no difference: it says how many cached tokens count, and what it feeds comes
// after them. Saying fewer than were fed is the rollback.
//
// # Invariants
//
//   - Nothing that C holds lives in Go's heap. Token ids, masks, caches and
//     logits are in memory of ONNX Runtime's allocator, owned by a decoder.
//   - Nothing is freed while C runs: cancelling terminates the run and waits
//     for it, Close of a decoder does the same, and a session outlives its
//     decoders.
//   - A step allocates nothing in Go and costs a few microseconds over the bare
//     run of the session.
//   - A slot's result depends on its own tokens alone, never on what a slot held
//     before or on its neighbours.
//
// The package knows nothing of sampling, queues or files of results. Its
// Decoder satisfies interfaces of basic types that its callers declare.
//
// Sources: the contracts are those of onnxruntime-genai's models/builder.py and
// of Optimum's ONNX exporter; the operator is com.microsoft.GroupQueryAttention
// in ONNX Runtime's ContribOperators.md. Session and environment come from
// yalue/onnxruntime_go; the shim adds what it lacks.
package ort
