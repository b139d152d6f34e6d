/* Lazy levelling: tiers above one bottom run, and the bound on space. */
#include "tests/compactor/policy_tree.h"
#include "tests/support/test.h"

TEST(policy_lazy, the_newest_neighbours_of_a_level_become_one_run) {
  static struct policy_tree tree;
  tree = (struct policy_tree){.options = {.size_ratio = 4, .max_space_amplification_percent = 1000, .unit_bytes = 1000}};
  for (int i = 0; i < 3; i++)
    policy_tree_flush(&tree, 1000);
  CHECK_EQ(tree.count, 3);
  policy_tree_flush(&tree, 1000);
  CHECK_EQ(tree.count, 1);
  CHECK_EQ(tree.runs[0].bytes, 4000);
}

TEST(policy_lazy, a_busy_run_parts_the_others) {
  const struct policy_options options = {.size_ratio = 3, .max_space_amplification_percent = 100, .unit_bytes = 1000};
  struct policy_run runs[5];
  for (size_t i = 0; i < 5; i++)
    runs[i] = (struct policy_run){.bytes = 1000, .entries = 10, .busy = i == 2};
  CHECK_EQ(policy_next(&options, runs, 5).reason, POLICY_NOTHING);
  runs[2].busy = false;
  CHECK_EQ(policy_next(&options, runs, 5).reason, POLICY_TIER);
}

TEST(policy_lazy, everything_is_merged_when_the_upper_runs_are_large) {
  const struct policy_options options = {.size_ratio = 10, .max_space_amplification_percent = 50, .unit_bytes = 1000};
  struct policy_run runs[3] = {{.bytes = 20000}, {.bytes = 29000}, {.bytes = 100000}};
  CHECK_EQ(policy_next(&options, runs, 3).reason, POLICY_NOTHING);
  runs[0].bytes = 22000;
  const struct policy_pick pick = policy_next(&options, runs, 3);
  CHECK_EQ(pick.reason, POLICY_SPACE);
  CHECK_EQ(pick.count, 3);
  runs[1].busy = true; /* everything, or nothing */
  CHECK_EQ(policy_next(&options, runs, 3).reason, POLICY_NOTHING);
}

/* What lazy levelling promises: few runs, bytes written in proportion to the levels, little space above the bottom. */
TEST(policy_lazy, bounds_hold_over_many_flushes) {
  static const struct {
    uint32_t ratio;
    uint32_t space_percent;
    size_t fan_in;
  } cases[] = {{10, 100, 0}, {4, 100, 0}, {2, 100, 0}, {10, 25, 0}, {10, 100, 3}, {4, 50, 2}};
  struct random random;
  random_init(&random, test_seed());
  const uint64_t flushes = test_scale(3000, 3000, 30000);
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    static struct policy_tree tree;
    const uint32_t ratio = cases[c].ratio;
    tree = (struct policy_tree){
        .options = {.size_ratio = ratio, .max_space_amplification_percent = cases[c].space_percent, .unit_bytes = 1 << 20},
        .fan_in = cases[c].fan_in};
    for (uint64_t i = 0; i < flushes; i++) {
      policy_tree_flush(&tree, random_between(&random, 900000, 1100000));
      const uint64_t upper = policy_tree_bytes(&tree, 0, tree.count - 1), bottom = tree.runs[tree.count - 1].bytes;
      CHECK(tree.count == 1 || bottom < ((uint64_t)ratio << 19) || upper / 100 <= bottom / 100 * cases[c].space_percent / 100);
    }
    const uint64_t levels = policy_tree_levels(ratio, flushes);
    CHECK_LE(tree.most, ratio * levels + 1);
    CHECK_LE(tree.most, policy_runs_max(&tree.options));
    /* A merge a level, and the bottom rewritten for each share of it that came above: 1 + 1 / share. A narrow fan-in pays log(ratio) merges. */
    uint64_t passes = 1;
    for (uint64_t width = 1; tree.fan_in != 0 && width < ratio; width *= tree.fan_in)
      passes++;
    const uint64_t bound = (levels + 2 + 2 * 100 / cases[c].space_percent) * passes;
    CHECK_LE(tree.written / tree.flushed, bound);
  }
}
