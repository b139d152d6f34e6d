/* Child processes that do timed passes by turns (bench.h).
 *
 *   the forker                      the child
 *   worker_start  --fork-->         begin; sends a sample: ready
 *   worker_start_program  --exec--> another program: reads its order, then worker_serve as above
 *   worker_pass   --round-->        pass; sends its sample
 *   worker_end    --END-->          end; sends a last sample with the peak of its memory; exits
 */
#include "bench/bench.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROUND_END UINT32_MAX

struct worker {
  pid_t process;
  int orders, answers;
};

void meter_start(struct meter *meter) {
  meter->read_bytes = device_read_bytes();
  meter->cpu = cpu_seconds();
  meter->seconds = now_seconds();
}

void meter_stop(const struct meter *meter, double operations, struct sample *sample) {
  sample->seconds = now_seconds() - meter->seconds;
  sample->cpu_seconds = cpu_seconds() - meter->cpu;
  sample->read_bytes = (double)(device_read_bytes() - meter->read_bytes);
  sample->operations = operations;
}

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

/* Samples are smaller than PIPE_BUF: a write is whole or fails. */
static void answer(int fd, const struct sample *sample) {
  if (write(fd, sample, sizeof *sample) != (ssize_t)sizeof *sample)
    _exit(1);
}

_Noreturn void worker_serve(const struct worker_job *job, int orders, int answers) {
  (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
  struct sample sample = {0};
  void *state = job->begin(job->argument);
  answer(answers, &sample);
  uint32_t round;
  while (read_all(orders, &round, sizeof round) && round != ROUND_END) {
    sample = (struct sample){0};
    job->pass(state, round, &sample);
    answer(answers, &sample);
  }
  sample = (struct sample){.anonymous_bytes = (double)anonymous_memory_bytes()};
  if (job->end)
    job->end(state);
  sample.peak_bytes = (double)peak_memory_bytes();
  answer(answers, &sample);
  (void)fflush(stderr);
  _exit(0);
}

/* Forks: the child serves `job`, or becomes the program `arguments`, whose input and output are the pipes. */
static struct worker *fork_worker(const struct worker_job *job, const char *const *arguments) {
  int orders[2], answers[2];
  if (pipe2(orders, O_CLOEXEC) != 0 || pipe2(answers, O_CLOEXEC) != 0)
    bench_fail("no pipe can be made");
  (void)fflush(stdout);
  struct worker *worker = bench_alloc(sizeof *worker);
  worker->process = fork();
  if (worker->process < 0)
    bench_fail("no process can be made");
  if (worker->process == 0) {
    if (job) {
      (void)close(orders[1]);
      (void)close(answers[0]);
      worker_serve(job, orders[0], answers[1]);
    }
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (dup2(orders[0], STDIN_FILENO) >= 0 && dup2(answers[1], STDOUT_FILENO) >= 0)
      (void)execvp(arguments[0], (char *const *)(uintptr_t)arguments); /* which does not write to them */
    bench_say("%s cannot be run: %s", arguments[0], strerror(errno));
    _exit(1);
  }
  (void)close(orders[0]);
  (void)close(answers[1]);
  worker->orders = orders[1];
  worker->answers = answers[0];
  return worker;
}

static struct worker *when_ready(struct worker *worker) {
  struct sample ready;
  if (!read_all(worker->answers, &ready, sizeof ready))
    bench_fail("a contestant ended while it got ready");
  return worker;
}

struct worker *worker_start(const struct worker_job *job) {
  return when_ready(fork_worker(job, NULL));
}

struct worker *worker_start_program(const char *const *arguments, const void *order, size_t size) {
  struct worker *worker = fork_worker(NULL, arguments);
  if (write(worker->orders, order, size) != (ssize_t)size) /* smaller than PIPE_BUF */
    bench_fail("%s takes no order", arguments[0]);
  return when_ready(worker);
}

bool worker_read_order(int orders, void *order, size_t size) {
  return read_all(orders, order, size);
}

static void ask(struct worker *worker, uint32_t round, struct sample *sample) {
  if (write(worker->orders, &round, sizeof round) != (ssize_t)sizeof round || !read_all(worker->answers, sample, sizeof *sample))
    bench_fail("a contestant ended before its time");
}

void worker_pass(struct worker *worker, uint32_t round, struct sample *sample) {
  ask(worker, round, sample);
}

void worker_end(struct worker *worker, struct sample *last) {
  ask(worker, ROUND_END, last);
  (void)close(worker->orders);
  (void)close(worker->answers);
  int state = 0;
  while (waitpid(worker->process, &state, 0) < 0 && errno == EINTR) {}
  if (!WIFEXITED(state) || WEXITSTATUS(state) != 0)
    bench_fail("a contestant ended badly");
  free(worker);
}

void worker_run(const struct worker_job *job, uint32_t round, struct sample *sample) {
  struct worker *worker = worker_start(job);
  worker_pass(worker, round, sample);
  struct sample last;
  worker_end(worker, &last);
  sample->peak_bytes = last.peak_bytes;
  sample->anonymous_bytes = last.anonymous_bytes;
}
