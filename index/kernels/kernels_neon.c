/*
 * NEON kernels of all types, for AArch64.
 *
 * Floats: a pair is summed 16 components at a time in four registers of four (bf16: as they come), which are added 0+2, 1+3,
 * then to each other, then pairwise. Integers: products of bytes are 16 bits wide and added in pairs into 32-bit lanes; a
 * lane takes at most 16,384 products of at most 255^2, below 2^31, and lanes are added in 64 bits. All integer sums are
 * exact. A tail goes through a buffer of zeros.
 *
 * Threads: pure functions.
 */
#include "index/kernels/kernel_parts.h"

#if defined(__aarch64__)
#include <arm_neon.h>

enum { BLOCK_ROWS = 4, TILE_QUERIES = 2, TILE_ROWS = 2, STEP = 16, QUARTERS = 4, MAX_ROWS = 4, MAX_PAIRS = 4 };

/* The `count` components that are left, 1 to 15, followed by zeros. */
KERNEL_INLINE const void *load_tail(turb_type type, const void *row, size_t index, size_t count, unsigned char *tail) {
  size_t bytes = vector_component_bytes(type);
  memset(tail, 0, STEP * sizeof(float));
  memcpy(tail, (const unsigned char *)row + index * bytes, count * bytes);
  return tail;
}

/* ---- floats ---- */

/* Components 4 * quarter to 4 * quarter + 3 from `index` on. */
KERNEL_INLINE float32x4_t load_quarter(turb_type type, const void *row, size_t index, int quarter) {
  const unsigned char *at = (const unsigned char *)row + (index + 4 * (size_t)quarter) * vector_component_bytes(type);
  if (type == TURB_F32)
    return vreinterpretq_f32_u8(vld1q_u8(at));
  if (type == TURB_F16)
    return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(at)));
  return vreinterpretq_f32_u32(vshll_n_u16(vreinterpret_u16_u8(vld1_u8(at)), 16));
}

KERNEL_INLINE float32x4_t add_float_term(turb_metric metric, float32x4_t sum, float32x4_t q, float32x4_t r) {
  if (metric == TURB_MANHATTAN)
    return vaddq_f32(sum, vabdq_f32(q, r));
  if (metric != TURB_L2)
    return vfmaq_f32(sum, q, r);
  float32x4_t difference = vsubq_f32(q, r);
  return vfmaq_f32(sum, difference, difference);
}

KERNEL_INLINE void float_step(turb_metric metric, turb_type type, const void *const *prepared, int queries, const void *const *rows,
                              int row_count, size_t index, int quarter, float32x4_t *sums, float32x4_t *squares) {
  float32x4_t r[MAX_ROWS];
  KERNEL_UNROLL
  for (int j = 0; j < row_count; j++) {
    r[j] = load_quarter(type, rows[j], index, quarter);
    if (squares)
      squares[j] = vfmaq_f32(squares[j], r[j], r[j]);
  }
  KERNEL_UNROLL
  for (int i = 0; i < queries; i++) {
    float32x4_t q = load_quarter(TURB_F32, prepared[i], index, quarter);
    KERNEL_UNROLL
    for (int j = 0; j < row_count; j++)
      sums[i * row_count + j] = add_float_term(metric, sums[i * row_count + j], q, r[j]);
  }
}

KERNEL_INLINE float add_quarters(const float32x4_t *q) {
  float32x4_t sum = vaddq_f32(vaddq_f32(q[0], q[2]), vaddq_f32(q[1], q[3]));
  return vaddvq_f32(sum);
}

/* totals[query * row_count + row] and, unless NULL, norms[row]. */
KERNEL_INLINE void sum_float_pairs(turb_metric metric, turb_type type, size_t dimension, const void *const *prepared, int queries,
                                   const void *const *rows, int row_count, float *totals, float *norms) {
  float32x4_t sums[QUARTERS][MAX_PAIRS], squares[QUARTERS][MAX_ROWS];
  KERNEL_UNROLL
  for (int k = 0; k < QUARTERS; k++) {
    KERNEL_UNROLL
    for (int i = 0; i < MAX_PAIRS; i++)
      sums[k][i] = squares[k][i] = vdupq_n_f32(0);
  }
  size_t i = 0;
  for (; i + STEP <= dimension; i += STEP) {
    KERNEL_UNROLL
    for (int k = 0; k < QUARTERS; k++) {
      float_step(metric, type, prepared, queries, rows, row_count, i, k, sums[k], norms ? squares[k] : NULL);
    }
  }
  if (i < dimension) {
    unsigned char query_tails[TILE_QUERIES][STEP * sizeof(float)], row_tails[MAX_ROWS][STEP * sizeof(float)];
    const void *last_queries[TILE_QUERIES], *last_rows[MAX_ROWS];
    for (int j = 0; j < queries; j++) {
      last_queries[j] = load_tail(TURB_F32, prepared[j], i, dimension - i, query_tails[j]);
    }
    for (int j = 0; j < row_count; j++)
      last_rows[j] = load_tail(type, rows[j], i, dimension - i, row_tails[j]);
    KERNEL_UNROLL
    for (int k = 0; k < QUARTERS; k++) {
      float_step(metric, type, last_queries, queries, last_rows, row_count, 0, k, sums[k], norms ? squares[k] : NULL);
    }
  }
  KERNEL_UNROLL
  for (int j = 0; j < queries * row_count; j++) {
    totals[j] = add_quarters((float32x4_t[]){sums[0][j], sums[1][j], sums[2][j], sums[3][j]});
  }
  if (norms) {
    KERNEL_UNROLL
    for (int j = 0; j < row_count; j++)
      norms[j] = add_quarters((float32x4_t[]){squares[0][j], squares[1][j], squares[2][j], squares[3][j]});
  }
}

static double trusted_norm(float norm) {
  return norm >= KERNEL_NORM_MIN && norm <= KERNEL_NORM_MAX ? (double)norm : __builtin_inf();
}

KERNEL_INLINE float finish_float(turb_metric metric, const struct kernel_query *query, const void *row, float sum, double row_norm) {
  if (metric == TURB_L2 || metric == TURB_MANHATTAN)
    return sum;
  if (metric == TURB_INNER_PRODUCT)
    return __builtin_isfinite(sum) ? 0 - sum : kernel_distance_in_double(query, row);
  double product = query->norm_squared * row_norm;
  if (!__builtin_isfinite(product))
    return kernel_distance_in_double(query, row);
  return kernel_cosine_distance((double)sum, product);
}

/* ---- integers ---- */

KERNEL_INLINE uint32x4_t add_integer_term(turb_metric metric, turb_type type, uint32x4_t sum, uint8x16_t q, uint8x16_t r) {
  if (metric == TURB_MANHATTAN || metric == TURB_L2) {
    uint8x16_t difference =
        type == TURB_I8 ? vreinterpretq_u8_s8(vabdq_s8(vreinterpretq_s8_u8(q), vreinterpretq_s8_u8(r))) : vabdq_u8(q, r);
    if (metric == TURB_MANHATTAN)
      return vpadalq_u16(sum, vpaddlq_u8(difference));
    sum = vpadalq_u16(sum, vmull_u8(vget_low_u8(difference), vget_low_u8(difference)));
    return vpadalq_u16(sum, vmull_high_u8(difference, difference));
  }
  if (type == TURB_U8) {
    sum = vpadalq_u16(sum, vmull_u8(vget_low_u8(q), vget_low_u8(r)));
    return vpadalq_u16(sum, vmull_high_u8(q, r));
  }
  int8x16_t left = vreinterpretq_s8_u8(q), right = vreinterpretq_s8_u8(r);
  int32x4_t total = vreinterpretq_s32_u32(sum);
  total = vpadalq_s16(total, vmull_s8(vget_low_s8(left), vget_low_s8(right)));
  total = vpadalq_s16(total, vmull_high_s8(left, right));
  return vreinterpretq_u32_s32(total);
}

KERNEL_INLINE void integer_step(turb_metric metric, turb_type type, const void *const *prepared, int queries, const void *const *rows,
                                int row_count, size_t index, uint32x4_t *sums, uint32x4_t *squares) {
  uint8x16_t r[MAX_ROWS];
  KERNEL_UNROLL
  for (int j = 0; j < row_count; j++) {
    r[j] = vld1q_u8((const unsigned char *)rows[j] + index);
    if (squares)
      squares[j] = add_integer_term(TURB_INNER_PRODUCT, type, squares[j], r[j], r[j]);
  }
  KERNEL_UNROLL
  for (int i = 0; i < queries; i++) {
    uint8x16_t q = vld1q_u8((const unsigned char *)prepared[i] + index);
    KERNEL_UNROLL
    for (int j = 0; j < row_count; j++) {
      sums[i * row_count + j] = add_integer_term(metric, type, sums[i * row_count + j], q, r[j]);
    }
  }
}

KERNEL_INLINE double add_integer_lanes(bool is_signed, uint32x4_t sum) {
  return is_signed ? (double)vaddlvq_s32(vreinterpretq_s32_u32(sum)) : (double)vaddlvq_u32(sum);
}

KERNEL_INLINE void sum_integer_pairs(turb_metric metric, turb_type type, size_t dimension, const void *const *prepared, int queries,
                                     const void *const *rows, int row_count, double *totals, double *norms) {
  uint32x4_t sums[MAX_PAIRS], squares[MAX_ROWS];
  KERNEL_UNROLL
  for (int i = 0; i < MAX_PAIRS; i++)
    sums[i] = squares[i] = vdupq_n_u32(0);
  size_t i = 0;
  for (; i + STEP <= dimension; i += STEP) {
    integer_step(metric, type, prepared, queries, rows, row_count, i, sums, norms ? squares : NULL);
  }
  if (i < dimension) {
    unsigned char query_tails[TILE_QUERIES][STEP * sizeof(float)], row_tails[MAX_ROWS][STEP * sizeof(float)];
    const void *last_queries[TILE_QUERIES], *last_rows[MAX_ROWS];
    for (int j = 0; j < queries; j++)
      last_queries[j] = load_tail(type, prepared[j], i, dimension - i, query_tails[j]);
    for (int j = 0; j < row_count; j++)
      last_rows[j] = load_tail(type, rows[j], i, dimension - i, row_tails[j]);
    integer_step(metric, type, last_queries, queries, last_rows, row_count, 0, sums, norms ? squares : NULL);
  }
  bool is_signed = type == TURB_I8 && (metric == TURB_INNER_PRODUCT || metric == TURB_COSINE);
  KERNEL_UNROLL
  for (int j = 0; j < queries * row_count; j++)
    totals[j] = add_integer_lanes(is_signed, sums[j]);
  if (norms) {
    KERNEL_UNROLL
    for (int j = 0; j < row_count; j++)
      norms[j] = add_integer_lanes(false, squares[j]);
  }
}

KERNEL_INLINE float finish_integer(turb_metric metric, const struct kernel_query *query, double sum, double row_norm) {
  if (metric == TURB_COSINE)
    return kernel_cosine_distance(sum, query->norm_squared * row_norm);
  return (float)(metric == TURB_INNER_PRODUCT ? 0 - sum : sum);
}

/* ---- the three shapes ---- */

/* distances[query * row_count + row]; row_norms where the caller has them, else COSINE sums them along. */
KERNEL_INLINE void some_pairs(turb_metric metric, turb_type type, const struct kernel_query *const *queries, int query_count,
                              const void *const *rows, int row_count, const double *row_norms, float *distances) {
  bool integer = type == TURB_I8 || type == TURB_U8;
  bool with_norms = metric == TURB_COSINE && row_norms == NULL;
  size_t dimension = queries[0]->dimension;
  const void *prepared[TILE_QUERIES];
  float sums[MAX_PAIRS], squares[MAX_ROWS];
  double totals[MAX_PAIRS], norms[MAX_ROWS] = {0};
  for (int i = 0; i < query_count; i++)
    prepared[i] = queries[i]->prepared;
  if (integer) {
    sum_integer_pairs(metric, type, dimension, prepared, query_count, rows, row_count, totals, with_norms ? norms : NULL);
  } else {
    sum_float_pairs(metric, type, dimension, prepared, query_count, rows, row_count, sums, with_norms ? squares : NULL);
    for (int j = 0; with_norms && j < row_count; j++)
      norms[j] = trusted_norm(squares[j]);
  }
  if (row_norms)
    memcpy(norms, row_norms, (size_t)row_count * sizeof *norms);
  for (int i = 0; i < query_count; i++) {
    for (int j = 0; j < row_count; j++) {
      int pair = i * row_count + j;
      distances[pair] = integer ? finish_integer(metric, queries[i], totals[pair], norms[j])
                                : finish_float(metric, queries[i], rows[j], sums[pair], norms[j]);
    }
  }
}

KERNEL_INLINE float one_pair(turb_metric metric, turb_type type, const struct kernel_query *query, const void *row) {
  float distance;
  some_pairs(metric, type, &query, 1, &row, 1, NULL, &distance);
  return distance;
}

KERNEL_INLINE void block_of_rows(turb_metric metric, turb_type type, const struct kernel_query *query, const void *const *rows,
                                 float *distances) {
  some_pairs(metric, type, &query, 1, rows, BLOCK_ROWS, NULL, distances);
}

KERNEL_STRIP_BY_BLOCK

KERNEL_INLINE void tile_of_pairs(turb_metric metric, turb_type type, const struct kernel_query *const *queries, const void *const *rows,
                                 const double *norms, float *distances, size_t stride) {
  float results[MAX_PAIRS];
  some_pairs(metric, type, queries, TILE_QUERIES, rows, TILE_ROWS, norms, results);
  for (size_t i = 0; i < TILE_QUERIES; i++) {
    memcpy(distances + i * stride, results + i * TILE_ROWS, TILE_ROWS * sizeof *results);
  }
}

KERNEL_INLINE double float_norm(turb_type type, const void *row, size_t dimension) {
  float unused[1], norm;
  sum_float_pairs(TURB_COSINE, type, dimension, NULL, 0, &row, 1, unused, &norm);
  return trusted_norm(norm);
}

KERNEL_INLINE double integer_norm(turb_type type, const void *row, size_t dimension) {
  double unused[1], norm;
  sum_integer_pairs(TURB_COSINE, type, dimension, NULL, 0, &row, 1, unused, &norm);
  return norm;
}

/* ---- bits ---- */

static float hamming_one(const struct kernel_query *query, const void *row) {
  const unsigned char *left = query->prepared, *right = row;
  size_t whole = query->dimension / 8, i = 0;
  uint32x4_t sum = vdupq_n_u32(0);
  uint32_t differing = kernel_tail_bits(query, row);
  for (; i + 16 <= whole; i += 16) {
    uint8x16_t bits = veorq_u8(vld1q_u8(left + i), vld1q_u8(right + i));
    sum = vpadalq_u16(sum, vpaddlq_u8(vcntq_u8(bits)));
  }
  for (; i < whole; i++)
    differing += (uint32_t)__builtin_popcount((unsigned)(left[i] ^ right[i]));
  return (float)(differing + vaddvq_u32(sum));
}

static const struct kernel hamming = {.name = "hamming bits neon",
                                      .metric = TURB_HAMMING,
                                      .type = TURB_BITS,
                                      .isa = KERNEL_NEON,
                                      .one = hamming_one,
                                      .preparation = KERNEL_BORROWED};

/* ---- the kernels ---- */

static double f32_norm(const void *row, size_t dimension) {
  return float_norm(TURB_F32, row, dimension);
}
static double f16_norm(const void *row, size_t dimension) {
  return float_norm(TURB_F16, row, dimension);
}
static double bf16_norm(const void *row, size_t dimension) {
  return float_norm(TURB_BF16, row, dimension);
}
static double i8_norm(const void *row, size_t dimension) {
  return integer_norm(TURB_I8, row, dimension);
}
static double u8_norm(const void *row, size_t dimension) {
  return integer_norm(TURB_U8, row, dimension);
}

KERNEL_SHAPES(l2_f32, TURB_L2, TURB_F32)
KERNEL_SHAPES(l2_f16, TURB_L2, TURB_F16)
KERNEL_SHAPES(l2_bf16, TURB_L2, TURB_BF16)
KERNEL_SHAPES(l2_i8, TURB_L2, TURB_I8)
KERNEL_SHAPES(l2_u8, TURB_L2, TURB_U8)
KERNEL_SHAPES(ip_f32, TURB_INNER_PRODUCT, TURB_F32)
KERNEL_SHAPES(ip_f16, TURB_INNER_PRODUCT, TURB_F16)
KERNEL_SHAPES(ip_bf16, TURB_INNER_PRODUCT, TURB_BF16)
KERNEL_SHAPES(ip_i8, TURB_INNER_PRODUCT, TURB_I8)
KERNEL_SHAPES(ip_u8, TURB_INNER_PRODUCT, TURB_U8)
KERNEL_SHAPES(cosine_f32, TURB_COSINE, TURB_F32)
KERNEL_SHAPES(cosine_f16, TURB_COSINE, TURB_F16)
KERNEL_SHAPES(cosine_bf16, TURB_COSINE, TURB_BF16)
KERNEL_SHAPES(cosine_i8, TURB_COSINE, TURB_I8)
KERNEL_SHAPES(cosine_u8, TURB_COSINE, TURB_U8)
KERNEL_SHAPES(l1_f32, TURB_MANHATTAN, TURB_F32)
KERNEL_SHAPES(l1_f16, TURB_MANHATTAN, TURB_F16)
KERNEL_SHAPES(l1_bf16, TURB_MANHATTAN, TURB_BF16)
KERNEL_SHAPES(l1_i8, TURB_MANHATTAN, TURB_I8)
KERNEL_SHAPES(l1_u8, TURB_MANHATTAN, TURB_U8)

#define ENTRY(id, text, metric, type, prepare, norm, tile_norms)                                                                           \
  KERNEL_ENTRY(id, text " neon", metric, type, KERNEL_NEON, prepare, norm, tile_norms)

static const struct kernel kernels[] = {
    ENTRY(l2_f32, "l2 f32", TURB_L2, TURB_F32, KERNEL_BORROWED, f32_norm, false),
    ENTRY(l2_f16, "l2 f16", TURB_L2, TURB_F16, KERNEL_WIDENED, f16_norm, false),
    ENTRY(l2_bf16, "l2 bf16", TURB_L2, TURB_BF16, KERNEL_WIDENED, bf16_norm, false),
    ENTRY(l2_i8, "l2 i8", TURB_L2, TURB_I8, KERNEL_BORROWED, i8_norm, false),
    ENTRY(l2_u8, "l2 u8", TURB_L2, TURB_U8, KERNEL_BORROWED, u8_norm, false),
    ENTRY(ip_f32, "inner product f32", TURB_INNER_PRODUCT, TURB_F32, KERNEL_BORROWED, f32_norm, false),
    ENTRY(ip_f16, "inner product f16", TURB_INNER_PRODUCT, TURB_F16, KERNEL_WIDENED, f16_norm, false),
    ENTRY(ip_bf16, "inner product bf16", TURB_INNER_PRODUCT, TURB_BF16, KERNEL_WIDENED, bf16_norm, false),
    ENTRY(ip_i8, "inner product i8", TURB_INNER_PRODUCT, TURB_I8, KERNEL_BORROWED, i8_norm, false),
    ENTRY(ip_u8, "inner product u8", TURB_INNER_PRODUCT, TURB_U8, KERNEL_BORROWED, u8_norm, false),
    ENTRY(cosine_f32, "cosine f32", TURB_COSINE, TURB_F32, KERNEL_BORROWED, f32_norm, true),
    ENTRY(cosine_f16, "cosine f16", TURB_COSINE, TURB_F16, KERNEL_WIDENED, f16_norm, true),
    ENTRY(cosine_bf16, "cosine bf16", TURB_COSINE, TURB_BF16, KERNEL_WIDENED, bf16_norm, true),
    ENTRY(cosine_i8, "cosine i8", TURB_COSINE, TURB_I8, KERNEL_BORROWED, i8_norm, true),
    ENTRY(cosine_u8, "cosine u8", TURB_COSINE, TURB_U8, KERNEL_BORROWED, u8_norm, true),
    ENTRY(l1_f32, "manhattan f32", TURB_MANHATTAN, TURB_F32, KERNEL_BORROWED, f32_norm, false),
    ENTRY(l1_f16, "manhattan f16", TURB_MANHATTAN, TURB_F16, KERNEL_WIDENED, f16_norm, false),
    ENTRY(l1_bf16, "manhattan bf16", TURB_MANHATTAN, TURB_BF16, KERNEL_WIDENED, bf16_norm, false),
    ENTRY(l1_i8, "manhattan i8", TURB_MANHATTAN, TURB_I8, KERNEL_BORROWED, i8_norm, false),
    ENTRY(l1_u8, "manhattan u8", TURB_MANHATTAN, TURB_U8, KERNEL_BORROWED, u8_norm, false),
};

const struct kernel *kernel_find_neon(turb_metric metric, turb_type type) {
  if (metric == TURB_HAMMING && type == TURB_BITS)
    return &hamming;
  return kernel_find_in(kernels, sizeof kernels / sizeof *kernels, metric, type);
}
#endif
