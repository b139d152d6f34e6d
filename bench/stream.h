/* bench/stream: how fast one core reads memory, by plain loops that do nothing else: the bound of an exact search over resident rows. */
#ifndef TURB_BENCH_STREAM_H
#define TURB_BENCH_STREAM_H

#include <stddef.h>
#include <stdint.h>

/* Reads `bytes` (a multiple of 512, data 64-byte aligned) with the widest loads that this machine has; a sum, so that the loads stay. */
uint64_t stream_read(const void *data, size_t bytes);
/* Which loads those are. */
const char *stream_kind(void);

/* Over all of it in one stream, for one instruction set; stream_read takes the best. */
uint64_t stream_read_portable(const void *data, size_t bytes);
uint64_t stream_read_avx2(const void *data, size_t bytes);
uint64_t stream_read_avx512(const void *data, size_t bytes);

#endif
