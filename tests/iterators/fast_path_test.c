/* What a walk over resident pages costs: at most one call through the operations table a window or stretch, no system call, no memory. */
#include <stdlib.h>

#include "tests/iterators/ground.h"
#include "tests/support/confined.h"

#define RUNS 8u

static turb_error err;
static turb_error *fresh(void) {
  err = (turb_error)TURB_ERROR_INIT;
  return &err;
}

/* ---- counting calls ---- */

struct counted { /* stands in for a cursor's operations */
  struct cursor_ops ops;
  const struct cursor_ops *inner;
  uint64_t moves; /* advance, retreat, resume, batch */
  uint64_t looks; /* window_of */
};

static const struct cursor_ops *inner_of(struct cursor *cursor) {
  struct counted *counted = (struct counted *)(uintptr_t)cursor->ops; /* ours, though cursors see it const */
  counted->moves++;
  return counted->inner;
}
static turb_state counted_advance(struct cursor *cursor) {
  return inner_of(cursor)->advance(cursor);
}
static turb_state counted_retreat(struct cursor *cursor) {
  return inner_of(cursor)->retreat(cursor);
}
static turb_state counted_resume(struct cursor *cursor) {
  return inner_of(cursor)->resume(cursor);
}
static turb_state counted_batch(struct cursor *cursor, struct cursor_batch *batch, bool backward) {
  return inner_of(cursor)->batch(cursor, batch, backward);
}
static struct window *counted_window_of(const struct cursor *cursor, const struct slot *slot) {
  struct counted *counted = (struct counted *)(uintptr_t)cursor->ops;
  counted->looks++;
  return counted->inner->window_of(cursor, slot);
}

static void count_calls(struct counted *counted, struct cursor *cursor) {
  *counted = (struct counted){.ops = *cursor->ops, .inner = cursor->ops};
  counted->ops.advance = counted_advance;
  counted->ops.retreat = counted_retreat;
  counted->ops.resume = counted_resume;
  counted->ops.batch = counted_batch;
  counted->ops.window_of = counted_window_of;
  cursor->ops = &counted->ops;
}

/* ---- the trees ---- */

enum shape { SHAPE_TABLE, SHAPE_CONCAT, SHAPE_MERGE, SHAPE_VISIBLE, SHAPES };

struct scan {
  struct ground ground;
  struct run_view runs[RUNS];
  uint64_t entries;
  struct cursor *cursor;
  struct counted top, children[RUNS];
};

static void begin(struct scan *s) {
  ground_begin(&s->ground, test_seed());
  s->ground.world.context.fill_cache = true;
  const size_t count = test_scale(2000, 1000, 5000);
  for (uint32_t r = 0; r < RUNS; r++) {
    struct world_list list = {.entries = calloc(count, sizeof *list.entries), .count = count};
    for (size_t i = 0; i < count; i++) {
      struct world_entry *e = &list.entries[i];
      ground_key(e, (i * RUNS + r) * 7 % 11 + (i * RUNS + r) * 11);
      e->sequence = s->ground.world.next_sequence++;
      e->kind = SLOT_PUT;
    }
    s->runs[r] = world_run(&s->ground.world, &list, 2, r);
    world_list_free(&list);
  }
}

static void end(struct scan *s) {
  for (uint32_t r = 0; r < RUNS; r++)
    world_run_free(&s->runs[r]);
  ground_end(&s->ground);
}

static uint64_t pages_of(const struct run_view *run) {
  uint64_t pages = 0;
  for (uint32_t t = 0; t < run->count; t++)
    pages += table_unit_count(run->sources[t].table, UNIT_KEYS);
  return pages;
}

static const struct source *largest_table(const struct run_view *run) {
  const struct source *largest = &run->sources[0];
  for (uint32_t t = 1; t < run->count; t++)
    if (table_get_record(run->sources[t].table)->entries > table_get_record(largest->table)->entries)
      largest = &run->sources[t];
  return largest;
}

static struct cursor *open_shape(struct scan *s, enum shape shape) {
  struct cursor_context *context = &s->ground.world.context;
  struct cursor *children[RUNS], *cursor;
  for (uint32_t r = 0; r < RUNS; r++)
    s->children[r] = (struct counted){.moves = 0};
  if (shape == SHAPE_TABLE) {
    CHECK_OK_ERR(table_cursor_open(context, largest_table(&s->runs[0]), false, &cursor, fresh()), &err);
  } else if (shape == SHAPE_CONCAT) {
    CHECK_OK_ERR(concat_cursor_open(context, &s->runs[0], false, &cursor, fresh()), &err);
  } else {
    for (uint32_t r = 0; r < RUNS; r++) {
      CHECK_OK_ERR(concat_cursor_open(context, &s->runs[r], false, &children[r], fresh()), &err);
      count_calls(&s->children[r], children[r]);
    }
    CHECK_OK_ERR(merge_cursor_open(context, children, RUNS, &cursor, fresh()), &err);
  }
  if (shape == SHAPE_VISIBLE) {
    count_calls(&s->top, cursor); /* of the merge: a visible cursor hands out stretches */
    const struct visible_options options = {.snapshot = SLOT_SEQUENCE_MAX};
    CHECK_OK_ERR(visible_cursor_open(context, cursor, &options, &cursor, fresh()), &err);
  } else {
    count_calls(&s->top, cursor);
  }
  return cursor;
}

/* ---- walks ---- */

enum way { WAY_FORWARD, WAY_BACKWARD, WAY_BATCH, WAY_BATCH_BACKWARD, WAYS };

/* Walks over everything, without a wait and without a look at anything but keys; returns how many entries came. */
static uint64_t walk(struct cursor *cursor, enum way way) {
  const bool backward = way == WAY_BACKWARD || way == WAY_BATCH_BACKWARD;
  uint64_t count = 0;
  turb_state state = backward ? cursor_last(cursor) : cursor_first(cursor);
  if (way == WAY_FORWARD || way == WAY_BACKWARD) {
    for (; state == TURB_READY; state = backward ? cursor_retreat(cursor) : cursor_advance(cursor))
      count++;
    return state == TURB_END ? count : 0;
  }
  struct cursor_ref refs[256];
  struct window *held[128];
  struct cursor_batch batch = {.refs = refs, .capacity = 256, .held = held, .held_capacity = 128};
  while (state == TURB_READY) {
    state = cursor_take(cursor, &batch, backward);
    count += batch.count;
    cursor_batch_release(&batch);
  }
  return state == TURB_END ? count : 0;
}

/* Until all its pages are resident. */
static uint64_t warm(struct scan *s, struct cursor *cursor) {
  uint64_t count = 0;
  while (!(count = walk(cursor, WAY_FORWARD))) {
    for (turb_state state = cursor->state; state != TURB_END; state = cursor_advance(cursor))
      if (state != TURB_READY)
        (void)cursor_await(cursor);
  }
  CHECK_EQ(s->ground.world.reads.queued + s->ground.world.reads.in_flight, 0);
  return count;
}

/* The most moves that a walk may ask of the topmost counted cursor. */
static uint64_t moves_allowed(const struct scan *s, enum shape shape, enum way way, uint64_t entries) {
  const bool batch = way == WAY_BATCH || way == WAY_BATCH_BACKWARD;
  if (shape == SHAPE_TABLE)
    return batch ? entries / 256 + 2 : table_unit_count(largest_table(&s->runs[0])->table, UNIT_KEYS) + 1;
  if (shape == SHAPE_CONCAT)
    return batch ? entries / 256 + 4 : pages_of(&s->runs[0]) + 4;
  return entries / 16 + 8;
}

static void check_calls(struct scan *s, enum shape shape, enum way way, struct cursor *cursor, uint64_t entries) {
  s->top.moves = s->top.looks = 0;
  for (uint32_t r = 0; r < RUNS; r++)
    s->children[r].moves = s->children[r].looks = 0;
  CHECK_EQ(walk(cursor, way), entries);
  uint64_t pages = 0, moves = 0, looks = s->top.looks;
  for (uint32_t r = 0; r < RUNS; r++) {
    pages += pages_of(&s->runs[r]);
    moves += s->children[r].moves;
    looks += s->children[r].looks;
  }
  CHECK_MSG(s->top.moves <= moves_allowed(s, shape, way, entries), "shape %d, way %d: %" PRIu64 " moves for %" PRIu64 " entries", shape,
            way, s->top.moves, entries);
  if (shape < SHAPE_MERGE)
    return;
  CHECK_MSG(moves <= pages + 2 * RUNS, "shape %d, way %d: %" PRIu64 " moves of children over %" PRIu64 " pages", shape, way, moves, pages);
  /* What holds a page: asked of each child when a stretch is left. */
  CHECK_MSG(looks <= entries / 3, "shape %d, way %d: %" PRIu64 " looks for windows over %" PRIu64 " entries", shape, way, looks, entries);
}

TEST(fast_path, a_call_a_window) {
  static struct scan s;
  begin(&s);
  for (int shape = 0; shape < SHAPES; shape++) {
    struct cursor *cursor = open_shape(&s, (enum shape)shape);
    const uint64_t entries = warm(&s, cursor);
    for (int way = 0; way < WAYS; way++)
      check_calls(&s, (enum shape)shape, (enum way)way, cursor, entries);
    cursor_close(cursor);
  }
  end(&s);
}

TEST(fast_path, takes_no_memory) {
  static struct scan s;
  begin(&s);
  for (int shape = 0; shape < SHAPES; shape++) {
    struct cursor *cursor = open_shape(&s, (enum shape)shape);
    const uint64_t entries = warm(&s, cursor);
    test_allocator_fail_from(&s.ground.allocator, 1);
    for (int way = 0; way < WAYS; way++)
      CHECK_EQ(walk(cursor, (enum way)way), entries);
    CHECK_EQ(s.ground.allocator.count, 0);
    test_allocator_fail_at(&s.ground.allocator, 0);
    cursor_close(cursor);
  }
  end(&s);
}

struct confined_walk {
  struct cursor *cursor;
  uint64_t entries;
};

static bool walk_all_ways(void *confined) {
  const struct confined_walk *what = confined;
  bool good = true;
  for (int way = 0; way < WAYS; way++)
    good &= walk(what->cursor, (enum way)way) == what->entries;
  return good;
}

TEST(fast_path, makes_no_system_call) {
  static struct scan s;
  begin(&s);
  for (int shape = 0; shape < SHAPES; shape++) {
    struct cursor *cursor = open_shape(&s, (enum shape)shape);
    struct confined_walk what = {cursor, warm(&s, cursor)};
    test_confined(walk_all_ways, &what);
    cursor_close(cursor);
  }
  end(&s);
}
