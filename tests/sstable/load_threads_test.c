/* Loads, look-ups and lanes of several threads over shared tables in a small cache, on the real backends; tables are opened and let go meanwhile, and
 * cursors are closed with reads in flight, so that rings change hands with orphans on them. */
#include <stdlib.h>

#include "base/thread.h"
#include "tests/sstable/table_fixture.h"

enum { THREADS = 4, GETS = 6 };

struct shared {
  struct environment *e;
  struct entries *entries;
  struct stored_record *record;
  const uint32_t *rows;
  pthread_mutex_t lock;
  struct table *table; /* replaced by any thread; the old one goes with its last reference */
  uint64_t rounds;
};

struct worker {
  struct shared *shared;
  struct thread thread;
  struct random random;
  struct reads reads;
  struct table *table;
};

static void change_table(struct shared *shared) {
  struct table *fresh = entries_open(shared->e, "t9.tbl", shared->record);
  mutex_lock(&shared->lock);
  struct table *old = shared->table;
  shared->table = fresh;
  mutex_unlock(&shared->lock);
  table_release(old);
}

static struct table *take_table(struct shared *shared) {
  mutex_lock(&shared->lock);
  struct table *table = table_retain(shared->table);
  mutex_unlock(&shared->lock);
  return table;
}

/* Several look-ups at once, and the rows that they find. */
static void look_up(struct worker *w) {
  const struct entries *entries = w->shared->entries;
  struct table_get gets[GETS];
  enum get_state states[GETS];
  const struct entry *wanted[GETS];
  struct load *load;
  CHECK_OK(load_create(&w->reads, &w->shared->e->allocator.base, &load, NULL));
  for (int i = 0; i < GETS; i++) {
    wanted[i] = &entries->at[random_below(&w->random, entries->count)];
    const uint64_t hash = hash64(wanted[i]->key, wanted[i]->key_size, 0);
    CHECK_OK(table_get_init(&gets[i], &w->reads, &w->shared->e->allocator.base, NULL));
    states[i] = table_get_start(&gets[i], w->table, (turb_bytes){wanted[i]->key, wanted[i]->key_size}, hash, wanted[i]->sequence, false);
  }
  for (int i = 0; i < GETS; i++) {
    if (random_one_in(&w->random, 8)) {
      table_get_close(&gets[i]); /* perhaps in flight */
      continue;
    }
    const enum get_state got = await_get(&gets[i], states[i]);
    CHECK_MSG(got == GET_READY, "look-up: %s", gets[i].error.message);
    CHECK(gets[i].found != NULL);
    CHECK_EQ(slot_sequence(gets[i].found), wanted[i]->sequence);
    if (wanted[i]->put) {
      const enum load_state state =
          load_row(load, w->table, slot_row(gets[i].found), gets[i].found->row_hash, LOAD_POINT | (unsigned)random_below(&w->random, 2));
      if (random_one_in(&w->random, 8)) {
        CHECK_OK(reads_submit(&w->reads, NULL));
        load_reset(load);
      } else {
        turb_error why = TURB_ERROR_INIT;
        CHECK_MSG(await_load(&w->reads, load, state) == LOAD_READY || load_error(load, &why) == TURB_OK, "row: %s", why.message);
        CHECK_MEM_EQ(load_data(load, NULL), wanted[i]->row, entries->shape.row_bytes);
      }
    }
    table_get_close(&gets[i]);
  }
  load_destroy(load);
}

static void stream(struct worker *w) {
  const struct entries *entries = w->shared->entries;
  const struct lane_options options = {
      .kind = EXTENT_ROWS, .last_ordinal = UINT64_MAX, .piece_bytes = 60000, .verify = true, .eager = true, .use = BUDGET_JOB};
  struct lane *lane;
  if (lane_open(w->table, &w->reads, &options, &lane, NULL) != TURB_OK) {
    return; /* the budget is short */
  }
  struct piece piece;
  uint64_t pieces = random_below(&w->random, 30);
  while (pieces-- != 0 && await_piece(&w->reads, lane, &piece, NULL)) {
    const struct entry *entry = &entries->at[w->shared->rows[piece.first_ordinal]];
    CHECK_MEM_EQ(piece.data, entry->row, entries->shape.row_bytes);
    lane_release(lane, piece.data);
  }
  lane_close(lane);
}

static void work(void *context) {
  struct worker *w = context;
  for (uint64_t n = 0; n < w->shared->rounds; n++) {
    w->table = take_table(w->shared);
    reads_init(&w->reads, w->shared->e->system, NULL);
    switch (random_below(&w->random, 40)) {
    case 0: change_table(w->shared); break;
    case 1: stream(w); break;
    default: look_up(w); break;
    }
    reads_close(&w->reads);
    table_release(w->table);
  }
}

static void run(turb_backend backend, uint8_t compression) {
  struct environment e;
  /* Compressed: each thread may hold a decompressor and the pieces of a lane beside its frames. */
  if (!environment_open(&e, backend, false, compression ? 24u << 20 : 8u << 20)) {
    return;
  }
  struct entries entries;
  struct stored_record record;
  const struct entries_options options = {.keys = 15000, .dimension = 200, .versions = 2, .delete_percent = 10, .compression = compression};
  entries_make(&entries, &options, 9);
  uint32_t *rows = entries_rows(&entries);
  struct shared shared = {.e = &e, .entries = &entries, .record = &record, .rows = rows, .rounds = test_scale(150, 150, 2000)};
  mutex_init(&shared.lock);
  shared.table = entries_table(&e, &entries, &record);
  struct worker workers[THREADS] = {0};
  const uint64_t seed = test_seed();
  for (int i = 0; i < THREADS; i++) {
    workers[i].shared = &shared;
    random_init(&workers[i].random, seed + (uint64_t)i);
    CHECK_OK(thread_start(&workers[i].thread, "loads", work, &workers[i], NULL));
  }
  for (int i = 0; i < THREADS; i++) {
    thread_join(&workers[i].thread);
  }
  table_release(shared.table);
  mutex_destroy(&shared.lock);
  free(rows);
  entries_free(&entries);
  environment_close(&e);
}

TEST(load_threads, over_io_uring) {
  run(TURB_BACKEND_URING, 0);
}

TEST(load_threads, over_blocking_threads) {
  run(TURB_BACKEND_BLOCKING, 0);
}

TEST(load_threads, over_compressed_tables) {
  run(TURB_BACKEND_BLOCKING, 1);
}
