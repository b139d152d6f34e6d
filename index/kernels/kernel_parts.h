/*
 * What the files of kernels share among themselves: where dispatch finds each family's kernels, and the slow paths.
 * No other folder includes this.
 *
 * Threads: pure functions and constants.
 */
#ifndef TURB_INDEX_KERNELS_KERNEL_PARTS_H
#define TURB_INDEX_KERNELS_KERNEL_PARTS_H

#include "index/kernels/kernels.h"

/* Specialises a generic body: its metric, type and counts are constants wherever it is called. */
#define KERNEL_INLINE static inline __attribute__((always_inline))
/* Before a loop over registers, which must go away even where the optimiser would rather keep it; and before one that must stay. */
#if defined(__clang__)
#define KERNEL_UNROLL _Pragma("clang loop unroll(full)")
#define KERNEL_ROLLED _Pragma("clang loop unroll(disable)")
#else
#define KERNEL_UNROLL _Pragma("GCC unroll 16")
#define KERNEL_ROLLED _Pragma("GCC unroll 1")
#endif

/* Sums of squares in f32 between these are trusted by COSINE: terms that underflow weigh less than 2^-30 of it. */
#define KERNEL_NORM_MIN 0x1p-100f
#define KERNEL_NORM_MAX 0x1.fffffep127f

/* The kernel of a pair in a family's table, or NULL. */
static inline const struct kernel *kernel_find_in(const struct kernel *kernels, size_t count, turb_metric metric, turb_type type) {
  for (size_t i = 0; i < count; i++) {
    if (kernels[i].metric == metric && kernels[i].type == type)
      return &kernels[i];
  }
  return NULL;
}

/* strip_of_rows by the file's block_of_rows, where taking one row after the other gains nothing. */
#define KERNEL_STRIP_BY_BLOCK                                                                                                              \
  KERNEL_INLINE void strip_of_rows(turb_metric metric, turb_type type, const struct kernel_query *query, const void *first, size_t stride, \
                                   float *distances) {                                                                                     \
    const void *rows[BLOCK_ROWS];                                                                                                          \
    KERNEL_UNROLL                                                                                                                          \
    for (size_t j = 0; j < BLOCK_ROWS; j++)                                                                                                \
      rows[j] = (const char *)first + j * stride;                                                                                          \
    block_of_rows(metric, type, query, rows, distances);                                                                                   \
  }

/*
 * The four shapes of one pair of metric and type, made from a file's generic bodies one_pair, block_of_rows, strip_of_rows and
 * tile_of_pairs, and the table entry that names them; BLOCK_ROWS, TILE_QUERIES and TILE_ROWS are the file's too.
 */
#define KERNEL_SHAPES(id, metric, type)                                                                                                    \
  static float id##_one(const struct kernel_query *query, const void *row) {                                                               \
    return one_pair(metric, type, query, row);                                                                                             \
  }                                                                                                                                        \
  static void id##_block(const struct kernel_query *query, const void *const *rows, float *distances) {                                    \
    block_of_rows(metric, type, query, rows, distances);                                                                                   \
  }                                                                                                                                        \
  static void id##_strip(const struct kernel_query *query, const void *rows, size_t stride, float *distances) {                            \
    strip_of_rows(metric, type, query, rows, stride, distances);                                                                           \
  }                                                                                                                                        \
  static void id##_pairs(const struct kernel_query *const *queries, const void *const *rows, const double *norms, float *distances,        \
                         size_t stride) {                                                                                                  \
    tile_of_pairs(metric, type, queries, rows, norms, distances, stride);                                                                  \
  }

#define KERNEL_ENTRY(id, text, metric_, type_, isa_, prepare, norm, tile_needs_norms)                                                      \
  {                                                                                                                                        \
    .name = text, .metric = metric_, .type = type_, .isa = isa_, .one = id##_one, .preparation = prepare, .block_rows = BLOCK_ROWS,        \
    .tile_queries = TILE_QUERIES, .tile_rows = TILE_ROWS, .tile_norms = tile_needs_norms, .block = id##_block, .strip = id##_strip,        \
    .pairs = id##_pairs, .norm_squared = norm                                                                                              \
  }

/* Each returns NULL for what it does not have. */
const struct kernel *kernel_find_portable(turb_metric metric, turb_type type);
const struct kernel *kernel_find_float_avx2(turb_metric metric, turb_type type);
const struct kernel *kernel_find_integer_avx2(turb_metric metric, turb_type type);
const struct kernel *kernel_find_bits_avx2(turb_metric metric, turb_type type);
const struct kernel *kernel_find_float_avx512(turb_metric metric, turb_type type);
const struct kernel *kernel_find_integer_avx512(turb_metric metric, turb_type type);
const struct kernel *kernel_find_bits_avx512(turb_metric metric, turb_type type);
const struct kernel *kernel_find_neon(turb_metric metric, turb_type type);

/* INNER_PRODUCT or COSINE once more in double, from the stored components. */
float kernel_distance_in_double(const struct kernel_query *query, const void *row);

/* 1 - dot / sqrt(product of squared norms) within [0, 2]; 1 where the product is 0. */
float kernel_cosine_distance(double dot, double norm_product);

/* Bits that differ in the last, partly used byte of a bit row; 0 where every byte is used whole. */
static inline uint32_t kernel_tail_bits(const struct kernel_query *query, const void *row) {
  size_t used = query->dimension % 8;
  if (used == 0)
    return 0;
  size_t last = query->dimension / 8;
  unsigned differing = ((const unsigned char *)query->prepared)[last] ^ ((const unsigned char *)row)[last];
  return (uint32_t)__builtin_popcount(differing & ((1u << used) - 1));
}

#endif
