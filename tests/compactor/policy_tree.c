/* policy_tree.h has the contract. */
#include "tests/compactor/policy_tree.h"

#include "tests/support/test.h"

static void check_pick(const struct policy_tree *tree, struct policy_pick pick) {
  CHECK_LE(pick.first + pick.count, tree->count);
  CHECK_EQ(pick.bottom, pick.first + pick.count == tree->count);
  CHECK_GE(pick.count, policy_drops(pick.reason) ? 1 : 2);
  CHECK(pick.bottom || !policy_drops(pick.reason));
  for (size_t i = pick.first; i < pick.first + pick.count; i++) {
    CHECK(!tree->runs[i].busy);
    CHECK(!tree->runs[i].held || !policy_drops(pick.reason));
  }
}

uint64_t policy_tree_bytes(const struct policy_tree *tree, size_t first, size_t end) {
  uint64_t bytes = 0;
  for (size_t i = first; i < end; i++)
    bytes += tree->runs[i].bytes;
  return bytes;
}

static void drop(struct policy_tree *tree, struct policy_pick pick) {
  tree->dropped += policy_tree_bytes(tree, pick.first, pick.first + pick.count);
  tree->count -= pick.count;
}

static void merge(struct policy_tree *tree, struct policy_pick pick) {
  struct policy_run merged = {0};
  for (size_t i = pick.first; i < pick.first + pick.count; i++) {
    merged.bytes += tree->runs[i].bytes;
    merged.entries += tree->runs[i].entries;
    merged.held |= tree->runs[i].held;
    merged.written_by_s = merged.written_by_s > tree->runs[i].written_by_s ? merged.written_by_s : tree->runs[i].written_by_s;
  }
  tree->written += merged.bytes;
  tree->runs[pick.first] = merged;
  const size_t rest = tree->count - pick.first - pick.count;
  memmove(tree->runs + pick.first + 1, tree->runs + pick.first + pick.count, rest * sizeof *tree->runs);
  tree->count -= pick.count - 1;
}

void policy_tree_apply(struct policy_tree *tree, struct policy_pick pick) {
  check_pick(tree, pick);
  if (policy_drops(pick.reason))
    drop(tree, pick);
  else
    merge(tree, pick);
}

void policy_tree_settle(struct policy_tree *tree) {
  const size_t most = tree->count;
  for (size_t picks = 0;; picks++) {
    struct policy_pick pick = policy_next(&tree->options, tree->runs, tree->count);
    if (pick.reason == POLICY_NOTHING)
      return;
    CHECK_LE(picks, most);
    if (tree->fan_in) {
      pick = policy_narrow(pick, tree->runs, tree->count, tree->fan_in);
      CHECK(policy_drops(pick.reason) || pick.count <= tree->fan_in);
    }
    policy_tree_apply(tree, pick);
  }
}

void policy_tree_flush(struct policy_tree *tree, uint64_t bytes) {
  CHECK_LT(tree->count, POLICY_TREE_RUNS_MAX);
  memmove(tree->runs + 1, tree->runs, tree->count++ * sizeof *tree->runs);
  tree->runs[0] = (struct policy_run){.bytes = bytes, .entries = bytes / 100, .written_by_s = tree->options.now_s};
  tree->flushed += bytes;
  tree->written += bytes;
  tree->most = tree->count > tree->most ? tree->count : tree->most;
  policy_tree_settle(tree);
}

uint64_t policy_tree_levels(uint32_t size_ratio, uint64_t flushes) {
  uint64_t levels = 1;
  for (uint64_t size = 1; size < flushes; size *= size_ratio)
    levels++;
  return levels;
}
