//go:build !linux

package sigbus

// Explain does nothing here: only Linux says which file is mapped where.
func Explain() error { return nil }
