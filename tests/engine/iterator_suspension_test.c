/* The suspension sweep over the public iterator: moves and fetches over cold rows and attributes are stopped at their n-th suspension for each
 * n, with a loop and without. What happens there is the manner, as in tests/iterators/suspension_test.c; afterwards an iterator that lives
 * yields what the model says, and one that was closed has left nothing. */
#include <errno.h>

#include "engine/iterator.h"
#include "engine/loop.h"
#include "tests/engine/cold_db.h"

#define KEYS          150u
#define DIMENSION     1024u
#define ATTRIBUTE_MAX 3000u

enum manner {
  MANNER_SEEK,   /* dropped for another seek */
  MANNER_CLOSE,  /* closed with reads in flight */
  MANNER_FAIL,   /* a read fails */
  MANNER_POLL,   /* from here on completions are taken as they come */
  MANNER_RESUME, /* gone on with many times before anything was submitted */
  MANNER_CALLS,  /* advance, retreat and fetch go on with what is under way, and begin nothing */
  MANNERS
};

enum op { OP_SEEK, OP_SEEK_PREV, OP_FIRST, OP_LAST, OP_NEXT, OP_PREV, OP_FETCH, OP_STOP };

struct step {
  enum op op;
  uint32_t count; /* of relative moves; turb_parts of a fetch */
  uint32_t to;    /* of seeks: eighths of the rows */
  bool cold;      /* the cache is emptied before */
};

#define STEPS_MAX 12
static const struct step scripts[][STEPS_MAX] = {
    {{.op = OP_SEEK, .to = 2, .cold = true}, {.op = OP_NEXT, .count = 500}, {.op = OP_STOP}},
    {{.op = OP_SEEK_PREV, .to = 6, .cold = true}, {.op = OP_PREV, .count = 500}, {.op = OP_STOP}},
    {{.op = OP_FIRST, .cold = true},
     {.op = OP_NEXT, .count = 20},
     {.op = OP_PREV, .count = 15, .cold = true},
     {.op = OP_NEXT, .count = 70, .cold = true},
     {.op = OP_LAST, .cold = true},
     {.op = OP_PREV, .count = 20, .cold = true},
     {.op = OP_STOP}},
    {{.op = OP_SEEK, .to = 4, .cold = true},
     {.op = OP_FETCH, .count = TURB_VECTOR},
     {.op = OP_FETCH, .count = TURB_ALL, .cold = true},
     {.op = OP_NEXT, .count = 5},
     {.op = OP_FETCH, .count = TURB_ALL, .cold = true},
     {.op = OP_SEEK, .to = 6, .cold = true},
     {.op = OP_FETCH, .count = TURB_ATTRIBUTES, .cold = true},
     {.op = OP_PREV, .count = 40, .cold = true},
     {.op = OP_FETCH, .count = TURB_ALL, .cold = true},
     {.op = OP_STOP}},
};
#define SCRIPTS     (sizeof scripts / sizeof scripts[0])
#define KEYS_SCRIPT 3u /* this one opens the iterator for keys alone */

struct row {
  uint32_t number, version;
};

struct sweep {
  struct cold_db disk;
  struct random random;
  struct row rows[KEYS];
  uint32_t count;
  /* of one script */
  bool with_loop, streaming, keys_only;
  turb_loop *loop;
  turb_iterator *it;
  ptrdiff_t at;
  uint32_t fetched; /* turb_parts of the current entry */
  enum manner manner;
  uint32_t stop_at, suspensions;
  bool stopped;
  uint64_t used[BUDGET_USES];
  size_t live;
};

static turb_error err;
static turb_error *fresh(void) {
  err = (turb_error)TURB_ERROR_INIT;
  return &err;
}

/* ---- the rows ---- */

static turb_bytes key_of(uint32_t number, char key[16]) {
  return (turb_bytes){key, (size_t)snprintf(key, 16, "k%05u", number)};
}

static uint32_t fill(struct row row, float *vector, uint8_t *attribute) {
  for (uint32_t i = 0; i < DIMENSION; i++)
    vector[i] = (float)(row.number * 3 + row.version * 1000 + i);
  const uint32_t size = row.number % 5 ? (row.number * 71 + row.version * 13) % ATTRIBUTE_MAX : 0;
  memset(attribute, (int)(row.number + row.version * 64) & 0xff, size);
  return size;
}

static void put(struct sweep *s, struct row row) {
  static float vector[DIMENSION];
  static uint8_t attribute[ATTRIBUTE_MAX];
  char key[16];
  const uint32_t size = fill(row, vector, attribute);
  CHECK_OK_ERR(
      turb_put(s->disk.c, key_of(row.number, key), (turb_bytes){vector, sizeof vector}, (turb_bytes){attribute, size}, NULL, fresh()),
      &err);
}

/* Two runs and a memtable; some keys have three versions, some are deleted. */
static void fill_rows(struct sweep *s) {
  char key[16];
  for (uint32_t i = 0; i < KEYS; i++)
    put(s, (struct row){i, 1});
  CHECK_OK_ERR(turb_flush(s->disk.db, s->disk.c, fresh()), &err);
  for (uint32_t i = 0; i < KEYS; i++) {
    if (i % 3 == 0)
      put(s, (struct row){i, 2});
    if (i % 7 == 1)
      CHECK_OK_ERR(turb_delete(s->disk.c, key_of(i, key), NULL, fresh()), &err);
  }
  CHECK_OK_ERR(turb_flush(s->disk.db, s->disk.c, fresh()), &err);
  CHECK_OK_ERR(turb_delete_range(s->disk.c, TURB_STR("k00100"), TURB_STR("k00108"), NULL, fresh()), &err);
  for (uint32_t i = 0; i < KEYS; i++) {
    const bool deleted = (i % 7 == 1 && i % 11) || (i >= 100 && i < 108);
    if (i % 11 == 0 && !deleted)
      put(s, (struct row){i, 3});
    if (!deleted)
      s->rows[s->count++] = (struct row){i, i % 11 == 0 ? 3 : i % 3 == 0 ? 2 : 1};
  }
}

static void begin(struct sweep *s, uint64_t seed) {
  random_init(&s->random, seed);
  cold_db_begin(&s->disk, seed, DIMENSION);
  fill_rows(s);
}

/* ---- what is seen ---- */

static const struct row *row_at(const struct sweep *s, ptrdiff_t at) {
  return at >= 0 && at < (ptrdiff_t)s->count ? &s->rows[at] : NULL;
}

static bool is_suspended(turb_state state) {
  return state == TURB_PENDING || state == TURB_YIELD;
}

/* The entry with the parts that it must have. */
static void check_entry(const struct sweep *s, struct row row, uint32_t parts) {
  static float vector[DIMENSION];
  static uint8_t attribute[ATTRIBUTE_MAX];
  const uint32_t size = fill(row, vector, attribute);
  char key[16];
  const turb_bytes wanted = key_of(row.number, key);
  const turb_entry *entry = s->it->entry;
  CHECK(entry != NULL);
  CHECK_EQ(entry->key.size, wanted.size);
  CHECK_MEM_EQ(entry->key.data, wanted.data, wanted.size);
  if (parts & TURB_VECTOR) {
    CHECK_EQ(entry->vector.size, sizeof vector);
    CHECK_MEM_EQ(entry->vector.data, vector, sizeof vector);
  }
  if (parts & TURB_ATTRIBUTES) {
    CHECK_EQ(entry->attributes.size, size);
    CHECK(!size || !memcmp(entry->attributes.data, attribute, size));
  }
}

static uint32_t parts_of(const struct sweep *s) {
  return s->keys_only ? s->fetched : (uint32_t)TURB_ALL;
}

static void check_at(const struct sweep *s, turb_state state) {
  const struct row *row = row_at(s, s->at);
  if (state == TURB_FAILED) {
    (void)!turb_iterator_status(s->it, fresh());
    FAIL("failed: %s", err.message);
  }
  CHECK_EQ(state, row ? TURB_READY : TURB_END);
  CHECK_EQ(turb_iterator_status(s->it, NULL), TURB_OK);
  if (row)
    check_entry(s, *row, parts_of(s));
  else
    CHECK(!s->it->entry);
}

/* ---- moves ---- */

static turb_state begin_seek(struct sweep *s, enum op op, uint32_t row) {
  char key[16];
  const turb_bytes target = key_of(s->rows[row < s->count ? row : s->count - 1].number, key);
  s->fetched = 0;
  switch (op) {
  case OP_FIRST: s->at = 0; return turb_first(s->it);
  case OP_LAST: s->at = (ptrdiff_t)s->count - 1; return turb_last(s->it);
  case OP_SEEK: s->at = row < s->count ? row : s->count - 1; return turb_seek(s->it, target);
  default: s->at = row < s->count ? row : s->count - 1; return turb_seek_for_prev(s->it, target);
  }
}

static void wait_for_one(struct sweep *s) {
  if (s->loop)
    CHECK_OK_ERR(turb_loop_wait(s->loop, -1, fresh()), &err);
  else
    CHECK_OK_ERR(reads_wait(&((struct iterator *)s->it)->reads, fresh()), &err);
}

static turb_state wait_out(struct sweep *s, turb_state state, const struct row *old, uint32_t old_parts) {
  while (is_suspended(state)) {
    if (old)
      check_entry(s, *old, old_parts);
    if (state == TURB_PENDING)
      wait_for_one(s);
    state = turb_advance_slow(s->it);
  }
  return state;
}

/* A seek and a walk: as a fresh iterator would. */
static void check_good_as_new(struct sweep *s, const struct row *old, uint32_t old_parts) {
  static const enum op moves[] = {OP_SEEK, OP_SEEK_PREV, OP_FIRST, OP_LAST};
  const enum op op = moves[random_below(&s->random, 4)];
  const bool backward = op == OP_SEEK_PREV || op == OP_LAST;
  for (int pass = 0; pass < 2; pass++) {
    check_at(s, wait_out(s, begin_seek(s, op, (uint32_t)random_below(&s->random, s->count)), old, old_parts));
    old = NULL;
    for (int i = 0; i < 60 && s->it->entry; i++) {
      const struct row *from = row_at(s, s->at);
      s->at += backward ? -1 : 1;
      check_at(s, wait_out(s, backward ? turb_retreat(s->it) : turb_advance(s->it), from, parts_of(s)));
    }
    cold_db_chill(&s->disk);
  }
}

/* ---- manners ---- */

static void close_all(struct sweep *s) {
  turb_iterator_close(s->it);
  s->it = NULL;
  if (s->loop)
    CHECK_OK_ERR(turb_loop_close(s->loop, fresh()), &err);
  s->loop = NULL;
  io_system_drain(s->disk.db->system);
  cold_db_chill(&s->disk);
  if (!s->stop_at)
    return; /* the first of all, after which the database has what it keeps */
  CHECK_EQ(s->disk.allocator.live_count, s->live);
  for (int use = 0; use < BUDGET_USES; use++)
    CHECK_MSG(budget_used_for(&s->disk.db->budget, (enum budget_use)use) == s->used[use], "%s: %" PRIu64 " bytes, before it were %" PRIu64,
              budget_use_name((enum budget_use)use), budget_used_for(&s->disk.db->budget, (enum budget_use)use), s->used[use]);
}

static void check_failed(struct sweep *s) {
  CHECK_STATUS_ERR(turb_iterator_status(s->it, fresh()), TURB_IO, &err);
  CHECK_NE(err.file[0], 0);
  CHECK_NE(err.offset, UINT64_MAX);
  CHECK(!s->it->entry);
  CHECK_EQ(turb_advance(s->it), TURB_FAILED);
  CHECK_EQ(turb_retreat(s->it), TURB_FAILED);
  CHECK_EQ(turb_fetch(s->it, TURB_ALL), TURB_FAILED);
  CHECK_EQ(turb_await(s->it), TURB_FAILED);
}

static turb_state go_on_by(struct sweep *s, unsigned call) {
  switch (call % 3) {
  case 0: return turb_advance(s->it);
  case 1: return turb_retreat(s->it);
  default: return turb_fetch(s->it, TURB_ALL);
  }
}

/* Suspension number `stop_at` was reached. */
static turb_state meddle(struct sweep *s, turb_state state, const struct row *old, uint32_t old_parts) {
  switch (s->manner) {
  case MANNER_SEEK:
    s->stopped = true;
    if (s->stop_at % 3 == 0 && state == TURB_PENDING)
      wait_for_one(s);
    check_good_as_new(s, old, old_parts);
    return TURB_READY;
  case MANNER_CLOSE:
    s->stopped = true;
    if (s->stop_at % 2)
      CHECK_OK_ERR(turb_submit(s->it, fresh()), &err);
    close_all(s);
    return TURB_END;
  case MANNER_FAIL:
    turb_simulation_fail_at(s->disk.simulation, turb_simulation_operations(s->disk.simulation) + 1 + random_below(&s->random, 3), EIO);
    return state;
  case MANNER_RESUME:
    for (unsigned i = 0; i < 30 && state == TURB_PENDING && !((struct iterator *)s->it)->reads.in_flight; i++) {
      state = turb_advance_slow(s->it);
      CHECK_EQ(state, TURB_PENDING);
      if (old)
        check_entry(s, *old, old_parts);
    }
    return state;
  case MANNER_CALLS:
    if (state == TURB_PENDING)
      wait_for_one(s);
    return go_on_by(s, s->stop_at);
  case MANNER_POLL:
  case MANNERS: break;
  }
  return state;
}

static turb_state take_as_they_come(struct sweep *s, turb_state state) {
  if (state == TURB_PENDING)
    CHECK_OK_ERR(turb_submit(s->it, fresh()), &err);
  if (s->loop)
    (void)turb_loop_poll(s->loop);
  return go_on_by(s, (unsigned)random_below(&s->random, 3));
}

static turb_state finish(struct sweep *s, turb_state state, const struct row *old, uint32_t old_parts) {
  while (is_suspended(state) && !s->stopped) {
    if (old)
      check_entry(s, *old, old_parts);
    s->suspensions++;
    if (s->suspensions % 4 == 0)
      cold_db_chill(&s->disk);
    if (s->suspensions == s->stop_at) {
      state = meddle(s, state, old, old_parts);
      if (s->stopped || !is_suspended(state))
        break;
    }
    if (s->manner == MANNER_POLL && s->stop_at && s->suspensions >= s->stop_at) {
      state = take_as_they_come(s, state);
      continue;
    }
    if (state == TURB_PENDING)
      wait_for_one(s);
    state = turb_advance_slow(s->it);
  }
  if (state == TURB_FAILED && s->manner == MANNER_FAIL && s->stop_at && s->suspensions >= s->stop_at) {
    check_failed(s);
    check_good_as_new(s, NULL, 0);
    s->stopped = true;
  }
  return state;
}

/* ---- scripts ---- */

static void run_move(struct sweep *s, const struct step *step) {
  const struct row *old = s->it->entry ? row_at(s, s->at) : NULL;
  const uint32_t old_parts = parts_of(s);
  turb_state state;
  if (step->op == OP_FETCH) {
    state = turb_fetch(s->it, step->count);
  } else if (step->op == OP_NEXT || step->op == OP_PREV) {
    s->at += step->op == OP_NEXT ? 1 : -1;
    s->fetched = 0;
    state = step->op == OP_NEXT ? turb_advance(s->it) : turb_retreat(s->it);
  } else {
    state = begin_seek(s, step->op, s->count * step->to / 8);
  }
  state = finish(s, state, old, old_parts);
  if (s->stopped)
    return;
  if (step->op == OP_FETCH)
    s->fetched |= step->count;
  check_at(s, state);
}

static void open_iterator(struct sweep *s) {
  io_system_drain(s->disk.db->system);
  cold_db_chill(&s->disk);
  s->live = s->disk.allocator.live_count;
  for (int use = 0; use < BUDGET_USES; use++)
    s->used[use] = budget_used_for(&s->disk.db->budget, (enum budget_use)use);
  turb_iterator_options options = TURB_ITERATOR_OPTIONS_INIT;
  if (s->with_loop)
    CHECK_OK_ERR(turb_loop_open(s->disk.db, &s->loop, fresh()), &err);
  options.loop = s->loop;
  options.streaming = s->streaming;
  options.parts = s->keys_only ? TURB_KEY : TURB_ALL;
  options.work_budget = s->with_loop ? 16 : 0;
  CHECK_OK_ERR(turb_iterator_open(s->disk.c, &options, &s->it, fresh()), &err);
  ((struct iterator *)s->it)->context.stream_piece_bytes = 64 << 10; /* so that a stream is more than one read */
  s->suspensions = 0;
  s->stopped = false;
}

static uint32_t run_script(struct sweep *s, const struct step *script) {
  open_iterator(s);
  for (const struct step *step = script; step->op != OP_STOP && !s->stopped; step++) {
    if (step->cold)
      cold_db_chill(&s->disk);
    const bool relative = step->op == OP_NEXT || step->op == OP_PREV;
    const uint32_t count = relative ? step->count : 1;
    for (uint32_t i = 0; i < count && !s->stopped && (!relative || s->it->entry); i++)
      run_move(s, step);
  }
  turb_simulation_fail_at(s->disk.simulation, 0, 0);
  if (!s->stopped && s->stop_at)
    check_good_as_new(s, NULL, 0);
  if (s->it)
    close_all(s);
  return s->suspensions;
}

static void sweep_iterators(bool with_loop, bool streaming) {
  const uint64_t seed = test_seed(), rounds = test_scale(1, 1, 5);
  const bool every_stop = test_scale_kind() >= TEST_FULL;
  uint64_t stops = 0;
  for (uint64_t round = 0; round < rounds; round++) {
    static struct sweep s;
    s = (struct sweep){.with_loop = with_loop, .streaming = streaming};
    begin(&s, seed + round);
    s.manner = MANNER_SEEK;
    (void)run_script(&s, scripts[0]);
    for (size_t script = 0; script < SCRIPTS; script++) {
      s.keys_only = script == KEYS_SCRIPT;
      for (int manner = 0; manner < MANNERS; manner++) {
        s.manner = (enum manner)manner;
        s.stop_at = 1;
        for (; run_script(&s, scripts[script]) >= s.stop_at; stops++)
          s.stop_at += 1 + (every_stop ? 0 : (uint32_t)random_below(&s.random, 6));
      }
    }
    cold_db_end(&s.disk);
  }
  CHECK_GT(stops, rounds * SCRIPTS * MANNERS / 2);
}

TEST(iterator_suspension, alone) {
  sweep_iterators(false, false);
}
TEST(iterator_suspension, alone_streaming) {
  sweep_iterators(false, true);
}
TEST(iterator_suspension, on_a_loop) {
  sweep_iterators(true, false);
}
TEST(iterator_suspension, on_a_loop_streaming) {
  sweep_iterators(true, true);
}

/* A move that does well while one of its reads ahead fails, then seeks: the one that needs that unit reads it again. */
TEST(iterator_suspension, a_seek_forgets_reads_ahead_that_failed) {
  static struct sweep s;
  begin(&s, test_seed());
  uint64_t did_well = 0;
  for (uint64_t n = 1; n <= 40; n++) {
    s.keys_only = n % 2;
    open_iterator(&s);
    struct iterator *it = (struct iterator *)s.it;
    check_at(&s, wait_out(&s, begin_seek(&s, OP_FIRST, 0), NULL, 0));
    cold_db_chill(&s.disk);
    turb_simulation_fail_at(s.disk.simulation, turb_simulation_operations(s.disk.simulation) + 1 + n / 2, EIO);
    turb_state state = turb_seek(s.it, TURB_STR("k00040"));
    for (uint32_t i = 0; i < 4 && wait_out(&s, state, NULL, 0) == TURB_READY; i++)
      state = s.keys_only ? turb_fetch(s.it, TURB_ALL) : turb_advance(s.it);
    while (it->reads.in_flight + it->reads.queued != 0)
      CHECK_OK_ERR(reads_wait(&it->reads, fresh()), &err);
    did_well += it->state == TURB_READY;
    turb_simulation_fail_at(s.disk.simulation, 0, 0);
    for (uint32_t row = s.count; row-- != 0;) { /* from the last on, so that each unit is first needed by the entry that is sought */
      check_at(&s, wait_out(&s, begin_seek(&s, OP_SEEK, row), NULL, 0));
      check_at(&s, wait_out(&s, s.keys_only ? turb_fetch(s.it, TURB_ALL) : TURB_READY, NULL, 0));
    }
    turb_iterator_close(s.it);
  }
  CHECK_GT(did_well, 0);
  cold_db_end(&s.disk);
}

/* What is read ahead while one entry's row is waited for fails: the entry that needs it reads it again. Rows are fetched one by one, so that no
 * entry before it in the same set takes the failure away. */
TEST(iterator_suspension, a_failed_read_ahead_fails_nobody) {
  static struct sweep s;
  begin(&s, test_seed());
  uint64_t failed_ahead = 0;
  s.keys_only = true;
  for (int round = 0; round < 20; round++) {
    open_iterator(&s);
    const struct iterator *it = (const struct iterator *)s.it;
    turb_state state = wait_out(&s, begin_seek(&s, OP_FIRST, 0), NULL, 0);
    while (state == TURB_READY) /* keys come into the cache: what is read from here on are rows */
      state = wait_out(&s, turb_advance(s.it), NULL, 0);
    check_at(&s, wait_out(&s, begin_seek(&s, OP_SEEK, (uint32_t)round), NULL, 0));
    for (int i = 0; i < 80; i++) {
      state = turb_fetch(s.it, TURB_VECTOR);
      const bool ahead = state == TURB_PENDING && it->reads.queued > 2; /* more than its frame and checksums */
      if (ahead)
        turb_simulation_fail_at(s.disk.simulation, turb_simulation_operations(s.disk.simulation) + it->reads.queued, EIO);
      state = wait_out(&s, state, NULL, 0);
      turb_simulation_fail_at(s.disk.simulation, 0, 0);
      if (ahead && state == TURB_FAILED)
        break; /* it was the one that was waited for */
      check_at(&s, state);
      while (ahead && it->reads.in_flight + it->reads.queued != 0) /* until it has failed, and nobody waits for it */
        CHECK_OK_ERR(reads_wait(&((struct iterator *)s.it)->reads, fresh()), &err);
      failed_ahead += ahead;
      s.at++;
      check_at(&s, wait_out(&s, turb_advance(s.it), NULL, 0));
    }
    turb_iterator_close(s.it);
  }
  CHECK_GT(failed_ahead, 20);
  cold_db_end(&s.disk);
}
