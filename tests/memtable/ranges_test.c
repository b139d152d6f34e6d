/* Levels of range deletes against brute force, also where there is no memory to make levels one. */
#include "memtable/ranges.h"

#include <stdlib.h>

#include "tests/support/allocator.h"
#include "tests/support/test.h"

struct fixture {
  struct test_allocator allocator;
  struct budget budget;
  struct memtable_memory memory, level_memory;
  struct memtable_ranges ranges;
};

static void fixture_open(struct fixture *fixture) {
  test_allocator_init(&fixture->allocator);
  budget_init(&fixture->budget, UINT64_MAX);
  memtable_memory_init(&fixture->memory, &fixture->allocator.base, &fixture->budget, NULL, 12 << 10, 1 << 20);
  memtable_memory_init(&fixture->level_memory, &fixture->allocator.base, &fixture->budget, NULL, 4 << 10, 256 << 10);
  memtable_ranges_init(&fixture->ranges, &fixture->memory, &fixture->level_memory);
}

static void fixture_close(struct fixture *fixture) {
  memtable_memory_free(&fixture->memory);
  memtable_memory_free(&fixture->level_memory);
  CHECK_EQ(budget_used(&fixture->budget), 0);
  test_allocator_check_empty(&fixture->allocator);
}

struct plain_range {
  uint8_t begin[3], end[3];
  size_t begin_size, end_size;
  uint64_t sequence;
};

static size_t random_key(struct random *random, uint8_t *key, size_t least) {
  const size_t size = random_between(random, least, 3);
  for (size_t i = 0; i < size; i++) {
    key[i] = (uint8_t)random_below(random, 4);
  }
  return size;
}

static uint64_t brute_cover(const struct plain_range *ranges, size_t count, const uint8_t *key, size_t size, uint64_t snapshot) {
  uint64_t best = 0;
  for (size_t i = 0; i < count; i++) {
    const struct plain_range *range = &ranges[i];
    if (range->sequence <= snapshot && range->sequence > best && key_compare(range->begin, range->begin_size, key, size) <= 0 &&
        (range->end_size == 0 || key_compare(key, size, range->end, range->end_size) < 0)) {
      best = range->sequence;
    }
  }
  return best;
}

static void brute_test(bool starve, bool ordered) {
  static struct plain_range plain[3000];
  struct random random;
  struct fixture fixture;
  random_init(&random, test_seed());
  fixture_open(&fixture);
  const size_t most = test_scale(600, 600, 3000);
  for (size_t i = 0; i < most; i++) {
    struct plain_range *range = &plain[i];
    range->begin_size = random_key(&random, range->begin, 0);
    range->end_size = random_one_in(&random, 10) ? 0 : random_key(&random, range->end, 1);
    range->sequence = ordered ? i + 1 : random_between(&random, 1, 1000);
    turb_bytes begin = {range->begin, range->begin_size}, end = {range->end, range->end_size};
    if (end.size != 0 && key_compare(begin.data, begin.size, end.data, end.size) >= 0) {
      range->end_size = 1; /* mostly not empty */
      range->end[0] = 5;
      end.size = 1;
    }
    if (starve) { /* records have room, levels mostly not */
      CHECK_OK(memtable_memory_reserve(&fixture.memory, memtable_ranges_need(begin.size, end.size), NULL));
      test_allocator_fail_from(&fixture.allocator, random_one_in(&random, 20) ? 0 : 1);
    }
    CHECK_OK(memtable_ranges_add(&fixture.ranges, begin, end, range->sequence, NULL));
    test_allocator_fail_at(&fixture.allocator, 0);
    CHECK_EQ(memtable_ranges_count(&fixture.ranges), i + 1);
    for (int k = 0; k < 8; k++) {
      uint8_t key[3];
      const size_t size = random_key(&random, key, 0);
      const uint64_t snapshot = random_one_in(&random, 3) ? UINT64_MAX : random_below(&random, ordered ? i + 3 : 1001);
      CHECK_EQ(memtable_ranges_cover(&fixture.ranges, (turb_bytes){key, size}, snapshot), brute_cover(plain, i + 1, key, size, snapshot));
    }
  }
  const struct memtable_range *record = memtable_ranges_newest(&fixture.ranges);
  for (size_t i = most; i-- != 0;) {
    CHECK_EQ(record->range.sequence, plain[i].sequence);
    record = record->older;
  }
  CHECK(record == NULL);
  fixture_close(&fixture);
}

TEST(ranges, cover_as_brute_force_does) {
  brute_test(false, true);
}
TEST(ranges, cover_with_sequences_in_any_order) {
  brute_test(false, false);
}
TEST(ranges, cover_without_memory_for_levels) {
  brute_test(true, true);
}

/* All nested: what a plain list of sequences a stretch would need the square of. */
TEST(ranges, deep_nesting_takes_little_memory) {
  enum { DEPTH = 30000 };
  struct fixture fixture;
  fixture_open(&fixture);
  for (uint32_t i = 0; i < DEPTH; i++) {
    const uint8_t begin[] = {(uint8_t)(i >> 16), (uint8_t)(i >> 8), (uint8_t)i};
    const uint8_t end[] = {(uint8_t)(0xff - (i >> 16)), (uint8_t)(0xff - (i >> 8 & 0xff)), (uint8_t)(0xff - (i & 0xff))};
    CHECK_OK(memtable_ranges_add(&fixture.ranges, (turb_bytes){begin, 3}, (turb_bytes){end, 3}, i + 1, NULL));
  }
  const uint8_t middle[] = {0x7f};
  for (uint64_t snapshot = 0; snapshot <= DEPTH; snapshot += 997) {
    CHECK_EQ(memtable_ranges_cover(&fixture.ranges, (turb_bytes){middle, 1}, snapshot), snapshot);
  }
  const uint8_t early[] = {0, 1, 0};
  CHECK_EQ(memtable_ranges_cover(&fixture.ranges, (turb_bytes){early, 3}, UINT64_MAX), 257);
  CHECK_LT(memtable_memory_charged(&fixture.memory) + memtable_memory_charged(&fixture.level_memory), (size_t)DEPTH * 4000);
  fixture_close(&fixture);
}

TEST(ranges, adding_fails_without_memory_for_the_record) {
  struct fixture fixture;
  fixture_open(&fixture);
  test_allocator_fail_at(&fixture.allocator, 1);
  CHECK_STATUS(memtable_ranges_add(&fixture.ranges, TURB_STR("a"), TURB_STR("b"), 1, NULL), TURB_NO_MEMORY);
  CHECK_EQ(memtable_ranges_count(&fixture.ranges), 0);
  CHECK(memtable_ranges_newest(&fixture.ranges) == NULL);
  CHECK_OK(memtable_ranges_add(&fixture.ranges, TURB_STR("a"), TURB_STR("b"), 1, NULL));
  CHECK_EQ(memtable_ranges_cover(&fixture.ranges, TURB_STR("aa"), 5), 1);
  fixture_close(&fixture);
}
