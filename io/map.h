/*
 * A stretch of a file mapped into memory, for stores that survive the process without a system call each (the log's staging area).
 *
 * Stores into a shared mapping can meet errors only as a signal, and the library takes no signals; so a mapping is granted only where that cannot
 * come about:
 *   1. The stretch was written before, on a file system that overwrites in place: a store needs no space (a full disk does not matter).
 *   2. It is locked in memory: a store never reads.
 *   3. io_map_prepare, called at most IO_MAP_PREPARED_MS before a store, has made the pages writable, and reports an error (a file system
 *      that went read-only) as a status. Within that time the kernel does not come to write them back and ask the file system again.
 * Anything else is UNSUPPORTED, and the caller writes with io_file_write. The simulated disk has no mappings.
 *
 * The mapping and io_file_write to other stretches of the file may be mixed; io_file_sync covers both. Threads: as the caller's stores.
 */
#ifndef TURB_IO_MAP_H
#define TURB_IO_MAP_H

#include "io/io.h"

#define IO_MAP_PREPARED_MS 20u

/* offset and size are multiples of the page size; the stretch lies within the file. Release: io_file_unmap, before the file. */
TURB_MUST_CHECK turb_status io_file_map(struct io_file *file, uint64_t offset, size_t size, void **memory, turb_error *err);
void io_file_unmap(void *memory, size_t size); /* NULL ok */

/* Before stores; see rule 3. */
TURB_MUST_CHECK turb_status io_map_prepare(void *memory, size_t size, turb_error *err);

#endif
