/* bench/exact: how fast an exact search goes over vectors: resident ones against what a plain loop on one core reads from as much
 * memory, cold ones against what the device gives sequentially. docs/benchmarks.md says what each row is. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "bench/bench.h"
#include "bench/device.h"
#include "bench/stream.h"
#include "turbidite/turbidite.h"

#define GIGABYTE 1e9

struct exact_case {
  const char *name;
  turb_type type;
  turb_metric metric;
  uint32_t dimension, rows;
  bool cold;
  char *path;
};

struct exact_state {
  const struct exact_case *what;
  turb_db *db;
  turb_collection *rows;
  uint32_t row_bytes;
  uint8_t *row;
};

static void open_state(struct exact_state *state, uint64_t budget_bytes) {
  turb_error error = TURB_ERROR_INIT;
  turb_options options = TURB_OPTIONS_INIT;
  options.memory_budget_bytes = budget_bytes;
  bench_check(turb_open(state->what->path, &options, &state->db, &error), &error);
  turb_status status = turb_collection_open(state->db, "rows", &state->rows, &error);
  if (status == TURB_NOT_FOUND) {
    turb_collection_options collection = TURB_COLLECTION_OPTIONS_INIT;
    collection.dimension = state->what->dimension;
    collection.type = state->what->type;
    collection.metric = state->what->metric;
    error = (turb_error)TURB_ERROR_INIT;
    status = turb_collection_create(state->db, "rows", &collection, &state->rows, &error);
  }
  bench_check(status, &error);
  turb_collection_info info = {.size = sizeof info};
  bench_check(turb_collection_describe(state->rows, &info, &error), &error);
  state->row_bytes = info.row_bytes;
  state->row = bench_alloc(info.row_bytes);
}

static void close_state(struct exact_state *state) {
  turb_error error = TURB_ERROR_INIT;
  bench_check(turb_close(state->db, &error), &error);
  free(state->row);
  free(state);
}

/* The vector of entry i: any bits will do, but 16-bit floats must be finite. */
static const void *make_row(struct exact_state *state, uint64_t i) {
  const void *bits = work_row(i, state->row_bytes);
  if (state->what->type != TURB_F16 && state->what->type != TURB_BF16)
    return bits;
  const uint16_t keep = state->what->type == TURB_F16 ? 0x83ff : 0x807f, set = state->what->type == TURB_F16 ? 0x3800 : 0x3f00;
  uint16_t x;
  for (uint32_t at = 0; at < state->row_bytes; at += sizeof x) {
    memcpy(&x, (const uint8_t *)bits + at, sizeof x);
    x = (uint16_t)((x & keep) | set);
    memcpy(state->row + at, &x, sizeof x);
  }
  return state->row;
}

/* ---- building ---- */

static void *begin_build(const void *argument) {
  struct exact_state *state = bench_alloc(sizeof *state);
  state->what = argument;
  open_state(state, UINT64_C(512) << 20);
  return state;
}

static void build(void *argument, uint32_t round, struct sample *sample) {
  struct exact_state *state = argument;
  turb_error error = TURB_ERROR_INIT;
  turb_write_options options = TURB_WRITE_OPTIONS_INIT;
  options.durability = TURB_UNLOGGED;
  uint8_t key[KEY_BYTES];
  (void)round;
  (void)sample;
  for (uint32_t i = 0; i < state->what->rows; i++) {
    work_key(i, true, key);
    bench_check(turb_put(state->rows, (turb_bytes){key, KEY_BYTES}, (turb_bytes){make_row(state, i), state->row_bytes}, TURB_NONE, &options,
                         &error),
                &error);
  }
  bench_check(turb_compact(state->db, state->rows, &error), &error);
}

static void end_build(void *argument) {
  close_state(argument);
}

/* ---- searching ---- */

/* All rows into the page cache. */
static void warm(struct exact_state *state) {
  turb_error error = TURB_ERROR_INIT;
  turb_iterator_options options = TURB_ITERATOR_OPTIONS_INIT;
  turb_iterator *it;
  bench_check(turb_iterator_open(state->rows, &options, &it, &error), &error);
  turb_state at = turb_finish(it, turb_first(it));
  while (at == TURB_READY)
    at = turb_next(it);
  bench_check(turb_iterator_status(it, &error), &error);
  turb_iterator_close(it);
}

/* A query; returns the bytes that it read from the device. */
static uint64_t search(struct exact_state *state, uint64_t query) {
  turb_error error = TURB_ERROR_INIT;
  turb_search_options options = TURB_SEARCH_OPTIONS_INIT;
  options.k = 10;
  options.mode = TURB_SEARCH_EXACT;
  turb_result *result;
  bench_check(
      turb_search(state->rows, (turb_bytes){make_row(state, query + UINT64_C(1000000007)), state->row_bytes}, &options, &result, &error),
      &error);
  turb_costs costs = {.size = sizeof costs};
  bench_check(turb_result_costs(result, &costs, &error), &error);
  if (turb_result_count(result) != options.k || costs.distances < state->what->rows)
    bench_fail("%s: an exact search computed %.0f distances of %u", state->what->name, (double)costs.distances, state->what->rows);
  turb_result_free(result);
  return costs.bytes_read;
}

static void *begin_search(const void *argument) {
  struct exact_state *state = bench_alloc(sizeof *state);
  state->what = argument;
  const uint64_t bytes = (uint64_t)state->what->rows * (state->what->dimension * 4 + 128);
  open_state(state, state->what->cold ? UINT64_C(64) << 20 : (UINT64_C(256) << 20) + 2 * bytes);
  if (!state->what->cold)
    warm(state);
  const uint64_t read = search(state, 0);
  if (!state->what->cold && read > bytes / 100)
    bench_say("%s: %.0f bytes came from the device, though the rows should be resident", state->what->name, (double)read);
  return state;
}

/* Operations are gigabytes of vectors. */
static void pass_search(void *argument, uint32_t round, struct sample *sample) {
  struct exact_state *state = argument;
  struct meter meter;
  meter_start(&meter);
  const uint64_t read = search(state, round + 1);
  meter_stop(&meter, (double)state->what->rows * state->row_bytes / GIGABYTE, sample);
  sample->read_bytes = (double)read;
}

static void end_search(void *argument) {
  close_state(argument);
}

/* ---- bounds ---- */

struct stream_state {
  size_t bytes;
  void *memory;
  uint64_t sum;
};

/* As much memory as the rows, of the same kind as the page cache's: 2 MiB slabs that may become huge pages. */
static void *begin_stream(const void *argument) {
  const size_t *bytes = argument;
  struct stream_state *state = bench_alloc(sizeof *state);
  state->bytes = *bytes / 512 * 512;
  if (posix_memalign(&state->memory, (size_t)2 << 20, state->bytes) != 0)
    bench_fail("no memory for %zu bytes", state->bytes);
  (void)madvise(state->memory, state->bytes, MADV_HUGEPAGE);
  memset(state->memory, 1, state->bytes);
  return state;
}

static void pass_stream(void *argument, uint32_t round, struct sample *sample) {
  struct stream_state *state = argument;
  struct meter meter;
  (void)round;
  meter_start(&meter);
  state->sum += stream_read(state->memory, state->bytes);
  meter_stop(&meter, (double)state->bytes / GIGABYTE, sample);
}

static void end_stream(void *argument) {
  struct stream_state *state = argument;
  if (state->sum == 1)
    bench_say("summed"); /* never, but the compiler does not know */
  free(state->memory);
  free(state);
}

static void *begin_device(const void *argument) {
  return (void *)(uintptr_t)argument;
}

/* The best of several ways to ask. */
static void pass_device(void *argument, uint32_t round, struct sample *sample) {
  const char *file = argument;
  static const struct { uint32_t request_bytes, depth; } ways[] = {{256u << 10, 8}, {1u << 20, 4}, {1u << 20, 8}};
  struct meter meter;
  (void)round;
  double best = 0;
  meter_start(&meter);
  for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
    const double rate = device_sequential(file, ways[i].request_bytes, ways[i].depth, false);
    best = rate > best ? rate : best;
  }
  meter_stop(&meter, best / GIGABYTE, sample);
  sample->seconds = 1; /* operations are the rate */
}

/* ---- families ---- */

static void build_case(const struct bench_options *bench, struct exact_case *what) {
  what->path = path_join(bench->folder, "exact-%s-%u", what->name, what->dimension);
  const struct worker_job job = {begin_build, build, end_build, what};
  struct sample sample;
  worker_run(&job, 0, &sample);
}

static void run_resident(const struct bench_options *bench, struct exact_case *what, bool target) {
  char name[64];
  what->cold = false;
  (void)snprintf(name, sizeof name, "exact/%s/%ud/resident", what->name, what->dimension);
  struct contest contest = {.what = name, .unit = "GB/s of vectors", .rounds = bench->rounds ? bench->rounds : 31};
  const uint32_t bits = what->type == TURB_F32                              ? 32
                        : what->type == TURB_BITS                           ? 1
                        : what->type == TURB_F16 || what->type == TURB_BF16 ? 16
                                                                            : 8;
  const size_t bytes = (size_t)what->rows * (what->dimension * bits / 8);
  contest_add(&contest, "turbidite", &(struct worker_job){begin_search, pass_search, end_search, what});
  contest_add(&contest, "memory", &(struct worker_job){begin_stream, pass_stream, end_stream, &bytes});
  contest_run(&contest);
  contest_row_begin(&contest, 0);
  row_number("rows", what->rows);
  row_number("queries_per_second", contest_rate(&contest, 0) * GIGABYTE / (double)bytes);
  row_end();
  contest_row_begin(&contest, 1);
  row_text("loop", stream_kind());
  row_end();
  const struct ratio ratio = contest_ratio(&contest, "memory");
  row_begin("share", ratio.median, "%s: of the streaming bandwidth", name);
  row_number("least", ratio.least);
  row_number("most", ratio.most);
  if (target)
    row_target("at least 85 % of the streaming bandwidth of one core on as much memory", ratio.median >= 0.85);
  row_end();
}

static void run_cold(const struct bench_options *bench, struct exact_case *what, bool target) {
  char name[64];
  what->cold = true;
  (void)snprintf(name, sizeof name, "exact/%s/%ud/cold", what->name, what->dimension);
  struct contest contest = {.what = name, .unit = "GB/s of vectors", .rounds = bench->rounds ? bench->rounds : bench->quick ? 5 : 9};
  char *file = folder_largest_file(what->path);
  contest_add(&contest, "turbidite", &(struct worker_job){begin_search, pass_search, end_search, what});
  contest_add(&contest, "device", &(struct worker_job){begin_device, pass_device, NULL, file});
  contest_run(&contest);
  contest_rows(&contest);
  const struct ratio ratio = contest_ratio(&contest, "device");
  row_begin("share", ratio.median, "%s: of the device's sequential bandwidth", name);
  row_number("least", ratio.least);
  row_number("most", ratio.most);
  if (target)
    row_target("at least 90 % of the device's sequential bandwidth", ratio.median >= 0.9);
  row_end();
  free(file);
}

static void run(const struct bench_options *bench) {
  struct exact_case cases[] = {
      {.name = "f32-l2", .type = TURB_F32, .metric = TURB_L2, .dimension = 128, .rows = bench->quick ? 500000 : 1000000},
      {.name = "f32-l2", .type = TURB_F32, .metric = TURB_L2, .dimension = 768, .rows = 160000},
      {.name = "f32-inner-product", .type = TURB_F32, .metric = TURB_INNER_PRODUCT, .dimension = 128, .rows = 500000},
      {.name = "f32-cosine", .type = TURB_F32, .metric = TURB_COSINE, .dimension = 128, .rows = 500000},
      {.name = "f32-manhattan", .type = TURB_F32, .metric = TURB_MANHATTAN, .dimension = 128, .rows = 500000},
      {.name = "f16-l2", .type = TURB_F16, .metric = TURB_L2, .dimension = 768, .rows = 160000},
      {.name = "bf16-l2", .type = TURB_BF16, .metric = TURB_L2, .dimension = 768, .rows = 160000},
      {.name = "i8-l2", .type = TURB_I8, .metric = TURB_L2, .dimension = 768, .rows = 320000},
      {.name = "u8-l2", .type = TURB_U8, .metric = TURB_L2, .dimension = 768, .rows = 320000},
      {.name = "bits-hamming", .type = TURB_BITS, .metric = TURB_HAMMING, .dimension = 1024, .rows = 1000000},
  };
  const size_t count = bench->quick && !bench->only ? 1 : sizeof cases / sizeof *cases;
  for (size_t i = 0; i < count; i++) {
    if (!bench_wants(bench, cases[i].name))
      continue;
    build_case(bench, &cases[i]);
    run_resident(bench, &cases[i], i == 0);
    if (cases[i].metric == TURB_L2 && cases[i].type == TURB_F32)
      run_cold(bench, &cases[i], i == 0);
    folder_remove(cases[i].path);
    free(cases[i].path);
  }
}

int main(int argc, char **argv) {
  return bench_main(argc, argv, "exact", run);
}
