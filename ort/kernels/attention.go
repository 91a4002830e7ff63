package kernels

// #include <stdlib.h>
// #include "attention.h"
import "C"

import (
	"errors"
	"runtime"
	"unsafe"
)

// Attention is one layer's attention in one pass; see dm_attention in attention.h.
type Attention struct {
	Heads, KVHeads, HeadSize int
	Scale, Softcap           float32
	Window                   int

	RotaryDim         int
	RotaryInterleaved bool
	Cos, Sin          []float32 // [positions, RotaryDim / 2]
	QNorm, KNorm      []float32 // [HeadSize], or nil
	NormEpsilon       float32
	Sink              []float32 // [Heads], or nil
	Bias              []float32 // [Heads, Distances], or nil
	Distances         int
	Cross             bool // to the first Inputs[s] positions

	Cumulative, Past []int32
	BlockTable       []int32 // [sequences, MaxBlocks]
	MaxBlocks        int
	Inputs           []int32 // [sequences], or nil
	Slots            []int32 // [tokens], or nil
	Copies           []int32 // [copies, 2]

	// Rows of tokens with strides in floats; packed rows are three slices of one.
	Query, Key, Value                   []float32
	QueryStride, KeyStride, ValueStride int
	KeyCache, ValueCache                []float32
	KeyCache8, ValueCache8              []int8    // in their place where there are scales
	KScale, VScale                      []float32 // [KVHeads, HeadSize], or nil
	BlockSize                           int
	Output                              []float32
	OutputStride                        int
}

// Attend computes the pass after it was checked.
func (a *Attention) Attend(t Threads) error {
	var pin runtime.Pinner
	defer pin.Unpin()
	c := (*C.dm_attention)(C.calloc(1, C.sizeof_dm_attention))
	defer C.free(unsafe.Pointer(c))
	interleaved, cross := 0, 0
	if a.Cross {
		cross = 1
	}
	if a.RotaryInterleaved {
		interleaved = 1
	}
	positions, blocks := 0, 0
	if a.RotaryDim > 0 {
		positions = len(a.Cos) / (a.RotaryDim / 2)
	}
	if step := a.BlockSize * a.KVHeads * a.HeadSize; step > 0 {
		blocks = (len(a.KeyCache) + len(a.KeyCache8)) / step
	}
	*c = C.dm_attention{
		heads: C.int(a.Heads), kv_heads: C.int(a.KVHeads), head_size: C.int(a.HeadSize),
		scale: C.float(a.Scale), softcap: C.float(a.Softcap), window: C.int(a.Window),
		rotary_dim: C.int(a.RotaryDim), rotary_interleaved: C.int(interleaved),
		cos: floats(&pin, a.Cos), sin: floats(&pin, a.Sin), positions: C.int(positions),
		q_norm: floats(&pin, a.QNorm), k_norm: floats(&pin, a.KNorm), norm_epsilon: C.float(a.NormEpsilon),
		sink: floats(&pin, a.Sink), sequences: C.int(max(0, len(a.Cumulative)-1)),
		bias: floats(&pin, a.Bias), distances: C.int(a.Distances), cross: C.int(cross), inputs: ints(&pin, a.Inputs),
		cumulative: ints(&pin, a.Cumulative), past: ints(&pin, a.Past), block_table: ints(&pin, a.BlockTable),
		max_blocks: C.int(a.MaxBlocks), slots: ints(&pin, a.Slots),
		copies: ints(&pin, a.Copies), copied: C.int(len(a.Copies) / 2),
		query: floats(&pin, a.Query), key: floats(&pin, a.Key), value: floats(&pin, a.Value),
		query_stride: C.size_t(a.QueryStride), key_stride: C.size_t(a.KeyStride), value_stride: C.size_t(a.ValueStride),
		key_cache: unsafe.Pointer(floats(&pin, a.KeyCache)), value_cache: unsafe.Pointer(floats(&pin, a.ValueCache)),
		k_scale: floats(&pin, a.KScale), v_scale: floats(&pin, a.VScale),
		blocks: C.int(blocks), block_size: C.int(a.BlockSize),
		output: floats(&pin, a.Output), output_stride: C.size_t(a.OutputStride),
	}
	if a.KScale != nil && blocks > 0 {
		c.key_cache, c.value_cache = pinned(&pin, a.KeyCache8), pinned(&pin, a.ValueCache8)
	}
	if why := C.dm_attention_refuses(c); why != nil {
		return errors.New("attention: " + C.GoString(why))
	}
	threads := C.int(1)
	if t.c != nil {
		threads = t.c.threads
	}
	scratch := C.malloc(C.dm_attention_scratch(c, threads))
	defer C.free(scratch)
	C.dm_attention_run(c, scratch, t.c)
	return nil
}

func floats(pin *runtime.Pinner, s []float32) *C.float {
	if len(s) == 0 {
		return nil
	}
	pin.Pin(&s[0])
	return (*C.float)(&s[0])
}

func ints(pin *runtime.Pinner, s []int32) *C.int32_t {
	if len(s) == 0 {
		return nil
	}
	pin.Pin(&s[0])
	return (*C.int32_t)(&s[0])
}
