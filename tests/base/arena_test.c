/* The arena: placement, alignment, charging, failures. */
#include "base/arena.h"

#include "tests/support/allocator.h"
#include "tests/support/test.h"

TEST(arena, random_requests_stay_apart) {
  struct test_allocator allocator;
  struct budget budget;
  struct arena arena;
  test_allocator_init(&allocator);
  budget_init(&budget, UINT64_MAX);
  arena_init(&arena, &allocator.base, &budget, BUDGET_MEMTABLE, 4096);
  CHECK_EQ(arena_reserved(&arena), 0);
  struct random random;
  random_init(&random, test_seed());
  static struct {
    uint8_t *memory;
    size_t size;
  } pieces[3000];
  const size_t count = sizeof pieces / sizeof pieces[0];
  uint64_t sum = 0;
  for (size_t i = 0; i < count; i++) {
    const size_t alignment = (size_t)1 << random_below(&random, 8);
    pieces[i].size = random_one_in(&random, 50) ? random_below(&random, 20000) : random_below(&random, 200);
    pieces[i].memory = arena_alloc(&arena, pieces[i].size, alignment);
    CHECK(pieces[i].memory != NULL);
    CHECK_EQ((uintptr_t)pieces[i].memory % alignment, 0);
    memset(pieces[i].memory, (int)(i & 0xff), pieces[i].size);
    sum += pieces[i].size;
  }
  for (size_t i = 0; i < count; i++) {
    for (size_t at = 0; at < pieces[i].size; at++) {
      CHECK_EQ(pieces[i].memory[at], i & 0xff);
    }
  }
  CHECK_GE(arena_used(&arena), sum);
  CHECK_GE(arena_reserved(&arena), arena_used(&arena));
  CHECK_EQ(arena_reserved(&arena), budget_used_for(&budget, BUDGET_MEMTABLE));
  CHECK_EQ(arena_reserved(&arena), allocator.live_bytes);
  arena_reset(&arena);
  CHECK_EQ(budget_used(&budget), 0);
  CHECK_EQ(arena_used(&arena), 0);
  uint8_t *zeros = arena_alloc_zeroed(&arena, 64, 64);
  CHECK_EQ(zeros[63], 0);
  arena_free(&arena);
  test_allocator_check_empty(&allocator);
}

TEST(arena, a_large_request_leaves_the_current_chunk_in_use) {
  struct arena arena;
  arena_init(&arena, alloc_default(), NULL, BUDGET_JOB, 4096);
  const uint8_t *first = arena_alloc(&arena, 16, 1);
  CHECK(arena_alloc(&arena, 100000, 1) != NULL);
  const uint8_t *second = arena_alloc(&arena, 16, 1);
  CHECK(second == first + 16);
  CHECK_MEM_EQ(arena_copy(&arena, "words", 5), "words", 5);
  CHECK(arena_copy(&arena, NULL, 0) != NULL);
  arena_free(&arena);
}

TEST(arena, failures_say_why_and_change_nothing) {
  struct test_allocator allocator;
  struct budget budget;
  struct arena arena;
  test_allocator_init(&allocator);
  budget_init(&budget, 10000);
  arena_init(&arena, &allocator.base, &budget, BUDGET_JOB, 4096);
  CHECK(arena_alloc(&arena, 3000, 8) != NULL);
  const uint64_t reserved = arena_reserved(&arena);
  CHECK(arena_alloc(&arena, 20000, 8) == NULL);
  CHECK_EQ(arena.failure, TURB_BUDGET);
  test_allocator_fail_at(&allocator, 1);
  CHECK(arena_alloc(&arena, 5000, 8) == NULL);
  CHECK_EQ(arena.failure, TURB_NO_MEMORY);
  CHECK(arena_alloc(&arena, SIZE_MAX - 4, 8) == NULL);
  CHECK_EQ(arena.failure, TURB_NO_MEMORY);
  CHECK_EQ(arena_reserved(&arena), reserved);
  CHECK_EQ(budget_used(&budget), reserved);
  CHECK(arena_alloc(&arena, 100, 8) != NULL);
  arena_free(&arena);
  test_allocator_check_empty(&allocator);
}
