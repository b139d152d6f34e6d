/* policy_model.h has the model. */
#include "bench/policy_model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"

#define RUNS_MAX     4096u
#define READ_SAMPLES 4096u /* of a simulation: reads are costly to model */

struct writes { /* that a run, or everything, stands for */
  double inserts, updates;
};

struct model {
  const struct model_options *options;
  struct policy_options policy;
  /* The runs, newest first, at [head, RUNS_MAX): a flush goes in front without moving the others. */
  struct policy_run runs[RUNS_MAX];
  struct writes writes[RUNS_MAX];
  size_t head;
  struct writes held; /* the sum of writes */
  uint64_t held_bytes;
  double written_bytes;
  double space_sum, reads_sum;
  uint64_t rests, reads; /* how many were summed */
  bool measures;         /* behind the first tenth */
  struct model_result *result;
};

static double entries_of(const struct model *m, struct writes writes) {
  const double universe = (double)m->options->universe_rows;
  return writes.inserts - universe * expm1(-writes.updates / universe);
}

static uint64_t bytes_of(const struct model *m, struct writes writes) {
  return (uint64_t)(entries_of(m, writes) * (double)m->options->row_bytes);
}

static size_t count_of(const struct model *m) {
  return RUNS_MAX - m->head;
}

static double live_bytes(const struct model *m) {
  const double live = entries_of(m, m->held) * (double)m->options->row_bytes;
  return live > 1 ? live : 1;
}

static void larger(double *most, double value) {
  *most = value > *most ? value : *most;
}

static void flush(struct model *m) {
  if (!m->head)
    bench_fail("policy: more than %u runs", RUNS_MAX);
  const double rows = (double)m->options->flush_rows, share = m->options->update_share;
  m->head--;
  m->writes[m->head] = (struct writes){.inserts = rows * (1 - share), .updates = rows * share};
  const uint64_t bytes = bytes_of(m, m->writes[m->head]);
  m->runs[m->head] = (struct policy_run){.bytes = bytes, .entries = m->options->flush_rows, .written_by_s = m->policy.now_s};
  m->held.inserts += m->writes[m->head].inserts;
  m->held.updates += m->writes[m->head].updates;
  m->held_bytes += bytes;
  m->written_bytes += (double)bytes;
}

static void merge(struct model *m, size_t first, size_t count) {
  struct writes sum = {0};
  uint64_t input_bytes = 0, written_by_s = 0;
  for (size_t i = m->head + first; i < m->head + first + count; i++) {
    sum.inserts += m->writes[i].inserts;
    sum.updates += m->writes[i].updates;
    input_bytes += m->runs[i].bytes;
    written_by_s = m->runs[i].written_by_s > written_by_s ? m->runs[i].written_by_s : written_by_s;
  }
  const uint64_t bytes = bytes_of(m, sum);
  if (m->measures)
    larger(&m->result->space_peak, (double)(m->held_bytes + bytes) / live_bytes(m));
  m->held_bytes = m->held_bytes - input_bytes + bytes;
  m->written_bytes += (double)bytes;
  /* The newer runs, mostly few, move behind. */
  const size_t moved = count - 1;
  memmove(m->runs + m->head + moved, m->runs + m->head, first * sizeof *m->runs);
  memmove(m->writes + m->head + moved, m->writes + m->head, first * sizeof *m->writes);
  m->head += moved;
  m->runs[m->head + first] = (struct policy_run){.bytes = bytes, .entries = bytes / m->options->row_bytes, .written_by_s = written_by_s};
  m->writes[m->head + first] = sum;
}

/* The oldest ones leave; the others move to the end. */
static void drop(struct model *m, size_t count) {
  for (size_t i = RUNS_MAX - count; i < RUNS_MAX; i++) {
    m->held.inserts -= m->writes[i].inserts;
    m->held.updates -= m->writes[i].updates;
    m->held_bytes -= m->runs[i].bytes;
    m->result->dropped_bytes += (double)m->runs[i].bytes;
  }
  const size_t left = count_of(m) - count;
  memmove(m->runs + m->head + count, m->runs + m->head, left * sizeof *m->runs);
  memmove(m->writes + m->head + count, m->writes + m->head, left * sizeof *m->writes);
  m->head += count;
}

static void settle(struct model *m) {
  for (;;) {
    m->result->decisions++;
    const struct policy_pick pick = policy_next(&m->policy, m->runs + m->head, count_of(m));
    if (pick.reason == POLICY_NOTHING)
      return;
    if (policy_drops(pick.reason))
      drop(m, pick.count);
    else
      merge(m, pick.first, pick.count);
  }
}

/* The place of the run with a live key, counted from 1, on average over the live keys. */
static double expected_reads(const struct model *m) {
  const double universe = (double)m->options->universe_rows;
  double newer = 0, sum = 0;
  for (size_t i = m->head; i < RUNS_MAX; i++) {
    const double newest = exp(-newer / universe) * -universe * expm1(-m->writes[i].updates / universe);
    sum += (double)(i - m->head + 1) * (newest + m->writes[i].inserts);
    newer += m->writes[i].updates;
  }
  return sum / entries_of(m, m->held);
}

static void measure(struct model *m, uint64_t at) {
  struct model_result *r = m->result;
  const uint64_t flushes = m->options->flushes, count = count_of(m);
  r->runs_most = count > r->runs_most ? count : r->runs_most;
  m->measures = at >= flushes / 10;
  if (!m->measures || !count)
    return;
  const double space = (double)m->held_bytes / live_bytes(m);
  larger(&r->space_worst, space);
  larger(&r->space_peak, space);
  m->space_sum += space;
  r->runs_mean += (double)count;
  m->rests++;
  const uint64_t every = flushes / READ_SAMPLES + 1;
  if (at % every == 0) {
    m->reads_sum += expected_reads(m);
    m->reads++;
  }
}

void model_run(const struct model_options *options, struct model_result *result) {
  *result = (struct model_result){0};
  struct model *m = bench_alloc(sizeof *m);
  memset(m, 0, sizeof *m);
  m->options = options;
  m->policy = options->policy;
  m->policy.unit_bytes = options->flush_rows * options->row_bytes;
  m->policy.now_s = 1;
  m->head = RUNS_MAX;
  m->result = result;
  const double begin = cpu_seconds();
  for (uint64_t at = 0; at < options->flushes; at++) {
    m->policy.now_s += options->flush_interval_s;
    flush(m);
    settle(m);
    measure(m, at);
  }
  result->cpu_seconds = cpu_seconds() - begin;
  result->user_bytes = (double)options->flushes * (double)options->flush_rows * (double)options->row_bytes;
  result->held_bytes = (double)m->held_bytes;
  result->write_amplification = m->written_bytes / result->user_bytes;
  result->space_mean = m->space_sum / (double)m->rests;
  result->runs_mean /= (double)m->rests;
  result->reads_mean = m->reads_sum / (double)m->reads;
  free(m);
}
