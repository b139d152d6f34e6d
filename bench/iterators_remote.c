/* Walks by another process (iterators.h): the binary that was linked without link-time optimisation, and either binary under callgrind. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/iterators.h"

struct order { /* both binaries are built from the same sources */
  struct data_set set;
  char set_name[32], folder[1024];
  uint32_t run_count;
  struct walk_case walk;
};

#define VALGRIND        "/usr/bin/valgrind"
#define COUNTED_ENTRIES 100000u /* at least: what a pass does besides walking shall not show */

/* ---- the other ---- */

/* By its name callgrind knows when to count. */
__attribute__((noinline, noclone)) void remote_counted_pass(const struct worker_job *job, void *state, uint32_t round,
                                                            struct sample *sample);
void remote_counted_pass(const struct worker_job *job, void *state, uint32_t round, struct sample *sample) {
  job->pass(state, round, sample);
}

static struct worker_job served;
static void pass_served(void *state, uint32_t round, struct sample *sample) {
  remote_counted_pass(&served, state, round, sample);
}

int remote_serve(void) {
  static struct order order;
  work_prepare();
  if (!worker_read_order(STDIN_FILENO, &order, sizeof order))
    return 1;
  order.set.name = order.set_name;
  order.walk.world = world_open(&order.set, order.folder, order.run_count, UINT64_C(16) << 30);
  if (!order.walk.tree.streaming)
    world_warm(order.walk.world, order.walk.touch);
  served = walk_job(&order.walk);
  const struct worker_job job = {served.begin, pass_served, served.end, served.argument};
  worker_serve(&job, STDIN_FILENO, STDOUT_FILENO);
}

/* ---- we ---- */

static struct worker *start(const struct walk_case *what, const char *const *arguments) {
  struct order order = {.set = *what->world->set, .run_count = what->tree.first_run + what->tree.runs, .walk = *what};
  (void)snprintf(order.set_name, sizeof order.set_name, "%s", what->world->set->name);
  (void)snprintf(order.folder, sizeof order.folder, "%s", what->world->folder);
  return worker_start_program(arguments, &order, sizeof order);
}

/* This binary, and the one beside it without link-time optimisation; release with free. */
static char *own_path(const char *suffix) {
  char path[4096];
  const ssize_t size = readlink("/proc/self/exe", path, sizeof path - 1);
  if (size < 0)
    bench_fail("where this binary lies is not known");
  path[size] = 0;
  char *whole = bench_alloc((size_t)size + strlen(suffix) + 1);
  (void)sprintf(whole, "%s%s", path, suffix);
  return whole;
}

static void *begin(const void *argument) {
  char *path = own_path("-nolto");
  const char *const arguments[] = {path, "--serve", NULL};
  struct worker *worker = start(argument, arguments);
  free(path);
  return worker;
}

static void pass(void *state, uint32_t round, struct sample *sample) {
  worker_pass(state, round, sample);
}

static void end(void *state) {
  struct sample last;
  worker_end(state, &last);
}

struct worker_job remote_job(const struct walk_case *what) {
  return (struct worker_job){begin, pass, end, what};
}

/* ---- callgrind ---- */

/* What callgrind says at its end, as "Collected : N". */
static double collected(const char *log) {
  FILE *file = fopen(log, "re");
  char line[512];
  double number = 0;
  while (file && fgets(line, sizeof line, file)) {
    const char *at = strstr(line, "Collected : ");
    if (at)
      number = strtod(at + strlen("Collected : "), NULL);
  }
  if (file)
    (void)fclose(file);
  (void)unlink(log);
  return number;
}

/* One pass, counted; the rest of what the other process does is not. */
double remote_instructions(const struct walk_case *what) {
  char *path = own_path(what->no_lto ? "-nolto" : ""), *log = path_join(what->world->folder, "callgrind-log"), option[1200];
  (void)snprintf(option, sizeof option, "--log-file=%s", log);
  const char *const arguments[] = {
      VALGRIND, "--tool=callgrind", "--callgrind-out-file=/dev/null", "--toggle-collect=remote_counted_pass", option, path, "--serve",
      NULL};
  double counted = 0;
  if (access(VALGRIND, X_OK) == 0) {
    struct walk_case once = *what;
    once.repeats = (uint32_t)((COUNTED_ENTRIES + what->entries - 1) / what->entries);
    struct worker *worker = start(&once, arguments);
    struct sample sample, last;
    worker_pass(worker, 0, &sample);
    worker_end(worker, &last);
    counted = collected(log) / sample.operations;
  }
  free(path);
  free(log);
  return counted;
}
