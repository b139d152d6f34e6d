/*
 * The budget: the memory that a database may hold.
 *
 * Every large buffer is charged here before it is taken and given back after it is released. The
 * counters are atomic, there is no lock: used never exceeds the limit that was in force when the bytes
 * were taken.
 *
 * Invariants
 *   1. used = the sum of the counters per use, whenever no call is running.
 *   2. A take that would pass the limit fails and changes nothing.
 *   3. The reclaimer is called without any lock of the budget, by the taking thread, and never from
 *      budget_try or budget_give.
 *   4. What a share (a budget with a parent) uses is part of what its parent uses, so that one kind of
 *      user cannot take all.
 *
 * Threads: all calls but init and set_reclaimer are safe from any thread.
 */
#ifndef TURB_BASE_BUDGET_H
#define TURB_BASE_BUDGET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* What the bytes are for; counted apart for the statistics. */
enum budget_use {
  BUDGET_CACHE,
  BUDGET_MEMTABLE,
  BUDGET_JOB,
  BUDGET_INGEST,
  BUDGET_SEARCH,
  BUDGET_CURSOR,
  BUDGET_METADATA,
  BUDGET_USES /* their number */
};

/*
 * Frees about bytes (evicts cache frames, say) and returns how many it gave back through budget_give;
 * 0 when it can free none. It may take the owner's locks, so no such lock may be held at budget_take.
 */
typedef uint64_t (*budget_reclaim_fn)(void *context, uint64_t bytes);

struct budget {
  _Atomic uint64_t limit;
  _Atomic uint64_t used;
  _Atomic uint64_t peak;
  _Atomic uint64_t by_use[BUDGET_USES];
  budget_reclaim_fn reclaim;
  void *reclaim_context;
  struct budget *parent; /* of a share; else NULL */
};

/* limit_bytes UINT64_MAX: unlimited. */
void budget_init(struct budget *budget, uint64_t limit_bytes);

/*
 * A share of the parent: each take is charged to both, with the parent's reclaimer when the parent is short.
 * The parent outlives it.
 */
void budget_init_share(struct budget *share, struct budget *parent, uint64_t limit_bytes);

/* Before the first take, or (with NULL, to detach) after the last; reclaim may be NULL. */
void budget_set_reclaimer(struct budget *budget, budget_reclaim_fn reclaim, void *context);

/*
 * Charges bytes; when they are short, asks the reclaimer. False when they are not to be had: the caller
 * shrinks, waits, or answers TURB_BUDGET.
 */
__attribute__((warn_unused_result)) bool budget_take(struct budget *budget, enum budget_use use, uint64_t bytes);

/* The same without the reclaimer: a few atomic operations, for callers that hold locks. */
__attribute__((warn_unused_result)) bool budget_try(struct budget *budget, enum budget_use use, uint64_t bytes);

/* Gives back what was taken for the same use. */
void budget_give(struct budget *budget, enum budget_use use, uint64_t bytes);

/* Moves charged bytes to another use. */
void budget_move(struct budget *budget, enum budget_use from, enum budget_use to, uint64_t bytes);

/* A new limit; when more is used already, takes fail until enough was given back. */
void budget_set_limit(struct budget *budget, uint64_t limit_bytes);

uint64_t budget_limit(const struct budget *budget);
uint64_t budget_used(const struct budget *budget);
uint64_t budget_used_for(const struct budget *budget, enum budget_use use);

/* The highest use since init. */
uint64_t budget_peak(const struct budget *budget);

/* What a take could get now without the reclaimer; of a share, within its own limit. */
uint64_t budget_available(const struct budget *budget);

/* A short lower-case name for statistics: "cache", "memtable", … */
const char *budget_use_name(enum budget_use use);

#endif
