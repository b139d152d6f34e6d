/*
 * Distance kernels in plain C, for any processor and as the reference that the others are compared with.
 *
 * Sums of floats run in 16 lanes: lane l takes the components l, l + 16, ...; then halves are added, 8, 4, 2, 1. A tail goes
 * through a buffer of zeros.
 *
 * Threads: pure functions.
 */
#include "index/kernels/four.h"
#include "index/kernels/kernel_parts.h"

enum { STEP = 16, QUARTERS = 4 };

/* ---- floats ---- */

/* 16 components from `index` on: whole ones in place, the `count` last ones copied to `tail` with zeros behind them. */
KERNEL_INLINE const unsigned char *whole_step(turb_type type, const void *row, size_t index, size_t count, unsigned char *tail) {
  size_t bytes = vector_component_bytes(type);
  const unsigned char *at = (const unsigned char *)row + index * bytes;
  if (count >= STEP)
    return at;
  memset(tail, 0, STEP * sizeof(float));
  memcpy(tail, at, count * bytes);
  return tail;
}

KERNEL_INLINE float add_lanes(const floats *sums) {
  floats all = (sums[0] + sums[2]) + (sums[1] + sums[3]);
  return (all[0] + all[2]) + (all[1] + all[3]);
}

KERNEL_INLINE floats add_terms(turb_metric metric, floats sum, floats q, floats r) {
  floats difference = q - r;
  if (metric == TURB_L2)
    return sum + difference * difference;
  if (metric == TURB_MANHATTAN)
    return sum + (floats)((ints)difference & 0x7fffffff);
  return sum + q * r;
}

KERNEL_INLINE float float_norm_squared(turb_type type, const void *row, size_t dimension) {
  unsigned char tail[STEP * sizeof(float)];
  floats sums[QUARTERS] = {{0}};
  size_t bytes = vector_component_bytes(type);
  for (size_t i = 0; i < dimension; i += STEP) {
    const unsigned char *at = whole_step(type, row, i, dimension - i, tail);
    KERNEL_UNROLL
    for (size_t k = 0; k < QUARTERS; k++) {
      floats r = four_load(type, at + k * FOUR * bytes);
      sums[k] = add_terms(TURB_INNER_PRODUCT, sums[k], r, r);
    }
  }
  return add_lanes(sums);
}

KERNEL_INLINE float float_distance(turb_metric metric, turb_type type, const struct kernel_query *query, const unsigned char *row) {
  unsigned char query_tail[STEP * sizeof(float)], row_tail[STEP * sizeof(float)];
  floats sums[QUARTERS] = {{0}}, squares[QUARTERS] = {{0}};
  size_t bytes = vector_component_bytes(type);
  for (size_t i = 0; i < query->dimension; i += STEP) {
    const unsigned char *left = whole_step(TURB_F32, query->prepared, i, query->dimension - i, query_tail);
    const unsigned char *right = whole_step(type, row, i, query->dimension - i, row_tail);
    KERNEL_UNROLL
    for (size_t k = 0; k < QUARTERS; k++) {
      floats q = four_load(TURB_F32, left + k * FOUR * sizeof(float)), r = four_load(type, right + k * FOUR * bytes);
      sums[k] = add_terms(metric, sums[k], q, r);
      if (metric == TURB_COSINE)
        squares[k] = add_terms(metric, squares[k], r, r);
    }
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

/*
 * ---- integers ----
 *
 * 16 bytes are taken as eight words, their even and their odd bytes. A squared difference and a product of u8 fit 16 bits
 * without a sign, a product of i8 with one; the words of that are taken apart again into 32-bit lanes, each of which receives at
 * most 16,384 terms up to 255^2: below 2^31.
 */
typedef int16_t words __attribute__((vector_size(16)));
typedef uint16_t unsigned_words __attribute__((vector_size(16)));

KERNEL_INLINE words load_words(const unsigned char *from) {
  words bytes;
  memcpy(&bytes, from, sizeof bytes);
  return bytes;
}

KERNEL_INLINE words even_bytes(turb_type type, words bytes) {
  return type == TURB_I8 ? (words)((unsigned_words)bytes << 8) >> 8 : bytes & 0xff;
}

KERNEL_INLINE words odd_bytes(turb_type type, words bytes) {
  return type == TURB_I8 ? bytes >> 8 : (words)((unsigned_words)bytes >> 8);
}

KERNEL_INLINE unsigned_words integer_terms(turb_metric metric, words q, words r) {
  words difference = q - r, sign = difference >> 15;
  if (metric == TURB_MANHATTAN)
    return (unsigned_words)((difference ^ sign) - sign);
  if (metric == TURB_L2)
    return (unsigned_words)difference * (unsigned_words)difference;
  return (unsigned_words)q * (unsigned_words)r;
}

/* `with_sign` only where terms are products of i8. */
KERNEL_INLINE uints add_words(bool with_sign, uints sum, unsigned_words terms) {
  if (with_sign)
    return sum + (uints)((ints)((uints)terms << 16) >> 16) + (uints)((ints)terms >> 16);
  return sum + ((uints)terms & 0xffff) + ((uints)terms >> 16);
}

KERNEL_INLINE int64_t integer_sum(turb_metric metric, turb_type type, const unsigned char *left, const unsigned char *right,
                                  size_t dimension) {
  bool with_sign = type == TURB_I8 && metric == TURB_INNER_PRODUCT;
  unsigned char left_tail[STEP * sizeof(float)], right_tail[STEP * sizeof(float)];
  uints even = {0}, odd = {0};
  int64_t total = 0;
  for (size_t i = 0; i < dimension; i += STEP) {
    words q = load_words(whole_step(type, left, i, dimension - i, left_tail));
    words r = load_words(whole_step(type, right, i, dimension - i, right_tail));
    even = add_words(with_sign, even, integer_terms(metric, even_bytes(type, q), even_bytes(type, r)));
    odd = add_words(with_sign, odd, integer_terms(metric, odd_bytes(type, q), odd_bytes(type, r)));
  }
  even += odd;
  for (size_t lane = 0; lane < FOUR; lane++)
    total += (int32_t)even[lane];
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
