/* 1,000,000 deleted entries under a work budget (pending.h): what a call looks at and what it costs. */
#include <stdlib.h>

#include "bench/pending.h"
#include "engine/iterator.h"

#define WORK_BUDGET 4096u

enum deletes { DELETED_BY_KEY, DELETED_BY_RANGE };

struct deleted {
  const char *path;
  uint32_t rows;
  enum deletes how;
};

#define SMALL_ROW_BYTES 16u

static void build_deleted(void *state, uint32_t round, struct sample *sample) {
  const struct deleted *what = state;
  turb_error error = TURB_ERROR_INIT;
  turb_write_options options = TURB_WRITE_OPTIONS_INIT;
  options.durability = TURB_UNLOGGED;
  turb_collection *rows;
  turb_db *db = pending_open(what->path, 512 * MEBIBYTE, SMALL_ROW_BYTES, &rows);
  uint8_t key[KEY_BYTES];
  (void)round;
  (void)sample;
  pending_put(db, rows, what->rows, SMALL_ROW_BYTES);
  if (what->how == DELETED_BY_RANGE)
    bench_check(turb_delete_range(rows, TURB_STR("\0"), TURB_NONE, &options, &error), &error);
  for (uint32_t i = 0; i < what->rows && what->how == DELETED_BY_KEY; i++) {
    work_key(i, true, key);
    bench_check(turb_delete(rows, (turb_bytes){key, KEY_BYTES}, &options, &error), &error);
  }
  bench_check(turb_flush(db, rows, &error), &error);
  bench_check(turb_close(db, &error), &error);
}

struct calls {
  double *us; /* CPU of each call */
  size_t count, capacity;
  uint64_t most; /* entries that one call looked at */
  uint64_t looked_at;
};

struct deleted_state {
  const struct deleted *what;
  turb_db *db;
  turb_collection *rows;
  turb_iterator *it;
};

static uint64_t looked_at(const turb_iterator *it) {
  uint64_t entries, hidden;
  visible_cursor_counts(((const struct iterator *)it)->cursor, &entries, &hidden);
  return entries;
}

enum step { STEP_FIRST, STEP_LAST, STEP_SEEK, STEP_ADVANCE };

static turb_state timed_call(turb_iterator *it, enum step step, turb_bytes key, struct calls *calls) {
  const uint64_t before = looked_at(it);
  const double begin = thread_seconds();
  turb_state state = TURB_FAILED;
  switch (step) {
  case STEP_FIRST: state = turb_first(it); break;
  case STEP_LAST: state = turb_last(it); break;
  case STEP_SEEK: state = turb_seek(it, key); break;
  case STEP_ADVANCE: state = turb_advance(it); break;
  }
  const double us = (thread_seconds() - begin) * 1e6;
  const uint64_t entries = looked_at(it) - before;
  calls->looked_at += entries;
  calls->most = entries > calls->most ? entries : calls->most;
  if (state == TURB_PENDING)
    bench_fail("deleted: a call waits, though the entries should be resident");
  if (calls->count < calls->capacity && state != TURB_END) /* the last one does less */
    calls->us[calls->count++] = us;
  return state;
}

/* From a beginning until the end of the collection. */
static void walk(turb_iterator *it, enum step step, struct calls *calls) {
  turb_state state = timed_call(it, step, TURB_NONE, calls);
  while (state == TURB_YIELD)
    state = timed_call(it, STEP_ADVANCE, TURB_NONE, calls);
  if (state != TURB_END)
    bench_fail("deleted: something was found");
}

static void calls_row(const struct deleted *what, const char *name, struct calls *calls, bool target) {
  const double middle = calls->count ? median(calls->us, calls->count) : 0;
  row_begin("us of CPU a call", middle, "deleted/%s/%s", what->how == DELETED_BY_KEY ? "by-key" : "by-range", name);
  row_number("calls", (double)calls->count);
  row_number("p99_us", calls->count ? percentile(calls->us, calls->count, 0.99) : 0);
  row_number("entries_looked_at", (double)calls->looked_at);
  row_number("most_a_call", (double)calls->most);
  if (target)
    row_target("a call looks at no more than 4,096 entries and takes 50 us of CPU or less", calls->most <= WORK_BUDGET && middle <= 50);
  row_end();
  calls->count = 0;
  calls->most = calls->looked_at = 0;
}

static void *begin_deleted(const void *argument) {
  struct deleted_state *state = bench_alloc(sizeof *state);
  turb_error error = TURB_ERROR_INIT;
  state->what = argument;
  state->db = pending_open(state->what->path, 1024 * MEBIBYTE, SMALL_ROW_BYTES, &state->rows);
  turb_iterator_options options = TURB_ITERATOR_OPTIONS_INIT;
  options.parts = TURB_KEY;
  options.work_budget = WORK_BUDGET;
  bench_check(turb_iterator_open(state->rows, &options, &state->it, &error), &error);
  (void)turb_finish(state->it, turb_first(state->it)); /* into the cache */
  return state;
}

static void pass_deleted(void *argument, uint32_t round, struct sample *sample) {
  struct deleted_state *state = argument;
  struct calls calls = {.capacity = 1u << 16};
  calls.us = bench_alloc(calls.capacity * sizeof *calls.us);
  (void)sample;
  for (int i = 0; i < 7; i++)
    walk(state->it, STEP_FIRST, &calls);
  calls_row(state->what, "forward", &calls, true);
  for (int i = 0; i < 7; i++)
    walk(state->it, STEP_LAST, &calls);
  calls_row(state->what, "backward", &calls, true);
  uint8_t key[KEY_BYTES];
  for (uint32_t i = 0; i < 2000; i++) {
    work_key((uint32_t)work_below(i + round, state->what->rows * 9 / 10), true, key);
    (void)timed_call(state->it, STEP_SEEK, (turb_bytes){key, KEY_BYTES}, &calls);
  }
  calls_row(state->what, "seek", &calls, true);
  free(calls.us);
}

static void end_deleted(void *argument) {
  struct deleted_state *state = argument;
  turb_error error = TURB_ERROR_INIT;
  turb_iterator_close(state->it);
  bench_check(turb_close(state->db, &error), &error);
  free(state);
}

static void run_deleted(const struct bench_options *bench, enum deletes how) {
  char *path = path_join(bench->folder, "deleted-%d", (int)how);
  const struct deleted what = {.path = path, .rows = 1000000, .how = how};
  struct sample sample;
  worker_run(&(struct worker_job){pending_argument, build_deleted, NULL, &what}, 0, &sample);
  worker_run(&(struct worker_job){begin_deleted, pass_deleted, end_deleted, &what}, 0, &sample);
  folder_remove(path);
  free(path);
}

void deleted_cases(const struct bench_options *bench) {
  if (bench_wants(bench, "deleted-by-key"))
    run_deleted(bench, DELETED_BY_KEY);
  if (bench_wants(bench, "deleted-by-range"))
    run_deleted(bench, DELETED_BY_RANGE);
}
