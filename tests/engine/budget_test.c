/* What a database does with little memory: merges take fewer runs at a time, writers wait for them, readers keep their share. */
#include "tests/support/test.h"

static turb_error err = TURB_ERROR_INIT;

struct small {
  turb_simulation *simulation;
  turb_options options;
  turb_db *db;
  turb_collection *c[3];
};

static const struct {
  const char *name;
  uint32_t dimension;
  turb_compression compression;
  uint32_t attribute_bytes;
} shapes[3] = {
    {"plain", 64, TURB_COMPRESSION_NONE, 40}, {"packed", 300, TURB_COMPRESSION_ZSTD, 0}, {"large", 6000, TURB_COMPRESSION_NONE, 3000}};

static void small_open(struct small *s, uint64_t seed, int32_t workers) {
  *s = (struct small){.options = TURB_OPTIONS_INIT};
  turb_simulation_options disk = TURB_SIMULATION_OPTIONS_INIT;
  disk.seed = seed;
  CHECK_OK_ERR(turb_simulation_create(&disk, &s->simulation, &err), &err);
  s->options.backend = TURB_BACKEND_SIMULATED;
  s->options.simulation = s->simulation;
  s->options.memory_budget_bytes = 8u << 20;
  s->options.memtable_bytes = 256u << 10;
  s->options.worker_threads = workers;
  s->options.durability = TURB_LOGGED;
}

static void small_close(struct small *s) {
  CHECK_OK_ERR(turb_close(s->db, &err), &err);
  turb_simulation_free(s->simulation);
}

static void put(struct small *s, size_t c, uint64_t number) {
  static float row[6000];
  static char attribute[3000];
  uint64_t key = __builtin_bswap64(number);
  row[0] = (float)number;
  memset(attribute, (int)number & 0xff, sizeof attribute);
  const turb_bytes attributes = {attribute, shapes[c].attribute_bytes};
  CHECK_OK_ERR(turb_put(s->c[c], (turb_bytes){&key, 8}, (turb_bytes){row, shapes[c].dimension * sizeof(float)}, attributes, NULL, &err),
               &err);
}

static void check_all(struct small *s, size_t c, uint64_t count, bool streaming) {
  turb_iterator_options options = TURB_ITERATOR_OPTIONS_INIT;
  options.streaming = streaming;
  turb_iterator *it;
  CHECK_OK_ERR(turb_iterator_open(s->c[c], &options, &it, &err), &err);
  uint64_t n = 0;
  for (turb_state state = turb_finish(it, turb_first(it)); state == TURB_READY; state = turb_next(it), n++) {
    CHECK_EQ(*(const float *)it->entry->vector.data, (float)n);
    CHECK_EQ(it->entry->attributes.size, shapes[c].attribute_bytes);
  }
  CHECK_OK_ERR(turb_iterator_status(it, &err), &err);
  turb_iterator_close(it);
  CHECK_EQ(n, count);
}

static turb_stats stats_of(turb_db *db) {
  turb_stats stats = {.size = sizeof stats};
  CHECK_OK_ERR(turb_get_stats(db, &stats, &err), &err);
  return stats;
}

static void create(struct small *s, size_t c) {
  turb_collection_options options = TURB_COLLECTION_OPTIONS_INIT;
  options.dimension = shapes[c].dimension;
  options.compression = shapes[c].compression;
  CHECK_OK_ERR(turb_collection_create(s->db, shapes[c].name, &options, &s->c[c], &err), &err);
}

/* Many runs of the three shapes, written and flushed in little memory. */
static void write_many_runs(struct small *s, uint64_t seed, int32_t workers, uint64_t budget_bytes, uint64_t counts[3]) {
  small_open(s, seed, workers);
  s->options.size_ratio = 24; /* the runs pile up */
  s->options.memory_budget_bytes = budget_bytes;
  CHECK_OK_ERR(turb_open("/db", &s->options, &s->db, &err), &err);
  counts[0] = test_scale(30000, 8000, 60000);
  counts[1] = test_scale(6000, 2000, 12000);
  counts[2] = test_scale(120, 50, 240);
  for (size_t c = 0; c < 3; c++) {
    create(s, c);
  }
  for (size_t c = 0; c < 3; c++) {
    for (uint64_t n = 0; n < counts[c]; n++) {
      put(s, c, n);
      bool more;
      if (workers < 0 && n % 100 == 0) {
        CHECK_OK_ERR(turb_maintain(s->db, 2, &more, &err), &err);
      }
    }
  }
  CHECK_OK_ERR(turb_flush(s->db, NULL, &err), &err);
}

/* Large reads of a streaming iterator over many runs leave room for the runs that are read by pages for want of it. */
TEST(budget_of_eight_mib, streams_leave_room_for_pages) {
  struct small s;
  small_open(&s, test_seed(), -1);
  s.options.size_ratio = 64; /* nothing is merged */
  CHECK_OK_ERR(turb_open("/db", &s.options, &s.db, &err), &err);
  create(&s, 2);
  const uint64_t runs = 24, rows_a_run = 6;
  for (uint64_t run = 0; run < runs; run++) {
    for (uint64_t i = 0; i < rows_a_run; i++)
      put(&s, 2, i * runs + run);
    CHECK_OK_ERR(turb_flush(s.db, NULL, &err), &err);
  }
  CHECK_GE(stats_of(s.db).runs, runs);
  for (int i = 0; i < 3; i++) {
    check_all(&s, 2, runs * rows_a_run, true);
    check_all(&s, 2, runs * rows_a_run, false);
  }
  small_close(&s);
}

/* Iterators at their first entries: they keep the runs of now, and pages of them. */
static turb_status hold(struct small *s, turb_iterator *held[3]) {
  turb_status status = TURB_OK;
  for (size_t c = 0; c < 3; c++) {
    CHECK_OK_ERR(turb_iterator_open(s->c[c], NULL, &held[c], &err), &err);
    if (turb_finish(held[c], turb_first(held[c])) != TURB_READY && status == TURB_OK) {
      status = turb_iterator_status(held[c], &err);
    }
  }
  return status;
}

static void let_go(turb_iterator *held[3]) {
  for (size_t c = 0; c < 3; c++) {
    turb_iterator_close(held[c]);
  }
}

static void check_merged(struct small *s, const uint64_t counts[3]) {
  CHECK_EQ(stats_of(s->db).runs, 3);
  for (size_t c = 0; c < 3; c++) {
    check_all(s, c, counts[c], false);
    check_all(s, c, counts[c], true);
  }
  const turb_stats stats = stats_of(s->db);
  CHECK_LE(stats.memory_peak_bytes, stats.memory_budget_bytes);
}

TEST(budget_of_eight_mib, merges_and_readers_get_on) {
  const uint64_t seed = test_seed();
  for (int32_t workers = -1; workers <= 1; workers += 2) {
    struct small s;
    uint64_t counts[3];
    write_many_runs(&s, seed, workers, 8u << 20, counts);
    for (size_t c = 0; c < 3; c++) {
      check_all(&s, c, counts[c], false);
    }
    CHECK_OK_ERR(turb_compact(s.db, NULL, &err), &err);
    CHECK_EQ(stats_of(s.db).merges_failed, 0);
    check_merged(&s, counts);
    small_close(&s);
  }
}

TEST(budget_of_sixteen_mib, also_while_iterators_hold_old_runs) {
  const uint64_t seed = test_seed();
  for (int32_t workers = -1; workers <= 1; workers += 2) {
    struct small s;
    uint64_t counts[3];
    turb_iterator *held[3];
    write_many_runs(&s, seed, workers, 16u << 20, counts);
    CHECK_OK_ERR(hold(&s, held), &err);
    CHECK_OK_ERR(turb_compact(s.db, NULL, &err), &err);
    CHECK_EQ(stats_of(s.db).merges_failed, 0);
    check_merged(&s, counts);
    let_go(held);
    small_close(&s);
  }
}

/* Too little: the iterators or the merges may be told so, at once. What they let go is enough for all then. */
TEST_TIMEOUT(budget_of_eight_mib, is_short_beside_iterators_that_hold_old_runs, 120) {
  const uint64_t seed = test_seed();
  for (uint64_t round = 0; round < test_scale(3, 2, 10); round++) {
    struct small s;
    uint64_t counts[3];
    turb_iterator *held[3];
    write_many_runs(&s, seed + round, 1, 8u << 20, counts);
    turb_status status = hold(&s, held);
    CHECK_MSG(status == TURB_OK || status == TURB_BUDGET, "%s", err.message);
    status = turb_compact(s.db, NULL, &err);
    CHECK_MSG(status == TURB_OK || status == TURB_BUDGET, "%s", err.message);
    let_go(held);
    CHECK_OK_ERR(turb_compact(s.db, NULL, &err), &err);
    check_merged(&s, counts);
    small_close(&s);
  }
}

/* Nobody merges but the writers, when they must: the runs stay few. */
TEST(budget_of_eight_mib, writers_wait_when_runs_pile_up) {
  struct small s;
  small_open(&s, test_seed(), -1);
  s.options.size_ratio = 2;
  CHECK_OK_ERR(turb_open("/db", &s.options, &s.db, &err), &err);
  create(&s, 0);
  uint64_t most = 0;
  const uint64_t count = test_scale(100000, 80000, 200000);
  for (uint64_t n = 0; n < count; n++) {
    put(&s, 0, n);
    if (n % 100 == 0) {
      const turb_stats stats = stats_of(s.db);
      most = stats.runs > most ? stats.runs : most;
      CHECK_EQ(stats.stalls > 0, stats.merges > 0);
    }
  }
  CHECK_GE(most, 72); /* 4 x size_ratio + 64 */
  CHECK_LE(most, 76); /* those that were sealed by then */
  CHECK_GT(stats_of(s.db).merges, 0);
  check_all(&s, 0, count, false);
  small_close(&s);
}

/* A log that was written with much memory is replayed with little. */
TEST(budget_of_eight_mib, recovery_flushes_what_does_not_fit) {
  struct small s;
  small_open(&s, test_seed(), -1);
  s.options.memory_budget_bytes = 256u << 20;
  s.options.memtable_bytes = 32u << 20;
  CHECK_OK_ERR(turb_open("/db", &s.options, &s.db, &err), &err);
  for (size_t c = 0; c < 3; c++) {
    create(&s, c);
  }
  static const uint64_t counts[3] = {6000, 2000, 60};
  for (uint64_t n = 0; n < 6000; n++) {
    for (size_t c = 0; c < 3; c++) {
      if (n < counts[c]) {
        put(&s, c, n);
      }
    }
  }
  CHECK_OK_ERR(turb_close(s.db, &err), &err);
  s.options.memory_budget_bytes = 8u << 20;
  CHECK_OK_ERR(turb_open("/db", &s.options, &s.db, &err), &err);
  for (size_t c = 0; c < 3; c++) {
    CHECK_OK_ERR(turb_collection_open(s.db, shapes[c].name, &s.c[c], &err), &err);
    check_all(&s, c, counts[c], false);
  }
  CHECK_GT(stats_of(s.db).flushes, 0);
  small_close(&s);
}
