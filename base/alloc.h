/*
 * Memory from the caller's allocator.
 *
 * All memory of the library comes through here; the default is the process's malloc. Sizes are given
 * back at release, so that neither side needs a header in front of a block.
 *
 * Rules
 *   1. A block is released with the allocator and the size it was taken with; mem_resize gives a new size.
 *   2. A block of size 0 is a valid, unique pointer and is released with size 0.
 *   3. NULL means "no memory" and nothing else; the caller turns it into TURB_NO_MEMORY.
 *
 * Threads: every call is safe from any thread when the allocator is; the default one is.
 */
#ifndef TURB_BASE_ALLOC_H
#define TURB_BASE_ALLOC_H

#include <stddef.h>

#include "base/status.h"

/* The alignment of mem_alloc, enough for every scalar type. */
#define MEM_ALIGNMENT 16

/* The process's malloc. Constant data: never released. */
const turb_allocator *alloc_default(void);

/* Uninitialised memory aligned to MEM_ALIGNMENT, or NULL. The caller owns it. */
TURB_MUST_CHECK void *mem_alloc(const turb_allocator *allocator, size_t size);

/* The same, filled with zeros. */
TURB_MUST_CHECK void *mem_alloc_zeroed(const turb_allocator *allocator, size_t size);

/* count × size bytes filled with zeros; NULL also when the product overflows. */
TURB_MUST_CHECK void *mem_alloc_array(const turb_allocator *allocator, size_t count, size_t size);

/* Uninitialised memory aligned to a power of two. */
TURB_MUST_CHECK void *mem_alloc_aligned(const turb_allocator *allocator, size_t size, size_t alignment);

/*
 * Moves a block (NULL with old_size 0 allowed) to one of new_size bytes and releases the old one.
 * On NULL the old block is untouched and still the caller's.
 */
TURB_MUST_CHECK void *mem_resize(const turb_allocator *allocator, void *memory, size_t old_size, size_t new_size);

/* Releases a block; NULL is ignored. */
void mem_free(const turb_allocator *allocator, void *memory, size_t size);

/* A copy of a terminated string, to be released with its length + 1. */
TURB_MUST_CHECK char *mem_strdup(const turb_allocator *allocator, const char *text);

/* Releases what mem_strdup gave; NULL is ignored. */
void mem_free_string(const turb_allocator *allocator, char *text);

#endif
