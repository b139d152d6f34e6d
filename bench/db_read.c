/* readrandom, multireadrandom, seekrandom, readwhilewriting, readseq, readreverse (db_cases.h), on compacted databases. A contestant opens its database once,
 * gets warm, and does a pass whenever it is its turn; all ask for the same keys in the same order. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/db_cases.h"
#include "bench/device.h"

#define BATCH 64u

enum read_kind { READ_RANDOM, READ_MULTI, READ_SEEK, READ_WRITING, READ_SEQ, READ_REVERSE };

struct read_case {
  const struct contender *contender;
  const char *path;
  struct shape shape;
  enum read_kind kind;
  bool cold;
  uint32_t operations;
};

struct read_state {
  const struct read_case *what;
  void *db;
  void *row;
  double *latencies;
  uint64_t at, touched;
  pthread_t writer;
  _Atomic bool stop;
};

/* The ids of a run never repeat before all had their turn: a cold row is cold. */
static void key_at(const struct read_state *state, uint64_t at, uint8_t *key) {
  work_key((at * UINT64_C(2654435761) + 17) % state->what->shape.rows, false, key);
}

static void *begin(const void *argument) {
  const struct read_case *what = argument;
  const struct engine *engine = what->contender->engine;
  struct read_state *state = bench_alloc(sizeof *state);
  state->what = what;
  const struct engine_options options = {.path = what->path,
                                         .row_bytes = shape_row_bytes(&what->shape),
                                         .cache_bytes = what->cold ? UINT64_C(128) << 20 : UINT64_C(2) << 30,
                                         .memtable_bytes = what->cold ? UINT64_C(1) << 20 : UINT64_C(64) << 20,
                                         .direct = what->cold,
                                         .durability = LOGGED,
                                         .variant = what->contender->variant};
  folder_drop_cache(what->path);
  state->db = engine->open(&options);
  state->row = bench_alloc(options.row_bytes);
  state->latencies = bench_alloc(what->operations * sizeof *state->latencies);
  if (what->cold) {
    engine->warm_index(state->db);
  } else {
    if (engine->scan(state->db, false, &state->touched) != what->shape.rows)
      bench_fail("%s: a scan does not find all entries", what->contender->name);
    (void)engine->scan(state->db, false, &state->touched);
  }
  return state;
}

static void get_one(struct read_state *state, uint64_t at) {
  uint8_t key[KEY_BYTES];
  key_at(state, at, key);
  if (!state->what->contender->engine->get(state->db, key, state->row))
    bench_fail("%s: a key is not found", state->what->contender->name);
  state->touched += touch(state->row, shape_row_bytes(&state->what->shape));
}

static void get_batch(struct read_state *state, uint64_t at) {
  const struct engine *engine = state->what->contender->engine;
  uint8_t keys[BATCH][KEY_BYTES];
  for (uint32_t i = 0; i < BATCH; i++)
    key_at(state, at + i, keys[i]);
  const size_t found = state->what->kind == READ_SEEK ? engine->seek(state->db, BATCH, keys, &state->touched)
                                                      : engine->multi_get(state->db, BATCH, keys, &state->touched);
  if (found != BATCH)
    bench_fail("%s: %zu of %u keys are found", state->what->contender->name, found, BATCH);
}

/* `timed`: each call by itself, for the latencies. Returns how many calls were made. */
static size_t look_up(struct read_state *state, uint32_t operations, bool timed) {
  const bool single = state->what->kind == READ_RANDOM || state->what->kind == READ_WRITING;
  const uint32_t step = single ? 1 : BATCH;
  size_t calls = 0;
  double before = timed ? now_seconds() : 0;
  for (uint32_t i = 0; i + step <= operations; i += step, state->at += step) {
    if (single)
      get_one(state, state->at);
    else
      get_batch(state, state->at);
    if (!timed)
      continue;
    const double after = now_seconds();
    state->latencies[calls++] = after - before;
    before = after;
  }
  return calls;
}

static void *write_on(void *argument) {
  struct read_state *state = argument;
  const struct engine *engine = state->what->contender->engine;
  uint8_t key[KEY_BYTES];
  for (uint64_t i = 0; !atomic_load_explicit(&state->stop, memory_order_relaxed); i++) {
    work_key(work_below(i, state->what->shape.rows), false, key);
    engine->put(state->db, key, work_row(i, shape_row_bytes(&state->what->shape)));
  }
  if (engine->end_puts)
    engine->end_puts(state->db);
  return NULL;
}

static void pass(void *argument, uint32_t round, struct sample *sample) {
  struct read_state *state = argument;
  const struct read_case *what = state->what;
  struct meter meter;
  (void)round;
  if (what->cold)
    folder_drop_cache(what->path); /* for engines that read through it */
  if (what->kind == READ_WRITING) {
    atomic_store(&state->stop, false);
    if (pthread_create(&state->writer, NULL, write_on, state) != 0)
      bench_fail("no thread can be made");
  }
  meter_start(&meter);
  if (what->kind == READ_SEQ || what->kind == READ_REVERSE) {
    const uint64_t count = what->contender->engine->scan(state->db, what->kind == READ_REVERSE, &state->touched);
    meter_stop(&meter, (double)count, sample);
    return;
  }
  (void)look_up(state, what->operations, false);
  meter_stop(&meter, what->operations / BATCH * BATCH, sample);
  const size_t calls = look_up(state, what->operations / 8, true);
  sample->p50_us = percentile(state->latencies, calls, 0.5) * 1e6;
  sample->p99_us = percentile(state->latencies, calls, 0.99) * 1e6;
  if (what->kind == READ_WRITING) {
    atomic_store(&state->stop, true);
    (void)pthread_join(state->writer, NULL);
  }
}

static void end(void *argument) {
  struct read_state *state = argument;
  if (state->touched == 1)
    bench_say("touched"); /* never, but the compiler does not know */
  state->what->contender->engine->close(state->db);
  free(state->row);
  free(state->latencies);
  free(state);
}

/* ---- contests ---- */

struct reading {
  const char *name;
  enum read_kind kind;
  bool cold;
  struct shape shape;
  uint32_t operations, rounds;
  const struct contender *contenders[CONTEST_MAX_CONTESTANTS]; /* ours first */
};

/* Runs it and prints its rows; `contest` may have contestants behind `reading`'s, with rows of their own. */
static void run_reading(const struct bench_options *bench, const struct reading *reading, struct contest *contest) {
  struct read_case cases[CONTEST_MAX_CONTESTANTS];
  contest->unit = reading->kind == READ_SEQ || reading->kind == READ_REVERSE ? "entries/s" : "operations/s";
  contest->rounds = bench->rounds ? bench->rounds : reading->rounds;
  const size_t before = contest->count;
  for (size_t i = 0; i < CONTEST_MAX_CONTESTANTS && reading->contenders[i]; i++) {
    const struct contender *contender = reading->contenders[i];
    cases[i] = (struct read_case){
        contender, database_of(bench, contender, &reading->shape), reading->shape, reading->kind, reading->cold, reading->operations};
    contest_add(contest, contender->name, &(struct worker_job){begin, pass, end, &cases[i]});
  }
  /* ours first, for the ratios */
  for (size_t i = before; i > 0; i--) {
    const struct contestant other = contest->contestants[i - 1];
    for (size_t j = i - 1; j + 1 < contest->count; j++)
      contest->contestants[j] = contest->contestants[j + 1];
    contest->contestants[contest->count - 1] = other;
  }
  contest_run(contest);
  for (size_t i = 0; i < contest->count; i++) {
    contest_row_begin(contest, i);
    const double operations = contest_median(contest, i, offsetof(struct sample, operations));
    if (reading->cold)
      row_number("device_bytes_per_operation", contest_median(contest, i, offsetof(struct sample, read_bytes)) / operations);
    row_end();
  }
}

static void run_plain(const struct bench_options *bench, const struct reading *reading, const char *words, double least,
                      bool ahead_of_lmdb) {
  char what[64];
  (void)snprintf(what, sizeof what, "%s/%ud/%s", reading->name, reading->shape.dimension, reading->cold ? "cold" : "cached");
  struct contest contest = {.what = what};
  run_reading(bench, reading, &contest);
  if (words)
    contest_ratio_row(&contest, "rocksdb", words, least);
  if (ahead_of_lmdb)
    contest_ratio_row(&contest, "lmdb", "ahead of LMDB", 1);
}

#define ROUNDS(bench, quick_rounds, rounds) ((bench)->quick ? (quick_rounds) : (rounds))

static struct shape small_shape(const struct bench_options *bench) {
  return (struct shape){128, bench->quick ? 300000 : 1000000};
}

static const struct shape large_shape = {768, 200000};

void run_reads(const struct bench_options *bench) {
  const struct shape shapes[] = {small_shape(bench), large_shape};
  const uint32_t operations = bench->quick ? 100000 : 300000, rounds = ROUNDS(bench, 5, 9);
  for (size_t i = 0; i < (bench->quick ? 1 : 2); i++) {
    struct reading reading = {
        .name = "readrandom",
        .kind = READ_RANDOM,
        .shape = shapes[i],
        .operations = operations,
        .rounds = rounds,
        .contenders = {&contender_turbidite, &contender_rocksdb, &contender_lmdb, bench->quick ? NULL : &contender_rocksdb_hash}};
    const bool target = i == 0;
    if (bench_wants(bench, reading.name))
      run_plain(bench, &reading, target ? "at least 5 times the gets/s of RocksDB" : NULL, 5, target);
    if (bench->quick && !bench->only)
      continue;
    reading.name = "multireadrandom";
    reading.kind = READ_MULTI;
    if (bench_wants(bench, "multireadrandom/cached"))
      run_plain(bench, &reading, NULL, 0, false);
    reading.name = "seekrandom";
    reading.kind = READ_SEEK;
    if (bench_wants(bench, reading.name))
      run_plain(bench, &reading, NULL, 0, false);
  }
}

void run_scans(const struct bench_options *bench) {
  const struct shape shapes[] = {small_shape(bench), large_shape};
  for (size_t i = 0; i < (bench->quick ? 1 : 2); i++) {
    struct reading reading = {
        .name = "readseq",
        .kind = READ_SEQ,
        .shape = shapes[i],
        .operations = 1,
        .rounds = ROUNDS(bench, 7, 9),
        .contenders = {&contender_turbidite, &contender_rocksdb_large, &contender_lmdb, bench->quick ? NULL : &contender_rocksdb}};
    if (bench_wants(bench, reading.name))
      run_plain(bench, &reading, i == 0 ? "at least 5 times the entries/s of RocksDB, every vector touched" : NULL, 5, false);
    if (bench->quick && !bench->only)
      continue;
    reading.name = "readreverse";
    reading.kind = READ_REVERSE;
    if (bench_wants(bench, reading.name))
      run_plain(bench, &reading, NULL, 0, false);
  }
}

/* ---- cold ---- */

/* The multi-get of 64 cold rows beside what the device gives a loop without an engine, on the very table that ours reads. */
static void run_cold_multi(const struct bench_options *bench) {
  const struct reading reading = {.name = "multireadrandom",
                                  .kind = READ_MULTI,
                                  .cold = true,
                                  .shape = small_shape(bench),
                                  .operations = bench->quick ? 12800 : 51200,
                                  .rounds = ROUNDS(bench, 5, 9),
                                  .contenders = {&contender_turbidite, &contender_rocksdb}};
  char *file = folder_largest_file(database_of(bench, &contender_turbidite, &reading.shape));
  struct device_case batches = {file, BATCH, reading.operations, false}, window = {file, BATCH, reading.operations, true};
  struct contest contest = {.what = "multireadrandom/128d/cold"};
  contest_add(&contest, "bare-loop-batches-of-64", &(struct worker_job){device_begin, device_pass, device_end, &batches});
  contest_add(&contest, "bare-loop-64-in-flight", &(struct worker_job){device_begin, device_pass, device_end, &window});
  run_reading(bench, &reading, &contest);
  contest_ratio_row(&contest, "rocksdb", "at least 2.5 times the keys/s of RocksDB", 2.5);
  contest_ratio_row(&contest, "bare-loop", "at least 85 % of a bare io_uring loop of 4 KiB reads at the same depth", 0.85);
  free(file);
}

void run_cold_reads(const struct bench_options *bench) {
  if (bench_wants(bench, "multireadrandom"))
    run_cold_multi(bench);
  if (bench->quick && !bench->only)
    return;
  const struct shape shapes[] = {small_shape(bench), large_shape};
  for (size_t i = 0; i < (bench->quick ? 1 : 2); i++) {
    struct reading reading = {.name = "readrandom",
                              .kind = READ_RANDOM,
                              .cold = true,
                              .shape = shapes[i],
                              .operations = bench->quick ? 3200 : 16000,
                              .rounds = 5,
                              .contenders = {&contender_turbidite, &contender_rocksdb, &contender_lmdb}};
    if (bench_wants(bench, reading.name))
      run_plain(bench, &reading, NULL, 0, false);
    reading.name = "seekrandom";
    reading.kind = READ_SEEK;
    if (bench_wants(bench, reading.name))
      run_plain(bench, &reading, NULL, 0, false);
    reading.name = "readseq";
    reading.kind = READ_SEQ;
    reading.operations = 1;
    if (bench_wants(bench, reading.name))
      run_plain(bench, &reading, NULL, 0, false);
  }
}

void run_mixed(const struct bench_options *bench) {
  if ((bench->quick && !bench->only) || !bench_wants(bench, "readwhilewriting"))
    return;
  const struct reading reading = {.name = "readwhilewriting",
                                  .kind = READ_WRITING,
                                  .shape = small_shape(bench),
                                  .operations = 200000,
                                  .rounds = 5,
                                  .contenders = {&contender_turbidite, &contender_rocksdb, &contender_lmdb}};
  run_plain(bench, &reading, NULL, 0, false);
}
