/* bench/pending: iterators that wait and iterators that walk over what is deleted.
 *
 *   pending   1,000 iterators of one thread on one loop, each seeking a random key and reading its row, everything cold, beside bare
 *             io_uring loops that read random 4 KiB of the same file (pending_bare.c)
 *   deleted   1,000,000 deleted entries under iterators with a work budget of 4,096 entries (pending_deleted.c)
 *
 * docs/benchmarks.md says what each row is. */
#include <errno.h>
#include <liburing.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "bench/pending.h"

#define CHUNK 64u /* iterators driven between two submissions, so that the device works meanwhile */

/* ---- iterators ---- */

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
  turb_db *db = pending_open(what->path, 512 * MEBIBYTE, ROW_BYTES, &rows);
  (void)round;
  (void)sample;
  pending_put(db, rows, what->rows, ROW_BYTES);
  bench_check(turb_close(db, &error), &error);
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
    bench_check(turb_iterator_status(seeker->it, &error), &error);
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
  state->db = pending_open(state->what->path, 128 * MEBIBYTE, ROW_BYTES, &state->rows);
  bench_check(turb_loop_open(state->db, &state->loop, &error), &error);
  state->epoll = epoll_create1(EPOLL_CLOEXEC);
  struct epoll_event event = {.events = EPOLLIN};
  if (state->epoll < 0 || epoll_ctl(state->epoll, EPOLL_CTL_ADD, turb_loop_descriptor(state->loop), &event) != 0)
    bench_fail("epoll: %s", strerror(errno));
  turb_iterator_options options = TURB_ITERATOR_OPTIONS_INIT;
  options.parts = TURB_KEY | TURB_VECTOR;
  options.loop = state->loop;
  for (uint32_t i = 0; i < count; i++) {
    options.context = &state->seekers[i];
    bench_check(turb_iterator_open(state->rows, &options, &state->seekers[i].it, &error), &error);
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
  bench_check(turb_get_stats(state->db, &before, &error), &error);
  state->done = state->waits = 0;
  size_t count = 0;
  meter_start(&meter);
  while (state->done < state->what->seeks) {
    bench_check(turb_loop_submit(state->loop, &error), &error);
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
  bench_check(turb_get_stats(state->db, &after, &error), &error);
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
  bench_check(turb_loop_close(state->loop, &error), &error);
  bench_check(turb_close(state->db, &error), &error);
  (void)close(state->epoll);
  free(state->seekers);
  free(state->ready);
  free(state);
}

/* ---- rows ---- */

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
  worker_run(&(struct worker_job){pending_argument, build_pending, NULL, &ours}, 0, &sample);
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
    const struct worker_job job = bare_job(&bare[i]);
    contest_add(&contest, ways[i].name, &job);
  }
  contest_run(&contest);
  pending_rows(&contest);
  folder_remove(path);
  free(path);
}

static void run(const struct bench_options *bench) {
  if (bench_wants(bench, "pending"))
    run_pending(bench);
  deleted_cases(bench);
}

int main(int argc, char **argv) {
  return bench_main(argc, argv, "pending", run);
}
