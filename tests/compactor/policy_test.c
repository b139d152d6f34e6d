/* The interface of the policies: what holds for all of them, and the picks that are no policy's. */
#include "compactor/policy.h"

#include "tests/compactor/policy_tree.h"
#include "tests/support/test.h"

#define RUN(size)                                                                                                                          \
  { .bytes = (size), .entries = 1 }
#define BUSY(size)                                                                                                                         \
  { .bytes = (size), .entries = 1, .busy = true }

static const turb_compaction_policy policies[] = {TURB_COMPACTION_DEFAULT, TURB_COMPACTION_LAZY_LEVELLING, TURB_COMPACTION_TIERED,
                                                  TURB_COMPACTION_LEVELLED, TURB_COMPACTION_FIFO};
#define POLICIES (sizeof policies / sizeof *policies)

TEST(policy, everything_needs_all_runs_idle) {
  struct policy_run runs[3] = {RUN(1000), BUSY(10), RUN(5)};
  CHECK_EQ(policy_everything(runs, 3).reason, POLICY_NOTHING);
  runs[1].busy = false;
  const struct policy_pick all = policy_everything(runs, 3);
  CHECK_EQ(all.reason, POLICY_REQUEST);
  CHECK_EQ(all.count, 3);
  CHECK(all.bottom);
  CHECK_EQ(policy_everything(runs, 1).reason, POLICY_NOTHING);
  CHECK_EQ(policy_everything(runs, 0).reason, POLICY_NOTHING);
}

TEST(policy, a_narrow_pick_takes_the_smallest_neighbours) {
  const struct policy_run runs[6] = {RUN(50), RUN(10), RUN(20), RUN(10), RUN(20), RUN(900)};
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
  /* A drop costs no memory a run. */
  const struct policy_pick drop = policy_narrow((struct policy_pick){POLICY_DROP_AGE, 2, 4, true}, runs, 6, 2);
  CHECK_EQ(drop.first, 2);
  CHECK_EQ(drop.count, 4);
}

static void random_options(struct random *random, turb_compaction_policy policy, struct policy_options *options) {
  *options = (struct policy_options){.policy = policy,
                                     .size_ratio = (uint32_t)random_between(random, 2, 12),
                                     .max_space_amplification_percent = (uint32_t)random_between(random, 10, 300),
                                     .unit_bytes = UINT64_C(1) << random_between(random, 10, 30),
                                     .now_s = 2000000};
  options->fifo_max_bytes = random_between(random, 0, 1) ? options->unit_bytes * random_between(random, 1, 200) : 0;
  options->ttl_s = options->fifo_max_bytes ? random_between(random, 0, 500) : 1;
}

/* Sizes from a hundredth of a unit to a hundred thousand units, the older rather the larger; some runs busy, held or of unknown time. */
static void random_runs(struct random *random, struct policy_tree *tree, bool undisturbed) {
  tree->count = random_between(random, 0, 150);
  uint64_t written_s = 1999999;
  for (size_t i = 0; i < tree->count; i++) {
    const uint64_t large = random_between(random, 0, 1) ? i * i : 0;
    tree->runs[i] = (struct policy_run){.bytes = tree->options.unit_bytes * random_between(random, 1, 100 + 300 * large) / 100 + 1,
                                        .entries = random_between(random, 1, 1000),
                                        .busy = !undisturbed && random_between(random, 0, 20) == 0,
                                        .held = !undisturbed && random_between(random, 0, 20) == 0};
    tree->runs[i].written_by_s = random_between(random, 0, 9) ? written_s : 0;
    written_s -= random_between(random, 0, 20);
  }
}

/* policy_tree checks each pick: neighbours, nothing busy, drops from the oldest end alone and nothing held; and that a fixed point comes. */
TEST(policy, random_runs_come_to_a_fixed_point_by_legal_picks) {
  struct random random;
  random_init(&random, test_seed());
  static struct policy_tree tree;
  const uint64_t rounds = test_scale(2000, 5000, 50000);
  for (uint64_t round = 0; round < rounds; round++) {
    tree = (struct policy_tree){.fan_in = random_between(&random, 0, 2) ? 0 : random_between(&random, 2, 9)};
    random_options(&random, policies[round % POLICIES], &tree.options);
    random_runs(&random, &tree, round % 3 == 0);
    const uint64_t before = policy_tree_bytes(&tree, 0, tree.count);
    policy_tree_settle(&tree);
    CHECK_EQ(policy_next(&tree.options, tree.runs, tree.count).reason, POLICY_NOTHING);
    CHECK_EQ(policy_tree_bytes(&tree, 0, tree.count) + tree.dropped, before);
    CHECK(tree.dropped == 0 || tree.options.policy == TURB_COMPACTION_FIFO);
    if (round % 3 == 0 && tree.options.policy != TURB_COMPACTION_FIFO)
      CHECK_LE(tree.count, policy_runs_max(&tree.options));
  }
}

TEST(policy, of_no_runs_and_of_one_nothing_is_due) {
  const struct policy_run run = {.bytes = 12345, .entries = 3, .written_by_s = 1000};
  for (size_t p = 0; p < POLICIES; p++) {
    const struct policy_options options = {.policy = policies[p],
                                           .size_ratio = 2,
                                           .max_space_amplification_percent = 10,
                                           .unit_bytes = 100,
                                           .fifo_max_bytes = 1,
                                           .ttl_s = 1000,
                                           .now_s = 1999};
    CHECK_EQ(policy_next(&options, &run, 0).reason, POLICY_NOTHING);
    CHECK_EQ(policy_next(&options, &run, 1).reason, POLICY_NOTHING);
    CHECK_EQ(policy_next_drop_s(&options, &run, 0), UINT64_MAX);
    CHECK_EQ(policy_next_drop_s(&options, &run, 1), policies[p] == TURB_COMPACTION_FIFO ? 2000 : UINT64_MAX);
  }
}
