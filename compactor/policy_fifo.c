/* FIFO and TTL: the oldest runs are dropped whole, because all runs together exceed fifo_max_bytes (the newest run stays whatever its size),
 * or because every entry of the run is older than ttl_s. Drops go first.
 *
 * Merges only bound the number of runs: while there are few, none; then T small neighbours of one level, the oldest first, as long as the result is at
 * most an eighth of everything, so that drops stay fine-grained. So runs above an eighth / T are left alone, of which there are at most 8 T. */
#include "compactor/policy_parts.h"

#define FIFO_FREE_RUNS 32u /* up to so many, nothing is merged */
#define FIFO_PARTS     8u

static uint64_t all_bytes(const struct policy_run *runs, size_t count) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < count; i++)
    bytes += runs[i].bytes;
  return bytes;
}

static bool may_drop(const struct policy_run *run) {
  return !run->busy && !run->held;
}

static bool is_old(const struct policy_options *options, const struct policy_run *run) {
  return run->written_by_s && options->now_s > run->written_by_s && options->now_s - run->written_by_s >= options->ttl_s;
}

static struct policy_pick next_drop(const struct policy_options *options, const struct policy_run *runs, size_t count, uint64_t bytes) {
  size_t first = count;
  while (options->ttl_s && first && may_drop(&runs[first - 1]) && is_old(options, &runs[first - 1]))
    first--;
  if (first < count)
    return policy_stretch(POLICY_DROP_AGE, first, count - first, count);
  for (; options->fifo_max_bytes && bytes > options->fifo_max_bytes && first > 1 && may_drop(&runs[first - 1]); first--)
    bytes -= runs[first - 1].bytes;
  return first < count ? policy_stretch(POLICY_DROP_SIZE, first, count - first, count) : (struct policy_pick){0};
}

/* Whether T runs from `first` on may become one: none busy, all at or below the level of the first, small enough together. */
static bool is_mergeable(const struct policy_options *options, const struct policy_run *runs, size_t first, uint64_t most_bytes) {
  const uint32_t level = policy_level(options, runs[first].bytes);
  uint64_t bytes = 0;
  for (size_t i = first; i < first + options->size_ratio; i++) {
    bytes += runs[i].bytes;
    if (runs[i].busy || bytes > most_bytes || policy_level(options, runs[i].bytes) > level)
      return false;
  }
  return true;
}

static struct policy_pick next_merge(const struct policy_options *options, const struct policy_run *runs, size_t count, uint64_t bytes) {
  for (size_t end = count; end >= options->size_ratio; end--)
    if (is_mergeable(options, runs, end - options->size_ratio, bytes / FIFO_PARTS))
      return policy_stretch(POLICY_TIER, end - options->size_ratio, options->size_ratio, count);
  return (struct policy_pick){0};
}

struct policy_pick policy_fifo_next(const struct policy_options *options, const struct policy_run *runs, size_t count) {
  const uint64_t bytes = all_bytes(runs, count);
  const struct policy_pick drop = next_drop(options, runs, count, bytes);
  if (drop.reason != POLICY_NOTHING || count <= FIFO_FREE_RUNS)
    return drop;
  return next_merge(options, runs, count, bytes);
}

uint64_t policy_fifo_next_drop_s(const struct policy_options *options, const struct policy_run *runs, size_t count) {
  if (!options->ttl_s || !count || !may_drop(&runs[count - 1]) || !runs[count - 1].written_by_s)
    return UINT64_MAX;
  const uint64_t written_s = runs[count - 1].written_by_s;
  return written_s > UINT64_MAX - options->ttl_s ? UINT64_MAX : written_s + options->ttl_s;
}

uint32_t policy_fifo_runs_max(const struct policy_options *options) {
  return 16 * options->size_ratio + 64;
}
