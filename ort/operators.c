#include "operators.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

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

enum { FAIL = 1, INVALID_ARGUMENT = 2 };            // OrtErrorCode
enum { FLOAT = 1, INT32 = 6 };                      // ONNXTensorElementDataType
enum { REQUIRED = 0, OPTIONAL = 1, VARIADIC = 2 };  // OrtCustomOpInputOutputCharacteristic
enum { CUSTOM_OP_VERSION = 24, MAX_RANK = 8, MAX_MATRICES = 16 };

typedef void *status;

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
  const int *input_kinds;
  size_t ninputs;
  int output_kind;
  size_t noutputs;
} operator;

// What all operators compute with, from dm_operators_open on.
static struct {
  void *const *api;
  const dm_kernels *kernels;
} ort;

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

static status fail(int code, const char *message) {
  return ((create_status_fn)ort.api[CREATE_STATUS])(code, message);
}

// message turns a status into what the caller frees.
static char *message(status s) {
  if (s == NULL) return NULL;
  char *text = strdup(((message_fn)ort.api[GET_ERROR_MESSAGE])(s));
  ((release_fn)ort.api[RELEASE_STATUS])(s);
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

static void *scratch_take(size_t size) {
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

static void scratch_give(void *memory) {
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

// A tensor of the run.
typedef struct {
  void *data; // NULL where an optional input is missing
  int64_t dims[MAX_RANK];
  size_t rank;
} tensor;

static status input(void *context, size_t index, tensor *t) {
  memset(t, 0, sizeof *t);
  const void *value = NULL;
  status s = ((get_fn)ort.api[INPUT])(context, index, &value);
  if (s != NULL || value == NULL) return s;
  if ((s = ((data_fn)ort.api[TENSOR_DATA])(value, &t->data)) != NULL) return s;
  void *shape = NULL;
  if ((s = ((shape_fn)ort.api[SHAPE_OF])(value, &shape)) != NULL) return s;
  s = ((count_fn)ort.api[RANK])(shape, &t->rank);
  if (s == NULL && t->rank > MAX_RANK) s = fail(INVALID_ARGUMENT, "a tensor has too many dimensions");
  if (s == NULL) s = ((dims_fn)ort.api[DIMENSIONS])(shape, t->dims, t->rank);
  ((release_fn)ort.api[RELEASE_SHAPE])(shape);
  return s;
}

static status output(void *context, size_t index, const int64_t *dims, size_t rank, void **data) {
  void *value = NULL;
  status s = ((output_fn)ort.api[OUTPUT])(context, index, dims, rank, &value);
  if (s == NULL && value == NULL) return *data = NULL, NULL;
  return s != NULL ? s : ((data_fn)ort.api[TENSOR_DATA])(value, data);
}

// rows is the product of all dimensions but the last.
static size_t rows(const tensor *t) {
  size_t n = 1;
  for (size_t i = 0; i + 1 < t->rank; i++) n *= (size_t)t->dims[i];
  return n;
}

// The session's threads, for one run.
typedef struct {
  const void *context;
  status failed;
} threads;

static void run_parts(void *pool, dm_part part, void *arg, size_t parts) {
  threads *t = pool;
  if (parts == 1) return part(arg, 0);
  if (parts == 0 || t->failed != NULL) return;
  t->failed = ((parallel_fn)ort.api[PARALLEL_FOR])(t->context, part, parts, 0, arg);
}

static status attribute(const void *info, const char *name, int64_t *value) {
  return ((int_fn)ort.api[ATTRIBUTE_INT])(info, name, value);
}

// optional reads an attribute that may be missing, and then stays as it is.
static void optional(const void *info, const char *name, int64_t *value) {
  int64_t v;
  status s = ((int_fn)ort.api[ATTRIBUTE_INT])(info, name, &v);
  if (s != NULL) return ((release_fn)ort.api[RELEASE_STATUS])(s);
  *value = v;
}

static void optional_float(const void *info, const char *name, float *value) {
  float v;
  status s = ((float_fn)ort.api[ATTRIBUTE_FLOAT])(info, name, &v);
  if (s != NULL) return ((release_fn)ort.api[RELEASE_STATUS])(s);
  *value = v;
}

// Matrices and Gated.
typedef struct {
  const dm_matrix *matrices[MAX_MATRICES];
  size_t n;
  int gated;
  int activation;
  int threads;
} product;

static status product_new(const void *info, int gated, void **kernel) {
  product *p = calloc(1, sizeof *p);
  if (p == NULL) return fail(FAIL, "out of memory");
  int64_t addresses[MAX_MATRICES], threads = 1, activation = 0;
  p->n = MAX_MATRICES;
  p->gated = gated;
  status s = ((ints_fn)ort.api[ATTRIBUTE_INTS])(info, "matrices", addresses, &p->n);
  if (s == NULL && gated) s = attribute(info, "activation", &activation);
  if (s == NULL && gated && p->n != 2) s = fail(INVALID_ARGUMENT, "Gated takes two matrices");
  if (s != NULL) {
    free(p);
    return s;
  }
  optional(info, "threads", &threads);
  p->threads = (int)threads;
  p->activation = (int)activation;
  for (size_t i = 0; i < p->n; i++) p->matrices[i] = (const dm_matrix *)(intptr_t)addresses[i];
  *kernel = p;
  return NULL;
}

static status matrices_new(const custom_op *op, const void *api, const void *info, void **kernel) {
  (void)op, (void)api;
  return product_new(info, 0, kernel);
}

static status gated_new(const custom_op *op, const void *api, const void *info, void **kernel) {
  (void)op, (void)api;
  return product_new(info, 1, kernel);
}

static status quantized_compute(const product *p, const tensor *x, float *const *y, const dm_parallel *parallel) {
  const dm_kernels *k = ort.kernels;
  const size_t m = rows(x), width = (size_t)p->matrices[0]->k;
  dm_qproduct list[MAX_MATRICES];
  for (size_t i = 0; i < p->n; i++) {
    const dm_matrix *w = p->matrices[i];
    list[i] = (dm_qproduct){.w = w->weights, .bias = w->bias, .y = p->gated ? y[0] : y[i], .ldy = (size_t)w->n};
  }
  void *scratch = scratch_take(k->qscratch(m, width, k->qblock(p->matrices[0]->weights)));
  if (scratch == NULL) return fail(FAIL, "out of memory");
  if (p->gated)
    k->qgated(&list[0], &list[1], (dm_activation)p->activation, y[0], list[0].ldy, x->data, width, m, scratch, parallel);
  else
    k->qmatmul(list, p->n, x->data, width, m, scratch, parallel);
  scratch_give(scratch);
  return NULL;
}

static status float_compute(const product *p, const tensor *x, float *const *y, const dm_parallel *parallel) {
  const dm_kernels *k = ort.kernels;
  const size_t m = rows(x), width = (size_t)p->matrices[0]->k;
  dm_fproduct list[MAX_MATRICES];
  for (size_t i = 0; i < p->n; i++) {
    const dm_matrix *w = p->matrices[i];
    list[i] = (dm_fproduct){.w = w->weights, .bias = w->bias, .y = p->gated ? y[0] : y[i], .ldy = (size_t)w->n};
  }
  void *scratch = scratch_take(k->fscratch(m, width, p->threads));
  if (scratch == NULL) return fail(FAIL, "out of memory");
  if (p->gated)
    k->fgated(&list[0], &list[1], (dm_activation)p->activation, y[0], list[0].ldy, x->data, width, m, scratch, parallel);
  else
    k->fmatmul(list, p->n, x->data, width, m, scratch, parallel);
  scratch_give(scratch);
  return NULL;
}

static status product_compute(void *kernel, void *context) {
  const product *p = kernel;
  tensor x;
  status s = input(context, 0, &x);
  if (s != NULL) return s;
  const dm_matrix *first = p->matrices[0];
  if (x.rank == 0 || x.dims[x.rank - 1] != first->k)
    return fail(INVALID_ARGUMENT, "a row of the input is not as long as its matrix is high");
  float *y[MAX_MATRICES];
  for (size_t i = 0; i < (p->gated ? 1 : p->n); i++) {
    x.dims[x.rank - 1] = p->matrices[i]->n;
    if ((s = output(context, i, x.dims, x.rank, (void **)&y[i])) != NULL) return s;
  }
  x.dims[x.rank - 1] = first->k;
  if (rows(&x) == 0) return NULL;
  threads t = {.context = context};
  dm_parallel parallel = {.pool = &t, .threads = p->threads, .run = run_parts};
  s = first->quantized ? quantized_compute(p, &x, y, &parallel) : float_compute(p, &x, y, &parallel);
  return s != NULL ? s : t.failed;
}

// PagedAttention.
typedef struct {
  dm_attention layer; // what is the same for every pass
  int do_rotary, threads;
} attention;

static status attention_new(const custom_op *op, const void *api, const void *info, void **kernel) {
  (void)op, (void)api;
  attention *a = calloc(1, sizeof *a);
  if (a == NULL) return fail(FAIL, "out of memory");
  int64_t heads = 0, kv_heads = 0, window = -1, rotary = 0, interleaved = 0, threads = 1;
  status s = attribute(info, "num_heads", &heads);
  if (s == NULL) s = attribute(info, "kv_num_heads", &kv_heads);
  if (s != NULL) {
    free(a);
    return s;
  }
  optional(info, "local_window_size", &window);
  optional(info, "do_rotary", &rotary);
  optional(info, "rotary_interleaved", &interleaved);
  optional(info, "threads", &threads);
  optional_float(info, "scale", &a->layer.scale);
  optional_float(info, "softcap", &a->layer.softcap);
  a->layer.norm_epsilon = 1e-6f;
  optional_float(info, "qk_norm_epsilon", &a->layer.norm_epsilon);
  a->layer.heads = (int)heads;
  a->layer.kv_heads = (int)kv_heads;
  a->layer.window = window > 0 ? (int)window : 0;
  a->layer.rotary_interleaved = (int)interleaved;
  a->do_rotary = (int)rotary;
  a->threads = (int)threads;
  *kernel = a;
  return NULL;
}

// Inputs and outputs of PagedAttention.
enum {
  QUERY, KEY, VALUE, KEY_CACHE, VALUE_CACHE, CUMULATIVE, PAST, TABLE, COS, SIN,
  SLOTS, SINK, Q_NORM, K_NORM, K_SCALE, V_SCALE, METADATA, COPIES, ATTENTION_INPUTS,
};

// attend_rows points the pass at its rows of q, k and v, which are one packed
// matrix where key and value are missing, and at the caches.
static status attend_rows(dm_attention *a, const tensor *in, int64_t *width) {
  const tensor *keys = &in[KEY_CACHE];
  if (in[SLOTS].data != NULL || in[SINK].data != NULL || in[K_SCALE].data != NULL || in[V_SCALE].data != NULL)
    return fail(INVALID_ARGUMENT, "slot_mapping, head_sink and scales of the cache are not supported");
  if (keys->rank != 4 || in[VALUE_CACHE].rank != 4 || memcmp(keys->dims, in[VALUE_CACHE].dims, 4 * sizeof(int64_t)) != 0)
    return fail(INVALID_ARGUMENT, "the caches must be [blocks, block size, KV heads, head size], both alike");
  a->blocks = (int)keys->dims[0];
  a->block_size = (int)keys->dims[1];
  a->head_size = (int)keys->dims[3];
  a->key_cache = keys->data;
  a->value_cache = in[VALUE_CACHE].data;
  const int64_t q = (int64_t)a->heads * a->head_size, kv = (int64_t)a->kv_heads * a->head_size;
  *width = q;
  if (keys->dims[2] != a->kv_heads) return fail(INVALID_ARGUMENT, "the caches have another number of KV heads");
  const tensor *query = &in[QUERY], *key = &in[KEY], *value = &in[VALUE];
  const int packed = key->data == NULL;
  if (query->rank == 0 || query->dims[query->rank - 1] != (packed ? q + 2 * kv : q))
    return fail(INVALID_ARGUMENT, "a row of query has another length");
  a->query = query->data;
  a->query_stride = (size_t)query->dims[query->rank - 1];
  if (packed) {
    a->key = a->query + q;
    a->value = a->key + kv;
    a->key_stride = a->value_stride = a->query_stride;
    return NULL;
  }
  if (value->data == NULL || rows(key) != rows(query) || rows(value) != rows(query) ||
      key->dims[key->rank - 1] != kv || value->dims[value->rank - 1] != kv)
    return fail(INVALID_ARGUMENT, "key and value must have a row of all KV heads for every row of query");
  a->key = key->data;
  a->value = value->data;
  a->key_stride = a->value_stride = (size_t)kv;
  return NULL;
}

// attend_norms points it at the weights of the norms of q and k, if it has any.
static status attend_norms(dm_attention *a, const tensor *in) {
  for (size_t i = Q_NORM; i <= K_NORM; i++)
    if (in[i].data != NULL && (in[i].rank != 1 || in[i].dims[0] != a->head_size))
      return fail(INVALID_ARGUMENT, "the weights of a norm of q or k are not of a head's size");
  a->q_norm = in[Q_NORM].data;
  a->k_norm = in[K_NORM].data;
  return NULL;
}

// attend_lengths points it at the sequences' lengths, blocks and rotary tables.
static status attend_lengths(dm_attention *a, const tensor *in, int do_rotary) {
  const tensor *cumulative = &in[CUMULATIVE], *past = &in[PAST], *table = &in[TABLE];
  if (cumulative->rank != 1 || past->rank != 1 || cumulative->dims[0] != past->dims[0] + 1 || table->rank != 2 ||
      table->dims[0] != past->dims[0])
    return fail(INVALID_ARGUMENT, "cumulative_sequence_length, past_seqlens and block_table are for different numbers of sequences");
  a->sequences = (int)past->dims[0];
  a->cumulative = cumulative->data;
  a->past = past->data;
  a->block_table = table->data;
  a->max_blocks = (int)table->dims[1];
  const tensor *copies = &in[COPIES];
  if (copies->data != NULL) {
    if (copies->rank != 2 || copies->dims[1] != 2) return fail(INVALID_ARGUMENT, "copies must be pairs of slots");
    a->copies = copies->data;
    a->copied = (int)copies->dims[0];
  }
  if (!do_rotary) return NULL;
  const tensor *cosines = &in[COS], *sines = &in[SIN];
  if (cosines->rank != 2 || sines->rank != 2 || memcmp(cosines->dims, sines->dims, 2 * sizeof(int64_t)) != 0)
    return fail(INVALID_ARGUMENT, "cos_cache and sin_cache must be [positions, rotary size / 2], both alike");
  a->cos = cosines->data;
  a->sin = sines->data;
  a->positions = (int)cosines->dims[0];
  a->rotary_dim = 2 * (int)cosines->dims[1];
  return NULL;
}

// attend_metadata sees that the bounds are true: kernels elsewhere rely on them.
static status attend_metadata(const dm_attention *a, const tensor *metadata) {
  if (metadata->data == NULL) return NULL;
  if (metadata->rank != 1 || metadata->dims[0] != 3) return fail(INVALID_ARGUMENT, "attention_metadata must be [3]");
  const int32_t *bounds = metadata->data;
  int32_t longest = 0;
  for (int i = 0; i < a->sequences; i++) {
    const int32_t fed = a->cumulative[i + 1] - a->cumulative[i], length = a->past[i] + fed;
    if (length > longest) longest = length;
    if (fed > bounds[0] || length > bounds[1])
      return fail(INVALID_ARGUMENT, "attention_metadata promises shorter sequences than there are");
  }
  if (longest < bounds[2]) return fail(INVALID_ARGUMENT, "attention_metadata promises a longer sequence than there is");
  return NULL;
}

static status attention_compute(void *kernel, void *context) {
  const attention *op = kernel;
  const dm_kernels *k = ort.kernels;
  dm_attention a = op->layer;
  tensor in[ATTENTION_INPUTS];
  status s = NULL;
  for (size_t i = 0; s == NULL && i < ATTENTION_INPUTS; i++) s = input(context, i, &in[i]);
  int64_t width = 0;
  if (s == NULL) s = attend_rows(&a, in, &width);
  if (s == NULL) s = attend_norms(&a, in);
  if (s == NULL) s = attend_lengths(&a, in, op->do_rotary);
  for (size_t i = 0; s == NULL && i < 2; i++) {
    const tensor *cache = &in[KEY_CACHE + i];
    void *updated = NULL;
    s = output(context, 1 + i, cache->dims, 4, &updated);
    if (s == NULL && updated != cache->data)
      s = fail(INVALID_ARGUMENT, "the caches must be bound as inputs and outputs in one memory");
  }
  if (s != NULL) return s;
  tensor *query = &in[QUERY];
  const size_t tokens = rows(query);
  query->dims[query->rank - 1] = width;
  if ((s = output(context, 0, query->dims, query->rank, (void **)&a.output)) != NULL || tokens == 0) return s;
  a.output_stride = (size_t)width;
  if ((size_t)a.cumulative[a.sequences] != tokens)
    return fail(INVALID_ARGUMENT, "cumulative_sequence_length does not end with the number of tokens");
  if ((s = attend_metadata(&a, &in[METADATA])) != NULL) return s;
  const char *wrong = k->attention_refuses(&a);
  if (wrong != NULL) return fail(INVALID_ARGUMENT, wrong);
  threads t = {.context = context};
  dm_parallel parallel = {.pool = &t, .threads = op->threads, .run = run_parts};
  void *scratch = scratch_take(k->attention_scratch(&a, op->threads));
  if (scratch == NULL) return fail(FAIL, "out of memory");
  k->attention_run(&a, scratch, &parallel);
  scratch_give(scratch);
  return t.failed;
}

// The operators' descriptions.
static const char *op_name(const custom_op *op) { return ((const operator *)op)->name; }
static const char *op_provider(const custom_op *op) { return (void)op, NULL; } // the CPU
static int op_input_type(const custom_op *op, size_t i) { return ((const operator *)op)->inputs[i]; }
static size_t op_input_count(const custom_op *op) { return ((const operator *)op)->ninputs; }
static int op_output_type(const custom_op *op, size_t i) { return (void)op, (void)i, FLOAT; }
static size_t op_output_count(const custom_op *op) { return ((const operator *)op)->noutputs; }
static int op_input_kind(const custom_op *op, size_t i) { return ((const operator *)op)->input_kinds[i]; }
static int op_output_kind(const custom_op *op, size_t i) { return (void)i, ((const operator *)op)->output_kind; }
static int op_memory(const custom_op *op, size_t i) { return (void)op, (void)i, 0; } // OrtMemTypeDefault
static int op_one(const custom_op *op) { return (void)op, 1; }
static int op_newest(const custom_op *op) { return (void)op, 1; }

#define OPERATOR(NEW, COMPUTE)                                                                     \
  {.version = CUSTOM_OP_VERSION, .name = op_name, .provider = op_provider,                         \
   .input_type = op_input_type, .input_count = op_input_count, .output_type = op_output_type,      \
   .output_count = op_output_count, .destroy = free, .input_kind = op_input_kind,                  \
   .output_kind = op_output_kind, .input_memory = op_memory, .least_inputs = op_one,               \
   .inputs_alike = op_one, .least_outputs = op_one, .outputs_alike = op_one, .create_v2 = NEW,     \
   .compute = COMPUTE, .first_version = op_one, .last_version = op_newest}

static const int product_types[] = {FLOAT}, product_kinds[] = {REQUIRED};
static const int attention_types[] = {FLOAT, FLOAT, FLOAT, FLOAT, FLOAT, INT32, INT32, INT32, FLOAT, FLOAT,
                                      INT32, FLOAT, FLOAT, FLOAT, FLOAT, FLOAT, INT32, INT32};
static const int attention_kinds[] = {REQUIRED, OPTIONAL, OPTIONAL, REQUIRED, REQUIRED,
                                      REQUIRED, REQUIRED, REQUIRED, OPTIONAL, OPTIONAL,
                                      OPTIONAL, OPTIONAL, OPTIONAL, OPTIONAL, OPTIONAL, OPTIONAL, OPTIONAL, OPTIONAL};

static const operator operators[] = {
    {OPERATOR(matrices_new, product_compute), "Matrices", product_types, product_kinds, 1, VARIADIC, 1},
    {OPERATOR(gated_new, product_compute), "Gated", product_types, product_kinds, 1, REQUIRED, 1},
    {OPERATOR(attention_new, attention_compute), "PagedAttention", attention_types, attention_kinds, ATTENTION_INPUTS, REQUIRED, 3},
};

char *dm_operators_open(const dm_runtime *rt, const dm_kernels *kernels, void **domain) {
  ort.api = rt->api;
  ort.kernels = kernels;
  status s = ((make_domain_fn)ort.api[CREATE_DOMAIN])("draftmill", domain);
  for (size_t i = 0; s == NULL && i < sizeof operators / sizeof *operators; i++)
    s = ((two_fn)ort.api[DOMAIN_ADD])(*domain, &operators[i].op);
  return message(s);
}

char *dm_operators_use(const dm_runtime *rt, void *options, void *domain) {
  return message(((two_fn)rt->api[ADD_DOMAIN])(options, domain));
}
