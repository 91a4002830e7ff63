#include <stdlib.h>

#include "operators_internal.h"

enum { MAX_MATRICES = 16 };

// Matrices and Gated.
typedef struct {
  const dm_matrix *matrices[MAX_MATRICES];
  size_t n;
  int gated;
  int activation;
  int residual; // a second input is added to the only output
  int threads;
} product;

static dm_status product_new(const void *info, int gated, void **kernel) {
  product *p = calloc(1, sizeof *p);
  if (p == NULL) return dm_op_fail(DM_FAIL, "out of memory");
  int64_t addresses[MAX_MATRICES], threads = 1, activation = 0, residual = 0;
  p->n = MAX_MATRICES;
  p->gated = gated;
  dm_status s = dm_op_ints(info, "matrices", addresses, &p->n);
  if (s == NULL && gated) s = dm_op_int(info, "activation", &activation);
  if (s == NULL && gated && p->n != 2) s = dm_op_fail(DM_INVALID, "Gated takes two matrices");
  if (s != NULL) {
    free(p);
    return s;
  }
  dm_op_optional_int(info, "threads", &threads);
  dm_op_optional_int(info, "residual", &residual);
  p->residual = residual != 0 && !gated && p->n == 1;
  p->threads = (int)threads;
  p->activation = (int)activation;
  for (size_t i = 0; i < p->n; i++) p->matrices[i] = (const dm_matrix *)(intptr_t)addresses[i];
  *kernel = p;
  return NULL;
}

dm_status dm_matrices_new(const void *info, void **kernel) { return product_new(info, 0, kernel); }

dm_status dm_gated_new(const void *info, void **kernel) { return product_new(info, 1, kernel); }

static dm_status quantized_compute(const product *p, const dm_tensor *x, const float *residual, float *const *y, const dm_parallel *parallel) {
  const dm_kernels *k = dm_op_kernels;
  const size_t m = dm_op_rows(x), width = (size_t)p->matrices[0]->k;
  dm_qproduct list[MAX_MATRICES];
  for (size_t i = 0; i < p->n; i++) {
    const dm_matrix *w = p->matrices[i];
    list[i] = (dm_qproduct){.w = w->weights, .bias = w->bias, .y = p->gated ? y[0] : y[i], .ldy = (size_t)w->n,
                            .residual = residual, .ldr = (size_t)w->n};
  }
  void *scratch = dm_op_scratch(k->qscratch(m, width, k->qblock(p->matrices[0]->weights)));
  if (scratch == NULL) return dm_op_fail(DM_FAIL, "out of memory");
  if (p->gated)
    k->qgated(&list[0], &list[1], (dm_activation)p->activation, y[0], list[0].ldy, x->data, width, m, scratch, parallel);
  else
    k->qmatmul(list, p->n, x->data, width, m, scratch, parallel);
  dm_op_give(scratch);
  return NULL;
}

static dm_status float_compute(const product *p, const dm_tensor *x, const float *residual, float *const *y, const dm_parallel *parallel) {
  const dm_kernels *k = dm_op_kernels;
  const size_t m = dm_op_rows(x), width = (size_t)p->matrices[0]->k;
  dm_fproduct list[MAX_MATRICES];
  for (size_t i = 0; i < p->n; i++) {
    const dm_matrix *w = p->matrices[i];
    list[i] = (dm_fproduct){.w = w->weights, .bias = w->bias, .y = p->gated ? y[0] : y[i], .ldy = (size_t)w->n,
                            .residual = residual, .ldr = (size_t)w->n};
  }
  void *scratch = dm_op_scratch(k->fscratch(m, width, p->threads));
  if (scratch == NULL) return dm_op_fail(DM_FAIL, "out of memory");
  if (p->gated)
    k->fgated(&list[0], &list[1], (dm_activation)p->activation, y[0], list[0].ldy, x->data, width, m, scratch, parallel);
  else
    k->fmatmul(list, p->n, x->data, width, m, scratch, parallel);
  dm_op_give(scratch);
  return NULL;
}

dm_status dm_product_compute(void *kernel, void *context) {
  const product *p = kernel;
  dm_tensor x;
  dm_status s = dm_op_input(context, 0, &x);
  if (s != NULL) return s;
  const dm_matrix *first = p->matrices[0];
  if (x.rank == 0 || x.dims[x.rank - 1] != first->k)
    return dm_op_fail(DM_INVALID, "a row of the input is not as long as its matrix is high");
  dm_tensor residual = {0};
  if (p->residual && (s = dm_op_input(context, 1, &residual)) != NULL) return s;
  if (p->residual && (residual.rank == 0 || residual.dims[residual.rank - 1] != first->n || dm_op_rows(&residual) != dm_op_rows(&x)))
    return dm_op_fail(DM_INVALID, "what is added to a product has another shape");
  float *y[MAX_MATRICES];
  for (size_t i = 0; i < (p->gated ? 1 : p->n); i++) {
    x.dims[x.rank - 1] = p->matrices[i]->n;
    if ((s = dm_op_output(context, i, x.dims, x.rank, (void **)&y[i])) != NULL) return s;
  }
  x.dims[x.rank - 1] = first->k;
  if (dm_op_rows(&x) == 0) return NULL;
  dm_op_threads t = {.context = context};
  const dm_parallel parallel = dm_op_parallel(&t, p->threads);
  s = first->quantized ? quantized_compute(p, &x, residual.data, y, &parallel) : float_compute(p, &x, residual.data, y, &parallel);
  return s != NULL ? s : t.failed;
}
