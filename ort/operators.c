#include "operators_internal.h"

#include <pthread.h>
#include <stdlib.h>

// Positions in OrtApi, as in shim.c.
enum {
  CREATE_STATUS = 0,
  GET_ERROR_MESSAGE = 2,
  CREATE_DOMAIN = 26,
  DOMAIN_ADD = 27,
  ADD_DOMAIN = 28,
  TENSOR_DATA = 51,
  RANK = 61,
  DIMENSIONS = 62,
  SHAPE_OF = 65,
  ATTRIBUTE_FLOAT = 85,
  ATTRIBUTE_INT = 86,
  INPUT = 90,
  OUTPUT = 91,
  RELEASE_STATUS = 93,
  RELEASE_SHAPE = 99,
  ATTRIBUTE_INTS = 163,
  PARALLEL_FOR = 274,
};

enum { FLOAT = 1, INT8 = 3, INT32 = 6 };            // ONNXTensorElementDataType
enum { REQUIRED = 0, OPTIONAL = 1, VARIADIC = 2 };  // OrtCustomOpInputOutputCharacteristic
enum { CUSTOM_OP_VERSION = 24 };

typedef dm_status status;

// OrtCustomOp, whose members are only ever added at its end.
typedef struct custom_op {
  uint32_t version;
  void *(*create)(const struct custom_op *, const void *api, const void *info);
  const char *(*name)(const struct custom_op *);
  const char *(*provider)(const struct custom_op *);
  int (*input_type)(const struct custom_op *, size_t);
  size_t (*input_count)(const struct custom_op *);
  int (*output_type)(const struct custom_op *, size_t);
  size_t (*output_count)(const struct custom_op *);
  void (*compute_v1)(void *, void *);
  void (*destroy)(void *);
  int (*input_kind)(const struct custom_op *, size_t);
  int (*output_kind)(const struct custom_op *, size_t);
  int (*input_memory)(const struct custom_op *, size_t);
  int (*least_inputs)(const struct custom_op *);
  int (*inputs_alike)(const struct custom_op *);
  int (*least_outputs)(const struct custom_op *);
  int (*outputs_alike)(const struct custom_op *);
  status (*create_v2)(const struct custom_op *, const void *api, const void *info, void **kernel);
  status (*compute)(void *kernel, void *context);
  status (*infer)(const struct custom_op *, void *);
  int (*first_version)(const struct custom_op *);
  int (*last_version)(const struct custom_op *);
  size_t (*may_inplace)(int **, int **);
  void (*release_inplace)(int *, int *);
  size_t (*aliases)(int **, int **);
  void (*release_aliases)(int *, int *);
} custom_op;

typedef struct {
  custom_op op; // first: callbacks cast
  const char *name;
  const int *inputs; // types
  int cache;         // type of the outputs behind the first
  const int *input_kinds;
  size_t ninputs;
  int output_kind;
  size_t noutputs;
} operator;

static void *const *ort; // OrtApi, from dm_operators_open on
const dm_kernels *dm_op_kernels;

typedef status (*ints_fn)(const void *, const char *, int64_t *, size_t *);
typedef status (*int_fn)(const void *, const char *, int64_t *);
typedef status (*float_fn)(const void *, const char *, float *);
typedef status (*count_fn)(const void *, size_t *);
typedef status (*get_fn)(const void *, size_t, const void **);
typedef status (*output_fn)(void *, size_t, const int64_t *, size_t, void **);
typedef status (*data_fn)(const void *, void **);
typedef status (*shape_fn)(const void *, void **);
typedef status (*dims_fn)(const void *, int64_t *, size_t);
typedef status (*parallel_fn)(const void *, dm_part, size_t, size_t, void *);
typedef status (*create_status_fn)(int, const char *);
typedef void (*release_fn)(void *);
typedef status (*make_domain_fn)(const char *, void **);
typedef status (*two_fn)(void *, const void *);
typedef const char *(*message_fn)(status);

status dm_op_fail(int code, const char *message) {
  return ((create_status_fn)ort[CREATE_STATUS])(code, message);
}

// message turns a status into what the caller frees.
static char *message(status s) {
  if (s == NULL) return NULL;
  char *text = strdup(((message_fn)ort[GET_ERROR_MESSAGE])(s));
  ((release_fn)ort[RELEASE_STATUS])(s);
  return text;
}

// Memory for the time of one run of an operator. Runs take it from here and
// give it back, so that the next one finds it mapped; there is one piece for
// each run at a time.
typedef struct piece {
  struct piece *next;
  size_t size;
} piece;

enum { PIECE_HEADER = 64 };
static piece *pieces;
static pthread_mutex_t pieces_guard = PTHREAD_MUTEX_INITIALIZER;

void *dm_op_scratch(size_t size) {
  pthread_mutex_lock(&pieces_guard);
  piece *p = pieces;
  if (p != NULL) pieces = p->next;
  pthread_mutex_unlock(&pieces_guard);
  if (p != NULL && p->size >= size) return (char *)p + PIECE_HEADER;
  free(p);
  size = (size + size / 4 + 63) / 64 * 64;
  p = aligned_alloc(64, PIECE_HEADER + size);
  if (p == NULL) return NULL;
  p->size = size;
  return (char *)p + PIECE_HEADER;
}

void dm_op_give(void *memory) {
  if (memory == NULL) return;
  piece *p = (piece *)((char *)memory - PIECE_HEADER);
  pthread_mutex_lock(&pieces_guard);
  p->next = pieces;
  pieces = p;
  pthread_mutex_unlock(&pieces_guard);
}

void dm_operators_trim(void) {
  pthread_mutex_lock(&pieces_guard);
  piece *p = pieces;
  pieces = NULL;
  pthread_mutex_unlock(&pieces_guard);
  while (p != NULL) {
    piece *next = p->next;
    free(p);
    p = next;
  }
}

status dm_op_input(void *context, size_t index, dm_tensor *t) {
  memset(t, 0, sizeof *t);
  const void *value = NULL;
  status s = ((get_fn)ort[INPUT])(context, index, &value);
  if (s != NULL || value == NULL) return s;
  if ((s = ((data_fn)ort[TENSOR_DATA])(value, &t->data)) != NULL) return s;
  void *shape = NULL;
  if ((s = ((shape_fn)ort[SHAPE_OF])(value, &shape)) != NULL) return s;
  s = ((count_fn)ort[RANK])(shape, &t->rank);
  if (s == NULL && t->rank > DM_MAX_RANK) s = dm_op_fail(DM_INVALID, "a tensor has too many dimensions");
  if (s == NULL) s = ((dims_fn)ort[DIMENSIONS])(shape, t->dims, t->rank);
  ((release_fn)ort[RELEASE_SHAPE])(shape);
  return s;
}

status dm_op_output(void *context, size_t index, const int64_t *dims, size_t rank, void **data) {
  void *value = NULL;
  status s = ((output_fn)ort[OUTPUT])(context, index, dims, rank, &value);
  if (s == NULL && value == NULL) return *data = NULL, NULL;
  return s != NULL ? s : ((data_fn)ort[TENSOR_DATA])(value, data);
}

static void run_parts(void *pool, dm_part part, void *arg, size_t parts) {
  dm_op_threads *t = pool;
  if (parts == 1) return part(arg, 0);
  if (parts == 0 || t->failed != NULL) return;
  t->failed = ((parallel_fn)ort[PARALLEL_FOR])(t->context, part, parts, 0, arg);
}

dm_parallel dm_op_parallel(dm_op_threads *t, int threads) {
  return (dm_parallel){.pool = t, .threads = threads, .run = run_parts};
}

status dm_op_int(const void *info, const char *name, int64_t *value) {
  return ((int_fn)ort[ATTRIBUTE_INT])(info, name, value);
}

status dm_op_ints(const void *info, const char *name, int64_t *values, size_t *n) {
  return ((ints_fn)ort[ATTRIBUTE_INTS])(info, name, values, n);
}

void dm_op_optional_int(const void *info, const char *name, int64_t *value) {
  int64_t v;
  status s = ((int_fn)ort[ATTRIBUTE_INT])(info, name, &v);
  if (s != NULL) return ((release_fn)ort[RELEASE_STATUS])(s);
  *value = v;
}

void dm_op_optional_float(const void *info, const char *name, float *value) {
  float v;
  status s = ((float_fn)ort[ATTRIBUTE_FLOAT])(info, name, &v);
  if (s != NULL) return ((release_fn)ort[RELEASE_STATUS])(s);
  *value = v;
}

// The operators' descriptions.
static const char *op_name(const custom_op *op) { return ((const operator *)op)->name; }
static const char *op_provider(const custom_op *op) { return (void)op, NULL; } // the CPU
static int op_input_type(const custom_op *op, size_t i) { return ((const operator *)op)->inputs[i]; }
static size_t op_input_count(const custom_op *op) { return ((const operator *)op)->ninputs; }
static int op_output_type(const custom_op *op, size_t i) { return i == 0 ? FLOAT : ((const operator *)op)->cache; }
static size_t op_output_count(const custom_op *op) { return ((const operator *)op)->noutputs; }
static int op_input_kind(const custom_op *op, size_t i) { return ((const operator *)op)->input_kinds[i]; }
static int op_output_kind(const custom_op *op, size_t i) { return (void)i, ((const operator *)op)->output_kind; }
static int op_memory(const custom_op *op, size_t i) { return (void)op, (void)i, 0; } // OrtMemTypeDefault
static int op_one(const custom_op *op) { return (void)op, 1; }
static int op_newest(const custom_op *op) { return (void)op, 1; }

#define NEW(OPERATOR)                                                                              \
  static status OPERATOR##_new(const custom_op *op, const void *api, const void *info, void **k) { \
    return (void)op, (void)api, dm_##OPERATOR##_new(info, k);                                      \
  }
NEW(matrices)
NEW(gated)
NEW(paged)
NEW(paged8)
NEW(cross)

#define OPERATOR(NEW, COMPUTE)                                                                     \
  {.version = CUSTOM_OP_VERSION, .name = op_name, .provider = op_provider,                         \
   .input_type = op_input_type, .input_count = op_input_count, .output_type = op_output_type,      \
   .output_count = op_output_count, .destroy = free, .input_kind = op_input_kind,                  \
   .output_kind = op_output_kind, .input_memory = op_memory, .least_inputs = op_one,               \
   .inputs_alike = op_one, .least_outputs = op_one, .outputs_alike = op_one, .create_v2 = NEW,     \
   .compute = COMPUTE, .first_version = op_one, .last_version = op_newest}

static const int product_types[] = {FLOAT, FLOAT}, product_kinds[] = {REQUIRED, OPTIONAL};
static const int attention_types[] = {FLOAT, FLOAT, FLOAT, FLOAT, FLOAT, INT32, INT32, INT32, FLOAT, FLOAT,
                                      INT32, FLOAT, FLOAT, FLOAT, FLOAT, FLOAT, INT32, INT32, INT32, FLOAT};
static const int attention8_types[] = {FLOAT, FLOAT, FLOAT, INT8, INT8, INT32, INT32, INT32, FLOAT, FLOAT,
                                       INT32, FLOAT, FLOAT, FLOAT, FLOAT, FLOAT, INT32, INT32, INT32, FLOAT};
static const int attention_kinds[] = {REQUIRED, OPTIONAL, OPTIONAL, REQUIRED, REQUIRED,
                                      REQUIRED, REQUIRED, REQUIRED, OPTIONAL, OPTIONAL,
                                      OPTIONAL, OPTIONAL, OPTIONAL, OPTIONAL, OPTIONAL, OPTIONAL, OPTIONAL, OPTIONAL,
                                      OPTIONAL, OPTIONAL};
static const int cross_types[] = {FLOAT, FLOAT, FLOAT, INT32, INT32, INT32};
static const int cross_kinds[] = {REQUIRED, REQUIRED, REQUIRED, REQUIRED, REQUIRED, REQUIRED};

static const operator operators[] = {
    {OPERATOR(matrices_new, dm_product_compute), "Matrices", product_types, FLOAT, product_kinds, 2, VARIADIC, 1},
    {OPERATOR(gated_new, dm_product_compute), "Gated", product_types, FLOAT, product_kinds, 1, REQUIRED, 1},
    {OPERATOR(paged_new, dm_paged_compute), "PagedAttention", attention_types, FLOAT, attention_kinds, sizeof attention_kinds / sizeof *attention_kinds, REQUIRED, 3},
    {OPERATOR(paged8_new, dm_paged_compute), "PagedAttention8", attention8_types, INT8, attention_kinds, sizeof attention_kinds / sizeof *attention_kinds, REQUIRED, 3},
    {OPERATOR(cross_new, dm_cross_compute), "CrossAttention", cross_types, FLOAT, cross_kinds, sizeof cross_kinds / sizeof *cross_kinds, REQUIRED, 1},
};

char *dm_operators_open(const dm_runtime *rt, const dm_kernels *kernels, void **domain) {
  ort = rt->api;
  dm_op_kernels = kernels;
  status s = ((make_domain_fn)ort[CREATE_DOMAIN])("draftmill", domain);
  for (size_t i = 0; s == NULL && i < sizeof operators / sizeof *operators; i++)
    s = ((two_fn)ort[DOMAIN_ADD])(*domain, &operators[i].op);
  return message(s);
}

char *dm_operators_use(const dm_runtime *rt, void *options, void *domain) {
  return message(((two_fn)rt->api[ADD_DOMAIN])(options, domain));
}
