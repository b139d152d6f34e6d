/*
 * The bytes of an input file: a plain file, a block of memory, or either of them compressed with gzip.
 *
 * One call reads at an offset. Plain bytes are random access; compressed ones are a stream, where reading
 * ahead of the position skips and reading behind it begins anew, so that readers go forward.
 *
 * Invariants
 *   1. A read is short only at the end of the bytes; what went wrong is an error, never an end.
 *   2. Memory is bounded: two buffers of 64 KiB and zlib's window when compressed, nothing otherwise.
 *   3. A compressed stream that ends early, or whose checksum differs, is corruption that names the offset in
 *      the compressed file.
 *
 * Threads: a source belongs to one thread at a time.
 */
#ifndef TURB_INGEST_SOURCE_H
#define TURB_INGEST_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/alloc.h"
#include "base/status.h"

/* The size of a source that is not known before its end: a compressed one. */
#define INGEST_SIZE_UNKNOWN UINT64_MAX

struct ingest_source;

/* Opens a regular file; gzip is told by its first bytes. Release: ingest_source_close. */
TURB_MUST_CHECK turb_status ingest_source_open(const turb_allocator *allocator, const char *path, struct ingest_source **source,
                                               turb_error *err);

/* The same over memory, which stays the caller's and must outlive the source; name stands in errors. */
TURB_MUST_CHECK turb_status ingest_source_open_memory(const turb_allocator *allocator, const char *name, const void *data, size_t size,
                                                      struct ingest_source **source, turb_error *err);

/* NULL is ignored. */
void ingest_source_close(struct ingest_source *source);

/* Reads size bytes at offset; *got is smaller only at the end. */
TURB_MUST_CHECK turb_status ingest_source_read(struct ingest_source *source, uint64_t offset, void *to, size_t size, size_t *got,
                                               turb_error *err);

/* Bytes in all, or INGEST_SIZE_UNKNOWN. */
uint64_t ingest_source_size(const struct ingest_source *source);

bool ingest_source_compressed(const struct ingest_source *source);

/* The path as it was given; lives as long as the source. */
const char *ingest_source_name(const struct ingest_source *source);

/* What memory comes from. */
const turb_allocator *ingest_source_allocator(const struct ingest_source *source);

#endif
