/* base/prefetch: asking for memory before it is needed. A hint: nothing is read, and any address will do. */
#ifndef TURB_BASE_PREFETCH_H
#define TURB_BASE_PREFETCH_H

#include <stdint.h>

#define CACHE_LINE_BYTES 64u

/* The first lines of something whose owner has put first what is looked at always. */
static inline void prefetch_lines(const void *memory, uint32_t lines) {
  for (uint32_t i = 0; i < lines; i++) {
    __builtin_prefetch((const uint8_t *)memory + i * CACHE_LINE_BYTES);
  }
}

#endif
