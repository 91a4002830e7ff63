// dm_activate on one level; see activations.h.
#include "activations.h"

V_INLINE v16 v_activation(dm_activation act, v16 x) {
  switch (act) {
  case DM_SILU: return v_silu(x);
  case DM_GELU_ERF: return v_gelu(x);
  case DM_GELU_TANH: return v_gelu_tanh(x);
  }
  return x;
}

V_INLINE void activate_by(dm_activation act, size_t n, const float *x, const float *with,
                          float *y) {
  size_t i = 0;
  for (; i + DM_LANES <= n; i += DM_LANES) {
    v16 v = v_activation(act, v_load(x + i));
    v_store(y + i, with == NULL ? v : v_mul(v, v_load(with + i)));
  }
  if (i == n) return;
  v16 v = v_activation(act, v_load_n(x + i, n - i));
  v_store_n(y + i, with == NULL ? v : v_mul(v, v_load_n(with + i, n - i)), n - i);
}

// One loop for each function, so that none asks again for every vector.
static void activate(dm_activation act, size_t n, const float *x, const float *with, float *y) {
  switch (act) {
  case DM_SILU: activate_by(DM_SILU, n, x, with, y); break;
  case DM_GELU_ERF: activate_by(DM_GELU_ERF, n, x, with, y); break;
  case DM_GELU_TANH: activate_by(DM_GELU_TANH, n, x, with, y); break;
  }
}
