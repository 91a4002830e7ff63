// Package onnxpb holds the types of an ONNX file, generated from onnx.proto,
// which names the messages and fields that draftmill needs and keeps the rest
// as unknown fields. File and package are registered under names of our own:
// two registrations of onnx.proto in one program panic.
//
// onnx.pb.go is made by `go generate`, with protoc (Debian's protobuf-compiler)
// and protoc-gen-go of the version of google.golang.org/protobuf in go.mod.
package onnxpb

//go:generate protoc -I ../../.. --go_out=../../.. --go_opt=paths=source_relative ort/graph/onnxpb/onnx.proto
