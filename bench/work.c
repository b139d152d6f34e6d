/* Keys, vectors, order statistics (bench.h). */
#include "bench/bench.h"

#include <stdlib.h>
#include <string.h>

#define POOL_FLOATS (UINT32_C(1) << 20)

static float *pool; /* vectors are stretches of it: making one costs no engine any time */

uint64_t work_mix(uint64_t x) {
  x ^= x >> 32;
  x *= UINT64_C(0xd6e8feb86659fd93);
  x ^= x >> 32;
  x *= UINT64_C(0xd6e8feb86659fd93);
  x ^= x >> 32;
  return x;
}

uint64_t work_below(uint64_t at, uint64_t below) {
  return (uint64_t)(((unsigned __int128)work_mix(at + UINT64_C(0x51ed270b)) * below) >> 64);
}

static void store_big_endian(uint8_t *to, uint64_t x) {
  x = __builtin_bswap64(x);
  memcpy(to, &x, sizeof x);
}

void work_key(uint64_t i, bool ordered, uint8_t key[KEY_BYTES]) {
  const uint64_t mixed = work_mix(i + 1);
  store_big_endian(key, ordered ? i : mixed);
  store_big_endian(key + 8, ordered ? mixed : i);
}

void work_prepare(void) {
  pool = bench_alloc(POOL_FLOATS * sizeof *pool);
  for (uint32_t i = 0; i < POOL_FLOATS; i++) {
    const uint32_t bits = (uint32_t)(work_mix(i + UINT64_C(77)) >> 41) | UINT32_C(0x3f800000);
    memcpy(&pool[i], &bits, sizeof bits); /* from 1 to 2 */
    pool[i] -= 1.5f;
  }
}

const void *work_row(uint64_t i, uint32_t row_bytes) {
  return pool + work_below(i, POOL_FLOATS - (row_bytes + 3) / 4);
}

static int by_key(const void *a, const void *b) {
  const uint64_t x = work_mix(*(const uint32_t *)a + UINT64_C(1)), y = work_mix(*(const uint32_t *)b + UINT64_C(1));
  return (x > y) - (x < y);
}

uint32_t *work_sorted(uint32_t count) {
  uint32_t *order = bench_alloc(count * sizeof *order);
  for (uint32_t i = 0; i < count; i++)
    order[i] = i;
  qsort(order, count, sizeof *order, by_key);
  return order;
}

static int by_value(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

double percentile(double *values, size_t count, double share) {
  if (!count)
    return 0;
  qsort(values, count, sizeof *values, by_value);
  const size_t at = (size_t)(share * (double)count);
  return values[at < count ? at : count - 1];
}

double median(const double *values, size_t count) {
  if (!count)
    return 0;
  double *copy = bench_alloc(count * sizeof *copy);
  memcpy(copy, values, count * sizeof *copy);
  qsort(copy, count, sizeof *copy, by_value);
  const double m = count % 2 ? copy[count / 2] : (copy[count / 2 - 1] + copy[count / 2]) / 2;
  free(copy);
  return m;
}
