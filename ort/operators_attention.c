#include <stdlib.h>

#include "operators_internal.h"

// PagedAttention.
typedef struct {
  dm_attention layer; // what is the same for every pass
  int do_rotary, threads;
  int narrow; // caches of 8 bits
} attention;

dm_status dm_paged_new(const void *info, void **kernel) {
  attention *a = calloc(1, sizeof *a);
  if (a == NULL) return dm_op_fail(DM_FAIL, "out of memory");
  int64_t heads = 0, kv_heads = 0, window = -1, rotary = 0, interleaved = 0, threads = 1;
  dm_status s = dm_op_int(info, "num_heads", &heads);
  if (s == NULL) s = dm_op_int(info, "kv_num_heads", &kv_heads);
  if (s != NULL) {
    free(a);
    return s;
  }
  dm_op_optional_int(info, "local_window_size", &window);
  dm_op_optional_int(info, "do_rotary", &rotary);
  dm_op_optional_int(info, "rotary_interleaved", &interleaved);
  dm_op_optional_int(info, "threads", &threads);
  dm_op_optional_float(info, "scale", &a->layer.scale);
  dm_op_optional_float(info, "softcap", &a->layer.softcap);
  a->layer.norm_epsilon = 1e-6f;
  dm_op_optional_float(info, "qk_norm_epsilon", &a->layer.norm_epsilon);
  a->layer.heads = (int)heads;
  a->layer.kv_heads = (int)kv_heads;
  a->layer.window = window > 0 ? (int)window : 0;
  a->layer.rotary_interleaved = (int)interleaved;
  a->do_rotary = (int)rotary;
  a->threads = (int)threads;
  *kernel = a;
  return NULL;
}

// PagedAttention8 is the same with caches of 8 bits.
dm_status dm_paged8_new(const void *info, void **kernel) {
  dm_status s = dm_paged_new(info, kernel);
  if (s == NULL) ((attention *)*kernel)->narrow = 1;
  return s;
}

// Inputs and outputs of PagedAttention.
enum {
  QUERY, KEY, VALUE, KEY_CACHE, VALUE_CACHE, CUMULATIVE, PAST, TABLE, COS, SIN,
  SLOTS, SINK, Q_NORM, K_NORM, K_SCALE, V_SCALE, METADATA, COPIES,
  LENGTHS, BIAS, ATTENTION_INPUTS,
};

// attend_caches points the pass at the caches.
static dm_status attend_caches(dm_attention *a, const dm_tensor *keys, const dm_tensor *values) {
  if (keys->rank != 4 || values->rank != 4 || memcmp(keys->dims, values->dims, 4 * sizeof(int64_t)) != 0)
    return dm_op_fail(DM_INVALID, "the caches must be [blocks, block size, KV heads, head size], both alike");
  if (keys->dims[2] != a->kv_heads) return dm_op_fail(DM_INVALID, "the caches have another number of KV heads");
  a->blocks = (int)keys->dims[0];
  a->block_size = (int)keys->dims[1];
  a->head_size = (int)keys->dims[3];
  a->key_cache = keys->data;
  a->value_cache = values->data;
  return NULL;
}

// attend_sequences points it at where each sequence's rows begin, and its blocks.
static dm_status attend_sequences(dm_attention *a, const dm_tensor *cumulative, const dm_tensor *table) {
  if (cumulative->rank != 1 || cumulative->dims[0] < 1 || table->rank != 2 || table->dims[0] != cumulative->dims[0] - 1)
    return dm_op_fail(DM_INVALID, "cumulative_sequence_length and block_table are for different numbers of sequences");
  a->sequences = (int)table->dims[0];
  a->cumulative = cumulative->data;
  a->block_table = table->data;
  a->max_blocks = (int)table->dims[1];
  return NULL;
}

// attend_inputs points it at the lengths of the sequences' inputs, if they have any.
static dm_status attend_inputs(dm_attention *a, const dm_tensor *lengths) {
  if (lengths->data != NULL && (lengths->rank != 1 || lengths->dims[0] != a->sequences))
    return dm_op_fail(DM_INVALID, "input_lengths are for another number of sequences");
  a->inputs = lengths->data;
  return NULL;
}

// attend_bias points it at what is added to scores, if anything is.
static dm_status attend_bias(dm_attention *a, const dm_tensor *bias) {
  if (bias->data == NULL) return NULL;
  if (bias->rank != 2 || bias->dims[0] != a->heads)
    return dm_op_fail(DM_INVALID, "what is added to scores must be [heads, distances]");
  a->bias = bias->data;
  a->distances = (int)bias->dims[1];
  return NULL;
}

// attend computes the pass, after it was checked.
static dm_status attend(const dm_attention *a, void *context, int count) {
  const dm_kernels *k = dm_op_kernels;
  const char *wrong = k->attention_refuses(a);
  if (wrong != NULL) return dm_op_fail(DM_INVALID, wrong);
  dm_op_threads t = {.context = context};
  const dm_parallel parallel = dm_op_parallel(&t, count);
  void *scratch = dm_op_scratch(k->attention_scratch(a, count));
  if (scratch == NULL) return dm_op_fail(DM_FAIL, "out of memory");
  k->attention_run(a, scratch, &parallel);
  dm_op_give(scratch);
  return t.failed;
}

// attend_rows points the pass at its rows of q, k and v, which are one packed
// matrix where key and value are missing, and at the caches.
static dm_status attend_rows(dm_attention *a, const dm_tensor *in, int64_t *width) {
  if (in[SLOTS].data != NULL || in[SINK].data != NULL)
    return dm_op_fail(DM_INVALID, "slot_mapping and head_sink are not supported");
  dm_status s = attend_caches(a, &in[KEY_CACHE], &in[VALUE_CACHE]);
  if (s != NULL) return s;
  const int64_t q = (int64_t)a->heads * a->head_size, kv = (int64_t)a->kv_heads * a->head_size;
  *width = q;
  const dm_tensor *query = &in[QUERY], *key = &in[KEY], *value = &in[VALUE];
  const int packed = key->data == NULL;
  if (query->rank == 0 || query->dims[query->rank - 1] != (packed ? q + 2 * kv : q))
    return dm_op_fail(DM_INVALID, "a row of query has another length");
  a->query = query->data;
  a->query_stride = (size_t)query->dims[query->rank - 1];
  if (packed) {
    a->key = a->query + q;
    a->value = a->key + kv;
    a->key_stride = a->value_stride = a->query_stride;
    return NULL;
  }
  if (value->data == NULL || dm_op_rows(key) != dm_op_rows(query) || dm_op_rows(value) != dm_op_rows(query) ||
      key->dims[key->rank - 1] != kv || value->dims[value->rank - 1] != kv)
    return dm_op_fail(DM_INVALID, "key and value must have a row of all KV heads for every row of query");
  a->key = key->data;
  a->value = value->data;
  a->key_stride = a->value_stride = (size_t)kv;
  return NULL;
}

// attend_scales points it at the scales of caches of 8 bits.
static dm_status attend_scales(dm_attention *a, const dm_tensor *in, int narrow) {
  for (size_t i = K_SCALE; i <= V_SCALE; i++) {
    const dm_tensor *t = &in[i];
    if ((t->data != NULL) != narrow) return dm_op_fail(DM_INVALID, "caches of 8 bits have scales, and no others do");
    if (!narrow) continue;
    if (t->rank != 3 || t->dims[0] != a->kv_heads || t->dims[1] != 1 || t->dims[2] != a->head_size)
      return dm_op_fail(DM_INVALID, "the scales of the cache must be [KV heads, 1, head size]");
  }
  a->k_scale = in[K_SCALE].data;
  a->v_scale = in[V_SCALE].data;
  return NULL;
}

// attend_norms points it at the weights of the norms of q and k, if it has any.
static dm_status attend_norms(dm_attention *a, const dm_tensor *in) {
  for (size_t i = Q_NORM; i <= K_NORM; i++)
    if (in[i].data != NULL && (in[i].rank != 1 || in[i].dims[0] != a->head_size))
      return dm_op_fail(DM_INVALID, "the weights of a norm of q or k are not of a head's size");
  a->q_norm = in[Q_NORM].data;
  a->k_norm = in[K_NORM].data;
  return NULL;
}

// attend_lengths points it at the sequences' lengths, blocks and rotary tables.
static dm_status attend_lengths(dm_attention *a, const dm_tensor *in, int do_rotary) {
  dm_status s = attend_sequences(a, &in[CUMULATIVE], &in[TABLE]);
  if (s != NULL) return s;
  if (in[PAST].rank != 1 || in[PAST].dims[0] != a->sequences)
    return dm_op_fail(DM_INVALID, "past_seqlens and block_table are for different numbers of sequences");
  a->past = in[PAST].data;
  const dm_tensor *copies = &in[COPIES];
  if (copies->data != NULL) {
    if (copies->rank != 2 || copies->dims[1] != 2) return dm_op_fail(DM_INVALID, "copies must be pairs of slots");
    a->copies = copies->data;
    a->copied = (int)copies->dims[0];
  }
  if (!do_rotary) return NULL;
  const dm_tensor *cosines = &in[COS], *sines = &in[SIN];
  if (cosines->rank != 2 || sines->rank != 2 || memcmp(cosines->dims, sines->dims, 2 * sizeof(int64_t)) != 0)
    return dm_op_fail(DM_INVALID, "cos_cache and sin_cache must be [positions, rotary size / 2], both alike");
  a->cos = cosines->data;
  a->sin = sines->data;
  a->positions = (int)cosines->dims[0];
  a->rotary_dim = 2 * (int)cosines->dims[1];
  return NULL;
}

// attend_metadata sees that the bounds are true: kernels elsewhere rely on them.
static dm_status attend_metadata(const dm_attention *a, const dm_tensor *metadata) {
  if (metadata->data == NULL) return NULL;
  if (metadata->rank != 1 || metadata->dims[0] != 3) return dm_op_fail(DM_INVALID, "attention_metadata must be [3]");
  const int32_t *bounds = metadata->data;
  int32_t longest = 0;
  for (int i = 0; i < a->sequences; i++) {
    const int32_t fed = a->cumulative[i + 1] - a->cumulative[i], length = a->past[i] + fed;
    if (length > longest) longest = length;
    if (fed > bounds[0] || length > bounds[1])
      return dm_op_fail(DM_INVALID, "attention_metadata promises shorter sequences than there are");
  }
  if (longest < bounds[2]) return dm_op_fail(DM_INVALID, "attention_metadata promises a longer sequence than there is");
  return NULL;
}

dm_status dm_paged_compute(void *kernel, void *context) {
  const attention *op = kernel;
  dm_attention a = op->layer;
  dm_tensor in[ATTENTION_INPUTS];
  dm_status s = NULL;
  for (size_t i = 0; s == NULL && i < ATTENTION_INPUTS; i++) s = dm_op_input(context, i, &in[i]);
  int64_t width = 0;
  if (s == NULL) s = attend_rows(&a, in, &width);
  if (s == NULL) s = attend_scales(&a, in, op->narrow);
  if (s == NULL) s = attend_norms(&a, in);
  if (s == NULL) s = attend_lengths(&a, in, op->do_rotary);
  if (s == NULL) s = attend_inputs(&a, &in[LENGTHS]);
  if (s == NULL) s = attend_bias(&a, &in[BIAS]);
  for (size_t i = 0; s == NULL && i < 2; i++) {
    const dm_tensor *cache = &in[KEY_CACHE + i];
    void *updated = NULL;
    s = dm_op_output(context, 1 + i, cache->dims, 4, &updated);
    if (s == NULL && updated != cache->data)
      s = dm_op_fail(DM_INVALID, "the caches must be bound as inputs and outputs in one memory");
  }
  if (s != NULL) return s;
  dm_tensor *query = &in[QUERY];
  const size_t tokens = dm_op_rows(query);
  query->dims[query->rank - 1] = width;
  if ((s = dm_op_output(context, 0, query->dims, query->rank, (void **)&a.output)) != NULL || tokens == 0) return s;
  a.output_stride = (size_t)width;
  if ((size_t)a.cumulative[a.sequences] != tokens)
    return dm_op_fail(DM_INVALID, "cumulative_sequence_length does not end with the number of tokens");
  if ((s = attend_metadata(&a, &in[METADATA])) != NULL) return s;
  return attend(&a, context, op->threads);
}

// CrossAttention, to what the first places of the cache hold.
dm_status dm_cross_new(const void *info, void **kernel) {
  dm_status s = dm_paged_new(info, kernel);
  if (s == NULL) ((attention *)*kernel)->layer.cross = 1;
  return s;
}

dm_status dm_cross_compute(void *kernel, void *context) {
  enum { Q, KEYS, VALUES, BEGINS, INPUTS, BLOCKS, COUNT };
  const attention *op = kernel;
  dm_attention a = op->layer;
  dm_tensor in[COUNT];
  dm_status s = NULL;
  for (size_t i = 0; s == NULL && i < COUNT; i++) s = dm_op_input(context, i, &in[i]);
  if (s == NULL) s = attend_caches(&a, &in[KEYS], &in[VALUES]);
  if (s == NULL) s = attend_sequences(&a, &in[BEGINS], &in[BLOCKS]);
  if (s == NULL) s = attend_inputs(&a, &in[INPUTS]);
  if (s != NULL) return s;
  const dm_tensor *query = &in[Q];
  const int64_t width = (int64_t)a.heads * a.head_size;
  if (query->rank == 0 || query->dims[query->rank - 1] != width || dm_op_rows(query) != (size_t)a.cumulative[a.sequences])
    return dm_op_fail(DM_INVALID, "a row of query has another length, or there are more or fewer than cumulative_sequence_length says");
  if ((s = dm_op_output(context, 0, query->dims, query->rank, (void **)&a.output)) != NULL || dm_op_rows(query) == 0) return s;
  a.query = query->data;
  a.query_stride = a.output_stride = (size_t)width;
  return attend(&a, context, op->threads);
}
