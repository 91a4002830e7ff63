package ort

import (
	"runtime"
	"syscall"
)

// peakBytes is the largest resident memory that the process has had.
func peakBytes() (int, error) {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0, err
	}
	if runtime.GOOS == "darwin" {
		return int(usage.Maxrss), nil
	}
	return int(usage.Maxrss) << 10, nil
}
