/* turb_take against a model: a random walk of takes of every size in both directions, moves, seeks and fetches over cold rows, whose
 * suspensions are gone on with in every way; and its rules one by one. */
#include <errno.h>

#include "tests/engine/cold_rows.h"

#define TAKEN_MAX  100u
#define NONE_TAKEN (-100) /* no place that a move may lead to, as -1 is */

struct walk {
  struct cold_rows *rows;
  struct cold_list list;
  struct random random;
  turb_iterator *it;
  uint32_t parts;
  ptrdiff_t at;    /* in the list */
  ptrdiff_t taken; /* that turb_take gave last since the seek, or NONE_TAKEN */
  /* the last take, readable until the next move completes */
  turb_entry entries[TAKEN_MAX];
  ptrdiff_t places[TAKEN_MAX];
  size_t count;
  uint64_t suspensions, ends;
};

static struct cold_rows rows;
static struct walk w;
static turb_error err;
static turb_error *fresh(void) {
  err = (turb_error)TURB_ERROR_INIT;
  return &err;
}

static bool is_suspended(turb_state state) {
  return state == TURB_PENDING || state == TURB_YIELD;
}

static void begin(const turb_iterator_options *options) {
  w = (struct walk){.rows = &rows, .at = -1, .taken = NONE_TAKEN};
  random_init(&w.random, test_seed());
  w.parts = options && options->parts ? options->parts : TURB_ALL;
  cold_rows_list(&w.list, COLD_STAGES);
  CHECK_OK_ERR(turb_iterator_open(rows.disk.c, options, &w.it, fresh()), &err);
  ((struct iterator *)w.it)->context.stream_piece_bytes = 64 << 10; /* so that a stream is more than one read */
  w.at = 0;
  CHECK_EQ(turb_finish(w.it, turb_first(w.it)), TURB_READY);
}

static bool is_entry(ptrdiff_t at) {
  return at >= 0 && at < (ptrdiff_t)w.list.count;
}

static void check_taken(void) {
  for (size_t i = 0; i < w.count; i++)
    cold_rows_check(&w.entries[i], w.list.numbers[w.places[i]], w.list.stage, w.parts);
}

static void check_at(turb_state state, uint32_t parts) {
  if (state == TURB_FAILED) {
    (void)!turb_iterator_status(w.it, fresh());
    FAIL("failed: %s", err.message);
  }
  CHECK_EQ(state, is_entry(w.at) ? TURB_READY : TURB_END);
  if (is_entry(w.at))
    cold_rows_check(w.it->entry, w.list.numbers[w.at], w.list.stage, parts);
  else
    CHECK(!w.it->entry);
}

/* ---- a take, and what it must have given ---- */

struct want {
  bool backward;
  size_t capacity;
  uint64_t max_bytes;
};

static uint64_t bytes_of(const turb_entry *e) {
  return e->key.size + e->vector.size + e->attributes.size;
}

/* READY with `first` as the first entry of the walk: as many as there may be, and no more. */
static void check_given(const struct want *want, const turb_entry *entries, size_t count, ptrdiff_t first) {
  const ptrdiff_t step = want->backward ? -1 : 1;
  uint64_t bytes = 0;
  CHECK_GE(count, 1);
  CHECK_LE(count, want->capacity);
  for (size_t i = 0; i < count; i++) {
    const ptrdiff_t place = first + step * (ptrdiff_t)i;
    CHECK(is_entry(place));
    cold_rows_check(&entries[i], w.list.numbers[place], w.list.stage, w.parts);
    CHECK(!want->max_bytes || !i || bytes < want->max_bytes);
    bytes += bytes_of(&entries[i]);
    w.entries[i] = entries[i];
    w.places[i] = place;
  }
  w.count = count;
  w.at = w.taken = first + step * (ptrdiff_t)(count - 1);
  CHECK(w.it->entry != NULL);
  CHECK_EQ(w.it->entry->sequence, entries[count - 1].sequence);
  const bool full = count == want->capacity || (want->max_bytes && bytes >= want->max_bytes);
  CHECK(full || w.it->entry == (want->backward ? w.it->window_begin : w.it->window_end - 1));
}

static turb_state take(const struct want *want, turb_entry *entries, size_t *count) {
  *count = 12345;
  const turb_state state = turb_take(w.it, want->backward, entries, want->capacity, want->max_bytes, count);
  if (state != TURB_READY)
    CHECK_EQ(*count, 0);
  else if (!want->capacity)
    CHECK_EQ(*count, 0);
  return state;
}

static struct want any_want(void) {
  static const size_t capacities[] = {0, 1, 2, 5, 40, TAKEN_MAX};
  const uint64_t bytes = random_below(&w.random, 3) ? 0 : 1 + random_below(&w.random, w.parts == TURB_KEY ? 60 : 40000);
  return (struct want){random_below(&w.random, 2), capacities[random_below(&w.random, 6)], bytes};
}

/* ---- suspensions ---- */

static bool is_fetching(void) {
  return ((struct iterator *)w.it)->phase == PHASE_FETCH;
}

/* A take goes on with what is under way; where that ends on the entry taken last, it goes on to the next one at once. *old becomes
 * where that move began. True when it gave something. */
static bool take_on(turb_state *state, ptrdiff_t *old) {
  turb_entry entries[TAKEN_MAX];
  size_t count;
  const struct want want = any_want();
  *state = take(&want, entries, &count);
  if (!want.capacity)
    return false;
  const bool same_move = is_suspended(*state) && (is_fetching() || ((struct iterator *)w.it)->taken_at == 0);
  if (w.at == w.taken && !same_move) {
    *old = w.at;
    w.at += want.backward ? -1 : 1;
  }
  if (*state == TURB_READY)
    check_given(&want, entries, count, w.at);
  return *state == TURB_READY;
}

/* Goes on with what is under way, which leads to w.at, until it is done or something was taken. `old` is readable meanwhile. *given: the
 * latter. */
static turb_state go_on(turb_state state, ptrdiff_t old, bool *given) {
  *given = false;
  while (is_suspended(state) && !*given) {
    w.suspensions++;
    if (is_fetching())
      check_taken();
    if (is_entry(old))
      cold_rows_check(w.it->entry, w.list.numbers[old], w.list.stage, w.parts);
    if (state == TURB_PENDING && random_below(&w.random, 3))
      cold_rows_wait(w.it);
    switch (random_below(&w.random, 5)) {
    case 0: state = turb_await(w.it); break;
    case 1: state = turb_advance_slow(w.it); break;
    case 2: state = turb_retreat_slow(w.it); break;
    case 3: state = take(&(struct want){.capacity = 0}, NULL, &(size_t){0}); break;
    default: *given = take_on(&state, &old);
    }
  }
  return state;
}

/* ---- the random walk ---- */

static void run_take(void) {
  const struct want want = any_want();
  turb_entry entries[TAKEN_MAX];
  size_t count;
  const ptrdiff_t old = w.at;
  turb_state state = take(&want, entries, &count);
  if (!want.capacity) {
    check_at(state, w.parts);
    return;
  }
  if (is_entry(old) && old == w.taken)
    w.at += want.backward ? -1 : 1;
  if (state == TURB_READY) {
    check_given(&want, entries, count, w.at);
    return;
  }
  bool given;
  state = go_on(state, old, &given);
  if (given)
    return;
  w.count = 0;
  check_at(state, w.parts);
  w.ends += state == TURB_END;
}

static ptrdiff_t first_not_below(uint32_t number) {
  uint32_t i = 0;
  while (i < w.list.count && w.list.numbers[i] < number)
    i++;
  return (ptrdiff_t)i;
}

static turb_state begin_seek(void) {
  const uint32_t number = (uint32_t)random_below(&w.random, COLD_KEYS);
  char key[16];
  w.taken = NONE_TAKEN;
  switch (random_below(&w.random, 6)) {
  case 0: w.at = 0; return turb_first(w.it);
  case 1: w.at = (ptrdiff_t)w.list.count - 1; return turb_last(w.it);
  case 2: w.at = first_not_below(number + 1) - 1; return turb_seek_for_prev(w.it, cold_rows_key(number, key));
  default: w.at = first_not_below(number); return turb_seek(w.it, cold_rows_key(number, key));
  }
}

static void run_move(void) {
  const ptrdiff_t old = w.at;
  const uint64_t kind = is_entry(w.at) ? random_below(&w.random, 5) : 4;
  turb_state state;
  if (kind < 2) {
    state = kind ? turb_retreat(w.it) : turb_advance(w.it);
    w.at += kind ? -1 : 1;
  } else if (kind < 4) {
    state = turb_fetch(w.it, TURB_ALL);
  } else {
    state = begin_seek();
    while (is_suspended(state) && !random_below(&w.random, 4)) /* and another instead of it */
      state = begin_seek();
  }
  bool given;
  state = go_on(state, old, &given);
  if (given)
    return;
  if (w.at != old || kind == 4)
    w.count = 0;
  check_at(state, kind == 2 || kind == 3 ? (w.at == old ? TURB_ALL : w.parts) : w.parts);
}

static void walk_about(uint32_t parts, bool streaming, uint32_t budget) {
  turb_iterator_options options = TURB_ITERATOR_OPTIONS_INIT;
  options.parts = parts;
  options.streaming = streaming;
  options.work_budget = budget;
  begin(&options);
  const uint64_t steps = test_scale(1500, 800, 20000);
  for (uint64_t i = 0; i < steps; i++) {
    if (random_below(&w.random, 8) == 0)
      cold_db_chill(&rows.disk);
    if (random_below(&w.random, 5))
      run_take();
    else
      run_move();
    check_taken();
  }
  CHECK_GT(w.suspensions, steps / 50);
  CHECK_GT(w.ends, 0);
  turb_iterator_close(w.it);
}

TEST(iterator_take, walks_as_the_model) {
  cold_rows_begin(&rows, test_seed());
  walk_about(TURB_ALL, false, 0);
  walk_about(TURB_KEY, false, 0);
  walk_about(TURB_VECTOR, false, 16);
  walk_about(TURB_KEY, false, 7);
  cold_rows_end(&rows);
}
TEST(iterator_take, walks_as_the_model_streaming) {
  cold_rows_begin(&rows, test_seed());
  walk_about(TURB_ALL, true, 0);
  walk_about(TURB_KEY, true, 16);
  cold_rows_end(&rows);
}

/* ---- rule by rule ---- */

static turb_state take_all(const struct want *want, turb_entry *entries, size_t *count) {
  turb_state state;
  while (is_suspended(state = take(want, entries, count)))
    (void)turb_await(w.it);
  return state;
}

static void begin_warm(uint32_t parts) {
  turb_iterator_options options = TURB_ITERATOR_OPTIONS_INIT;
  options.parts = parts;
  begin(&options);
  while (turb_next(w.it) == TURB_READY)
    ;
  CHECK_EQ(turb_finish(w.it, turb_first(w.it)), TURB_READY);
  CHECK_EQ(turb_next(w.it), TURB_READY); /* the stretch that a seek finds is short */
  w.at = 1;
}

TEST(iterator_take, gives_the_current_entry_once) {
  cold_rows_begin(&rows, test_seed());
  begin_warm(TURB_KEY);
  turb_entry entries[TAKEN_MAX];
  size_t count;
  const struct want two = {.capacity = 2}, two_back = {.capacity = 2, .backward = true};
  CHECK_EQ(take(&two, entries, &count), TURB_READY);
  check_given(&two, entries, count, 1);
  CHECK_EQ(take(&two, entries, &count), TURB_READY);
  check_given(&two, entries, count, w.taken + 1);
  CHECK_EQ(take_all(&two_back, entries, &count), TURB_READY); /* turned: the entry that it stands on was taken */
  check_given(&two_back, entries, count, w.taken - 1);
  CHECK_EQ(turb_next(w.it), TURB_READY); /* moved away and back: it is still the one that was taken last */
  CHECK_EQ(turb_prev(w.it), TURB_READY);
  CHECK_EQ(take_all(&two, entries, &count), TURB_READY);
  check_given(&two, entries, count, w.taken + 1);
  CHECK_EQ(turb_next(w.it), TURB_READY); /* moved on: the new one is given */
  CHECK_EQ(take_all(&two, entries, &count), TURB_READY);
  check_given(&two, entries, count, w.taken + 1);
  char key[16]; /* sought again, it is given again */
  CHECK_EQ(turb_finish(w.it, turb_seek(w.it, cold_rows_key(w.list.numbers[w.taken], key))), TURB_READY);
  CHECK_EQ(take_all(&two, entries, &count), TURB_READY);
  check_given(&two, entries, count, w.taken);
  turb_iterator_close(w.it);
  cold_rows_end(&rows);
}

TEST(iterator_take, fetched_entries_are_not_given_twice) {
  cold_rows_begin(&rows, test_seed());
  begin_warm(TURB_KEY);
  cold_db_chill(&rows.disk);
  turb_entry entries[TAKEN_MAX];
  size_t count;
  const struct want one = {.capacity = 1};
  uint64_t pending = 0;
  for (int i = 0; i < 20; i++) {
    CHECK_EQ(take_all(&one, entries, &count), TURB_READY);
    check_given(&one, entries, count, 1 + i);
    cold_rows_check(&entries[0], w.list.numbers[1 + i], COLD_STAGES, TURB_KEY);
    turb_state state = turb_fetch(w.it, TURB_VECTOR);
    pending += state == TURB_PENDING;
    while (is_suspended(state)) {
      cold_rows_wait(w.it);
      state = take(&(struct want){.capacity = 0}, NULL, &count);
    }
    CHECK_EQ(state, TURB_READY);
    cold_rows_check(w.it->entry, w.list.numbers[1 + i], COLD_STAGES, TURB_VECTOR);
    cold_db_chill(&rows.disk);
  }
  CHECK_GT(pending, 1);
  turb_iterator_close(w.it);
  cold_rows_end(&rows);
}

TEST(iterator_take, no_entry_begins_beyond_the_bytes) {
  cold_rows_begin(&rows, test_seed());
  begin_warm(TURB_KEY);
  turb_entry entries[TAKEN_MAX];
  size_t count;
  static const struct {
    uint64_t bytes;
    size_t count;
  } cases[] = {{1, 1}, {6, 1}, {7, 2}, {12, 2}, {13, 3}, {0, 4}}; /* keys have 6 bytes */
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    for (int backward = 0; backward < 2; backward++) {
      const struct want want = {.backward = backward, .capacity = 4, .max_bytes = cases[i].bytes};
      char key[16];
      CHECK_EQ(turb_finish(w.it, backward ? turb_seek_for_prev(w.it, cold_rows_key(350, key)) : turb_first(w.it)), TURB_READY);
      while ((backward ? w.it->entry - w.it->window_begin : w.it->window_end - 1 - w.it->entry) < 3)
        CHECK_EQ(backward ? turb_prev(w.it) : turb_next(w.it), TURB_READY);
      CHECK_EQ(take(&want, entries, &count), TURB_READY);
      CHECK_EQ(count, cases[i].count);
    }
  }
  turb_iterator_close(w.it);
  cold_rows_end(&rows);
}

TEST(iterator_take, takes_a_stretch_a_call) {
  cold_rows_begin(&rows, test_seed());
  begin_warm(TURB_KEY);
  for (int backward = 0; backward < 2; backward++) {
    turb_entry entries[TAKEN_MAX];
    size_t count, calls = 0, all = 0;
    const struct want want = {.backward = backward, .capacity = TAKEN_MAX};
    CHECK_EQ(turb_finish(w.it, backward ? turb_last(w.it) : turb_first(w.it)), TURB_READY);
    for (; take(&want, entries, &count) == TURB_READY; calls++, all += count)
      check_given(&want, entries, count, backward ? (ptrdiff_t)(w.list.count - 1 - all) : (ptrdiff_t)all);
    CHECK_EQ(all, w.list.count);
    CHECK_LE(calls, 30);
    for (int i = 0; i < 3; i++)
      CHECK_EQ(take(&want, entries, &count), TURB_END);
  }
  turb_iterator_close(w.it);
  cold_rows_end(&rows);
}

TEST(iterator_take, fails_until_a_seek) {
  cold_rows_begin(&rows, test_seed());
  turb_entry entries[TAKEN_MAX];
  size_t count;
  const struct want want = {.capacity = 10};
  CHECK_OK_ERR(turb_iterator_open(rows.disk.c, NULL, &w.it, fresh()), &err);
  CHECK_EQ(take(&want, entries, &count), TURB_FAILED); /* not positioned */
  turb_iterator_close(w.it);
  begin(NULL);
  for (uint64_t n = 1; n < 12; n++) {
    cold_db_chill(&rows.disk);
    w.at = 0;
    CHECK_EQ(turb_finish(w.it, turb_first(w.it)), TURB_READY);
    cold_db_chill(&rows.disk);
    turb_simulation_fail_at(rows.disk.simulation, turb_simulation_operations(rows.disk.simulation) + n, EIO);
    turb_state state;
    ptrdiff_t at = 0;
    for (; (state = take_all(&want, entries, &count)) == TURB_READY; at += (ptrdiff_t)count)
      check_given(&want, entries, count, at);
    turb_simulation_fail_at(rows.disk.simulation, 0, 0);
    if (state == TURB_FAILED) {
      CHECK_STATUS(turb_iterator_status(w.it, NULL), TURB_IO);
      CHECK_EQ(take(&want, entries, &count), TURB_FAILED);
      CHECK_EQ(take(&(struct want){.backward = true}, entries, &count), TURB_FAILED);
    } else {
      CHECK_EQ(at, w.list.count); /* it hit what was only read ahead */
    }
    CHECK_EQ(turb_finish(w.it, turb_last(w.it)), TURB_READY);
    CHECK_EQ(take_all(&want, entries, &count), TURB_READY);
    check_given(&want, entries, count, (ptrdiff_t)w.list.count - 1);
  }
  turb_iterator_close(w.it);
  cold_rows_end(&rows);
}
