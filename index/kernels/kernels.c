/*
 * Choice of kernels, preparation of queries, and the walks over rows (scan, gather, tile) that all instruction sets
 * share; see kernels.h.
 *
 * A kernel supplies three shapes: one pair, a block of rows, and a tile of queries by rows. The walks feed them row
 * addresses, fill the last block or tile up by repeating its last row or query, and prefetch. A pair is computed the
 * same way in each shape, so the shape does not show in the result.
 *
 * Threads: pure functions.
 */
#include "index/kernels/kernels.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "index/kernels/kernel_parts.h"

enum {
  MAX_BLOCK_ROWS = 16, /* bounds of struct kernel's counts */
  MAX_TILE_QUERIES = 4,
  MAX_TILE_ROWS = 4,
  TILE_ROWS = 64,             /* rows that stay in the first-level cache for all queries: at most this many */
  TILE_ROWS_BYTES = 24 << 10, /* and at most these bytes, unless one tile needs more */
  SCAN_AHEAD_BYTES = 8192,    /* how far ahead of the block at work a scan prefetches */
  GATHER_AHEAD_BYTES = 4096,  /* the same for a gather, at least one block */
  GATHER_ROW_BYTES = 4096,    /* what is prefetched of a row; the hardware follows from there */
  LINE_BYTES = 64,
  SCRATCH_ALIGNMENT = 64,
  WIDENED_MULTIPLE = 32, /* components to which a widened query is padded */
};

/* ---- instruction sets ---- */

#if defined(__x86_64__)
/* F16C has no name in every compiler's __builtin_cpu_supports. Its registers are AVX's, which is asked there. */
static bool has_f16c(void) {
  unsigned eax, ebx, ecx, edx;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_F16C) != 0;
}

static bool has_avx2(void) {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("popcnt") && has_f16c();
}

static bool has_avx512(void) {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512vpopcntdq") &&
         has_avx2();
}
#endif

bool kernel_isa_available(enum kernel_isa isa) {
  switch (isa) {
  case KERNEL_AUTO:
  case KERNEL_PORTABLE: return true;
#if defined(__x86_64__)
  case KERNEL_AVX2: return has_avx2();
  case KERNEL_AVX512: return has_avx512();
  case KERNEL_NEON: return false;
#elif defined(__aarch64__)
  case KERNEL_AVX2:
  case KERNEL_AVX512: return false;
  case KERNEL_NEON: return true;
#else
  case KERNEL_AVX2:
  case KERNEL_AVX512:
  case KERNEL_NEON: return false;
#endif
  }
  return false;
}

enum kernel_isa kernel_isa_best(void) {
  if (kernel_isa_available(KERNEL_AVX512))
    return KERNEL_AVX512;
  if (kernel_isa_available(KERNEL_AVX2))
    return KERNEL_AVX2;
  if (kernel_isa_available(KERNEL_NEON))
    return KERNEL_NEON;
  return KERNEL_PORTABLE;
}

const char *kernel_isa_name(enum kernel_isa isa) {
  switch (isa) {
  case KERNEL_AUTO: return "auto";
  case KERNEL_PORTABLE: return "portable";
  case KERNEL_AVX2: return "avx2";
  case KERNEL_AVX512: return "avx512";
  case KERNEL_NEON: return "neon";
  }
  return "unknown";
}

#if defined(__x86_64__)
static const struct kernel *find_avx2(turb_metric metric, turb_type type) {
  const struct kernel *kernel = kernel_find_float_avx2(metric, type);
  if (kernel == NULL)
    kernel = kernel_find_integer_avx2(metric, type);
  return kernel ? kernel : kernel_find_bits_avx2(metric, type);
}

static const struct kernel *find_avx512(turb_metric metric, turb_type type) {
  const struct kernel *kernel = kernel_find_float_avx512(metric, type);
  if (kernel == NULL)
    kernel = kernel_find_integer_avx512(metric, type);
  return kernel ? kernel : kernel_find_bits_avx512(metric, type);
}
#endif

const struct kernel *kernel_choose(turb_metric metric, turb_type type, enum kernel_isa isa) {
  if (isa == KERNEL_AUTO)
    isa = kernel_isa_best();
  if (!kernel_isa_available(isa))
    return NULL;
  switch (isa) {
#if defined(__x86_64__)
  case KERNEL_AVX2: return find_avx2(metric, type);
  case KERNEL_AVX512: return find_avx512(metric, type);
#elif defined(__aarch64__)
  case KERNEL_NEON: return kernel_find_neon(metric, type);
#endif
  default: return kernel_find_portable(metric, type);
  }
}

/* ---- queries ---- */

size_t kernel_query_scratch_bytes(const struct kernel *kernel, size_t dimension) {
  if (kernel->preparation == KERNEL_BORROWED)
    return 0;
  size_t padded = (dimension + WIDENED_MULTIPLE - 1) / WIDENED_MULTIPLE * WIDENED_MULTIPLE;
  return padded * sizeof(float) + SCRATCH_ALIGNMENT;
}

/* Sorts each group of 2 * half components into the even ones and the odd ones. */
static void split_even_odd(float *values, size_t count, size_t half) {
  float odd[16];
  for (size_t group = 0; group < count; group += 2 * half) {
    float *at = values + group;
    for (size_t i = 0; i < half; i++) {
      odd[i] = at[2 * i + 1];
      at[i] = at[2 * i];
    }
    memcpy(at + half, odd, half * sizeof *odd);
  }
}

static const void *widen_query(const struct kernel *kernel, const void *vector, size_t dimension, void *scratch) {
  uintptr_t address = ((uintptr_t)scratch + SCRATCH_ALIGNMENT - 1) & ~(uintptr_t)(SCRATCH_ALIGNMENT - 1);
  float *values = (float *)address;
  size_t padded = (dimension + WIDENED_MULTIPLE - 1) / WIDENED_MULTIPLE * WIDENED_MULTIPLE;
  vector_to_f32(kernel->type, vector, dimension, values);
  for (size_t i = dimension; i < padded; i++)
    values[i] = 0;
  if (kernel->preparation == KERNEL_SPLIT16)
    split_even_odd(values, padded, 8);
  if (kernel->preparation == KERNEL_SPLIT32)
    split_even_odd(values, padded, 16);
  return values;
}

/* The row's components are offset by 128 to suit a product of unsigned and signed bytes: i8 as unsigned r + 128, u8 as
 * signed r - 128. This gives the 128 times the query's sum back. */
static uint32_t offset_bias(turb_type type, const unsigned char *vector, size_t dimension) {
  int32_t sum = 0;
  for (size_t i = 0; i < dimension; i++)
    sum += type == TURB_U8 ? (int32_t)vector[i] : (int32_t)(int8_t)vector[i];
  return type == TURB_U8 ? (uint32_t)sum * 128 : 0u - (uint32_t)sum * 128;
}

void kernel_query_init(struct kernel_query *query, const struct kernel *kernel, const void *vector, size_t dimension, void *scratch) {
  bool integer = kernel->type == TURB_I8 || kernel->type == TURB_U8;
  *query = (struct kernel_query){.kernel = kernel,
                                 .vector = vector,
                                 .prepared = vector,
                                 .dimension = dimension,
                                 .row_bytes = vector_row_bytes(kernel->type, dimension)};
  if (kernel->preparation != KERNEL_BORROWED)
    query->prepared = widen_query(kernel, vector, dimension, scratch);
  if (integer)
    query->bias = offset_bias(kernel->type, vector, dimension);
  if (kernel->metric == TURB_COSINE || (integer && kernel->metric == TURB_L2)) {
    query->norm_squared = kernel->norm_squared(vector, dimension);
  }
  bool trusted = query->norm_squared >= (double)KERNEL_NORM_MIN && query->norm_squared <= (double)KERNEL_NORM_MAX;
  if (kernel->metric == TURB_COSINE && !integer && !trusted)
    query->norm_squared = INFINITY;
}

/* ---- slow paths ---- */

float kernel_cosine_distance(double dot, double norm_product) {
  if (norm_product == 0)
    return 1;
  double distance = 1 - dot / sqrt(norm_product);
  distance = distance > 0 ? distance : 0;
  return (float)(distance < 2 ? distance : 2);
}

float kernel_distance_in_double(const struct kernel_query *query, const void *row) {
  enum { GROUP = 64 };
  turb_type type = query->kernel->type;
  size_t component_bytes = vector_component_bytes(type);
  const unsigned char *left = query->vector, *right = row;
  float q[GROUP], r[GROUP];
  double dot = 0, left_squared = 0, right_squared = 0;
  for (size_t i = 0; i < query->dimension; i += GROUP) {
    size_t count = query->dimension - i < GROUP ? query->dimension - i : GROUP;
    vector_to_f32(type, left + i * component_bytes, count, q);
    vector_to_f32(type, right + i * component_bytes, count, r);
    for (size_t j = 0; j < count; j++) {
      dot += (double)q[j] * (double)r[j];
      left_squared += (double)q[j] * (double)q[j];
      right_squared += (double)r[j] * (double)r[j];
    }
  }
  if (query->kernel->metric == TURB_COSINE)
    return kernel_cosine_distance(dot, left_squared * right_squared);
  if (dot > (double)FLT_MAX)
    return -INFINITY;
  if (dot < -(double)FLT_MAX)
    return INFINITY;
  return (float)(0 - dot);
}

/* ---- scan and gather ---- */

static inline void prefetch_bytes(const char *from, size_t bytes) {
  for (size_t offset = 0; offset < bytes; offset += LINE_BYTES)
    __builtin_prefetch(from + offset, 0, 3);
}

/* The rows that are left after the last whole block: the last one fills a block up. */
static void last_rows(const struct kernel_query *query, const void *const *rows, size_t count, float *distances) {
  const struct kernel *kernel = query->kernel;
  const void *filled[MAX_BLOCK_ROWS];
  float results[MAX_BLOCK_ROWS];
  if (kernel->block == NULL || count <= kernel->block_rows / 4) {
    for (size_t i = 0; i < count; i++)
      distances[i] = kernel->one(query, rows[i]);
    return;
  }
  for (size_t i = 0; i < kernel->block_rows; i++)
    filled[i] = rows[i < count ? i : count - 1];
  kernel->block(query, filled, results);
  memcpy(distances, results, count * sizeof *distances);
}

void kernel_gather(const struct kernel_query *query, const void *const *rows, size_t count, float *distances) {
  const struct kernel *kernel = query->kernel;
  size_t together = kernel->block ? kernel->block_rows : 1;
  size_t bytes = query->row_bytes < GATHER_ROW_BYTES ? query->row_bytes : GATHER_ROW_BYTES;
  size_t ahead = GATHER_AHEAD_BYTES / query->row_bytes;
  if (ahead < together)
    ahead = together;
  for (size_t i = 0; i < ahead && i < count; i++)
    prefetch_bytes(rows[i], bytes);
  for (size_t i = 0; i < count; i += together) {
    for (size_t j = i + ahead; j < i + ahead + together && j < count; j++)
      prefetch_bytes(rows[j], bytes);
    if (kernel->block && count - i >= together)
      kernel->block(query, rows + i, distances + i);
    else
      last_rows(query, rows + i, count - i < together ? count - i : together, distances + i);
  }
}

void kernel_scan(const struct kernel_query *query, const void *rows, size_t stride_bytes, size_t count, float *distances) {
  const struct kernel *kernel = query->kernel;
  const char *base = rows;
  if (kernel->strip) {
    const size_t strips = count / kernel->block_rows;
    for (size_t i = 0; i < strips; i++, base += kernel->block_rows * stride_bytes, distances += kernel->block_rows)
      kernel->strip(query, base, stride_bytes, distances);
    count -= strips * kernel->block_rows;
  }
  size_t together = kernel->block ? kernel->block_rows : 1;
  size_t block_bytes = together * stride_bytes;
  for (size_t i = 0; i < count; i += together) {
    const void *pointers[MAX_BLOCK_ROWS];
    size_t few = count - i < together ? count - i : together;
    size_t coming = SCAN_AHEAD_BYTES / stride_bytes + together;
    for (size_t j = 0; j < few; j++)
      pointers[j] = base + (i + j) * stride_bytes;
    if (count - i > coming + together)
      prefetch_bytes(base + (i + coming) * stride_bytes, block_bytes);
    if (kernel->block && few == together)
      kernel->block(query, pointers, distances + i);
    else
      last_rows(query, pointers, few, distances + i);
  }
}

/* ---- tile ---- */

/* One tile, written straight to its place where it is full. */
static void one_tile(const struct kernel_query *const *queries, size_t query_count, const void *const *rows, size_t row_count,
                     const double *norms, float *distances, size_t distances_stride) {
  const struct kernel *kernel = queries[0]->kernel;
  if (query_count == kernel->tile_queries && row_count == kernel->tile_rows) {
    kernel->pairs(queries, rows, norms, distances, distances_stride);
    return;
  }
  const struct kernel_query *filled_queries[MAX_TILE_QUERIES];
  const void *filled_rows[MAX_TILE_ROWS];
  double filled_norms[MAX_TILE_ROWS];
  float results[MAX_TILE_QUERIES * MAX_TILE_ROWS];
  for (size_t i = 0; i < kernel->tile_queries; i++)
    filled_queries[i] = queries[i < query_count ? i : query_count - 1];
  for (size_t i = 0; i < kernel->tile_rows; i++) {
    filled_rows[i] = rows[i < row_count ? i : row_count - 1];
    filled_norms[i] = norms[i < row_count ? i : row_count - 1];
  }
  kernel->pairs(filled_queries, filled_rows, filled_norms, results, kernel->tile_rows);
  for (size_t q = 0; q < query_count; q++) {
    memcpy(distances + q * distances_stride, results + q * kernel->tile_rows, row_count * sizeof *results);
  }
}

/* At most TILE_ROWS rows against all queries, tile by tile. */
static void tile_rows(const struct kernel_query *const *queries, size_t query_count, const void *const *rows, size_t row_count,
                      float *distances, size_t distances_stride) {
  const struct kernel *kernel = queries[0]->kernel;
  double norms[TILE_ROWS] = {0};
  if (kernel->tile_norms) {
    for (size_t r = 0; r < row_count; r++)
      norms[r] = kernel->norm_squared(rows[r], queries[0]->dimension);
  }
  for (size_t q = 0; q < query_count; q += kernel->tile_queries) {
    size_t some = query_count - q < kernel->tile_queries ? query_count - q : kernel->tile_queries;
    for (size_t r = 0; r < row_count; r += kernel->tile_rows) {
      size_t few = row_count - r < kernel->tile_rows ? row_count - r : kernel->tile_rows;
      one_tile(queries + q, some, rows + r, few, norms + r, distances + q * distances_stride + r, distances_stride);
    }
  }
}

void kernel_tile(const struct kernel_query *const *queries, size_t query_count, const void *rows, size_t stride_bytes, size_t row_count,
                 float *distances, size_t distances_stride) {
  if (query_count == 0)
    return;
  const struct kernel *kernel = queries[0]->kernel;
  if (kernel->pairs == NULL || query_count == 1) {
    for (size_t q = 0; q < query_count; q++) {
      kernel_scan(queries[q], rows, stride_bytes, row_count, distances + q * distances_stride);
    }
    return;
  }
  const void *pointers[TILE_ROWS] = {NULL};
  size_t together = TILE_ROWS_BYTES / queries[0]->row_bytes / kernel->tile_rows * kernel->tile_rows;
  size_t most = TILE_ROWS / kernel->tile_rows * kernel->tile_rows;
  if (together < kernel->tile_rows)
    together = kernel->tile_rows;
  if (together > most)
    together = most;
  for (size_t first = 0; first < row_count; first += together) {
    size_t part = row_count - first < together ? row_count - first : together;
    for (size_t i = 0; i < part; i++)
      pointers[i] = (const char *)rows + (first + i) * stride_bytes;
    tile_rows(queries, query_count, pointers, part, distances + first, distances_stride);
  }
}
