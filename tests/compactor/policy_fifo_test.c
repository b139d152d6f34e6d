/* FIFO and TTL: what is dropped, what never is, and the merges that bound the number of runs. */
#include "tests/compactor/policy_tree.h"
#include "tests/support/test.h"

TEST(policy_fifo, the_oldest_go_while_there_is_too_much) {
  struct policy_options options = {.policy = TURB_COMPACTION_FIFO, .size_ratio = 10, .unit_bytes = 1000, .fifo_max_bytes = 5000};
  struct policy_run runs[5] = {{.bytes = 1000}, {.bytes = 2000}, {.bytes = 2000}, {.bytes = 1000}, {.bytes = 1000}};
  CHECK_EQ(policy_next(&options, runs, 3).reason, POLICY_NOTHING); /* just as much as may be */
  struct policy_pick pick = policy_next(&options, runs, 5);
  CHECK_EQ(pick.reason, POLICY_DROP_SIZE);
  CHECK_EQ(pick.first, 3);
  CHECK_EQ(pick.count, 2);
  CHECK(pick.bottom);
  options.fifo_max_bytes = 10;
  CHECK_EQ(policy_next(&options, runs, 5).count, 4); /* the newest stays, whatever its size */
  CHECK_EQ(policy_next(&options, runs, 1).reason, POLICY_NOTHING);
  runs[3].held = true; /* what is older goes, what is newer waits for it */
  CHECK_EQ(policy_next(&options, runs, 5).count, 1);
  runs[4].busy = true;
  CHECK_EQ(policy_next(&options, runs, 5).reason, POLICY_NOTHING);
}

TEST(policy_fifo, runs_go_when_all_their_entries_are_old) {
  struct policy_options options = {.policy = TURB_COMPACTION_FIFO, .size_ratio = 10, .unit_bytes = 1000, .ttl_s = 100, .now_s = 1099};
  struct policy_run runs[3] = {
      {.bytes = 1000, .written_by_s = 1050}, {.bytes = 1000, .written_by_s = 1010}, {.bytes = 1000, .written_by_s = 1000}};
  CHECK_EQ(policy_next(&options, runs, 3).reason, POLICY_NOTHING);
  CHECK_EQ(policy_next_drop_s(&options, runs, 3), 1100);
  options.now_s = 1100;
  struct policy_pick pick = policy_next(&options, runs, 3);
  CHECK_EQ(pick.reason, POLICY_DROP_AGE);
  CHECK_EQ(pick.first, 2);
  options.now_s = 1120;
  CHECK_EQ(policy_next(&options, runs, 3).first, 1);
  options.now_s = 5000;
  CHECK_EQ(policy_next(&options, runs, 3).first, 0); /* also the newest */
  runs[1].written_by_s = 0;                          /* unknown: never old, and what is newer waits for it */
  CHECK_EQ(policy_next(&options, runs, 3).first, 2);
  runs[2].written_by_s = 0;
  CHECK_EQ(policy_next(&options, runs, 3).reason, POLICY_NOTHING);
  CHECK_EQ(policy_next_drop_s(&options, runs, 3), UINT64_MAX);
  runs[2] = (struct policy_run){.bytes = 1000, .written_by_s = 1000, .held = true};
  CHECK_EQ(policy_next(&options, runs, 3).reason, POLICY_NOTHING);
  CHECK_EQ(policy_next_drop_s(&options, runs, 3), UINT64_MAX); /* until the snapshot goes */
}

TEST(policy_fifo, a_clock_that_was_set_back_makes_nothing_old) {
  const struct policy_options options = {
      .policy = TURB_COMPACTION_FIFO, .size_ratio = 10, .unit_bytes = 1000, .ttl_s = UINT64_MAX, .now_s = 10};
  const struct policy_run run = {.bytes = 1000, .written_by_s = 1000};
  CHECK_EQ(policy_next(&options, &run, 1).reason, POLICY_NOTHING);
  CHECK_EQ(policy_next_drop_s(&options, &run, 1), UINT64_MAX);
}

TEST(policy_fifo, few_runs_are_never_merged) {
  static struct policy_tree tree;
  tree = (struct policy_tree){
      .options = {.policy = TURB_COMPACTION_FIFO, .size_ratio = 2, .unit_bytes = 1 << 20, .fifo_max_bytes = UINT64_C(30) << 20}};
  for (int i = 0; i < 500; i++)
    policy_tree_flush(&tree, 1 << 20);
  CHECK_EQ(tree.written, tree.flushed);
  CHECK_EQ(tree.count, 30);
  CHECK_EQ(tree.dropped, UINT64_C(470) << 20);
}

/* Many small runs under a bound of size or age: as many runs as the policy says, each byte written a few times, drops that are fine-grained. */
TEST(policy_fifo, small_neighbours_are_merged_to_bound_the_runs) {
  struct random random;
  random_init(&random, test_seed());
  static const uint32_t ratios[] = {2, 4, 10};
  for (size_t c = 0; c < 6; c++) {
    static struct policy_tree tree;
    const uint32_t ratio = ratios[c % 3];
    const uint64_t kept = 3000; /* flushes */
    tree = (struct policy_tree){.options = {.policy = TURB_COMPACTION_FIFO, .size_ratio = ratio, .unit_bytes = 1 << 20, .now_s = 1000000}};
    tree.options.fifo_max_bytes = c < 3 ? kept << 20 : 0;
    tree.options.ttl_s = c < 3 ? 0 : kept * 7;
    for (uint64_t i = 0; i < 3 * kept; i++) {
      tree.options.now_s += 7;
      policy_tree_flush(&tree, random_between(&random, 900000, 1100000));
      CHECK(c >= 3 || policy_tree_bytes(&tree, 0, tree.count) <= tree.options.fifo_max_bytes);
    }
    CHECK_LE(tree.most, policy_runs_max(&tree.options));
    CHECK_LE(tree.written, tree.flushed * 13); /* once, and once for each level up to an eighth of 3,000 flushes: nine of T = 2 */
    const uint64_t left = policy_tree_bytes(&tree, 0, tree.count) >> 20;
    CHECK_GE(left, kept / 2);
    CHECK_LE(left, kept + kept / 4);
    for (size_t r = 0; r < tree.count; r++)
      CHECK_LE(tree.runs[r].bytes >> 20, kept / 4);
  }
}
