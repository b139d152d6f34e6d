/* Buffers for direct transfers; see buffer.h. */
#include "io/buffer.h"

turb_status io_buffer_alloc(const turb_allocator *allocator, struct budget *budget, enum budget_use use, size_t size, void **buffer,
                            turb_error *err) {
  *buffer = NULL;
  const size_t rounded = io_buffer_round(size);
  if (rounded < size) {
    return status_set(err, TURB_NO_MEMORY, "a buffer of %zu bytes is more than memory can have", size);
  }
  if (budget != NULL && !budget_take(budget, use, rounded)) {
    return status_set(err, TURB_BUDGET, "the memory budget has no room for a buffer of %zu bytes", rounded);
  }
  *buffer = mem_alloc_aligned(allocator, rounded, IO_DIRECT_ALIGNMENT);
  if (*buffer == NULL) {
    if (budget != NULL) {
      budget_give(budget, use, rounded);
    }
    return status_set(err, TURB_NO_MEMORY, "no memory for a buffer of %zu bytes", rounded);
  }
  return TURB_OK;
}

void io_buffer_free(const turb_allocator *allocator, struct budget *budget, enum budget_use use, void *buffer, size_t size) {
  if (buffer == NULL) {
    return;
  }
  const size_t rounded = io_buffer_round(size);
  mem_free(allocator, buffer, rounded);
  if (budget != NULL) {
    budget_give(budget, use, rounded);
  }
}
