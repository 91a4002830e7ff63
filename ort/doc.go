// Package ort runs language models with ONNX Runtime: bundles
// (a folder with an exported model), sessions, and KV caches that can be rolled
// back, which is what speculative sampling asks of an engine.
//
//	Init       loads the library, once per process    (runtime.go, shim.c)
//	OpenBundle reads a model folder, no runtime needed (bundle.go, ort/graph)
//	Details    says what is in it                      (bundle_details.go)
//	Load       rewrites the graph, packs its matrices
//	           and makes the session                   (model.go, session.go, matrices.go)
//	NewDecoder makes caches over it                    (decoder.go)
//	WriteNarrow copies a model, its cache in 8 bits    (cache8.go)
//
// # Passes
//
// A Decoder makes passes over spans: each says for one sequence how many cached
// tokens count, which tokens follow them, and after how many of the last of them
// logits are wanted. Saying fewer cached tokens than there are is the rollback.
//
// On the CPU, ort/graph rewrites the exporter's graph so that one run takes all
// spans, and session.go makes a session of it in which our operators (operators*.c)
// call our kernels (ort/kernels):
//
//   - The tokens of all spans are one packed row; nothing is padded or fed twice.
//     The head of the model computes the wanted rows only.
//   - Attention is one operator a layer, over a cache in blocks (paged.go,
//     blocks.go): a pool of blocks, a table of blocks for each sequence,
//     reference counts, and copy on write. Sequences that begin alike share
//     blocks, and a decoder takes any number of sequences with one session.
//   - Matrices of 4 and 8 bits and of float32 are packed once when the model is
//     loaded, for our kernels. What they do not take stays with ONNX Runtime.
//   - A row's logits depend on its own tokens alone, to the bit: not on the other
//     spans, on how many tokens are fed together, or on which blocks hold the
//     cache. The self-test demands it of every model.
//
// A graph that cannot be rewritten runs as it is, one sequence after another, in
// caches for a whole context each (solo.go); Model.Ragged says why. Then results
// are the same within rounding.
//
// # Contracts
//
// What a graph does with its cache is read from the graph (ort/graph), never
// configured. As it is, a GQA graph (onnxruntime-genai's model builder) appends to
// one buffer of full length in place (gqa.go), and a growing graph (Optimum's
// text-generation-with-past) returns a longer copy (growing.go).
//
// An encoder-decoder model (T5, BART, Marian; Optimum's
// text2text-generation-with-past) is an encoder and a decoder, in one graph or in
// two (bundle_crossed.go). Span.Input says how many of a sequence's first tokens are
// the input. The encoder reads them once, as it was exported (encoding.go). On the CPU
// the decoder is rewritten (session_crossed.go), and the states' keys and values are the
// beginning of the sequence's cache (crossed_paged.go). Where that cannot be, graphs run
// as exported, and sequences that share an input share its states and what the decoder
// makes of those (crossed.go). Devices do not run such models.
//
// # Devices
//
// With Options.Device a model runs on an NVIDIA GPU ("cuda", "cuda:1") or on any
// GPU by way of WebGPU ("webgpu"), several side by side in one process, each with
// sessions and memory of its own (device.go). Caches are allocated there and
// bound in place, past and present; token ids, masks and lengths go in, logits
// come out. The calls are the same:
//
//   - What the CPU does to a cache by moving memory - Share, and the rollback of a
//     growing cache - a device does in a session that slices tensors (mover.go),
//     because a device's memory may be a handle and not an address. Share moves a
//     GQA cache as a whole; a growing cache goes into the other of its two sets
//     of buffers. Both stay on the device.
//   - On CUDA graphs are rewritten too, for ONNX Runtime's PagedAttention: blocks as
//     long as its kernels want, caches of half precision whatever the model's type,
//     256 sequences a run at most, several runs beyond, and bounds of the lengths
//     given, so that no layer waits for the device. Where the library or the graph
//     cannot, the graph runs as it is.
//   - With the provider's option enable_cuda_graph, passes of uniform shape are filled
//     up to powers of two of sequences and recorded as CUDA graphs (captured.go).
//   - A model whose cache the device's kernels would leave to the CPU is refused,
//     with what helps; so is float32 attention of a graph as it is on CUDA, which
//     knows half precision only. Other operators that a device lacks run on the CPU,
//     as ONNX Runtime sees fit.
//   - Logits are those of the CPU within the device's rounding. To the bit they
//     need not be those of a sequence alone: kernels choose by shape.
//   - Of WebGPU one call runs at a time in a process, whatever the model; the
//     others wait. ONNX Runtime 1.30 corrupts its commands otherwise.
//   - While another session of the process runs on WebGPU, ONNX Runtime 1.30 keeps
//     the device memory of a closed session, about the size of its weights where
//     they are not shared. A model is better kept than closed and opened again.
//
// A Sampler (sampler.go) draws tokens and scores drafted ones by graphs of standard
// operators on any device, from the rows of logits that a Decoder's Keep has left
// there.
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
