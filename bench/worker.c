/* Child processes that do timed passes by turns (bench.h).
 *
 *   the forker                      the child
 *   worker_start  --fork-->         begin; sends a sample: ready
 *   worker_pass   --round-->        pass; sends its sample
 *   worker_end    --END-->          end; sends a last sample with the peak of its memory; exits
 */
#include "bench/bench.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
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

static _Noreturn void serve(const struct worker_job *job, int orders, int answers) {
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

struct worker *worker_start(const struct worker_job *job) {
  int orders[2], answers[2];
  if (pipe(orders) != 0 || pipe(answers) != 0)
    bench_fail("no pipe can be made");
  (void)fflush(stdout);
  struct worker *worker = bench_alloc(sizeof *worker);
  worker->process = fork();
  if (worker->process < 0)
    bench_fail("no process can be made");
  if (worker->process == 0) {
    (void)close(orders[1]);
    (void)close(answers[0]);
    serve(job, orders[0], answers[1]);
  }
  (void)close(orders[0]);
  (void)close(answers[1]);
  worker->orders = orders[1];
  worker->answers = answers[0];
  struct sample ready;
  if (!read_all(worker->answers, &ready, sizeof ready))
    bench_fail("a contestant ended while it got ready");
  return worker;
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
