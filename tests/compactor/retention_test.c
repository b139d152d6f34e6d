/* What a merge keeps, against what every reader could see. */
#include "compactor/retention.h"

#include <stdlib.h>

#include "base/arena.h"
#include "sstable/page_builder.h"
#include "tests/support/test.h"

#define ENTRIES   40
#define KEYS      6
#define SNAPSHOTS 4
#define RANGES    3

struct case_of_retention {
  struct {
    uint8_t key;
    uint64_t sequence;
    bool put;
  } entries[ENTRIES]; /* in entry order */
  size_t count;
  uint64_t snapshots[SNAPSHOTS];
  size_t snapshot_count;
  struct range_delete ranges[RANGES];
  uint8_t borders[RANGES][2];
  size_t range_count;
};

static void make(struct case_of_retention *c, struct random *random) {
  *c = (struct case_of_retention){.count = random_between(random, 1, ENTRIES),
                                  .snapshot_count = random_below(random, SNAPSHOTS + 1),
                                  .range_count = random_below(random, RANGES + 1)};
  uint64_t taken[ENTRIES + RANGES]; /* sequences 1 .. 100, each once */
  for (size_t i = 0; i < c->count + c->range_count; i++) {
    bool again = true;
    while (again) {
      taken[i] = random_between(random, 1, 100);
      again = false;
      for (size_t j = 0; j < i; j++) {
        again |= taken[i] == taken[j];
      }
    }
  }
  for (size_t i = 0; i < c->count; i++) { /* kept in order as they come */
    const uint8_t key = (uint8_t)random_below(random, KEYS);
    size_t at = i;
    while (at > 0 && (c->entries[at - 1].key > key || (c->entries[at - 1].key == key && c->entries[at - 1].sequence < taken[i]))) {
      c->entries[at] = c->entries[at - 1];
      at--;
    }
    c->entries[at].key = key;
    c->entries[at].sequence = taken[i];
    c->entries[at].put = random_below(random, 3) != 0;
  }
  for (size_t i = 0; i < c->range_count; i++) {
    c->borders[i][0] = (uint8_t)random_below(random, KEYS);
    c->borders[i][1] = (uint8_t)random_between(random, c->borders[i][0] + 1u, KEYS);
    c->ranges[i] = (struct range_delete){{&c->borders[i][0], 1}, {&c->borders[i][1], 1}, taken[c->count + i]};
  }
  for (size_t i = 0; i < c->snapshot_count; i++) {
    c->snapshots[i] = (i == 0 ? 0 : c->snapshots[i - 1]) + random_between(random, 1, 25);
  }
}

/* What a reader at `sequence` gets of a key from the entries that are kept: the put's sequence, 0 (nothing is here: older runs decide), or
 * UINT64_MAX (deleted). Range deletes count only where the merge keeps them. */
static uint64_t seen(const struct case_of_retention *c, const bool *kept, const struct retention *rules, uint8_t key, uint64_t sequence) {
  uint64_t hidden = 0;
  for (size_t i = 0; i < c->range_count; i++) {
    const struct range_delete *range = &c->ranges[i];
    const bool there = rules == NULL || retention_keeps_range(rules, range->sequence);
    if (there && range->sequence <= sequence && range->sequence > hidden && c->borders[i][0] <= key && key < c->borders[i][1]) {
      hidden = range->sequence;
    }
  }
  for (size_t i = 0; i < c->count; i++) {
    if (c->entries[i].key == key && c->entries[i].sequence <= sequence && (kept == NULL || kept[i])) {
      return c->entries[i].put && c->entries[i].sequence > hidden ? c->entries[i].sequence : UINT64_MAX;
    }
  }
  return hidden != 0 ? UINT64_MAX : 0;
}

static void check_seen(const struct case_of_retention *c, const bool *kept, const struct retention *rules, bool bottom, uint64_t sequence) {
  for (uint8_t key = 0; key < KEYS; key++) {
    uint64_t before = seen(c, NULL, NULL, key, sequence), after = seen(c, kept, rules, key, sequence);
    if (bottom) { /* nothing older lies below: no entry and a deleted one are the same */
      before = before == UINT64_MAX ? 0 : before;
      after = after == UINT64_MAX ? 0 : after;
    }
    CHECK_EQ(after, before);
  }
}

/* How many entries someone may see: what is kept beyond them (deletes apart) is waste. */
static size_t count_visible_puts(const struct case_of_retention *c) {
  size_t count = 0;
  for (size_t i = 0; i < c->count; i++) {
    bool visible = seen(c, NULL, NULL, c->entries[i].key, UINT64_MAX) == c->entries[i].sequence;
    for (size_t s = 0; s < c->snapshot_count; s++) {
      visible |= seen(c, NULL, NULL, c->entries[i].key, c->snapshots[s]) == c->entries[i].sequence;
    }
    count += visible;
  }
  return count;
}

static void judge(const struct case_of_retention *c, bool bottom, struct arena *arena, struct random *random) {
  _Alignas(4096) uint8_t memory[PAGE_BUILDER_BYTES];
  struct key_page_builder builder;
  key_page_begin(&builder, memory, 0, 0);
  for (size_t i = 0; i < c->count; i++) {
    const struct key_page_entry entry = {.key = {&c->entries[i].key, 1},
                                         .sequence_kind = c->entries[i].sequence << 8 | (c->entries[i].put ? SLOT_PUT : SLOT_DELETE)};
    const bool same_key = i > 0 && c->entries[i - 1].key == c->entries[i].key;
    CHECK(key_page_fits(&builder, 1, same_key));
    key_page_add(&builder, &entry, same_key);
  }
  (void)key_page_finish(&builder);
  const struct slot_page *page = (const struct slot_page *)(const void *)memory;
  turb_error err = TURB_ERROR_INIT;
  struct range_deletes ranges = {0};
  CHECK_OK_ERR(range_deletes_build(c->ranges, c->range_count, NULL, arena, &ranges, &err), &err);
  struct retention rules;
  retention_init(&rules, c->snapshots, c->snapshot_count, &ranges, bottom);
  bool kept[ENTRIES];
  size_t puts = 0;
  const struct slot *before = NULL;
  for (size_t i = 0; i < c->count; i++) {
    const struct slot *slot = slot_at(page, i);
    if (before != NULL && random_one_in(random, 3)) { /* its page goes */
      retention_remember(&rules, before);
      before = NULL;
    }
    kept[i] = retention_judge(&rules, slot, before) == RETAIN;
    puts += kept[i] && c->entries[i].put;
    before = slot;
  }
  check_seen(c, kept, &rules, bottom, UINT64_MAX);
  for (size_t s = 0; s < c->snapshot_count; s++) {
    check_seen(c, kept, &rules, bottom, c->snapshots[s]);
  }
  CHECK_EQ(puts, count_visible_puts(c));
}

TEST(retention, every_reader_sees_the_same) {
  struct random random;
  random_init(&random, test_seed());
  struct budget budget;
  budget_init(&budget, UINT64_MAX);
  const uint64_t rounds = test_scale(20000, 5000, 200000);
  for (uint64_t i = 0; i < rounds; i++) {
    struct arena arena;
    arena_init(&arena, alloc_default(), &budget, BUDGET_JOB, 0);
    struct case_of_retention c;
    make(&c, &random);
    judge(&c, random_one_in(&random, 2), &arena, &random);
    arena_free(&arena);
  }
  CHECK_EQ(budget_used(&budget), 0);
}
