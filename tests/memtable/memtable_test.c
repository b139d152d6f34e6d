/* The memtable against a sorted array, its limits, its budget, and every allocation made to fail. */
#include "memtable/memtable.h"

#include <stdlib.h>

#include "base/arena.h"
#include "memtable/pool.h"
#include "tests/memtable/model.h"
#include "tests/support/allocator.h"
#include "tests/support/test.h"

struct fixture {
  struct test_allocator allocator;
  struct budget budget;
  struct memtable *memtable;
};

static void fixture_open(struct fixture *fixture, uint32_t row_bytes, uint32_t stride) {
  test_allocator_init(&fixture->allocator);
  budget_init(&fixture->budget, UINT64_MAX);
  const struct memtable_options options = {
      .allocator = &fixture->allocator.base, .budget = &fixture->budget, .row_bytes = row_bytes, .stride = stride};
  CHECK_OK(memtable_create(&options, &fixture->memtable, NULL));
}

static void fixture_close(struct fixture *fixture) {
  CHECK_EQ(budget_used_for(&fixture->budget, BUDGET_MEMTABLE), memtable_bytes(fixture->memtable));
  CHECK_EQ(memtable_bytes(fixture->memtable), fixture->allocator.live_bytes);
  memtable_release(fixture->memtable);
  CHECK_EQ(budget_used(&fixture->budget), 0);
  test_allocator_check_empty(&fixture->allocator);
}

static void model_test(enum model_keys keys, uint32_t row_bytes, size_t attribute_most, uint64_t steps) {
  struct random random;
  struct fixture fixture;
  struct model model;
  random_init(&random, test_seed());
  fixture_open(&fixture, row_bytes, row_bytes + (uint32_t)random_below(&random, 3));
  model_init(&model, fixture.memtable, row_bytes, keys);
  for (uint64_t step = 1; step <= steps; step++) {
    CHECK_OK(model_step(&model, &random, attribute_most, NULL));
    if ((step & (step - 1)) == 0 || step == steps) {
      model_check(&model);
      model_check_lookups(&model, &random, 500);
    }
  }
  CHECK_EQ(memtable_first_sequence(fixture.memtable), 1);
  CHECK_EQ(memtable_last_sequence(fixture.memtable), steps);
  model_free(&model);
  fixture_close(&fixture);
}

TEST(memtable, few_keys_with_many_versions) {
  model_test(MODEL_SHORT, 4, 200, test_scale(5000, 5000, 40000));
}
TEST(memtable, random_keys) {
  model_test(MODEL_RANDOM, 12, 500, test_scale(20000, 10000, 60000));
}
TEST(memtable, decimal_keys) {
  model_test(MODEL_DECIMAL, 1, 0, test_scale(20000, 10000, 60000));
}
TEST(memtable, ascending_keys) {
  model_test(MODEL_ASCENDING, 33, 10, test_scale(20000, 10000, 60000));
}
TEST(memtable, descending_keys) {
  model_test(MODEL_DESCENDING, 2, 10, test_scale(10000, 5000, 20000));
}
TEST(memtable, keys_with_long_common_beginnings) {
  model_test(MODEL_STEMS, 8, 100, test_scale(20000, 10000, 60000));
}
TEST(memtable, long_keys_and_attributes) {
  model_test(MODEL_LONG, 100, 400000, test_scale(1000, 600, 3000));
}
TEST(memtable, long_rows) {
  model_test(MODEL_RANDOM, 300000, 0, 40);
}

TEST(memtable, an_empty_one) {
  struct fixture fixture;
  fixture_open(&fixture, 8, 8);
  const struct memtable *memtable = fixture.memtable;
  CHECK_LT(memtable_bytes(memtable), 4096);
  CHECK(memtable_first(memtable) == NULL);
  CHECK(memtable_last(memtable) == NULL);
  CHECK(memtable_get(memtable, TURB_STR("a"), SLOT_SEQUENCE_MAX) == NULL);
  CHECK(memtable_lower_bound(memtable, TURB_NONE, SLOT_SEQUENCE_MAX) == NULL);
  CHECK(memtable_before(memtable, TURB_STR("a"), 0) == NULL);
  CHECK_EQ(memtable_range_cover(memtable, TURB_STR("a"), SLOT_SEQUENCE_MAX), 0);
  CHECK_EQ(memtable_first_sequence(memtable), 0);
  CHECK_EQ(memtable_last_sequence(memtable), 0);
  CHECK_EQ(memtable_entries(memtable) + memtable_rows(memtable) + memtable_range_delete_count(memtable), 0);
  CHECK(memtable_retain(fixture.memtable) == memtable);
  memtable_release(fixture.memtable);
  memtable_release(NULL);
  fixture_close(&fixture);
}

TEST(memtable, one_entry_costs_little) {
  struct fixture fixture;
  fixture_open(&fixture, 512, 512);
  uint8_t row[512] = {1};
  CHECK_OK(memtable_reserve(fixture.memtable, 1, memtable_need(16, 50), NULL));
  CHECK_OK(memtable_put(fixture.memtable, TURB_STR("0123456789abcdef"), 1, row, 1, (turb_bytes){row, 50}, 2, NULL));
  CHECK_LT(memtable_bytes(fixture.memtable), 24 << 10);
  fixture_close(&fixture);
}

TEST(memtable, limits_of_keys_attributes_and_rows) {
  struct fixture fixture;
  const uint32_t row_bytes = 65536 * 4;
  fixture_open(&fixture, row_bytes, row_bytes);
  struct model model;
  model_init(&model, fixture.memtable, row_bytes, MODEL_LONG);
  uint8_t *attributes = malloc(TURB_MAX_ATTRIBUTE_BYTES);
  uint8_t key[TURB_MAX_KEY_BYTES];
  CHECK(attributes != NULL);
  struct random random;
  random_init(&random, test_seed());
  random_fill(&random, attributes, TURB_MAX_ATTRIBUTE_BYTES);
  memset(key, 0xff, sizeof key);
  const size_t key_sizes[] = {1, TURB_MAX_KEY_BYTES, 4003, 4004, 4005, 3999, 4000};
  const size_t attribute_sizes[] = {TURB_MAX_ATTRIBUTE_BYTES, 0, 1, 262144, 262145, 5};
  for (size_t k = 0; k < sizeof key_sizes / sizeof *key_sizes; k++) {
    for (size_t a = 0; a < sizeof attribute_sizes / sizeof *attribute_sizes; a++) {
      CHECK_OK(model_put(&model, (turb_bytes){key, key_sizes[k]}, (a & 1) == 0,
                         (a & 1) == 0 ? (turb_bytes){attributes, attribute_sizes[a]} : TURB_NONE, NULL));
    }
  }
  model_check(&model);
  model_check_lookups(&model, &random, 200);
  model_free(&model);
  free(attributes);
  fixture_close(&fixture);
}

TEST(memtable, runs_of_rows_cover_all_rows) {
  static const uint32_t strides[] = {1, 7, 64, 512, 2048, 3072, 5000, 70000, 262144, 2000000};
  for (size_t s = 0; s < sizeof strides / sizeof *strides; s++) {
    struct fixture fixture;
    fixture_open(&fixture, strides[s], strides[s]);
    const uint64_t rows = strides[s] < 10000 ? 2000 : 9;
    uint8_t *row = calloc(1, strides[s]);
    CHECK(row != NULL);
    for (uint64_t i = 0; i < rows; i++) {
      row[0] = (uint8_t)i;
      CHECK_OK(memtable_put(fixture.memtable, TURB_STR("k"), i + 1, row, 0, TURB_NONE, 0, NULL));
    }
    for (uint64_t at = 0; at < rows;) {
      uint64_t count = 0;
      const uint8_t *run = memtable_row_run(fixture.memtable, at, &count);
      CHECK_GE(count, 1);
      CHECK_EQ(at / MEMTABLE_CHUNK_ROWS, (at + count - 1) / MEMTABLE_CHUNK_ROWS);
      CHECK_EQ((uintptr_t)run % (strides[s] % 64 == 0 ? 64 : 1), 0);
      if (at >= MEMTABLE_CHUNK_ROWS && strides[s] <= 2048 && at + MEMTABLE_CHUNK_ROWS <= rows) {
        CHECK_EQ(count, MEMTABLE_CHUNK_ROWS);
      }
      for (uint64_t i = 0; i < count; i++) {
        CHECK(memtable_row(fixture.memtable, at + i) == run + i * strides[s]);
        CHECK_EQ(run[i * strides[s]], (uint8_t)(at + i));
        CHECK_EQ(slot_row(memtable_row_slot(fixture.memtable, at + i)), at + i);
      }
      at += count;
    }
    free(row);
    fixture_close(&fixture);
  }
}

/* ---- budget and allocator ---- */

TEST(memtable, a_spent_budget_leaves_the_entries_as_they_were) {
  struct random random;
  struct fixture fixture;
  struct model model;
  random_init(&random, test_seed());
  for (unsigned keys = 0; keys < MODEL_KINDS; keys++) {
    fixture_open(&fixture, 100, 100);
    model_init(&model, fixture.memtable, 100, (enum model_keys)keys);
    unsigned refusals = 0;
    for (unsigned step = 0; step < 3000 && refusals < 40; step++) {
      turb_error err = TURB_ERROR_INIT;
      const turb_status status = model_step(&model, &random, 20000, &err);
      if (status != TURB_OK) {
        CHECK_STATUS_ERR(status, TURB_BUDGET, &err);
        CHECK(test_contains(err.message, "budget"));
        model_check(&model);
        refusals++;
      }
      const uint64_t used = budget_used(&fixture.budget);
      budget_set_limit(&fixture.budget, used + random_below(&random, 60000));
    }
    CHECK_GT(refusals, 0);
    model_check(&model);
    model_check_lookups(&model, &random, 200);
    model_free(&model);
    fixture_close(&fixture);
  }
}

TEST(memtable, a_failed_allocation_leaves_the_entries_as_they_were) {
  const uint64_t seed = test_seed();
  for (uint64_t n = 1;; n++) {
    struct random random;
    struct fixture fixture;
    struct model model;
    random_init(&random, seed);
    fixture_open(&fixture, 700, 704);
    model_init(&model, fixture.memtable, 700, MODEL_RANDOM);
    test_allocator_fail_at(&fixture.allocator, n);
    unsigned failures = 0;
    for (unsigned step = 0; step < 1500; step++) {
      const turb_status status = model_step(&model, &random, 300000, NULL);
      if (status != TURB_OK) {
        CHECK_STATUS(status, TURB_NO_MEMORY);
        failures++;
        model_check(&model);
      }
      if (step % 50 == 0) {
        const turb_status cut = memtable_delete_range(fixture.memtable, TURB_STR("a"), TURB_STR("b"), ++model.sequence, NULL);
        failures += cut != TURB_OK;
        CHECK(cut == TURB_OK || cut == TURB_NO_MEMORY);
      }
    }
    CHECK_LE(failures, 1); /* none where the tree or merged range deletes went without */
    model_check(&model);
    model_check_lookups(&model, &random, 100);
    const bool failed = fixture.allocator.failed;
    model_free(&model);
    fixture_close(&fixture);
    if (!failed) {
      break;
    }
  }
}

TEST(memtable, create_fails_cleanly) {
  struct test_allocator allocator;
  struct budget budget;
  struct memtable *memtable = NULL;
  test_allocator_init(&allocator);
  budget_init(&budget, UINT64_MAX);
  const struct memtable_options options = {.allocator = &allocator.base, .budget = &budget, .row_bytes = 4, .stride = 4};
  test_allocator_fail_at(&allocator, 1);
  CHECK_STATUS(memtable_create(&options, &memtable, NULL), TURB_NO_MEMORY);
  CHECK(memtable == NULL);
  budget_set_limit(&budget, 100);
  CHECK_STATUS(memtable_create(&options, &memtable, NULL), TURB_BUDGET);
  CHECK_EQ(budget_used(&budget), 0);
  test_allocator_check_empty(&allocator);
}

struct operation {
  uint8_t key[TURB_MAX_KEY_BYTES];
  size_t key_size;
  size_t attribute_size;
  enum { PUT, DELETE, DELETE_RANGE } kind;
};

/* A batch whose bytes were reserved goes in though there is no budget and no memory for anything more. */
TEST(memtable, a_reserved_batch_cannot_fail) {
  static struct operation batch[64];
  static uint8_t attributes[400000];
  struct random random;
  random_init(&random, test_seed());
  const uint64_t tables = test_scale(20, 40, 400);
  for (uint64_t table = 0; table < tables; table++) {
    struct fixture fixture;
    struct model model;
    const uint32_t row_bytes = random_one_in(&random, 8) ? 100000 : (uint32_t)random_between(&random, 1, 3000);
    const size_t attribute_most = random_one_in(&random, 2) ? 300 : sizeof attributes;
    fixture_open(&fixture, row_bytes, row_bytes);
    model_init(&model, fixture.memtable, row_bytes, (enum model_keys)random_below(&random, MODEL_KINDS));
    for (unsigned round = 0; round < 60; round++) {
      const size_t count = random_between(&random, 1, random_one_in(&random, 3) ? 64 : 4);
      size_t bytes = 0;
      for (size_t i = 0; i < count; i++) {
        struct operation *operation = &batch[i];
        operation->key_size = model_key(&model, &random, operation->key);
        operation->kind = random_one_in(&random, 8) ? DELETE_RANGE : random_one_in(&random, 4) ? DELETE : PUT;
        operation->attribute_size = operation->kind != PUT || random_one_in(&random, 2) ? 0
                                    : random_one_in(&random, 10)                        ? random_below(&random, attribute_most)
                                                                                        : random_below(&random, 300);
        bytes += memtable_need(operation->key_size, operation->attribute_size);
      }
      CHECK_OK(memtable_reserve(fixture.memtable, count, bytes, NULL));
      const uint64_t charged = memtable_bytes(fixture.memtable);
      CHECK_OK(memtable_reserve(fixture.memtable, count, bytes, NULL));
      CHECK_EQ(memtable_bytes(fixture.memtable), charged);
      const bool starve = !random_one_in(&random, 3); /* else the tree can catch up */
      budget_set_limit(&fixture.budget, starve ? budget_used(&fixture.budget) : UINT64_MAX);
      test_allocator_fail_from(&fixture.allocator, starve ? 1 : 0);
      for (size_t i = 0; i < count; i++) {
        const struct operation *operation = &batch[i];
        const turb_bytes key = {operation->key, operation->key_size};
        if (operation->kind == DELETE_RANGE) {
          const turb_bytes begin = {key.data, key.size / 2};
          const turb_bytes end = {operation->key + key.size / 2, key.size - key.size / 2};
          CHECK_OK(memtable_delete_range(fixture.memtable, begin, end, ++model.sequence, NULL));
        } else {
          const turb_bytes own = {attributes, operation->kind == PUT ? operation->attribute_size : 0};
          turb_error err = TURB_ERROR_INIT;
          CHECK_OK_ERR(model_put(&model, key, operation->kind == PUT, own, &err), &err);
        }
      }
      budget_set_limit(&fixture.budget, UINT64_MAX);
      test_allocator_fail_at(&fixture.allocator, 0);
    }
    model_check(&model);
    model_check_lookups(&model, &random, 100);
    model_free(&model);
    fixture_close(&fixture);
  }
}

TEST(memtable, reserving_fails_as_a_whole) {
  struct fixture fixture;
  fixture_open(&fixture, 10, 10);
  budget_set_limit(&fixture.budget, 1 << 20);
  CHECK_STATUS(memtable_reserve(fixture.memtable, 10, 4 << 20, NULL), TURB_BUDGET);
  CHECK_STATUS(memtable_reserve(fixture.memtable, 10, SIZE_MAX, NULL), TURB_TOO_LARGE);
  CHECK_STATUS(memtable_reserve(fixture.memtable, 1 << 20, 100, NULL), TURB_BUDGET);
  CHECK_EQ(memtable_entries(fixture.memtable), 0);
  fixture_close(&fixture);
}

/* ---- range deletes ---- */

TEST(memtable, range_deletes_as_fragments) {
  struct fixture fixture;
  fixture_open(&fixture, 4, 4);
  struct memtable *memtable = fixture.memtable;
  CHECK_OK(memtable_delete_range(memtable, TURB_STR("b"), TURB_STR("k"), 10, NULL));
  CHECK_OK(memtable_delete_range(memtable, TURB_STR("d"), TURB_NONE, 20, NULL));
  CHECK_OK(memtable_delete_range(memtable, TURB_STR("x"), TURB_STR("c"), 25, NULL));
  CHECK_OK(memtable_delete_range(memtable, TURB_NONE, TURB_STR("c"), 30, NULL));
  CHECK_EQ(memtable_range_delete_count(memtable), 4);
  CHECK_EQ(memtable_first_sequence(memtable), 10);
  CHECK_EQ(memtable_last_sequence(memtable), 30);
  CHECK_EQ(memtable_range_cover(memtable, TURB_STR("b"), 29), 10);
  CHECK_EQ(memtable_range_cover(memtable, TURB_STR("b"), 30), 30);
  CHECK_EQ(memtable_range_cover(memtable, TURB_STR("zz"), 40), 20);
  CHECK_EQ(memtable_range_cover(memtable, TURB_STR("zz"), 19), 0);
  struct arena arena;
  struct range_deletes deletes;
  arena_init(&arena, alloc_default(), NULL, BUDGET_CURSOR, 0);
  CHECK_OK(memtable_range_deletes(memtable, 20, &arena, &deletes, NULL));
  CHECK(range_deletes_valid(&deletes));
  CHECK_EQ(deletes.count, 3);
  CHECK_EQ(deletes.fragments[1].sequence_count, 2);
  const struct range_snapshots none = {NULL, 0};
  CHECK_OK(memtable_range_deletes_seen(memtable, SLOT_SEQUENCE_MAX, &none, &arena, &deletes, NULL));
  CHECK_EQ(deletes.count, 3); /* ["", c) 30, [c, d) 10, [d, open) 20 */
  CHECK_EQ(deletes.fragments[2].sequence_count, 1);
  CHECK_OK(memtable_range_deletes(memtable, 9, &arena, &deletes, NULL));
  CHECK_EQ(deletes.count, 0);
  arena_free(&arena);
  fixture_close(&fixture);
}

/* A pool that keeps nothing has still looked at the chunk, in debug builds over all its bytes. */
TEST(memtable, chunks_that_the_pool_refuses_are_released) {
  struct test_allocator allocator;
  test_allocator_init(&allocator);
  struct budget budget;
  budget_init(&budget, 64 << 20);
  struct memtable_pool pool;
  memtable_pool_init(&pool, &allocator.base, &budget, 0);
  const struct memtable_options options = {.allocator = &allocator.base, .budget = &budget, .pool = &pool, .row_bytes = 512, .stride = 512};
  struct memtable *memtable;
  CHECK_OK(memtable_create(&options, &memtable, NULL));
  static const uint8_t row[512];
  for (uint64_t i = 1; i <= 2000; i++)
    CHECK_OK(memtable_put(memtable, (turb_bytes){&i, sizeof i}, i, row, 1, TURB_NONE, 0, NULL));
  memtable_release(memtable);
  CHECK_EQ(memtable_pool_kept(&pool), 0);
  memtable_pool_free(&pool);
  CHECK_EQ(budget_used(&budget), 0);
  test_allocator_check_empty(&allocator);
}

TEST(memtable, chunks_go_to_the_pool_and_come_back) {
  struct test_allocator allocator;
  struct budget budget;
  struct memtable_pool pool;
  test_allocator_init(&allocator);
  budget_init(&budget, UINT64_MAX);
  memtable_pool_init(&pool, &allocator.base, &budget, 64 << 20);
  struct random random;
  random_init(&random, test_seed());
  for (int table = 0; table < 4; table++) {
    struct memtable *memtable = NULL;
    struct model model;
    const struct memtable_options options = {
        .allocator = &allocator.base, .budget = &budget, .pool = &pool, .row_bytes = 512, .stride = 512};
    CHECK_OK(memtable_create(&options, &memtable, NULL));
    model_init(&model, memtable, 512, MODEL_RANDOM);
    for (int i = 0; i < 10000; i++) {
      CHECK_OK(model_step(&model, &random, 0, NULL));
    }
    model_check(&model);
    CHECK_EQ(budget_used(&budget), memtable_bytes(memtable) + memtable_pool_kept(&pool));
    memtable_release(memtable);
    model_free(&model);
    CHECK_EQ(budget_used(&budget), memtable_pool_kept(&pool));
  }
  CHECK_GT(memtable_pool_kept(&pool), 5 << 20);
  CHECK_GE(memtable_pool_trim(&pool, 1 << 20), 1 << 20);
  memtable_pool_free(&pool);
  CHECK_EQ(budget_used(&budget), 0);
  test_allocator_check_empty(&allocator);
}
