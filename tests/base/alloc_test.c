/* The default allocator, the helpers, and that the testing allocator sees what it must. */
#include "base/alloc.h"

#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/allocator.h"
#include "tests/support/test.h"

TEST(alloc, default_allocator_aligns) {
  const turb_allocator *allocator = alloc_default();
  for (size_t alignment = 1; alignment <= 65536; alignment *= 2) {
    for (size_t size = 0; size < 5000; size = size * 3 + 1) {
      uint8_t *memory = mem_alloc_aligned(allocator, size, alignment);
      CHECK(memory != NULL);
      CHECK_EQ((uintptr_t)memory % alignment, 0);
      CHECK_EQ((uintptr_t)memory % MEM_ALIGNMENT, 0);
      memset(memory, 1, size);
      mem_free(allocator, memory, size);
    }
  }
}

TEST(alloc, zeroed_and_array) {
  struct test_allocator allocator;
  test_allocator_init(&allocator);
  uint8_t *memory = mem_alloc_zeroed(&allocator.base, 100);
  for (size_t i = 0; i < 100; i++) {
    CHECK_EQ(memory[i], 0);
  }
  mem_free(&allocator.base, memory, 100);
  uint64_t *array = mem_alloc_array(&allocator.base, 10, sizeof *array);
  CHECK_EQ(array[9], 0);
  mem_free(&allocator.base, array, 10 * sizeof *array);
  CHECK(mem_alloc_array(&allocator.base, SIZE_MAX / 2, 3) == NULL);
  mem_free(&allocator.base, NULL, 5);
  test_allocator_check_empty(&allocator);
}

TEST(alloc, resize_keeps_bytes_and_the_old_block_on_failure) {
  struct test_allocator allocator;
  test_allocator_init(&allocator);
  uint8_t *memory = mem_resize(&allocator.base, NULL, 0, 4);
  CHECK(memory != NULL);
  memcpy(memory, "abcd", 4);
  uint8_t *grown = mem_resize(&allocator.base, memory, 4, 100);
  CHECK_MEM_EQ(grown, "abcd", 4);
  test_allocator_fail_at(&allocator, 1);
  CHECK(mem_resize(&allocator.base, grown, 100, 200) == NULL);
  CHECK(allocator.failed);
  CHECK_MEM_EQ(grown, "abcd", 4);
  uint8_t *shrunk = mem_resize(&allocator.base, grown, 100, 2);
  CHECK_MEM_EQ(shrunk, "ab", 2);
  mem_free(&allocator.base, shrunk, 2);
  test_allocator_check_empty(&allocator);
  CHECK_EQ(allocator.peak_bytes, 104);
}

TEST(alloc, strdup_copies) {
  struct test_allocator allocator;
  test_allocator_init(&allocator);
  char *copy = mem_strdup(&allocator.base, "words");
  CHECK_STR_EQ(copy, "words");
  mem_free_string(&allocator.base, copy);
  mem_free_string(&allocator.base, NULL);
  test_allocator_fail_from(&allocator, 1);
  CHECK(mem_strdup(&allocator.base, "words") == NULL);
  CHECK(mem_strdup(&allocator.base, "words") == NULL);
  test_allocator_check_empty(&allocator);
}

/* True when work ends its process as a failed check does. */
static bool fails_a_check(void (*work)(struct test_allocator *)) {
  fflush(NULL);
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    CHECK(freopen("/dev/null", "w", stderr) != NULL);
    struct test_allocator allocator;
    test_allocator_init(&allocator);
    work(&allocator);
    _exit(0);
  }
  int status = 0;
  CHECK_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) && WEXITSTATUS(status) == 99;
}

static void leak(struct test_allocator *allocator) {
  CHECK(mem_alloc(&allocator->base, 3) != NULL);
  test_allocator_check_empty(allocator);
}

static void release_with_another_size(struct test_allocator *allocator) {
  mem_free(&allocator->base, mem_alloc(&allocator->base, 3), 4);
}

static void write_behind(struct test_allocator *allocator) {
  uint8_t *memory = mem_alloc(&allocator->base, 3);
  memory[3] = 0;
  mem_free(&allocator->base, memory, 3);
}

static void behave(struct test_allocator *allocator) {
  mem_free(&allocator->base, mem_alloc(&allocator->base, 3), 3);
  test_allocator_check_empty(allocator);
}

TEST(alloc, testing_allocator_catches_mistakes) {
  CHECK(!fails_a_check(behave));
  CHECK(fails_a_check(leak));
  CHECK(fails_a_check(release_with_another_size));
  CHECK(fails_a_check(write_behind));
}
