/*
 * A collection without files: it is flushed, and whatever the policy picks happens at once. Every pick is checked against the invariants of
 * compactor/policy.h.
 *
 * Threads: one.
 */
#ifndef TURB_TESTS_COMPACTOR_POLICY_TREE_H
#define TURB_TESTS_COMPACTOR_POLICY_TREE_H

#include "compactor/policy.h"

#define POLICY_TREE_RUNS_MAX 4096u

struct policy_tree {
  struct policy_options options;
  struct policy_run runs[POLICY_TREE_RUNS_MAX]; /* newest first */
  size_t count, most;                           /* most: seen */
  size_t fan_in;                                /* of a merge; 0: no bound */
  uint64_t flushed, written, dropped;           /* bytes */
};

/* Checks a pick and carries it out. */
void policy_tree_apply(struct policy_tree *tree, struct policy_pick pick);
/* Picks until nothing is due, and checks that this takes fewer picks than there are runs. */
void policy_tree_settle(struct policy_tree *tree);
/* A new run of so many bytes, of the time options.now_s; then settles. */
void policy_tree_flush(struct policy_tree *tree, uint64_t bytes);
/* How many levels so many flushes fill, at most. */
uint64_t policy_tree_levels(uint32_t size_ratio, uint64_t flushes);
/* Of runs [first, end). */
uint64_t policy_tree_bytes(const struct policy_tree *tree, size_t first, size_t end);

#endif
