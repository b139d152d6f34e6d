/* RocksDB and LevelDB as contestants (iterators.h): as many files of level 0 as there are runs, nothing compacted, the same entries,
 * everything in their block caches (or nothing, and direct reads). No compression, filters of 10 bits, files stay open, as in the
 * other benchmarks. */
#include <rocksdb/c.h>
#include <stdlib.h>

#include "bench/engine.h"
#include "bench/iterators.h"
#include "bench/iterators_rival.h"

#define CACHE_BYTES      ((size_t)4 << 30)
#define COLD_CACHE_BYTES ((size_t)8 << 20)

static void check(char *error) {
  if (error)
    bench_fail("rocksdb: %s", error);
}

static void *same_argument(const void *argument) {
  return (void *)(uintptr_t)argument;
}

/* ---- building ---- */

static void each_entry(const struct data_set *set, uint32_t run, void (*put)(void *to, const struct data_entry *entry), void *to) {
  struct data_entry entry;
  for (uint32_t table = 0; table < set->tables; table++) {
    uint32_t *order = data_order(set, run, table);
    for (uint32_t i = 0; i < set->entries; i++) {
      data_at(set, run, table, order, i, &entry);
      put(to, &entry);
    }
    free(order);
  }
}

static void run_in_child(const void *argument, void (*pass)(void *argument, uint32_t round, struct sample *sample)) {
  struct sample sample;
  const struct worker_job job = {same_argument, pass, NULL, argument};
  worker_run(&job, 0, &sample);
}

/* ---- RocksDB ---- */

struct rocks {
  rocksdb_t *db;
  rocksdb_writeoptions_t *write;
  rocksdb_readoptions_t *read;
  uint32_t row_bytes;
};

static struct rocks rocks_open(const struct rival_case *what) {
  rocksdb_options_t *options = rocksdb_options_create();
  rocksdb_block_based_table_options_t *table = rocksdb_block_based_options_create();
  rocksdb_block_based_options_set_block_size(table, what->variant & ROCKSDB_LARGE_BLOCKS ? 32768 : 4096);
  rocksdb_block_based_options_set_block_cache(table, rocksdb_cache_create_lru(what->direct ? COLD_CACHE_BYTES : CACHE_BYTES));
  rocksdb_block_based_options_set_filter_policy(table, rocksdb_filterpolicy_create_bloom_full(10));
  rocksdb_options_set_block_based_table_factory(options, table);
  rocksdb_options_set_create_if_missing(options, 1);
  rocksdb_options_set_compression(options, rocksdb_no_compression);
  rocksdb_options_set_write_buffer_size(options, (size_t)4 << 30);
  rocksdb_options_set_disable_auto_compactions(options, 1);
  rocksdb_options_set_level0_slowdown_writes_trigger(options, 1 << 20);
  rocksdb_options_set_level0_stop_writes_trigger(options, 1 << 20);
  rocksdb_options_set_max_open_files(options, -1);
  rocksdb_options_set_use_direct_reads(options, what->direct);
  char *error = NULL;
  struct rocks rocks = {.db = rocksdb_open(options, what->folder, &error),
                        .write = rocksdb_writeoptions_create(),
                        .read = rocksdb_readoptions_create(),
                        .row_bytes = data_row_bytes(what->set)};
  check(error);
  rocksdb_writeoptions_disable_WAL(rocks.write, 1);
  if (what->direct)
    rocksdb_readoptions_set_readahead_size(rocks.read, (size_t)2 << 20);
  return rocks;
}

static void rocks_put(void *to, const struct data_entry *entry) {
  const struct rocks *rocks = to;
  char *error = NULL;
  rocksdb_put(rocks->db, rocks->write, (const char *)entry->key, entry->key_size, entry->row, rocks->row_bytes, &error);
  check(error);
}

static void rocks_build_pass(void *argument, uint32_t round, struct sample *sample) {
  const struct rival_case *what = argument;
  struct rocks rocks = rocks_open(what);
  rocksdb_flushoptions_t *flush = rocksdb_flushoptions_create();
  rocksdb_flushoptions_set_wait(flush, 1);
  (void)round;
  (void)sample;
  for (uint32_t run = what->runs; run-- > 0;) { /* the oldest first */
    each_entry(what->set, run, rocks_put, &rocks);
    char *error = NULL;
    rocksdb_flush(rocks.db, flush, &error);
    check(error);
  }
  rocksdb_close(rocks.db);
}

void rocksdb_build(const struct rival_case *what) {
  run_in_child(what, rocks_build_pass);
}

struct rocks_state {
  const struct rival_case *what;
  struct rocks rocks;
  uint64_t sum;
};

static void rocks_scan(struct rocks_state *state) {
  uint64_t count = 0, sum = 0;
  rocksdb_iterator_t *it = rocksdb_create_iterator(state->rocks.db, state->rocks.read);
  for (rocksdb_iter_seek_to_first(it); rocksdb_iter_valid(it); rocksdb_iter_next(it), count++) {
    size_t key_size, row_size;
    const char *key = rocksdb_iter_key(it, &key_size);
    sum += (uint8_t)key[key_size - 1];
    if (state->what->touch) {
      const char *row = rocksdb_iter_value(it, &row_size);
      sum += touch(row, row_size);
    }
  }
  char *error = NULL;
  rocksdb_iter_get_error(it, &error);
  check(error);
  rocksdb_iter_destroy(it);
  if (count != state->what->entries)
    bench_fail("rocksdb yielded %.0f entries of %.0f", (double)count, (double)state->what->entries);
  state->sum += sum;
}

static void *rocks_begin(const void *argument) {
  struct rocks_state *state = bench_alloc(sizeof *state);
  state->what = argument;
  state->rocks = rocks_open(state->what);
  char *files = rocksdb_property_value(state->rocks.db, "rocksdb.num-files-at-level0");
  if (!files || strtoul(files, NULL, 10) != state->what->runs)
    bench_fail("rocksdb has %s files at level 0, not %u", files ? files : "no", state->what->runs);
  if (!state->what->direct)
    rocks_scan(state);
  return state;
}

static double input_entries(const struct rival_case *what) {
  return (double)what->runs * what->set->tables * what->set->entries;
}

static void rocks_pass(void *argument, uint32_t round, struct sample *sample) {
  struct rocks_state *state = argument;
  const double start = resident_begin(round);
  rocks_scan(state);
  resident_stop(start, input_entries(state->what), sample);
}

struct worker_job rocksdb_job(const struct rival_case *what) {
  return (struct worker_job){rocks_begin, rocks_pass, NULL, what};
}

/* ---- LevelDB ---- */

struct level_run {
  const struct rival_case *what;
  uint32_t run;
};

struct level_target {
  struct merge_leveldb *rival;
  uint32_t row_bytes;
};

static void level_put_row(void *to, const struct data_entry *entry) {
  const struct level_target *target = to;
  merge_leveldb_put(target->rival, entry->key, entry->key_size, entry->row, target->row_bytes);
}

static void level_build_pass(void *argument, uint32_t round, struct sample *sample) {
  const struct level_run *work = argument;
  struct level_target target = {merge_leveldb_open(work->what->folder, COLD_CACHE_BYTES), data_row_bytes(work->what->set)};
  (void)round;
  (void)sample;
  each_entry(work->what->set, work->run, level_put_row, &target);
  merge_leveldb_write(target.rival);
}

/* A process a run: the next opening makes one file of what it finds in the log. */
void leveldb_build(const struct rival_case *what) {
  for (uint32_t run = what->runs; run-- > 0;) {
    const struct level_run work = {what, run};
    run_in_child(&work, level_build_pass);
  }
}

struct level_state {
  const struct rival_case *what;
  struct merge_leveldb *rival;
  uint64_t sum;
};

static void level_scan(struct level_state *state) {
  const uint64_t count = merge_leveldb_scan(state->rival, state->what->touch ? data_row_bytes(state->what->set) : 0, &state->sum);
  if (count != state->what->entries)
    bench_fail("leveldb yielded %.0f entries of %.0f", (double)count, (double)state->what->entries);
}

static void *level_begin(const void *argument) {
  struct level_state *state = bench_alloc(sizeof *state);
  state->what = argument;
  state->rival = merge_leveldb_open(state->what->folder, CACHE_BYTES);
  if (merge_leveldb_files(state->rival) != (int)state->what->runs)
    bench_fail("leveldb has %d files at level 0, not %u", merge_leveldb_files(state->rival), state->what->runs);
  level_scan(state);
  return state;
}

static void level_pass(void *argument, uint32_t round, struct sample *sample) {
  struct level_state *state = argument;
  const double start = resident_begin(round);
  level_scan(state);
  resident_stop(start, input_entries(state->what), sample);
}

struct worker_job leveldb_job(const struct rival_case *what) {
  return (struct worker_job){level_begin, level_pass, NULL, what};
}
