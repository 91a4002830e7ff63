// Package app is the wiring that submit and worker share: exit codes and
// signals, logging, and the models of a job as pipeline asks for them. It is
// the one place where ONNX Runtime, the tokenizer and the configuration meet
// the pipeline's interfaces.
package app
