/* Full levelling: one run a level. */
#include "compactor/policy_parts.h"
#include "tests/compactor/policy_tree.h"
#include "tests/support/test.h"

TEST(policy_levelled, a_run_goes_into_the_one_below_it) {
  static struct policy_tree tree;
  tree = (struct policy_tree){.options = {.policy = TURB_COMPACTION_LEVELLED, .size_ratio = 10, .unit_bytes = 1000}};
  for (int i = 0; i < 5; i++) {
    policy_tree_flush(&tree, 1000);
    CHECK_EQ(tree.count, 1);
  }
  policy_tree_flush(&tree, 1000); /* 6,000 are of level 1 */
  CHECK_EQ(tree.count, 1);
  policy_tree_flush(&tree, 1000);
  CHECK_EQ(tree.count, 2);
  CHECK_EQ(tree.runs[1].bytes, 6000);
}

TEST(policy_levelled, what_the_result_outgrows_goes_along_at_once) {
  const struct policy_options options = {.policy = TURB_COMPACTION_LEVELLED, .size_ratio = 10, .unit_bytes = 1000};
  struct policy_run runs[4] = {{.bytes = 1000}, {.bytes = 4500}, {.bytes = 30000}, {.bytes = 900000}};
  struct policy_pick pick = policy_next(&options, runs, 4);
  CHECK_EQ(pick.reason, POLICY_LEVEL);
  CHECK_EQ(pick.first, 0);
  CHECK_EQ(pick.count, 3);
  runs[2].busy = true;
  pick = policy_next(&options, runs, 4);
  CHECK_EQ(pick.count, 2);
  runs[1].busy = true;
  CHECK_EQ(policy_next(&options, runs, 4).reason, POLICY_NOTHING);
}

TEST(policy_levelled, one_run_a_level_over_many_flushes) {
  struct random random;
  random_init(&random, test_seed());
  static const uint32_t ratios[] = {2, 4, 10};
  const uint64_t flushes = test_scale(3000, 3000, 30000);
  for (size_t c = 0; c < sizeof ratios / sizeof *ratios; c++) {
    static struct policy_tree tree;
    tree = (struct policy_tree){.options = {.policy = TURB_COMPACTION_LEVELLED, .size_ratio = ratios[c], .unit_bytes = 1 << 20}};
    const uint64_t levels = policy_tree_levels(ratios[c], flushes);
    for (uint64_t i = 0; i < flushes; i++) {
      policy_tree_flush(&tree, random_between(&random, 900000, 1100000));
      for (size_t r = 1; r < tree.count; r++)
        CHECK_LT(policy_level(&tree.options, tree.runs[r - 1].bytes), policy_level(&tree.options, tree.runs[r].bytes));
      CHECK_LE(tree.count, levels + 1);
    }
    CHECK_LE(tree.written, tree.flushed * (ratios[c] * levels + 1));
  }
}
