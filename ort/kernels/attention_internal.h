// What attention.c asks of each level.
#ifndef DRAFTMILL_KERNELS_ATTENTION_INTERNAL_H
#define DRAFTMILL_KERNELS_ATTENTION_INTERNAL_H

#include "attention.h"

// Query rows that share a pass over the keys, at most.
#define DM_ATTENTION_ROWS 96

// The widest head.
#define DM_ATTENTION_WIDEST 512

// The head size in whole vectors.
static inline size_t dm_attention_width(const dm_attention *a) {
  return ((size_t)a->head_size + 15) / 16 * 16;
}

// Some query rows of one sequence and one KV head, and one part of the positions.
typedef struct dm_attention_rows {
  size_t count;
  const float *q; // [count, width], scaled, zeros behind the head size
  // What each row sees of this part: positions from to to - 1, counted from the
  // part's begin. Both grow with the row; a row that sees nothing has to <= from.
  const int *from, *to;
  // Row r is of token (row + r) / group of its sequence, which stands at position `own`
  // and on, counted from the part's begin, and of KV head kv_head.
  size_t row;
  int kv_head;
  int64_t own;
  // [DM_ATTENTION_PART]: where each position's key and value lie behind keys and values,
  // set between from[0] and to[count - 1].
  const size_t *at;
  const float *keys, *values; // the caches, or what was made of those of 8 bits
  float *scores; // [count, DM_ATTENTION_PART], to work in
  // What comes out for each row that sees something: the greatest score m, the sum
  // of e^(score - m), and the same sum over values, [count, width].
  float *most, *sum, *out;
} dm_attention_rows;

#endif
