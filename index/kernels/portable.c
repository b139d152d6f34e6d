/*
 * Distance kernels in plain C, for any processor and as the reference that the others are compared with.
 *
 * Sums of floats run in 16 lanes: lane l takes the components l, l + 16, ...; then halves are added, 8, 4, 2, 1.
 * Rows are copied 16 components at a time into an array, so that their address does not matter.
 *
 * Threads: pure functions.
 */
#include <stdlib.h>

#include "index/kernels/kernel_parts.h"

enum { LANES = 16 };

/* ---- floats ---- */

/* `count` components from `index` on as floats, the rest of the lanes zero. */
KERNEL_INLINE void load_lanes(turb_type type, const unsigned char *row, size_t index, size_t count, float *lanes) {
  size_t bytes = vector_component_bytes(type);
  uint16_t halves[LANES] = {0};
  if (type == TURB_F32) {
    for (size_t i = 0; i < LANES; i++)
      lanes[i] = 0;
    memcpy(lanes, row + index * bytes, count * bytes);
    return;
  }
  memcpy(halves, row + index * bytes, count * bytes);
  for (size_t i = 0; i < LANES; i++)
    lanes[i] = type == TURB_F16 ? f16_to_f32(halves[i]) : bf16_to_f32(halves[i]);
}

static float add_lanes(const float *lanes) {
  float sums[LANES];
  memcpy(sums, lanes, sizeof sums);
  for (size_t half = LANES / 2; half > 0; half /= 2) {
    for (size_t i = 0; i < half; i++)
      sums[i] += sums[i + half];
  }
  return sums[0];
}

KERNEL_INLINE void add_terms(turb_metric metric, const float *q, const float *r, float *sums) {
  for (size_t i = 0; i < LANES; i++) {
    float difference = q[i] - r[i];
    if (metric == TURB_L2)
      sums[i] += difference * difference;
    if (metric == TURB_MANHATTAN)
      sums[i] += __builtin_fabsf(difference);
    if (metric == TURB_INNER_PRODUCT || metric == TURB_COSINE)
      sums[i] += q[i] * r[i];
  }
}

KERNEL_INLINE float float_norm_squared(turb_type type, const unsigned char *row, size_t dimension) {
  float r[LANES], sums[LANES] = {0};
  for (size_t i = 0; i < dimension; i += LANES) {
    load_lanes(type, row, i, dimension - i < LANES ? dimension - i : LANES, r);
    add_terms(TURB_INNER_PRODUCT, r, r, sums);
  }
  return add_lanes(sums);
}

KERNEL_INLINE float float_distance(turb_metric metric, turb_type type, const struct kernel_query *query, const unsigned char *row) {
  float q[LANES], r[LANES], sums[LANES] = {0}, squares[LANES] = {0};
  for (size_t i = 0; i < query->dimension; i += LANES) {
    size_t count = query->dimension - i < LANES ? query->dimension - i : LANES;
    load_lanes(TURB_F32, query->prepared, i, count, q);
    load_lanes(type, row, i, count, r);
    add_terms(metric, q, r, sums);
    if (metric == TURB_COSINE)
      add_terms(TURB_INNER_PRODUCT, r, r, squares);
  }
  float sum = add_lanes(sums);
  if (metric == TURB_L2 || metric == TURB_MANHATTAN)
    return sum;
  if (metric == TURB_INNER_PRODUCT) {
    return __builtin_isfinite(sum) ? 0 - sum : kernel_distance_in_double(query, row);
  }
  float norm = add_lanes(squares);
  bool trusted = norm >= KERNEL_NORM_MIN && norm <= KERNEL_NORM_MAX && __builtin_isfinite(query->norm_squared);
  if (!trusted)
    return kernel_distance_in_double(query, row);
  return kernel_cosine_distance((double)sum, (double)norm * query->norm_squared);
}

/* ---- integers: at most 65,536 terms of at most 255^2, so that every sum fits 33 bits with its sign ---- */

KERNEL_INLINE int32_t integer_at(turb_type type, const unsigned char *row, size_t index) {
  return type == TURB_I8 ? (int32_t)(int8_t)row[index] : (int32_t)row[index];
}

KERNEL_INLINE int64_t integer_sum(turb_metric metric, turb_type type, const unsigned char *left, const unsigned char *right,
                                  size_t dimension) {
  int64_t total = 0;
  /* 32,768 products of two components stay within 31 bits. */
  for (size_t first = 0; first < dimension; first += 32768) {
    size_t end = dimension - first < 32768 ? dimension : first + 32768;
    int32_t sum = 0;
    for (size_t i = first; i < end; i++) {
      int32_t q = integer_at(type, left, i), r = integer_at(type, right, i);
      if (metric == TURB_L2)
        sum += (q - r) * (q - r);
      if (metric == TURB_MANHATTAN)
        sum += abs(q - r);
      if (metric == TURB_INNER_PRODUCT)
        sum += q * r;
    }
    total += sum;
  }
  return total;
}

KERNEL_INLINE float integer_distance(turb_metric metric, turb_type type, const struct kernel_query *query, const unsigned char *row) {
  if (metric == TURB_COSINE) {
    double dot = (double)integer_sum(TURB_INNER_PRODUCT, type, query->prepared, row, query->dimension);
    double norm = (double)integer_sum(TURB_INNER_PRODUCT, type, row, row, query->dimension);
    return kernel_cosine_distance(dot, norm * query->norm_squared);
  }
  float sum = (float)integer_sum(metric, type, query->prepared, row, query->dimension);
  return metric == TURB_INNER_PRODUCT ? 0 - sum : sum;
}

/* ---- bits ---- */

static uint64_t word_at(const unsigned char *row, size_t index) {
  uint64_t word;
  memcpy(&word, row + index, sizeof word);
  return word;
}

static float bits_distance(const struct kernel_query *query, const void *row) {
  const unsigned char *left = query->prepared, *right = row;
  size_t whole = query->dimension / 8, i = 0;
  uint32_t differing = kernel_tail_bits(query, row);
  for (; i + 8 <= whole; i += 8)
    differing += (uint32_t)__builtin_popcountll(word_at(left, i) ^ word_at(right, i));
  for (; i < whole; i++)
    differing += (uint32_t)__builtin_popcount((unsigned)(left[i] ^ right[i]));
  return (float)differing;
}

/* ---- the kernels ---- */

#define PORTABLE(id, family, metric_, type_)                                                                                               \
  static float id##_one(const struct kernel_query *query, const void *row) {                                                               \
    return family##_distance(metric_, type_, query, row);                                                                                  \
  }

static double f32_norm(const void *row, size_t n) {
  return (double)float_norm_squared(TURB_F32, row, n);
}
static double f16_norm(const void *row, size_t n) {
  return (double)float_norm_squared(TURB_F16, row, n);
}
static double bf16_norm(const void *row, size_t n) {
  return (double)float_norm_squared(TURB_BF16, row, n);
}
static double i8_norm(const void *row, size_t n) {
  return (double)integer_sum(TURB_INNER_PRODUCT, TURB_I8, row, row, n);
}
static double u8_norm(const void *row, size_t n) {
  return (double)integer_sum(TURB_INNER_PRODUCT, TURB_U8, row, row, n);
}

PORTABLE(l2_f32, float, TURB_L2, TURB_F32)
PORTABLE(l2_f16, float, TURB_L2, TURB_F16)
PORTABLE(l2_bf16, float, TURB_L2, TURB_BF16)
PORTABLE(l2_i8, integer, TURB_L2, TURB_I8)
PORTABLE(l2_u8, integer, TURB_L2, TURB_U8)
PORTABLE(ip_f32, float, TURB_INNER_PRODUCT, TURB_F32)
PORTABLE(ip_f16, float, TURB_INNER_PRODUCT, TURB_F16)
PORTABLE(ip_bf16, float, TURB_INNER_PRODUCT, TURB_BF16)
PORTABLE(ip_i8, integer, TURB_INNER_PRODUCT, TURB_I8)
PORTABLE(ip_u8, integer, TURB_INNER_PRODUCT, TURB_U8)
PORTABLE(cosine_f32, float, TURB_COSINE, TURB_F32)
PORTABLE(cosine_f16, float, TURB_COSINE, TURB_F16)
PORTABLE(cosine_bf16, float, TURB_COSINE, TURB_BF16)
PORTABLE(cosine_i8, integer, TURB_COSINE, TURB_I8)
PORTABLE(cosine_u8, integer, TURB_COSINE, TURB_U8)
PORTABLE(l1_f32, float, TURB_MANHATTAN, TURB_F32)
PORTABLE(l1_f16, float, TURB_MANHATTAN, TURB_F16)
PORTABLE(l1_bf16, float, TURB_MANHATTAN, TURB_BF16)
PORTABLE(l1_i8, integer, TURB_MANHATTAN, TURB_I8)
PORTABLE(l1_u8, integer, TURB_MANHATTAN, TURB_U8)

#define ENTRY(text, metric_, type_, prepare, function, norm)                                                                               \
  {                                                                                                                                        \
    .name = text " portable", .metric = metric_, .type = type_, .isa = KERNEL_PORTABLE, .preparation = prepare, .one = function,           \
    .block_rows = 1, .tile_queries = 1, .tile_rows = 1, .norm_squared = norm                                                               \
  }

static const struct kernel kernels[] = {
    ENTRY("l2 f32", TURB_L2, TURB_F32, KERNEL_BORROWED, l2_f32_one, f32_norm),
    ENTRY("l2 f16", TURB_L2, TURB_F16, KERNEL_WIDENED, l2_f16_one, f16_norm),
    ENTRY("l2 bf16", TURB_L2, TURB_BF16, KERNEL_WIDENED, l2_bf16_one, bf16_norm),
    ENTRY("l2 i8", TURB_L2, TURB_I8, KERNEL_BORROWED, l2_i8_one, i8_norm),
    ENTRY("l2 u8", TURB_L2, TURB_U8, KERNEL_BORROWED, l2_u8_one, u8_norm),
    ENTRY("inner product f32", TURB_INNER_PRODUCT, TURB_F32, KERNEL_BORROWED, ip_f32_one, f32_norm),
    ENTRY("inner product f16", TURB_INNER_PRODUCT, TURB_F16, KERNEL_WIDENED, ip_f16_one, f16_norm),
    ENTRY("inner product bf16", TURB_INNER_PRODUCT, TURB_BF16, KERNEL_WIDENED, ip_bf16_one, bf16_norm),
    ENTRY("inner product i8", TURB_INNER_PRODUCT, TURB_I8, KERNEL_BORROWED, ip_i8_one, i8_norm),
    ENTRY("inner product u8", TURB_INNER_PRODUCT, TURB_U8, KERNEL_BORROWED, ip_u8_one, u8_norm),
    ENTRY("cosine f32", TURB_COSINE, TURB_F32, KERNEL_BORROWED, cosine_f32_one, f32_norm),
    ENTRY("cosine f16", TURB_COSINE, TURB_F16, KERNEL_WIDENED, cosine_f16_one, f16_norm),
    ENTRY("cosine bf16", TURB_COSINE, TURB_BF16, KERNEL_WIDENED, cosine_bf16_one, bf16_norm),
    ENTRY("cosine i8", TURB_COSINE, TURB_I8, KERNEL_BORROWED, cosine_i8_one, i8_norm),
    ENTRY("cosine u8", TURB_COSINE, TURB_U8, KERNEL_BORROWED, cosine_u8_one, u8_norm),
    ENTRY("manhattan f32", TURB_MANHATTAN, TURB_F32, KERNEL_BORROWED, l1_f32_one, f32_norm),
    ENTRY("manhattan f16", TURB_MANHATTAN, TURB_F16, KERNEL_WIDENED, l1_f16_one, f16_norm),
    ENTRY("manhattan bf16", TURB_MANHATTAN, TURB_BF16, KERNEL_WIDENED, l1_bf16_one, bf16_norm),
    ENTRY("manhattan i8", TURB_MANHATTAN, TURB_I8, KERNEL_BORROWED, l1_i8_one, i8_norm),
    ENTRY("manhattan u8", TURB_MANHATTAN, TURB_U8, KERNEL_BORROWED, l1_u8_one, u8_norm),
    ENTRY("hamming bits", TURB_HAMMING, TURB_BITS, KERNEL_BORROWED, bits_distance, NULL),
};

const struct kernel *kernel_find_portable(turb_metric metric, turb_type type) {
  return kernel_find_in(kernels, sizeof kernels / sizeof *kernels, metric, type);
}
