/* The calls that take care of a database: statistics, the list of runs, verify, checkpoint, dump. */
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/engine/sim_world.h"
#include "tests/support/allocator.h"
#include "tests/support/test.h"

static turb_error err = TURB_ERROR_INIT;

#define ROWS 300u

struct care {
  turb_simulation *simulation; /* NULL: a real disk */
  turb_options options;
  const char *path;
  turb_db *db;
  turb_collection *c;
};

static void open_again(struct care *w) {
  CHECK_OK_ERR(turb_open(w->path, &w->options, &w->db, &err), &err);
  CHECK_OK_ERR(turb_collection_open(w->db, "c", &w->c, &err), &err);
}

static void put(struct care *w, uint32_t number, float value, turb_durability durability) {
  char key[16];
  float row[4] = {value, 1, 2, 3};
  turb_write_options options = TURB_WRITE_OPTIONS_INIT;
  options.durability = durability;
  const int size = snprintf(key, sizeof key, "k%05u", number);
  CHECK_OK_ERR(turb_put(w->c, (turb_bytes){key, (size_t)size}, (turb_bytes){row, sizeof row}, TURB_STR("attributes"), &options, &err),
               &err);
}

/* Rows in two runs and a memtable, with a delete and a range delete. */
static void care_open(struct care *w, bool simulated) {
  *w = (struct care){.path = simulated ? "/db" : test_path(test_tmpdir(), "db")};
  w->options = (turb_options)TURB_OPTIONS_INIT;
  w->options.memory_budget_bytes = 16u << 20;
  w->options.memtable_bytes = 256u << 10;
  w->options.worker_threads = -1;
  if (simulated) {
    turb_simulation_options disk = TURB_SIMULATION_OPTIONS_INIT;
    disk.seed = test_seed();
    CHECK_OK_ERR(turb_simulation_create(&disk, &w->simulation, &err), &err);
    w->options.backend = TURB_BACKEND_SIMULATED;
    w->options.simulation = w->simulation;
  }
  turb_collection_options shape = TURB_COLLECTION_OPTIONS_INIT;
  shape.dimension = 4;
  CHECK_OK_ERR(turb_open(w->path, &w->options, &w->db, &err), &err);
  CHECK_OK_ERR(turb_collection_create(w->db, "c", &shape, &w->c, &err), &err);
  for (uint32_t i = 0; i < ROWS; i++) {
    put(w, i, (float)i, TURB_LOGGED);
    if (i == 150)
      CHECK_OK_ERR(turb_delete(w->c, TURB_STR("k00050"), NULL, &err), &err);
    if (i == 150)
      CHECK_OK_ERR(turb_delete_range(w->c, TURB_STR("k00010"), TURB_STR("k00020"), NULL, &err), &err);
    if (i == 120 || i == 200)
      CHECK_OK_ERR(turb_flush(w->db, w->c, &err), &err);
  }
}

static void care_close(struct care *w) {
  CHECK_OK_ERR(turb_close(w->db, &err), &err);
  turb_simulation_free(w->simulation);
}

/* Everything that care_open wrote is in the database. */
static void check_rows(turb_collection *c) {
  turb_iterator *iterator;
  CHECK_OK_ERR(turb_iterator_open(c, NULL, &iterator, &err), &err);
  uint32_t count = 0;
  for (turb_state state = turb_finish(iterator, turb_first(iterator)); state == TURB_READY; state = turb_next(iterator), count++) {
    const float *row = iterator->entry->vector.data;
    char key[16];
    (void)snprintf(key, sizeof key, "%.*s", (int)iterator->entry->key.size, (const char *)iterator->entry->key.data);
    CHECK_EQ((uint32_t)row[0], (uint32_t)strtoul(key + 1, NULL, 10));
  }
  CHECK_OK_ERR(turb_iterator_status(iterator, &err), &err);
  turb_iterator_close(iterator);
  CHECK_EQ(count, ROWS - 11);
}

/* ---- statistics ---- */

static turb_stats stats_of(const struct care *w) {
  turb_stats stats = {.size = sizeof stats};
  CHECK_OK_ERR(turb_get_stats(w->db, &stats, &err), &err);
  CHECK_EQ(stats.size, sizeof stats);
  return stats;
}

TEST(stats, sizes_agree_with_the_disk) {
  struct care w;
  care_open(&w, false);
  const turb_stats stats = stats_of(&w);
  char command[512];
  (void)snprintf(command, sizeof command, "du -B1 -a '%s' | awk -v top='%s' '$2 != top { all += $1 } END { print all }'", w.path, w.path);
  FILE *du = popen(command, "r");
  unsigned long long blocks = 0;
  CHECK_EQ(fscanf(du, "%llu", &blocks), 1);
  CHECK_EQ(pclose(du), 0);
  CHECK_EQ(stats.disk_bytes, blocks);
  CHECK_EQ(stats.tables, 2);
  CHECK_EQ(stats.runs, 2);
  CHECK_GT(stats.table_bytes, 2 * 4096);
  CHECK_GT(stats.log_bytes, 0);
  CHECK_GT(stats.memtables, 0);
  CHECK_GT(stats.memtable_bytes, 0);
  CHECK_EQ(stats.last_sequence, ROWS + 2);
  CHECK_LE(stats.durable_sequence, stats.last_sequence);
  CHECK_EQ(stats.flushes, 2);
  CHECK_GE(stats.flush_bytes_written, stats.table_bytes);
  CHECK_EQ(stats.user_bytes_written, ROWS * (6 + 16 + 10) + 2 * 6);
  CHECK_GT(stats.log_bytes_written, stats.user_bytes_written);
  CHECK_EQ(stats.write_groups, ROWS + 2);
  CHECK_GE(stats.memory_peak_bytes, stats.memory_used_bytes);
  CHECK_EQ(stats.memory_budget_bytes, 16u << 20);
  CHECK_LE(stats.memory_peak_bytes, stats.memory_budget_bytes);
  CHECK(!stats.read_only && !stats.paused);
  care_close(&w);
}

TEST(stats, readers_and_what_they_keep) {
  struct care w;
  care_open(&w, false);
  CHECK_EQ(stats_of(&w).oldest_iterator_age_ms, 0);
  turb_snapshot *snapshot;
  turb_iterator *iterator, *second;
  CHECK_OK_ERR(turb_snapshot_create(w.db, &snapshot, &err), &err);
  CHECK_OK_ERR(turb_iterator_open(w.c, NULL, &iterator, &err), &err);
  CHECK_EQ(turb_finish(iterator, turb_first(iterator)), TURB_READY);
  (void)usleep(30000);
  CHECK_OK_ERR(turb_iterator_open(w.c, NULL, &second, &err), &err);
  turb_stats stats = stats_of(&w);
  CHECK_EQ(stats.snapshots, 1);
  CHECK_EQ(stats.iterators, 2);
  CHECK_GE(stats.oldest_snapshot_age_ms, 30);
  CHECK_GE(stats.oldest_iterator_age_ms, 30);
  CHECK_EQ(stats.obsolete_tables, 0);
  turb_iterator_close(second);
  CHECK_OK_ERR(turb_compact(w.db, w.c, &err), &err);
  stats = stats_of(&w);
  CHECK_EQ(stats.runs, 1);
  CHECK_EQ(stats.merges, 1);
  CHECK_EQ(stats.obsolete_tables, 2); /* those of the iterator's version */
  const uint64_t kept = stats.disk_bytes;
  turb_iterator_close(iterator);
  stats = stats_of(&w);
  CHECK_EQ(stats.obsolete_tables, 0);
  CHECK_EQ(stats.iterators, 0);
  CHECK_LT(stats.disk_bytes, kept);
  turb_snapshot_release(snapshot);
  CHECK_EQ(stats_of(&w).oldest_snapshot_age_ms, 0);
  CHECK_EQ(stats_of(&w).snapshots, 0);
  care_close(&w);
}

TEST(stats, reads_and_the_cache) {
  struct care w;
  care_open(&w, true);
  CHECK_OK_ERR(turb_flush(w.db, NULL, &err), &err);
  CHECK_OK_ERR(turb_close(w.db, &err), &err);
  open_again(&w);
  const turb_stats before = stats_of(&w);
  CHECK_EQ(before.backend, TURB_BACKEND_SIMULATED);
  CHECK(!before.backend_fell_back);
  float row[4];
  CHECK_OK_ERR(turb_get(w.c, TURB_STR("k00003"), NULL, row, NULL, 0, NULL, NULL, &err), &err);
  CHECK_OK_ERR(turb_get(w.c, TURB_STR("k00003"), NULL, row, NULL, 0, NULL, NULL, &err), &err);
  const turb_stats after = stats_of(&w);
  CHECK_GT(after.reads, before.reads);
  CHECK_GT(after.read_bytes, before.read_bytes);
  CHECK_GT(after.submissions, before.submissions);
  CHECK_GT(after.cache_hits, before.cache_hits);
  CHECK_GT(after.cache_misses, before.cache_misses);
  CHECK_GT(after.cache_bytes, 0);
  care_close(&w);
}

TEST(stats, older_callers_get_what_they_know) {
  struct care w;
  care_open(&w, true);
  struct {
    turb_stats stats;
    uint64_t behind;
  } larger = {.stats = {.size = sizeof larger}, .behind = 7};
  CHECK_OK_ERR(turb_get_stats(w.db, &larger.stats, &err), &err);
  CHECK_EQ(larger.behind, 0);
  turb_stats small = {.size = offsetof(turb_stats, read_only), .tables = 77};
  CHECK_OK_ERR(turb_get_stats(w.db, &small, &err), &err);
  CHECK_EQ(small.tables, 77);
  small.size = 0;
  CHECK_STATUS(turb_get_stats(w.db, &small, NULL), TURB_INVALID);
  care_close(&w);
}

/* ---- the tree ---- */

struct runs {
  turb_run_info list[8];
  uint32_t count, most;
};

static bool take_run(void *context, const turb_run_info *run) {
  struct runs *runs = context;
  runs->list[runs->count++] = *run;
  return runs->count < runs->most;
}

TEST(runs, newest_first) {
  struct care w;
  care_open(&w, true);
  struct runs runs = {.most = 8};
  CHECK_OK_ERR(turb_list_runs(w.c, take_run, &runs, &err), &err);
  CHECK_EQ(runs.count, 2);
  CHECK_EQ(runs.list[1].first_sequence, 1);
  CHECK_EQ(runs.list[1].last_sequence, 121);
  CHECK_EQ(runs.list[1].entries, 121);
  CHECK_EQ(runs.list[0].entries, 81);
  CHECK_EQ(runs.list[0].first_sequence, 122);
  CHECK_EQ(runs.list[0].last_sequence, 203);
  for (uint32_t i = 0; i < 2; i++) {
    CHECK_EQ(runs.list[i].tables, 1);
    CHECK_GT(runs.list[i].bytes, 4096);
    CHECK_GT(runs.list[i].collection, 0);
  }
  runs = (struct runs){.most = 1};
  CHECK_OK_ERR(turb_list_runs(w.c, take_run, &runs, &err), &err);
  CHECK_EQ(runs.count, 1);
  care_close(&w);
}

/* ---- verify ---- */

struct problems {
  uint64_t count;
  turb_error first;
};

static void take_problem(void *context, const turb_error *problem) {
  struct problems *problems = context;
  if (!problems->count++)
    problems->first = *problem;
}

TEST(verify, a_sound_database) {
  struct care w;
  care_open(&w, true);
  struct problems problems = {0};
  turb_verify_report report = {.size = sizeof report};
  CHECK_OK_ERR(turb_verify(w.db, take_problem, &problems, &report, &err), &err);
  CHECK_EQ(report.problems, 0);
  CHECK_EQ(problems.count, 0);
  CHECK_EQ(report.files, 4); /* manifest, two tables, the log */
  CHECK_GE(report.entries, ROWS);
  CHECK_GT(report.bytes, 3 * 8192);
  CHECK_OK_ERR(turb_verify(w.db, NULL, NULL, NULL, &err), &err);
  put(&w, 1, 1, TURB_DURABLE);
  CHECK_OK_ERR(turb_compact(w.db, w.c, &err), &err);
  CHECK_OK_ERR(turb_verify(w.db, NULL, NULL, NULL, &err), &err);
  CHECK_OK_ERR(turb_close(w.db, &err), &err);
  open_again(&w);
  CHECK_OK_ERR(turb_verify(w.db, NULL, NULL, NULL, &err), &err);
  CHECK_OK_ERR(turb_close(w.db, &err), &err);
  w.options.read_only = true;
  open_again(&w);
  CHECK_OK_ERR(turb_verify(w.db, NULL, NULL, NULL, &err), &err);
  care_close(&w);
}

struct found_file {
  const char *part;
  char path[256];
  uint64_t size;
};

static void find_file(void *context, const char *path, uint64_t size) {
  struct found_file *found = context;
  if (strstr(path, found->part)) {
    (void)snprintf(found->path, sizeof found->path, "%s", path);
    found->size = size;
  }
}

static struct found_file find(const struct care *w, const char *part) {
  struct found_file found = {.part = part};
  turb_simulation_list(w->simulation, find_file, &found);
  CHECK_MSG(found.size > 0, "no file has %s in its name", part);
  return found;
}

/* While the database is open: what it has in memory is sound, what a reader would find is not. */
static void check_flips(const struct care *w, const char *part, uint64_t begin, uint64_t end, uint64_t step) {
  const struct found_file file = find(w, part);
  end = end < file.size ? end : file.size;
  CHECK_LT(begin, end);
  uint64_t flips = 0;
  for (uint64_t at = begin; at < end; at += step, flips++) {
    const uint32_t bit = (uint32_t)(at / 3 % 8);
    CHECK_OK_ERR(turb_simulation_flip_bit(w->simulation, file.path, at, bit, &err), &err);
    struct problems problems = {0};
    turb_verify_report report = {.size = sizeof report};
    turb_error why = TURB_ERROR_INIT;
    const turb_status status = turb_verify(w->db, take_problem, &problems, &report, &why);
    CHECK_MSG(status == TURB_CORRUPTION, "bit %u of byte %llu of %s went unnoticed: %s", bit, (unsigned long long)at, file.path,
              turb_status_name(status));
    CHECK_GE(report.problems, 1);
    CHECK_EQ(problems.count, report.problems);
    CHECK(test_contains(problems.first.file, strrchr(file.path, '/')));
    CHECK_OK_ERR(turb_simulation_flip_bit(w->simulation, file.path, at, bit, &err), &err);
  }
  CHECK_GT(flips, 15);
  CHECK_OK_ERR(turb_verify(w->db, NULL, NULL, NULL, &err), &err);
}

TEST(verify, finds_every_flipped_bit_of_a_table) {
  struct care w;
  care_open(&w, true);
  check_flips(&w, ".tbl", 0, UINT64_MAX, test_scale(331, 997, 17));
  care_close(&w);
}

TEST(verify, finds_every_flipped_bit_of_the_manifest) {
  struct care w;
  care_open(&w, true);
  check_flips(&w, "MANIFEST", 0, UINT64_MAX, test_scale(67, 211, 5));
  care_close(&w);
}

/* The staging area holds copies, and what is reserved behind the records nothing. */
TEST(verify, finds_every_flipped_bit_of_a_log) {
  struct care w;
  care_open(&w, true);
  CHECK_OK_ERR(turb_sync(w.db, &err), &err);
  size_t size;
  struct sim_world world = {.simulation = w.simulation};
  const struct io_system_options options = {.backend = TURB_BACKEND_SIMULATED, .simulation = w.simulation};
  CHECK_OK_ERR(io_system_open(&options, &world.system, &err), &err);
  uint8_t *bytes = sim_world_load(&world, find(&w, ".tlog").path, &size);
  uint64_t first, end = size;
  while (end > 4096 && !bytes[end - 1])
    end--;
  for (first = 4096; first < end && !bytes[first]; first++)
    ;
  free(bytes);
  io_system_close(world.system);
  check_flips(&w, ".tlog", 0, 4096, test_scale(41, 131, 3)); /* page 0 */
  check_flips(&w, ".tlog", first, end, test_scale(199, 499, 7));
  care_close(&w);
}

TEST(verify, goes_on_after_a_problem) {
  struct care w;
  care_open(&w, true);
  CHECK_OK_ERR(turb_simulation_flip_bit(w.simulation, find(&w, ".tbl").path, 4100, 0, &err), &err);
  CHECK_OK_ERR(turb_simulation_flip_bit(w.simulation, find(&w, "MANIFEST").path, 4200, 0, &err), &err);
  struct problems problems = {0};
  turb_verify_report report = {.size = sizeof report};
  CHECK_STATUS(turb_verify(w.db, take_problem, &problems, &report, NULL), TURB_CORRUPTION);
  CHECK_GE(problems.count, 2);
  CHECK_EQ(report.files, 4);
  CHECK_OK_ERR(turb_simulation_truncate(w.simulation, find(&w, ".tbl").path, 8192, &err), &err);
  CHECK_STATUS(turb_verify(w.db, take_problem, &problems, &report, NULL), TURB_CORRUPTION);
  care_close(&w);
}

/* ---- checkpoint ---- */

static void check_copy(const struct care *w, const char *path) {
  turb_db *copy;
  turb_collection *c;
  turb_error why = TURB_ERROR_INIT;
  CHECK_OK_ERR(turb_open(path, &w->options, &copy, &why), &why);
  CHECK_OK_ERR(turb_collection_open(copy, "c", &c, &why), &why);
  check_rows(c);
  CHECK_OK_ERR(turb_verify(copy, NULL, NULL, NULL, &why), &why);
  CHECK_OK_ERR(turb_put(c, TURB_STR("k00007"), (turb_bytes){(float[4]){7}, 16}, TURB_NONE, NULL, &why), &why);
  CHECK_OK_ERR(turb_compact(copy, c, &why), &why);
  check_rows(c);
  CHECK_OK_ERR(turb_close(copy, &why), &why);
}

TEST(checkpoint, opens_as_a_database) {
  struct care w;
  care_open(&w, false);
  char copy[256], link[300];
  (void)snprintf(copy, sizeof copy, "%s", test_path(test_tmpdir(), "copy"));
  CHECK_OK_ERR(turb_checkpoint(w.db, copy, &err), &err);
  turb_error why = TURB_ERROR_INIT;
  CHECK_STATUS(turb_checkpoint(w.db, copy, &why), TURB_EXISTS);
  CHECK_STATUS(turb_checkpoint(w.db, "", NULL), TURB_INVALID);
  (void)snprintf(link, sizeof link, "%s/table-000000000003.tbl", copy);
  struct stat status;
  CHECK_EQ(stat(link, &status), 0);
  CHECK_EQ(status.st_nlink, 2);
  /* What is written afterwards is not in it, nor what is written to it here. */
  put(&w, ROWS, (float)ROWS, TURB_DURABLE);
  check_copy(&w, copy);
  CHECK_OK_ERR(turb_delete(w.c, TURB_STR("k00300"), NULL, &err), &err);
  check_rows(w.c);
  CHECK_OK_ERR(turb_verify(w.db, NULL, NULL, NULL, &err), &err);
  care_close(&w);
}

TEST(checkpoint, holds_what_no_log_has) {
  struct care w;
  care_open(&w, true);
  put(&w, 50, 50, TURB_UNLOGGED);
  CHECK_OK_ERR(
      turb_delete(w.c, TURB_STR("k00050"), &(turb_write_options){.size = sizeof(turb_write_options), .durability = TURB_UNLOGGED}, &err),
      &err);
  put(&w, 60, 60, TURB_UNLOGGED);
  CHECK_OK_ERR(turb_checkpoint(w.db, "/copy", &err), &err);
  check_copy(&w, "/copy");
  care_close(&w);
}

TEST(checkpoint, of_a_database_that_is_open_for_reading) {
  struct care w;
  care_open(&w, true);
  CHECK_OK_ERR(turb_close(w.db, &err), &err);
  w.options.read_only = true;
  open_again(&w);
  CHECK_OK_ERR(turb_checkpoint(w.db, "/copy", &err), &err);
  CHECK_OK_ERR(turb_close(w.db, &err), &err);
  w.options.read_only = false;
  check_copy(&w, "/copy");
  open_again(&w); /* the original is as it was */
  check_rows(w.c);
  CHECK_OK_ERR(turb_verify(w.db, NULL, NULL, NULL, &err), &err);
  care_close(&w);
}

static void count_copies(void *context, const char *path, uint64_t size) {
  (void)size;
  *(uint64_t *)context += strncmp(path, "/copy", 5) == 0 || strncmp(path, "copy", 4) == 0;
}

TEST(checkpoint, fails_without_leaving_anything) {
  struct care w;
  care_open(&w, true);
  uint64_t failures = 0;
  for (uint64_t at = 1;; at++) {
    const uint64_t begin = turb_simulation_operations(w.simulation);
    turb_simulation_fail_at(w.simulation, begin + at, ENOSPC);
    turb_error why = TURB_ERROR_INIT;
    const turb_status status = turb_checkpoint(w.db, "/copy", &why);
    const bool reached = turb_simulation_operations(w.simulation) - begin >= at;
    turb_simulation_fail_at(w.simulation, 0, 0);
    if (status == TURB_OK && !reached)
      break;
    if (status != TURB_OK) {
      uint64_t copies = 0;
      failures++;
      turb_simulation_list(w.simulation, count_copies, &copies);
      CHECK_MSG(copies == 0, "after a failure of operation %llu %llu files are left", (unsigned long long)at, (unsigned long long)copies);
      (void)!turb_close(w.db, NULL); /* it may have been the last sync of the log */
      open_again(&w);
      CHECK_OK_ERR(turb_compact(w.db, w.c, &err), &err); /* as many files in each round */
      put(&w, 1, 1, TURB_LOGGED);
      continue;
    }
    CHECK_MSG(false, "operation %llu failed, and the checkpoint did not", (unsigned long long)at);
  }
  CHECK_GT(failures, 8);
  check_copy(&w, "/copy");
  care_close(&w);
}

/* Writes, flushes and merges go on while checkpoints are taken; each opens. */
TEST(checkpoint, while_work_goes_on) {
  struct care w;
  care_open(&w, true);
  for (uint32_t round = 0; round < test_scale(6, 4, 60); round++) {
    for (uint32_t i = 0; i < 40; i++)
      put(&w, 21 + (round * 40 + i) % 29, (float)(21 + (round * 40 + i) % 29), i % 7 ? TURB_LOGGED : TURB_DURABLE);
    char copy[32];
    (void)snprintf(copy, sizeof copy, "/copy%u", round);
    CHECK_OK_ERR(turb_checkpoint(w.db, copy, &err), &err);
    if (round % 2)
      CHECK_OK_ERR(turb_flush(w.db, w.c, &err), &err);
    if (round % 4 == 3)
      CHECK_OK_ERR(turb_compact(w.db, w.c, &err), &err);
  }
  for (uint32_t round = 0; round < test_scale(6, 4, 60); round++) {
    char copy[32];
    (void)snprintf(copy, sizeof copy, "/copy%u", round);
    check_copy(&w, copy);
  }
  care_close(&w);
}

/* ---- without memory ---- */

static void count_manifests(void *context, const char *path, uint64_t size) {
  (void)size;
  *(uint64_t *)context += strstr(path, "copy") && strstr(path, "MANIFEST");
}

static turb_status take_care(const struct care *w, const char *copy, turb_error *why) {
  turb_stats stats = {.size = sizeof stats};
  struct runs runs = {.most = 8};
  turb_status status = turb_get_stats(w->db, &stats, why);
  if (status == TURB_OK)
    status = turb_list_runs(w->c, take_run, &runs, why);
  if (status == TURB_OK)
    status = turb_verify(w->db, NULL, NULL, NULL, why);
  return status == TURB_OK ? turb_checkpoint(w->db, copy, why) : status;
}

TEST(care, every_allocation_fails_once) {
  struct care w;
  struct test_allocator allocator;
  care_open(&w, true);
  CHECK_OK_ERR(turb_close(w.db, &err), &err);
  test_allocator_init(&allocator);
  w.options.allocator = &allocator.base;
  uint64_t failures = 0, tolerated = 0;
  for (uint64_t at = 1;; at++) {
    open_again(&w);
    CHECK_OK_ERR(turb_compact(w.db, w.c, &err), &err);
    put(&w, 1, 1, TURB_LOGGED);
    turb_error why = TURB_ERROR_INIT;
    test_allocator_fail_at(&allocator, at);
    char copy[32];
    (void)snprintf(copy, sizeof copy, "/copy%llu", (unsigned long long)tolerated);
    const turb_status status = take_care(&w, copy, &why);
    const bool failed = allocator.failed;
    test_allocator_fail_at(&allocator, 0);
    if (status != TURB_OK) {
      failures++;
      CHECK_MSG(status == TURB_NO_MEMORY || status == TURB_BUDGET, "%s: %s", turb_status_name(status), why.message);
    }
    tolerated += status == TURB_OK; /* the cache makes do with what it has */
    uint64_t copies = 0;
    turb_simulation_list(w.simulation, count_manifests, &copies);
    CHECK_EQ(copies, tolerated);
    CHECK_OK_ERR(turb_close(w.db, &err), &err);
    test_allocator_check_empty(&allocator);
    if (!failed)
      break;
  }
  CHECK_GT(failures, 20);
  CHECK_LT(tolerated, 10);
  for (uint64_t i = 0; i < tolerated; i++) {
    char copy[32];
    (void)snprintf(copy, sizeof copy, "/copy%llu", (unsigned long long)i);
    check_copy(&w, copy);
  }
  turb_simulation_free(w.simulation);
}

/* ---- dump ---- */

struct dumped {
  uint32_t lines, most, puts, deletes, tunings;
  bool json;
  char first[512], last[512];
};

static bool take_line(void *context, const char *text) {
  struct dumped *dumped = context;
  CHECK(strchr(text, '\n') == NULL);
  if (dumped->json) {
    CHECK(text[0] == '{');
    CHECK(text[strlen(text) - 1] == '}');
  }
  if (!dumped->lines++)
    (void)snprintf(dumped->first, sizeof dumped->first, "%s", text);
  (void)snprintf(dumped->last, sizeof dumped->last, "%s", text);
  dumped->puts += strncmp(text, dumped->json ? "{\"line\":\"put\"" : "put ", dumped->json ? 13 : 4) == 0;
  dumped->deletes += strncmp(text, dumped->json ? "{\"line\":\"delete\"" : "delete ", dumped->json ? 16 : 7) == 0;
  dumped->tunings += test_contains(text, "compaction") && test_contains(text, "ttl_s") && test_contains(text, "3600");
  return dumped->lines != dumped->most;
}

static struct dumped dump(const char *path, turb_dump_format format, uint32_t most) {
  struct dumped dumped = {.most = most, .json = format == TURB_DUMP_JSON};
  CHECK_OK_ERR(turb_dump_file(path, format, take_line, &dumped, &err), &err);
  return dumped;
}

TEST(dump, tells_files_apart_by_content) {
  struct care w;
  care_open(&w, false);
  char table[300], manifest[300], log[300], renamed[300];
  (void)snprintf(table, sizeof table, "%s/table-000000000003.tbl", w.path);
  (void)snprintf(manifest, sizeof manifest, "%s/MANIFEST", w.path);
  (void)snprintf(log, sizeof log, "%s", test_path(test_tmpdir(), "renamed"));
  turb_compaction_options fifo = TURB_COMPACTION_OPTIONS_INIT;
  fifo.policy = TURB_COMPACTION_FIFO;
  fifo.ttl_s = 3600;
  CHECK_OK_ERR(turb_collection_set_compaction(w.c, &fifo, &err), &err);
  CHECK_OK_ERR(turb_close(w.db, &err), &err);
  char command[1024];
  (void)snprintf(command, sizeof command, "for f in '%s'/*.tlog; do cp $f '%s'; break; done", w.path, log);
  CHECK_EQ(system(command), 0);
  for (int format = TURB_DUMP_TEXT; format <= TURB_DUMP_JSON; format++) {
    struct dumped dumped = dump(table, (turb_dump_format)format, 0);
    CHECK_EQ(dumped.puts, 121);
    CHECK_EQ(dumped.deletes, 0);
    CHECK(test_contains(dumped.first, "f32") && test_contains(dumped.first, "l2"));
    dumped = dump(log, (turb_dump_format)format, 0); /* the rows behind the last flush */
    CHECK_EQ(dumped.puts, ROWS - 201);
    CHECK(test_contains(dumped.first, "number"));
    CHECK(test_contains(dumped.last, "recovered"));
    dumped = dump(manifest, (turb_dump_format)format, 0);
    CHECK(test_contains(dumped.first, "edition"));
    CHECK_GT(dumped.lines, 8);
    CHECK_EQ(dumped.tunings, 1);
    CHECK_EQ(dump(table, (turb_dump_format)format, 3).lines, 3); /* a `false` ends it */
    CHECK_EQ(dump(log, (turb_dump_format)format, 2).lines, 2);
    CHECK_EQ(dump(manifest, (turb_dump_format)format, 4).lines, 4);
  }
  struct dumped dumped = {0};
  turb_error why = TURB_ERROR_INIT;
  CHECK_STATUS(turb_dump_file(test_path(test_tmpdir(), "none"), TURB_DUMP_TEXT, take_line, &dumped, &why), TURB_NOT_FOUND);
  (void)snprintf(renamed, sizeof renamed, "%s", test_path(test_tmpdir(), "strange"));
  FILE *strange = fopen(renamed, "w");
  CHECK(fputs("neither table nor log nor manifest\n", strange) >= 0);
  CHECK_EQ(fclose(strange), 0);
  why = (turb_error)TURB_ERROR_INIT;
  CHECK_STATUS(turb_dump_file(renamed, TURB_DUMP_TEXT, take_line, &dumped, &why), TURB_NOT_A_DATABASE);
  CHECK_STR_EQ(why.file, renamed);
  CHECK_STATUS(turb_dump_file("", TURB_DUMP_TEXT, take_line, &dumped, NULL), TURB_INVALID);
  CHECK_STATUS(turb_dump_file(table, (turb_dump_format)9, take_line, &dumped, NULL), TURB_INVALID);
}

/* Flips one byte of a file at a time: what verifies is shown, then an error names the file. Never a crash. */
TEST(dump, of_damaged_files) {
  struct care w;
  care_open(&w, false);
  char table[300], damaged[300];
  (void)snprintf(table, sizeof table, "%s/table-000000000003.tbl", w.path);
  (void)snprintf(damaged, sizeof damaged, "%s", test_path(test_tmpdir(), "damaged"));
  CHECK_OK_ERR(turb_close(w.db, &err), &err);
  static uint8_t bytes[1 << 20];
  FILE *file = fopen(table, "r");
  const size_t size = fread(bytes, 1, sizeof bytes, file);
  CHECK_EQ(fclose(file), 0);
  uint32_t errors = 0;
  for (size_t at = 0; at < size; at += test_scale(509, 1009, 101)) {
    bytes[at] ^= 0x10;
    file = fopen(damaged, "w");
    CHECK_EQ(fwrite(bytes, 1, at % 2 ? size : size - size / 7, file), at % 2 ? size : size - size / 7);
    CHECK_EQ(fclose(file), 0);
    bytes[at] ^= 0x10;
    struct dumped dumped = {0};
    turb_error why = TURB_ERROR_INIT;
    const turb_status status = turb_dump_file(damaged, TURB_DUMP_TEXT, take_line, &dumped, &why);
    errors += status != TURB_OK;
    if (status != TURB_OK)
      CHECK_STR_EQ(why.file, damaged);
  }
  CHECK_GT(errors, 5);
}
