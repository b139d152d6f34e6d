/*
 * Buffers for direct transfers: page-aligned and charged to a budget.
 *
 * Sizes are rounded up to whole pages; the rounded size is what is charged, and io_buffer_free takes the size asked for.
 * Threads: any.
 */
#ifndef TURB_IO_BUFFER_H
#define TURB_IO_BUFFER_H

#include "base/alloc.h"
#include "base/budget.h"
#include "io/io.h"

static inline size_t io_buffer_round(size_t size) {
  return (size + IO_DIRECT_ALIGNMENT - 1) / IO_DIRECT_ALIGNMENT * IO_DIRECT_ALIGNMENT;
}

/* Uninitialised. budget may be NULL. Errors: TURB_BUDGET, TURB_NO_MEMORY; *buffer is NULL then. */
TURB_MUST_CHECK turb_status io_buffer_alloc(const turb_allocator *allocator, struct budget *budget, enum budget_use use, size_t size,
                                            void **buffer, turb_error *err);
/* NULL is ignored. The same allocator, budget, use and size as at the allocation. */
void io_buffer_free(const turb_allocator *allocator, struct budget *budget, enum budget_use use, void *buffer, size_t size);

#endif
