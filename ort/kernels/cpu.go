package kernels

// #cgo CFLAGS: -O3 -std=gnu11 -Wall -Wextra -Werror=implicit-function-declaration
// #cgo LDFLAGS: -lm
// #include "kernels.h"
import "C"

import "fmt"

// Level is an instruction set that the kernels have a path for.
type Level int

// Levels, from poor to rich; see dm_level in kernels.h.
const (
	Portable   Level = C.DM_PORTABLE
	AVX2       Level = C.DM_AVX2
	AVXVNNI    Level = C.DM_AVX_VNNI
	AVX512     Level = C.DM_AVX512
	AVX512VNNI Level = C.DM_AVX512_VNNI
	NEON       Level = C.DM_NEON
	NEONDot    Level = C.DM_NEON_DOT
)

func (l Level) String() string { return C.GoString(C.dm_cpu_name(C.dm_level(l))) }

// Best is the richest level of this processor.
func Best() Level { return Level(C.dm_cpu_best()) }

// Levels are those that this processor can run.
func Levels() []Level {
	var all []Level
	now := Level(C.dm_cpu_level())
	for _, l := range []Level{Portable, AVX2, AVXVNNI, AVX512, AVX512VNNI, NEON, NEONDot} {
		if C.dm_cpu_use(C.dm_level(l)) != 0 {
			all = append(all, l)
		}
	}
	C.dm_cpu_use(C.dm_level(now))
	return all
}

// Use makes the kernels take another level than the best, for tests. Weights
// that were packed for one level are of no use to another.
func Use(l Level) error {
	if C.dm_cpu_use(C.dm_level(l)) == 0 {
		return fmt.Errorf("this processor cannot run %s", l)
	}
	return nil
}
