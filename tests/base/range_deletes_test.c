/* Fragments of range deletes against brute force: building, merging, clipping, thinning, copying. */
#include "base/range_deletes.h"

#include "base/arena.h"
#include "base/budget.h"
#include "tests/support/allocator.h"
#include "tests/support/test.h"

#define RANGES_MOST 60u
#define LETTERS     12u
#define LAST        UINT64_MAX

/* Keys are "", "a", "a\0", "b", "b\0", ... : short, with neighbours. */
static const char *const key_texts[] = {"", "a", "a\0", "b", "b\0", "c", "d", "d\0\0", "e", "f", "zzzzzzzzzzzz", "zzzzzzzzzzzzz"};
static const size_t key_sizes[] = {0, 1, 2, 1, 2, 1, 1, 3, 1, 1, 12, 13};
_Static_assert(sizeof key_sizes / sizeof *key_sizes == LETTERS, "as many sizes as texts");

static turb_bytes key_of(size_t i) {
  return (turb_bytes){key_texts[i], key_sizes[i]};
}

static int order_of(turb_bytes a, turb_bytes b) {
  return key_compare(a.data, a.size, b.data, b.size);
}

static size_t random_list(struct random *random, struct range_delete *list, size_t most, uint64_t sequences) {
  const size_t count = random_below(random, most + 1);
  for (size_t i = 0; i < count; i++) {
    const turb_bytes open = {NULL, 0};
    list[i] = (struct range_delete){.begin = key_of(random_below(random, LETTERS)),
                                    .end = random_one_in(random, 6) ? open : key_of(random_below(random, LETTERS)),
                                    .sequence = random_between(random, 1, sequences)};
  }
  return count;
}

static uint64_t brute_cover(const struct range_delete *list, size_t count, turb_bytes key, uint64_t snapshot) {
  uint64_t best = 0;
  for (size_t i = 0; i < count; i++) {
    const bool covers = order_of(list[i].begin, key) <= 0 && (list[i].end.size == 0 || order_of(key, list[i].end) < 0);
    if (covers && list[i].sequence <= snapshot && list[i].sequence > best) {
      best = list[i].sequence;
    }
  }
  return best;
}

/* Neighbours that touch and say the same would be one fragment. */
static void check_canonical(const struct range_deletes *deletes) {
  CHECK(range_deletes_valid(deletes));
  for (size_t i = 1; i < deletes->count; i++) {
    const struct range_fragment *a = &deletes->fragments[i - 1];
    const struct range_fragment *b = &deletes->fragments[i];
    const bool same =
        a->sequence_count == b->sequence_count && memcmp(a->sequences, b->sequences, a->sequence_count * sizeof *a->sequences) == 0;
    CHECK(!(same && order_of(a->end, b->begin) == 0));
  }
}

TEST(range_deletes, build_covers_as_the_list_does) {
  struct random random;
  random_init(&random, test_seed());
  const uint64_t rounds = test_scale(3000, 5000, 60000);
  for (uint64_t round = 0; round < rounds; round++) {
    struct range_delete list[RANGES_MOST];
    const uint64_t sequences = random_between(&random, 1, 100);
    const size_t count = random_list(&random, list, RANGES_MOST, sequences);
    struct arena arena;
    arena_init(&arena, alloc_default(), NULL, BUDGET_JOB, 0);
    struct range_deletes all, seen, merged, thinned;
    CHECK_OK(range_deletes_build(list, count, NULL, &arena, &all, NULL));
    check_canonical(&all);
    /* Two sets made one are the set of both. */
    const size_t half = random_below(&random, count + 1);
    struct range_deletes parts[2];
    const struct range_deletes *const sets[2] = {&parts[0], &parts[1]};
    CHECK_OK(range_deletes_build(list, half, NULL, &arena, &parts[0], NULL));
    CHECK_OK(range_deletes_build(list + half, count - half, NULL, &arena, &parts[1], NULL));
    CHECK_OK(range_deletes_merge(sets, 2, NULL, &arena, &merged, NULL));
    CHECK_EQ(merged.count, all.count);
    /* With snapshots, what these see stays: built so, or thinned afterwards. */
    uint64_t snapshots[4];
    size_t snapshot_count = random_below(&random, 5);
    for (size_t i = 0; i < snapshot_count; i++) {
      snapshots[i] = (i != 0 ? snapshots[i - 1] : 0) + random_between(&random, 1, 30);
    }
    const struct range_snapshots held = {snapshots, snapshot_count};
    CHECK_OK(range_deletes_build(list, count, &held, &arena, &seen, NULL));
    CHECK_OK(range_deletes_drop(&all, &held, 0, &arena, &thinned, NULL));
    check_canonical(&seen);
    check_canonical(&thinned);
    CHECK_EQ(seen.count, thinned.count);
    for (size_t k = 0; k < LETTERS; k++) {
      const uint64_t snapshot = random_below(&random, sequences + 2);
      CHECK_EQ(range_deletes_cover(&all, key_of(k), snapshot), brute_cover(list, count, key_of(k), snapshot));
      CHECK_EQ(range_deletes_cover(&merged, key_of(k), snapshot), brute_cover(list, count, key_of(k), snapshot));
      for (size_t i = 0; i <= snapshot_count; i++) {
        const uint64_t at = i < snapshot_count ? snapshots[i] : LAST;
        CHECK_EQ(range_deletes_cover(&seen, key_of(k), at), brute_cover(list, count, key_of(k), at));
        CHECK_EQ(range_deletes_cover(&thinned, key_of(k), at), brute_cover(list, count, key_of(k), at));
      }
    }
    for (size_t i = 0; i < seen.count; i++) {
      CHECK_LE(seen.fragments[i].sequence_count, snapshot_count + 1);
      CHECK_EQ(order_of(seen.fragments[i].begin, thinned.fragments[i].begin), 0);
      CHECK_EQ(seen.fragments[i].sequence_count, thinned.fragments[i].sequence_count);
    }
    arena_free(&arena);
  }
}

TEST(range_deletes, clip_keeps_what_lies_between_the_bounds) {
  struct random random;
  random_init(&random, test_seed());
  const uint64_t rounds = test_scale(3000, 5000, 60000);
  for (uint64_t round = 0; round < rounds; round++) {
    struct range_delete list[RANGES_MOST];
    const size_t count = random_list(&random, list, RANGES_MOST, 50);
    struct arena arena;
    arena_init(&arena, alloc_default(), NULL, BUDGET_JOB, 0);
    struct range_deletes all, clipped, copy;
    CHECK_OK(range_deletes_build(list, count, NULL, &arena, &all, NULL));
    const turb_bytes lower = key_of(random_below(&random, LETTERS));
    const turb_bytes upper = random_one_in(&random, 4) ? TURB_NONE : key_of(random_below(&random, LETTERS));
    CHECK_OK(range_deletes_clip(&all, lower, upper, &arena, &clipped, NULL));
    CHECK_OK(range_deletes_copy(&clipped, &arena, &copy, NULL));
    CHECK(range_deletes_valid(&clipped));
    CHECK(range_deletes_valid(&copy));
    CHECK_EQ(copy.count, clipped.count);
    for (size_t k = 0; k < LETTERS; k++) {
      const turb_bytes key = key_of(k);
      const bool within = order_of(lower, key) <= 0 && (upper.size == 0 || order_of(key, upper) < 0);
      const uint64_t snapshot = random_below(&random, 52);
      const uint64_t wanted = within ? brute_cover(list, count, key, snapshot) : 0;
      CHECK_EQ(range_deletes_cover(&clipped, key, snapshot), wanted);
      CHECK_EQ(range_deletes_cover(&copy, key, snapshot), wanted);
    }
    arena_free(&arena);
  }
}

TEST(range_deletes, drop_through_a_sequence) {
  const struct range_delete list[] = {
      {TURB_STR("a"), TURB_STR("m"), 10}, {TURB_STR("c"), TURB_NONE, 20}, {TURB_STR("x"), TURB_STR("y"), 5}};
  struct arena arena;
  arena_init(&arena, alloc_default(), NULL, BUDGET_JOB, 0);
  struct range_deletes all, left;
  CHECK_OK(range_deletes_build(list, 3, NULL, &arena, &all, NULL));
  CHECK_EQ(all.count, 5);
  CHECK(all.fragments[4].end.data == NULL);
  CHECK_OK(range_deletes_drop(&all, NULL, 10, &arena, &left, NULL));
  CHECK_EQ(left.count, 1); /* pieces of the one that is left are joined again */
  CHECK_EQ(left.fragments[0].sequences[0], 20);
  CHECK_EQ(range_deletes_cover(&left, TURB_STR("b"), LAST), 0);
  CHECK_EQ(range_deletes_cover(&left, TURB_STR("x"), LAST), 20);
  CHECK_EQ(range_deletes_cover(&left, TURB_STR("x"), 19), 0);
  CHECK_OK(range_deletes_drop(&all, NULL, 20, &arena, &left, NULL));
  CHECK_EQ(left.count, 0);
  CHECK_OK(range_deletes_build(NULL, 0, NULL, &arena, &left, NULL));
  CHECK_OK(range_deletes_copy(&left, &arena, &left, NULL));
  CHECK_EQ(range_deletes_find(&left, TURB_STR("a")), 0);
  CHECK_EQ(range_deletes_find(&all, TURB_STR("m")), 2);
  arena_free(&arena);
}

TEST(range_deletes, empty_ranges_cover_nothing) {
  const struct range_delete list[] = {{TURB_STR("b"), TURB_STR("a"), 1}, {TURB_STR("c"), TURB_STR("c"), 2}};
  struct arena arena;
  arena_init(&arena, alloc_default(), NULL, BUDGET_JOB, 0);
  struct range_deletes deletes;
  CHECK_OK(range_deletes_build(list, 2, NULL, &arena, &deletes, NULL));
  CHECK_EQ(deletes.count, 0);
  arena_free(&arena);
}

/* Each inside the one before: all sequences at the innermost stretch, which snapshots thin to one. */
TEST(range_deletes, deep_nesting_costs_what_snapshots_tell_apart) {
  enum { DEPTH = 20000 };
  static uint8_t keys[2 * DEPTH][4];
  static struct range_delete list[DEPTH];
  for (uint32_t i = 0; i < 2 * DEPTH; i++) {
    for (int b = 0; b < 4; b++) {
      keys[i][b] = (uint8_t)(i >> (8 * (3 - b)));
    }
  }
  for (uint32_t i = 0; i < DEPTH; i++) {
    list[i] = (struct range_delete){{keys[i], 4}, {keys[2 * DEPTH - 1 - i], 4}, i + 1};
  }
  struct budget budget;
  struct arena arena;
  budget_init(&budget, 16u << 20);
  arena_init(&arena, alloc_default(), &budget, BUDGET_JOB, 0);
  struct range_deletes deletes;
  const struct range_snapshots none = {NULL, 0};
  CHECK_OK(range_deletes_build(list, DEPTH, &none, &arena, &deletes, NULL));
  CHECK_EQ(deletes.count, 2 * DEPTH - 1);
  CHECK_EQ(range_deletes_cover(&deletes, (turb_bytes){keys[DEPTH - 1], 4}, LAST), DEPTH);
  CHECK_EQ(range_deletes_cover(&deletes, (turb_bytes){keys[2 * DEPTH - 2], 4}, LAST), 1);
  turb_error err = TURB_ERROR_INIT;
  CHECK_STATUS_ERR(range_deletes_build(list, DEPTH, NULL, &arena, &deletes, &err), TURB_BUDGET, &err);
  CHECK_EQ(deletes.count, 0);
  arena_free(&arena);
  CHECK_EQ(budget_used(&budget), 0);
}

TEST(range_deletes, failed_allocations_leave_an_empty_result) {
  struct test_allocator allocator;
  test_allocator_init(&allocator);
  struct random random;
  random_init(&random, test_seed());
  struct range_delete list[RANGES_MOST];
  size_t count = 0;
  while (count < RANGES_MOST / 2) {
    count = random_list(&random, list, RANGES_MOST, 1000);
  }
  for (uint64_t n = 1;; n++) {
    test_allocator_fail_at(&allocator, n);
    struct arena arena;
    arena_init(&arena, &allocator.base, NULL, BUDGET_JOB, 256);
    struct range_deletes all = {NULL, 0}, merged = {NULL, 0}, copy = {NULL, 0}, thinned = {NULL, 0};
    const struct range_snapshots held = {(const uint64_t[]){100, 500}, 2};
    turb_status status = range_deletes_build(list, count, NULL, &arena, &all, NULL);
    if (status == TURB_OK) {
      status = range_deletes_merge((const struct range_deletes *const[]){&all, &all}, 2, &held, &arena, &merged, NULL);
    }
    if (status == TURB_OK) {
      status = range_deletes_drop(&all, &held, 3, &arena, &thinned, NULL);
    }
    if (status == TURB_OK) {
      status = range_deletes_clip(&all, key_of(1), key_of(8), &arena, &thinned, NULL);
    }
    if (status == TURB_OK) {
      status = range_deletes_copy(&all, &arena, &copy, NULL);
      CHECK(status == TURB_OK || copy.count == 0);
    }
    arena_free(&arena);
    test_allocator_check_empty(&allocator);
    if (!allocator.failed) {
      CHECK_OK(status);
      break;
    }
    CHECK_STATUS(status, TURB_NO_MEMORY);
  }
}
