/* The page cache by itself. */
#include "sstable/cache.h"

#include <stdlib.h>

#include "tests/support/allocator.h"
#include "tests/support/test.h"

struct bed {
  struct test_allocator allocator;
  struct budget budget;
  struct cache *cache;
};

static void bed_open(struct bed *bed, uint64_t limit) {
  test_allocator_init(&bed->allocator);
  budget_init(&bed->budget, limit);
  turb_error error = TURB_ERROR_INIT;
  CHECK_OK_ERR(cache_create(&bed->allocator.base, &bed->budget, &bed->cache, &error), &error);
}

static void bed_close(struct bed *bed) {
  struct cache_stats stats;
  cache_get_stats(bed->cache, &stats);
  CHECK_EQ(stats.pinned_frames, 0);
  CHECK_EQ(stats.bytes, budget_used_for(&bed->budget, BUDGET_CACHE));
  cache_destroy(bed->cache);
  CHECK_EQ(budget_used(&bed->budget), 0);
  test_allocator_check_empty(&bed->allocator);
}

static struct cache_directory directory(struct bed *bed, uint32_t units) {
  struct cache_directory d;
  CHECK_OK(cache_directory_open(bed->cache, units, &d, NULL));
  return d;
}

/* Inserts a unit that says who it is; false when there is no memory. */
static bool put(struct bed *bed, struct cache_directory *d, uint32_t unit, enum unit_kind kind, uint32_t size, struct cache_pin *pin) {
  struct cache_memory memory;
  if (!cache_memory_take(bed->cache, size, kind, true, &memory)) {
    return false;
  }
  CHECK_EQ((uintptr_t)memory.data % 4096, 0);
  memset(memory.data, (int)(unit & 0xff), size);
  memcpy(memory.data, &unit, sizeof unit);
  cache_insert(d, unit, &memory, pin);
  CHECK(memory.frame == NULL);
  return true;
}

static void check_unit(const struct cache_pin *pin, uint32_t unit, uint32_t size) {
  uint32_t seen;
  memcpy(&seen, pin->data, sizeof seen);
  CHECK_EQ(seen, unit);
  CHECK_EQ(pin->size, size);
  CHECK_EQ(((const uint8_t *)pin->data)[size - 1], unit & 0xff);
}

TEST(cache, hits_what_was_inserted) {
  struct bed bed;
  bed_open(&bed, 16u << 20);
  struct cache_directory d = directory(&bed, 100);
  struct cache_pin pin, other;
  CHECK(!cache_pin(&d, 7, &pin));
  CHECK(pin.frame == NULL);
  CHECK(put(&bed, &d, 7, UNIT_KEYS, 4096, &pin));
  check_unit(&pin, 7, 4096);
  CHECK(cache_holds(&d, 7));
  CHECK(cache_pin(&d, 7, &other));
  CHECK(other.data == pin.data);
  struct cache_stats stats;
  cache_get_stats(bed.cache, &stats);
  CHECK_EQ(stats.hits, 1);
  CHECK_EQ(stats.misses, 1);
  CHECK_EQ(stats.frames, 1);
  CHECK_EQ(stats.pinned_frames, 1);
  struct cache_pin third;
  cache_pin_copy(&pin, &third);
  cache_unpin(&pin);
  cache_unpin(&pin); /* empty: nothing */
  cache_unpin(&other);
  check_unit(&third, 7, 4096);
  cache_unpin(&third);
  cache_get_stats(bed.cache, &stats);
  CHECK_EQ(stats.pinned_frames, 0);
  CHECK_EQ(stats.frames, 1);
  cache_directory_close(&d);
  cache_get_stats(bed.cache, &stats);
  CHECK_EQ(stats.frames, 0);
  bed_close(&bed);
}

TEST(cache, the_first_insert_wins) {
  struct bed bed;
  bed_open(&bed, 16u << 20);
  struct cache_directory d = directory(&bed, 10);
  struct cache_pin a, b;
  CHECK(put(&bed, &d, 3, UNIT_ROWS, 32768, &a));
  CHECK(put(&bed, &d, 3, UNIT_ROWS, 32768, &b));
  CHECK(a.data == b.data);
  struct cache_stats stats;
  cache_get_stats(bed.cache, &stats);
  CHECK_EQ(stats.frames, 1);
  cache_unpin(&a);
  cache_unpin(&b);
  cache_directory_close(&d);
  bed_close(&bed);
}

TEST(cache, kept_memory_is_nobodys_but_the_pins) {
  struct bed bed;
  bed_open(&bed, 16u << 20);
  struct cache_memory memory;
  struct cache_pin pin, copy;
  CHECK(cache_memory_take(bed.cache, 12288, UNIT_ROWS, false, &memory));
  const void *data = memory.data;
  cache_keep(&memory, &pin);
  cache_pin_copy(&pin, &copy);
  cache_unpin(&pin);
  CHECK(copy.data == data);
  cache_unpin(&copy);
  struct cache_stats stats;
  cache_get_stats(bed.cache, &stats);
  CHECK_EQ(stats.frames, 0);
  /* Its memory is the next to be used. */
  const uint64_t allocations = bed.allocator.count;
  CHECK(cache_memory_take(bed.cache, 12288, UNIT_ROWS, false, &memory));
  CHECK_EQ(bed.allocator.count, allocations);
  cache_memory_give(bed.cache, &memory);
  cache_memory_give(bed.cache, &memory);
  bed_close(&bed);
}

/* It takes what the budget leaves, and recycles without the allocator. */
TEST(cache, fills_the_budget_and_recycles) {
  struct bed bed;
  const uint64_t limit = 8u << 20;
  bed_open(&bed, limit);
  enum { UNITS = 4000 };
  struct cache_directory d = directory(&bed, UNITS);
  uint64_t allocations = 0;
  for (uint32_t i = 0; i < UNITS; i++) {
    struct cache_pin pin;
    CHECK(put(&bed, &d, i, i % 4 ? UNIT_ROWS : UNIT_KEYS, i % 4 ? 32768 : 4096, &pin));
    check_unit(&pin, i, i % 4 ? 32768 : 4096);
    cache_unpin(&pin);
    CHECK_LE(budget_used(&bed.budget), limit);
    if (i == UNITS - 1000) {
      allocations = bed.allocator.count;
    }
  }
  CHECK_GT(budget_used_for(&bed.budget, BUDGET_CACHE), limit * 9 / 10);
  CHECK_LE(bed.allocator.count - allocations, 8 * 3); /* a few slabs change their size */
  struct cache_stats stats;
  cache_get_stats(bed.cache, &stats);
  CHECK_GT(stats.evictions, 1000);
  CHECK_EQ(stats.bytes, budget_used_for(&bed.budget, BUDGET_CACHE));
  uint32_t resident = 0;
  for (uint32_t i = 0; i < UNITS; i++) {
    struct cache_pin pin;
    if (cache_pin(&d, i, &pin)) {
      check_unit(&pin, i, i % 4 ? 32768 : 4096);
      cache_unpin(&pin);
      resident++;
    }
  }
  CHECK_EQ(resident, stats.frames);
  cache_directory_close(&d);
  bed_close(&bed);
}

TEST(cache, pinned_units_stay) {
  struct bed bed;
  bed_open(&bed, 2u << 20);
  struct cache_directory d = directory(&bed, 5000);
  struct cache_pin pins[10];
  for (uint32_t i = 0; i < 10; i++) {
    CHECK(put(&bed, &d, i * 400, UNIT_ROWS, 8192, &pins[i]));
  }
  for (uint32_t i = 0; i < 5000; i++) {
    struct cache_pin pin;
    if (i % 400 != 0 || i / 400 >= 10) {
      CHECK(put(&bed, &d, i, i % 3 ? UNIT_ROWS : UNIT_KEYS, 8192, &pin));
      cache_unpin(&pin);
    }
  }
  for (uint32_t i = 0; i < 10; i++) {
    check_unit(&pins[i], i * 400, 8192);
    CHECK(cache_holds(&d, i * 400));
    cache_unpin(&pins[i]);
  }
  cache_directory_close(&d);
  bed_close(&bed);
}

TEST(cache, says_no_when_all_is_pinned) {
  struct bed bed;
  bed_open(&bed, 1u << 20);
  struct cache_directory d = directory(&bed, 500);
  struct cache_pin pins[500];
  uint32_t count = 0;
  while (count < 500 && put(&bed, &d, count, UNIT_ROWS, 8192, &pins[count])) {
    count++;
  }
  CHECK_GT(count, 60);
  CHECK_LT(count, 128);
  struct cache_memory memory;
  CHECK(!cache_memory_take(bed.cache, 8192, UNIT_ROWS, true, &memory));
  CHECK(memory.frame == NULL);
  cache_unpin(&pins[5]);
  CHECK(!cache_memory_take(bed.cache, 8192, UNIT_ROWS, false, &memory)); /* only by evicting */
  CHECK(cache_memory_take(bed.cache, 8192, UNIT_ROWS, true, &memory));
  cache_memory_give(bed.cache, &memory);
  for (uint32_t i = 0; i < count; i++) {
    cache_unpin(&pins[i]);
  }
  cache_directory_close(&d);
  bed_close(&bed);
}

/* A cold unit that is pinned in one slab does not keep the others from giving way. */
TEST(cache, finds_the_slabs_without_pins) {
  struct bed bed;
  bed_open(&bed, 4u << 20);
  struct cache_directory d = directory(&bed, 2000);
  struct cache_pin pins[100];
  uint32_t count = 0, kept = 0;
  for (; budget_available(&bed.budget) > (256u << 10);
       count++) { /* 16 of these are a slab: one in it stays pinned, in all but each eighth */
    struct cache_pin pin;
    CHECK(put(&bed, &d, count, UNIT_KEYS, 4096, &pin));
    if (count % 16 == 0 && count % 128 != 0) {
      pins[kept++] = pin;
    } else {
      cache_unpin(&pin);
      for (int hits = 0; hits < 3; hits++) { /* warmer than the pinned ones */
        CHECK(cache_pin(&d, count, &pin));
        cache_unpin(&pin);
      }
    }
  }
  struct cache_memory memory[4];
  for (int i = 0; i < 4; i++) {
    CHECK(cache_memory_take(bed.cache, 65536, UNIT_ROWS, true, &memory[i]));
  }
  for (int i = 0; i < 4; i++) {
    cache_memory_give(bed.cache, &memory[i]);
  }
  while (kept > 0) {
    cache_unpin(&pins[--kept]);
  }
  cache_directory_close(&d);
  bed_close(&bed);
}

/* Memtables and jobs get what they ask for, rows go first. */
TEST(cache, gives_back_under_pressure) {
  struct bed bed;
  const uint64_t limit = 16u << 20;
  bed_open(&bed, limit);
  struct cache_directory d = directory(&bed, 3000);
  for (uint32_t i = 0; i < 3000; i++) {
    struct cache_pin pin;
    CHECK(put(&bed, &d, i, i < 500 ? UNIT_KEYS : UNIT_ROWS, i < 500 ? 4096 : 16384, &pin));
    cache_unpin(&pin);
  }
  CHECK(budget_take(&bed.budget, BUDGET_MEMTABLE, 8u << 20));
  CHECK_LE(budget_used(&bed.budget), limit);
  uint32_t keys = 0, rows = 0;
  for (uint32_t i = 0; i < 3000; i++) {
    keys += i < 500 && cache_holds(&d, i);
    rows += i >= 500 && cache_holds(&d, i);
  }
  CHECK_EQ(keys, 500);
  CHECK_GT(rows, 50);
  CHECK(budget_take(&bed.budget, BUDGET_JOB, budget_limit(&bed.budget) - (8u << 20) - (1u << 20))); /* nearly all */
  CHECK(!budget_take(&bed.budget, BUDGET_JOB, limit));
  budget_give(&bed.budget, BUDGET_MEMTABLE, 8u << 20);
  budget_give(&bed.budget, BUDGET_JOB, limit - (9u << 20));
  cache_directory_close(&d);
  bed_close(&bed);
}

/* A scan over many rows leaves the key pages, and a scan over many key pages leaves rows their share. */
TEST(cache, units_have_their_shares) {
  struct bed bed;
  bed_open(&bed, 16u << 20);
  struct cache_directory d = directory(&bed, 20000);
  for (uint32_t i = 0; i < 2000; i++) { /* 8 MiB of key pages */
    struct cache_pin pin;
    CHECK(put(&bed, &d, i, UNIT_KEYS, 4096, &pin));
    cache_unpin(&pin);
  }
  for (uint32_t i = 10000; i < 20000; i++) {
    struct cache_pin pin;
    CHECK(put(&bed, &d, i, UNIT_ROWS, 16384, &pin));
    cache_unpin(&pin);
  }
  uint32_t keys = 0, rows = 0;
  for (uint32_t i = 0; i < 2000; i++) {
    keys += cache_holds(&d, i);
  }
  CHECK_EQ(keys, 2000);
  for (uint32_t i = 0; i < 10000; i++) {
    struct cache_pin pin;
    if (!cache_pin(&d, i, &pin)) {
      CHECK(put(&bed, &d, i, UNIT_KEYS, 4096, &pin));
    }
    cache_unpin(&pin);
  }
  for (uint32_t i = 10000; i < 20000; i++) {
    rows += cache_holds(&d, i);
  }
  CHECK_GT(rows * UINT64_C(16384), 1u << 20);
  cache_directory_close(&d);
  bed_close(&bed);
}

TEST(cache, a_closed_directory_leaves_pins_alone) {
  struct bed bed;
  bed_open(&bed, 4u << 20);
  struct cache_directory d = directory(&bed, 10), other = directory(&bed, 10);
  struct cache_pin a, b;
  CHECK(put(&bed, &d, 1, UNIT_KEYS, 4096, &a));
  CHECK(put(&bed, &d, 2, UNIT_KEYS, 4096, &b));
  cache_unpin(&b);
  cache_directory_close(&d);
  struct cache_stats stats;
  cache_get_stats(bed.cache, &stats);
  CHECK_EQ(stats.frames, 1);
  for (uint32_t i = 0; i < 10; i++) {
    CHECK(put(&bed, &other, i, UNIT_KEYS, 4096, &b));
    cache_unpin(&b);
  }
  check_unit(&a, 1, 4096);
  cache_unpin(&a);
  cache_get_stats(bed.cache, &stats);
  CHECK_EQ(stats.frames, 10);
  cache_directory_close(&other);
  bed_close(&bed);
}

TEST(cache, admits_while_free_and_then_what_misses_often) {
  struct bed bed;
  bed_open(&bed, 4u << 20);
  struct cache_directory d = directory(&bed, 1000);
  CHECK(cache_admits(&d, 0, 32768));
  for (uint32_t i = 0; i < 300; i++) {
    struct cache_pin pin;
    CHECK(put(&bed, &d, i, UNIT_ROWS, 32768, &pin));
    cache_unpin(&pin);
  }
  CHECK(!cache_admits(&d, 500, 32768));
  CHECK(!cache_admits(&d, 500, 32768));
  CHECK(cache_admits(&d, 500, 32768));
  CHECK(!cache_admits(&d, 500, 32768)); /* counted anew */
  cache_directory_close(&d);
  bed_close(&bed);
}

TEST(cache, every_allocation_fails_once) {
  for (uint64_t n = 1; n < 200; n++) {
    struct bed bed;
    test_allocator_init(&bed.allocator);
    budget_init(&bed.budget, 2u << 20);
    test_allocator_fail_at(&bed.allocator, n);
    turb_error error = TURB_ERROR_INIT;
    turb_status status = cache_create(&bed.allocator.base, &bed.budget, &bed.cache, &error);
    if (status != TURB_OK) {
      CHECK_EQ(status, TURB_NO_MEMORY);
      CHECK_EQ(budget_used(&bed.budget), 0);
      test_allocator_check_empty(&bed.allocator);
      continue;
    }
    struct cache_directory d;
    status = cache_directory_open(bed.cache, 1000, &d, &error);
    if (status == TURB_OK) {
      uint32_t done = 0;
      for (uint32_t i = 0; i < 1000; i++) {
        struct cache_pin pin;
        if (put(&bed, &d, i, i % 5 ? UNIT_ROWS : UNIT_INDEX, i % 5 ? 16384 : 4096, &pin)) {
          check_unit(&pin, i, i % 5 ? 16384 : 4096);
          cache_unpin(&pin);
          done++;
        }
      }
      CHECK_GE(done, 999); /* what one allocation does not give, eviction does */
      cache_directory_close(&d);
    }
    const bool failed = bed.allocator.failed;
    bed_close(&bed);
    if (!failed) {
      break;
    }
  }
}

TEST(cache, the_budget_holds_at_least_the_cache_itself) {
  struct test_allocator allocator;
  struct budget budget;
  struct cache *cache;
  test_allocator_init(&allocator);
  budget_init(&budget, 1000);
  turb_error error = TURB_ERROR_INIT;
  CHECK_STATUS_ERR(cache_create(&allocator.base, &budget, &cache, &error), TURB_BUDGET, &error);
  CHECK(cache == NULL);
  CHECK_EQ(budget_used(&budget), 0);
  test_allocator_check_empty(&allocator);
  cache_destroy(NULL);
}

/* Random operations against a plain model of what may be where. */
TEST(cache, random_operations) {
  struct random random;
  random_init(&random, test_seed());
  for (int round = 0; round < 4; round++) {
    struct bed bed;
    bed_open(&bed, (1u << 20) << round);
    enum { TABLES = 5, UNITS = 300, PINS = 40 };
    struct cache_directory tables[TABLES];
    struct {
      struct cache_pin pin;
      uint32_t unit, size;
    } pins[PINS] = {0};
    uint64_t others = 0;
    static const uint32_t sizes[] = {4096, 12288, 32768, 65536};
    for (int t = 0; t < TABLES; t++) {
      tables[t] = directory(&bed, UNITS);
    }
    for (uint64_t n = 0; n < test_scale(20000, 10000, 200000); n++) {
      const size_t t = random_below(&random, TABLES), p = random_below(&random, PINS);
      const uint32_t unit = (uint32_t)random_below(&random, UNITS);
      const enum unit_kind kind = unit % 4 == 0 ? UNIT_KEYS : unit % 4 == 1 ? UNIT_FILTER : unit % 4 == 2 ? UNIT_ROWS : UNIT_ATTRIBUTES;
      const uint32_t size = sizes[unit % 4];
      if (pins[p].pin.frame != NULL) {
        check_unit(&pins[p].pin, pins[p].unit, pins[p].size);
        cache_unpin(&pins[p].pin);
      }
      switch (random_below(&random, 40)) {
      case 0:
        cache_directory_close(&tables[t]);
        tables[t] = directory(&bed, UNITS);
        break;
      case 1: {
        const uint64_t bytes = random_below(&random, (1u << 19) << round);
        if (budget_take(&bed.budget, BUDGET_JOB, bytes)) {
          others += bytes;
        }
        break;
      }
      case 2:
        budget_give(&bed.budget, BUDGET_JOB, others);
        others = 0;
        break;
      default:
        if (cache_pin(&tables[t], unit, &pins[p].pin) || put(&bed, &tables[t], unit, kind, size, &pins[p].pin)) {
          check_unit(&pins[p].pin, unit, size);
          pins[p].unit = unit;
          pins[p].size = size;
        }
        break;
      }
    }
    for (int p = 0; p < PINS; p++) {
      cache_unpin(&pins[p].pin);
    }
    budget_give(&bed.budget, BUDGET_JOB, others);
    for (int t = 0; t < TABLES; t++) {
      cache_directory_close(&tables[t]);
    }
    bed_close(&bed);
  }
}
