package app

import (
	"fmt"
	"runtime"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Bounds of what is read to see how fast memory is: as much as a model's
// weights, which may lie in a cache where they are small, and no more than what
// leaves every cache in a blink.
const (
	leastRead = 1 << 20
	mostRead  = 256 << 20
	readings  = 4
)

// readBandwidth is how many bytes a second this machine reads, all its
// processors together, over and over from as much memory as weights take: the
// best of a few readings, each of which something else may have disturbed.
func readBandwidth(weights int) (float64, error) {
	n := min(max(weights, leastRead), mostRead) &^ 63
	memory, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return 0, fmt.Errorf("measure the memory's bandwidth: %w", err)
	}
	defer func() { _ = unix.Munmap(memory) }() // what is not given back ends with the process
	words := unsafe.Slice((*uint64)(unsafe.Pointer(&memory[0])), n/8)
	for i := range words { // pages that nobody has written are all the same one
		words[i] = 1
	}
	var best time.Duration
	for range readings {
		began := time.Now()
		if read(words) != uint64(len(words)) {
			return 0, fmt.Errorf("measure the memory's bandwidth: what was written was not read")
		}
		if took := time.Since(began); best == 0 || took < best {
			best = took
		}
	}
	return float64(n) / best.Seconds(), nil
}

// read adds up words, each processor its part.
func read(words []uint64) uint64 {
	parts := runtime.GOMAXPROCS(0)
	sums := make([]uint64, parts)
	var all sync.WaitGroup
	for i := range parts {
		all.Go(func() { sums[i] = sum(words[len(words)*i/parts : len(words)*(i+1)/parts]) })
	}
	all.Wait()
	return sum(sums)
}

// sum adds eight words at a time, in sums that do not wait for each other.
func sum(words []uint64) uint64 {
	var a, b, c, d, e, f, g, h uint64
	for ; len(words) >= 8; words = words[8:] {
		a += words[0]
		b += words[1]
		c += words[2]
		d += words[3]
		e += words[4]
		f += words[5]
		g += words[6]
		h += words[7]
	}
	for _, w := range words {
		a += w
	}
	return a + b + c + d + e + f + g + h
}
