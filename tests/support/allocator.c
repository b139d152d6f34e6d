/* The counting and failing allocator; see allocator.h. */
#include "tests/support/allocator.h"

#include <stdlib.h>
#include <string.h>

#include "tests/support/test.h"

#define BLOCK_MAGIC UINT64_C(0x6b636f6c62626274)
#define GUARD_BYTES 16
#define GUARD_BYTE  0xa5
#define FRESH_BYTE  0xcd
#define FREED_BYTE  0xdd

struct block {
  struct list link;
  uint64_t magic;
  uint64_t number;
  size_t size;
  size_t header_bytes; /* from the start of the malloc block to the caller's memory */
};

static struct block *block_of(void *memory) {
  return (struct block *)(void *)((uint8_t *)memory - sizeof(struct block));
}

static void *tracked_allocate(void *context, size_t size, size_t alignment) {
  struct test_allocator *allocator = context;
  CHECK_MSG(alignment != 0 && (alignment & (alignment - 1)) == 0, "alignment %zu", alignment);
  pthread_mutex_lock(&allocator->lock);
  const uint64_t number = ++allocator->count;
  const bool fails = allocator->fail_at != 0 && (number == allocator->fail_at || (allocator->fail_after && number > allocator->fail_at));
  if (fails) {
    allocator->failed = true;
    pthread_mutex_unlock(&allocator->lock);
    return NULL;
  }
  pthread_mutex_unlock(&allocator->lock);

  const size_t unit = alignment < 16 ? 16 : alignment;
  const size_t header_bytes = (sizeof(struct block) + unit - 1) / unit * unit;
  size_t total = 0;
  void *start = NULL;
  if (__builtin_add_overflow(header_bytes + GUARD_BYTES, size, &total) || posix_memalign(&start, unit, total) != 0) {
    return NULL;
  }
  uint8_t *memory = (uint8_t *)start + header_bytes;
  struct block *block = block_of(memory);
  block->magic = BLOCK_MAGIC;
  block->number = number;
  block->size = size;
  block->header_bytes = header_bytes;
  memset(memory, FRESH_BYTE, size);
  memset(memory + size, GUARD_BYTE, GUARD_BYTES);

  pthread_mutex_lock(&allocator->lock);
  list_push_back(&allocator->blocks, &block->link);
  allocator->live_count++;
  allocator->live_bytes += size;
  if (allocator->live_bytes > allocator->peak_bytes) {
    allocator->peak_bytes = allocator->live_bytes;
  }
  pthread_mutex_unlock(&allocator->lock);
  return memory;
}

static void tracked_release(void *context, void *memory, size_t size) {
  struct test_allocator *allocator = context;
  struct block *block = block_of(memory);
  CHECK_MSG(block->magic == BLOCK_MAGIC, "release of %p, which is no block (released twice?)", memory);
  CHECK_MSG(block->size == size, "block %" PRIu64 " of %zu bytes released with size %zu", block->number, block->size, size);
  const uint8_t *guard = (const uint8_t *)memory + size;
  for (size_t i = 0; i < GUARD_BYTES; i++) {
    CHECK_MSG(guard[i] == GUARD_BYTE, "block %" PRIu64 " of %zu bytes was written behind its end", block->number, size);
  }
  pthread_mutex_lock(&allocator->lock);
  list_remove(&block->link);
  allocator->live_count--;
  allocator->live_bytes -= size;
  pthread_mutex_unlock(&allocator->lock);
  block->magic = 0;
  memset(memory, FREED_BYTE, size);
  free((uint8_t *)memory - block->header_bytes);
}

void test_allocator_init(struct test_allocator *allocator) {
  memset(allocator, 0, sizeof *allocator);
  allocator->base.context = allocator;
  allocator->base.allocate = tracked_allocate;
  allocator->base.release = tracked_release;
  pthread_mutex_init(&allocator->lock, NULL);
  list_init(&allocator->blocks);
}

static void set_failure(struct test_allocator *allocator, uint64_t n, bool after) {
  pthread_mutex_lock(&allocator->lock);
  allocator->count = 0;
  allocator->fail_at = n;
  allocator->fail_after = after;
  allocator->failed = false;
  pthread_mutex_unlock(&allocator->lock);
}

void test_allocator_fail_at(struct test_allocator *allocator, uint64_t n) {
  set_failure(allocator, n, false);
}

void test_allocator_fail_from(struct test_allocator *allocator, uint64_t n) {
  set_failure(allocator, n, true);
}

void test_allocator_check_empty(struct test_allocator *allocator) {
  char text[256] = "";
  size_t at = 0;
  struct list *link = list_first(&allocator->blocks);
  for (int shown = 0; link != NULL && shown < 5; shown++) {
    const struct block *block = LIST_ENTRY(link, struct block, link);
    at += (size_t)snprintf(text + at, sizeof text - at, " #%" PRIu64 " (%zu bytes)", block->number, block->size);
    link = list_next(&allocator->blocks, link);
  }
  CHECK_MSG(allocator->live_count == 0, "%zu blocks leaked (allocation to fail: %" PRIu64 "):%s", allocator->live_count, allocator->fail_at,
            text);
}
