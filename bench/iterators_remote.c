/* Walks by another process (iterators.h): the binary that was linked without link-time optimisation, and either binary under callgrind.
 *
 *   we                                   the other, run with --serve
 *   struct order on its input            opens the set, gets warm
 *                                        a sample on its output: ready
 *   a round                              a pass; its sample
 *   the end of its input                 ends
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
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

struct remote {
  pid_t process;
  int orders, answers;
};

static bool read_all(int fd, void *to, size_t size) {
  uint8_t *at = to;
  while (size) {
    const ssize_t got = read(fd, at, size);
    if (got < 0 && errno == EINTR)
      continue;
    if (got <= 0)
      return false;
    at += got;
    size -= (size_t)got;
  }
  return true;
}

static void write_all(int fd, const void *from, size_t size) {
  if (write(fd, from, size) != (ssize_t)size) /* smaller than PIPE_BUF */
    bench_fail("the other process takes no order");
}

/* ---- the other ---- */

/* By its name callgrind knows when to count. */
__attribute__((noinline, noclone)) void remote_counted_pass(const struct worker_job *job, void *state, uint32_t round,
                                                            struct sample *sample);
void remote_counted_pass(const struct worker_job *job, void *state, uint32_t round, struct sample *sample) {
  job->pass(state, round, sample);
}

int remote_serve(void) {
  struct order order;
  work_prepare();
  if (!read_all(STDIN_FILENO, &order, sizeof order))
    return 1;
  order.set.name = order.set_name;
  order.walk.world = world_open(&order.set, order.folder, order.run_count, UINT64_C(16) << 30);
  if (!order.walk.tree.streaming)
    world_warm(order.walk.world, order.walk.touch);
  const struct worker_job job = walk_job(&order.walk);
  void *state = job.begin(job.argument);
  struct sample sample = {0};
  uint32_t round;
  write_all(STDOUT_FILENO, &sample, sizeof sample);
  while (read_all(STDIN_FILENO, &round, sizeof round)) {
    remote_counted_pass(&job, state, round, &sample);
    write_all(STDOUT_FILENO, &sample, sizeof sample);
  }
  return 0;
}

/* ---- we ---- */

static struct remote start(const struct walk_case *what, const char *const *arguments) {
  int orders[2], answers[2];
  if (pipe2(orders, O_CLOEXEC) != 0 || pipe2(answers, O_CLOEXEC) != 0)
    bench_fail("no pipe can be made");
  struct remote remote = {fork(), orders[1], answers[0]};
  if (remote.process < 0)
    bench_fail("no process can be made");
  if (remote.process == 0) {
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (dup2(orders[0], STDIN_FILENO) < 0 || dup2(answers[1], STDOUT_FILENO) < 0)
      _exit(1);
    (void)execvp(arguments[0], (char *const *)(uintptr_t)arguments); /* which does not write to them */
    bench_say("%s cannot be run: %s", arguments[0], strerror(errno));
    _exit(1);
  }
  (void)close(orders[0]);
  (void)close(answers[1]);
  struct order order = {.set = *what->world->set, .run_count = what->tree.first_run + what->tree.runs, .walk = *what};
  (void)snprintf(order.set_name, sizeof order.set_name, "%s", what->world->set->name);
  (void)snprintf(order.folder, sizeof order.folder, "%s", what->world->folder);
  write_all(remote.orders, &order, sizeof order);
  struct sample ready;
  if (!read_all(remote.answers, &ready, sizeof ready))
    bench_fail("%s ended while it got ready", arguments[0]);
  return remote;
}

static void ask(const struct remote *remote, uint32_t round, struct sample *sample) {
  write_all(remote->orders, &round, sizeof round);
  if (!read_all(remote->answers, sample, sizeof *sample))
    bench_fail("the other process ended before its time");
}

static void finish(const struct remote *remote) {
  (void)close(remote->orders);
  (void)close(remote->answers);
  int state = 0;
  while (waitpid(remote->process, &state, 0) < 0 && errno == EINTR) {}
  if (!WIFEXITED(state) || WEXITSTATUS(state) != 0)
    bench_fail("the other process ended badly");
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
  struct remote *remote = bench_alloc(sizeof *remote);
  char *path = own_path("-nolto");
  const char *const arguments[] = {path, "--serve", NULL};
  *remote = start(argument, arguments);
  free(path);
  return remote;
}

static void pass(void *state, uint32_t round, struct sample *sample) {
  ask(state, round, sample);
}

static void end(void *state) {
  finish(state);
  free(state);
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
    const struct remote remote = start(&once, arguments);
    struct sample sample;
    ask(&remote, 0, &sample);
    finish(&remote);
    counted = collected(log) / sample.operations;
  }
  free(path);
  free(log);
  return counted;
}
