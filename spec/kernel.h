// The vocabulary-wide arithmetic of package spec. kernel.go says what each
// function is for; plain.go says the same in Go, and is what these are
// compared with.
#include <stdint.h>

// The length of the blocks whose sums are kept (blockLen in dist.go).
#define SPEC_BLOCK 256

// Status of spec_peak where there is none.
#define SPEC_NOT_A_NUMBER (-1)
#define SPEC_NO_MASS (-2)

int64_t spec_peak(const float *l, int64_t n);
double spec_exps(const float *l, int64_t n, double top, double scale, float *w, double *blocks);
int64_t spec_cut(const float *l, float *w, int64_t n, double sum, int64_t k, double p, float least, int32_t *ids,
                 int32_t *keys, double *total);
double spec_overlap(const float *p, double p_sum, const float *q, double q_sum, int64_t n);
double spec_surplus(const float *p, double p_sum, const float *q, double q_sum, int64_t n, double *blocks);
