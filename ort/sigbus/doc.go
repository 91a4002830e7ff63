// Package sigbus explains the end of a process whose mapped files were cut short.
//
// Weights are mapped from their files. A file that is written over in place, or
// shortened, takes the pages away from under whoever reads them, which is a
// SIGBUS, mostly in C, where nothing can be recovered. Without this package the
// process ends with hundreds of lines of goroutines that do not name the file.
package sigbus
