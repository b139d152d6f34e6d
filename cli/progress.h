/*
 * A progress bar on standard error: share, count, rate and time left. Shown only where standard error is a
 * terminal, so that logs and pipes see none of it.
 *
 * Threads: progress_update may be called from any thread; begin and end belong to the main one.
 */
#ifndef TURB_CLI_PROGRESS_H
#define TURB_CLI_PROGRESS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct progress {
  pthread_mutex_t lock;
  bool enabled;
  bool shown;       /* a bar stands on the terminal */
  const char *what; /* "import" */
  const char *unit; /* "rows" */
  uint64_t start_ns;
  uint64_t last_ns; /* when the bar was drawn */
};

/* what and unit are borrowed until progress_end. quiet: no bar at all. */
void progress_begin(struct progress *progress, const char *what, const char *unit, bool quiet);

/* total 0: not known. Draws at most ten times a second. */
void progress_update(struct progress *progress, uint64_t done, uint64_t total);

/* Takes the bar off the terminal. */
void progress_end(struct progress *progress);

/* Seconds since progress_begin. */
double progress_seconds(const struct progress *progress);

/* From here on an interrupt (control-C) is a request to stop, seen by progress_interrupted; a second one ends the
 * process. */
void progress_catch_interrupts(void);
bool progress_interrupted(void);

#endif
