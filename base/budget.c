/* The memory budget's counters; see budget.h for the rules. */
#include "base/budget.h"

#include <assert.h>
#include <stddef.h>

/*
 * Other threads may take what the reclaimer freed before we do. A thread that lost this often is better
 * off with an answer than in a loop.
 */
#define BUDGET_RECLAIM_ATTEMPTS 16

void budget_init(struct budget *budget, uint64_t limit_bytes) {
  atomic_init(&budget->limit, limit_bytes);
  atomic_init(&budget->used, 0);
  atomic_init(&budget->peak, 0);
  for (int use = 0; use < BUDGET_USES; use++) {
    atomic_init(&budget->by_use[use], 0);
  }
  budget->reclaim = NULL;
  budget->reclaim_context = NULL;
  budget->parent = NULL;
}

void budget_init_share(struct budget *share, struct budget *parent, uint64_t limit_bytes) {
  budget_init(share, limit_bytes);
  share->parent = parent;
}

void budget_set_reclaimer(struct budget *budget, budget_reclaim_fn reclaim, void *context) {
  budget->reclaim = reclaim;
  budget->reclaim_context = context;
}

static void raise_peak(struct budget *budget, uint64_t used) {
  uint64_t peak = atomic_load_explicit(&budget->peak, memory_order_relaxed);
  while (used > peak && !atomic_compare_exchange_weak_explicit(&budget->peak, &peak, used, memory_order_relaxed, memory_order_relaxed)) {}
}

/* Takes from this budget alone, whatever its parent has. */
static bool try_own(struct budget *budget, enum budget_use use, uint64_t bytes) {
  uint64_t used = atomic_load_explicit(&budget->used, memory_order_relaxed);
  for (;;) {
    const uint64_t limit = atomic_load_explicit(&budget->limit, memory_order_relaxed);
    if (used > limit || bytes > limit - used) {
      return false;
    }
    if (atomic_compare_exchange_weak_explicit(&budget->used, &used, used + bytes, memory_order_acq_rel, memory_order_relaxed)) {
      break;
    }
  }
  atomic_fetch_add_explicit(&budget->by_use[use], bytes, memory_order_relaxed);
  raise_peak(budget, used + bytes);
  return true;
}

static void give_own(struct budget *budget, enum budget_use use, uint64_t bytes) {
  const uint64_t of_use = atomic_fetch_sub_explicit(&budget->by_use[use], bytes, memory_order_relaxed);
  const uint64_t used = atomic_fetch_sub_explicit(&budget->used, bytes, memory_order_acq_rel);
  assert(of_use >= bytes && used >= bytes);
  (void)of_use;
  (void)used;
}

bool budget_try(struct budget *budget, enum budget_use use, uint64_t bytes) {
  if (!try_own(budget, use, bytes)) {
    return false;
  }
  if (budget->parent != NULL && !budget_try(budget->parent, use, bytes)) {
    give_own(budget, use, bytes);
    return false;
  }
  return true;
}

bool budget_take(struct budget *budget, enum budget_use use, uint64_t bytes) {
  if (budget->parent != NULL) {
    if (!try_own(budget, use, bytes)) {
      return false;
    }
    if (!budget_take(budget->parent, use, bytes)) {
      give_own(budget, use, bytes);
      return false;
    }
    return true;
  }
  for (int attempt = 0; attempt < BUDGET_RECLAIM_ATTEMPTS; attempt++) {
    if (budget_try(budget, use, bytes)) {
      return true;
    }
    const uint64_t limit = budget_limit(budget);
    if (budget->reclaim == NULL || bytes > limit) {
      return false;
    }
    const uint64_t used = budget_used(budget);
    const uint64_t room = used < limit ? limit - used : 0;
    if (room >= bytes) {
      continue; /* given back in the meantime */
    }
    const uint64_t over = used > limit ? used - limit : 0;
    if (budget->reclaim(budget->reclaim_context, bytes - room + over) == 0) {
      return budget_try(budget, use, bytes);
    }
  }
  return budget_try(budget, use, bytes);
}

void budget_give(struct budget *budget, enum budget_use use, uint64_t bytes) {
  for (struct budget *b = budget; b != NULL; b = b->parent) {
    give_own(b, use, bytes);
  }
}

void budget_move(struct budget *budget, enum budget_use from, enum budget_use to, uint64_t bytes) {
  for (struct budget *b = budget; b != NULL; b = b->parent) {
    atomic_fetch_add_explicit(&b->by_use[to], bytes, memory_order_relaxed);
    const uint64_t of_use = atomic_fetch_sub_explicit(&b->by_use[from], bytes, memory_order_relaxed);
    assert(of_use >= bytes);
    (void)of_use;
  }
}

void budget_set_limit(struct budget *budget, uint64_t limit_bytes) {
  atomic_store_explicit(&budget->limit, limit_bytes, memory_order_relaxed);
}

uint64_t budget_limit(const struct budget *budget) {
  return atomic_load_explicit(&budget->limit, memory_order_relaxed);
}

uint64_t budget_used(const struct budget *budget) {
  return atomic_load_explicit(&budget->used, memory_order_relaxed);
}

uint64_t budget_used_for(const struct budget *budget, enum budget_use use) {
  return atomic_load_explicit(&budget->by_use[use], memory_order_relaxed);
}

uint64_t budget_peak(const struct budget *budget) {
  return atomic_load_explicit(&budget->peak, memory_order_relaxed);
}

uint64_t budget_available(const struct budget *budget) {
  const uint64_t limit = budget_limit(budget);
  const uint64_t used = budget_used(budget);
  return used < limit ? limit - used : 0;
}

const char *budget_use_name(enum budget_use use) {
  switch (use) {
  case BUDGET_CACHE: return "cache";
  case BUDGET_MEMTABLE: return "memtable";
  case BUDGET_JOB: return "job";
  case BUDGET_INGEST: return "ingest";
  case BUDGET_SEARCH: return "search";
  case BUDGET_CURSOR: return "cursor";
  case BUDGET_METADATA: return "metadata";
  case BUDGET_USES: break;
  }
  return "unknown";
}
