/* The default allocator and the helpers over any allocator; see alloc.h for the rules. */
#include "base/alloc.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static void *default_allocate(void *context, size_t size, size_t alignment) {
  (void)context;
  if (size < alignment) {
    size = alignment; /* jemalloc's malloc aligns what is smaller than 16 bytes to 8 */
  }
  if (alignment <= MEM_ALIGNMENT) {
    return malloc(size);
  }
  void *memory = NULL;
  return posix_memalign(&memory, alignment, size) == 0 ? memory : NULL;
}

static void default_release(void *context, void *memory, size_t size) {
  (void)context;
  (void)size;
  free(memory);
}

const turb_allocator *alloc_default(void) {
  static const turb_allocator allocator = {.context = NULL, .allocate = default_allocate, .release = default_release};
  return &allocator;
}

void *mem_alloc(const turb_allocator *allocator, size_t size) {
  return allocator->allocate(allocator->context, size, MEM_ALIGNMENT);
}

void *mem_alloc_zeroed(const turb_allocator *allocator, size_t size) {
  void *memory = mem_alloc(allocator, size);
  if (memory != NULL) {
    memset(memory, 0, size);
  }
  return memory;
}

void *mem_alloc_array(const turb_allocator *allocator, size_t count, size_t size) {
  size_t total = 0;
  if (__builtin_mul_overflow(count, size, &total)) {
    return NULL;
  }
  return mem_alloc_zeroed(allocator, total);
}

void *mem_alloc_aligned(const turb_allocator *allocator, size_t size, size_t alignment) {
  return allocator->allocate(allocator->context, size, alignment < MEM_ALIGNMENT ? MEM_ALIGNMENT : alignment);
}

void *mem_resize(const turb_allocator *allocator, void *memory, size_t old_size, size_t new_size) {
  void *moved = mem_alloc(allocator, new_size);
  if (moved == NULL) {
    return NULL;
  }
  if (memory != NULL) {
    memcpy(moved, memory, old_size < new_size ? old_size : new_size);
    mem_free(allocator, memory, old_size);
  }
  return moved;
}

void mem_free(const turb_allocator *allocator, void *memory, size_t size) {
  if (memory != NULL) {
    allocator->release(allocator->context, memory, size);
  }
}

char *mem_strdup(const turb_allocator *allocator, const char *text) {
  const size_t size = strlen(text) + 1;
  char *copy = mem_alloc(allocator, size);
  if (copy != NULL) {
    memcpy(copy, text, size);
  }
  return copy;
}

void mem_free_string(const turb_allocator *allocator, char *text) {
  if (text != NULL) {
    mem_free(allocator, text, strlen(text) + 1);
  }
}
