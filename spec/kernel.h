// The vocabulary-wide arithmetic of package spec. kernel.go says what each
// function is for; plain.go says the same in Go, and is what these are
// compared with.
#include <stdint.h>

// The length of the blocks whose sums are kept (blockLen in dist.go).
#define SPEC_BLOCK 256

// How many ids spec_truncate may write behind the n-th.
#define SPEC_SLACK 8

// Status of spec_peak where there is none.
#define SPEC_NOT_A_NUMBER (-1)
#define SPEC_NO_MASS (-2)

// spec_level chooses the best instruction set of at most this level (1, 3 or 4
// of x86-64) and returns it. The best there is is chosen already when a program
// begins; tests choose the others.
int spec_level(int at_most);

int64_t spec_peak(const float *l, int64_t n);
double spec_exps(const float *l, int64_t n, double top, double scale, float *w, double *blocks);
int64_t spec_truncate(const float *l, int64_t n, double top, double scale, int64_t k, double p, float least, int32_t *ids,
                      int32_t *keys, float *w, double *sum);
double spec_overlap(const float *p, double p_sum, const float *q, double q_sum, int64_t n);
double spec_surplus(const float *p, double p_sum, const float *q, double q_sum, int64_t n, double *blocks);

// spec_overlaps returns the sum of min(p, q), and in scaled that of min(p, c q).
double spec_overlaps(const float *p, double p_sum, const float *q, double q_sum, double c, int64_t n, double *scaled);

// How many ids share a group of noise (noiseGroup in noise.go).
#define SPEC_GROUP 32

// spec_candidates lists the tokens of blocks from .. to-1 that may win a race
// with the noise of base; see candidates in kernel.go.
int64_t spec_candidates(const uint32_t *base, const float *w, int64_t n, const double *bound, int64_t from, int64_t to,
                        double limit, int32_t *ids);
