/* The public iterator on the shapes (a) and (d), beside internal cursors that do the same work over the same tables: the version that the
 * iterator reads is walked by a visible cursor and parts of our own (docs/benchmarks.md, "bench/iterators"). */
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "bench/engine.h"
#include "bench/iterators.h"
#include "engine/iterator.h"

#define TAKE_ENTRIES 128

enum public_way {
  PUBLIC_ADVANCE,  /* turb_advance, entry by entry */
  PUBLIC_BATCH,    /* turb_take, many entries a call */
  PUBLIC_INTERNAL, /* cursor_take on a visible cursor, parts for all that it took */
};

struct public_case {
  const struct data_set *set;
  const char *path;
  bool touch;
  enum public_way way;
  uint64_t entries; /* that a walk yields */
};

struct public_state {
  const struct public_case *what;
  turb_db *db;
  turb_collection *rows;
  turb_iterator *it;
  struct world world; /* of the internal walk: what it needs of one */
  struct tree tree;
  uint64_t sum;
};

/* Nobody merges: there are no workers, and nobody maintains. Readers share the folder. */
static void open_state(struct public_state *state, const struct public_case *what, bool read_only) {
  turb_error error = TURB_ERROR_INIT;
  turb_options options = TURB_OPTIONS_INIT;
  options.memory_budget_bytes = UINT64_C(8) << 30;
  options.memtable_bytes = UINT64_C(2) << 30;
  options.worker_threads = -1;
  options.read_only = read_only;
  state->what = what;
  bench_check(turb_open(what->path, &options, &state->db, &error), &error);
  if (turb_collection_open(state->db, "rows", &state->rows, &error) == TURB_OK)
    return;
  turb_collection_options collection = TURB_COLLECTION_OPTIONS_INIT;
  collection.dimension = what->set->dimension;
  error = (turb_error)TURB_ERROR_INIT;
  bench_check(turb_collection_create(state->db, "rows", &collection, &state->rows, &error), &error);
}

/* ---- building: a flush a run, the oldest first ---- */

static void *same_argument(const void *argument) {
  return (void *)(uintptr_t)argument;
}

static void put_run(const struct public_state *state, uint32_t run) {
  const struct data_set *set = state->what->set;
  turb_error error = TURB_ERROR_INIT;
  turb_write_options options = TURB_WRITE_OPTIONS_INIT;
  options.durability = TURB_UNLOGGED;
  struct data_entry entry;
  for (uint32_t table = 0; table < set->tables; table++) {
    uint32_t *order = data_order(set, run, table);
    for (uint32_t i = 0; i < set->entries; i++) {
      data_at(set, run, table, order, i, &entry);
      bench_check(turb_put(state->rows, (turb_bytes){entry.key, entry.key_size}, (turb_bytes){entry.row, data_row_bytes(set)}, TURB_NONE,
                           &options, &error),
                  &error);
    }
    free(order);
  }
  bench_check(turb_flush(state->db, state->rows, &error), &error);
}

static void build(void *argument, uint32_t round, struct sample *sample) {
  struct public_state state = {0};
  turb_error error = TURB_ERROR_INIT;
  (void)round;
  (void)sample;
  open_state(&state, argument, false);
  for (uint32_t run = state.what->set->runs; run-- > 0;)
    put_run(&state, run);
  bench_check(turb_close(state.db, &error), &error);
}

/* ---- walks ---- */

static uint64_t touch_entry(const turb_entry *entry, bool rows) {
  const uint64_t sum = ((const uint8_t *)entry->key.data)[entry->key.size - 1];
  return rows ? sum + touch(entry->vector.data, entry->vector.size) : sum;
}

static uint64_t walk_advance(turb_iterator *it, bool rows, uint64_t *touched) {
  uint64_t count = 0, sum = 0;
  turb_state state = turb_finish(it, turb_first(it));
  while (state == TURB_READY) {
    sum += touch_entry(it->entry, rows);
    count++;
    state = turb_next(it);
  }
  *touched += sum;
  return count;
}

static uint64_t walk_take(turb_iterator *it, bool rows, uint64_t *touched) {
  turb_entry entries[TAKE_ENTRIES];
  uint64_t count = 0, sum = 0;
  turb_state state = turb_finish(it, turb_first(it));
  while (state == TURB_READY) {
    size_t taken;
    state = turb_take(it, false, entries, TAKE_ENTRIES, 0, &taken);
    for (size_t i = 0; i < taken; i++)
      sum += touch_entry(&entries[i], rows);
    count += taken;
    state = turb_finish(it, state);
  }
  *touched += sum;
  return count;
}

static void walk(struct public_state *state) {
  const struct public_case *what = state->what;
  const uint64_t count = what->way == PUBLIC_ADVANCE ? walk_advance(state->it, what->touch, &state->sum)
                         : what->way == PUBLIC_BATCH ? walk_take(state->it, what->touch, &state->sum)
                                                     : walk_tree(&state->tree, true, what->touch, &state->sum);
  if (count != what->entries)
    bench_fail("the public iterator yielded %.0f entries of %.0f", (double)count, (double)what->entries);
}

/* ---- contestants ---- */

/* A tree of ours over the version that the public iterator reads. */
static void open_internal(struct public_state *state) {
  const struct iterator *it = (const struct iterator *)state->it;
  struct tree *tree = &state->tree;
  turb_error error = TURB_ERROR_INIT;
  if (it->view.version->run_count != state->what->set->runs)
    bench_fail("the database has %u runs, not %u", it->view.version->run_count, state->what->set->runs);
  state->world.set = state->what->set;
  tree->world = &state->world;
  reads_init(&tree->reads, state->db->system, NULL);
  tree->context =
      (struct cursor_context){.reads = &tree->reads, .allocator = &state->db->allocator, .budget = &state->db->budget, .fill_cache = true};
  bench_check(read_view_cursor(&it->view, &tree->context, false, &tree->top, &error), &error);
  const struct visible_options visible = {.snapshot = it->view.sequence, .range_deletes = &it->range_deletes};
  bench_check(visible_cursor_open(&tree->context, tree->top, &visible, &tree->top, &error), &error);
  const struct parts_options parts = {
      .which = TURB_VECTOR, .run_count = it->view.version->source_runs, .row_bytes = data_row_bytes(state->what->set)};
  if (state->what->touch)
    bench_check(parts_open(&tree->context, &parts, &tree->parts, &error), &error);
}

static void *begin(const void *argument) {
  struct public_state *state = bench_alloc(sizeof *state);
  turb_error error = TURB_ERROR_INIT;
  turb_iterator_options options = TURB_ITERATOR_OPTIONS_INIT;
  open_state(state, argument, true);
  options.parts = state->what->touch ? TURB_KEY | TURB_VECTOR : TURB_KEY;
  bench_check(turb_iterator_open(state->rows, &options, &state->it, &error), &error);
  open_internal(state);
  for (int i = 0; i < 2; i++)
    walk(state);
  return state;
}

static void pass(void *argument, uint32_t round, struct sample *sample) {
  struct public_state *state = argument;
  const struct data_set *set = state->what->set;
  const double input = (double)set->runs * set->tables * set->entries;
  const double start = resident_begin(round);
  for (int i = 0; i < 3; i++)
    walk(state);
  resident_stop(start, 3 * input, sample);
}

/* ---- cases ---- */

static void run_public(const struct bench_options *bench, const char *name, const struct public_case *given) {
  static const char *const names[] = {"advance", "batch", "internal"};
  struct public_case cases[3];
  struct contest contest;
  walks_init(&contest, bench, name, bench->quick ? 5 : 9);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    cases[i] = *given;
    cases[i].way = (enum public_way)i;
    contest_add(&contest, names[i], &(struct worker_job){begin, pass, NULL, &cases[i]});
  }
  contest_run(&contest);
  walks_rows(&contest);
  walks_slower_row(&contest, "batch", "internal", 1.2, "at most 1.2 times the internal cursors");
  walks_slower_row(&contest, "advance", "internal", 0, NULL);
}

static void run_set(const struct bench_options *bench, const struct data_set *set, uint64_t entries, bool keys_too) {
  struct public_case what = {.set = set, .path = path_join(bench->folder, "public-%s", set->name), .entries = entries};
  struct sample sample;
  worker_run(&(struct worker_job){same_argument, build, NULL, &what}, 0, &sample);
  for (int touch = keys_too ? 0 : 1; touch < 2; touch++) {
    char name[64];
    what.touch = touch;
    (void)snprintf(name, sizeof name, "public/%s/%s", set->name, touch ? "rows" : "keys");
    run_public(bench, name, &what);
  }
  folder_remove(what.path);
}

void public_cases(const struct bench_options *bench) {
  static const struct data_set levels = {"levels", DATA_LEVELS, 2, 2, 131072, 2};
  static struct data_set merge = {"k8", DATA_RANDOM, 8, 1, 100000, 128};
  merge.entries = bench->quick ? 50000 : 100000;
  if (bench_wants(bench, "public/levels"))
    run_set(bench, &levels, (uint64_t)levels.tables * levels.entries, false);
  if (bench_wants(bench, "public/k8"))
    run_set(bench, &merge, (uint64_t)merge.runs * merge.entries, true);
}
