/* The policy, driven without I/O. */
#include "compactor/policy.h"

#include "tests/support/test.h"

#define RUNS_MAX 1024

/* A collection that is flushed and merged at once, whenever the policy picks something. */
struct tree {
  struct policy_options options;
  struct policy_run runs[RUNS_MAX]; /* newest first */
  size_t count, most;               /* most: seen */
  size_t fan_in;
  uint64_t flushed, written; /* bytes */
};

static void apply(struct tree *tree, struct policy_pick pick) {
  CHECK_LE(pick.first + pick.count, tree->count);
  CHECK_EQ(pick.bottom, pick.first + pick.count == tree->count);
  struct policy_run merged = {0};
  for (size_t i = 0; i < pick.count; i++) {
    CHECK(!tree->runs[pick.first + i].busy);
    merged.bytes += tree->runs[pick.first + i].bytes;
    merged.entries += tree->runs[pick.first + i].entries;
  }
  tree->written += merged.bytes;
  tree->runs[pick.first] = merged;
  const size_t rest = tree->count - pick.first - pick.count;
  memmove(tree->runs + pick.first + 1, tree->runs + pick.first + pick.count, rest * sizeof *tree->runs);
  tree->count -= pick.count - 1;
}

static void flush(struct tree *tree, uint64_t bytes) {
  CHECK_LT(tree->count, RUNS_MAX);
  memmove(tree->runs + 1, tree->runs, tree->count++ * sizeof *tree->runs);
  tree->runs[0] = (struct policy_run){.bytes = bytes, .entries = bytes / 100};
  tree->flushed += bytes;
  tree->written += bytes;
  for (;;) {
    tree->most = tree->count > tree->most ? tree->count : tree->most;
    struct policy_pick pick = policy_next(&tree->options, tree->runs, tree->count);
    if (pick.reason == POLICY_NOTHING) {
      return;
    }
    CHECK_GE(pick.count, 2);
    if (tree->fan_in != 0) {
      pick = policy_narrow(pick, tree->runs, tree->count, tree->fan_in);
      CHECK_LE(pick.count, tree->fan_in);
    }
    apply(tree, pick);
  }
}

TEST(policy, the_newest_neighbours_of_a_level_become_one_run) {
  struct tree tree = {.options = {.size_ratio = 4, .max_space_amplification_percent = 1000, .unit_bytes = 1000}};
  for (int i = 0; i < 3; i++) {
    flush(&tree, 1000);
  }
  CHECK_EQ(tree.count, 3);
  flush(&tree, 1000);
  CHECK_EQ(tree.count, 1);
  CHECK_EQ(tree.runs[0].bytes, 4000);
}

TEST(policy, a_busy_run_parts_the_others) {
  const struct policy_options options = {.size_ratio = 3, .max_space_amplification_percent = 100, .unit_bytes = 1000};
  struct policy_run runs[5] = {{1000, 10, false}, {1000, 10, false}, {1000, 10, true}, {1000, 10, false}, {1000, 10, false}};
  CHECK_EQ(policy_next(&options, runs, 5).reason, POLICY_NOTHING);
  CHECK_EQ(policy_everything(runs, 5).reason, POLICY_NOTHING);
  runs[2].busy = false;
  CHECK_EQ(policy_next(&options, runs, 5).reason, POLICY_TIER);
  const struct policy_pick all = policy_everything(runs, 5);
  CHECK_EQ(all.reason, POLICY_REQUEST);
  CHECK_EQ(all.count, 5);
  CHECK(all.bottom);
  CHECK_EQ(policy_everything(runs, 1).reason, POLICY_NOTHING);
}

/* What lazy levelling promises: few runs, bytes written in proportion to the levels, little space above the bottom. */
TEST(policy, bounds_hold_over_many_flushes) {
  static const struct {
    uint32_t ratio;
    uint32_t space_percent;
    size_t fan_in;
  } cases[] = {{10, 100, 0}, {4, 100, 0}, {2, 100, 0}, {10, 25, 0}, {10, 100, 3}, {4, 50, 2}};
  struct random random;
  random_init(&random, test_seed());
  const uint64_t flushes = test_scale(3000, 3000, 30000);
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    static struct tree tree;
    const uint32_t ratio = cases[c].ratio;
    tree = (struct tree){.options = {.size_ratio = ratio, .max_space_amplification_percent = cases[c].space_percent, .unit_bytes = 1 << 20},
                         .fan_in = cases[c].fan_in};
    for (uint64_t i = 0; i < flushes; i++) {
      flush(&tree, random_between(&random, 900000, 1100000));
      uint64_t upper = 0;
      for (size_t r = 0; r + 1 < tree.count; r++) {
        upper += tree.runs[r].bytes;
      }
      const uint64_t bottom = tree.runs[tree.count - 1].bytes;
      CHECK(tree.count == 1 || bottom < ((uint64_t)ratio << 19) || upper / 100 <= bottom / 100 * cases[c].space_percent / 100);
    }
    uint64_t levels = 1;
    for (uint64_t size = 1; size < flushes; size *= ratio) {
      levels++;
    }
    CHECK_LE(tree.most, ratio * levels + 1);
    /* A merge a level, and the bottom rewritten for each share of it that came above: 1 + 1 / share. A narrow fan-in pays log(ratio) merges. */
    uint64_t passes = 1;
    for (uint64_t width = 1; tree.fan_in != 0 && width < ratio; width *= tree.fan_in) {
      passes++;
    }
    const uint64_t bound = (levels + 2 + 2 * 100 / cases[c].space_percent) * passes;
    CHECK_LE(tree.written / tree.flushed, bound);
  }
}

TEST(policy, a_narrow_pick_takes_the_smallest_neighbours) {
  const struct policy_run runs[6] = {{50, 1, false}, {10, 1, false}, {20, 1, false}, {10, 1, false}, {20, 1, false}, {900, 1, false}};
  const struct policy_pick wide = policy_everything(runs, 6);
  struct policy_pick pick = policy_narrow(wide, runs, 6, 2);
  CHECK_EQ(pick.first, 3); /* of equals the oldest */
  CHECK_EQ(pick.count, 2);
  CHECK_EQ(pick.reason, POLICY_REQUEST);
  CHECK(!pick.bottom);
  pick = policy_narrow(wide, runs, 6, 5);
  CHECK_EQ(pick.first, 0);
  CHECK_EQ(pick.count, 5);
  pick = policy_narrow(wide, runs, 6, 6);
  CHECK_EQ(pick.count, 6);
  CHECK(pick.bottom);
  const struct policy_pick older = policy_narrow((struct policy_pick){POLICY_TIER, 3, 3, true}, runs, 6, 2);
  CHECK_EQ(older.first, 3);
  CHECK(!older.bottom);
}
