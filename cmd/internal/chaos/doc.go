// Package chaos is what the fault suite's build of the worker has and the
// product has not: a scripted model in the place of ONNX Runtime's, and points
// at which the worker kills or stops itself. The suite is in cmd/internal/e2e.
package chaos
