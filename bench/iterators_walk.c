/* Walks over a tree (iterators.h): entry by entry, or many a call; keys, or keys and rows. */
#include <stdlib.h>

#include "bench/engine.h"
#include "bench/iterators.h"

#define BATCH_ENTRIES 128u
#define BATCH_WINDOWS 256u
#define SET_ENTRIES   64u

static turb_state settled(struct cursor *cursor, turb_state state) {
  return __builtin_expect(state == TURB_PENDING || state == TURB_YIELD, 0) ? cursor_await(cursor) : state;
}

static void check_end(const struct cursor *cursor) {
  turb_error error = TURB_ERROR_INIT;
  if (cursor->state != TURB_END) {
    (void)cursor_error(cursor, &error);
    bench_fail("a walk ended in state %d: %s", (int)cursor->state, error.message);
  }
}

/* Rows for as many of the first refs as make a set. */
static uint32_t resolve_rows(struct tree *tree, const struct cursor_ref *refs, uint32_t count, struct entry_parts *out) {
  turb_error error = TURB_ERROR_INIT;
  turb_state state;
  uint32_t resolved;
  parts_begin(tree->parts);
  while ((state = parts_resolve(tree->parts, refs, count, false, out, &resolved)) == TURB_PENDING)
    bench_check(reads_wait(&tree->reads, &error), &error);
  if (state != TURB_READY) {
    (void)parts_error(tree->parts, &error);
    bench_fail("rows did not come, state %d: %s", (int)state, error.message);
  }
  return resolved;
}

/* Rows for all refs, set by set, and their bytes touched. */
static uint64_t touch_rows(struct tree *tree, const struct cursor_ref *refs, uint32_t count, struct entry_parts *out) {
  const uint32_t row_bytes = data_row_bytes(tree->world->set);
  uint64_t sum = 0;
  for (uint32_t at = 0, resolved; at < count; at += resolved) {
    resolved = resolve_rows(tree, refs + at, count - at, out);
    for (uint32_t i = 0; i < resolved; i++)
      sum += touch(out[i].vector, row_bytes);
  }
  return sum;
}

static uint64_t walk_keys(struct cursor *top, uint64_t *touched) {
  uint64_t count = 0, sum = 0;
  turb_state state = settled(top, cursor_first(top));
  while (state == TURB_READY) {
    sum += touch_key(top->slot);
    count++;
    state = settled(top, cursor_advance(top));
  }
  *touched += sum;
  return count;
}

/* The entries that the cursor's window has ahead, the current one first: what inline advances will come to. */
static uint32_t window_ahead(const struct cursor *top, struct cursor_ref *refs, uint32_t capacity) {
  uint32_t count = 0;
  if (top->ref)
    for (const struct cursor_ref *ref = top->ref; ref <= top->ref_last && count < capacity; ref++)
      refs[count++] = *ref;
  else if (top->window_end)
    for (const struct slot *slot = top->slot; slot < top->window_end && count < capacity; slot++)
      refs[count++] = (struct cursor_ref){slot, top->source};
  else
    refs[count++] = (struct cursor_ref){top->slot, top->source};
  return count;
}

/* Entry by entry; rows come for those in the window at once, as the public iterator has it. */
static uint64_t walk_rows(struct tree *tree, uint64_t *touched) {
  const uint32_t row_bytes = data_row_bytes(tree->world->set);
  struct cursor *top = tree->top;
  struct cursor_ref refs[SET_ENTRIES];
  struct entry_parts out[SET_ENTRIES];
  uint64_t count = 0, sum = 0;
  uint32_t at = 0, resolved = 0;
  turb_state state = settled(top, cursor_first(top));
  while (state == TURB_READY) {
    if (at == resolved) {
      resolved = resolve_rows(tree, refs, window_ahead(top, refs, SET_ENTRIES), out);
      at = 0;
    }
    sum += touch_key(top->slot) + touch(out[at++].vector, row_bytes);
    count++;
    state = settled(top, cursor_advance(top));
  }
  *touched += sum;
  return count;
}

static uint64_t walk_batches(struct tree *tree, bool rows, uint64_t *touched) {
  struct cursor_ref refs[BATCH_ENTRIES];
  struct window *held[BATCH_WINDOWS];
  struct entry_parts out[BATCH_ENTRIES];
  struct cursor_batch batch = {.refs = refs, .capacity = BATCH_ENTRIES, .held = held, .held_capacity = BATCH_WINDOWS};
  struct cursor *top = tree->top;
  uint64_t count = 0, sum = 0;
  turb_state state = settled(top, cursor_first(top));
  while (state == TURB_READY) {
    state = cursor_take(top, &batch, false);
    for (uint32_t i = 0; i < batch.count; i++)
      sum += touch_key(refs[i].slot);
    if (rows)
      sum += touch_rows(tree, refs, batch.count, out);
    count += batch.count;
    cursor_batch_release(&batch);
    state = settled(top, state);
  }
  *touched += sum;
  return count;
}

uint64_t walk_tree(struct tree *tree, bool batch, bool touch_rows_too, uint64_t *sum) {
  if (tree->parts)
    parts_reset(tree->parts);
  const uint64_t count = batch            ? walk_batches(tree, touch_rows_too, sum)
                         : touch_rows_too ? walk_rows(tree, sum)
                                          : walk_keys(tree->top, sum);
  check_end(tree->top);
  return count;
}

/* ---- contestants ---- */

struct walk_state {
  const struct walk_case *what;
  struct world *world;
  struct tree tree;
  uint64_t sum;
  int misses; /* a counter, or -1 */
};

static void walk(struct walk_state *state) {
  const uint64_t count = walk_tree(&state->tree, state->what->batch, state->what->touch, &state->sum);
  if (count != state->what->entries)
    bench_fail("a walk yielded %.0f entries of %.0f", (double)count, (double)state->what->entries);
}

/* Streams read: through a ring of this process, so in a world of its own. */
static void *begin(const void *argument) {
  struct walk_state *state = bench_alloc(sizeof *state);
  const struct walk_case *what = state->what = argument;
  state->world =
      what->tree.streaming ? world_open(what->world->set, what->world->folder, what->world->run_count, UINT64_C(512) << 20) : what->world;
  tree_open(&state->tree, state->world, &what->tree);
  walk(state);
  state->misses = branch_misses_open();
  return state;
}

static void pass(void *argument, uint32_t round, struct sample *sample) {
  struct walk_state *state = argument;
  const struct data_set *set = state->world->set;
  const double input = (double)state->what->tree.runs * set->tables * set->entries;
  struct meter meter;
  const bool resident = !state->what->tree.streaming;
  const double missed = branch_misses_read(state->misses), start = resident ? resident_begin(round) : 0;
  meter_start(&meter);
  for (uint32_t i = 0; i < state->what->repeats; i++)
    walk(state);
  if (resident)
    resident_stop(start, input * state->what->repeats, sample);
  else
    meter_stop(&meter, input * state->what->repeats, sample);
  sample->branch_misses = branch_misses_read(state->misses) - missed;
}

struct worker_job walk_job(const struct walk_case *what) {
  return (struct worker_job){begin, pass, NULL, what};
}
