// Attention over a paged KV cache for a ragged batch, computed in float32: the inputs and
// the meaning of com.microsoft.PagedAttention, for which ONNX Runtime has no CPU
// kernel. Each of several sequences brings any number of new tokens, packed into
// rows without padding. Their keys (normalized and rotated, if asked for) and
// values go into the cache through the sequence's block table; then each token
// attends to what its sequence has up to that token.
//
// A row's result depends on its own query, its position and its own sequence's
// cache, to the bit. Positions are taken in parts that begin at multiples of
// DM_ATTENTION_PART, each with a softmax of its own, and parts are merged in their
// order; so it does not matter how a prompt was cut, what else is in the pass,
// which blocks hold the cache, or how many threads there are. Positions outside
// of a row's view are never read for it, whatever their blocks hold.
#ifndef DRAFTMILL_KERNELS_ATTENTION_H
#define DRAFTMILL_KERNELS_ATTENTION_H

#include "kernels.h"

#define DM_ATTENTION_PART 256

typedef struct dm_attention {
  // The layer. kv_heads divides heads: query head h uses KV head
  // h / (heads / kv_heads).
  int heads, kv_heads, head_size;
  float scale;   // of q . k; 0 stands for 1 / sqrt(head_size)
  float softcap; // c: scores become c tanh(score / c); 0 for none
  int window;    // how many positions a token sees, itself included; 0 for all
  // Rotary embedding of q and k: the first rotary_dim channels of each head, with
  // row `position` of cos and sin, [positions, rotary_dim / 2]. Channel i turns
  // with i + rotary_dim / 2, or 2i with 2i + 1 where interleaved. 0 for none.
  int rotary_dim, rotary_interleaved;
  const float *cos, *sin;
  int positions;
  // Weights [head_size] of an RMS norm of each head of q and k before the rotation,
  // or NULL.
  const float *q_norm, *k_norm;
  float norm_epsilon;
  const float *sink; // [heads]: a score more in the softmax's denominator, or NULL
  // Added to scores before the cap, by head and by how far back a position is,
  // [heads, distances], or NULL.
  const float *bias;
  int distances;
  // Attention to the first inputs[s] positions of a sequence, all of them, in place of
  // what it has behind them. Nothing is written: past, key and value are not looked at,
  // and there are no slots, copies, window, rotation, sink and bias.
  int cross;

  // The pass: tokens [cumulative[s], cumulative[s + 1]) are new in sequence s and
  // stand at positions past[s] and on. Position p of sequence s is slot
  // p % block_size of block block_table[s * max_blocks + p / block_size]. Blocks
  // that no row sees (behind the end, before every window) may be any number.
  int sequences;
  const int32_t *cumulative;  // [sequences + 1], from 0
  const int32_t *past;        // [sequences]
  const int32_t *block_table; // [sequences, max_blocks]
  int max_blocks;
  // [sequences] or NULL: how many positions at the begin of a sequence hold keys and
  // values of something else (an encoder's states), which its tokens do not see.
  const int32_t *inputs;
  // [tokens] or NULL: where a token's key and value are written (block * block_size
  // + slot) in place of the slot of its position; -1: they are there already.
  const int32_t *slots;
  // What sequences begin with that others of the pass bring: after all new keys and
  // values are written, and before any is read, slot copies[2i] is copied to slot
  // copies[2i + 1], in this order. Slots are numbered as above.
  const int32_t *copies; // [copied, 2]
  int copied;

  // Rows of tokens, a stride in floats from row to row: [heads * head_size] and
  // [kv_heads * head_size]. Packed rows of q, k and v are three pointers into one
  // matrix.
  const float *query, *key, *value;
  size_t query_stride, key_stride, value_stride;
  // The caches, [blocks, block_size, kv_heads, head_size] each: read and written. They
  // hold floats, or where there are scales integers of 8 bits: a channel is its integer
  // times its scale. What lies behind the range of the integers becomes their end.
  void *key_cache, *value_cache;
  const float *k_scale, *v_scale; // [kv_heads, head_size], or both NULL
  int blocks, block_size;
  float *output; // [heads * head_size] a row
  size_t output_stride;
} dm_attention;

// NULL where the description holds together, else what does not (a constant
// string): sizes, lengths, block numbers and slots within the cache, positions
// within cos and sin. dm_attention_run trusts it: check what others wrote.
const char *dm_attention_refuses(const dm_attention *a);

// Bytes of scratch memory that this pass needs with so many threads, at most. They
// need not be aligned and are free again when the pass is computed.
size_t dm_attention_scratch(const dm_attention *a, int threads);

// Computes the pass. threads may be NULL. No two sequences may write one slot.
void dm_attention_run(const dm_attention *a, void *scratch, const dm_parallel *threads);

#endif
