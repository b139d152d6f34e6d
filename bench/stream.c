/* Choice of the loads, and those of any machine (stream.h). */
#include "bench/stream.h"

uint64_t stream_read_portable(const void *data, size_t bytes) {
  const uint64_t *words = data;
  uint64_t sums[8] = {0};
  for (size_t i = 0; i < bytes / sizeof *words; i += 8)
    for (size_t j = 0; j < 8; j++)
      sums[j] += words[i + j];
  uint64_t sum = 0;
  for (size_t j = 0; j < 8; j++)
    sum += sums[j];
  return sum;
}

#if defined(__x86_64__)
enum kind { PORTABLE, AVX2, AVX512 };

static enum kind kind(void) {
  if (__builtin_cpu_supports("avx512f"))
    return AVX512;
  return __builtin_cpu_supports("avx2") ? AVX2 : PORTABLE;
}

const char *stream_kind(void) {
  static const char *const names[] = {[PORTABLE] = "64-bit loads", [AVX2] = "AVX2 loads", [AVX512] = "AVX-512 loads"};
  return names[kind()];
}

uint64_t stream_read(const void *data, size_t bytes) {
  switch (kind()) {
  case AVX512: return stream_read_avx512(data, bytes);
  case AVX2: return stream_read_avx2(data, bytes);
  case PORTABLE: break;
  }
  return stream_read_portable(data, bytes);
}
#else
const char *stream_kind(void) {
  return "64-bit loads";
}

uint64_t stream_read(const void *data, size_t bytes) {
  return stream_read_portable(data, bytes);
}
#endif
