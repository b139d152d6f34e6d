/*
 * AVX2 kernels of f32, f16 and bf16, with FMA and F16C.
 *
 * A pair is summed 16 components at a time in two registers, the first 8 and the last 8 of them (bf16: the even and the odd
 * ones; the query is stored to match). At the end the two are added, then the halves of 128 bits, then neighbours, then
 * pairs of neighbours. A tail goes through a buffer of zeros.
 *
 * Threads: pure functions.
 */
#include "index/kernels/kernel_parts.h"

#if defined(__AVX2__)
#include "index/kernels/x86_parts.h"

/* Sixteen registers: COSINE's block keeps twelve sums, the others eight, a tile twelve. */
enum { BLOCK_ROWS = 4, TILE_QUERIES = 2, TILE_ROWS = 3, STEP = 16, MAX_ROWS = 4, MAX_PAIRS = 6 };

/* ---- loads: half 0 or 1 of the 16 components from `index` on ---- */

KERNEL_INLINE __m256 load_half(turb_type type, const void *row, size_t index, int half) {
  const char *at = row;
  if (type == TURB_F32)
    return _mm256_loadu_ps((const float *)(const void *)(at + 4 * index + 32 * half));
  if (type == TURB_F16)
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(at + 2 * index + 16 * half)));
  __m256i words = _mm256_loadu_si256((const __m256i *)(const void *)(at + 2 * index));
  if (half == 0)
    return _mm256_castsi256_ps(_mm256_slli_epi32(words, 16));
  return _mm256_castsi256_ps(_mm256_and_si256(words, _mm256_set1_epi32((int)0xffff0000)));
}

/* The `count` components that are left, 1 to 15, followed by zeros. */
struct tail {
  _Alignas(32) unsigned char bytes[64];
};

KERNEL_INLINE const void *load_tail(turb_type type, const void *row, size_t index, size_t count, struct tail *tail) {
  size_t bytes = vector_component_bytes(type);
  memset(tail, 0, sizeof *tail);
  copy_tail(tail->bytes, (const unsigned char *)row + index * bytes, count * bytes);
  return tail->bytes;
}

/* ---- sums ---- */

KERNEL_INLINE __m256 add_term(turb_metric metric, __m256 sum, __m256 q, __m256 r) {
  if (metric == TURB_L2) {
    __m256 difference = _mm256_sub_ps(q, r);
    return _mm256_fmadd_ps(difference, difference, sum);
  }
  if (metric == TURB_MANHATTAN)
    return _mm256_add_ps(sum, _mm256_andnot_ps(_mm256_set1_ps(-0.0f), _mm256_sub_ps(q, r)));
  return _mm256_fmadd_ps(q, r, sum);
}

/* One step for all pairs: sums[query][row], and the rows' squares where wanted. */
KERNEL_INLINE void step(turb_metric metric, turb_type type, const void *const *prepared, int queries, const void *const *rows,
                        int row_count, size_t index, int half, __m256 *sums, __m256 *squares) {
  __m256 r[MAX_ROWS];
  KERNEL_UNROLL
  for (int j = 0; j < row_count; j++) {
    r[j] = load_half(type, rows[j], index, half);
    if (squares)
      squares[j] = _mm256_fmadd_ps(r[j], r[j], squares[j]);
  }
  KERNEL_UNROLL
  for (int i = 0; i < queries; i++) {
    __m256 q = load_half(TURB_F32, prepared[i], index, half);
    KERNEL_KEEP(q);
    KERNEL_UNROLL
    for (int j = 0; j < row_count; j++)
      sums[i * row_count + j] = add_term(metric, sums[i * row_count + j], q, r[j]);
  }
}

/* sums[query * row_count + row] and, unless NULL, squares[row]. */
KERNEL_INLINE void sum_pairs(turb_metric metric, turb_type type, size_t dimension, const void *const *prepared, int queries,
                             const void *const *rows, int row_count, __m256 *sums, __m256 *squares) {
  __m256 sums_2[MAX_PAIRS], squares_2[MAX_ROWS];
  KERNEL_UNROLL
  for (int i = 0; i < queries * row_count; i++)
    sums[i] = sums_2[i] = _mm256_setzero_ps();
  if (squares) {
    KERNEL_UNROLL
    for (int j = 0; j < row_count; j++)
      squares[j] = squares_2[j] = _mm256_setzero_ps();
  }
  size_t i = 0;
  for (; i + STEP <= dimension; i += STEP) {
    step(metric, type, prepared, queries, rows, row_count, i, 0, sums, squares);
    step(metric, type, prepared, queries, rows, row_count, i, 1, sums_2, squares ? squares_2 : NULL);
  }
  if (i < dimension) {
    struct tail query_tails[TILE_QUERIES], row_tails[MAX_ROWS];
    const void *last_queries[TILE_QUERIES], *last_rows[MAX_ROWS];
    for (int j = 0; j < row_count; j++)
      last_rows[j] = load_tail(type, rows[j], i, dimension - i, &row_tails[j]);
    for (int j = 0; j < queries; j++) {
      last_queries[j] = type == TURB_F32 ? load_tail(TURB_F32, prepared[j], i, dimension - i, &query_tails[j])
                                         : (const float *)prepared[j] + i; /* padded */
    }
    step(metric, type, last_queries, queries, last_rows, row_count, 0, 0, sums, squares);
    step(metric, type, last_queries, queries, last_rows, row_count, 0, 1, sums_2, squares ? squares_2 : NULL);
  }
  KERNEL_UNROLL
  for (int j = 0; j < queries * row_count; j++)
    sums[j] = _mm256_add_ps(sums[j], sums_2[j]);
  if (squares) {
    KERNEL_UNROLL
    for (int j = 0; j < row_count; j++)
      squares[j] = _mm256_add_ps(squares[j], squares_2[j]);
  }
}

/* The lanes of four registers added up. Absent ones are zeros. */
KERNEL_INLINE __m128 add_lanes_4(__m256 a, __m256 b, __m256 c, __m256 d) {
  __m256 ac = _mm256_add_ps(_mm256_permute2f128_ps(a, c, 0x20), _mm256_permute2f128_ps(a, c, 0x31));
  __m256 bd = _mm256_add_ps(_mm256_permute2f128_ps(b, d, 0x20), _mm256_permute2f128_ps(b, d, 0x31));
  /* a01 a23 b01 b23 | c01 c23 d01 d23 */
  __m256 two = _mm256_add_ps(_mm256_shuffle_ps(ac, bd, 0x88), _mm256_shuffle_ps(ac, bd, 0xdd));
  __m128 low = _mm256_castps256_ps128(two), high = _mm256_extractf128_ps(two, 1);
  return _mm_add_ps(_mm_shuffle_ps(low, high, 0x88), _mm_shuffle_ps(low, high, 0xdd));
}

KERNEL_INLINE __m128 add_lanes(__m256 a) {
  const __m256 none = _mm256_setzero_ps();
  return add_lanes_4(a, none, none, none);
}

/* ---- the four shapes ---- */

KERNEL_INLINE float one_pair(turb_metric metric, turb_type type, const struct kernel_query *query, const void *row) {
  float distances[4];
  __m256 sum, square;
  struct lanes lanes = {&query, &row, 0, 0};
  bool cosine = metric == TURB_COSINE;
  sum_pairs(metric, type, query->dimension, &query->prepared, 1, &row, 1, &sum, cosine ? &square : NULL);
  __m256d products = _mm256_setzero_pd();
  if (cosine)
    products = _mm256_mul_pd(_mm256_set1_pd(query->norm_squared), trusted_norms(add_lanes(square)));
  finish_floats(metric, &lanes, add_lanes(sum), products, distances);
  return distances[0];
}

KERNEL_INLINE void block_of_rows(turb_metric metric, turb_type type, const struct kernel_query *query, const void *const *rows,
                                 float *distances) {
  __m256 s[MAX_PAIRS], n[MAX_ROWS];
  struct lanes lanes = {&query, rows, 0, 1};
  __m256d products = _mm256_setzero_pd();
  if (metric == TURB_COSINE) { /* in two parts, for want of registers */
    sum_pairs(metric, type, query->dimension, &query->prepared, 1, rows, 2, s, n);
    sum_pairs(metric, type, query->dimension, &query->prepared, 1, rows + 2, 2, s + 2, n + 2);
    __m256d norms = trusted_norms(add_lanes_4(n[0], n[1], n[2], n[3]));
    products = _mm256_mul_pd(_mm256_set1_pd(query->norm_squared), norms);
  } else {
    sum_pairs(metric, type, query->dimension, &query->prepared, 1, rows, BLOCK_ROWS, s, NULL);
  }
  finish_floats(metric, &lanes, add_lanes_4(s[0], s[1], s[2], s[3]), products, distances);
}

/* One row after the other, so that each load of the loop goes up line by line: the processor then fetches ahead better than a program can. */
KERNEL_INLINE void strip_of_rows(turb_metric metric, turb_type type, const struct kernel_query *query, const void *first, size_t stride,
                                 float *distances) {
  const void *rows[BLOCK_ROWS];
  __m256 s[BLOCK_ROWS], n[BLOCK_ROWS];
  struct lanes lanes = {&query, rows, 0, 1};
  __m256d products = _mm256_setzero_pd();
  KERNEL_ROLLED
  for (size_t j = 0; j < BLOCK_ROWS; j++) {
    const void *row = rows[j] = (const char *)first + j * stride;
    sum_pairs(metric, type, query->dimension, &query->prepared, 1, &row, 1, s + j, metric == TURB_COSINE ? n + j : NULL);
  }
  if (metric == TURB_COSINE) {
    __m256d norms = trusted_norms(add_lanes_4(n[0], n[1], n[2], n[3]));
    products = _mm256_mul_pd(_mm256_set1_pd(query->norm_squared), norms);
  }
  finish_floats(metric, &lanes, add_lanes_4(s[0], s[1], s[2], s[3]), products, distances);
}

KERNEL_INLINE void tile_of_pairs(turb_metric metric, turb_type type, const struct kernel_query *const *queries, const void *const *rows,
                                 const double *norms, float *distances, size_t stride) {
  const __m256 none = _mm256_setzero_ps();
  const void *prepared[TILE_QUERIES];
  const void *four_rows[4] = {rows[0], rows[1], rows[2], rows[2]};
  __m256 s[MAX_PAIRS];
  KERNEL_UNROLL
  for (int i = 0; i < TILE_QUERIES; i++)
    prepared[i] = queries[i]->prepared;
  sum_pairs(metric, type, queries[0]->dimension, prepared, TILE_QUERIES, rows, TILE_ROWS, s, NULL);
  __m256d row_norms = _mm256_setzero_pd();
  if (metric == TURB_COSINE)
    row_norms = _mm256_setr_pd(norms[0], norms[1], norms[2], norms[2]);
  KERNEL_UNROLL
  for (int i = 0; i < TILE_QUERIES; i++) {
    float line[4];
    struct lanes lanes = {queries + i, four_rows, 0, 1};
    __m256d products = _mm256_mul_pd(row_norms, _mm256_set1_pd(queries[i]->norm_squared));
    finish_floats(metric, &lanes, add_lanes_4(s[3 * i], s[3 * i + 1], s[3 * i + 2], none), products, line);
    memcpy(distances + (size_t)i * stride, line, TILE_ROWS * sizeof *line);
  }
}

/* As COSINE's block sums it; infinite where not to be trusted. */
KERNEL_INLINE double norm_of(turb_type type, const void *row, size_t dimension) {
  __m256 unused, square;
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
  KERNEL_ENTRY(id, text " avx2", metric, type, KERNEL_AVX2, prepare, norm, tile_norms)

static const struct kernel kernels[] = {
    ENTRY(l2_f32, "l2 f32", TURB_L2, TURB_F32, KERNEL_BORROWED, f32_norm, false),
    ENTRY(l2_f16, "l2 f16", TURB_L2, TURB_F16, KERNEL_WIDENED, f16_norm, false),
    ENTRY(l2_bf16, "l2 bf16", TURB_L2, TURB_BF16, KERNEL_SPLIT16, bf16_norm, false),
    ENTRY(ip_f32, "inner product f32", TURB_INNER_PRODUCT, TURB_F32, KERNEL_BORROWED, f32_norm, false),
    ENTRY(ip_f16, "inner product f16", TURB_INNER_PRODUCT, TURB_F16, KERNEL_WIDENED, f16_norm, false),
    ENTRY(ip_bf16, "inner product bf16", TURB_INNER_PRODUCT, TURB_BF16, KERNEL_SPLIT16, bf16_norm, false),
    ENTRY(cosine_f32, "cosine f32", TURB_COSINE, TURB_F32, KERNEL_BORROWED, f32_norm, true),
    ENTRY(cosine_f16, "cosine f16", TURB_COSINE, TURB_F16, KERNEL_WIDENED, f16_norm, true),
    ENTRY(cosine_bf16, "cosine bf16", TURB_COSINE, TURB_BF16, KERNEL_SPLIT16, bf16_norm, true),
    ENTRY(l1_f32, "manhattan f32", TURB_MANHATTAN, TURB_F32, KERNEL_BORROWED, f32_norm, false),
    ENTRY(l1_f16, "manhattan f16", TURB_MANHATTAN, TURB_F16, KERNEL_WIDENED, f16_norm, false),
    ENTRY(l1_bf16, "manhattan bf16", TURB_MANHATTAN, TURB_BF16, KERNEL_SPLIT16, bf16_norm, false),
};

const struct kernel *kernel_find_float_avx2(turb_metric metric, turb_type type) {
  return kernel_find_in(kernels, sizeof kernels / sizeof *kernels, metric, type);
}
#endif
