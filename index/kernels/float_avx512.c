/*
 * AVX-512 kernels of f32, f16 and bf16.
 *
 * A pair is summed 32 components at a time in two registers, the first 16 and the last 16 of them (bf16: the even and the
 * odd ones, which is how a register of bf16 comes apart; the query is stored to match). At the end the two are added, then
 * 128-bit quarters 0+2, 1+3, their sums, then neighbours, then pairs of neighbours. A tail is loaded under a mask, so that
 * missing components add zeros.
 *
 * Threads: pure functions.
 */
#include "index/kernels/kernel_parts.h"

#if defined(__AVX512F__)
#include "index/kernels/x86_parts.h"

enum { BLOCK_ROWS = 4, TILE_QUERIES = 4, TILE_ROWS = 3, STEP = 32, MAX_ROWS = 4, MAX_PAIRS = 12 };

/* ---- loads: half 0 or 1 of the 32 components from `index` on ---- */

KERNEL_INLINE __m512 bf16_half(__m512i words, int half) {
  if (half == 0)
    return _mm512_castsi512_ps(_mm512_slli_epi32(words, 16));
  return _mm512_castsi512_ps(_mm512_and_si512(words, _mm512_set1_epi32((int)0xffff0000)));
}

KERNEL_INLINE __m512 load_row(turb_type type, const void *row, size_t index, int half) {
  const char *at = row;
  if (type == TURB_F32)
    return _mm512_loadu_ps(at + 4 * index + 64 * half);
  if (type == TURB_F16)
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(at + 2 * index + 32 * half)));
  return bf16_half(_mm512_loadu_si512(at + 2 * index), half);
}

/* `count` components are left, 1 to 31. */
KERNEL_INLINE __m512 load_row_tail(turb_type type, const void *row, size_t index, int half, size_t count) {
  const char *at = row;
  uint32_t present = (1u << count) - 1;
  __mmask16 mask = (__mmask16)(half ? present >> 16 : present);
  if (type == TURB_F32)
    return _mm512_maskz_loadu_ps(mask, at + 4 * index + 64 * half);
  if (type == TURB_F16)
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, at + 2 * index + 32 * half));
  return bf16_half(_mm512_maskz_loadu_epi16(present, at + 2 * index), half);
}

/* Prepared queries are padded with zeros, borrowed ones (f32) are not. */
KERNEL_INLINE __m512 load_query_tail(turb_type type, const void *prepared, size_t index, int half, size_t count) {
  if (type == TURB_F32)
    return load_row_tail(TURB_F32, prepared, index, half, count);
  return load_row(TURB_F32, prepared, index, half);
}

/* ---- sums ---- */

KERNEL_INLINE __m512 add_term(turb_metric metric, __m512 sum, __m512 q, __m512 r) {
  if (metric == TURB_L2) {
    __m512 difference = _mm512_sub_ps(q, r);
    return _mm512_fmadd_ps(difference, difference, sum);
  }
  if (metric == TURB_MANHATTAN)
    return _mm512_add_ps(sum, _mm512_abs_ps(_mm512_sub_ps(q, r)));
  return _mm512_fmadd_ps(q, r, sum);
}

/* One step for all pairs: sums[query][row], and the rows' squares where wanted. count 0: all 32 components. */
KERNEL_INLINE void step(turb_metric metric, turb_type type, const void *const *prepared, int queries, const void *const *rows,
                        int row_count, size_t index, size_t count, int half, __m512 *sums, __m512 *squares) {
  __m512 r[MAX_ROWS];
  KERNEL_UNROLL
  for (int j = 0; j < row_count; j++) {
    r[j] = count ? load_row_tail(type, rows[j], index, half, count) : load_row(type, rows[j], index, half);
    if (squares)
      squares[j] = _mm512_fmadd_ps(r[j], r[j], squares[j]);
  }
  KERNEL_UNROLL
  for (int i = 0; i < queries; i++) {
    __m512 q = count ? load_query_tail(type, prepared[i], index, half, count) : load_row(TURB_F32, prepared[i], index, half);
    KERNEL_KEEP(q);
    KERNEL_UNROLL
    for (int j = 0; j < row_count; j++)
      sums[i * row_count + j] = add_term(metric, sums[i * row_count + j], q, r[j]);
  }
}

/* sums[query * row_count + row] and, unless NULL, squares[row]. */
KERNEL_INLINE void sum_pairs(turb_metric metric, turb_type type, size_t dimension, const void *const *prepared, int queries,
                             const void *const *rows, int row_count, __m512 *sums, __m512 *squares) {
  __m512 sums_2[MAX_PAIRS], squares_2[MAX_ROWS];
  KERNEL_UNROLL
  for (int i = 0; i < queries * row_count; i++)
    sums[i] = sums_2[i] = _mm512_setzero_ps();
  if (squares) {
    KERNEL_UNROLL
    for (int j = 0; j < row_count; j++)
      squares[j] = squares_2[j] = _mm512_setzero_ps();
  }
  size_t i = 0;
  for (; i + STEP <= dimension; i += STEP) {
    step(metric, type, prepared, queries, rows, row_count, i, 0, 0, sums, squares);
    step(metric, type, prepared, queries, rows, row_count, i, 0, 1, sums_2, squares ? squares_2 : NULL);
  }
  if (i < dimension) {
    step(metric, type, prepared, queries, rows, row_count, i, dimension - i, 0, sums, squares);
    step(metric, type, prepared, queries, rows, row_count, i, dimension - i, 1, sums_2, squares ? squares_2 : NULL);
  }
  KERNEL_UNROLL
  for (int j = 0; j < queries * row_count; j++)
    sums[j] = _mm512_add_ps(sums[j], sums_2[j]);
  if (squares) {
    KERNEL_UNROLL
    for (int j = 0; j < row_count; j++)
      squares[j] = _mm512_add_ps(squares[j], squares_2[j]);
  }
}

/* The lanes of four registers added up, each as add_lanes does it. */
KERNEL_INLINE __m128 add_lanes_4(__m512 a, __m512 b, __m512 c, __m512 d) {
  __m512 ab = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
  __m512 cd = _mm512_add_ps(_mm512_shuffle_f32x4(c, d, 0x44), _mm512_shuffle_f32x4(c, d, 0xee));
  __m512 all = _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd));
  all = _mm512_add_ps(all, _mm512_permute_ps(all, 0xb1));
  all = _mm512_add_ps(all, _mm512_permute_ps(all, 0x4e));
  return _mm512_castps512_ps128(_mm512_permutexvar_ps(_mm512_set_epi32(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 12, 8, 4, 0), all));
}

KERNEL_INLINE __m128 add_lanes(__m512 a) {
  __m256 half = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
  __m128 sum = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  sum = _mm_add_ps(sum, _mm_permute_ps(sum, 0xb1));
  return _mm_add_ps(sum, _mm_permute_ps(sum, 0x4e));
}

/* ---- the four shapes ---- */

KERNEL_INLINE float one_pair(turb_metric metric, turb_type type, const struct kernel_query *query, const void *row) {
  float distances[4];
  __m512 sum, square;
  struct lanes lanes = {&query, &row, 0, 0};
  bool cosine = metric == TURB_COSINE;
  sum_pairs(metric, type, query->dimension, &query->prepared, 1, &row, 1, &sum, cosine ? &square : NULL);
  __m256d products = _mm256_setzero_pd();
  if (cosine)
    products = _mm256_mul_pd(_mm256_set1_pd(query->norm_squared), trusted_norms(add_lanes(square)));
  finish_floats(metric, &lanes, add_lanes(sum), products, distances);
  return distances[0];
}

/* The sums of four rows, and their squares where the metric is COSINE. */
KERNEL_INLINE void finish_rows(turb_metric metric, const struct kernel_query *query, const void *const *rows, const __m512 *s,
                               const __m512 *n, float *distances) {
  struct lanes lanes = {&query, rows, 0, 1};
  __m256d products = _mm256_setzero_pd();
  if (metric == TURB_COSINE) {
    __m256d norms = trusted_norms(add_lanes_4(n[0], n[1], n[2], n[3]));
    products = _mm256_mul_pd(_mm256_set1_pd(query->norm_squared), norms);
  }
  finish_floats(metric, &lanes, add_lanes_4(s[0], s[1], s[2], s[3]), products, distances);
}

KERNEL_INLINE void block_of_rows(turb_metric metric, turb_type type, const struct kernel_query *query, const void *const *rows,
                                 float *distances) {
  __m512 s[MAX_PAIRS], n[MAX_ROWS];
  sum_pairs(metric, type, query->dimension, &query->prepared, 1, rows, BLOCK_ROWS, s, metric == TURB_COSINE ? n : NULL);
  finish_rows(metric, query, rows, s, n, distances);
}

/* One row after the other, so that each load of the loop goes up line by line: the processor then fetches ahead better than a program can. */
KERNEL_INLINE void strip_of_rows(turb_metric metric, turb_type type, const struct kernel_query *query, const void *first, size_t stride,
                                 float *distances) {
  const void *rows[BLOCK_ROWS];
  __m512 s[BLOCK_ROWS], n[BLOCK_ROWS];
  KERNEL_ROLLED
  for (size_t j = 0; j < BLOCK_ROWS; j++) {
    const void *row = rows[j] = (const char *)first + j * stride;
    sum_pairs(metric, type, query->dimension, &query->prepared, 1, &row, 1, s + j, metric == TURB_COSINE ? n + j : NULL);
  }
  finish_rows(metric, query, rows, s, n, distances);
}

KERNEL_INLINE void tile_of_pairs(turb_metric metric, turb_type type, const struct kernel_query *const *queries, const void *const *rows,
                                 const double *norms, float *distances, size_t stride) {
  const void *prepared[TILE_QUERIES];
  __m512 s[MAX_PAIRS];
  KERNEL_UNROLL
  for (int i = 0; i < TILE_QUERIES; i++)
    prepared[i] = queries[i]->prepared;
  sum_pairs(metric, type, queries[0]->dimension, prepared, TILE_QUERIES, rows, TILE_ROWS, s, NULL);
  __m256d query_norms = _mm256_setzero_pd();
  if (metric == TURB_COSINE) {
    query_norms = _mm256_set_pd(queries[3]->norm_squared, queries[2]->norm_squared, queries[1]->norm_squared, queries[0]->norm_squared);
  }
  KERNEL_UNROLL
  for (int j = 0; j < TILE_ROWS; j++) {
    float column[TILE_QUERIES];
    struct lanes lanes = {queries, rows + j, 1, 0};
    __m256d products = _mm256_mul_pd(query_norms, _mm256_set1_pd(norms[j]));
    __m128 sums = add_lanes_4(s[j], s[TILE_ROWS + j], s[2 * TILE_ROWS + j], s[3 * TILE_ROWS + j]);
    finish_floats(metric, &lanes, sums, products, column);
    KERNEL_UNROLL
    for (int i = 0; i < TILE_QUERIES; i++)
      distances[(size_t)i * stride + (size_t)j] = column[i];
  }
}

/* As COSINE's block sums it; infinite where not to be trusted. */
KERNEL_INLINE double norm_of(turb_type type, const void *row, size_t dimension) {
  __m512 unused, square;
  sum_pairs(TURB_COSINE, type, dimension, NULL, 0, &row, 1, &unused, &square);
  return _mm256_cvtsd_f64(trusted_norms(add_lanes(square)));
}

/* ---- the kernels ---- */

static double f32_norm(const void *row, size_t dimension) {
  return norm_of(TURB_F32, row, dimension);
}
static double f16_norm(const void *row, size_t dimension) {
  return norm_of(TURB_F16, row, dimension);
}
static double bf16_norm(const void *row, size_t dimension) {
  return norm_of(TURB_BF16, row, dimension);
}

KERNEL_SHAPES(l2_f32, TURB_L2, TURB_F32)
KERNEL_SHAPES(l2_f16, TURB_L2, TURB_F16)
KERNEL_SHAPES(l2_bf16, TURB_L2, TURB_BF16)
KERNEL_SHAPES(ip_f32, TURB_INNER_PRODUCT, TURB_F32)
KERNEL_SHAPES(ip_f16, TURB_INNER_PRODUCT, TURB_F16)
KERNEL_SHAPES(ip_bf16, TURB_INNER_PRODUCT, TURB_BF16)
KERNEL_SHAPES(cosine_f32, TURB_COSINE, TURB_F32)
KERNEL_SHAPES(cosine_f16, TURB_COSINE, TURB_F16)
KERNEL_SHAPES(cosine_bf16, TURB_COSINE, TURB_BF16)
KERNEL_SHAPES(l1_f32, TURB_MANHATTAN, TURB_F32)
KERNEL_SHAPES(l1_f16, TURB_MANHATTAN, TURB_F16)
KERNEL_SHAPES(l1_bf16, TURB_MANHATTAN, TURB_BF16)

#define ENTRY(id, text, metric, type, prepare, norm, tile_norms)                                                                           \
  KERNEL_ENTRY(id, text " avx512", metric, type, KERNEL_AVX512, prepare, norm, tile_norms)

static const struct kernel kernels[] = {
    ENTRY(l2_f32, "l2 f32", TURB_L2, TURB_F32, KERNEL_BORROWED, f32_norm, false),
    ENTRY(l2_f16, "l2 f16", TURB_L2, TURB_F16, KERNEL_WIDENED, f16_norm, false),
    ENTRY(l2_bf16, "l2 bf16", TURB_L2, TURB_BF16, KERNEL_SPLIT32, bf16_norm, false),
    ENTRY(ip_f32, "inner product f32", TURB_INNER_PRODUCT, TURB_F32, KERNEL_BORROWED, f32_norm, false),
    ENTRY(ip_f16, "inner product f16", TURB_INNER_PRODUCT, TURB_F16, KERNEL_WIDENED, f16_norm, false),
    ENTRY(ip_bf16, "inner product bf16", TURB_INNER_PRODUCT, TURB_BF16, KERNEL_SPLIT32, bf16_norm, false),
    ENTRY(cosine_f32, "cosine f32", TURB_COSINE, TURB_F32, KERNEL_BORROWED, f32_norm, true),
    ENTRY(cosine_f16, "cosine f16", TURB_COSINE, TURB_F16, KERNEL_WIDENED, f16_norm, true),
    ENTRY(cosine_bf16, "cosine bf16", TURB_COSINE, TURB_BF16, KERNEL_SPLIT32, bf16_norm, true),
    ENTRY(l1_f32, "manhattan f32", TURB_MANHATTAN, TURB_F32, KERNEL_BORROWED, f32_norm, false),
    ENTRY(l1_f16, "manhattan f16", TURB_MANHATTAN, TURB_F16, KERNEL_WIDENED, f16_norm, false),
    ENTRY(l1_bf16, "manhattan bf16", TURB_MANHATTAN, TURB_BF16, KERNEL_SPLIT32, bf16_norm, false),
};

const struct kernel *kernel_find_float_avx512(turb_metric metric, turb_type type) {
  return kernel_find_in(kernels, sizeof kernels / sizeof *kernels, metric, type);
}
#endif
