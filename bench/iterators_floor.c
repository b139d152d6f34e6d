/* The floor (iterators.h): a bare loser tree over the same key pages in memory, and the rows side by side in memory of their own.
 *
 * A node holds the prefix and the child that lost its match. A match is decided and its two sides are exchanged without a branch; only
 * where the prefixes are equal, which is seldom, are keys and sequences compared in full. Prefixes are the eight key bytes from the key's
 * begin, put together from what the page shares and what the slot has, so no key is looked at. One run
 * goes the same way, with no match to play.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/coding.h"
#include "bench/engine.h"
#include "bench/iterators.h"

struct node {
  uint64_t prefix, child;
};

struct floor_run {
  const struct slot *slot, *end; /* of the page at hand; slot is NULL when the run ended */
  uint64_t fixed;                /* what the page's keys share, in place */
  uint32_t shift, page, page_count;
  const struct slot_page **pages;
  const uint8_t *row, *rows; /* next row; all */
};

struct floor_state {
  const struct walk_case *what;
  uint32_t count;
  struct floor_run *runs;
  struct node *nodes; /* [0] unused; [1..count-1] the losers */
  uint64_t sum;
};

static void enter_page(struct floor_run *run) {
  if (run->page == run->page_count) {
    run->slot = run->end = NULL;
    return;
  }
  const struct slot_page *page = run->pages[run->page++];
  run->slot = slot_at(page, 0);
  run->end = slot_at(page, page->slot_count);
  const uint32_t bits = page->shared_prefix_size < 8 ? page->shared_prefix_size * 8u : 64;
  run->shift = bits < 64 ? bits : 63;
  run->fixed = key_prefix8(slot_key(run->slot), run->slot->key_size);
  if (bits < 64)
    run->fixed &= bits ? ~(UINT64_MAX >> bits) : 0;
}

static inline uint64_t prefix_of(const struct floor_run *run) {
  return run->slot ? run->fixed | run->slot->prefix >> run->shift : UINT64_MAX;
}

static __attribute__((noinline)) bool before_in_full(const struct floor_state *state, uint64_t a, uint64_t b) {
  const struct slot *x = state->runs[a].slot, *y = state->runs[b].slot;
  if (!x || !y)
    return x || (!y && a < b);
  const int c = slot_compare(x, y);
  return c ? c < 0 : a < b;
}

static struct node build(struct floor_state *state, uint32_t at) {
  if (at >= state->count)
    return (struct node){prefix_of(&state->runs[at - state->count]), at - state->count};
  const struct node left = build(state, 2 * at), right = build(state, 2 * at + 1);
  const bool left_first = left.prefix != right.prefix ? left.prefix < right.prefix : before_in_full(state, left.child, right.child);
  state->nodes[at] = left_first ? right : left;
  return left_first ? left : right;
}

/* The child that wins after `child`, the winner, took an entry and has `prefix` now. */
static inline uint64_t replay(struct floor_state *state, struct node *nodes, uint64_t prefix, uint64_t child) {
  for (uint64_t at = (state->count + child) / 2; at; at /= 2) {
    const uint64_t other_prefix = nodes[at].prefix, other_child = nodes[at].child;
    uint64_t swap = -(uint64_t)(other_prefix < prefix);
    if (__builtin_expect(other_prefix == prefix, 0))
      swap = -(uint64_t)before_in_full(state, other_child, child);
    const uint64_t prefixes = (other_prefix ^ prefix) & swap, children = (other_child ^ child) & swap;
    nodes[at].prefix = other_prefix ^ prefixes;
    nodes[at].child = other_child ^ children;
    prefix ^= prefixes;
    child ^= children;
  }
  return child;
}

static void rewind_run(struct floor_run *run) {
  run->page = 0;
  run->row = run->rows;
  enter_page(run);
}

/* One walk; inlined twice, for keys alone and with rows. */
static inline __attribute__((always_inline)) uint64_t walk(struct floor_state *state, bool rows, uint32_t row_bytes) {
  struct floor_run *runs = state->runs;
  struct node *nodes = state->nodes;
  uint64_t count = 0, sum = 0;
  for (uint32_t i = 0; i < state->count; i++)
    rewind_run(&runs[i]);
  uint64_t winner = build(state, 1).child;
  for (;;) {
    struct floor_run *run = &runs[winner];
    if (!run->slot)
      break;
    sum += touch_key(run->slot);
    if (rows) {
      sum += touch(run->row, row_bytes);
      run->row += row_bytes;
    }
    count++;
    if (++run->slot == run->end)
      enter_page(run);
    winner = replay(state, nodes, prefix_of(run), winner);
  }
  state->sum += sum;
  return count;
}

static __attribute__((noinline)) uint64_t walk_floor(struct floor_state *state) {
  const uint32_t row_bytes = data_row_bytes(state->what->world->set);
  return state->what->touch ? walk(state, true, row_bytes) : walk(state, false, row_bytes);
}

/* ---- a contestant ---- */

/* Notes the pages of a run, which stay in the cache. */
static void find_pages(struct floor_run *run, struct world *world, uint32_t number) {
  const struct tree_options options = {.first_run = number, .runs = 1};
  struct tree tree;
  tree_open(&tree, world, &options);
  run->pages = bench_alloc(world->set->entries * sizeof(struct slot_page *));
  const struct slot_page *last = NULL;
  for (turb_state state = cursor_first(tree.top); state == TURB_READY; state = cursor_advance(tree.top)) {
    const struct slot_page *page = slot_page_of(tree.top->slot);
    if (page != last)
      run->pages[run->page_count++] = page;
    last = page;
  }
  if (tree.top->state != TURB_END)
    bench_fail("the floor's pages are not all resident");
  tree_close(&tree);
}

/* Memory of the kind that the cache has: slabs of 2 MiB that may become huge pages. */
static void copy_rows(struct floor_run *run, const struct data_set *set, uint32_t number) {
  const uint32_t row_bytes = data_row_bytes(set);
  const size_t bytes = (size_t)set->entries * row_bytes;
  void *memory;
  if (posix_memalign(&memory, (size_t)2 << 20, bytes) != 0)
    bench_fail("no memory for the floor's rows");
  (void)madvise(memory, bytes, MADV_HUGEPAGE);
  uint32_t *order = data_order(set, number, 0);
  struct data_entry entry;
  for (uint32_t i = 0; i < set->entries; i++) {
    data_at(set, number, 0, order, i, &entry);
    memcpy((uint8_t *)memory + (size_t)i * row_bytes, entry.row, row_bytes);
  }
  free(order);
  run->rows = memory;
}

static void *begin(const void *argument) {
  struct floor_state *state = bench_alloc(sizeof *state);
  state->what = argument;
  struct world *world = state->what->world;
  state->count = state->what->tree.runs;
  state->runs = bench_alloc(state->count * sizeof *state->runs);
  state->nodes = bench_alloc(state->count * sizeof *state->nodes);
  for (uint32_t i = 0; i < state->count; i++) {
    find_pages(&state->runs[i], world, i);
    if (state->what->touch)
      copy_rows(&state->runs[i], world->set, i);
  }
  if (walk_floor(state) != state->what->entries)
    bench_fail("the floor does not yield all entries");
  return state;
}

static void pass(void *argument, uint32_t round, struct sample *sample) {
  struct floor_state *state = argument;
  uint64_t count = 0;
  const double start = resident_begin(round);
  for (uint32_t i = 0; i < state->what->repeats; i++)
    count += walk_floor(state);
  resident_stop(start, (double)count, sample);
}

struct worker_job floor_job(const struct walk_case *what) {
  return (struct worker_job){begin, pass, NULL, what};
}
