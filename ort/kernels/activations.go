package kernels

// #include "activations.h"
import "C"

// Activation is a function between the matrices of a feed-forward block.
type Activation int

// The activations; see activations.h.
const (
	SiLU     Activation = C.DM_SILU
	GELUErf  Activation = C.DM_GELU_ERF
	GELUTanh Activation = C.DM_GELU_TANH
)

// Activate sets y[i] to act(x[i]) * with[i], or to act(x[i]) where with is nil.
// y may be x or with; all have the same length.
func Activate(act Activation, x, with, y []float32) {
	if len(x) == 0 {
		return
	}
	var w *C.float
	if with != nil {
		w = (*C.float)(&with[:len(x)][0])
	}
	C.dm_activate(C.dm_activation(act), C.size_t(len(x)), (*C.float)(&x[0]), w, (*C.float)(&y[:len(x)][0]))
}
