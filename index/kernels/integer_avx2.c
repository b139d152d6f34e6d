/*
 * AVX2 kernels of i8 and u8. All sums are exact.
 *
 * Bytes are widened to 16 bits and multiplied in pairs into 32: a lane takes at most 8,192 pairs of products up to 255^2, or
 * 8,192 * 2 * 128^2, all below 2^31. Manhattan sums absolute differences of bytes, i8 with the top bit flipped, which
 * keeps the order. Results lie within 32 bits; lanes are added modulo 2^32. A tail goes through a buffer of zeros.
 *
 * Threads: pure functions.
 */
#include "index/kernels/kernel_parts.h"

#if defined(__AVX2__)
#include "index/kernels/x86_parts.h"

enum { BLOCK_ROWS = 4, TILE_QUERIES = 2, TILE_ROWS = 4, STEP = 32, MAX_ROWS = 4, MAX_PAIRS = 8 };

/* 32 bytes, as two registers of 16-bit words or (Manhattan) one of bytes. */
struct chunk {
  __m256i low, high;
};

KERNEL_INLINE __m256i widen(turb_type type, const char *from) {
  __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)from);
  return type == TURB_I8 ? _mm256_cvtepi8_epi16(bytes) : _mm256_cvtepu8_epi16(bytes);
}

KERNEL_INLINE struct chunk load(turb_metric metric, turb_type type, const void *from, size_t index) {
  const char *at = (const char *)from + index;
  if (metric != TURB_MANHATTAN)
    return (struct chunk){widen(type, at), widen(type, at + 16)};
  __m256i bytes = _mm256_loadu_si256((const __m256i *)(const void *)at);
  if (type == TURB_I8)
    bytes = _mm256_xor_si256(bytes, _mm256_set1_epi8((char)0x80));
  return (struct chunk){bytes, bytes};
}

KERNEL_INLINE __m256i add_products(__m256i sum, __m256i low, __m256i high, __m256i by_low, __m256i by_high) {
  return _mm256_add_epi32(sum, _mm256_add_epi32(_mm256_madd_epi16(low, by_low), _mm256_madd_epi16(high, by_high)));
}

KERNEL_INLINE __m256i add_terms(turb_metric metric, __m256i sum, struct chunk q, struct chunk r) {
  if (metric == TURB_MANHATTAN)
    return _mm256_add_epi32(sum, _mm256_sad_epu8(q.low, r.low));
  if (metric == TURB_L2) {
    __m256i low = _mm256_sub_epi16(q.low, r.low), high = _mm256_sub_epi16(q.high, r.high);
    return add_products(sum, low, high, low, high);
  }
  return add_products(sum, q.low, q.high, r.low, r.high);
}

/* One step for all pairs: sums[query][row], and the rows' squares where wanted. */
KERNEL_INLINE void step(turb_metric metric, turb_type type, const void *const *prepared, int queries, const void *const *rows,
                        int row_count, size_t index, __m256i *sums, __m256i *squares) {
  struct chunk q[TILE_QUERIES];
  KERNEL_UNROLL
  for (int i = 0; i < queries; i++)
    q[i] = load(metric, type, prepared[i], index);
  KERNEL_UNROLL
  for (int j = 0; j < row_count; j++) {
    struct chunk r = load(metric, type, rows[j], index);
    if (squares)
      squares[j] = add_products(squares[j], r.low, r.high, r.low, r.high);
    KERNEL_UNROLL
    for (int i = 0; i < queries; i++)
      sums[i * row_count + j] = add_terms(metric, sums[i * row_count + j], q[i], r);
  }
}

/* The `count` bytes that are left, 1 to 31, followed by zeros. */
KERNEL_INLINE const void *load_tail(const void *from, size_t index, size_t count, unsigned char *tail) {
  memset(tail, 0, STEP);
  copy_tail(tail, (const unsigned char *)from + index, count);
  return tail;
}

KERNEL_INLINE void sum_pairs(turb_metric metric, turb_type type, size_t dimension, const void *const *prepared, int queries,
                             const void *const *rows, int row_count, __m256i *sums, __m256i *squares) {
  KERNEL_UNROLL
  for (int i = 0; i < queries * row_count; i++)
    sums[i] = _mm256_setzero_si256();
  if (squares) {
    KERNEL_UNROLL
    for (int j = 0; j < row_count; j++)
      squares[j] = _mm256_setzero_si256();
  }
  size_t i = 0;
  for (; i + STEP <= dimension; i += STEP)
    step(metric, type, prepared, queries, rows, row_count, i, sums, squares);
  if (i == dimension)
    return;
  unsigned char query_tails[TILE_QUERIES][STEP], row_tails[MAX_ROWS][STEP];
  const void *last_queries[TILE_QUERIES], *last_rows[MAX_ROWS];
  for (int j = 0; j < queries; j++)
    last_queries[j] = load_tail(prepared[j], i, dimension - i, query_tails[j]);
  for (int j = 0; j < row_count; j++)
    last_rows[j] = load_tail(rows[j], i, dimension - i, row_tails[j]);
  step(metric, type, last_queries, queries, last_rows, row_count, 0, sums, squares);
}

KERNEL_INLINE __m128i add_lanes_4(__m256i a, __m256i b, __m256i c, __m256i d) {
  __m256i all = _mm256_hadd_epi32(_mm256_hadd_epi32(a, b), _mm256_hadd_epi32(c, d));
  return _mm_add_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
}

/* ---- the three shapes ---- */

KERNEL_INLINE void few_rows(turb_metric metric, turb_type type, const struct kernel_query *query, const void *const *rows, int row_count,
                            float *distances) {
  const __m256i none = _mm256_setzero_si256();
  __m256i s[MAX_ROWS], n[MAX_ROWS];
  bool cosine = metric == TURB_COSINE;
  sum_pairs(metric, type, query->dimension, &query->prepared, 1, rows, row_count, s, cosine ? n : NULL);
  bool four = row_count == 4;
  __m128i sums = four ? add_lanes_4(s[0], s[1], s[2], s[3]) : add_lanes_4(s[0], none, none, none);
  __m256d products = _mm256_setzero_pd();
  if (cosine) {
    __m128i norms = four ? add_lanes_4(n[0], n[1], n[2], n[3]) : add_lanes_4(n[0], none, none, none);
    products = _mm256_mul_pd(integers_to_double(norms, false), _mm256_set1_pd(query->norm_squared));
  }
  finish_integers(metric, type, sums, products, distances);
}

KERNEL_INLINE float one_pair(turb_metric metric, turb_type type, const struct kernel_query *query, const void *row) {
  float distances[4];
  few_rows(metric, type, query, &row, 1, distances);
  return distances[0];
}

KERNEL_INLINE void block_of_rows(turb_metric metric, turb_type type, const struct kernel_query *query, const void *const *rows,
                                 float *distances) {
  few_rows(metric, type, query, rows, BLOCK_ROWS, distances);
}

KERNEL_STRIP_BY_BLOCK

KERNEL_INLINE void tile_of_pairs(turb_metric metric, turb_type type, const struct kernel_query *const *queries, const void *const *rows,
                                 const double *norms, float *distances, size_t stride) {
  const void *prepared[TILE_QUERIES];
  __m256i s[MAX_PAIRS];
  KERNEL_UNROLL
  for (int i = 0; i < TILE_QUERIES; i++)
    prepared[i] = queries[i]->prepared;
  sum_pairs(metric, type, queries[0]->dimension, prepared, TILE_QUERIES, rows, TILE_ROWS, s, NULL);
  KERNEL_UNROLL
  for (int i = 0; i < TILE_QUERIES; i++) {
    __m128i sums = add_lanes_4(s[4 * i], s[4 * i + 1], s[4 * i + 2], s[4 * i + 3]);
    __m256d products = _mm256_mul_pd(_mm256_loadu_pd(norms), _mm256_set1_pd(queries[i]->norm_squared));
    finish_integers(metric, type, sums, products, distances + (size_t)i * stride);
  }
}

KERNEL_INLINE double norm_of(turb_type type, const void *row, size_t dimension) {
  const __m256i none = _mm256_setzero_si256();
  __m256i unused, square;
  sum_pairs(TURB_COSINE, type, dimension, NULL, 0, &row, 1, &unused, &square);
  return _mm256_cvtsd_f64(integers_to_double(add_lanes_4(square, none, none, none), false));
}

/* ---- the kernels ---- */

static double i8_norm(const void *row, size_t dimension) {
  return norm_of(TURB_I8, row, dimension);
}
static double u8_norm(const void *row, size_t dimension) {
  return norm_of(TURB_U8, row, dimension);
}

KERNEL_SHAPES(l2_i8, TURB_L2, TURB_I8)
KERNEL_SHAPES(l2_u8, TURB_L2, TURB_U8)
KERNEL_SHAPES(ip_i8, TURB_INNER_PRODUCT, TURB_I8)
KERNEL_SHAPES(ip_u8, TURB_INNER_PRODUCT, TURB_U8)
KERNEL_SHAPES(cosine_i8, TURB_COSINE, TURB_I8)
KERNEL_SHAPES(cosine_u8, TURB_COSINE, TURB_U8)
KERNEL_SHAPES(l1_i8, TURB_MANHATTAN, TURB_I8)
KERNEL_SHAPES(l1_u8, TURB_MANHATTAN, TURB_U8)

#define ENTRY(id, text, metric, type, norm, tile_norms)                                                                                    \
  KERNEL_ENTRY(id, text " avx2", metric, type, KERNEL_AVX2, KERNEL_BORROWED, norm, tile_norms)

static const struct kernel kernels[] = {
    ENTRY(l2_i8, "l2 i8", TURB_L2, TURB_I8, i8_norm, false),
    ENTRY(l2_u8, "l2 u8", TURB_L2, TURB_U8, u8_norm, false),
    ENTRY(ip_i8, "inner product i8", TURB_INNER_PRODUCT, TURB_I8, i8_norm, false),
    ENTRY(ip_u8, "inner product u8", TURB_INNER_PRODUCT, TURB_U8, u8_norm, false),
    ENTRY(cosine_i8, "cosine i8", TURB_COSINE, TURB_I8, i8_norm, true),
    ENTRY(cosine_u8, "cosine u8", TURB_COSINE, TURB_U8, u8_norm, true),
    ENTRY(l1_i8, "manhattan i8", TURB_MANHATTAN, TURB_I8, i8_norm, false),
    ENTRY(l1_u8, "manhattan u8", TURB_MANHATTAN, TURB_U8, u8_norm, false),
};

const struct kernel *kernel_find_integer_avx2(turb_metric metric, turb_type type) {
  return kernel_find_in(kernels, sizeof kernels / sizeof *kernels, metric, type);
}
#endif
