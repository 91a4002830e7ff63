//go:build chaos

package storage

// OnStep has f called at the named points of the commit protocol, and, with
// the name "write", before every write of a table. Only the fault suite's
// build of the worker has it.
func OnStep(f func(name string)) { step, note = f, f }
