/*
 * Building, merging and thinning sets of range deletes; see range_deletes.h for the invariants.
 *
 * A build sweeps over the sorted borders of all ranges. The sequence numbers are put in groups: those that the same snapshots see, or
 * each its own where all are kept. A group holds its open ranges in a heap by sequence, from which ended ones are taken when they reach
 * the top; a bitmap with a summary says which groups hold any. So a border costs O(log n) and the groups that are open there, however
 * deep the ranges are nested.
 */
#include "base/range_deletes.h"

#include <assert.h>
#include <string.h>

#include "base/arena.h"
#include "base/range_borders.h"

/* ---- reading ---- */

uint64_t range_fragment_sequence(const struct range_fragment *fragment, uint64_t snapshot) {
  size_t low = 0;
  size_t high = fragment->sequence_count;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if (fragment->sequences[middle] > snapshot) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low < fragment->sequence_count ? fragment->sequences[low] : 0;
}

size_t range_deletes_find(const struct range_deletes *deletes, turb_bytes key) {
  size_t low = 0;
  size_t high = deletes->count;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if (range_fragment_ends_after(&deletes->fragments[middle], key)) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

uint64_t range_deletes_cover(const struct range_deletes *deletes, turb_bytes key, uint64_t snapshot) {
  const size_t index = range_deletes_find(deletes, key);
  if (index == deletes->count) {
    return 0;
  }
  const struct range_fragment *fragment = &deletes->fragments[index];
  if (key_compare(fragment->begin.data, fragment->begin.size, key.data, key.size) > 0) {
    return 0;
  }
  return range_fragment_sequence(fragment, snapshot);
}

bool range_deletes_valid(const struct range_deletes *deletes) {
  for (size_t i = 0; i < deletes->count; i++) {
    const struct range_fragment *fragment = &deletes->fragments[i];
    if (fragment->sequence_count == 0 || fragment->sequences[fragment->sequence_count - 1] == 0) {
      return false;
    }
    for (uint32_t s = 1; s < fragment->sequence_count; s++) {
      if (fragment->sequences[s - 1] <= fragment->sequences[s]) {
        return false;
      }
    }
    if (!range_fragment_ends_after(fragment, fragment->begin)) {
      return false;
    }
    if (i != 0 && range_fragment_ends_after(fragment - 1, fragment->begin)) {
      return false;
    }
  }
  return true;
}

/* ---- collecting fragments ---- */

static turb_status arena_failed(const struct arena *arena, turb_error *err) {
  return status_set(err, arena->failure, "no memory for fragments of range deletes");
}

/* Fragments as they are found, in scratch; their sequences go to the result's arena at once. */
struct collector {
  struct arena *arena;
  struct range_fragment *fragments;
  size_t count;
};

static bool bytes_equal(turb_bytes a, turb_bytes b) {
  return key_equal(a.data, a.size, b.data, b.size);
}

/* Adds a fragment, or lengthens the last one where the two touch and say the same. borrowed: sequences outlive the result. */
static bool collector_add(struct collector *collector, turb_bytes begin, turb_bytes end, const uint64_t *sequences, size_t sequence_count,
                          bool borrowed) {
  struct range_fragment *last = collector->count != 0 ? &collector->fragments[collector->count - 1] : NULL;
  const bool same =
      last != NULL && last->sequence_count == sequence_count && memcmp(last->sequences, sequences, sequence_count * sizeof *sequences) == 0;
  if (same && bytes_equal(last->end, begin)) {
    last->end = end;
    return true;
  }
  if (same) {
    sequences = last->sequences;
  } else if (!borrowed) {
    uint64_t *copy = arena_alloc(collector->arena, sequence_count * sizeof *copy, _Alignof(uint64_t));
    if (copy == NULL) {
      return false;
    }
    memcpy(copy, sequences, sequence_count * sizeof *copy);
    sequences = copy;
  }
  collector->fragments[collector->count++] =
      (struct range_fragment){.begin = begin, .end = end, .sequence_count = (uint32_t)sequence_count, .sequences = sequences};
  return true;
}

static bool collector_finish(struct collector *collector, struct range_deletes *deletes) {
  if (collector->count == 0) {
    return true;
  }
  const size_t size = collector->count * sizeof *collector->fragments;
  struct range_fragment *fragments = arena_alloc(collector->arena, size, _Alignof(struct range_fragment));
  if (fragments == NULL) {
    return false;
  }
  memcpy(fragments, collector->fragments, size);
  deletes->fragments = fragments;
  deletes->count = collector->count;
  return true;
}

/* ---- the sweep ---- */

struct open_range {
  uint64_t sequence;
  uint32_t end; /* rank of its end border; border count when open */
};

struct range {
  uint64_t sequence;
  uint32_t group;
};

/* Group 0 has the highest sequences. */
struct group {
  uint32_t heap; /* where its heap begins */
  uint32_t count;
};

struct sweep {
  struct arena scratch;
  struct range *ranges;
  uint32_t range_count;
  struct range_borders borders;
  uint32_t *by_begin; /* ranges in the order of their begin */
  struct group *groups;
  uint32_t group_count;
  struct open_range *heaps;
  uint64_t *open;    /* bit a group */
  uint64_t *summary; /* bit a word of open */
  uint64_t *current; /* sequences at the present border */
};

static void *scratch_array(struct sweep *sweep, size_t count, size_t size) {
  return arena_alloc_zeroed(&sweep->scratch, (count != 0 ? count : 1) * size, 16);
}

/* The number of snapshots below sequence: equal for sequences that the same snapshots see. */
static size_t snapshots_below(const struct range_snapshots *snapshots, uint64_t sequence) {
  size_t low = 0;
  size_t high = snapshots->count;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if (snapshots->sequences[middle] < sequence) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

/* Gives each range its group. */
static bool sweep_group(struct sweep *sweep, const struct range_snapshots *snapshots) {
  if (snapshots != NULL) {
    sweep->group_count = (uint32_t)snapshots->count + 1;
    for (uint32_t i = 0; i < sweep->range_count; i++) {
      sweep->ranges[i].group = (uint32_t)(snapshots->count - snapshots_below(snapshots, sweep->ranges[i].sequence));
    }
    return true;
  }
  struct range_border *sequences = scratch_array(sweep, sweep->range_count, sizeof *sequences);
  struct range_border *other = scratch_array(sweep, sweep->range_count, sizeof *sequences);
  if (sequences == NULL || other == NULL) {
    return false;
  }
  for (uint32_t i = 0; i < sweep->range_count; i++) {
    sequences[i] = (struct range_border){.prefix = ~sweep->ranges[i].sequence, .range = i};
  }
  sequences = range_borders_sort(sequences, other, sweep->range_count);
  for (uint32_t i = 0; i < sweep->range_count; i++) {
    if (i == 0 || sequences[i].prefix != sequences[i - 1].prefix) {
      sweep->group_count++;
    }
    sweep->ranges[sequences[i].range].group = sweep->group_count - 1;
  }
  return true;
}

/* The arrays of the sweep: ranges by begin (a counting sort), heaps, bitmaps. */
static bool sweep_arrays(struct sweep *sweep) {
  const size_t words = ((size_t)sweep->group_count + 63) / 64;
  uint32_t *starts = scratch_array(sweep, (size_t)sweep->borders.count + 1, sizeof *starts);
  sweep->by_begin = scratch_array(sweep, sweep->range_count, sizeof *sweep->by_begin);
  sweep->groups = scratch_array(sweep, sweep->group_count, sizeof *sweep->groups);
  sweep->heaps = scratch_array(sweep, sweep->range_count, sizeof *sweep->heaps);
  sweep->open = scratch_array(sweep, words, sizeof *sweep->open);
  sweep->summary = scratch_array(sweep, (words + 63) / 64, sizeof *sweep->summary);
  sweep->current = scratch_array(sweep, sweep->group_count, sizeof *sweep->current);
  if (starts == NULL || sweep->by_begin == NULL || sweep->groups == NULL || sweep->heaps == NULL || sweep->open == NULL ||
      sweep->summary == NULL || sweep->current == NULL) {
    return false;
  }
  for (uint32_t i = 0; i < sweep->range_count; i++) {
    starts[sweep->borders.begins[i] + 1]++;
    sweep->groups[sweep->ranges[i].group].count++;
  }
  for (uint32_t i = 0; i < sweep->borders.count; i++) {
    starts[i + 1] += starts[i];
  }
  for (uint32_t i = 0; i < sweep->range_count; i++) {
    sweep->by_begin[starts[sweep->borders.begins[i]]++] = i;
  }
  uint32_t heap = 0;
  for (uint32_t i = 0; i < sweep->group_count; i++) {
    sweep->groups[i].heap = heap;
    heap += sweep->groups[i].count;
    sweep->groups[i].count = 0;
  }
  return true;
}

static void heap_push(struct open_range *heap, uint32_t at, struct open_range range) {
  while (at != 0 && heap[(at - 1) / 2].sequence < range.sequence) {
    heap[at] = heap[(at - 1) / 2];
    at = (at - 1) / 2;
  }
  heap[at] = range;
}

/* Takes the top out; count is that before. */
static void heap_pop(struct open_range *heap, uint32_t count) {
  const struct open_range range = heap[--count];
  uint32_t at = 0;
  for (;;) {
    uint32_t child = 2 * at + 1;
    if (child >= count) {
      break;
    }
    child += child + 1 < count && heap[child + 1].sequence > heap[child].sequence;
    if (heap[child].sequence <= range.sequence) {
      break;
    }
    heap[at] = heap[child];
    at = child;
  }
  heap[at] = range;
}

static void sweep_open(struct sweep *sweep, uint32_t index) {
  const struct range *range = &sweep->ranges[index];
  struct group *group = &sweep->groups[range->group];
  heap_push(&sweep->heaps[group->heap], group->count++, (struct open_range){range->sequence, sweep->borders.ends[index]});
  sweep->open[range->group / 64] |= UINT64_C(1) << (range->group % 64);
  sweep->summary[range->group / 4096] |= UINT64_C(1) << (range->group / 64 % 64);
}

/* The highest sequence of a group behind a border, or 0; ranges that ended are forgotten. */
static uint64_t sweep_top(struct sweep *sweep, size_t index, uint32_t border) {
  struct group *group = &sweep->groups[index];
  struct open_range *heap = &sweep->heaps[group->heap];
  while (group->count != 0 && heap[0].end <= border) {
    heap_pop(heap, group->count--);
  }
  if (group->count != 0) {
    return heap[0].sequence;
  }
  sweep->open[index / 64] &= ~(UINT64_C(1) << (index % 64));
  if (sweep->open[index / 64] == 0) {
    sweep->summary[index / 4096] &= ~(UINT64_C(1) << (index / 64 % 64));
  }
  return 0;
}

/* Collects the sequences that cover the stretch behind a border; returns their number. */
static size_t sweep_current(struct sweep *sweep, uint32_t border) {
  const size_t words = ((size_t)sweep->group_count + 4095) / 4096;
  size_t count = 0;
  for (size_t s = 0; s < words; s++) {
    for (uint64_t summary = sweep->summary[s]; summary != 0; summary &= summary - 1) {
      const size_t word = s * 64 + (size_t)__builtin_ctzll(summary);
      for (uint64_t open = sweep->open[word]; open != 0; open &= open - 1) {
        const uint64_t sequence = sweep_top(sweep, word * 64 + (size_t)__builtin_ctzll(open), border);
        sweep->current[count] = sequence;
        count += sequence != 0;
      }
    }
  }
  return count;
}

static bool sweep_run(struct sweep *sweep, struct arena *arena, struct range_deletes *deletes) {
  struct collector collector = {.arena = arena};
  collector.fragments = scratch_array(sweep, sweep->borders.count, sizeof *collector.fragments);
  if (collector.fragments == NULL) {
    return false;
  }
  uint32_t next = 0;
  for (uint32_t border = 0; border < sweep->borders.count; border++) {
    while (next < sweep->range_count && sweep->borders.begins[sweep->by_begin[next]] == border) {
      sweep_open(sweep, sweep->by_begin[next++]);
    }
    const size_t count = sweep_current(sweep, border);
    const turb_bytes end = border + 1 < sweep->borders.count ? sweep->borders.borders[border + 1].key : (turb_bytes){NULL, 0};
    if (count != 0 && !collector_add(&collector, sweep->borders.borders[border].key, end, sweep->current, count, false)) {
      return false;
    }
  }
  return collector_finish(&collector, deletes);
}

static bool range_is_empty(const struct range_delete *range) {
  return range->end.size != 0 && key_compare(range->begin.data, range->begin.size, range->end.data, range->end.size) >= 0;
}

static bool sweep_build(struct sweep *sweep, const struct range_delete *list, size_t count, const struct range_snapshots *snapshots,
                        struct arena *arena, struct range_deletes *deletes) {
  const struct range_delete **kept = scratch_array(sweep, count, sizeof *kept);
  sweep->ranges = scratch_array(sweep, count, sizeof *sweep->ranges);
  if (kept == NULL || sweep->ranges == NULL) {
    return false;
  }
  for (size_t i = 0; i < count; i++) {
    if (!range_is_empty(&list[i])) {
      assert(list[i].sequence != 0);
      sweep->ranges[sweep->range_count].sequence = list[i].sequence;
      kept[sweep->range_count++] = &list[i];
    }
  }
  return range_borders_rank(kept, sweep->range_count, &sweep->scratch, &sweep->borders) && sweep_group(sweep, snapshots) &&
         sweep_arrays(sweep) && sweep_run(sweep, arena, deletes);
}

turb_status range_deletes_build(const struct range_delete *list, size_t count, const struct range_snapshots *snapshots, struct arena *arena,
                                struct range_deletes *deletes, turb_error *err) {
  *deletes = (struct range_deletes){NULL, 0};
  if (count == 0) {
    return TURB_OK;
  }
  if (count > RANGE_BORDERS_MAX || (snapshots != NULL && snapshots->count > RANGE_BORDERS_MAX)) {
    return status_set(err, TURB_TOO_LARGE, "more than %u range deletes or snapshots in one set", RANGE_BORDERS_MAX);
  }
  struct sweep sweep = {.range_count = 0};
  arena_init(&sweep.scratch, arena->allocator, arena->budget, arena->use, 0);
  turb_status status = TURB_OK;
  if (!sweep_build(&sweep, list, count, snapshots, arena, deletes)) {
    status = arena_failed(sweep.scratch.failure != TURB_OK ? &sweep.scratch : arena, err);
  }
  arena_free(&sweep.scratch);
  return status;
}

/* ---- merge, clip, drop, copy ---- */

turb_status range_deletes_merge(const struct range_deletes *const *sets, size_t set_count, const struct range_snapshots *snapshots,
                                struct arena *arena, struct range_deletes *deletes, turb_error *err) {
  *deletes = (struct range_deletes){NULL, 0};
  size_t count = 0;
  for (size_t s = 0; s < set_count; s++) {
    for (size_t i = 0; i < sets[s]->count; i++) {
      count += sets[s]->fragments[i].sequence_count;
    }
  }
  if (count == 0) {
    return TURB_OK;
  }
  struct arena scratch;
  arena_init(&scratch, arena->allocator, arena->budget, arena->use, 0);
  struct range_delete *list = arena_alloc(&scratch, count * sizeof *list, _Alignof(struct range_delete));
  turb_status status = TURB_OK;
  if (list == NULL) {
    status = arena_failed(&scratch, err);
  } else {
    size_t at = 0;
    for (size_t s = 0; s < set_count; s++) {
      for (size_t i = 0; i < sets[s]->count; i++) {
        const struct range_fragment *fragment = &sets[s]->fragments[i];
        for (uint32_t q = 0; q < fragment->sequence_count; q++) {
          list[at++] = (struct range_delete){fragment->begin, fragment->end, fragment->sequences[q]};
        }
      }
    }
    status = range_deletes_build(list, count, snapshots, arena, deletes, err);
  }
  arena_free(&scratch);
  return status;
}

turb_status range_deletes_clip(const struct range_deletes *from, turb_bytes lower, turb_bytes upper, struct arena *arena,
                               struct range_deletes *deletes, turb_error *err) {
  *deletes = (struct range_deletes){NULL, 0};
  const size_t first = range_deletes_find(from, lower);
  size_t last = first; /* behind the last fragment that begins below upper */
  size_t high = from->count;
  while (last < high) {
    const size_t middle = last + (high - last) / 2;
    const turb_bytes begin = from->fragments[middle].begin;
    if (upper.size == 0 || key_compare(begin.data, begin.size, upper.data, upper.size) < 0) {
      last = middle + 1;
    } else {
      high = middle;
    }
  }
  if (first == last || (upper.size != 0 && key_compare(lower.data, lower.size, upper.data, upper.size) >= 0)) {
    return TURB_OK;
  }
  const size_t count = last - first;
  struct range_fragment *fragments = arena_alloc(arena, count * sizeof *fragments, _Alignof(struct range_fragment));
  if (fragments == NULL) {
    return arena_failed(arena, err);
  }
  memcpy(fragments, &from->fragments[first], count * sizeof *fragments);
  if (key_compare(fragments[0].begin.data, fragments[0].begin.size, lower.data, lower.size) < 0) {
    fragments[0].begin = lower;
  }
  if (upper.size != 0 && range_fragment_ends_after(&fragments[count - 1], upper)) {
    fragments[count - 1].end = upper;
  }
  *deletes = (struct range_deletes){fragments, count};
  return TURB_OK;
}

/* Writes the sequences of a fragment that stay to kept; returns their number. */
static size_t fragment_thin(const struct range_fragment *fragment, const struct range_snapshots *snapshots, uint64_t through,
                            uint64_t *kept) {
  size_t count = 0;
  size_t stripe = 0;
  for (uint32_t i = 0; i < fragment->sequence_count && fragment->sequences[i] > through; i++) {
    if (snapshots != NULL) {
      const size_t own = snapshots_below(snapshots, fragment->sequences[i]);
      if (count != 0 && own == stripe) {
        continue;
      }
      stripe = own;
    }
    kept[count++] = fragment->sequences[i];
  }
  return count;
}

static bool drop_into(const struct range_deletes *from, const struct range_snapshots *snapshots, uint64_t through, struct arena *scratch,
                      struct arena *arena, struct range_deletes *deletes) {
  size_t most = 1;
  for (size_t i = 0; i < from->count; i++) {
    most = from->fragments[i].sequence_count > most ? from->fragments[i].sequence_count : most;
  }
  struct collector collector = {.arena = arena};
  collector.fragments = arena_alloc(scratch, (from->count + 1) * sizeof *collector.fragments, _Alignof(struct range_fragment));
  uint64_t *kept = arena_alloc(scratch, most * sizeof *kept, _Alignof(uint64_t));
  if (collector.fragments == NULL || kept == NULL) {
    return false;
  }
  for (size_t i = 0; i < from->count; i++) {
    const struct range_fragment *fragment = &from->fragments[i];
    const size_t count = fragment_thin(fragment, snapshots, through, kept);
    const bool whole = count == fragment->sequence_count;
    if (count != 0 && !collector_add(&collector, fragment->begin, fragment->end, whole ? fragment->sequences : kept, count, whole)) {
      return false;
    }
  }
  return collector_finish(&collector, deletes);
}

turb_status range_deletes_drop(const struct range_deletes *from, const struct range_snapshots *snapshots, uint64_t through,
                               struct arena *arena, struct range_deletes *deletes, turb_error *err) {
  *deletes = (struct range_deletes){NULL, 0};
  struct arena scratch;
  arena_init(&scratch, arena->allocator, arena->budget, arena->use, 0);
  turb_status status = TURB_OK;
  if (!drop_into(from, snapshots, through, &scratch, arena, deletes)) {
    status = arena_failed(scratch.failure != TURB_OK ? &scratch : arena, err);
  }
  arena_free(&scratch);
  return status;
}

static bool bytes_copy(struct arena *arena, turb_bytes from, turb_bytes *to) {
  const void *copy = arena_copy(arena, from.data, from.size);
  *to = (turb_bytes){copy, from.size};
  return copy != NULL;
}

turb_status range_deletes_copy(const struct range_deletes *from, struct arena *arena, struct range_deletes *deletes, turb_error *err) {
  *deletes = (struct range_deletes){NULL, 0};
  if (from->count == 0) {
    return TURB_OK;
  }
  struct range_fragment *fragments = arena_alloc(arena, from->count * sizeof *fragments, _Alignof(struct range_fragment));
  if (fragments == NULL) {
    return arena_failed(arena, err);
  }
  for (size_t i = 0; i < from->count; i++) {
    const struct range_fragment *source = &from->fragments[i];
    struct range_fragment *copy = &fragments[i];
    *copy = *source;
    /* Borders are mostly shared by two neighbours. */
    if (i != 0 && bytes_equal(source->begin, source[-1].end)) {
      copy->begin = copy[-1].end;
    } else if (!bytes_copy(arena, source->begin, &copy->begin)) {
      return arena_failed(arena, err);
    }
    copy->end = (turb_bytes){NULL, 0};
    if (source->end.size != 0 && !bytes_copy(arena, source->end, &copy->end)) {
      return arena_failed(arena, err);
    }
    uint64_t *sequences = arena_alloc(arena, source->sequence_count * sizeof *sequences, _Alignof(uint64_t));
    if (sequences == NULL) {
      return arena_failed(arena, err);
    }
    memcpy(sequences, source->sequences, source->sequence_count * sizeof *sequences);
    copy->sequences = sequences;
  }
  *deletes = (struct range_deletes){fragments, from->count};
  return TURB_OK;
}
