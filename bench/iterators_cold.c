/* Case (e): a cold scan around the page cache, with large reads in flight and page by page, beside the device and
 * RocksDB (docs/benchmarks.md, "bench/iterators"). A pass opens its tree anew and takes nothing from a cache. */
#include <stdlib.h>
#include <sys/stat.h>

#include "bench/device.h"
#include "bench/iterators.h"

#define RUNS        8u
#define RUN_ENTRIES 100000u
#define DIMENSION   128u
#define BUDGET      (UINT64_C(64) << 20)
#define SHARE_BYTES 1e9 /* operations are gigabytes of tables */

struct cold_case {
  const struct data_set *set;
  const char *folder;
  bool streaming;
  bool huge_pages; /* the device's buffers */
  double gigabytes;
};

static void *same_argument(const void *argument) {
  return (void *)(uintptr_t)argument;
}

static double table_gigabytes(const struct data_set *set, const char *folder) {
  double bytes = 0;
  for (uint32_t run = 0; run < set->runs; run++) {
    char *path = data_path(set, folder, run, 0);
    struct stat info;
    if (stat(path, &info) != 0)
      bench_fail("%s is not there", path);
    bytes += (double)info.st_size;
    free(path);
  }
  return bytes / SHARE_BYTES;
}

/* A world of its own: what the pass before it read is forgotten. */
static void pass_cold(void *argument, uint32_t round, struct sample *sample) {
  const struct cold_case *what = argument;
  struct world *world = world_open(what->set, what->folder, what->set->runs, BUDGET);
  const struct tree_options options = {.runs = what->set->runs, .streaming = what->streaming, .parts = true};
  struct tree tree;
  uint64_t sum = 0;
  struct meter meter;
  (void)round;
  meter_start(&meter);
  tree_open(&tree, world, &options);
  const uint64_t count = walk_tree(&tree, true, true, &sum);
  tree_close(&tree);
  meter_stop(&meter, what->gigabytes, sample);
  if (count != (uint64_t)what->set->runs * what->set->entries)
    bench_fail("a cold scan yielded %.0f entries", (double)count);
}

/* The files one after the other, each as a stream; the best of several ways to ask. */
static void pass_device(void *argument, uint32_t round, struct sample *sample) {
  const struct cold_case *what = argument;
  static const struct { uint32_t request_bytes, depth; } ways[] = {{256u << 10, 8}, {1u << 20, 4}, {1u << 20, 8}};
  double best = 0;
  (void)round;
  for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
    double seconds = 0;
    for (uint32_t run = 0; run < what->set->runs; run++) {
      char *path = data_path(what->set, what->folder, run, 0);
      seconds +=
          what->gigabytes * SHARE_BYTES / what->set->runs / device_sequential(path, ways[i].request_bytes, ways[i].depth, what->huge_pages);
      free(path);
    }
    best = !i || seconds < best ? seconds : best;
  }
  sample->operations = what->gigabytes;
  sample->seconds = best;
}

/* RocksDB's job counts entries and the thread's time: here gigabytes of our tables and the clock's. */
struct cold_rival {
  struct rival_case what;
  double gigabytes;
};

static void *begin_rival(const void *argument) {
  const struct cold_rival *rival = argument;
  return rocksdb_job(&rival->what).begin(&rival->what);
}

/* A pass is given what begin returned, which does not lead back to it; there is one rival in a process. */
static const struct cold_rival *the_rival;

static void pass_rival(void *state, uint32_t round, struct sample *sample) {
  struct meter meter;
  meter_start(&meter);
  rocksdb_job(&the_rival->what).pass(state, round, sample);
  meter_stop(&meter, the_rival->gigabytes, sample);
}

static void print_rows(const struct contest *contest, double entries, double gigabytes) {
  for (size_t i = 0; i < contest->count; i++) {
    row_begin("ns an entry", gigabytes / contest_rate(contest, i) / entries * 1e9, "%s/%s", contest->what, contest->contestants[i].name);
    row_number("gigabytes_per_s", contest_rate(contest, i));
    row_number("cpu_seconds", contest_median(contest, i, offsetof(struct sample, cpu_seconds)));
    row_number("seconds", contest_median(contest, i, offsetof(struct sample, seconds)));
    row_number("rounds", contest->rounds);
    if (contest->contestants[i].job.pass == pass_rival)
      row_text("note", "direct reads, readahead of 2 MiB; Debian's build has no io_uring, so async_io is not there to be turned on");
    row_end();
  }
}

static void target_rows(const struct contest *contest) {
  const struct ratio ratio = contest_ratio_between(contest, 0, walks_find(contest, "device"));
  row_begin("share", ratio.median, "%s: streaming, of the device's sequential bandwidth", contest->what);
  row_number("least", ratio.least);
  row_number("most", ratio.most);
  row_number("rounds", contest->rounds);
  row_target("at least 90 % of the device's sequential bandwidth", ratio.median >= 0.9);
  row_end();
  double shares[CONTEST_MAX_ROUNDS], paced[CONTEST_MAX_ROUNDS];
  const size_t device = walks_find(contest, "device");
  for (uint32_t round = 0; round < contest->rounds; round++) {
    shares[round] = contest->samples[0][round].cpu_seconds / contest->samples[0][round].seconds;
    paced[round] = contest->samples[0][round].cpu_seconds / contest->samples[device][round].seconds;
  }
  const double share = median(shares, contest->rounds);
  row_begin("cores", share, "%s: streaming, CPU seconds a second", contest->what);
  row_number("rounds", contest->rounds);
  row_target("at most a third of a core", share <= 1.0 / 3);
  row_end();
  row_begin("cores", median(paced, contest->rounds), "%s: streaming, CPU seconds a second of the device's", contest->what);
  row_number("rounds", contest->rounds);
  row_end();
  walks_faster_row(contest, "streaming", "not-streaming", 0, NULL);
  walks_faster_row(contest, "streaming", "rocksdb", 0, NULL);
}

void cold_cases(const struct bench_options *bench) {
  static struct data_set set = {"cold", DATA_RANDOM, RUNS, 1, RUN_ENTRIES, DIMENSION};
  if (!bench_wants(bench, "cold"))
    return;
  set.entries = bench->quick ? RUN_ENTRIES / 2 : RUN_ENTRIES;
  data_write(&set, bench->folder, set.runs);
  const struct cold_case streaming = {&set, bench->folder, true, false, table_gigabytes(&set, bench->folder)};
  struct cold_case single = streaming, huge = streaming;
  struct cold_rival rival = {.what = {.set = &set, .runs = set.runs, .touch = true, .direct = true}, .gigabytes = streaming.gigabytes};
  single.streaming = false;
  huge.huge_pages = true;
  struct contest contest;
  walks_init(&contest, bench, "cold/k8", 5);
  contest.fresh = true;
  contest_add(&contest, "streaming", &(struct worker_job){same_argument, pass_cold, NULL, &streaming});
  contest_add(&contest, "device", &(struct worker_job){same_argument, pass_device, NULL, &streaming});
  contest_add(&contest, "device-huge-pages", &(struct worker_job){same_argument, pass_device, NULL, &huge});
  if (!bench->quick) {
    char *folder = path_join(bench->folder, "rocksdb-cold");
    rival.what.folder = folder;
    rival.what.variant = 1; /* large blocks */
    rival.what.entries = (uint64_t)set.runs * set.entries;
    the_rival = &rival;
    rocksdb_build(&rival.what);
    contest_add(&contest, "not-streaming", &(struct worker_job){same_argument, pass_cold, NULL, &single});
    contest_add(&contest, "rocksdb", &(struct worker_job){begin_rival, pass_rival, NULL, &rival});
  }
  contest_run(&contest);
  print_rows(&contest, (double)set.runs * set.entries, streaming.gigabytes);
  target_rows(&contest);
}
