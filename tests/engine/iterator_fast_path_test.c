/* What a scan by the public iterator costs when everything is resident: a call of the library a window, no system call, no memory. */
#include <stdlib.h>

#include "tests/support/allocator.h"
#include "tests/support/confined.h"
#include "tests/support/test.h"

#define DIMENSION 8u
#define RUNS      8u

struct scan {
  struct test_allocator allocator;
  turb_db *db;
  turb_collection *c;
  uint32_t rows;
  turb_loop *loop;
  turb_iterator *it;
  uint64_t calls; /* of turb_advance_slow and turb_retreat_slow, as the inline calls make them */
};

static turb_error err;
static turb_error *fresh(void) {
  err = (turb_error)TURB_ERROR_INIT;
  return &err;
}

/* Eight runs and a memtable, each with every ninth key, on the backend that databases have by default. */
static void begin(struct scan *s) {
  test_allocator_init(&s->allocator);
  turb_options options = TURB_OPTIONS_INIT;
  options.allocator = &s->allocator.base;
  options.memory_budget_bytes = 64u << 20;
  options.worker_threads = -1;
  options.durability = TURB_UNLOGGED;
  options.size_ratio = 64;
  CHECK_OK_ERR(turb_open(test_tmpdir(), &options, &s->db, fresh()), &err);
  turb_collection_options shape = TURB_COLLECTION_OPTIONS_INIT;
  shape.dimension = DIMENSION;
  CHECK_OK_ERR(turb_collection_create(s->db, "c", &shape, &s->c, fresh()), &err);
  s->rows = (uint32_t)test_scale(9000, 4500, 36000);
  for (uint32_t run = 0; run <= RUNS; run++) {
    for (uint32_t i = run; i < s->rows; i += RUNS + 1) {
      const float row[DIMENSION] = {(float)i};
      char key[16];
      const turb_bytes name = {key, (size_t)snprintf(key, sizeof key, "k%08u", i)};
      CHECK_OK_ERR(turb_put(s->c, name, (turb_bytes){row, sizeof row}, TURB_STR("attribute"), NULL, fresh()), &err);
    }
    if (run < RUNS)
      CHECK_OK_ERR(turb_flush(s->db, s->c, fresh()), &err);
  }
}

static void end(struct scan *s) {
  CHECK_OK_ERR(turb_close(s->db, fresh()), &err);
  test_allocator_check_empty(&s->allocator);
}

static turb_state step(struct scan *s, bool backward) {
  turb_iterator *it = s->it;
  s->calls += backward ? it->entry == it->window_begin : it->entry + 1 == it->window_end;
  return backward ? turb_retreat(it) : turb_advance(it);
}

/* Sums what it sees, so that it is looked at; 0 when it had to wait. */
static uint64_t walk(struct scan *s, bool backward) {
  uint64_t count = 0;
  double sum = 0;
  turb_state state = backward ? turb_last(s->it) : turb_first(s->it);
  for (; state == TURB_READY; state = step(s, backward), count++)
    if (s->it->entry->vector.size)
      sum += ((const float *)s->it->entry->vector.data)[0];
  return state == TURB_END && sum >= 0 ? count : 0;
}

static void open_warm(struct scan *s, uint32_t parts, bool with_loop) {
  turb_iterator_options options = TURB_ITERATOR_OPTIONS_INIT;
  options.parts = parts;
  if (with_loop)
    CHECK_OK_ERR(turb_loop_open(s->db, &s->loop, fresh()), &err);
  options.loop = s->loop;
  CHECK_OK_ERR(turb_iterator_open(s->c, &options, &s->it, fresh()), &err);
  for (int round = 0; round < 3; round++)
    for (turb_state state = turb_finish(s->it, turb_first(s->it)); state != TURB_END; state = turb_next(s->it))
      CHECK_EQ(state, TURB_READY);
  CHECK_EQ(walk(s, false), s->rows);
}

static void close_iterator(struct scan *s) {
  turb_iterator_close(s->it);
  CHECK_OK_ERR(turb_loop_close(s->loop, fresh()), &err);
  s->loop = NULL;
}

static bool walk_both_ways(void *scan) {
  struct scan *s = scan;
  return walk(s, false) == s->rows && walk(s, true) == s->rows;
}

static void check_scan(uint32_t parts, bool with_loop) {
  static struct scan s;
  s = (struct scan){.rows = 0};
  begin(&s);
  open_warm(&s, parts, with_loop);
  test_allocator_fail_from(&s.allocator, 1);
  for (int backward = 0; backward < 2; backward++) {
    s.calls = 0;
    CHECK_EQ(walk(&s, backward), s.rows);
    CHECK_MSG(s.calls <= s.rows / 16 + 8, "%" PRIu64 " calls for %u entries", s.calls, s.rows);
  }
  CHECK_EQ(s.allocator.count, 0);
  test_allocator_fail_at(&s.allocator, 0);
  test_confined(walk_both_ways, &s);
  close_iterator(&s);
  end(&s);
}

TEST(iterator_fast_path, keys) {
  check_scan(TURB_KEY, false);
}
TEST(iterator_fast_path, everything) {
  check_scan(TURB_ALL, false);
}
TEST(iterator_fast_path, everything_on_a_loop) {
  check_scan(TURB_ALL, true);
}
