/* fillseq, fillrandom, overwrite, compact (db_cases.h): the log is on and not synced, the memtable 64 MiB (less when quick). Every pass is a new database
 * in a process of its own. */
#include <stdio.h>
#include <stdlib.h>

#include "bench/db_cases.h"

enum fill_kind { FILL_SEQ, FILL_RANDOM, FILL_OVERWRITE };

struct fill_case {
  const struct contender *contender;
  char *path;
  struct shape shape;
  enum fill_kind kind;
  uint64_t memtable_bytes;
};

struct fill_state {
  const struct fill_case *what;
  struct engine_options options;
  void *db;
};

/* Puts all entries; `version` tells the vectors of one filling from those of the next. */
static void put_all(struct fill_state *state, bool ordered, uint32_t version) {
  const struct engine *engine = state->what->contender->engine;
  const uint32_t rows = state->what->shape.rows;
  uint8_t key[KEY_BYTES];
  for (uint32_t i = 0; i < rows; i++) {
    const uint64_t id = version ? (i * UINT64_C(2654435761)) % rows : i;
    work_key(id, ordered, key);
    engine->put(state->db, key, work_row(id + (uint64_t)version * rows, state->options.row_bytes));
  }
  if (engine->end_puts)
    engine->end_puts(state->db);
}

static void *begin(const void *argument) {
  const struct fill_case *what = argument;
  struct fill_state *state = bench_alloc(sizeof *state);
  state->what = what;
  state->options = (struct engine_options){.path = what->path,
                                           .row_bytes = shape_row_bytes(&what->shape),
                                           .cache_bytes = UINT64_C(512) << 20,
                                           .memtable_bytes = what->memtable_bytes,
                                           .durability = LOGGED,
                                           .variant = what->contender->variant};
  folder_remove(what->path);
  state->db = what->contender->engine->open(&state->options);
  if (what->kind == FILL_OVERWRITE) {
    put_all(state, false, 0);
    what->contender->engine->compact(state->db);
  }
  return state;
}

/* Filling is timed until everything is compacted, but for fillseq; second_seconds is the time of the last, full compaction alone. */
static void pass(void *argument, uint32_t round, struct sample *sample) {
  struct fill_state *state = argument;
  const struct fill_case *what = state->what;
  const struct engine *engine = what->contender->engine;
  const double user_bytes = shape_user_bytes(&what->shape);
  struct meter meter;
  (void)round;
  const double before = what->kind == FILL_OVERWRITE ? engine->table_bytes(state->db, user_bytes, what->shape.rows) : 0;
  meter_start(&meter);
  put_all(state, what->kind == FILL_SEQ, what->kind == FILL_OVERWRITE);
  const double filled = now_seconds();
  if (what->kind == FILL_SEQ)
    meter_stop(&meter, what->shape.rows, sample);
  engine->compact(state->db);
  const double compacted = now_seconds();
  if (what->kind != FILL_SEQ)
    meter_stop(&meter, what->shape.rows, sample);
  sample->second_seconds = compacted - filled;
  const double times = what->kind == FILL_OVERWRITE ? 2 : 1;
  sample->table_bytes = engine->table_bytes(state->db, user_bytes * times, what->shape.rows * times) - before;
}

static void end(void *argument) {
  struct fill_state *state = argument;
  state->what->contender->engine->close(state->db);
  free(state);
}

#define MEDIAN(contest, i, member) contest_median(contest, i, offsetof(struct sample, member))

static void print_rows(const struct contest *contest, const struct shape *shape, const double *disk_bytes) {
  const double user_bytes = shape_user_bytes(shape);
  for (size_t i = 0; i < contest->count; i++) {
    contest_row_begin(contest, i);
    row_number("compact_seconds", MEDIAN(contest, i, second_seconds));
    row_number("write_amplification", MEDIAN(contest, i, table_bytes) / user_bytes);
    row_number("space_amplification", disk_bytes[i] / user_bytes);
    row_end();
  }
}

static void print_targets(const struct contest *contest, const struct shape *shape) {
  contest_ratio_row(contest, "rocksdb", "at least 3 times as fast as RocksDB, until fully compacted", 3);
  const double amplification = MEDIAN(contest, 0, table_bytes) / shape_user_bytes(shape);
  row_begin("bytes/byte", amplification, "%s: table bytes written by user bytes", contest->what);
  row_target("at most 2.5", amplification <= 2.5);
  row_end();
  const size_t rival = contest_best(contest, "rocksdb");
  double shares[CONTEST_MAX_ROUNDS];
  for (uint32_t round = 0; round < contest->rounds; round++)
    shares[round] = contest->samples[0][round].cpu_seconds / contest->samples[rival][round].cpu_seconds;
  const double share = median(shares, contest->rounds);
  row_begin("times", share, "%s: CPU seconds by those of %s", contest->what, contest->contestants[rival].name);
  row_number("cpu_seconds", MEDIAN(contest, 0, cpu_seconds));
  row_number("rival_cpu_seconds", MEDIAN(contest, rival, cpu_seconds));
  row_target("at most 1/3 of RocksDB's", share <= 1.0 / 3);
  row_end();
}

/* The time of the full compaction, as a row of its own. */
static void print_compaction(const struct contest *contest, const struct shape *shape) {
  for (size_t i = 0; i < contest->count; i++) {
    const double seconds = MEDIAN(contest, i, second_seconds);
    row_begin("entries/s", seconds > 0 ? shape->rows / seconds : 0, "compact/%ud/after-overwrite/%s", shape->dimension,
              contest->contestants[i].name);
    row_number("seconds", seconds);
    row_end();
  }
}

static void run_fill(const struct bench_options *bench, const char *name, enum fill_kind kind, const struct shape *shape) {
  static const struct contender *const contenders[] = {&contender_turbidite, &contender_rocksdb_large, &contender_rocksdb,
                                                       &contender_rocksdb_universal, &contender_lmdb};
  const size_t count = bench->quick ? 2 : kind == FILL_RANDOM ? 5 : 4;
  char what[64];
  (void)snprintf(what, sizeof what, "%s/%ud", name, shape->dimension);
  struct contest contest = {.what = what,
                            .unit = "puts/s",
                            .fresh = true,
                            .rounds = bench->rounds         ? bench->rounds
                                      : bench->quick        ? 2
                                      : kind == FILL_RANDOM ? 5
                                                            : 3};
  struct fill_case cases[5];
  for (size_t i = 0; i < count; i++) {
    const struct contender *contender = contenders[i + (kind != FILL_RANDOM && i == 3)];
    cases[i] = (struct fill_case){contender, path_join(bench->folder, "fill-%s", contender->name), *shape, kind, UINT64_C(64) << 20};
    if (bench->quick)
      cases[i].memtable_bytes = (uint64_t)(shape_user_bytes(shape) / 8);
    contest_add(&contest, contender->name, &(struct worker_job){begin, pass, end, &cases[i]});
  }
  contest_run(&contest);
  double disk_bytes[5];
  for (size_t i = 0; i < count; i++) {
    disk_bytes[i] = (double)folder_bytes(cases[i].path);
    folder_remove(cases[i].path);
    free(cases[i].path);
  }
  print_rows(&contest, shape, disk_bytes);
  if (kind == FILL_RANDOM && shape->dimension == 128)
    print_targets(&contest, shape);
  if (kind == FILL_OVERWRITE)
    print_compaction(&contest, shape);
}

void run_fills(const struct bench_options *bench) {
  const struct shape small = {128, bench->quick ? 200000 : 1000000}, large = {768, 200000};
  if (bench_wants(bench, "fillrandom"))
    run_fill(bench, "fillrandom", FILL_RANDOM, &small);
  if (bench->quick && !bench->only)
    return;
  if (bench_wants(bench, "fillseq"))
    run_fill(bench, "fillseq", FILL_SEQ, &small);
  if (bench_wants(bench, "overwrite") || bench_wants(bench, "compact"))
    run_fill(bench, "overwrite", FILL_OVERWRITE, &small);
  if (bench->quick)
    return;
  if (bench_wants(bench, "fillrandom"))
    run_fill(bench, "fillrandom", FILL_RANDOM, &large);
  if (bench_wants(bench, "fillseq"))
    run_fill(bench, "fillseq", FILL_SEQ, &large);
  if (bench_wants(bench, "overwrite") || bench_wants(bench, "compact"))
    run_fill(bench, "overwrite", FILL_OVERWRITE, &large);
}
