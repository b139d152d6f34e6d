/*
 * The ends of the x86 kernels: four sums become four distances. Included by the AVX2 and AVX-512 files alone.
 *
 * Lane i belongs to query queries[i * query_step] and row rows[i * row_step]: steps (0, 1) for a block of rows, (1, 0) for
 * one row of a tile.
 *
 * Threads: pure functions.
 */
#ifndef TURB_INDEX_KERNELS_X86_PARTS_H
#define TURB_INDEX_KERNELS_X86_PARTS_H

#include <immintrin.h>

#include "index/kernels/kernel_parts.h"

/*
 * A value that the compiler must keep in a register: it would otherwise load a query's components again for each row of a
 * tile, and loads are what a tile has too many of.
 */
#define KERNEL_KEEP(value) __asm__("" : "+v"(value))

/* Which four pairs the lanes are. */
struct lanes {
  const struct kernel_query *const *queries;
  const void *const *rows;
  size_t query_step, row_step;
};

/* The lanes of `mask` once more, slowly. */
static inline void lanes_in_double(const struct lanes *lanes, int mask, float *distances) {
  for (size_t i = 0; i < 4; i++) {
    if (mask >> i & 1) {
      distances[i] = kernel_distance_in_double(lanes->queries[i * lanes->query_step], lanes->rows[i * lanes->row_step]);
    }
  }
}

/* As kernel_cosine_distance, bit for bit. */
KERNEL_INLINE __m128 cosine_four(__m256d dots, __m256d products) {
  const __m256d one = _mm256_set1_pd(1);
  __m256d cosine = _mm256_div_pd(dots, _mm256_sqrt_pd(products));
  __m256d distance = _mm256_min_pd(_mm256_max_pd(_mm256_sub_pd(one, cosine), _mm256_setzero_pd()), _mm256_set1_pd(2));
  __m256d none = _mm256_cmp_pd(products, _mm256_setzero_pd(), _CMP_EQ_OQ);
  return _mm256_cvtpd_ps(_mm256_blendv_pd(distance, one, none));
}

/* Squared f32 norms that COSINE cannot trust become infinite, which the products of norms show. */
KERNEL_INLINE __m256d trusted_norms(__m128 norms) {
  __m128 high = _mm_cmp_ps(norms, _mm_set1_ps(KERNEL_NORM_MAX), _CMP_LE_OQ);
  __m128 low = _mm_cmp_ps(norms, _mm_set1_ps(KERNEL_NORM_MIN), _CMP_GE_OQ);
  __m128 trusted = _mm_and_ps(high, low);
  return _mm256_cvtps_pd(_mm_blendv_ps(_mm_set1_ps(__builtin_inff()), norms, trusted));
}

/* `products` of squared norms are for COSINE alone. */
KERNEL_INLINE void finish_floats(turb_metric metric, const struct lanes *lanes, __m128 sums, __m256d products, float *distances) {
  int doubtful = 0;
  if (metric == TURB_L2 || metric == TURB_MANHATTAN) {
    _mm_storeu_ps(distances, sums);
    return;
  }
  if (metric == TURB_INNER_PRODUCT) {
    _mm_storeu_ps(distances, _mm_sub_ps(_mm_setzero_ps(), sums));
    __m128 zero = _mm_sub_ps(sums, sums); /* NaN where not finite */
    doubtful = _mm_movemask_ps(_mm_cmp_ps(zero, zero, _CMP_UNORD_Q));
  } else {
    _mm_storeu_ps(distances, cosine_four(_mm256_cvtps_pd(sums), products));
    doubtful = _mm256_movemask_pd(_mm256_cmp_pd(products, _mm256_set1_pd(__builtin_inf()), _CMP_EQ_OQ));
  }
  if (__builtin_expect(doubtful != 0, 0))
    lanes_in_double(lanes, doubtful, distances);
}

/* Exact: the low 31 bits, and the top one apart. */
KERNEL_INLINE __m256d integers_to_double(__m128i values, bool is_signed) {
  __m256d low = _mm256_cvtepi32_pd(_mm_and_si128(values, _mm_set1_epi32(0x7fffffff)));
  __m256d top = _mm256_cvtepi32_pd(_mm_srai_epi32(values, 31));
  return _mm256_add_pd(low, _mm256_mul_pd(top, _mm256_set1_pd(is_signed ? 0x1p31 : -0x1p31)));
}

/* Sums modulo 2^32, which hold every result: only an i8 inner product is below zero. */
KERNEL_INLINE void finish_integers(turb_metric metric, turb_type type, __m128i sums, __m256d products, float *distances) {
  bool is_signed = type == TURB_I8 && (metric == TURB_INNER_PRODUCT || metric == TURB_COSINE);
  __m256d values = integers_to_double(sums, is_signed);
  if (metric == TURB_COSINE) {
    _mm_storeu_ps(distances, cosine_four(values, products));
    return;
  }
  if (metric == TURB_INNER_PRODUCT)
    values = _mm256_sub_pd(_mm256_setzero_pd(), values);
  _mm_storeu_ps(distances, _mm256_cvtpd_ps(values));
}

/* At most 63 bytes, into a buffer whose rest stays as it is. */
KERNEL_INLINE void copy_tail(unsigned char *to, const unsigned char *from, size_t bytes) {
  if (bytes & 32) {
    memcpy(to, from, 32);
    to += 32, from += 32;
  }
  if (bytes & 16) {
    memcpy(to, from, 16);
    to += 16, from += 16;
  }
  if (bytes & 8) {
    memcpy(to, from, 8);
    to += 8, from += 8;
  }
  if (bytes & 4) {
    memcpy(to, from, 4);
    to += 4, from += 4;
  }
  if (bytes & 2) {
    memcpy(to, from, 2);
    to += 2, from += 2;
  }
  if (bytes & 1)
    *to = *from;
}

#endif
