/*
 * XXH3's long loop, compiled more than once: hash.c chooses. All give the same values.
 *
 * Threads: as hash.h.
 */
#ifndef TURB_BASE_HASH_PARTS_H
#define TURB_BASE_HASH_PARTS_H

#include "base/hash.h"

uint64_t hash_long_portable(const void *data, size_t size, uint64_t seed);
void hash_stream_update_portable(struct hash_stream *stream, const void *data, size_t size);

#if defined(__x86_64__)
uint64_t hash_long_avx2(const void *data, size_t size, uint64_t seed);
void hash_stream_update_avx2(struct hash_stream *stream, const void *data, size_t size);
#endif

#endif
