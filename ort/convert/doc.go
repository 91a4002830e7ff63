// Package convert makes ONNX folders of the models that people have: Hugging Face
// folders (config.json, safetensors, tokenizer.json) and GGUF files.
//
// The way of the data:
//
//	source ──> model ──> graph ──> folder
//
// A source (hf.go, gguf.go) reads a checkpoint and says in its own names where
// each weight lies. A model (model.go, arch.go) is what distinguishes
// architectures: sizes, norms, rotary embeddings, windows, caps; a table has one
// entry for each. Rotary tables are transformers' (rotary.go). The graph (graph.go) is built once for all of them, with the
// operators and names of onnxruntime-genai's model builder, so that whatever
// reads such graphs reads these: GroupQueryAttention over a shared cache buffer,
// attention_mask turned into lengths inside the graph, MatMulNBits for weights of
// 4 and 8 bits. The folder (folder.go) has model.onnx, one file of external data,
// genai_config.json and the tokenizer's files, and is there whole or not at all.
//
// Invariants: the same source and settings give the same bytes, with any number
// of processors; no more than the largest weight is in memory
// besides what is mapped; integers and scales of GGUF's Q4_0 and Q8_0, and on GPUs
// of Q4_1, are kept as they are; every tensor of a source is used, or known to be of
// no use, or an error.
package convert
