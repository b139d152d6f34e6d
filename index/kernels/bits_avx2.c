/*
 * AVX2 kernel of packed bits: nibbles are looked up in a register and bytes added up by absolute differences from zero;
 * a tail goes through a buffer of zeros, the last, partly used byte is counted apart. Counts are exact.
 *
 * Threads: pure functions.
 */
#include "index/kernels/kernel_parts.h"

#if defined(__AVX2__)
#include "index/kernels/x86_parts.h"

enum { BLOCK_ROWS = 4, STEP = 32 };

KERNEL_INLINE __m256i load(const void *from, size_t index) {
  return _mm256_loadu_si256((const __m256i *)(const void *)((const char *)from + index));
}

/* Four 64-bit counts. */
KERNEL_INLINE __m256i add_bits(__m256i sum, __m256i bits) {
  const __m256i counts = _mm256_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4, 0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4);
  const __m256i low_nibbles = _mm256_set1_epi8(15);
  __m256i low = _mm256_and_si256(bits, low_nibbles), high = _mm256_and_si256(_mm256_srli_epi16(bits, 4), low_nibbles);
  __m256i bytes = _mm256_add_epi8(_mm256_shuffle_epi8(counts, low), _mm256_shuffle_epi8(counts, high));
  return _mm256_add_epi64(sum, _mm256_sad_epu8(bytes, _mm256_setzero_si256()));
}

KERNEL_INLINE void step(const void *query, const void *const *rows, int row_count, size_t index, __m256i *sums) {
  __m256i q = load(query, index);
  KERNEL_UNROLL
  for (int j = 0; j < row_count; j++)
    sums[j] = add_bits(sums[j], _mm256_xor_si256(q, load(rows[j], index)));
}

KERNEL_INLINE void distances_of(const struct kernel_query *query, const void *const *rows, int row_count, float *distances) {
  __m256i sums[BLOCK_ROWS];
  size_t bytes = query->dimension / 8, i = 0;
  KERNEL_UNROLL
  for (int j = 0; j < row_count; j++)
    sums[j] = _mm256_setzero_si256();
  for (; i + STEP <= bytes; i += STEP)
    step(query->prepared, rows, row_count, i, sums);
  if (i < bytes) {
    unsigned char query_tail[STEP] = {0}, row_tails[BLOCK_ROWS][STEP] = {{0}};
    const void *last_rows[BLOCK_ROWS];
    copy_tail(query_tail, (const unsigned char *)query->prepared + i, bytes - i);
    KERNEL_UNROLL
    for (int j = 0; j < row_count; j++) {
      copy_tail(row_tails[j], (const unsigned char *)rows[j] + i, bytes - i);
      last_rows[j] = row_tails[j];
    }
    step(query_tail, last_rows, row_count, 0, sums);
  }
  KERNEL_UNROLL
  for (int j = 0; j < row_count; j++) {
    __m128i half = _mm_add_epi64(_mm256_castsi256_si128(sums[j]), _mm256_extracti128_si256(sums[j], 1));
    uint32_t differing = (uint32_t)_mm_extract_epi64(half, 0) + (uint32_t)_mm_extract_epi64(half, 1);
    distances[j] = (float)(differing + kernel_tail_bits(query, rows[j]));
  }
}

static float hamming_one(const struct kernel_query *query, const void *row) {
  float distance;
  distances_of(query, &row, 1, &distance);
  return distance;
}

static void hamming_block(const struct kernel_query *query, const void *const *rows, float *distances) {
  distances_of(query, rows, BLOCK_ROWS, distances);
}

/* No tile: counting costs more than loading. */
static const struct kernel hamming = {.name = "hamming bits avx2",
                                      .metric = TURB_HAMMING,
                                      .type = TURB_BITS,
                                      .isa = KERNEL_AVX2,
                                      .one = hamming_one,
                                      .preparation = KERNEL_BORROWED,
                                      .block_rows = BLOCK_ROWS,
                                      .block = hamming_block};

const struct kernel *kernel_find_bits_avx2(turb_metric metric, turb_type type) {
  return metric == TURB_HAMMING && type == TURB_BITS ? &hamming : NULL;
}
#endif
