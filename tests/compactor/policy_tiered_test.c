/* Tiering: T runs of a level become one of the next, and the bottom is no exception. */
#include "tests/compactor/policy_tree.h"
#include "tests/support/test.h"

TEST(policy_tiered, runs_count_like_the_digits_of_the_flushes) {
  static struct policy_tree tree;
  tree = (struct policy_tree){.options = {.policy = TURB_COMPACTION_TIERED, .size_ratio = 4, .unit_bytes = 1000}};
  for (uint64_t flushes = 1; flushes <= 300; flushes++) {
    policy_tree_flush(&tree, 1000);
    size_t digits = 0;
    for (uint64_t rest = flushes; rest; rest /= 4)
      digits += rest % 4;
    CHECK_EQ(tree.count, digits);
  }
}

TEST(policy_tiered, a_tier_that_completes_the_next_takes_it_along) {
  const struct policy_options options = {.policy = TURB_COMPACTION_TIERED, .size_ratio = 3, .unit_bytes = 1000};
  struct policy_run runs[6] = {{.bytes = 1000}, {.bytes = 1000}, {.bytes = 1000}, {.bytes = 3000}, {.bytes = 3000}, {.bytes = 90000}};
  struct policy_pick pick = policy_next(&options, runs, 6);
  CHECK_EQ(pick.first, 0);
  CHECK_EQ(pick.count, 5);
  CHECK(!pick.bottom);
  runs[4].bytes = 9000; /* one of the next level is missing */
  CHECK_EQ(policy_next(&options, runs, 6).count, 3);
  runs[4] = (struct policy_run){.bytes = 3000, .busy = true};
  CHECK_EQ(policy_next(&options, runs, 6).count, 3);
}

TEST(policy_tiered, nothing_is_merged_for_space) {
  const struct policy_options options = {
      .policy = TURB_COMPACTION_TIERED, .size_ratio = 3, .max_space_amplification_percent = 10, .unit_bytes = 1000};
  const struct policy_run runs[4] = {{.bytes = 1000}, {.bytes = 90000}, {.bytes = 90000}, {.bytes = 2000}};
  CHECK_EQ(policy_next(&options, runs, 4).reason, POLICY_TIER); /* the small one behind goes along */
  CHECK_EQ(policy_next(&options, runs, 3).reason, POLICY_NOTHING);
}

TEST(policy_tiered, each_byte_is_written_once_a_level) {
  struct random random;
  random_init(&random, test_seed());
  static const uint32_t ratios[] = {2, 4, 10};
  const uint64_t flushes = test_scale(3000, 3000, 30000);
  for (size_t c = 0; c < sizeof ratios / sizeof *ratios; c++) {
    static struct policy_tree tree;
    tree = (struct policy_tree){.options = {.policy = TURB_COMPACTION_TIERED, .size_ratio = ratios[c], .unit_bytes = 1 << 20}};
    for (uint64_t i = 0; i < flushes; i++)
      policy_tree_flush(&tree, random_between(&random, 900000, 1100000));
    const uint64_t levels = policy_tree_levels(ratios[c], flushes);
    CHECK_LE(tree.written, tree.flushed * (levels + 1));
    CHECK_LE(tree.most, ratios[c] * levels + 1);
    CHECK_LE(tree.most, policy_runs_max(&tree.options));
  }
}
