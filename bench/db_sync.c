/* fillsync: durable single puts by 1 and by 16 writers (db_cases.h). A pass lasts a fixed time; every put is on the device when it returns. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/db_cases.h"

#define LATENCIES_MAX 65536u /* a writer and pass */

struct sync_case {
  const struct contender *contender;
  char *path;
  uint32_t writers;
  double seconds;
};

struct sync_state {
  const struct sync_case *what;
  void *db;
  uint32_t row_bytes;
  _Atomic uint64_t next;
  _Atomic bool stop;
};

struct writer {
  struct sync_state *state;
  pthread_t thread;
  double *latencies;
  size_t puts;
};

static void *begin(const void *argument) {
  const struct sync_case *what = argument;
  struct sync_state *state = bench_alloc(sizeof *state);
  state->what = what;
  state->row_bytes = 512;
  const struct engine_options options = {.path = what->path,
                                         .row_bytes = state->row_bytes,
                                         .cache_bytes = UINT64_C(512) << 20,
                                         .memtable_bytes = UINT64_C(64) << 20,
                                         .durability = DURABLE,
                                         .variant = what->contender->variant};
  state->db = what->contender->engine->open(&options);
  return state;
}

static void *write_on(void *argument) {
  struct writer *writer = argument;
  struct sync_state *state = writer->state;
  const struct engine *engine = state->what->contender->engine;
  uint8_t key[KEY_BYTES];
  double before = now_seconds();
  while (!atomic_load_explicit(&state->stop, memory_order_relaxed)) {
    const uint64_t i = atomic_fetch_add(&state->next, 1);
    work_key(i, false, key);
    engine->put(state->db, key, work_row(i, state->row_bytes));
    const double after = now_seconds();
    if (writer->puts < LATENCIES_MAX)
      writer->latencies[writer->puts] = after - before;
    writer->puts++;
    before = after;
  }
  return NULL;
}

static void pass(void *argument, uint32_t round, struct sample *sample) {
  struct sync_state *state = argument;
  const uint32_t count = state->what->writers;
  struct writer *writers = bench_alloc(count * sizeof *writers);
  double *latencies = bench_alloc(count * LATENCIES_MAX * sizeof *latencies);
  struct meter meter;
  (void)round;
  atomic_store(&state->stop, false);
  meter_start(&meter);
  for (uint32_t i = 0; i < count; i++) {
    writers[i] = (struct writer){.state = state, .latencies = latencies + (size_t)i * LATENCIES_MAX};
    if (pthread_create(&writers[i].thread, NULL, write_on, &writers[i]) != 0)
      bench_fail("no thread can be made");
  }
  const double until = meter.seconds + state->what->seconds;
  for (double now = meter.seconds; now < until; now = now_seconds()) {
    const struct timespec some = {0, 5000000};
    (void)nanosleep(&some, NULL);
  }
  atomic_store(&state->stop, true);
  size_t puts = 0, kept = 0;
  for (uint32_t i = 0; i < count; i++) {
    (void)pthread_join(writers[i].thread, NULL);
    puts += writers[i].puts;
    for (size_t j = 0; j < writers[i].puts && j < LATENCIES_MAX; j++)
      latencies[kept++] = writers[i].latencies[j]; /* moves down, never over what is still to come */
  }
  meter_stop(&meter, (double)puts, sample);
  sample->p50_us = percentile(latencies, kept, 0.5) * 1e6;
  sample->p99_us = percentile(latencies, kept, 0.99) * 1e6;
  free(latencies);
  free(writers);
}

static void end(void *argument) {
  struct sync_state *state = argument;
  state->what->contender->engine->close(state->db);
  free(state);
}

static void run_writers(const struct bench_options *bench, uint32_t writers, const char *words, double least) {
  static const struct contender *const contenders[] = {&contender_turbidite, &contender_rocksdb, &contender_rocksdb_pipelined,
                                                       &contender_lmdb};
  char what[64];
  (void)snprintf(what, sizeof what, "fillsync/128d/%u-writer%s", writers, writers == 1 ? "" : "s");
  struct contest contest = {.what = what, .unit = "puts/s", .rounds = bench->rounds ? bench->rounds : bench->quick ? 5 : 15};
  struct sync_case cases[4];
  for (size_t i = 0; i < (bench->quick ? 3 : 4); i++) {
    cases[i] = (struct sync_case){contenders[i], path_join(bench->folder, "sync-%u-%s", writers, contenders[i]->name), writers,
                                  bench->quick ? 0.25 : 1.0};
    contest_add(&contest, contenders[i]->name, &(struct worker_job){begin, pass, end, &cases[i]});
  }
  contest_run(&contest);
  contest_rows(&contest);
  contest_ratio_row(&contest, "rocksdb", words, least);
  for (size_t i = 0; i < contest.count; i++) {
    folder_remove(cases[i].path);
    free(cases[i].path);
  }
}

void run_syncs(const struct bench_options *bench) {
  if (!bench_wants(bench, "fillsync"))
    return;
  run_writers(bench, 1, "at least 0.95 times the puts/s of RocksDB, median of paired ratios", 0.95);
  run_writers(bench, 16, "at least 2 times the puts/s of RocksDB, median of paired ratios", 2);
}
