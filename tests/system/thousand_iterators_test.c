/* Many iterators on one loop: the example as a user runs it, and on the simulated disk completions in any order, moves dropped and
 * iterators closed with reads in flight, and reads that fail. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "engine/iterator.h"
#include "tests/support/allocator.h"
#include "tests/support/test.h"

/* ---- the example ---- */

static unsigned long long number_after(const char *text, const char *name) {
  const char *at = strstr(text, name);
  CHECK_MSG(at != NULL, "no '%s' in: %s", name, text);
  return strtoull(at + strlen(name), NULL, 10);
}

TEST(thousand_iterators, the_example_runs) {
  char path[4096], command[8192], text[4096];
  const ssize_t size = readlink("/proc/self/exe", path, sizeof path - 1);
  CHECK(size > 0);
  path[size] = '\0';
  for (int i = 0; i < 3; i++) /* OUT/tests/system/this_test */
    *strrchr(path, '/') = '\0';
  (void)snprintf(command, sizeof command, "%s/examples/thousand_iterators %s/numbers.db 5 2>&1", path, test_tmpdir());
  for (int round = 0; round < 2; round++) { /* makes the database, then opens it */
    FILE *output = popen(command, "r");
    CHECK(output != NULL);
    text[fread(text, 1, sizeof text - 1, output)] = '\0';
    CHECK_MSG(pclose(output) == 0, "it said: %s", text);
    CHECK_EQ(number_after(text, "iterators "), 1000u);
    CHECK_EQ(number_after(text, "entries "), 1000u * 5 * 5);
    CHECK_EQ(number_after(text, "sum "), number_after(text, "expected "));
    CHECK_GT(number_after(text, "reads "), 0u);
    CHECK_GT(number_after(text, "rounds "), 0u);
  }
}

/* ---- the simulated disk ---- */

#define MANY      200u
#define ROWS      6000u
#define DIMENSION 96

static turb_error err;

struct seeker {
  turb_iterator *it;
  uint32_t wanted;
  uint32_t walked;
};

struct crowd {
  struct test_allocator allocator;
  turb_simulation *simulation;
  turb_db *db;
  turb_collection *rows;
  turb_loop *loop;
  struct random random;
  struct seeker seekers[MANY];
  uint64_t found, failed, dropped, closed;
};

static turb_bytes key_of(uint32_t i, char key[16]) {
  return (turb_bytes){key, (size_t)snprintf(key, 16, "key%07u", i)};
}

static void open_crowd(struct crowd *c) {
  memset(c, 0, sizeof *c);
  random_init(&c->random, test_seed());
  test_allocator_init(&c->allocator);
  turb_simulation_options how = TURB_SIMULATION_OPTIONS_INIT;
  how.seed = random_u64(&c->random);
  how.reorder_percent = 50;
  how.short_percent = 10;
  CHECK_OK_ERR(turb_simulation_create(&how, &c->simulation, &err), &err);
  turb_options options = TURB_OPTIONS_INIT;
  options.backend = TURB_BACKEND_SIMULATED;
  options.simulation = c->simulation;
  options.allocator = &c->allocator.base;
  options.memory_budget_bytes = 24u << 20;
  options.worker_threads = -1;
  options.ring_entries = 64; /* fewer than iterators */
  CHECK_OK_ERR(turb_open("/db", &options, &c->db, &err), &err);
  turb_collection_options shape = TURB_COLLECTION_OPTIONS_INIT;
  shape.dimension = DIMENSION;
  CHECK_OK_ERR(turb_collection_create(c->db, "rows", &shape, &c->rows, &err), &err);
  float row[DIMENSION] = {0};
  char key[16];
  for (uint32_t i = 0; i < ROWS; i++) {
    row[0] = (float)i;
    CHECK_OK_ERR(turb_put(c->rows, key_of(i, key), (turb_bytes){row, sizeof row}, TURB_NONE, NULL, &err), &err);
  }
  CHECK_OK_ERR(turb_compact(c->db, NULL, &err), &err);
  CHECK_OK_ERR(turb_close(c->db, &err), &err);
  CHECK_OK_ERR(turb_open("/db", &options, &c->db, &err), &err); /* with an empty cache */
  CHECK_OK_ERR(turb_collection_open(c->db, "rows", &c->rows, &err), &err);
  CHECK_OK_ERR(turb_loop_open(c->db, &c->loop, &err), &err);
}

static void open_seeker(struct crowd *c, struct seeker *s) {
  turb_iterator_options options = TURB_ITERATOR_OPTIONS_INIT;
  options.loop = c->loop;
  options.skip_cache_fill = random_one_in(&c->random, 2);
  options.context = s;
  CHECK_OK_ERR(turb_iterator_open(c->rows, &options, &s->it, &err), &err);
  CHECK(turb_iterator_context(s->it) == s);
}

static void close_crowd(struct crowd *c) {
  turb_simulation_fail_at(c->simulation, 0, 0); /* a fault may be still to come */
  for (uint32_t i = 0; i < MANY; i++)
    turb_iterator_close(c->seekers[i].it);
  CHECK_OK_ERR(turb_loop_close(c->loop, &err), &err);
  turb_stats stats = {.size = sizeof stats};
  CHECK_OK_ERR(turb_get_stats(c->db, &stats, &err), &err);
  CHECK_EQ(stats.iterators, 0u);
  CHECK_OK_ERR(turb_close(c->db, &err), &err);
  test_allocator_check_empty(&c->allocator);
  turb_simulation_free(c->simulation);
}

static turb_state seek_somewhere(struct crowd *c, struct seeker *s) {
  char key[16];
  s->wanted = (uint32_t)random_below(&c->random, ROWS - 10);
  s->walked = 0;
  return turb_seek(s->it, key_of(s->wanted, key));
}

static void check_found(struct crowd *c, const struct seeker *s) {
  char key[16];
  float first;
  const turb_bytes wanted = key_of(s->wanted, key);
  CHECK_EQ(s->it->entry->key.size, wanted.size);
  CHECK_MEM_EQ(s->it->entry->key.data, wanted.data, wanted.size);
  memcpy(&first, s->it->entry->vector.data, sizeof first);
  CHECK_EQ((uint32_t)first, s->wanted);
  c->found++;
}

static void drive(struct crowd *c, struct seeker *s, turb_state state, bool may_fail) {
  for (int moves = 0; state != TURB_PENDING; moves++) {
    if (state == TURB_FAILED) {
      turb_error why = TURB_ERROR_INIT;
      CHECK_MSG(may_fail, "failed: %s", (turb_iterator_status(s->it, &why), why.message));
      CHECK_STATUS(turb_iterator_status(s->it, &why), TURB_IO);
      CHECK_NE(why.file[0], 0);
      c->failed++;
      state = seek_somewhere(c, s); /* recovers */
      continue;
    }
    CHECK_EQ(state, TURB_READY);
    check_found(c, s);
    if (moves == 20)
      return; /* all is cached: left READY */
    if (s->walked++ < 3) {
      s->wanted++;
      state = turb_advance(s->it);
    } else {
      state = seek_somewhere(c, s);
    }
  }
}

/* What turb_loop_ready gave, none twice. */
static size_t drive_ready(struct crowd *c, bool may_fail) {
  turb_iterator *ready[32];
  const size_t count = turb_loop_ready(c->loop, ready, 32);
  for (size_t i = 0; i < count; i++)
    for (size_t j = 0; j < i; j++)
      CHECK(ready[i] != ready[j]);
  for (size_t i = 0; i < count; i++)
    drive(c, turb_iterator_context(ready[i]), turb_advance(ready[i]), may_fail);
  return count;
}

static void disturb(struct crowd *c, bool may_fail) {
  struct seeker *s = &c->seekers[random_below(&c->random, MANY)];
  if (random_one_in(&c->random, 2)) {
    c->dropped++;
    drive(c, s, seek_somewhere(c, s), may_fail);
    return;
  }
  turb_iterator_close(s->it);
  c->closed++;
  open_seeker(c, s);
  drive(c, s, seek_somewhere(c, s), may_fail);
}

static void run_crowd(struct crowd *c, uint64_t rounds, bool faults) {
  for (uint32_t i = 0; i < MANY; i++) {
    open_seeker(c, &c->seekers[i]);
    drive(c, &c->seekers[i], seek_somewhere(c, &c->seekers[i]), faults);
  }
  for (uint64_t round = 0; round < rounds; round++) {
    if (faults && random_one_in(&c->random, 8))
      turb_simulation_fail_at(c->simulation, turb_simulation_operations(c->simulation) + 1 + random_below(&c->random, 40), EIO);
    CHECK_OK_ERR(turb_loop_submit(c->loop, &err), &err);
    while (drive_ready(c, faults) == 32) {}
    for (uint64_t times = random_below(&c->random, 3); times > 0; times--)
      disturb(c, faults);
  }
}

/* Each completion reaches the iterator that waits for it, whatever the order; seeks and closes in between lose nothing. */
TEST(thousand_iterators, completions_reach_their_iterators) {
  static struct crowd c;
  open_crowd(&c);
  run_crowd(&c, test_scale(1500, 500, 10000), false);
  CHECK_GT(c.found, 1000u);
  CHECK_EQ(c.failed, 0u);
  CHECK_GT(c.dropped, 100u);
  CHECK_GT(c.closed, 100u);
  close_crowd(&c);
}

/* A read that fails ends the move of the one iterator that it was for, with the file's name; its next seek recovers. */
TEST(thousand_iterators, a_failed_read_is_one_iterators) {
  static struct crowd c;
  open_crowd(&c);
  const uint64_t rounds = test_scale(1500, 500, 10000);
  run_crowd(&c, rounds, true);
  CHECK_GT(c.found, 1000u);
  CHECK_GT(c.failed, 0u);
  CHECK_LE(c.failed, rounds / 4); /* one at most for each fault */
  close_crowd(&c);
}

static uint64_t looked_at(const turb_iterator *it) {
  uint64_t entries, hidden;
  visible_cursor_counts(((const struct iterator *)it)->cursor, &entries, &hidden);
  return entries;
}

/* Over deletes a call looks at no more than its budget, and says so by YIELD; nothing is lost on the way. */
TEST(thousand_iterators, a_budget_bounds_every_call_over_deletes) {
  static struct crowd c;
  open_crowd(&c);
  CHECK_OK_ERR(turb_delete_range(c.rows, TURB_STR("key0000010"), TURB_STR("key0005990"), NULL, &err), &err);
  turb_iterator_options options = TURB_ITERATOR_OPTIONS_INIT;
  options.work_budget = 100;
  turb_iterator *it;
  CHECK_OK_ERR(turb_iterator_open(c.rows, &options, &it, &err), &err);
  for (int backward = 0; backward < 2; backward++) {
    uint32_t yields = 0, waits = 0, count = 0;
    uint64_t before = looked_at(it);
    turb_state state = backward ? turb_last(it) : turb_first(it);
    while (state != TURB_END) {
      CHECK_NE(state, TURB_FAILED);
      CHECK_LE(looked_at(it) - before, 100u);
      before = looked_at(it);
      waits += state == TURB_PENDING;
      if (state == TURB_READY)
        count++;
      yields += state == TURB_YIELD;
      if (state == TURB_PENDING)
        CHECK_OK_ERR(turb_submit(it, &err), &err);
      state = backward ? turb_retreat(it) : turb_advance(it);
    }
    CHECK_EQ(count, 20u);
    CHECK_GE(yields + waits, (ROWS - 20) / 100 - 1);
    CHECK_GT(yields, 0u);
  }
  turb_iterator_close(it);
  for (uint32_t i = 0; i < MANY; i++)
    open_seeker(&c, &c.seekers[i]);
  close_crowd(&c);
}
