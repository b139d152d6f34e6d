/* The caller's filter: what it does not want is not there, for every snapshot, bound and direction; it is asked once for each visible entry that
 * a walk passes, and nothing of what it rejects is read. */
#include "tests/engine/cold_rows.h"

struct asked {
  uint32_t stage, low, high; /* of what the iterator may see */
  uint32_t every, rest;      /* number % every == rest is wanted; 0: none is */
  uint32_t times[COLD_KEYS];
  uint64_t count;
};

static struct cold_rows rows;
static struct asked asked;
static turb_error err;
static turb_error *fresh(void) {
  err = (turb_error)TURB_ERROR_INIT;
  return &err;
}

static bool is_wanted(uint32_t number) {
  return asked.every && number % asked.every == asked.rest;
}

static bool filter(void *context, turb_bytes key, uint64_t sequence) {
  CHECK(context == &asked);
  CHECK_GT(sequence, 0);
  const uint32_t number = cold_rows_number(key);
  CHECK_LT(number, COLD_KEYS);
  CHECK_MSG(cold_rows_version(number, asked.stage), "asked for %u, which is not visible", number);
  CHECK_MSG(number >= asked.low && number < asked.high, "asked for %u, which is out of bounds", number);
  asked.times[number]++;
  asked.count++;
  return is_wanted(number);
}

static void expect(uint32_t stage, uint32_t low, uint32_t high, uint32_t every, uint32_t rest) {
  asked = (struct asked){.stage = stage, .low = low, .high = high, .every = every, .rest = rest};
}

static void forget_asked(void) {
  memset(asked.times, 0, sizeof asked.times);
  asked.count = 0;
}

static turb_iterator *open(const turb_iterator_options *given) {
  turb_iterator_options options = *given;
  options.filter = filter;
  options.filter_context = &asked;
  turb_iterator *it;
  CHECK_OK_ERR(turb_iterator_open(rows.disk.c, &options, &it, fresh()), &err);
  return it;
}

/* Each visible entry within the bounds was asked for once. */
static void check_asked_once(void) {
  for (uint32_t i = asked.low; i < asked.high; i++)
    CHECK_MSG(asked.times[i] == (cold_rows_version(i, asked.stage) != 0), "%u was asked for %u times", i, asked.times[i]);
}

/* The next wanted number from `number` on in the walk; COLD_KEYS when there is none. */
static uint32_t next_wanted(int64_t number, bool backward) {
  for (; number >= asked.low && number < asked.high; number += backward ? -1 : 1)
    if (cold_rows_version((uint32_t)number, asked.stage) && is_wanted((uint32_t)number))
      return (uint32_t)number;
  return COLD_KEYS;
}

static void check_at(const turb_iterator *it, turb_state state, uint32_t number, uint32_t parts) {
  CHECK_EQ(state, number == COLD_KEYS ? TURB_END : TURB_READY);
  if (number != COLD_KEYS)
    cold_rows_check(it->entry, number, asked.stage, parts);
}

static void walk(turb_iterator *it, bool backward, uint32_t parts) {
  forget_asked();
  uint32_t number = next_wanted(backward ? asked.high - 1 : asked.low, backward);
  turb_state state = turb_finish(it, backward ? turb_last(it) : turb_first(it));
  for (;;) {
    check_at(it, state, number, parts);
    if (number == COLD_KEYS)
      break;
    number = next_wanted((int64_t)number + (backward ? -1 : 1), backward);
    state = backward ? turb_prev(it) : turb_next(it);
  }
  check_asked_once();
}

/* Seeks, and turns after them. */
static void walk_about(turb_iterator *it, struct random *random, uint32_t parts) {
  for (int i = 0; i < 30; i++) {
    const uint32_t from = (uint32_t)random_below(random, COLD_KEYS);
    const bool before = random_below(random, 2);
    char key[16];
    const turb_bytes target = cold_rows_key(from, key);
    const int64_t low = from < asked.low ? asked.low : from, high = from >= asked.high ? (int64_t)asked.high - 1 : from;
    uint32_t number = next_wanted(before ? high : low, before);
    check_at(it, turb_finish(it, before ? turb_seek_for_prev(it, target) : turb_seek(it, target)), number, parts);
    for (int moves = 0; moves < 20 && number != COLD_KEYS; moves++) {
      const bool backward = random_below(random, 4) == 0;
      number = next_wanted((int64_t)number + (backward ? -1 : 1), backward);
      check_at(it, backward ? turb_prev(it) : turb_next(it), number, parts);
    }
  }
}

TEST(iterator_filter, with_snapshots_and_bounds) {
  struct random random;
  random_init(&random, test_seed());
  cold_rows_begin(&rows, test_seed());
  const uint64_t rounds = test_scale(30, 16, 300);
  for (uint64_t round = 0; round < rounds; round++) {
    turb_iterator_options options = TURB_ITERATOR_OPTIONS_INIT;
    const uint32_t stage = 1 + (uint32_t)random_below(&random, COLD_STAGES);
    const uint32_t every = (uint32_t)random_below(&random, 6);
    expect(stage, 0, COLD_KEYS, every, every ? (uint32_t)random_below(&random, every) : 0);
    char lower[16], upper[16];
    options.snapshot = rows.snapshots[stage];
    options.parts = random_below(&random, 2) ? TURB_ALL : TURB_KEY;
    options.streaming = random_below(&random, 3) == 0;
    options.work_budget = random_below(&random, 3) ? 0 : 1 + (uint32_t)random_below(&random, 20);
    if (random_below(&random, 3) == 0) {
      options.prefix = TURB_STR("k001");
      asked.low = 100;
      asked.high = 200;
    } else if (random_below(&random, 2)) {
      asked.low = (uint32_t)random_below(&random, COLD_KEYS / 2);
      asked.high = asked.low + 1 + (uint32_t)random_below(&random, COLD_KEYS / 2);
      options.lower = cold_rows_key(asked.low, lower);
      options.upper = cold_rows_key(asked.high, upper);
    }
    cold_db_chill(&rows.disk);
    turb_iterator *it = open(&options);
    walk(it, false, options.parts);
    cold_db_chill(&rows.disk);
    walk(it, true, options.parts);
    walk_about(it, &random, options.parts);
    turb_iterator_close(it);
  }
  cold_rows_end(&rows);
}

TEST(iterator_filter, none_is_as_one_that_wants_all) {
  cold_rows_begin(&rows, test_seed());
  expect(COLD_STAGES, 0, COLD_KEYS, 1, 0);
  const turb_iterator_options options = TURB_ITERATOR_OPTIONS_INIT;
  turb_iterator *it = open(&options);
  walk(it, false, TURB_ALL);
  walk(it, true, TURB_ALL);
  turb_iterator_close(it);
  cold_rows_end(&rows);
}

/* ---- the work budget ---- */

static uint64_t looked_at(const turb_iterator *it) {
  uint64_t entries, hidden;
  visible_cursor_counts(((const struct iterator *)it)->cursor, &entries, &hidden);
  return entries;
}

/* A filter that wants nothing does not keep a call beyond its budget; a turb_take neither. */
static void keep_the_budget(uint32_t budget, bool backward, bool by_take) {
  turb_iterator_options options = TURB_ITERATOR_OPTIONS_INIT;
  options.work_budget = budget;
  turb_iterator *it = open(&options);
  forget_asked();
  uint64_t before = 0, yields = 0;
  turb_state state = backward ? turb_last(it) : turb_first(it);
  while (state != TURB_END) {
    CHECK(state == TURB_PENDING || state == TURB_YIELD);
    const uint64_t now = looked_at(it);
    CHECK_LE(now - before, budget);
    before = now;
    yields += state == TURB_YIELD;
    if (state == TURB_PENDING)
      cold_rows_wait(it);
    turb_entry entry;
    size_t count = 1;
    state = by_take ? turb_take(it, backward, &entry, 1, 0, &count) : backward ? turb_retreat(it) : turb_advance(it);
    CHECK(!by_take || !count);
  }
  check_asked_once();
  CHECK_GE((yields + 1) * budget, asked.count);
  CHECK_GE(yields, COLD_KEYS / budget / 2);
  turb_iterator_close(it);
}

TEST(iterator_filter, that_wants_nothing_yields) {
  cold_rows_begin(&rows, test_seed());
  static const uint32_t budgets[] = {1, 7, 64, 100};
  for (int stage = 0; stage < 2; stage++) { /* warm, then cold */
    for (size_t i = 0; i < sizeof budgets / sizeof budgets[0]; i++) {
      for (int manner = 0; manner < 4; manner++) {
        expect(COLD_STAGES, 0, COLD_KEYS, 0, 0);
        if (stage)
          cold_db_chill(&rows.disk);
        keep_the_budget(budgets[i], manner % 2, manner / 2);
      }
    }
  }
  cold_rows_end(&rows);
}

/* ---- what is read ---- */

static uint64_t bytes_read(const turb_iterator *it) {
  return ((const struct iterator *)it)->reads.bytes;
}

/* Bytes that a cold walk reads. */
static uint64_t cold_walk(uint32_t parts, uint32_t every, bool backward) {
  expect(COLD_STAGES, 0, COLD_KEYS, every, 0);
  turb_iterator_options options = TURB_ITERATOR_OPTIONS_INIT;
  options.parts = parts;
  io_system_drain(rows.disk.db->system);
  cold_db_chill(&rows.disk);
  turb_iterator *it = open(&options);
  walk(it, backward, parts);
  const uint64_t bytes = bytes_read(it);
  turb_iterator_close(it);
  return bytes;
}

TEST(iterator_filter, rows_that_are_not_wanted_are_not_read) {
  cold_rows_begin(&rows, test_seed());
  for (int backward = 0; backward < 2; backward++) {
    const uint64_t keys = cold_walk(TURB_KEY, 1, backward), all = cold_walk(TURB_ALL, 1, backward);
    CHECK_GT(keys, 0);
    CHECK_GT(all, keys + 200 * COLD_DIMENSION * sizeof(float));
    CHECK_EQ(cold_walk(TURB_ALL, 0, backward), keys);
    const uint64_t some = cold_walk(TURB_VECTOR, 100, backward); /* three entries: 0, 200 and 300 */
    CHECK_GT(some, keys);
    CHECK_LE(some, keys + 3 * (64u << 10));
  }
  cold_rows_end(&rows);
}
