/* bench/bench: what every benchmark shares.
 *
 *   report.c   options; rows: one JSON object a line on standard output, people's words on standard error
 *   work.c     keys, vectors, random numbers, order statistics
 *   process.c  clocks and counters of this process; files and folders
 *   worker.c   child processes that do timed passes by turns
 *   contest.c  several contestants with the same work: rounds, medians, paired ratios
 *
 * bench_main runs the benchmark in a child, so that its scratch folder is removed however it ends. Every engine runs in a child of that
 * child: peak memory and CPU seconds are its own. The process that forks has no threads. A failure ends the process with its reason.
 */
#ifndef TURB_BENCH_BENCH_H
#define TURB_BENCH_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "turbidite/turbidite.h"

/* ---- options and failure ---- */

struct bench_options {
  bool quick;         /* under 50 seconds: targets alone, less work */
  const char *only;   /* NULL, or: only families whose name contains this */
  const char *folder; /* scratch: ours alone */
  uint32_t rounds;    /* 0: as each family thinks right */
};

/* Reads the arguments, makes the scratch folder, runs `run` in a child, removes the folder; returns the exit code. */
int bench_main(int argc, char **argv, const char *name, void (*run)(const struct bench_options *options));
/* Whether a family runs. */
bool bench_wants(const struct bench_options *options, const char *family);
/* Says why on standard error and ends the process. */
_Noreturn void bench_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Ends the process when a call of turbidite's failed. */
static inline void bench_check(turb_status status, const turb_error *error) {
  if (status != TURB_OK)
    bench_fail("turbidite: %s", error->message);
}
/* CPU time of the calling thread. */
double thread_seconds(void);
void bench_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Memory or the end. */
void *bench_alloc(size_t bytes);

/* ---- rows: begin, members, end ---- */

void row_begin(const char *unit, double value, const char *format, ...) __attribute__((format(printf, 3, 4)));
void row_number(const char *name, double value);
void row_text(const char *name, const char *text);
void row_target(const char *words, bool met);
void row_end(void);

/* ---- work ---- */

#define KEY_BYTES 16

uint64_t work_mix(uint64_t x);
/* A number below `below` that follows from `at` alone. */
uint64_t work_below(uint64_t at, uint64_t below);
/* Key of entry i: random order, or (ordered) the order of i. */
void work_key(uint64_t i, bool ordered, uint8_t key[KEY_BYTES]);
/* The vector of entry i, finite floats that do not compress; lives for ever. Call work_prepare first, before any thread. */
void work_prepare(void);
const void *work_row(uint64_t i, uint32_t row_bytes);
/* 0 .. count-1 in the order of their keys; release with free. */
uint32_t *work_sorted(uint32_t count);
double median(const double *values, size_t count);
double percentile(double *values, size_t count, double share); /* sorts */

/* ---- the process and files ---- */

double now_seconds(void);
double cpu_seconds(void);
uint64_t peak_memory_bytes(void);
uint64_t anonymous_memory_bytes(void);
/* Bytes that this process had the device read. */
uint64_t device_read_bytes(void);
/* Bytes of all write calls of this process. */
uint64_t process_written_bytes(void);
void folder_remove(const char *path);
void folder_make(const char *path);
/* Bytes on disk of the files in a folder. */
uint64_t folder_bytes(const char *path);
/* Writes the folder's files out and drops them from the page cache. */
void folder_drop_cache(const char *path);
/* The largest file of a folder; release with free. */
char *folder_largest_file(const char *path);
char *path_join(const char *folder, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- workers ---- */

struct sample { /* of a pass; also what a worker says at its end */
  double operations, seconds, cpu_seconds;
  double p50_us, p99_us; /* 0: not measured */
  double read_bytes;     /* from the device */
  double table_bytes;    /* written to tables */
  double disk_bytes;
  double second_seconds; /* of the pass's second part, where it has one */
  double peak_bytes, anonymous_bytes;
  double branch_misses; /* 0: not counted */
  double system_calls;  /* that asked for reads or waited for them; 0: not counted */
  double requests;      /* what the operations stand for, where they are bytes or reads: seeks, for example */
};

struct worker_job {
  void *(*begin)(const void *argument);                             /* in the child, once */
  void (*pass)(void *state, uint32_t round, struct sample *sample); /* timed by itself, with meters */
  void (*end)(void *state);                                         /* may be NULL */
  const void *argument;
};

struct meter {
  double seconds, cpu;
  uint64_t read_bytes;
};
void meter_start(struct meter *meter);
void meter_stop(const struct meter *meter, double operations, struct sample *sample);

struct worker;
/* Returns when begin is done. */
struct worker *worker_start(const struct worker_job *job);
/* Another program as the child: it gets `order` (of at most PIPE_BUF bytes) on its standard input, and serves there. */
struct worker *worker_start_program(const char *const *arguments, const void *order, size_t size);
/* In that program: reads the order; serves the job that it makes of it. */
bool worker_read_order(int orders, void *order, size_t size);
_Noreturn void worker_serve(const struct worker_job *job, int orders, int answers);
void worker_pass(struct worker *worker, uint32_t round, struct sample *sample);
/* Peak memory comes in `last`. */
void worker_end(struct worker *worker, struct sample *last);
/* One pass in a child of its own, with its peak memory. */
void worker_run(const struct worker_job *job, uint32_t round, struct sample *sample);

/* ---- contests ---- */

#define CONTEST_MAX_CONTESTANTS 16
#define CONTEST_MAX_ROUNDS      32

struct contestant {
  const char *name; /* ratios are taken against the best contestant whose name begins so */
  struct worker_job job;
};

struct contest {
  const char *what; /* the rows' case, before the contestant's name */
  const char *unit; /* of operations a second */
  uint32_t rounds;
  bool fresh; /* a child a pass, not one for all passes: memory and state are the pass's own */
  size_t count;
  struct contestant contestants[CONTEST_MAX_CONTESTANTS];
  /* results */
  struct sample samples[CONTEST_MAX_CONTESTANTS][CONTEST_MAX_ROUNDS];
};

void contest_add(struct contest *contest, const char *name, const struct worker_job *job);
/* Round by round, one contestant after the other, each round beginning with another one. */
void contest_run(struct contest *contest);
/* A contestant's rate in each round: operations a second. */
double contest_rate(const struct contest *contest, size_t contestant);
/* Begins the row of a contestant with what was measured; the caller adds members and ends it. */
void contest_row_begin(const struct contest *contest, size_t contestant);
/* Rows of all contestants. */
void contest_rows(const struct contest *contest);
/* The fastest contestant whose name begins so; bench_fail when there is none. */
size_t contest_best(const struct contest *contest, const char *name);
/* Median over the rounds of contestant 0's rate by that of the best contestant named so; the extremes too. */
struct ratio {
  double median, least, most;
  const char *against;
};
struct ratio contest_ratio(const struct contest *contest, const char *name);
/* The same of any two. */
struct ratio contest_ratio_between(const struct contest *contest, size_t contestant, size_t against);
/* A row of such a ratio; met when at least `least`. */
void contest_ratio_row(const struct contest *contest, const char *name, const char *words, double least);
/* Medians over rounds. */
double contest_median(const struct contest *contest, size_t contestant, size_t member_offset);

#endif
