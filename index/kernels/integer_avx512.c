/*
 * AVX-512 VNNI kernels of i8 and u8. All sums are exact.
 *
 * The dot product instruction multiplies unsigned by signed bytes. The row's components are offset by 128 (the top bit
 * flipped) so that the types fit: i8 as unsigned r + 128 against the signed query, u8 as signed r - 128 against the
 * unsigned query. What that adds, 128 times the query's sum, is the query's bias. In the same way
 *   i8  sum r^2 = sum (r + 128) r - 128 sum r      u8  sum r^2 = sum r (r - 128) + 128 sum r
 * and L2 = |q|^2 + |r|^2 - 2 q.r.
 *
 * One lane takes at most 1,024 steps of four products below 2^15: below 2^27. The results lie within 32 bits (65,536 * 255^2 <
 * 2^32), so lanes are added and combined modulo 2^32.
 *
 * Threads: pure functions.
 */
#include "index/kernels/kernel_parts.h"

#if defined(__AVX512F__)
#include "index/kernels/x86_parts.h"

enum { BLOCK_ROWS = 4, TILE_QUERIES = 4, TILE_ROWS = 4, STEP = 64, MAX_ROWS = 4, MAX_PAIRS = 16 };

/* Of a row: the sums from which its squared norm follows. */
struct row_sums {
  __m512i products[MAX_ROWS], values[MAX_ROWS];
};

KERNEL_INLINE __m512i flip_top(__m512i bytes) {
  return _mm512_xor_si512(bytes, _mm512_set1_epi8((char)0x80));
}

/* Differences of i8 are taken with both tops flipped, which keeps their order; those of u8 as they are. */
KERNEL_INLINE bool flips_row(turb_metric metric, turb_type type) {
  return metric != TURB_MANHATTAN || type == TURB_I8;
}

/* count 0: all 64 bytes. */
KERNEL_INLINE __m512i load(const void *from, size_t index, size_t count) {
  const char *at = (const char *)from + index;
  return count ? _mm512_maskz_loadu_epi8((1ull << count) - 1, at) : _mm512_loadu_si512(at);
}

/* `flipped` is the row's. Absent components have a query byte of 0 (their flipped row byte is not). */
KERNEL_INLINE __m512i add_products(turb_metric metric, turb_type type, __m512i sum, __m512i q, __m512i flipped) {
  if (metric == TURB_MANHATTAN)
    return _mm512_add_epi32(sum, _mm512_sad_epu8(type == TURB_I8 ? flip_top(q) : q, flipped));
  return type == TURB_I8 ? _mm512_dpbusd_epi32(sum, flipped, q) : _mm512_dpbusd_epi32(sum, q, flipped);
}

KERNEL_INLINE void add_row(turb_type type, struct row_sums *sums, int j, __m512i r, __m512i flipped) {
  const __m512i ones = _mm512_set1_epi8(1);
  sums->products[j] =
      type == TURB_I8 ? _mm512_dpbusd_epi32(sums->products[j], flipped, r) : _mm512_dpbusd_epi32(sums->products[j], r, flipped);
  sums->values[j] = type == TURB_I8 ? _mm512_dpbusd_epi32(sums->values[j], ones, r) : _mm512_dpbusd_epi32(sums->values[j], r, ones);
  KERNEL_KEEP(sums->products[j]);
  KERNEL_KEEP(sums->values[j]);
}

KERNEL_INLINE void step(turb_metric metric, turb_type type, const void *const *prepared, int queries, const void *const *rows,
                        int row_count, size_t index, size_t count, __m512i *sums, struct row_sums *row_sums) {
  __m512i flipped[MAX_ROWS];
  KERNEL_UNROLL
  for (int j = 0; j < row_count; j++) {
    __m512i r = load(rows[j], index, count);
    flipped[j] = flips_row(metric, type) ? flip_top(r) : r;
    if (row_sums)
      add_row(type, row_sums, j, r, flipped[j]);
  }
  KERNEL_UNROLL
  for (int i = 0; i < queries; i++) {
    __m512i q = load(prepared[i], index, count);
    KERNEL_KEEP(q);
    KERNEL_UNROLL
    for (int j = 0; j < row_count; j++) {
      sums[i * row_count + j] = add_products(metric, type, sums[i * row_count + j], q, flipped[j]);
      KERNEL_KEEP(sums[i * row_count + j]);
    }
  }
}

KERNEL_INLINE void sum_pairs(turb_metric metric, turb_type type, size_t dimension, const void *const *prepared, int queries,
                             const void *const *rows, int row_count, __m512i *sums, struct row_sums *row_sums) {
  KERNEL_UNROLL
  for (int i = 0; i < queries * row_count; i++)
    sums[i] = _mm512_setzero_si512();
  if (row_sums) {
    KERNEL_UNROLL
    for (int j = 0; j < row_count; j++)
      row_sums->products[j] = row_sums->values[j] = _mm512_setzero_si512();
  }
  size_t i = 0;
  for (; i + STEP <= dimension; i += STEP) {
    step(metric, type, prepared, queries, rows, row_count, i, 0, sums, row_sums);
  }
  if (i < dimension)
    step(metric, type, prepared, queries, rows, row_count, i, dimension - i, sums, row_sums);
}

KERNEL_INLINE __m128i add_lanes_4(__m512i a, __m512i b, __m512i c, __m512i d) {
  __m512i ab = _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
  __m512i cd = _mm512_add_epi32(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
  __m512i all = _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
  __m256i half = _mm256_add_epi32(_mm512_castsi512_si256(all), _mm512_extracti64x4_epi64(all, 1));
  return _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
}

KERNEL_INLINE bool needs_norms(turb_metric metric) {
  return metric == TURB_L2 || metric == TURB_COSINE;
}

/* Squared norms of four rows, modulo 2^32, which holds them; struct kernel_query and tiles keep them in double. */
KERNEL_INLINE __m128i norms_4(turb_type type, const struct row_sums *sums, int rows) {
  const __m512i none = _mm512_setzero_si512();
  const __m512i *p = sums->products, *v = sums->values;
  __m128i products = rows == 1 ? add_lanes_4(p[0], none, none, none) : add_lanes_4(p[0], p[1], p[2], p[3]);
  __m128i values = rows == 1 ? add_lanes_4(v[0], none, none, none) : add_lanes_4(v[0], v[1], v[2], v[3]);
  __m128i offset = _mm_slli_epi32(values, 7);
  return type == TURB_I8 ? _mm_sub_epi32(products, offset) : _mm_add_epi32(products, offset);
}

/* From sums, the queries' biases and the squared norms of both sides to distances. */
KERNEL_INLINE void finish(turb_metric metric, turb_type type, __m128i sums, __m128i bias, __m256d query_norms, __m128i norms,
                          float *distances) {
  __m256d products = _mm256_setzero_pd();
  if (metric != TURB_MANHATTAN)
    sums = _mm_add_epi32(sums, bias);
  if (metric == TURB_L2) {
    __m128i both = _mm_add_epi32(_mm256_cvtpd_epu32(query_norms), norms);
    sums = _mm_sub_epi32(both, _mm_slli_epi32(sums, 1));
  }
  if (metric == TURB_COSINE)
    products = _mm256_mul_pd(query_norms, _mm256_cvtepu32_pd(norms));
  finish_integers(metric, type, sums, products, distances);
}

/* ---- the three shapes ---- */

KERNEL_INLINE void few_rows(turb_metric metric, turb_type type, const struct kernel_query *query, const void *const *rows, int row_count,
                            float *distances) {
  const __m512i none = _mm512_setzero_si512();
  __m512i s[MAX_ROWS];
  struct row_sums row_sums;
  bool with_norms = needs_norms(metric);
  sum_pairs(metric, type, query->dimension, &query->prepared, 1, rows, row_count, s, with_norms ? &row_sums : NULL);
  __m128i sums = row_count == 1 ? add_lanes_4(s[0], none, none, none) : add_lanes_4(s[0], s[1], s[2], s[3]);
  __m128i norms = with_norms ? norms_4(type, &row_sums, row_count) : _mm_setzero_si128();
  finish(metric, type, sums, _mm_set1_epi32((int)query->bias), _mm256_set1_pd(query->norm_squared), norms, distances);
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
  __m512i s[MAX_PAIRS];
  KERNEL_UNROLL
  for (int i = 0; i < TILE_QUERIES; i++)
    prepared[i] = queries[i]->prepared;
  sum_pairs(metric, type, queries[0]->dimension, prepared, TILE_QUERIES, rows, TILE_ROWS, s, NULL);
  __m128i row_norms = needs_norms(metric) ? _mm256_cvtpd_epu32(_mm256_loadu_pd(norms)) : _mm_setzero_si128();
  KERNEL_UNROLL
  for (int i = 0; i < TILE_QUERIES; i++) {
    __m128i sums = add_lanes_4(s[4 * i], s[4 * i + 1], s[4 * i + 2], s[4 * i + 3]);
    finish(metric, type, sums, _mm_set1_epi32((int)queries[i]->bias), _mm256_set1_pd(queries[i]->norm_squared), row_norms,
           distances + (size_t)i * stride);
  }
}

KERNEL_INLINE double norm_of(turb_type type, const void *row, size_t dimension) {
  __m512i unused;
  struct row_sums row_sums;
  sum_pairs(TURB_COSINE, type, dimension, NULL, 0, &row, 1, &unused, &row_sums);
  return _mm256_cvtsd_f64(_mm256_cvtepu32_pd(norms_4(type, &row_sums, 1)));
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
  KERNEL_ENTRY(id, text " avx512", metric, type, KERNEL_AVX512, KERNEL_BORROWED, norm, tile_norms)

static const struct kernel kernels[] = {
    ENTRY(l2_i8, "l2 i8", TURB_L2, TURB_I8, i8_norm, true),
    ENTRY(l2_u8, "l2 u8", TURB_L2, TURB_U8, u8_norm, true),
    ENTRY(ip_i8, "inner product i8", TURB_INNER_PRODUCT, TURB_I8, i8_norm, false),
    ENTRY(ip_u8, "inner product u8", TURB_INNER_PRODUCT, TURB_U8, u8_norm, false),
    ENTRY(cosine_i8, "cosine i8", TURB_COSINE, TURB_I8, i8_norm, true),
    ENTRY(cosine_u8, "cosine u8", TURB_COSINE, TURB_U8, u8_norm, true),
    ENTRY(l1_i8, "manhattan i8", TURB_MANHATTAN, TURB_I8, i8_norm, false),
    ENTRY(l1_u8, "manhattan u8", TURB_MANHATTAN, TURB_U8, u8_norm, false),
};

const struct kernel *kernel_find_integer_avx512(turb_metric metric, turb_type type) {
  return kernel_find_in(kernels, sizeof kernels / sizeof *kernels, metric, type);
}
#endif
