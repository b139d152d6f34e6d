/*
 * Kernels and conversions (index/kernels/): every metric, type and available instruction set against sums in double, with
 * rows at any address whose last byte is followed by a page that must not be touched.
 *
 * A fixture holds ROWS rows at a stride and QUERIES queries, each run ending at its guard page.
 */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "index/kernels/kernels.h"
#include "tests/support/test.h"

enum { ROWS = 23, QUERIES = 6, LONG_ROWS = 6, LONG_QUERIES = 5 };

static const turb_type types[] = {TURB_F32, TURB_F16, TURB_BF16, TURB_I8, TURB_U8, TURB_BITS};
static const turb_metric metrics[] = {TURB_L2, TURB_INNER_PRODUCT, TURB_COSINE, TURB_MANHATTAN, TURB_HAMMING};
static const enum kernel_isa isas[] = {KERNEL_PORTABLE, KERNEL_AVX2, KERNEL_AVX512, KERNEL_NEON};

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* ---- memory that ends at a guard page ---- */

struct guarded {
  unsigned char *bytes;
  void *map;
  size_t map_bytes;
};

static struct guarded guarded_new(size_t bytes) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  size_t whole = (bytes + page - 1) / page * page;
  struct guarded guarded = {.map_bytes = whole + page};
  guarded.map = mmap(NULL, guarded.map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(guarded.map != MAP_FAILED);
  CHECK_EQ(mprotect((char *)guarded.map + whole, page, PROT_NONE), 0);
  guarded.bytes = (unsigned char *)guarded.map + (whole - bytes);
  return guarded;
}

static void guarded_free(struct guarded *guarded) {
  CHECK_EQ(munmap(guarded->map, guarded->map_bytes), 0);
}

/* ---- vectors ---- */

static void random_vector(struct random *random, turb_type type, size_t dimension, unsigned char *to) {
  float value;
  if (type == TURB_I8 || type == TURB_U8 || type == TURB_BITS) {
    for (size_t i = 0; i < vector_row_bytes(type, dimension); i++)
      to[i] = (unsigned char)random_u64(random);
    return;
  }
  size_t bytes = vector_component_bytes(type);
  for (size_t i = 0; i < dimension; i++) {
    value = 2 * random_float(random);
    CHECK_EQ(vector_from_f32(type, &value, 1, to + i * bytes), SIZE_MAX);
  }
}

/* One component, read without the code under test. */
static double component_at(turb_type type, const unsigned char *vector, size_t index) {
  uint16_t half;
  uint32_t word;
  float value;
  switch (type) {
  case TURB_F32: memcpy(&value, vector + 4 * index, sizeof value); return (double)value;
  case TURB_BF16:
    memcpy(&half, vector + 2 * index, sizeof half);
    word = (uint32_t)half << 16;
    memcpy(&value, &word, sizeof value);
    return (double)value;
  case TURB_F16: {
    memcpy(&half, vector + 2 * index, sizeof half);
    int exponent = half >> 10 & 31, fraction = half & 1023;
    double magnitude = exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
    return half & 0x8000 ? -magnitude : magnitude;
  }
  case TURB_I8: return (double)(int8_t)vector[index];
  case TURB_U8: return (double)vector[index];
  case TURB_BITS: return (double)(vector[index / 8] >> index % 8 & 1);
  }
  return 0;
}

struct reference {
  double distance;
  double tolerance;
};

static struct reference reference_distance(turb_metric metric, turb_type type, const unsigned char *q, const unsigned char *r,
                                           size_t dimension) {
  double sum = 0, absolute = 0, left = 0, right = 0;
  for (size_t i = 0; i < dimension; i++) {
    double a = component_at(type, q, i), b = component_at(type, r, i), term = fabs(a - b);
    if (metric == TURB_L2)
      term *= term;
    if (metric == TURB_INNER_PRODUCT || metric == TURB_COSINE)
      term = a * b;
    sum += term;
    absolute += fabs(term);
    left += a * a;
    right += b * b;
  }
  double unit = 0x1p-24, bound = ((double)dimension / 8 + 16) * unit;
  bool exact = type == TURB_I8 || type == TURB_U8 || type == TURB_BITS;
  if (metric == TURB_COSINE) {
    double product = left * right;
    double distance = product == 0 ? 1 : 1 - sum / sqrt(product);
    distance = fmin(fmax(distance, 0), 2);
    return (struct reference){distance, exact ? 2 * unit : 2 * bound};
  }
  if (metric == TURB_INNER_PRODUCT)
    sum = 0 - sum;
  return (struct reference){sum, exact ? 0 : bound * absolute + (double)dimension * 0x1p-149};
}

/* ---- a fixture ---- */

struct fixture {
  const struct kernel *kernel;
  size_t dimension, row_bytes, stride, row_count, query_count;
  struct guarded rows, vectors[QUERIES];
  struct kernel_query queries[QUERIES];
  const struct kernel_query *query_pointers[QUERIES];
  const void *row_pointers[ROWS];
  void *scratch[QUERIES];
};

static void fixture_prepare(struct fixture *fixture) {
  for (size_t i = 0; i < fixture->query_count; i++) {
    kernel_query_init(&fixture->queries[i], fixture->kernel, fixture->vectors[i].bytes, fixture->dimension,
                      fixture->scratch[i] ? (char *)fixture->scratch[i] + 1 + i : NULL);
  }
}

static void fixture_init(struct fixture *fixture, struct random *random, const struct kernel *kernel, size_t dimension) {
  bool is_long = dimension > 2000;
  size_t row_bytes = vector_row_bytes(kernel->type, dimension);
  *fixture = (struct fixture){.kernel = kernel,
                              .dimension = dimension,
                              .row_bytes = row_bytes,
                              .stride = row_bytes + random_below(random, 4) * (1 + random_below(random, 3)),
                              .row_count = is_long ? LONG_ROWS : ROWS,
                              .query_count = is_long ? LONG_QUERIES : QUERIES};
  fixture->rows = guarded_new(fixture->stride * (fixture->row_count - 1) + row_bytes);
  for (size_t i = 0; i < fixture->row_count; i++) {
    unsigned char *row = fixture->rows.bytes + i * fixture->stride;
    fixture->row_pointers[i] = row;
    random_vector(random, kernel->type, dimension, row);
  }
  for (size_t i = 0; i < fixture->query_count; i++) {
    size_t bytes = kernel_query_scratch_bytes(kernel, dimension);
    fixture->vectors[i] = guarded_new(row_bytes);
    random_vector(random, kernel->type, dimension, fixture->vectors[i].bytes);
    fixture->scratch[i] = bytes ? malloc(bytes + 1 + i) : NULL; /* at an odd address */
    fixture->query_pointers[i] = &fixture->queries[i];
  }
  fixture_prepare(fixture);
}

static void fixture_free(struct fixture *fixture) {
  guarded_free(&fixture->rows);
  for (size_t i = 0; i < fixture->query_count; i++) {
    guarded_free(&fixture->vectors[i]);
    free(fixture->scratch[i]);
  }
}

/* All ways of asking agree, bit for bit; returns distances[query * ROWS + row]. */
static void fixture_distances(const struct fixture *fixture, float *distances) {
  float scanned[ROWS + 1], gathered[ROWS + 1], tiled[QUERIES * ROWS];
  kernel_tile(fixture->query_pointers, fixture->query_count, fixture->rows.bytes, fixture->stride, fixture->row_count, tiled, ROWS);
  for (size_t q = 0; q < fixture->query_count; q++) {
    const struct kernel_query *query = &fixture->queries[q];
    float *line = distances + q * ROWS;
    for (size_t r = 0; r < fixture->row_count; r++)
      line[r] = kernel_one(query, fixture->row_pointers[r]);
    for (size_t count = 0; count <= fixture->row_count; count++) {
      scanned[count] = gathered[count] = -7;
      kernel_scan(query, fixture->rows.bytes, fixture->stride, count, scanned);
      kernel_gather(query, fixture->row_pointers, count, gathered);
      CHECK(scanned[count] == -7 && gathered[count] == -7);
      CHECK_MSG(memcmp(line, scanned, count * sizeof *line) == 0, "%s: scan of %zu, dimension %zu", fixture->kernel->name, count,
                fixture->dimension);
      CHECK_MSG(memcmp(line, gathered, count * sizeof *line) == 0, "%s: gather of %zu, dimension %zu", fixture->kernel->name, count,
                fixture->dimension);
    }
    CHECK_MSG(memcmp(line, tiled + q * ROWS, fixture->row_count * sizeof *line) == 0, "%s: tile, dimension %zu", fixture->kernel->name,
              fixture->dimension);
  }
}

static void fixture_check(const struct fixture *fixture, const float *distances) {
  const struct kernel *kernel = fixture->kernel;
  for (size_t q = 0; q < fixture->query_count; q++) {
    for (size_t r = 0; r < fixture->row_count; r++) {
      struct reference wanted =
          reference_distance(kernel->metric, kernel->type, fixture->vectors[q].bytes, fixture->row_pointers[r], fixture->dimension);
      double got = (double)distances[q * ROWS + r];
      if (wanted.tolerance == 0)
        wanted.distance = (double)(float)wanted.distance;
      CHECK_MSG(fabs(got - wanted.distance) <= wanted.tolerance, "%s: dimension %zu, query %zu, row %zu: %.9g, not %.9g +- %.3g",
                kernel->name, fixture->dimension, q, r, got, wanted.distance, wanted.tolerance);
    }
  }
}

/* Calls `run` for every kernel that this machine has. */
static void each_kernel(void (*run)(const struct kernel *kernel, struct random *random)) {
  struct random random;
  random_init(&random, test_seed());
  for (size_t i = 0; i < COUNT(isas); i++) {
    for (size_t m = 0; m < COUNT(metrics); m++) {
      for (size_t t = 0; t < COUNT(types); t++) {
        const struct kernel *kernel = kernel_choose(metrics[m], types[t], isas[i]);
        if (kernel)
          run(kernel, &random);
      }
    }
  }
}

static void check_dimension(const struct kernel *kernel, struct random *random, size_t dimension) {
  float distances[QUERIES * ROWS];
  struct fixture fixture;
  fixture_init(&fixture, random, kernel, dimension);
  fixture_distances(&fixture, distances);
  fixture_check(&fixture, distances);
  fixture_free(&fixture);
}

/* ---- choice ---- */

TEST(kernels, choose_knows_the_legal_pairs) {
  for (size_t i = 0; i < COUNT(isas); i++) {
    for (size_t m = 0; m < COUNT(metrics); m++) {
      for (size_t t = 0; t < COUNT(types); t++) {
        bool legal = (metrics[m] == TURB_HAMMING) == (types[t] == TURB_BITS);
        const struct kernel *kernel = kernel_choose(metrics[m], types[t], isas[i]);
        CHECK_EQ(kernel != NULL, legal && kernel_isa_available(isas[i]));
        if (kernel == NULL)
          continue;
        CHECK_EQ(kernel->metric, metrics[m]);
        CHECK_EQ(kernel->type, types[t]);
        CHECK_EQ(kernel->isa, isas[i]);
        CHECK(test_contains(kernel->name, kernel_isa_name(isas[i])));
      }
    }
  }
  CHECK(kernel_choose(TURB_L2, TURB_F32, KERNEL_AUTO) == kernel_choose(TURB_L2, TURB_F32, kernel_isa_best()));
  CHECK(kernel_choose((turb_metric)0, TURB_F32, KERNEL_AUTO) == NULL);
  CHECK(kernel_choose(TURB_L2, (turb_type)7, KERNEL_AUTO) == NULL);
  CHECK_NE(kernel_isa_best(), KERNEL_AUTO);
}

TEST(kernels, row_bytes) {
  CHECK_EQ(vector_row_bytes(TURB_F32, 3), 12);
  CHECK_EQ(vector_row_bytes(TURB_F16, 3), 6);
  CHECK_EQ(vector_row_bytes(TURB_BF16, 65536), 131072);
  CHECK_EQ(vector_row_bytes(TURB_I8, 7), 7);
  CHECK_EQ(vector_row_bytes(TURB_U8, 784), 784);
  CHECK_EQ(vector_row_bytes(TURB_BITS, 1), 1);
  CHECK_EQ(vector_row_bytes(TURB_BITS, 8), 1);
  CHECK_EQ(vector_row_bytes(TURB_BITS, 9), 2);
}

/* ---- against the reference ---- */

static void check_small(const struct kernel *kernel, struct random *random) {
  bool all = test_scale_kind() >= TEST_FULL;
  for (size_t dimension = 1; dimension <= 130; dimension += all || dimension < 36 ? 1 : 1 + random_below(random, 7)) {
    check_dimension(kernel, random, dimension);
  }
}

static void check_large(const struct kernel *kernel, struct random *random) {
  static const size_t dimensions[] = {255, 256, 511, 512, 767, 768, 784, 1000, 1024, 1536};
  for (size_t i = 0; i < COUNT(dimensions); i++)
    check_dimension(kernel, random, dimensions[i]);
}

static void check_largest(const struct kernel *kernel, struct random *random) {
  check_dimension(kernel, random, 65535);
  check_dimension(kernel, random, 65536);
}

TEST(kernels, small_dimensions_match_the_reference) {
  each_kernel(check_small);
}
TEST(kernels, usual_dimensions_match_the_reference) {
  each_kernel(check_large);
}
TEST(kernels, largest_dimension_matches_the_reference) {
  each_kernel(check_largest);
}

/* Integer and bit kernels give the same bits whatever the instruction set. */
TEST(kernels, integers_do_not_depend_on_the_instruction_set) {
  static const size_t dimensions[] = {1, 15, 100, 784, 65536};
  struct random random;
  random_init(&random, test_seed());
  for (size_t m = 0; m < COUNT(metrics); m++) {
    for (size_t t = 3; t < COUNT(types); t++) {
      const struct kernel *portable = kernel_choose(metrics[m], types[t], KERNEL_PORTABLE);
      for (size_t d = 0; portable && d < COUNT(dimensions); d++) {
        float first[QUERIES * ROWS] = {0}, other[QUERIES * ROWS] = {0};
        struct fixture fixture;
        fixture_init(&fixture, &random, portable, dimensions[d]);
        fixture_distances(&fixture, first);
        for (size_t i = 1; i < COUNT(isas); i++) {
          fixture.kernel = kernel_choose(metrics[m], types[t], isas[i]);
          if (fixture.kernel == NULL)
            continue;
          fixture_prepare(&fixture);
          fixture_distances(&fixture, other);
          CHECK_MSG(memcmp(first, other, sizeof first) == 0, "%s: dimension %zu", fixture.kernel->name, dimensions[d]);
        }
        fixture_free(&fixture);
      }
    }
  }
}

/* ---- extremes ---- */

static void fill_pattern(const struct fixture *fixture, unsigned char even, unsigned char odd, bool queries) {
  for (size_t i = 0; i < (queries ? fixture->query_count : fixture->row_count); i++) {
    memset(queries ? fixture->vectors[i].bytes : fixture->rows.bytes + i * fixture->stride, i % 2 ? odd : even, fixture->row_bytes);
  }
}

static void check_extremes(const struct kernel *kernel, struct random *random) {
  static const unsigned char patterns[][4] = {
      {0xff, 0x00, 0x00, 0xff}, {0x80, 0x7f, 0x7f, 0x80}, {0x80, 0x80, 0x80, 0x80}, {0xff, 0xff, 0xff, 0x7f}};
  float distances[QUERIES * ROWS];
  if (kernel->type != TURB_I8 && kernel->type != TURB_U8 && kernel->type != TURB_BITS)
    return;
  struct fixture fixture;
  fixture_init(&fixture, random, kernel, 65536);
  for (size_t i = 0; i < COUNT(patterns); i++) {
    fill_pattern(&fixture, patterns[i][0], patterns[i][1], true);
    fill_pattern(&fixture, patterns[i][2], patterns[i][3], false);
    fixture_prepare(&fixture);
    fixture_distances(&fixture, distances);
    fixture_check(&fixture, distances);
  }
  fixture_free(&fixture);
}

TEST(kernels, extreme_bytes_do_not_overflow) {
  each_kernel(check_extremes);
}

static void fill_floats(turb_type type, unsigned char *to, size_t dimension, float even, float odd) {
  size_t bytes = vector_component_bytes(type);
  for (size_t i = 0; i < dimension; i++) {
    CHECK_EQ(vector_from_f32(type, i % 2 ? &odd : &even, 1, to + i * bytes), SIZE_MAX);
  }
}

/* Sums that leave the range of f32 are not NaN, and come out right where the result is within it. */
static void check_huge(const struct kernel *kernel, struct random *random) {
  float distances[QUERIES * ROWS];
  struct fixture fixture;
  if (kernel->type != TURB_F32 && kernel->type != TURB_BF16)
    return;
  fixture_init(&fixture, random, kernel, 70);
  float huge = 0x1p127f;
  for (size_t q = 0; q < QUERIES; q++)
    fill_floats(kernel->type, fixture.vectors[q].bytes, 70, huge, q % 2 ? huge : -huge);
  for (size_t r = 0; r < ROWS; r++) {
    unsigned char *row = fixture.rows.bytes + r * fixture.stride;
    fill_floats(kernel->type, row, 70, r % 2 ? huge : -huge, r % 3 ? huge : -huge);
  }
  fixture_prepare(&fixture);
  fixture_distances(&fixture, distances);
  for (size_t q = 0; q < QUERIES; q++) {
    for (size_t r = 0; r < ROWS; r++) {
      float got = distances[q * ROWS + r];
      struct reference wanted = reference_distance(kernel->metric, kernel->type, fixture.vectors[q].bytes, fixture.row_pointers[r], 70);
      CHECK_MSG(!isnan(got), "%s", kernel->name);
      if (fabs(wanted.distance) > (double)FLT_MAX) {
        CHECK_MSG(isinf(got) && (got > 0) == (wanted.distance > 0), "%s: %g", kernel->name, (double)got);
      } else {
        CHECK_MSG(fabs((double)got - wanted.distance) <= fabs(wanted.distance) * 1e-6 + 1e-6, "%s: %g, not %g", kernel->name, (double)got,
                  wanted.distance);
      }
    }
  }
  fixture_free(&fixture);
}

TEST(kernels, overflow_is_never_nan) {
  each_kernel(check_huge);
}

/* Vectors whose squares underflow still have their angle. */
static void check_tiny(const struct kernel *kernel, struct random *random) {
  static const float sizes[] = {0x1p-149f, 0x1p-130f, 0x1p-80f, 0x1p-60f, 0x1p-20f, 0x1p60f, 0x1p100f};
  float distances[QUERIES * ROWS];
  if (kernel->metric != TURB_COSINE || kernel->type != TURB_F32)
    return;
  struct fixture fixture;
  fixture_init(&fixture, random, kernel, 37);
  for (size_t r = 0; r < ROWS; r++) {
    float size = sizes[r % COUNT(sizes)];
    fill_floats(kernel->type, fixture.rows.bytes + r * fixture.stride, 37, size, r % 2 ? size : -size);
  }
  for (size_t q = 0; q < QUERIES; q++) {
    fill_floats(kernel->type, fixture.vectors[q].bytes, 37, sizes[q % COUNT(sizes)], 2 * sizes[q % COUNT(sizes)]);
  }
  fixture_prepare(&fixture);
  fixture_distances(&fixture, distances);
  fixture_check(&fixture, distances);
  fixture_free(&fixture);
}

TEST(kernels, cosine_of_tiny_and_huge_vectors) {
  each_kernel(check_tiny);
}

static void check_zero_cosine(const struct kernel *kernel, struct random *random) {
  float distances[QUERIES * ROWS];
  if (kernel->metric != TURB_COSINE)
    return;
  for (size_t dimension = 1; dimension < 140; dimension += 23) {
    struct fixture fixture;
    fixture_init(&fixture, random, kernel, dimension);
    memset(fixture.vectors[1].bytes, 0, fixture.row_bytes);
    memset(fixture.rows.bytes + 2 * fixture.stride, 0, fixture.row_bytes);
    memset(fixture.rows.bytes + 5 * fixture.stride, 0, fixture.row_bytes);
    fixture.vectors[2].bytes[0] |= 1; /* not zero in any type */
    memcpy(fixture.rows.bytes + 7 * fixture.stride, fixture.vectors[2].bytes, fixture.row_bytes);
    fixture_prepare(&fixture);
    fixture_distances(&fixture, distances);
    for (size_t r = 0; r < ROWS; r++)
      CHECK(distances[ROWS + r] == 1);
    for (size_t q = 0; q < QUERIES; q++) {
      CHECK(distances[q * ROWS + 2] == 1);
      CHECK(distances[q * ROWS + 5] == 1);
    }
    CHECK_MSG(distances[2 * ROWS + 7] == 0, "%s: itself at %g", kernel->name, (double)distances[2 * ROWS + 7]);
    fixture_free(&fixture);
  }
}

TEST(kernels, cosine_of_zero_is_one_and_of_itself_zero) {
  each_kernel(check_zero_cosine);
}

/* The unused high bits of a last byte do not count. */
static void check_bit_tail(const struct kernel *kernel, struct random *random) {
  float before[QUERIES * ROWS] = {0}, after[QUERIES * ROWS] = {0};
  if (kernel->type != TURB_BITS)
    return;
  for (size_t dimension = 1; dimension < 1100; dimension += dimension < 140 ? 1 : 61) {
    struct fixture fixture;
    fixture_init(&fixture, random, kernel, dimension);
    fixture_distances(&fixture, before);
    if (dimension % 8) {
      unsigned char unused = (unsigned char)(0xff << dimension % 8);
      for (size_t r = 0; r < ROWS; r += 2)
        fixture.rows.bytes[r * fixture.stride + fixture.row_bytes - 1] ^= unused;
      for (size_t q = 0; q < QUERIES; q += 3)
        fixture.vectors[q].bytes[fixture.row_bytes - 1] ^= unused;
    }
    fixture_prepare(&fixture);
    fixture_distances(&fixture, after);
    CHECK_MEM_EQ(before, after, sizeof before);
    fixture_free(&fixture);
  }
}

TEST(kernels, unused_bits_do_not_count) {
  each_kernel(check_bit_tail);
}

/* More rows than the walks take at a time, and more queries than a tile. */
static void check_many(const struct kernel *kernel, struct random *random) {
  enum { MANY = 301, SOME = 7, DIMENSION = 33 };
  static unsigned char rows[MANY * DIMENSION * 4], vectors[SOME][DIMENSION * 4];
  static char scratch[SOME][512];
  static float scanned[SOME][MANY], tiled[SOME * (MANY + 5)];
  size_t stride = vector_row_bytes(kernel->type, DIMENSION);
  struct kernel_query queries[SOME];
  const struct kernel_query *pointers[SOME];
  const void *gathered_rows[MANY];
  float gathered[MANY];
  CHECK(kernel_query_scratch_bytes(kernel, DIMENSION) <= sizeof scratch[0]);
  for (size_t i = 0; i < MANY; i++) {
    random_vector(random, kernel->type, DIMENSION, rows + i * stride);
    gathered_rows[i] = rows + (i * 100 % MANY) * stride;
  }
  for (size_t q = 0; q < SOME; q++) {
    random_vector(random, kernel->type, DIMENSION, vectors[q]);
    kernel_query_init(&queries[q], kernel, vectors[q], DIMENSION, scratch[q]);
    pointers[q] = &queries[q];
    kernel_scan(&queries[q], rows, stride, MANY, scanned[q]);
    kernel_gather(&queries[q], gathered_rows, MANY, gathered);
    for (size_t i = 0; i < MANY; i++) {
      CHECK(scanned[q][i] == kernel_one(&queries[q], rows + i * stride));
      CHECK(gathered[i] == scanned[q][i * 100 % MANY]);
    }
  }
  for (size_t count = 0; count <= SOME; count++) {
    for (size_t i = 0; i < COUNT(tiled); i++)
      tiled[i] = -7;
    kernel_tile(pointers, count, rows, stride, MANY, tiled, MANY + 5);
    for (size_t i = 0; i < COUNT(tiled); i++) {
      size_t q = i / (MANY + 5), row = i % (MANY + 5);
      CHECK(tiled[i] == (q < count && row < MANY ? scanned[q][row] : -7));
    }
  }
}

TEST(kernels, many_rows_and_queries) {
  each_kernel(check_many);
}
