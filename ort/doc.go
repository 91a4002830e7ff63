// Package ort runs decoder-only language models with ONNX Runtime: bundles
// (a folder with an exported model), sessions, and KV caches that can be rolled
// back, which is what speculative sampling asks of an engine.
//
//	Init       loads the library, once per process   (runtime.go, shim.c)
//	OpenBundle reads a model folder, no runtime needed (bundle.go, ort/graph)
//	Details    says what is in it                     (bundle_details.go)
//	Load       makes the session: one copy of weights (model.go, sessions.go)
//	NewDecoder makes caches and bindings over it      (decoder.go, slots.go)
//
// ONNX files are read and rewritten by package graph, which needs no runtime.
//
// # Contracts
//
// What a graph does with its cache is read from the graph (graph.ReadLayout),
// never configured. A GQA graph (onnxruntime-genai's model builder) appends to one
// buffer of full length in place (gqa.go); a growing graph (Optimum's
// text-generation-with-past) returns a longer copy (growing.go). A caller sees
// no difference: it says how many cached tokens count, and what it feeds comes
// after them. Saying fewer than were fed is the rollback.
//
// # Lanes
//
// GroupQueryAttention takes one sequence where several tokens follow a past, so
// several sequences in one Forward would be several runs, each of which reads
// all weights. With Options.Lanes above 1 the graph is rewritten (graph.Lanes):
// attention is split into one operator per lane, with that lane's cache and
// lengths, and all other operators work on all lanes together. On the CPU a
// lane's logits are, to the bit, those of the sequence alone.
//
//   - A Forward of n slots runs on a session of exactly n lanes, which is made
//     when n first occurs (more than Options.Lanes run in groups). Making one
//     costs as much as some tens of steps, once; an idle lane in a larger
//     session would cost its share of every step: with the demo's target 4 lanes
//     took 15 to 19% longer than 3 at S = 1, 27 to 29% at S = 5 (one thread, the
//     least of 100 times on a busy machine).
//   - All sessions read the same weights (weights.go): external data are mapped,
//     weights inside model.onnx that begin at an odd address are copied once,
//     and what the kernels pack is packed once. Eight sessions of a model of
//     400 MB of float32 took 394 MB, one alone 376 MB. Weights that a model
//     stores in half precision, or transposes, are computed once and held twice,
//     plain and packed.
//   - A lane keeps the slot that was bound to it last; only one that joins is
//     bound again, so callers had better keep the order of their slots.
//   - Graphs of growing caches, and those that use the mask or a cache outside
//     of attention, run lane after lane; Model.OneLane says so.
//
// # Devices
//
// With Options.Device a model runs on an NVIDIA GPU ("cuda", "cuda:1") or on any
// GPU by way of WebGPU ("webgpu"), several side by side in one process, each with
// sessions and memory of its own (device.go). Caches are allocated there and
// bound in place, past and present; token ids, masks and lengths go in, logits
// come out. The calls are the same:
//
//   - What the CPU does to a cache by moving memory - Copy, and the rollback of a
//     growing cache - a device does in a session that slices tensors (mover.go),
//     because a device's memory may be a handle and not an address. Copy moves a
//     GQA cache as a whole; a growing cache goes into the other of its two sets
//     of buffers. Both stay on the device.
//   - With Options.Lanes above 1 all sessions share one copy of the weights there
//     too.
//   - A model whose cache the device's kernels would leave to the CPU is refused,
//     with what helps; so is float32 attention on CUDA, which knows half precision
//     only. Other operators that a device lacks run on the CPU, as ONNX Runtime
//     sees fit.
//   - Logits are those of the CPU within the device's rounding. To the bit they
//     need not be those of a sequence alone: kernels choose by shape.
//   - Of WebGPU one call runs at a time in a process, whatever the model; the
//     others wait. ONNX Runtime 1.30 corrupts its commands otherwise.
//   - While another session of the process runs on WebGPU, ONNX Runtime 1.30 keeps
//     the device memory of a closed session, about the size of its weights where
//     they are not shared. A model is better kept than closed and opened again.
//
// Package orttest plays one suite on all of them.
//
// # Invariants
//
//   - Nothing that C holds lives in Go's heap. Token ids, masks, caches and
//     logits are in memory of ONNX Runtime's allocators, owned by a decoder.
//   - Nothing is freed while C runs: cancelling terminates the run and waits
//     for it, Close of a decoder does the same, and a session outlives its
//     decoders.
//   - A step allocates nothing in Go and costs a few microseconds over the bare
//     run of the session.
//   - A slot's result depends on its own tokens alone, never on what a slot held
//     before, on its neighbours, or on how many they are; on a device but for
//     rounding.
//
// The package knows nothing of sampling, queues or files of results. Its
// Decoder satisfies interfaces of basic types that its callers declare.
//
// Sources: the contracts are those of onnxruntime-genai's models/builder.py and
// of Optimum's ONNX exporter; the operator is com.microsoft.GroupQueryAttention
// in ONNX Runtime's ContribOperators.md. Options and environment come from
// yalue/onnxruntime_go; the shim adds what it lacks.
package ort
