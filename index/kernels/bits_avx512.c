/*
 * AVX-512 VPOPCNTDQ kernel of packed bits: 512 of them a step; a tail is loaded under a mask, the last, partly used byte
 * counted apart. Counts are exact.
 *
 * Threads: pure functions.
 */
#include "index/kernels/kernel_parts.h"

#if defined(__AVX512F__)
#include "index/kernels/x86_parts.h"

enum { BLOCK_ROWS = 16, TILE_QUERIES = 4, TILE_ROWS = 4, STEP = 64, MAX_PAIRS = 16 };

KERNEL_INLINE __m512i load(const void *from, size_t index, size_t count) {
  const char *at = (const char *)from + index;
  return count ? _mm512_maskz_loadu_epi8((1ull << count) - 1, at) : _mm512_loadu_si512(at);
}

/* count 0: all 64 bytes. */
KERNEL_INLINE void step(const void *const *prepared, int queries, const void *const *rows, int row_count, size_t index, size_t count,
                        __m512i *sums) {
  __m512i q[TILE_QUERIES];
  KERNEL_UNROLL
  for (int i = 0; i < queries; i++)
    q[i] = load(prepared[i], index, count);
  KERNEL_UNROLL
  for (int j = 0; j < row_count; j++) {
    __m512i r = load(rows[j], index, count);
    KERNEL_UNROLL
    for (int i = 0; i < queries; i++) {
      __m512i differing = _mm512_popcnt_epi64(_mm512_xor_si512(q[i], r));
      sums[i * row_count + j] = _mm512_add_epi64(sums[i * row_count + j], differing);
    }
  }
}

KERNEL_INLINE void sum_pairs(size_t bytes, const void *const *prepared, int queries, const void *const *rows, int row_count,
                             __m512i *sums) {
  KERNEL_UNROLL
  for (int i = 0; i < queries * row_count; i++)
    sums[i] = _mm512_setzero_si512();
  size_t i = 0;
  for (; i + STEP <= bytes; i += STEP)
    step(prepared, queries, rows, row_count, i, 0, sums);
  if (i < bytes)
    step(prepared, queries, rows, row_count, i, bytes - i, sums);
}

/* Counts fit the low halves of the 64-bit lanes. */
KERNEL_INLINE __m128i add_lanes_4(const __m512i *sums) {
  __m512i ab = _mm512_add_epi32(_mm512_unpacklo_epi64(sums[0], sums[1]), _mm512_unpackhi_epi64(sums[0], sums[1]));
  __m512i cd = _mm512_add_epi32(_mm512_unpacklo_epi64(sums[2], sums[3]), _mm512_unpackhi_epi64(sums[2], sums[3]));
  __m512i all = _mm512_or_si512(ab, _mm512_slli_epi64(cd, 32)); /* 32-bit lanes a, c, b, d */
  __m256i half = _mm256_add_epi32(_mm512_castsi512_si256(all), _mm512_extracti64x4_epi64(all, 1));
  __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
  return _mm_shuffle_epi32(sum, 0xd8);
}

static float hamming_one(const struct kernel_query *query, const void *row) {
  __m512i sum;
  sum_pairs(query->dimension / 8, &query->prepared, 1, &row, 1, &sum);
  uint32_t differing = (uint32_t)_mm512_reduce_add_epi64(sum);
  return (float)(differing + kernel_tail_bits(query, row));
}

/* The bits of last bytes, and the conversion. */
KERNEL_INLINE void finish(const struct kernel_query *query, const void *const *rows, const __m512i *sums, float *distances) {
  __m128i differing = add_lanes_4(sums);
  if (query->dimension % 8 != 0) {
    __m128i tails = _mm_setr_epi32((int)kernel_tail_bits(query, rows[0]), (int)kernel_tail_bits(query, rows[1]),
                                   (int)kernel_tail_bits(query, rows[2]), (int)kernel_tail_bits(query, rows[3]));
    differing = _mm_add_epi32(differing, tails);
  }
  _mm_storeu_ps(distances, _mm_cvtepi32_ps(differing));
}

static void hamming_block(const struct kernel_query *query, const void *const *rows, float *distances) {
  __m512i sums[MAX_PAIRS];
  sum_pairs(query->dimension / 8, &query->prepared, 1, rows, BLOCK_ROWS, sums);
  KERNEL_UNROLL
  for (int j = 0; j < BLOCK_ROWS; j += 4)
    finish(query, rows + j, sums + j, distances + j);
}

static void hamming_pairs(const struct kernel_query *const *queries, const void *const *rows, const double *norms, float *distances,
                          size_t stride) {
  const void *prepared[TILE_QUERIES];
  __m512i sums[MAX_PAIRS];
  (void)norms;
  KERNEL_UNROLL
  for (int i = 0; i < TILE_QUERIES; i++)
    prepared[i] = queries[i]->prepared;
  sum_pairs(queries[0]->dimension / 8, prepared, TILE_QUERIES, rows, TILE_ROWS, sums);
  KERNEL_UNROLL
  for (int i = 0; i < TILE_QUERIES; i++)
    finish(queries[i], rows, sums + TILE_ROWS * i, distances + (size_t)i * stride);
}

static const struct kernel hamming = {.name = "hamming bits avx512",
                                      .metric = TURB_HAMMING,
                                      .type = TURB_BITS,
                                      .isa = KERNEL_AVX512,
                                      .one = hamming_one,
                                      .preparation = KERNEL_BORROWED,
                                      .block_rows = BLOCK_ROWS,
                                      .tile_queries = TILE_QUERIES,
                                      .tile_rows = TILE_ROWS,
                                      .block = hamming_block,
                                      .pairs = hamming_pairs};

const struct kernel *kernel_find_bits_avx512(turb_metric metric, turb_type type) {
  return metric == TURB_HAMMING && type == TURB_BITS ? &hamming : NULL;
}
#endif
