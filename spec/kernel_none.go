//go:build !cgo

package spec

// native is plain where there is no C compiler.
type native struct{ plain }
