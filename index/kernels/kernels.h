/*
 * Distance kernels: one query against rows, in portable, AVX2, AVX-512 and NEON form, chosen at run time.
 *
 *   const struct kernel *kernel = kernel_choose(TURB_L2, TURB_F32, KERNEL_AUTO);
 *   struct kernel_query query;
 *   kernel_query_init(&query, kernel, vector, dimension, scratch);   scratch: kernel_query_scratch_bytes()
 *   kernel_scan(&query, rows, stride, count, distances);
 *
 * Distances are floats, smaller is nearer:
 *   L2 sum (q-r)^2    INNER_PRODUCT -sum q*r    COSINE 1 - q.r/(|q||r|)    MANHATTAN sum |q-r|    HAMMING differing bits
 * COSINE lies in [0, 2], is exactly 1 when either vector is zero and exactly 0 for a row that equals the query.
 *
 * Rows are as they were put (f32, f16, bf16, i8, u8, packed bits), may start at any address, and nothing beyond the
 * row's bytes is read. Of the last byte of a bit row only the low dimension % 8 bits count, where that is not 0.
 *
 * Rounding, with u = 2^-24 and E = (dimension / 8 + 16) u, against the exact value:
 *   L2, INNER_PRODUCT, MANHATTAN of f32, f16, bf16   at most E times the sum of the terms' absolute values
 *   COSINE of f32, f16, bf16                         at most 2E, absolutely
 *   i8, u8, bits: sums are exact, the result is rounded once (COSINE in double); every instruction set gives the same bits
 * (For f32 and bf16, terms below 2^-126 add up to dimension * 2^-149.) Products of f16 and bf16 components are exact in
 * f32 and summed as f32 are.
 *
 * Finite inputs never give NaN. L2 and MANHATTAN become +inf where the sum leaves the range of a float. INNER_PRODUCT
 * whose f32 sums overflow, and COSINE whose f32 sums overflow or come near underflow, are computed again in double (slow,
 * and right: only an inner product that itself leaves the range of a float is ±inf). What NaN or infinite components
 * give is not stated.
 *
 * Invariants
 *   1. one, scan, gather and tile give the same bits for the same pair under one instruction set: a pair's terms are
 *      summed in an order that depends on the dimension alone.
 *   2. Kernels are constants; nothing here has mutable state or allocates.
 *
 * Threads: any number; a prepared query is read only.
 */
#ifndef TURB_INDEX_KERNELS_KERNELS_H
#define TURB_INDEX_KERNELS_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "index/kernels/convert.h"
#include "turbidite/turbidite.h"

enum kernel_isa { KERNEL_AUTO, KERNEL_PORTABLE, KERNEL_AVX2, KERNEL_AVX512, KERNEL_NEON };

/* The best instruction set that processor and operating system offer. AVX2 stands for AVX2, FMA, F16C and POPCNT;
 * AVX512 for these and F, BW, DQ, VL, VNNI and VPOPCNTDQ (not BF16, which Ice Lake lacks). Never KERNEL_AUTO. */
enum kernel_isa kernel_isa_best(void);
bool kernel_isa_available(enum kernel_isa isa);
/* "auto", "portable", "avx2", "avx512", "neon". */
const char *kernel_isa_name(enum kernel_isa isa);

struct kernel_query;

/* How kernel_query_init prepares the query. */
enum kernel_preparation {
  KERNEL_BORROWED, /* as it is */
  KERNEL_WIDENED,  /* f32, padded with zeros to 32 */
  KERNEL_SPLIT16,  /* the same, and each 16 components stored as 8 even ones, 8 odd ones */
  KERNEL_SPLIT32,  /* each 32 as 16 even ones, 16 odd ones */
};

/*
 * The functions below the line are the parts of which kernels.c makes scan, gather and tile; call those instead.
 * block: block_rows rows. strip: as many, side by side at a stride.
 * pairs: tile_queries queries times tile_rows rows into distances[query * distances_stride + row];
 * norms holds the rows' squared norms where tile_norms is set. Each may be NULL (then block or `one` serves).
 */
struct kernel {
  const char *name; /* "l2 f32 avx512" */
  turb_metric metric;
  turb_type type;
  enum kernel_isa isa;

  float (*one)(const struct kernel_query *query, const void *row);

  enum kernel_preparation preparation;
  unsigned block_rows, tile_queries, tile_rows;
  bool tile_norms;
  void (*block)(const struct kernel_query *query, const void *const *rows, float *distances);
  void (*strip)(const struct kernel_query *query, const void *rows, size_t stride_bytes, float *distances);
  void (*pairs)(const struct kernel_query *const *queries, const void *const *rows, const double *norms, float *distances,
                size_t distances_stride);
  double (*norm_squared)(const void *row, size_t dimension); /* NULL for bits */
};

/* NULL for an illegal pair of metric and type and for an instruction set that is not available here. */
const struct kernel *kernel_choose(turb_metric metric, turb_type type, enum kernel_isa isa);

struct kernel_query {
  const struct kernel *kernel;
  const void *vector;   /* the caller's, in the element type */
  const void *prepared; /* vector, or the caller's scratch */
  size_t dimension, row_bytes;
  double norm_squared; /* COSINE and integer L2; +inf where f32 sums cannot be trusted for COSINE */
  uint32_t bias;       /* integers: what offsetting the row by 128 takes from the dot product, modulo 2^32 */
};

/* 0 for f32, i8, u8 and bits. */
size_t kernel_query_scratch_bytes(const struct kernel *kernel, size_t dimension);

/* `vector` (any alignment; 64 is best) and `scratch` (any alignment; NULL where no bytes are needed) are borrowed until
 * the query's last use. dimension is 1 to 65,536. */
void kernel_query_init(struct kernel_query *query, const struct kernel *kernel, const void *vector, size_t dimension, void *scratch);

static inline float kernel_one(const struct kernel_query *query, const void *row) {
  return query->kernel->one(query, row);
}

/* `count` rows, `stride_bytes` apart (at least the row's bytes). */
void kernel_scan(const struct kernel_query *query, const void *rows, size_t stride_bytes, size_t count, float *distances);

/* Rows anywhere; later rows are prefetched while earlier ones are worked on. */
void kernel_gather(const struct kernel_query *query, const void *const *rows, size_t count, float *distances);

/*
 * Several queries against rows at a stride: distances[query * distances_stride + row]. The queries share one kernel and
 * dimension. Each row that is loaded serves several queries and the reverse; rows stay in the first-level cache for all
 * queries, so pass as many queries as there are.
 */
void kernel_tile(const struct kernel_query *const *queries, size_t query_count, const void *rows, size_t stride_bytes, size_t row_count,
                 float *distances, size_t distances_stride);

#endif
