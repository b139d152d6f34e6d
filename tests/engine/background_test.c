/* Flushes and merges: who does them, how they are cancelled, held back and told about, and what happens when the disk is full or damaged. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/thread.h"
#include "tests/engine/sim_world.h"
#include "tests/support/test.h"

static turb_error err = TURB_ERROR_INIT;

#define DIMENSION 64u
#define NONE      UINT32_MAX

/* ---- the world ---- */

#define EVENTS_MAX 4096u

struct events {
  pthread_mutex_t lock;
  turb_event list[EVENTS_MAX];
  char texts[EVENTS_MAX][300];
  uint32_t count;
  turb_simulation *simulation; /* the disk operation `fail_after` behind the begin of each of the next `fail_jobs` jobs fails */
  uint32_t fail_jobs, fail_after;
  turb_job_kind fail_kind;
  int fail_errno;
  turb_db *drop_in; /* the collection c of this database is dropped when an event of the kind comes; NULL: none is */
  turb_event_kind drop_at;
};

struct yard {
  turb_simulation *simulation;
  turb_options options;
  turb_db *db;
  turb_collection *c;
  struct events *events;
};

static void take_event(void *context, const turb_event *event) {
  struct events *events = context;
  pthread_mutex_lock(&events->lock);
  CHECK_LT(events->count, EVENTS_MAX);
  CHECK_EQ(event->size, sizeof *event);
  (void)snprintf(events->texts[events->count], sizeof events->texts[0], "%s", event->text);
  events->list[events->count++] = *event;
  if (event->kind == TURB_EVENT_JOB_BEGIN && events->fail_jobs && event->job_kind == events->fail_kind) {
    events->fail_jobs--;
    turb_simulation_fail_at(events->simulation, turb_simulation_operations(events->simulation) + events->fail_after, events->fail_errno);
  }
  turb_db *drop_in = event->kind == events->drop_at ? events->drop_in : NULL;
  if (drop_in)
    events->drop_in = NULL;
  pthread_mutex_unlock(&events->lock);
  if (drop_in)
    CHECK_OK(turb_collection_drop(drop_in, "c", NULL));
}

/* The first event of the kind from `first` on (job kind NONE: any); NONE when there is none. */
static uint32_t find_event(const struct yard *y, uint32_t first, turb_event_kind kind, uint32_t job_kind) {
  uint32_t found = NONE;
  pthread_mutex_lock(&y->events->lock);
  for (uint32_t i = first; i < y->events->count && found == NONE; i++)
    if (y->events->list[i].kind == kind && (job_kind == NONE || y->events->list[i].job_kind == job_kind))
      found = i;
  pthread_mutex_unlock(&y->events->lock);
  return found;
}

static uint32_t wait_event(const struct yard *y, uint32_t first, turb_event_kind kind, uint32_t job_kind) {
  for (int tries = 0; tries < 3000; tries++) {
    const uint32_t found = find_event(y, first, kind, job_kind);
    if (found != NONE)
      return found;
    (void)usleep(5000);
  }
  FAIL("no event of kind %d came within 15 s", (int)kind);
}

static uint32_t count_events(const struct yard *y, turb_event_kind kind, uint32_t job_kind) {
  uint32_t count = 0;
  for (uint32_t at = find_event(y, 0, kind, job_kind); at != NONE; at = find_event(y, at + 1, kind, job_kind))
    count++;
  return count;
}

static void open_again(struct yard *y) {
  y->events->count = 0;
  CHECK_OK_ERR(turb_open("/db", &y->options, &y->db, &err), &err);
  CHECK_OK_ERR(turb_collection_open(y->db, "c", &y->c, &err), &err);
}

/* Nothing is due by itself: flushes come of turb_flush, and many runs may stand. */
static void yard_begin(struct yard *y, int32_t workers) {
  static struct events events;
  *y = (struct yard){.options = TURB_OPTIONS_INIT, .events = &events};
  CHECK_EQ(pthread_mutex_init(&events.lock, NULL), 0);
  turb_simulation_options disk = TURB_SIMULATION_OPTIONS_INIT;
  disk.seed = test_seed();
  CHECK_OK_ERR(turb_simulation_create(&disk, &y->simulation, &err), &err);
  events.simulation = y->simulation;
  events.count = events.fail_jobs = 0;
  y->options.backend = TURB_BACKEND_SIMULATED;
  y->options.simulation = y->simulation;
  y->options.memory_budget_bytes = 32u << 20;
  y->options.memtable_bytes = 4u << 20;
  y->options.worker_threads = workers;
  y->options.durability = TURB_LOGGED;
  y->options.size_ratio = 64;
  y->options.max_space_amplification_percent = 1000;
  y->options.on_event = take_event;
  y->options.callback_context = &events;
}

static void yard_create(struct yard *y) {
  turb_collection_options shape = TURB_COLLECTION_OPTIONS_INIT;
  shape.dimension = DIMENSION;
  CHECK_OK_ERR(turb_open("/db", &y->options, &y->db, &err), &err);
  CHECK_OK_ERR(turb_collection_create(y->db, "c", &shape, &y->c, &err), &err);
}

static void yard_close(struct yard *y) {
  CHECK_OK_ERR(turb_close(y->db, &err), &err);
  turb_simulation_free(y->simulation);
}

static turb_stats stats_of(const struct yard *y) {
  turb_stats stats = {.size = sizeof stats};
  CHECK_OK_ERR(turb_get_stats(y->db, &stats, &err), &err);
  return stats;
}

static turb_bytes key_of(uint32_t number, char key[16]) {
  return (turb_bytes){key, (size_t)snprintf(key, 16, "k%05u", number)};
}

static void fill(uint32_t number, uint32_t version, float row[DIMENSION]) {
  for (uint32_t i = 0; i < DIMENSION; i++)
    row[i] = (float)(number * 64 + version * 7 + i);
}

static turb_status try_put(const struct yard *y, uint32_t number, uint32_t version, turb_error *why) {
  char key[16];
  float row[DIMENSION];
  fill(number, version, row);
  return turb_put(y->c, key_of(number, key), (turb_bytes){row, sizeof row}, (turb_bytes){key, 6}, NULL, why);
}

static void put_range(const struct yard *y, uint32_t first, uint32_t end, uint32_t version) {
  for (uint32_t i = first; i < end; i++)
    CHECK_OK_ERR(try_put(y, i, version, &err), &err);
}

static void put_run(const struct yard *y, uint32_t first, uint32_t end, uint32_t version) {
  put_range(y, first, end, version);
  CHECK_OK_ERR(turb_flush(y->db, y->c, &err), &err);
}

static void check_entry(const turb_entry *entry, uint32_t number, uint32_t version) {
  char key[16];
  float row[DIMENSION];
  fill(number, version, row);
  const turb_bytes wanted = key_of(number, key);
  CHECK_EQ(entry->key.size, wanted.size);
  CHECK_MEM_EQ(entry->key.data, key, wanted.size);
  CHECK_EQ(entry->vector.size, sizeof row);
  CHECK_MEM_EQ(entry->vector.data, row, sizeof row);
  CHECK_EQ(entry->attributes.size, 6);
  CHECK_MEM_EQ(entry->attributes.data, key, 6);
}

/* Keys 0 to count - 1 are there: version 2 below `newer`, 1 from there on. */
static void check_all(turb_collection *c, uint32_t count, uint32_t newer) {
  turb_iterator *it;
  CHECK_OK_ERR(turb_iterator_open(c, NULL, &it, &err), &err);
  uint32_t n = 0;
  for (turb_state state = turb_finish(it, turb_first(it)); state == TURB_READY; state = turb_next(it), n++)
    check_entry(it->entry, n, n < newer ? 2 : 1);
  CHECK_OK_ERR(turb_iterator_status(it, &err), &err);
  turb_iterator_close(it);
  CHECK_EQ(n, count);
}

/* ---- flush and compact ---- */

TEST(flush, writes_what_the_memtables_hold) {
  struct yard y;
  yard_begin(&y, 1);
  yard_create(&y);
  turb_collection *d;
  turb_collection_options shape = TURB_COLLECTION_OPTIONS_INIT;
  shape.dimension = DIMENSION;
  CHECK_OK_ERR(turb_collection_create(y.db, "d", &shape, &d, &err), &err);
  CHECK_OK_ERR(turb_flush(y.db, NULL, &err), &err); /* nothing to do */
  CHECK_EQ(stats_of(&y).flushes, 0);
  put_range(&y, 0, 300, 1);
  const struct yard other = {.c = d};
  put_range(&other, 0, 200, 1);
  CHECK_OK_ERR(turb_flush(y.db, d, &err), &err); /* one of them */
  CHECK_EQ(stats_of(&y).flushes, 1);
  CHECK_EQ(stats_of(&y).tables, 1);
  CHECK_OK_ERR(turb_flush(y.db, NULL, &err), &err);
  CHECK_EQ(stats_of(&y).tables, 2);
  CHECK_OK_ERR(turb_close(y.db, &err), &err);
  turb_simulation_restart(y.simulation);
  open_again(&y);
  CHECK_OK_ERR(turb_collection_open(y.db, "d", &d, &err), &err);
  check_all(y.c, 300, 0);
  check_all(d, 200, 0);
  yard_close(&y);
}

TEST(compact, leaves_one_run) {
  for (int32_t workers = -1; workers <= 1; workers += 2) {
    struct yard y;
    yard_begin(&y, workers);
    yard_create(&y);
    put_run(&y, 0, 1000, 1);
    put_run(&y, 0, 500, 2);
    put_range(&y, 1000, 1100, 1);
    CHECK_OK_ERR(turb_compact(y.db, y.c, &err), &err);
    const turb_stats stats = stats_of(&y);
    CHECK_EQ(stats.runs, 1);
    CHECK_EQ(stats.entries_dropped, 500);
    CHECK_EQ(stats.obsolete_tables, 0);
    check_all(y.c, 1100, 500);
    CHECK_OK_ERR(turb_compact(y.db, NULL, &err), &err); /* nothing to do */
    CHECK_EQ(stats_of(&y).merges, stats.merges);
    CHECK_OK_ERR(turb_verify(y.db, NULL, NULL, NULL, &err), &err);
    yard_close(&y);
  }
}

/* ---- waiting, and working without workers ---- */

/* Two runs of which a merge is due by itself. */
static void make_merge_due(struct yard *y, uint32_t rows) {
  y->options.size_ratio = 2;
  y->options.max_space_amplification_percent = 100;
  yard_create(y);
  put_run(y, 0, rows, 1);
  put_range(y, 0, rows, 2);
}

TEST(wait_idle, is_timed_out_while_a_merge_goes_on) {
  struct yard y;
  yard_begin(&y, 1);
  y.options.rate_limit_bytes_per_s = 200000;
  make_merge_due(&y, 2000);
  CHECK_OK_ERR(turb_wait_idle(y.db, 0, &err), &err);
  CHECK_OK_ERR(turb_flush(y.db, y.c, &err), &err);
  (void)wait_event(&y, 0, TURB_EVENT_JOB_BEGIN, TURB_JOB_MERGE);
  const uint64_t begin_ns = clock_monotonic_ns();
  CHECK_STATUS(turb_wait_idle(y.db, 0, NULL), TURB_TIMED_OUT);
  CHECK_STATUS(turb_wait_idle(y.db, 80, NULL), TURB_TIMED_OUT);
  const uint64_t waited_ms = (clock_monotonic_ns() - begin_ns) / CLOCK_NS_PER_MS;
  CHECK_GE(waited_ms, 80);
  CHECK_LT(waited_ms, 3000);
  CHECK_OK_ERR(turb_cancel(y.db, 0, &err), &err);
  CHECK_OK_ERR(turb_wait_idle(y.db, -1, &err), &err);
  CHECK_EQ(stats_of(&y).runs, 2);
  check_all(y.c, 2000, 2000);
  yard_close(&y);
}

TEST(wait_idle, works_by_itself_without_workers) {
  struct yard y;
  yard_begin(&y, -1);
  make_merge_due(&y, 2000);
  CHECK_OK_ERR(turb_flush(y.db, y.c, &err), &err);
  CHECK_EQ(stats_of(&y).runs, 2);
  CHECK_STATUS(turb_wait_idle(y.db, 0, NULL), TURB_TIMED_OUT);
  CHECK_OK_ERR(turb_wait_idle(y.db, -1, &err), &err);
  CHECK_EQ(stats_of(&y).runs, 1);
  check_all(y.c, 2000, 2000);
  yard_close(&y);
}

/* Also without workers the time is kept: what was begun is gone on with later. */
TEST(wait_idle, without_workers_keeps_its_time) {
  struct yard y;
  yard_begin(&y, -1);
  y.options.rate_limit_bytes_per_s = 20u << 20; /* a tenth of a second at least, however fast the machine */
  make_merge_due(&y, 6000);
  CHECK_OK_ERR(turb_flush(y.db, y.c, &err), &err);
  uint32_t waits = 0;
  while (turb_wait_idle(y.db, 2, NULL) == TURB_TIMED_OUT)
    waits++;
  CHECK_GT(waits, 1);
  CHECK_EQ(count_events(&y, TURB_EVENT_JOB_BEGIN, TURB_JOB_MERGE), 1);
  CHECK_EQ(stats_of(&y).runs, 1);
  check_all(y.c, 6000, 6000);
  yard_close(&y);
}

struct maintainer {
  turb_db *db;
  _Atomic bool stop;
};

/* Begins what is due before a worker does, and leaves it at once. */
static void begin_and_leave(void *context) {
  struct maintainer *maintainer = context;
  while (!atomic_load(&maintainer->stop)) {
    bool more;
    CHECK_OK(turb_maintain(maintainer->db, 0, &more, NULL));
  }
}

/* What turb_maintain began and left is gone on with by a worker: it holds the collection, and memory of the jobs. */
TEST_TIMEOUT(maintain, leaves_its_work_to_the_workers, 60) {
  for (uint32_t round = 0; round < 10; round++) {
    struct yard y;
    yard_begin(&y, 1);
    make_merge_due(&y, 200);
    struct maintainer maintainer = {.db = y.db};
    struct thread thread;
    CHECK_OK_ERR(thread_start(&thread, "maintainer", begin_and_leave, &maintainer, &err), &err);
    for (int run = 0; run < 6; run++)
      put_run(&y, 0, 200, 2);
    atomic_store(&maintainer.stop, true);
    thread_join(&thread);
    CHECK_OK_ERR(turb_compact(y.db, y.c, &err), &err);
    CHECK_EQ(stats_of(&y).runs, 1);
    check_all(y.c, 200, 200);
    yard_close(&y);
  }
}

TEST(maintain, does_a_little_at_a_time) {
  struct yard y;
  yard_begin(&y, -1);
  bool more = true;
  make_merge_due(&y, 6000);
  CHECK_OK_ERR(turb_maintain(y.db, 1000, &more, &err), &err);
  CHECK(!more); /* one run, and a memtable that is not full */
  CHECK_OK_ERR(turb_flush(y.db, y.c, &err), &err);
  uint32_t calls = 0;
  do {
    CHECK_OK_ERR(turb_maintain(y.db, 2, &more, &err), &err);
    calls++;
    check_all(y.c, 6000, 6000); /* reads go on between the steps */
  } while (more);
  CHECK_GT(calls, 1);
  CHECK_EQ(count_events(&y, TURB_EVENT_JOB_BEGIN, TURB_JOB_MERGE), 1);
  CHECK_EQ(stats_of(&y).runs, 1);
  CHECK_EQ(stats_of(&y).merges, 1);
  yard_close(&y);
}

/* ---- cancel ---- */

TEST(cancel, holds_merges_until_the_next_flush) {
  struct yard y;
  yard_begin(&y, 1);
  y.options.rate_limit_bytes_per_s = 400000;
  make_merge_due(&y, 2000);
  CHECK_STATUS(turb_cancel(y.db, 12345, NULL), TURB_NOT_FOUND);
  CHECK_OK_ERR(turb_flush(y.db, y.c, &err), &err);
  const uint32_t begin = wait_event(&y, 0, TURB_EVENT_JOB_BEGIN, TURB_JOB_MERGE);
  CHECK_OK_ERR(turb_cancel(y.db, y.events->list[begin].job, &err), &err);
  const uint32_t end = wait_event(&y, begin, TURB_EVENT_JOB_END, TURB_JOB_MERGE);
  CHECK_EQ(y.events->list[end].status, TURB_CANCELLED);
  CHECK_EQ(y.events->list[end].job, y.events->list[begin].job);
  CHECK_OK_ERR(turb_wait_idle(y.db, 5000, &err), &err); /* nothing is due */
  (void)usleep(200000);
  CHECK_EQ(count_events(&y, TURB_EVENT_JOB_BEGIN, TURB_JOB_MERGE), 1);
  CHECK_EQ(stats_of(&y).runs, 2);
  CHECK_EQ(stats_of(&y).tables, 2); /* its output is gone */
  check_all(y.c, 2000, 2000);
  CHECK_OK_ERR(turb_verify(y.db, NULL, NULL, NULL, &err), &err);
  put_run(&y, 2000, 4000, 1); /* the next flush lets merges go on */
  const uint32_t second = wait_event(&y, end, TURB_EVENT_JOB_BEGIN, TURB_JOB_MERGE);
  CHECK_OK_ERR(turb_cancel(y.db, 0, &err), &err);
  CHECK_EQ(y.events->list[wait_event(&y, second, TURB_EVENT_JOB_END, TURB_JOB_MERGE)].status, TURB_CANCELLED);
  CHECK_OK_ERR(turb_close(y.db, &err), &err);
  y.options.rate_limit_bytes_per_s = 0;
  y.options.worker_threads = -1;
  open_again(&y);
  check_all(y.c, 4000, 2000);
  CHECK_OK_ERR(turb_compact(y.db, y.c, &err), &err);
  CHECK_EQ(stats_of(&y).runs, 1);
  check_all(y.c, 4000, 2000);
  yard_close(&y);
}

struct compacting {
  const struct yard *y;
  turb_status status;
  turb_error why;
};

static void compact_there(void *context) {
  struct compacting *compacting = context;
  compacting->status = turb_compact(compacting->y->db, compacting->y->c, &compacting->why);
}

TEST(cancel, ends_a_compaction_and_the_next_one_works) {
  for (int32_t workers = -1; workers <= 1; workers += 2) {
    struct yard y;
    yard_begin(&y, workers);
    y.options.rate_limit_bytes_per_s = 2000000;
    yard_create(&y);
    put_run(&y, 0, 2000, 1);
    put_run(&y, 0, 2000, 2);
    struct compacting compacting = {.y = &y, .why = TURB_ERROR_INIT};
    struct thread thread = {0};
    CHECK_OK_ERR(thread_start(&thread, "compact", compact_there, &compacting, &err), &err);
    (void)wait_event(&y, 0, TURB_EVENT_JOB_BEGIN, TURB_JOB_MERGE);
    CHECK_OK_ERR(turb_cancel(y.db, 0, &err), &err);
    thread_join(&thread);
    CHECK_STATUS_ERR(compacting.status, TURB_CANCELLED, &compacting.why);
    CHECK_EQ(stats_of(&y).runs, 2);
    check_all(y.c, 2000, 2000);
    CHECK_OK_ERR(turb_compact(y.db, y.c, &err), &err);
    CHECK_EQ(stats_of(&y).runs, 1);
    check_all(y.c, 2000, 2000);
    yard_close(&y);
  }
}

/* ---- the rate limit, and what is told of a job ---- */

TEST(rate_limit, holds_merges_back_and_progress_is_told) {
  struct yard y;
  yard_begin(&y, 1);
  y.options.rate_limit_bytes_per_s = 2000000;
  yard_create(&y);
  put_run(&y, 0, 2500, 1);
  put_run(&y, 0, 2500, 2);
  const uint64_t begin_ns = clock_monotonic_ns();
  CHECK_OK_ERR(turb_compact(y.db, y.c, &err), &err);
  const uint64_t took_ms = (clock_monotonic_ns() - begin_ns) / CLOCK_NS_PER_MS;
  const turb_stats stats = stats_of(&y);
  CHECK_GT(stats.merge_bytes_written, 2500 * DIMENSION * 4);
  const uint64_t due_ms = stats.merge_bytes_written / 2000; /* what was written alone */
  CHECK_MSG(took_ms * 10 >= due_ms * 9, "%llu ms for what takes %llu ms at that rate", (unsigned long long)took_ms,
            (unsigned long long)due_ms);
  const uint32_t begin = find_event(&y, 0, TURB_EVENT_JOB_BEGIN, TURB_JOB_MERGE);
  const uint32_t end = find_event(&y, 0, TURB_EVENT_JOB_END, TURB_JOB_MERGE);
  CHECK(begin != NONE && end != NONE && begin < end);
  uint64_t entries = 0, bytes = 0;
  uint32_t told = 0;
  for (uint32_t i = begin; i <= end; i++) {
    const turb_event *event = &y.events->list[i];
    CHECK_EQ(event->job_kind, TURB_JOB_MERGE);
    CHECK_EQ(event->job, y.events->list[begin].job);
    CHECK_STR_EQ(event->collection, "c");
    CHECK_GE(event->entries_done, entries);
    CHECK_GE(event->bytes_done, bytes);
    CHECK_LE(event->entries_done, event->entries_total);
    CHECK_LE(event->bytes_done, event->bytes_total);
    entries = event->entries_done;
    bytes = event->bytes_done;
    told += event->kind == TURB_EVENT_JOB_PROGRESS;
  }
  CHECK_GE(told, 2);
  CHECK_LE(told, took_ms / 100 + 2); /* at most ten a second */
  CHECK_EQ(y.events->list[end].entries_total, 5000);
  CHECK_EQ(y.events->list[end].entries_done, 5000);
  CHECK_EQ(y.events->list[end].bytes_done, y.events->list[end].bytes_total);
  CHECK_EQ(y.events->list[end].status, TURB_OK);
  yard_close(&y);
}

TEST(events, tell_of_every_job) {
  struct yard y;
  yard_begin(&y, -1);
  yard_create(&y);
  put_run(&y, 0, 100, 1);
  put_run(&y, 0, 100, 2);
  CHECK_OK_ERR(turb_compact(y.db, y.c, &err), &err);
  CHECK_EQ(count_events(&y, TURB_EVENT_JOB_BEGIN, TURB_JOB_FLUSH), 2);
  CHECK_EQ(count_events(&y, TURB_EVENT_JOB_END, TURB_JOB_FLUSH), 2);
  CHECK_EQ(count_events(&y, TURB_EVENT_JOB_BEGIN, TURB_JOB_MERGE), 1);
  CHECK_EQ(count_events(&y, TURB_EVENT_JOB_END, TURB_JOB_MERGE), 1);
  uint64_t last = 0;
  for (uint32_t i = 0; i < y.events->count; i++)
    if (y.events->list[i].kind == TURB_EVENT_JOB_BEGIN) {
      CHECK_GT(y.events->list[i].job, last);
      last = y.events->list[i].job;
    }
  yard_close(&y);
}

/* ---- a disk that fails ---- */

static void fail_jobs(const struct yard *y, turb_job_kind kind, uint32_t count, int os_error) {
  y->events->fail_kind = kind;
  y->events->fail_after = 2;
  y->events->fail_errno = os_error;
  y->events->fail_jobs = count;
}

static uint32_t count_ends(const struct yard *y, turb_job_kind kind, turb_status status) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < y->events->count; i++)
    count += y->events->list[i].kind == TURB_EVENT_JOB_END && y->events->list[i].job_kind == kind && y->events->list[i].status == status;
  return count;
}

TEST(failing_disk, a_flush_is_tried_again) {
  for (int32_t workers = -1; workers <= 1; workers += 2) {
    struct yard y;
    yard_begin(&y, workers);
    yard_create(&y);
    put_range(&y, 0, 500, 1);
    fail_jobs(&y, TURB_JOB_FLUSH, 2, EIO);
    CHECK_OK_ERR(turb_flush(y.db, y.c, &err), &err);
    CHECK_EQ(count_ends(&y, TURB_JOB_FLUSH, TURB_IO), 2);
    CHECK_EQ(count_ends(&y, TURB_JOB_FLUSH, TURB_OK), 1);
    CHECK_EQ(count_events(&y, TURB_EVENT_PAUSED, NONE), 0);
    CHECK_EQ(stats_of(&y).tables, 1);
    check_all(y.c, 500, 0);
    CHECK_OK_ERR(turb_verify(y.db, NULL, NULL, NULL, &err), &err);
    yard_close(&y);
  }
}

TEST(failing_disk, a_flush_that_fails_on_and_on_is_told) {
  struct yard y;
  yard_begin(&y, -1);
  yard_create(&y);
  put_range(&y, 0, 500, 1);
  fail_jobs(&y, TURB_JOB_FLUSH, 4, EIO);
  turb_error why = TURB_ERROR_INIT;
  CHECK_STATUS(turb_flush(y.db, y.c, &why), TURB_IO);
  CHECK_EQ(why.os_error, EIO);
  CHECK(test_contains(why.file, ".tbl"));
  check_all(y.c, 500, 0);
  CHECK_EQ(stats_of(&y).tables, 0);
  (void)usleep(500000); /* 50 ms, doubled at each failure */
  CHECK_OK_ERR(turb_flush(y.db, y.c, &err), &err);
  CHECK_EQ(stats_of(&y).tables, 1);
  check_all(y.c, 500, 0);
  yard_close(&y);
}

TEST(failing_disk, a_merge_leaves_its_inputs) {
  for (int32_t workers = -1; workers <= 1; workers += 2) {
    struct yard y;
    yard_begin(&y, workers);
    yard_create(&y);
    put_run(&y, 0, 1000, 1);
    put_run(&y, 0, 400, 2);
    fail_jobs(&y, TURB_JOB_MERGE, 1, EIO);
    turb_error why = TURB_ERROR_INIT;
    CHECK_STATUS(turb_compact(y.db, y.c, &why), TURB_IO);
    CHECK_EQ(why.os_error, EIO);
    CHECK_EQ(stats_of(&y).runs, 2);
    CHECK_EQ(stats_of(&y).tables, 2);
    CHECK_EQ(stats_of(&y).merges_failed, 1);
    check_all(y.c, 1000, 400);
    CHECK_OK_ERR(turb_compact(y.db, y.c, &err), &err);
    CHECK_EQ(stats_of(&y).runs, 1);
    check_all(y.c, 1000, 400);
    yard_close(&y);
  }
}

/* ---- a full disk ---- */

/* Without workers a flush that is asked for tries again once the pause is over. */
TEST(full_disk, pauses_jobs_for_a_second) {
  struct yard y;
  yard_begin(&y, -1);
  yard_create(&y);
  put_range(&y, 0, 500, 1);
  fail_jobs(&y, TURB_JOB_FLUSH, 2, ENOSPC);
  y.events->fail_after = 3;
  turb_error why = TURB_ERROR_INIT;
  CHECK_STATUS(turb_flush(y.db, y.c, &why), TURB_NO_SPACE);
  CHECK_EQ(why.os_error, ENOSPC);
  CHECK(stats_of(&y).paused);
  CHECK_EQ(count_events(&y, TURB_EVENT_PAUSED, NONE), 1);
  CHECK_EQ(y.events->list[find_event(&y, 0, TURB_EVENT_PAUSED, NONE)].status, TURB_NO_SPACE);
  bool more = true;
  CHECK_OK_ERR(turb_maintain(y.db, 10, &more, &err), &err);
  CHECK(!more);
  CHECK_STATUS(turb_flush(y.db, y.c, NULL), TURB_NO_SPACE); /* at once */
  CHECK_EQ(count_events(&y, TURB_EVENT_JOB_BEGIN, NONE), 1);
  put_range(&y, 500, 600, 1); /* there is room in memory and in the log */
  (void)usleep(1050000);
  CHECK_STATUS(turb_flush(y.db, y.c, NULL), TURB_NO_SPACE);
  CHECK_EQ(count_events(&y, TURB_EVENT_JOB_BEGIN, NONE), 2);
  (void)usleep(1050000);
  CHECK_OK_ERR(turb_flush(y.db, y.c, &err), &err);
  CHECK(!stats_of(&y).paused);
  CHECK_EQ(count_events(&y, TURB_EVENT_PAUSED, NONE), 1);
  CHECK_EQ(count_events(&y, TURB_EVENT_RESUMED, NONE), 1);
  check_all(y.c, 600, 0);
  yard_close(&y);
}

static void add_size(void *context, const char *path, uint64_t size) {
  (void)path;
  *(uint64_t *)context += size;
}

TEST(full_disk, goes_on_when_there_is_space_again) {
  struct yard y;
  yard_begin(&y, 1);
  y.options.memtable_bytes = 256u << 10;
  yard_create(&y);
  put_run(&y, 0, 400, 1);
  uint64_t used = 0;
  turb_simulation_list(y.simulation, add_size, &used);
  turb_simulation_set_capacity(y.simulation, used + (3u << 20));
  uint32_t count = 400, refused = 0;
  for (uint32_t tries = 0; tries < 60000 && (find_event(&y, 0, TURB_EVENT_PAUSED, NONE) == NONE || refused < 3); tries++) {
    turb_error why = TURB_ERROR_INIT;
    const turb_status status = try_put(&y, count, 1, &why);
    CHECK_MSG(status == TURB_OK || status == TURB_NO_SPACE, "%s: %s", turb_status_name(status), why.message);
    count += status == TURB_OK;
    refused += status == TURB_NO_SPACE;
  }
  const uint32_t paused = find_event(&y, 0, TURB_EVENT_PAUSED, NONE);
  CHECK(paused != NONE);
  CHECK(y.events->texts[paused][0] != '\0');
  CHECK(stats_of(&y).paused);
  CHECK(!stats_of(&y).read_only);
  CHECK_GE(refused, 3);
  check_all(y.c, count, 0);
  turb_simulation_set_capacity(y.simulation, 0);
  (void)wait_event(&y, paused, TURB_EVENT_RESUMED, NONE);
  CHECK(!stats_of(&y).paused);
  put_run(&y, count, count + 100, 1);
  check_all(y.c, count + 100, 0);
  CHECK_OK_ERR(turb_close(y.db, &err), &err);
  turb_simulation_restart(y.simulation);
  open_again(&y);
  check_all(y.c, count + 100, 0);
  CHECK_OK_ERR(turb_compact(y.db, y.c, &err), &err);
  check_all(y.c, count + 100, 0);
  CHECK_OK_ERR(turb_verify(y.db, NULL, NULL, NULL, &err), &err);
  yard_close(&y);
}

/* ---- a damaged table ---- */

#define DAMAGED_KEYS 1500u
#define DAMAGED_KEY  900u

struct damage {
  const struct yard *y;
  struct sim_world world;
  char path[256];
  uint64_t offset; /* of the row of DAMAGED_KEY */
};

static void look_for_row(void *context, const char *path, uint64_t size) {
  struct damage *damage = context;
  if (!strstr(path, ".tbl") || damage->path[0])
    return;
  (void)size;
  size_t bytes;
  float row[DIMENSION];
  fill(DAMAGED_KEY, 1, row);
  uint8_t *data = sim_world_load(&damage->world, path, &bytes);
  const uint8_t *at = memmem(data, bytes, row, sizeof row);
  if (at) {
    damage->offset = (uint64_t)(at - data);
    (void)snprintf(damage->path, sizeof damage->path, "%s", path);
  }
  free(data);
}

static void flip(const struct damage *damage) {
  CHECK_OK_ERR(turb_simulation_flip_bit(damage->world.simulation, damage->path, damage->offset + 10, 3, &err), &err);
}

/* Two runs: version 1 of all keys, version 2 of the first 300; a bit of the row of DAMAGED_KEY is flipped while the database is closed. */
static void damage_begin(struct yard *y, struct damage *damage, int32_t workers) {
  yard_begin(y, workers);
  yard_create(y);
  put_run(y, 0, DAMAGED_KEYS, 1);
  put_run(y, 0, 300, 2);
  CHECK_OK_ERR(turb_close(y->db, &err), &err);
  *damage = (struct damage){.y = y, .world.simulation = y->simulation};
  const struct io_system_options options = {.backend = TURB_BACKEND_SIMULATED, .simulation = y->simulation};
  CHECK_OK_ERR(io_system_open(&options, &damage->world.system, &err), &err);
  turb_simulation_list(y->simulation, look_for_row, damage);
  io_system_close(damage->world.system);
  CHECK(damage->path[0] != '\0');
  flip(damage);
  open_again(y);
}

static void check_named(const struct damage *damage, const turb_error *why) {
  CHECK_EQ(why->status, TURB_CORRUPTION);
  CHECK(test_contains(why->file, strrchr(damage->path, '/')));
  CHECK(test_contains(why->message, strrchr(damage->path, '/')));
  CHECK_MSG(why->offset <= damage->offset + 10 && why->offset + 65536 > damage->offset, "offset %llu, damaged is %llu",
            (unsigned long long)why->offset, (unsigned long long)damage->offset);
}

/* Every key but the damaged one is read; the damaged one fails by name. */
static void check_gets(const struct damage *damage) {
  for (uint32_t i = 0; i < DAMAGED_KEYS; i++) {
    char key[16];
    float row[DIMENSION], wanted[DIMENSION];
    turb_error why = TURB_ERROR_INIT;
    turb_read_options options = TURB_READ_OPTIONS_INIT;
    options.skip_cache_fill = i % 2;
    const turb_status status = turb_get(damage->y->c, key_of(i, key), &options, row, NULL, 0, NULL, NULL, &why);
    if (i == DAMAGED_KEY) {
      check_named(damage, &why);
      continue;
    }
    CHECK_MSG(status == TURB_OK, "%s: %s", key, why.message);
    fill(i, i < 300 ? 2 : 1, wanted);
    CHECK_MEM_EQ(row, wanted, sizeof row);
  }
}

static void check_damaged_multi_get(const struct damage *damage) {
  char names[3][16];
  const turb_bytes keys[3] = {key_of(10, names[0]), key_of(DAMAGED_KEY, names[1]), key_of(1400, names[2])};
  turb_pinned pinned[3];
  turb_status statuses[3];
  CHECK_OK_ERR(turb_multi_get(damage->y->c, 3, keys, NULL, pinned, statuses, NULL), &err);
  CHECK_EQ(statuses[0], TURB_OK);
  CHECK_EQ(statuses[1], TURB_CORRUPTION);
  CHECK_EQ(statuses[2], TURB_OK);
  float wanted[DIMENSION];
  fill(1400, 1, wanted);
  CHECK_MEM_EQ(pinned[2].vector.data, wanted, sizeof wanted);
  turb_pinned_release(&pinned[0]);
  turb_pinned_release(&pinned[2]);
}

/* What an export does: walks, and behind a failure goes on with the next key. */
static void check_export(const struct damage *damage, turb_collection *c, bool streaming) {
  turb_iterator_options options = TURB_ITERATOR_OPTIONS_INIT;
  options.streaming = streaming;
  turb_iterator *it;
  CHECK_OK_ERR(turb_iterator_open(c, &options, &it, &err), &err);
  uint32_t lost = 0, at = 0;
  turb_state state = turb_finish(it, turb_first(it));
  while (at < DAMAGED_KEYS) {
    if (state == TURB_READY) {
      check_entry(it->entry, at, at < 300 ? 2 : 1);
      at++;
      state = turb_next(it);
      continue;
    }
    CHECK_EQ(state, TURB_FAILED);
    turb_error why = TURB_ERROR_INIT;
    CHECK_STATUS(turb_iterator_status(it, &why), TURB_CORRUPTION);
    check_named(damage, &why);
    CHECK_EQ(turb_advance(it), TURB_FAILED); /* until a seek */
    char key[16];
    lost++;
    at++;
    state = turb_finish(it, turb_seek(it, key_of(at, key)));
  }
  CHECK_EQ(state, TURB_END);
  CHECK_GE(lost, 1);
  CHECK_LE(lost, 65536 / (DIMENSION * 4)); /* rows of the frame that cannot be verified */
  turb_iterator_close(it);
}

struct named {
  const struct damage *damage;
  uint64_t count;
};

static void take_problem(void *context, const turb_error *problem) {
  struct named *named = context;
  check_named(named->damage, problem);
  named->count++;
}

TEST(corruption, leaves_what_does_not_need_it_readable) {
  struct yard y;
  struct damage damage;
  damage_begin(&y, &damage, -1);
  check_damaged_multi_get(&damage);
  check_gets(&damage);
  check_gets(&damage); /* also when the cache is warm */
  check_export(&damage, y.c, false);
  check_export(&damage, y.c, true);
  struct named named = {.damage = &damage};
  CHECK_STATUS(turb_verify(y.db, take_problem, &named, NULL, NULL), TURB_CORRUPTION);
  CHECK_GE(named.count, 1);
  turb_db *copy;
  turb_collection *c;
  CHECK_OK_ERR(turb_checkpoint(y.db, "/copy", &err), &err);
  turb_options options = y.options;
  options.on_event = NULL;
  CHECK_OK_ERR(turb_open("/copy", &options, &copy, &err), &err);
  CHECK_OK_ERR(turb_collection_open(copy, "c", &c, &err), &err);
  check_export(&damage, c, false);
  CHECK_OK_ERR(turb_close(copy, &err), &err);
  yard_close(&y);
}

TEST(corruption, stops_merges_until_the_next_open) {
  for (int32_t workers = -1; workers <= 1; workers += 2) {
    struct yard y;
    struct damage damage;
    damage_begin(&y, &damage, workers);
    for (int round = 0; round < 2; round++) {
      turb_error why = TURB_ERROR_INIT;
      CHECK_STATUS(turb_compact(y.db, y.c, &why), TURB_CORRUPTION);
      check_named(&damage, &why);
      CHECK_EQ(stats_of(&y).merges_failed, 1); /* the second call tries nothing */
      CHECK_EQ(stats_of(&y).runs, 2);
      CHECK_EQ(stats_of(&y).tables, 2);
      CHECK_OK_ERR(turb_wait_idle(y.db, 5000, &err), &err);
    }
    const uint32_t told = wait_event(&y, 0, TURB_EVENT_CORRUPTION, NONE);
    CHECK_EQ(y.events->list[told].status, TURB_CORRUPTION);
    CHECK_STR_EQ(y.events->list[told].collection, "c");
    CHECK(test_contains(y.events->texts[told], strrchr(damage.path, '/')));
    (void)usleep(150000);
    CHECK_EQ(count_events(&y, TURB_EVENT_JOB_BEGIN, TURB_JOB_MERGE), 1);
    CHECK_EQ(count_events(&y, TURB_EVENT_CORRUPTION, NONE), 1);
    check_gets(&damage);
    put_run(&y, 0, 300, 2); /* writes and flushes go on */
    CHECK_EQ(stats_of(&y).runs, 3);
    CHECK_EQ(count_events(&y, TURB_EVENT_JOB_BEGIN, TURB_JOB_MERGE), 1);
    CHECK_OK_ERR(turb_close(y.db, &err), &err);
    open_again(&y);
    CHECK_STATUS(turb_compact(y.db, y.c, NULL), TURB_CORRUPTION); /* it is tried again */
    CHECK_OK_ERR(turb_close(y.db, &err), &err);
    flip(&damage); /* the bit is as it was: nothing was lost by the failed merges */
    open_again(&y);
    CHECK_OK_ERR(turb_compact(y.db, y.c, &err), &err);
    CHECK_EQ(stats_of(&y).runs, 1);
    check_all(y.c, DAMAGED_KEYS, 300);
    yard_close(&y);
  }
}

/* ---- dropping a collection ---- */

static void count_tables(void *context, const char *path, uint64_t size) {
  (void)size;
  *(uint32_t *)context += strstr(path, ".tbl") != NULL;
}

static uint32_t tables_on_disk(const struct yard *y) {
  uint32_t count = 0;
  turb_simulation_list(y->simulation, count_tables, &count);
  return count;
}

TEST(drop, ends_the_collections_jobs) {
  for (int32_t workers = -1; workers <= 1; workers += 2) {
    struct yard y;
    yard_begin(&y, workers);
    y.options.rate_limit_bytes_per_s = workers < 0 ? 0 : 100000;
    make_merge_due(&y, 6000);
    turb_collection *d;
    turb_collection_options shape = TURB_COLLECTION_OPTIONS_INIT;
    shape.dimension = DIMENSION;
    CHECK_OK_ERR(turb_collection_create(y.db, "d", &shape, &d, &err), &err);
    const struct yard other = {.c = d, .db = y.db};
    put_run(&other, 0, 200, 1);
    CHECK_OK_ERR(turb_flush(y.db, y.c, &err), &err);
    bool more = true;
    if (workers < 0)
      CHECK_OK_ERR(turb_maintain(y.db, 1, &more, &err), &err);
    const uint32_t begin = wait_event(&y, 0, TURB_EVENT_JOB_BEGIN, TURB_JOB_MERGE);
    turb_iterator *it;
    CHECK_OK_ERR(turb_iterator_open(y.c, NULL, &it, &err), &err);
    CHECK_EQ(turb_finish(it, turb_first(it)), TURB_READY);
    CHECK_OK_ERR(turb_collection_drop(y.db, "c", &err), &err);
    CHECK_OK_ERR(turb_wait_idle(y.db, 4000, &err), &err);
    CHECK_EQ(y.events->list[wait_event(&y, begin, TURB_EVENT_JOB_END, TURB_JOB_MERGE)].status, TURB_CANCELLED);
    CHECK_STATUS(try_put(&y, 1, 1, NULL), TURB_NOT_FOUND);
    CHECK_STATUS(turb_compact(y.db, y.c, NULL), TURB_NOT_FOUND);
    uint32_t n = 0; /* what was opened before reads on */
    for (turb_state state = TURB_READY; state == TURB_READY; state = turb_next(it), n++)
      check_entry(it->entry, n, 2);
    CHECK_EQ(n, 6000);
    CHECK_GT(tables_on_disk(&y), 1);
    CHECK_GT(stats_of(&y).obsolete_tables, 0);
    turb_iterator_close(it);
    CHECK_EQ(stats_of(&y).obsolete_tables, 0);
    CHECK_EQ(tables_on_disk(&y), 1);
    check_all(d, 200, 0);
    CHECK_OK_ERR(turb_verify(y.db, NULL, NULL, NULL, &err), &err);
    yard_close(&y);
  }
}

/* It is dropped as its flush begins, or as that ended badly and waits for the next try. */
TEST(drop, ends_who_waits_for_a_flush) {
  for (int32_t workers = -1; workers <= 1; workers += 2)
    for (int when = 0; when < 2; when++) {
      struct yard y;
      yard_begin(&y, workers);
      yard_create(&y);
      put_range(&y, 0, 500, 1);
      if (when)
        fail_jobs(&y, TURB_JOB_FLUSH, 1, EIO);
      y.events->drop_at = when ? TURB_EVENT_JOB_END : TURB_EVENT_JOB_BEGIN;
      y.events->drop_in = y.db;
      if (workers < 0)
        CHECK_STATUS(turb_flush(y.db, y.c, NULL), TURB_NOT_FOUND);
      else
        CHECK_OK_ERR(turb_flush(y.db, NULL, &err), &err); /* all others are flushed */
      CHECK_OK_ERR(turb_wait_idle(y.db, 4000, &err), &err);
      CHECK_EQ(tables_on_disk(&y), 0);
      CHECK_EQ(y.events->list[find_event(&y, 0, TURB_EVENT_JOB_END, TURB_JOB_FLUSH)].status, when ? TURB_IO : TURB_CANCELLED);
      yard_close(&y);
    }
}

/* What its memtables take is free for the next ones. */
TEST(drop, gives_memory_back) {
  struct yard y;
  yard_begin(&y, -1);
  y.options.memory_budget_bytes = 8u << 20;
  yard_create(&y);
  for (int round = 0; round < 8; round++) {
    put_range(&y, 0, 3000, 1);
    turb_iterator *it;
    CHECK_OK_ERR(turb_iterator_open(y.c, NULL, &it, &err), &err);
    CHECK_EQ(turb_finish(it, turb_first(it)), TURB_READY);
    CHECK_OK_ERR(turb_collection_drop(y.db, "c", &err), &err);
    turb_collection_options shape = TURB_COLLECTION_OPTIONS_INIT;
    shape.dimension = DIMENSION;
    CHECK_OK_ERR(turb_collection_create(y.db, "c", &shape, &y.c, &err), &err);
    put_range(&y, 0, 1, 1);
    CHECK_LE(stats_of(&y).memtables, 1);
    uint32_t n = 0; /* what was opened before reads on */
    for (turb_state state = TURB_READY; state == TURB_READY; state = turb_next(it), n++)
      check_entry(it->entry, n, 1);
    CHECK_EQ(n, 3000);
    turb_iterator_close(it);
  }
  yard_close(&y);
}

/* ---- old logs ---- */

static bool count_run(void *context, const turb_run_info *run) {
  *(uint32_t *)context += run->tables != 0;
  return true;
}

/* One row keeps the oldest log, beside a collection that is empty and as old: logs pile up until the row is flushed. */
TEST(logs, do_not_pile_up_behind_a_quiet_collection) {
  for (int32_t workers = -1; workers <= 1; workers += 2) {
    struct yard y;
    yard_begin(&y, workers);
    yard_create(&y);
    turb_collection *busy = y.c, *quiet[2]; /* flushed and empty; of one row */
    turb_collection_options shape = TURB_COLLECTION_OPTIONS_INIT;
    shape.dimension = DIMENSION;
    for (int i = 0; i < 2; i++) {
      CHECK_OK_ERR(turb_collection_create(y.db, i ? "row" : "empty", &shape, &quiet[i], &err), &err);
      y.c = quiet[i];
      put_range(&y, 0, 1, 1);
      if (i == 0)
        CHECK_OK_ERR(turb_flush(y.db, y.c, &err), &err);
    }
    y.c = busy;
    for (uint32_t i = 0; i < 40; i++)
      put_run(&y, 0, 5, 1);
    CHECK_OK_ERR(turb_wait_idle(y.db, -1, &err), &err);
    uint32_t runs = 0;
    CHECK_OK_ERR(turb_list_runs(quiet[1], count_run, &runs, &err), &err);
    CHECK_EQ(runs, 1);
    check_all(quiet[1], 1, 0);
    yard_close(&y);
  }
}

/* ---- closing ---- */

TEST(close, is_busy_while_something_lives) {
  struct yard y;
  yard_begin(&y, 1);
  yard_create(&y);
  put_run(&y, 0, 100, 1);
  turb_iterator *it;
  CHECK_OK_ERR(turb_iterator_open(y.c, NULL, &it, &err), &err);
  CHECK_STATUS(turb_close(y.db, NULL), TURB_BUSY);
  CHECK_EQ(turb_finish(it, turb_first(it)), TURB_READY); /* nothing changed */
  check_entry(it->entry, 0, 1);
  turb_iterator_close(it);
  turb_snapshot *snapshot;
  CHECK_OK_ERR(turb_snapshot_create(y.db, &snapshot, &err), &err);
  CHECK_STATUS(turb_close(y.db, NULL), TURB_BUSY);
  turb_snapshot_release(snapshot);
  turb_loop *loop;
  CHECK_OK_ERR(turb_loop_open(y.db, &loop, &err), &err);
  CHECK_STATUS(turb_close(y.db, NULL), TURB_BUSY);
  CHECK_OK_ERR(turb_loop_close(loop, &err), &err);
  turb_pinned pinned;
  CHECK_OK_ERR(turb_get_pinned(y.c, TURB_STR("k00001"), NULL, &pinned, &err), &err);
  CHECK_STATUS(turb_close(y.db, NULL), TURB_BUSY);
  turb_pinned_release(&pinned);
  turb_batch *batch;
  CHECK_OK_ERR(turb_batch_create(y.db, &batch, &err), &err);
  CHECK_STATUS(turb_close(y.db, NULL), TURB_BUSY);
  turb_batch_free(batch);
  turb_result *result;
  float row[DIMENSION];
  fill(7, 1, row);
  CHECK_OK_ERR(turb_search(y.c, (turb_bytes){row, sizeof row}, NULL, &result, &err), &err);
  CHECK_STATUS(turb_close(y.db, NULL), TURB_BUSY);
  turb_result_free(result);
  put_run(&y, 100, 200, 1); /* workers are still there */
  check_all(y.c, 200, 0);
  yard_close(&y);
}
