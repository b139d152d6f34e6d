/* The budget in one thread: limits, uses, peak, the reclaimer. */
#include "base/budget.h"

#include "tests/support/test.h"

TEST(budget, takes_up_to_the_limit) {
  struct budget budget;
  budget_init(&budget, 100);
  CHECK(budget_take(&budget, BUDGET_CACHE, 60));
  CHECK(budget_try(&budget, BUDGET_JOB, 40));
  CHECK(!budget_try(&budget, BUDGET_JOB, 1));
  CHECK(!budget_take(&budget, BUDGET_JOB, 1));
  CHECK(budget_take(&budget, BUDGET_JOB, 0));
  CHECK_EQ(budget_used(&budget), 100);
  CHECK_EQ(budget_used_for(&budget, BUDGET_CACHE), 60);
  CHECK_EQ(budget_used_for(&budget, BUDGET_JOB), 40);
  CHECK_EQ(budget_available(&budget), 0);
  budget_give(&budget, BUDGET_CACHE, 60);
  CHECK_EQ(budget_available(&budget), 60);
  CHECK_EQ(budget_peak(&budget), 100);
  budget_move(&budget, BUDGET_JOB, BUDGET_MEMTABLE, 40);
  CHECK_EQ(budget_used_for(&budget, BUDGET_JOB), 0);
  budget_give(&budget, BUDGET_MEMTABLE, 40);
  CHECK_EQ(budget_used(&budget), 0);
}

TEST(budget, huge_requests_do_not_wrap) {
  struct budget budget;
  budget_init(&budget, UINT64_MAX);
  CHECK(budget_take(&budget, BUDGET_CACHE, 10));
  CHECK(!budget_try(&budget, BUDGET_CACHE, UINT64_MAX - 5));
  CHECK(budget_try(&budget, BUDGET_CACHE, UINT64_MAX - 10));
  budget_give(&budget, BUDGET_CACHE, UINT64_MAX);
  CHECK_EQ(budget_used(&budget), 0);
}

TEST(budget, a_lower_limit_blocks_until_given_back) {
  struct budget budget;
  budget_init(&budget, 100);
  CHECK(budget_take(&budget, BUDGET_CACHE, 80));
  budget_set_limit(&budget, 50);
  CHECK_EQ(budget_limit(&budget), 50);
  CHECK_EQ(budget_available(&budget), 0);
  CHECK(!budget_take(&budget, BUDGET_JOB, 1));
  CHECK(!budget_take(&budget, BUDGET_JOB, 0));
  budget_give(&budget, BUDGET_CACHE, 40);
  CHECK(budget_take(&budget, BUDGET_JOB, 10));
  CHECK(!budget_take(&budget, BUDGET_JOB, 1));
}

TEST(budget, a_share_takes_from_its_parent_within_its_limit) {
  struct budget budget, share;
  budget_init(&budget, 100);
  budget_init_share(&share, &budget, 60);
  CHECK(budget_take(&share, BUDGET_JOB, 50));
  CHECK(!budget_take(&share, BUDGET_JOB, 11));
  CHECK(!budget_try(&share, BUDGET_JOB, 11));
  CHECK_EQ(budget_used(&budget), 50);
  CHECK_EQ(budget_used_for(&budget, BUDGET_JOB), 50);
  CHECK(budget_take(&budget, BUDGET_CACHE, 45));
  CHECK(!budget_take(&share, BUDGET_JOB, 6)); /* the parent is short */
  CHECK_EQ(budget_used(&share), 50);
  CHECK(budget_try(&share, BUDGET_JOB, 5));
  CHECK_EQ(budget_available(&share), 5);
  budget_move(&share, BUDGET_JOB, BUDGET_CURSOR, 15);
  CHECK_EQ(budget_used_for(&budget, BUDGET_CURSOR), 15);
  budget_give(&share, BUDGET_CURSOR, 15);
  budget_give(&share, BUDGET_JOB, 40);
  CHECK_EQ(budget_used(&share), 0);
  CHECK_EQ(budget_used(&budget), 45);
  budget_give(&budget, BUDGET_CACHE, 45);
}

struct cache {
  struct budget *budget;
  uint64_t bytes;
  uint64_t calls;
  uint64_t asked;
  uint64_t step;
};

static uint64_t reclaim(void *context, uint64_t bytes) {
  struct cache *cache = context;
  cache->calls++;
  cache->asked = bytes;
  uint64_t freed = bytes < cache->bytes ? bytes : cache->bytes;
  freed = cache->step != 0 && freed > cache->step ? cache->step : freed;
  cache->bytes -= freed;
  budget_give(cache->budget, BUDGET_CACHE, freed);
  return freed;
}

TEST(budget, asks_the_reclaimer_for_what_is_short) {
  struct budget budget;
  budget_init(&budget, 100);
  struct cache cache = {&budget, 70, 0, 0, 0};
  budget_set_reclaimer(&budget, reclaim, &cache);
  CHECK(budget_take(&budget, BUDGET_CACHE, 70));
  CHECK(budget_take(&budget, BUDGET_JOB, 30));
  CHECK_EQ(cache.calls, 0);
  CHECK(!budget_try(&budget, BUDGET_JOB, 10));
  CHECK_EQ(cache.calls, 0);
  CHECK(budget_take(&budget, BUDGET_JOB, 10));
  CHECK_EQ(cache.calls, 1);
  CHECK_EQ(cache.asked, 10);
  CHECK_EQ(budget_used(&budget), 100);
  cache.step = 5; /* several rounds */
  CHECK(budget_take(&budget, BUDGET_JOB, 20));
  CHECK_EQ(cache.calls, 5);
  CHECK(!budget_take(&budget, BUDGET_JOB, 101)); /* never to be had: not asked */
  CHECK_EQ(cache.calls, 5);
  cache.step = 0;
  CHECK(!budget_take(&budget, BUDGET_JOB, 41));
  CHECK_EQ(cache.bytes, 0);
  CHECK_EQ(budget_used(&budget), 60);
  budget_set_reclaimer(&budget, NULL, NULL);
  CHECK(!budget_take(&budget, BUDGET_JOB, 41));
}

TEST(budget, names_every_use) {
  for (int use = 0; use < BUDGET_USES; use++) {
    CHECK(strcmp(budget_use_name((enum budget_use)use), "unknown") != 0);
  }
  CHECK_STR_EQ(budget_use_name(BUDGET_MEMTABLE), "memtable");
}
