/* bench/pending: iterators that wait and iterators that walk over what is deleted.
 *
 *   pending   1,000 iterators of one thread on one loop, each seeking a random key and reading its row, everything cold, beside bare
 *             io_uring loops that read random 4 KiB of the same file
 *   deleted   1,000,000 deleted entries under iterators with a work budget of 4,096 entries: what a call looks at and what it costs
 *
 * docs/benchmarks.md says what each row is. */
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "bench/bench.h"
#include "engine/iterator.h"
#include "turbidite/turbidite.h"

#define ITERATORS   1000u
#define ROW_BYTES   512u
#define PAGE_BYTES  4096u
#define WORK_BUDGET 4096u
#define CHUNK       64u /* iterators driven between two submissions, so that the device works meanwhile */
#define MEBIBYTE    (UINT64_C(1) << 20)

static void check(turb_status status, const turb_error *error) {
  if (status != TURB_OK)
    bench_fail("turbidite: %s", error->message);
}

/* ---- databases ---- */

static turb_db *open_db(const char *path, uint64_t budget_bytes, uint32_t row_bytes, turb_collection **rows) {
  turb_error error = TURB_ERROR_INIT;
  turb_options options = TURB_OPTIONS_INIT;
  options.memory_budget_bytes = budget_bytes;
  options.table_bytes = 4096 * MEBIBYTE; /* one file */
  options.ring_entries = 1024;
  options.size_ratio = 64; /* nothing merges by itself */
  options.max_space_amplification_percent = 1000;
  turb_db *db;
  check(turb_open(path, &options, &db, &error), &error);
  turb_status status = turb_collection_open(db, "rows", rows, &error);
  if (status == TURB_NOT_FOUND) {
    turb_collection_options collection = TURB_COLLECTION_OPTIONS_INIT;
    collection.dimension = row_bytes / (uint32_t)sizeof(float);
    error = (turb_error)TURB_ERROR_INIT;
    status = turb_collection_create(db, "rows", &collection, rows, &error);
  }
  check(status, &error);
  return db;
}

static void put_rows(turb_db *db, turb_collection *rows, uint32_t count, uint32_t row_bytes) {
  turb_error error = TURB_ERROR_INIT;
  turb_write_options options = TURB_WRITE_OPTIONS_INIT;
  options.durability = TURB_UNLOGGED;
  uint8_t key[KEY_BYTES];
  for (uint32_t i = 0; i < count; i++) {
    work_key(i, true, key);
    check(turb_put(rows, (turb_bytes){key, KEY_BYTES}, (turb_bytes){work_row(i, row_bytes), row_bytes}, TURB_NONE, &options, &error),
          &error);
  }
  check(turb_compact(db, rows, &error), &error);
}

static void *begin_build(const void *argument) {
  return (void *)(uintptr_t)argument;
}

/* ---- pending: ours ---- */

struct pending {
  const char *path;
  uint32_t rows;
  uint32_t seeks; /* a pass */
  uint32_t depth; /* iterators, or reads of the bare loop */
  unsigned flags; /* of the bare loop's ring */
  bool registered_file;
};

struct seeker {
  turb_iterator *it;
  uint32_t wanted; /* row */
};

struct pending_state {
  const struct pending *what;
  turb_db *db;
  turb_collection *rows;
  turb_loop *loop;
  int epoll;
  uint64_t at, done, waits;
  struct seeker *seekers;
  turb_iterator **ready;
};

static void build_pending(void *state, uint32_t round, struct sample *sample) {
  const struct pending *what = state;
  turb_error error = TURB_ERROR_INIT;
  turb_collection *rows;
  turb_db *db = open_db(what->path, 512 * MEBIBYTE, ROW_BYTES, &rows);
  (void)round;
  (void)sample;
  put_rows(db, rows, what->rows, ROW_BYTES);
  check(turb_close(db, &error), &error);
}

static turb_state seek_next(struct pending_state *state, struct seeker *seeker) {
  uint8_t key[KEY_BYTES];
  seeker->wanted = (uint32_t)work_below(state->at++, state->what->rows);
  work_key(seeker->wanted, true, key);
  return turb_seek(seeker->it, (turb_bytes){key, KEY_BYTES});
}

static void take_row(struct pending_state *state, const struct seeker *seeker) {
  uint8_t key[KEY_BYTES];
  work_key(seeker->wanted, true, key);
  const turb_entry *entry = seeker->it->entry;
  const bool looks = state->done % 16 == 0; /* what rows are compared with is in no cache either */
  if (entry->key.size != KEY_BYTES || memcmp(entry->key.data, key, KEY_BYTES) != 0 || entry->vector.size != ROW_BYTES ||
      (looks && memcmp(entry->vector.data, work_row(seeker->wanted, ROW_BYTES), ROW_BYTES) != 0))
    bench_fail("pending: a seek of row %u found another", seeker->wanted);
  state->done++;
}

/* Until the iterator waits again. */
static void drive(struct pending_state *state, struct seeker *seeker, turb_state at) {
  for (; at == TURB_READY; at = seek_next(state, seeker))
    take_row(state, seeker);
  if (at != TURB_PENDING) {
    turb_error error = TURB_ERROR_INIT;
    check(turb_iterator_status(seeker->it, &error), &error);
    bench_fail("pending: a seek of row %u found nothing", seeker->wanted);
  }
}

static void *begin_pending(const void *argument) {
  struct pending_state *state = bench_alloc(sizeof *state);
  turb_error error = TURB_ERROR_INIT;
  state->what = argument;
  const uint32_t count = state->what->depth;
  state->seekers = bench_alloc(count * sizeof *state->seekers);
  state->ready = bench_alloc(count * sizeof(turb_iterator *));
  state->db = open_db(state->what->path, 128 * MEBIBYTE, ROW_BYTES, &state->rows);
  check(turb_loop_open(state->db, &state->loop, &error), &error);
  state->epoll = epoll_create1(EPOLL_CLOEXEC);
  struct epoll_event event = {.events = EPOLLIN};
  if (state->epoll < 0 || epoll_ctl(state->epoll, EPOLL_CTL_ADD, turb_loop_descriptor(state->loop), &event) != 0)
    bench_fail("epoll: %s", strerror(errno));
  turb_iterator_options options = TURB_ITERATOR_OPTIONS_INIT;
  options.parts = TURB_KEY | TURB_VECTOR;
  options.loop = state->loop;
  for (uint32_t i = 0; i < count; i++) {
    options.context = &state->seekers[i];
    check(turb_iterator_open(state->rows, &options, &state->seekers[i].it, &error), &error);
  }
  for (uint32_t i = 0; i < count; i++)
    drive(state, &state->seekers[i], seek_next(state, &state->seekers[i]));
  return state;
}

static void pass_pending(void *argument, uint32_t round, struct sample *sample) {
  struct pending_state *state = argument;
  turb_error error = TURB_ERROR_INIT;
  turb_stats before = {.size = sizeof before}, after = before;
  struct meter meter;
  (void)round;
  check(turb_get_stats(state->db, &before, &error), &error);
  state->done = state->waits = 0;
  size_t count = 0;
  meter_start(&meter);
  while (state->done < state->what->seeks) {
    check(turb_loop_submit(state->loop, &error), &error);
    struct epoll_event event;
    state->waits += count < CHUNK;
    if (count < CHUNK && epoll_wait(state->epoll, &event, 1, -1) < 0 && errno != EINTR)
      bench_fail("epoll: %s", strerror(errno));
    count = turb_loop_ready(state->loop, state->ready, CHUNK);
    for (size_t i = 0; i < count; i++) {
      struct seeker *seeker = turb_iterator_context(state->ready[i]);
      drive(state, seeker, turb_advance(seeker->it));
    }
  }
  meter_stop(&meter, 0, sample);
  check(turb_get_stats(state->db, &after, &error), &error);
  sample->operations = (double)(after.reads - before.reads);
  sample->read_bytes = (double)(after.read_bytes - before.read_bytes);
  sample->system_calls = (double)(after.ring_calls - before.ring_calls + state->waits);
  sample->requests = (double)state->done;
}

static void end_pending(void *argument) {
  struct pending_state *state = argument;
  turb_error error = TURB_ERROR_INIT;
  for (uint32_t i = 0; i < state->what->depth; i++)
    turb_iterator_close(state->seekers[i].it);
  check(turb_loop_close(state->loop, &error), &error);
  check(turb_close(state->db, &error), &error);
  (void)close(state->epoll);
  free(state->seekers);
  free(state->ready);
  free(state);
}

/* ---- pending: a bare loop ---- */

struct bare_state {
  const struct pending *what;
  struct io_uring ring;
  int fd;
  uint64_t pages, at;
  uint8_t *memory;
  uint32_t *buffers;
};

static void *begin_bare(const void *argument) {
  struct bare_state *state = bench_alloc(sizeof *state);
  state->what = argument;
  const uint32_t depth = state->what->depth;
  char *file = folder_largest_file(state->what->path);
  struct stat info;
  state->fd = open(file, O_RDONLY | O_DIRECT | O_CLOEXEC);
  if (state->fd < 0 || fstat(state->fd, &info) != 0)
    bench_fail("%s cannot be opened around the page cache: %s", file, strerror(errno));
  free(file);
  state->pages = (uint64_t)info.st_size / PAGE_BYTES;
  state->buffers = bench_alloc(2 * depth * sizeof *state->buffers);
  if (posix_memalign((void **)&state->memory, PAGE_BYTES, (size_t)depth * PAGE_BYTES) != 0)
    bench_fail("no memory for reads");
  memset(state->memory, 1, (size_t)depth * PAGE_BYTES);
  int code = io_uring_queue_init(depth, &state->ring, state->what->flags);
  if (code == 0 && state->what->registered_file)
    code = io_uring_register_files(&state->ring, &state->fd, 1);
  if (code < 0)
    bench_fail("no io_uring: %s", strerror(-code));
  return state;
}

static void bare_read(struct bare_state *state, uint32_t buffer) {
  struct io_uring_sqe *sqe = io_uring_get_sqe(&state->ring);
  if (!sqe)
    bench_fail("the ring is full");
  const uint64_t offset = work_below(state->at++, state->pages) * PAGE_BYTES;
  io_uring_prep_read(sqe, state->what->registered_file ? 0 : state->fd, state->memory + (size_t)buffer * PAGE_BYTES, PAGE_BYTES, offset);
  sqe->flags |= state->what->registered_file ? IOSQE_FIXED_FILE : 0;
  io_uring_sqe_set_data64(sqe, buffer);
}

static uint32_t bare_take(struct bare_state *state) {
  struct io_uring_cqe *cqe;
  unsigned head;
  uint32_t count = 0;
  io_uring_for_each_cqe(&state->ring, head, cqe) {
    if (cqe->res != (int)PAGE_BYTES)
      bench_fail("a read failed: %s", strerror(-cqe->res));
    state->buffers[count++] = (uint32_t)io_uring_cqe_get_data64(cqe);
  }
  io_uring_cq_advance(&state->ring, count);
  return count;
}

static void pass_bare(void *argument, uint32_t round, struct sample *sample) {
  struct bare_state *state = argument;
  const uint32_t depth = state->what->depth;
  const uint64_t reads = 2 * (uint64_t)state->what->seeks;
  uint64_t queued = 0, ended = 0, calls = 0;
  struct meter meter;
  (void)round;
  meter_start(&meter);
  for (; queued < depth; queued++)
    bare_read(state, (uint32_t)queued);
  while (ended < reads) {
    const int code = io_uring_submit_and_wait(&state->ring, 1);
    calls++;
    if (code < 0 && code != -EINTR)
      bench_fail("io_uring: %s", strerror(-code));
    const uint32_t count = bare_take(state);
    ended += count;
    for (uint32_t i = 0; i < count && queued < reads; i++, queued++)
      bare_read(state, state->buffers[i]);
  }
  meter_stop(&meter, (double)reads, sample);
  sample->system_calls = (double)calls;
  sample->requests = (double)reads;
  sample->read_bytes = (double)reads * PAGE_BYTES;
}

static void end_bare(void *argument) {
  struct bare_state *state = argument;
  io_uring_queue_exit(&state->ring);
  (void)close(state->fd);
  free(state->memory);
  free(state->buffers);
  free(state);
}

/* ---- pending: rows ---- */

#define MEDIAN(contest, i, member) contest_median(contest, i, offsetof(struct sample, member))

static void pending_rows(const struct contest *contest) {
  for (size_t i = 0; i < contest->count; i++) {
    const double reads = MEDIAN(contest, i, operations);
    contest_row_begin(contest, i);
    row_number("cpu_ns_per_read", MEDIAN(contest, i, cpu_seconds) / reads * 1e9);
    row_number("bytes_per_read", MEDIAN(contest, i, read_bytes) / reads);
    row_number("reads_per_seek", reads / MEDIAN(contest, i, requests));
    row_number("system_calls_per_read", MEDIAN(contest, i, system_calls) / reads);
    row_end();
  }
  contest_ratio_row(contest, "bare-1000", "at least 0.9 of the random reads of a bare io_uring loop at the same depth", 0.9);
  const struct ratio best = contest_ratio(contest, "bare");
  row_begin("times", best.median, "%s: rate by that of the best bare loop, %s", contest->what, best.against);
  row_number("least", best.least);
  row_number("most", best.most);
  row_end();
  const double calls = MEDIAN(contest, 0, system_calls) / MEDIAN(contest, 0, operations);
  row_begin("system calls", calls, "%s: a read", contest->what);
  row_target("at most 0.2 system calls a read", calls <= 0.2);
  row_end();
}

static void run_pending(const struct bench_options *bench) {
  char *path = path_join(bench->folder, "pending");
  const uint32_t seeks = bench->quick ? 60000 : 200000;
  const struct pending ours = {.path = path, .rows = bench->quick ? 1000000 : 2000000, .seeks = seeks, .depth = ITERATORS};
  struct pending bare[4];
  static const struct {
    const char *name;
    uint32_t depth;
    unsigned flags;
  } ways[] = {{"bare-1000", ITERATORS, IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG},
              {"bare-1000-deferred", ITERATORS, IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN},
              {"bare-256", 256, IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG},
              {"bare-64", 64, IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG}};
  struct sample sample;
  worker_run(&(struct worker_job){begin_build, build_pending, NULL, &ours}, 0, &sample);
  struct contest contest = {.what = "pending/1000-iterators/cold",
                            .unit = "reads/s",
                            .rounds = bench->rounds  ? bench->rounds
                                      : bench->quick ? 5
                                                     : 11};
  contest_add(&contest, "turbidite", &(struct worker_job){begin_pending, pass_pending, end_pending, &ours});
  for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
    bare[i] = ours;
    bare[i].depth = ways[i].depth;
    bare[i].flags = ways[i].flags;
    bare[i].registered_file = true;
    contest_add(&contest, ways[i].name, &(struct worker_job){begin_bare, pass_bare, end_bare, &bare[i]});
  }
  contest_run(&contest);
  pending_rows(&contest);
  folder_remove(path);
  free(path);
}

/* ---- deleted ---- */

enum deletes { DELETED_BY_KEY, DELETED_BY_RANGE };

struct deleted {
  const char *path;
  uint32_t rows;
  enum deletes how;
};

#define SMALL_ROW_BYTES 16u

static void build_deleted(void *state, uint32_t round, struct sample *sample) {
  const struct deleted *what = state;
  turb_error error = TURB_ERROR_INIT;
  turb_write_options options = TURB_WRITE_OPTIONS_INIT;
  options.durability = TURB_UNLOGGED;
  turb_collection *rows;
  turb_db *db = open_db(what->path, 512 * MEBIBYTE, SMALL_ROW_BYTES, &rows);
  uint8_t key[KEY_BYTES];
  (void)round;
  (void)sample;
  put_rows(db, rows, what->rows, SMALL_ROW_BYTES);
  if (what->how == DELETED_BY_RANGE)
    check(turb_delete_range(rows, TURB_STR("\0"), TURB_NONE, &options, &error), &error);
  for (uint32_t i = 0; i < what->rows && what->how == DELETED_BY_KEY; i++) {
    work_key(i, true, key);
    check(turb_delete(rows, (turb_bytes){key, KEY_BYTES}, &options, &error), &error);
  }
  check(turb_flush(db, rows, &error), &error);
  check(turb_close(db, &error), &error);
}

struct calls {
  double *us; /* CPU of each call */
  size_t count, capacity;
  uint64_t most; /* entries that one call looked at */
  uint64_t looked_at;
};

struct deleted_state {
  const struct deleted *what;
  turb_db *db;
  turb_collection *rows;
  turb_iterator *it;
};

static double thread_us(void) {
  struct timespec t;
  (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static uint64_t looked_at(const turb_iterator *it) {
  uint64_t entries, hidden;
  visible_cursor_counts(((const struct iterator *)it)->cursor, &entries, &hidden);
  return entries;
}

enum step { STEP_FIRST, STEP_LAST, STEP_SEEK, STEP_ADVANCE };

static turb_state timed_call(turb_iterator *it, enum step step, turb_bytes key, struct calls *calls) {
  const uint64_t before = looked_at(it);
  const double begin = thread_us();
  turb_state state = TURB_FAILED;
  switch (step) {
  case STEP_FIRST: state = turb_first(it); break;
  case STEP_LAST: state = turb_last(it); break;
  case STEP_SEEK: state = turb_seek(it, key); break;
  case STEP_ADVANCE: state = turb_advance(it); break;
  }
  const double us = thread_us() - begin;
  const uint64_t entries = looked_at(it) - before;
  calls->looked_at += entries;
  calls->most = entries > calls->most ? entries : calls->most;
  if (state == TURB_PENDING)
    bench_fail("deleted: a call waits, though the entries should be resident");
  if (calls->count < calls->capacity && state != TURB_END) /* the last one does less */
    calls->us[calls->count++] = us;
  return state;
}

/* From a beginning until the end of the collection. */
static void walk(turb_iterator *it, enum step step, struct calls *calls) {
  turb_state state = timed_call(it, step, TURB_NONE, calls);
  while (state == TURB_YIELD)
    state = timed_call(it, STEP_ADVANCE, TURB_NONE, calls);
  if (state != TURB_END)
    bench_fail("deleted: something was found");
}

static void calls_row(const struct deleted *what, const char *name, struct calls *calls, bool target) {
  const double middle = calls->count ? median(calls->us, calls->count) : 0;
  row_begin("us of CPU a call", middle, "deleted/%s/%s", what->how == DELETED_BY_KEY ? "by-key" : "by-range", name);
  row_number("calls", (double)calls->count);
  row_number("p99_us", calls->count ? percentile(calls->us, calls->count, 0.99) : 0);
  row_number("entries_looked_at", (double)calls->looked_at);
  row_number("most_a_call", (double)calls->most);
  if (target)
    row_target("a call looks at no more than 4,096 entries and takes 50 us of CPU or less", calls->most <= WORK_BUDGET && middle <= 50);
  row_end();
  calls->count = 0;
  calls->most = calls->looked_at = 0;
}

static void *begin_deleted(const void *argument) {
  struct deleted_state *state = bench_alloc(sizeof *state);
  turb_error error = TURB_ERROR_INIT;
  state->what = argument;
  state->db = open_db(state->what->path, 1024 * MEBIBYTE, SMALL_ROW_BYTES, &state->rows);
  turb_iterator_options options = TURB_ITERATOR_OPTIONS_INIT;
  options.parts = TURB_KEY;
  options.work_budget = WORK_BUDGET;
  check(turb_iterator_open(state->rows, &options, &state->it, &error), &error);
  (void)turb_finish(state->it, turb_first(state->it)); /* into the cache */
  return state;
}

static void pass_deleted(void *argument, uint32_t round, struct sample *sample) {
  struct deleted_state *state = argument;
  struct calls calls = {.capacity = 1u << 16};
  calls.us = bench_alloc(calls.capacity * sizeof *calls.us);
  (void)sample;
  for (int i = 0; i < 7; i++)
    walk(state->it, STEP_FIRST, &calls);
  calls_row(state->what, "forward", &calls, true);
  for (int i = 0; i < 7; i++)
    walk(state->it, STEP_LAST, &calls);
  calls_row(state->what, "backward", &calls, true);
  uint8_t key[KEY_BYTES];
  for (uint32_t i = 0; i < 2000; i++) {
    work_key((uint32_t)work_below(i + round, state->what->rows * 9 / 10), true, key);
    (void)timed_call(state->it, STEP_SEEK, (turb_bytes){key, KEY_BYTES}, &calls);
  }
  calls_row(state->what, "seek", &calls, true);
  free(calls.us);
}

static void end_deleted(void *argument) {
  struct deleted_state *state = argument;
  turb_error error = TURB_ERROR_INIT;
  turb_iterator_close(state->it);
  check(turb_close(state->db, &error), &error);
  free(state);
}

static void run_deleted(const struct bench_options *bench, enum deletes how) {
  char *path = path_join(bench->folder, "deleted-%d", (int)how);
  const struct deleted what = {.path = path, .rows = 1000000, .how = how};
  struct sample sample;
  worker_run(&(struct worker_job){begin_build, build_deleted, NULL, &what}, 0, &sample);
  worker_run(&(struct worker_job){begin_deleted, pass_deleted, end_deleted, &what}, 0, &sample);
  folder_remove(path);
  free(path);
}

static void run(const struct bench_options *bench) {
  if (bench_wants(bench, "pending"))
    run_pending(bench);
  if (bench_wants(bench, "deleted-by-key"))
    run_deleted(bench, DELETED_BY_KEY);
  if (bench_wants(bench, "deleted-by-range"))
    run_deleted(bench, DELETED_BY_RANGE);
}

int main(int argc, char **argv) {
  return bench_main(argc, argv, "pending", run);
}
