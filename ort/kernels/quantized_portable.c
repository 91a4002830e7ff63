// The path in portable C, the oracle of the others.
#include "quantized_internal.h"

#define TARGET
#include "quantized_rows.inc"

// Weight k of a unit, column lane.
static inline int32_t weight(const dm_qmatrix *w, const uint8_t *unit, size_t k, size_t lane) {
  if (w->bits == 8) return unit[k / 4 * 64 + lane * 4 + k % 4];
  return unit[k / 8 * 64 + lane * 4 + k % 4] >> (k % 8 / 4 * 4) & 15;
}

static void multiply(const dm_qmatrix *w, size_t group, int more, const qrows *x, size_t first,
                     size_t rows, float *out) {
  (void)more;
  const uint8_t *data = w->data + group * w->stride;
  size_t units = (size_t)w->block / QUNIT, bytes = QUNIT * QLANES * (size_t)w->bits / 8;
  memset(out, 0, rows * QLANES * sizeof *out);
  for (size_t b = 0; b < w->blocks; b++)
    for (size_t lane = 0; lane < QLANES; lane++) {
      float scale = qscale(w, group, b, lane);
      int32_t column[256];
      for (size_t k = 0; k < (size_t)w->block; k++)
        column[k] = weight(w, data + (b * units + k / QUNIT) * bytes, k % QUNIT, lane);
      int32_t zero = qzero(w, group, b, lane);
      for (size_t r = 0; r < rows; r++) {
        size_t height = qpanel(x, first + r);
        const int8_t *a = qvalues(x, first + r) + b * units * height * QUNIT;
        const qstart *s = qstarts(x, first + r) + b * height;
        int32_t sum = zero * s->minus;
        for (size_t k = 0; k < (size_t)w->block; k++)
          sum += column[k] * a[k / QUNIT * height * QUNIT + k % QUNIT];
        float *o = &out[r * QLANES + lane];
        *o = fmaf((float)sum, s->scale * scale, *o);
      }
    }
}

const qpath qpath_portable = {quantize, multiply};
