/* Memory read by 64-byte loads (stream.h). */
#include <immintrin.h>

#include "bench/stream.h"

uint64_t stream_read_avx512(const void *data, size_t bytes) {
  const __m512i *at = data;
  __m512i sums[8];
  for (int j = 0; j < 8; j++)
    sums[j] = _mm512_setzero_si512();
  for (size_t i = 0; i < bytes / sizeof *at; i += 8)
    for (int j = 0; j < 8; j++)
      sums[j] = _mm512_add_epi64(sums[j], _mm512_load_si512(at + i + j));
  uint64_t sum = 0;
  for (int j = 0; j < 8; j++)
    sum += (uint64_t)_mm512_reduce_add_epi64(sums[j]);
  return sum;
}
