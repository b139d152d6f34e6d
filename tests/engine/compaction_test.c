/* How a collection's runs are merged, as its options say: what is refused, what stays after a reopen, a change at run time, and the drops of
 * FIFO under readers. */
#include <errno.h>
#include <unistd.h>

#include "base/thread.h"
#include "engine/db.h"
#include "tests/engine/sim_world.h"
#include "tests/support/test.h"

static turb_error err = TURB_ERROR_INIT;

#define DIMENSION 64u
#define RUN_ROWS  500u
#define NOON      UINT64_C(2000000000) /* unix seconds: the first moment of every test */

/* ---- the world ---- */

struct drop_events {
  _Atomic uint32_t count;
  _Atomic uint64_t runs, bytes, entries;
  char text[200];
};

struct world {
  turb_simulation *simulation;
  turb_options options;
  turb_db *db;
  turb_collection *c;
  struct drop_events events;
};

static void take_event(void *context, const turb_event *event) {
  struct drop_events *events = context;
  if (event->kind != TURB_EVENT_DROPPED)
    return;
  CHECK_STR_EQ(event->collection, "c");
  (void)snprintf(events->text, sizeof events->text, "%s", event->text);
  atomic_fetch_add(&events->runs, event->value);
  atomic_fetch_add(&events->bytes, event->bytes_total);
  atomic_fetch_add(&events->entries, event->entries_total);
  atomic_fetch_add(&events->count, 1);
}

static void set_time(struct world *w, uint64_t unix_s) {
  atomic_store(&w->db->fixed_unix_s, unix_s);
}

static void world_open(struct world *w) {
  CHECK_OK_ERR(turb_open("/db", &w->options, &w->db, &err), &err);
  set_time(w, NOON);
}

static void world_begin(struct world *w, int32_t workers, const turb_compaction_options *compaction) {
  *w = (struct world){.options = TURB_OPTIONS_INIT};
  turb_simulation_options disk = TURB_SIMULATION_OPTIONS_INIT;
  disk.seed = test_seed();
  CHECK_OK_ERR(turb_simulation_create(&disk, &w->simulation, &err), &err);
  w->options.backend = TURB_BACKEND_SIMULATED;
  w->options.simulation = w->simulation;
  w->options.memory_budget_bytes = 32u << 20;
  w->options.memtable_bytes = 1u << 20; /* more than a run */
  w->options.worker_threads = workers;
  w->options.durability = TURB_LOGGED;
  w->options.size_ratio = 64; /* nothing is merged by itself */
  w->options.max_space_amplification_percent = 1000;
  w->options.on_event = take_event;
  w->options.callback_context = &w->events;
  world_open(w);
  turb_collection_options shape = TURB_COLLECTION_OPTIONS_INIT;
  shape.dimension = DIMENSION;
  shape.compaction = compaction;
  CHECK_OK_ERR(turb_collection_create(w->db, "c", &shape, &w->c, &err), &err);
}

static void world_reopen(struct world *w) {
  CHECK_OK_ERR(turb_close(w->db, &err), &err);
  turb_simulation_restart(w->simulation);
  world_open(w);
  CHECK_OK_ERR(turb_collection_open(w->db, "c", &w->c, &err), &err);
}

static void world_end(struct world *w) {
  CHECK_OK_ERR(turb_verify(w->db, NULL, NULL, NULL, &err), &err);
  CHECK_OK_ERR(turb_close(w->db, &err), &err);
  turb_simulation_free(w->simulation);
}

static turb_bytes key_of(uint32_t number, char key[16]) {
  return (turb_bytes){key, (size_t)snprintf(key, 16, "k%06u", number)};
}

/* Rows `first` to first + RUN_ROWS - 1 as one run. */
static void put_run(const struct world *w, uint32_t first) {
  char key[16];
  for (uint32_t i = first; i < first + RUN_ROWS; i++) {
    const float row[DIMENSION] = {(float)i};
    CHECK_OK_ERR(turb_put(w->c, key_of(i, key), (turb_bytes){row, sizeof row}, TURB_NONE, NULL, &err), &err);
  }
  CHECK_OK_ERR(turb_flush(w->db, w->c, &err), &err);
}

static void idle(const struct world *w) {
  CHECK_OK_ERR(turb_wait_idle(w->db, -1, &err), &err);
}

static turb_stats stats_of(const struct world *w) {
  turb_stats stats = {.size = sizeof stats};
  CHECK_OK_ERR(turb_get_stats(w->db, &stats, &err), &err);
  return stats;
}

/* The rows that an iterator finds are `first` to `end` - 1. */
static void check_rows(turb_iterator *it, uint32_t first, uint32_t end) {
  for (turb_state state = turb_finish(it, turb_first(it)); state == TURB_READY; state = turb_next(it), first++)
    CHECK_EQ((uint32_t)((const float *)it->entry->vector.data)[0], first);
  CHECK_OK_ERR(turb_iterator_status(it, &err), &err);
  CHECK_EQ(first, end);
}

static void check_collection(const struct world *w, const turb_snapshot *snapshot, uint32_t first, uint32_t end) {
  turb_iterator_options options = TURB_ITERATOR_OPTIONS_INIT;
  options.snapshot = snapshot;
  turb_iterator *it;
  CHECK_OK_ERR(turb_iterator_open(w->c, &options, &it, &err), &err);
  check_rows(it, first, end);
  turb_iterator_close(it);
}

static turb_compaction_options fifo_of(uint64_t max_bytes, uint64_t ttl_s) {
  turb_compaction_options options = TURB_COMPACTION_OPTIONS_INIT;
  options.policy = TURB_COMPACTION_FIFO;
  options.fifo_max_bytes = max_bytes;
  options.ttl_s = ttl_s;
  return options;
}

/* ---- options ---- */

static turb_collection_info info_of(const struct world *w) {
  turb_collection_info info = {.size = sizeof info};
  CHECK_OK_ERR(turb_collection_describe(w->c, &info, &err), &err);
  return info;
}

static void check_refused(const struct world *w, const turb_compaction_options *options, const char *words) {
  turb_error why = TURB_ERROR_INIT;
  CHECK_STATUS(turb_collection_set_compaction(w->c, options, &why), TURB_INVALID);
  if (!test_contains(why.message, words))
    FAIL("'%s' does not contain '%s'", why.message, words);
}

TEST(compaction, bad_options_are_refused_by_name_and_value) {
  struct world w;
  world_begin(&w, -1, NULL);
  const turb_compaction_options plain = TURB_COMPACTION_OPTIONS_INIT;
  turb_compaction_options o = plain;
  o.policy = (turb_compaction_policy)5;
  check_refused(&w, &o, "policy is 5, and must be from 1 to 4");
  o = plain;
  o.size_ratio = 1;
  check_refused(&w, &o, "size_ratio is 1, and must be from 2 to 64");
  o.size_ratio = 65;
  check_refused(&w, &o, "size_ratio is 65, and must be from 2 to 64");
  o = plain;
  o.max_space_amplification_percent = 9;
  check_refused(&w, &o, "max_space_amplification_percent is 9, and must be from 10 to 1000");
  o.max_space_amplification_percent = 50;
  o.policy = TURB_COMPACTION_TIERED;
  check_refused(&w, &o, "max_space_amplification_percent is 50, and goes with policy TURB_COMPACTION_LAZY_LEVELLING alone");
  o = plain;
  o.ttl_s = 7;
  check_refused(&w, &o, "ttl_s is 7, and goes with policy TURB_COMPACTION_FIFO alone");
  o = plain;
  o.fifo_max_bytes = 8;
  o.policy = TURB_COMPACTION_LEVELLED;
  check_refused(&w, &o, "fifo_max_bytes is 8, and goes with policy TURB_COMPACTION_FIFO alone");
  o = fifo_of(0, 0);
  check_refused(&w, &o, "fifo_max_bytes and ttl_s are 0");
  o = plain;
  o.size = 0;
  check_refused(&w, &o, "turb_compaction_options.size is 0");
  CHECK_EQ(info_of(&w).policy, TURB_COMPACTION_LAZY_LEVELLING);
  o = fifo_of(0, 0);
  turb_collection_options shape = TURB_COLLECTION_OPTIONS_INIT;
  shape.dimension = 4;
  shape.compaction = &o;
  turb_collection *d;
  CHECK_STATUS(turb_collection_create(w.db, "d", &shape, &d, NULL), TURB_INVALID);
  CHECK(d == NULL);
  CHECK_STATUS(turb_collection_set_compaction(NULL, NULL, NULL), TURB_INVALID);
  turb_collection *c = w.c;
  CHECK_OK(turb_collection_drop(w.db, "c", NULL));
  CHECK_STATUS(turb_collection_set_compaction(c, NULL, NULL), TURB_NOT_FOUND);
  world_end(&w);
}

TEST(compaction, options_stay_after_a_power_loss) {
  struct world w;
  turb_compaction_options o = fifo_of(UINT64_C(1) << 40, 3600);
  o.size_ratio = 5;
  world_begin(&w, -1, &o);
  for (int round = 0; round < 2; round++) {
    const turb_collection_info info = info_of(&w);
    CHECK_EQ(info.policy, TURB_COMPACTION_FIFO);
    CHECK_EQ(info.size_ratio, 5);
    CHECK_EQ(info.fifo_max_bytes, UINT64_C(1) << 40);
    CHECK_EQ(info.ttl_s, 3600);
    world_reopen(&w);
  }
  o = (turb_compaction_options)TURB_COMPACTION_OPTIONS_INIT;
  o.max_space_amplification_percent = 30;
  CHECK_OK_ERR(turb_collection_set_compaction(w.c, &o, &err), &err);
  for (int round = 0; round < 2; round++) {
    const turb_collection_info info = info_of(&w);
    CHECK_EQ(info.policy, TURB_COMPACTION_LAZY_LEVELLING);
    CHECK_EQ(info.size_ratio, 0);
    CHECK_EQ(info.max_space_amplification_percent, 30);
    CHECK_EQ(info.ttl_s, 0);
    world_reopen(&w);
  }
  CHECK_OK_ERR(turb_collection_set_compaction(w.c, NULL, &err), &err);
  world_reopen(&w);
  CHECK_EQ(info_of(&w).max_space_amplification_percent, 0);
  w.options.read_only = true;
  world_reopen(&w);
  CHECK_STATUS(turb_collection_set_compaction(w.c, NULL, NULL), TURB_READ_ONLY);
  world_end(&w);
}

TEST(compaction, a_failed_manifest_leaves_the_options_as_they_were) {
  struct world w;
  world_begin(&w, -1, NULL);
  const turb_compaction_options o = fifo_of(1 << 20, 0);
  /* The write of the edit fails, and what replaces the manifest then. */
  for (uint32_t ahead = 1; ahead < 12; ahead++) {
    turb_simulation_fail_at(w.simulation, turb_simulation_operations(w.simulation) + ahead, EIO);
    const turb_status status = turb_collection_set_compaction(w.c, &o, NULL);
    CHECK_EQ(info_of(&w).policy, status == TURB_OK ? TURB_COMPACTION_FIFO : TURB_COMPACTION_LAZY_LEVELLING);
    turb_simulation_fail_at(w.simulation, 0, 0);
    CHECK_OK_ERR(turb_collection_set_compaction(w.c, NULL, &err), &err);
    CHECK_EQ(info_of(&w).policy, TURB_COMPACTION_LAZY_LEVELLING);
  }
  world_end(&w);
}

/* ---- policies at work ---- */

TEST(compaction, a_policy_changes_at_run_time) {
  for (int32_t workers = -1; workers <= 1; workers += 2) {
    struct world w;
    world_begin(&w, workers, NULL);
    for (uint32_t r = 0; r < 6; r++)
      put_run(&w, r * RUN_ROWS);
    idle(&w);
    CHECK_EQ(stats_of(&w).runs, 6); /* the database's size ratio lets them stand */
    turb_compaction_options o = TURB_COMPACTION_OPTIONS_INIT;
    o.policy = TURB_COMPACTION_TIERED;
    o.size_ratio = 3;
    CHECK_OK_ERR(turb_collection_set_compaction(w.c, &o, &err), &err);
    idle(&w);
    CHECK_EQ(stats_of(&w).runs, 1);
    put_run(&w, 6 * RUN_ROWS);
    idle(&w);
    CHECK_EQ(stats_of(&w).runs, 2);
    o.policy = TURB_COMPACTION_LEVELLED;
    CHECK_OK_ERR(turb_collection_set_compaction(w.c, &o, &err), &err);
    idle(&w);
    CHECK_EQ(stats_of(&w).runs, 1);
    check_collection(&w, NULL, 0, 7 * RUN_ROWS);
    CHECK_EQ(stats_of(&w).runs_dropped, 0);
    world_end(&w);
  }
}

/* ---- drops ---- */

TEST(compaction, fifo_drops_beyond_its_size) {
  for (int32_t workers = -1; workers <= 1; workers += 2) {
    struct world w;
    world_begin(&w, workers, NULL);
    put_run(&w, 0);
    const uint64_t run_bytes = stats_of(&w).table_bytes;
    const turb_compaction_options o = fifo_of(run_bytes * 7 / 2, 0);
    CHECK_OK_ERR(turb_collection_set_compaction(w.c, &o, &err), &err);
    for (uint32_t r = 1; r < 8; r++) {
      put_run(&w, r * RUN_ROWS);
      idle(&w);
      check_collection(&w, NULL, r < 3 ? 0 : (r - 2) * RUN_ROWS, (r + 1) * RUN_ROWS);
    }
    const turb_stats stats = stats_of(&w);
    CHECK_EQ(stats.runs, 3);
    CHECK_EQ(stats.runs_dropped, 5);
    CHECK_GE(stats.run_bytes_dropped, 4 * run_bytes);
    CHECK_EQ(stats.merges, 0);
    CHECK_EQ(stats.obsolete_tables, 0);
    CHECK_EQ(atomic_load(&w.events.runs), 5);
    CHECK_EQ(atomic_load(&w.events.count), 5);
    CHECK_EQ(atomic_load(&w.events.entries), 5 * RUN_ROWS);
    CHECK_EQ(atomic_load(&w.events.bytes), stats.run_bytes_dropped);
    CHECK(test_contains(w.events.text, "fifo_max_bytes"));
    world_reopen(&w);
    idle(&w);
    check_collection(&w, NULL, 5 * RUN_ROWS, 8 * RUN_ROWS);
    world_end(&w);
  }
}

TEST(compaction, fifo_drops_what_is_older_than_its_ttl) {
  struct world w;
  const turb_compaction_options o = fifo_of(0, 1000);
  world_begin(&w, -1, &o);
  for (uint32_t r = 0; r < 4; r++) {
    set_time(&w, NOON + r * 100);
    put_run(&w, r * RUN_ROWS);
  }
  set_time(&w, NOON + 999);
  idle(&w);
  check_collection(&w, NULL, 0, 4 * RUN_ROWS);
  set_time(&w, NOON + 1000);
  idle(&w);
  check_collection(&w, NULL, RUN_ROWS, 4 * RUN_ROWS);
  CHECK(test_contains(w.events.text, "ttl_s"));
  /* The times are the manifest's. */
  world_reopen(&w);
  idle(&w);
  check_collection(&w, NULL, RUN_ROWS, 4 * RUN_ROWS);
  set_time(&w, NOON + 1200);
  idle(&w);
  check_collection(&w, NULL, 3 * RUN_ROWS, 4 * RUN_ROWS);
  set_time(&w, NOON + 1301);
  idle(&w);
  check_collection(&w, NULL, 0, 0);
  CHECK_EQ(stats_of(&w).tables, 0);
  put_run(&w, 7 * RUN_ROWS);
  idle(&w);
  check_collection(&w, NULL, 7 * RUN_ROWS, 8 * RUN_ROWS);
  world_end(&w);
}

/* With the clock of the machine, a worker wakes by itself. */
TEST(compaction, a_worker_wakes_when_a_run_gets_old) {
  struct world w;
  const turb_compaction_options o = fifo_of(0, 2);
  world_begin(&w, 1, &o);
  set_time(&w, 0);
  put_run(&w, 0);
  CHECK_EQ(stats_of(&w).runs, 1);
  for (int tries = 0; tries < 3000 && stats_of(&w).runs; tries++)
    (void)usleep(5000);
  CHECK_EQ(stats_of(&w).runs, 0);
  world_end(&w);
}

/* An iterator goes on reading a dropped run, whose files leave with it; a snapshot keeps the runs that it sees, and no newer ones. */
TEST(compaction, readers_keep_what_they_see) {
  for (int32_t workers = -1; workers <= 1; workers += 2) {
    struct world w;
    const turb_compaction_options o = fifo_of(0, 1000);
    world_begin(&w, workers, &o);
    put_run(&w, 0);
    put_run(&w, RUN_ROWS);
    turb_iterator *it;
    turb_snapshot *snapshot;
    CHECK_OK_ERR(turb_iterator_open(w.c, NULL, &it, &err), &err);
    CHECK_OK_ERR(turb_snapshot_create(w.db, &snapshot, &err), &err);
    put_run(&w, 2 * RUN_ROWS);
    set_time(&w, NOON + 5000);
    idle(&w);
    CHECK_EQ(stats_of(&w).runs, 3); /* the snapshot's two are held, and the third is not the oldest */
    check_collection(&w, snapshot, 0, 2 * RUN_ROWS);
    turb_snapshot_release(snapshot);
    for (int tries = 0; tries < 2000 && stats_of(&w).runs; tries++) {
      idle(&w);
      (void)usleep(1000);
    }
    CHECK_EQ(stats_of(&w).runs, 0);
    CHECK_EQ(stats_of(&w).runs_dropped, 3);
    CHECK_EQ(stats_of(&w).obsolete_tables, 2); /* the iterator's */
    check_rows(it, 0, 2 * RUN_ROWS);
    turb_iterator_close(it);
    CHECK_EQ(stats_of(&w).obsolete_tables, 0);
    check_collection(&w, NULL, 0, 0);
    world_end(&w);
  }
}

/* A delete in a newer run goes on hiding what it deleted: the older run goes first, or both. */
TEST(compaction, deleted_keys_do_not_come_back) {
  struct world w;
  const turb_compaction_options o = fifo_of(0, 1000);
  world_begin(&w, -1, &o);
  put_run(&w, 0);
  set_time(&w, NOON + 500);
  char key[16];
  CHECK_OK_ERR(turb_delete_range(w.c, TURB_STR("k"), key_of(RUN_ROWS - 1, key), NULL, &err), &err);
  CHECK_OK_ERR(turb_flush(w.db, w.c, &err), &err);
  check_collection(&w, NULL, RUN_ROWS - 1, RUN_ROWS);
  set_time(&w, NOON + 1100);
  idle(&w);
  CHECK_EQ(stats_of(&w).runs, 1);
  check_collection(&w, NULL, 0, 0);
  set_time(&w, NOON + 1600);
  idle(&w);
  CHECK_EQ(stats_of(&w).runs, 0);
  world_end(&w);
}

/* Wherever the power goes, either the runs are there or they are not. */
TEST(compaction, a_drop_is_whole_or_not_at_all) {
  for (uint32_t ahead = 1; ahead <= 24; ahead++) {
    struct world w;
    const turb_compaction_options o = fifo_of(0, 1000);
    world_begin(&w, -1, &o);
    put_run(&w, 0);
    put_run(&w, RUN_ROWS);
    set_time(&w, NOON + 100);
    put_run(&w, 2 * RUN_ROWS);
    set_time(&w, NOON + 1050);
    turb_simulation_cut_power_at(w.simulation, turb_simulation_operations(w.simulation) + ahead);
    bool more;
    (void)!turb_maintain(w.db, 50, &more, NULL);
    (void)!turb_close(w.db, NULL);
    turb_simulation_restart(w.simulation);
    world_open(&w);
    CHECK_OK_ERR(turb_collection_open(w.db, "c", &w.c, &err), &err);
    check_collection(&w, NULL, stats_of(&w).runs == 3 ? 0 : 2 * RUN_ROWS, 3 * RUN_ROWS);
    set_time(&w, NOON + 1050);
    idle(&w);
    check_collection(&w, NULL, 2 * RUN_ROWS, 3 * RUN_ROWS);
    world_end(&w);
  }
}

static void add_size(void *context, const char *path, uint64_t size_bytes) {
  (void)path;
  *(uint64_t *)context += size_bytes;
}

/* Puts rows from `first` on until the disk is full and background work pauses; returns the first row that is not there. */
static uint32_t fill_disk(const struct world *w, uint32_t first) {
  char key[16];
  for (uint32_t tries = 0; tries < 60000; tries++) {
    const float row[DIMENSION] = {(float)first};
    const turb_status status = turb_put(w->c, key_of(first, key), (turb_bytes){row, sizeof row}, TURB_NONE, NULL, NULL);
    CHECK(status == TURB_OK || status == TURB_NO_SPACE);
    first += status == TURB_OK;
    if (status == TURB_NO_SPACE && stats_of(w).paused)
      return first;
  }
  FAIL("the disk did not fill up");
}

/* A flush that fails and is tried again and again does not keep from being dropped what would make room for it. */
TEST(compaction, a_drop_makes_room_on_a_full_disk) {
  for (int32_t workers = -1; workers <= 1; workers += 2) {
    struct world w;
    const turb_compaction_options o = fifo_of(0, 1000);
    world_begin(&w, workers, &o);
    for (uint32_t r = 0; r < 16; r++)
      put_run(&w, r * RUN_ROWS);
    set_time(&w, NOON + 500);
    uint64_t used_bytes = 0;
    turb_simulation_list(w.simulation, add_size, &used_bytes);
    turb_simulation_set_capacity(w.simulation, used_bytes + (3u << 20));
    const uint32_t end = fill_disk(&w, 16 * RUN_ROWS);
    set_time(&w, NOON + 1000);
    for (int tries = 0; tries < 1000 && !stats_of(&w).runs_dropped; tries++) {
      bool more;
      CHECK(workers == 1 || turb_maintain(w.db, 10, &more, NULL) == TURB_OK);
      (void)usleep(5000);
    }
    CHECK_EQ(stats_of(&w).runs_dropped, 16);
    idle(&w);
    CHECK(!stats_of(&w).paused);
    check_collection(&w, NULL, 16 * RUN_ROWS, end);
    turb_simulation_set_capacity(w.simulation, 0);
    world_end(&w);
  }
}

/* ---- snapshots that come while runs are dropped ---- */

struct taker {
  struct world *w;
  _Atomic bool stop;
};

/* What a snapshot shows first it shows until its end. */
static void take_snapshots(void *context) {
  struct taker *taker = context;
  while (!atomic_load(&taker->stop)) {
    turb_snapshot *snapshot;
    CHECK_OK(turb_snapshot_create(taker->w->db, &snapshot, NULL));
    uint64_t counts[3] = {0};
    for (int look = 0; look < 3; look++) {
      turb_iterator_options options = TURB_ITERATOR_OPTIONS_INIT;
      options.snapshot = snapshot;
      turb_iterator *it;
      CHECK_OK(turb_iterator_open(taker->w->c, &options, &it, NULL));
      for (turb_state state = turb_finish(it, turb_first(it)); state == TURB_READY; state = turb_next(it))
        counts[look]++;
      turb_iterator_close(it);
    }
    CHECK_EQ(counts[0], counts[1]);
    CHECK_EQ(counts[0], counts[2]);
    turb_snapshot_release(snapshot);
  }
}

TEST_TIMEOUT(compaction, a_snapshot_never_loses_a_run, 60) {
  struct world w;
  world_begin(&w, 1, NULL);
  put_run(&w, 0);
  const turb_compaction_options o = fifo_of(stats_of(&w).table_bytes * 5 / 2, 0);
  CHECK_OK_ERR(turb_collection_set_compaction(w.c, &o, &err), &err);
  struct taker taker = {.w = &w};
  struct thread thread;
  CHECK_OK_ERR(thread_start(&thread, "taker", take_snapshots, &taker, &err), &err);
  for (uint32_t r = 1; r < 40; r++)
    put_run(&w, r * RUN_ROWS);
  atomic_store(&taker.stop, true);
  thread_join(&thread);
  idle(&w);
  check_collection(&w, NULL, 38 * RUN_ROWS, 40 * RUN_ROWS);
  CHECK_EQ(stats_of(&w).runs_dropped, 38);
  world_end(&w);
}

static void create_snapshot(void *context) {
  struct taker *taker = context;
  turb_snapshot *snapshot;
  CHECK_OK(turb_snapshot_create(taker->w->db, &snapshot, NULL));
  atomic_store(&taker->stop, true);
  turb_snapshot_release(snapshot);
}

/* Who drops holds the mutex from its look at the snapshots until the new version is in place. */
TEST(compaction, a_snapshot_waits_for_a_drop) {
  struct world w;
  world_begin(&w, -1, NULL);
  struct taker taker = {.w = &w};
  struct thread thread;
  mutex_lock(&w.db->mutex);
  mutex_lock(&w.db->snapshot_mutex);
  w.db->dropping = true;
  mutex_unlock(&w.db->snapshot_mutex);
  CHECK_OK_ERR(thread_start(&thread, "taker", create_snapshot, &taker, &err), &err);
  (void)usleep(50000);
  CHECK(!atomic_load(&taker.stop));
  mutex_lock(&w.db->snapshot_mutex);
  w.db->dropping = false;
  mutex_unlock(&w.db->snapshot_mutex);
  mutex_unlock(&w.db->mutex);
  thread_join(&thread);
  CHECK(atomic_load(&taker.stop));
  world_end(&w);
}
