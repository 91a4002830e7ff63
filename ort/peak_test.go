package ort

import (
	"runtime"
	"syscall"
	"testing"
)

// peakBytes is the largest resident memory that the process has had.
func peakBytes(t *testing.T) int {
	t.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	if runtime.GOOS == "darwin" {
		return int(usage.Maxrss)
	}
	return int(usage.Maxrss) << 10
}
