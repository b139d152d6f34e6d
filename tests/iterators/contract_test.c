/* One suite that every kind of cursor must pass: random moves in both directions, batches, dropped moves, failing reads, closing with
 * reads in flight; the old entry readable while a
 * move is pending. Expected entries come from a sorted list. */
#include <errno.h>
#include <stdlib.h>

#include "base/arena.h"
#include "base/hash.h"
#include "tests/iterators/cursor_world.h"

struct subject {
  struct world world;
  struct cursor *cursor;
  struct world_list expected;
  struct world_list parts[8];
  size_t part_count;
  struct run_view runs[8];
  size_t run_count;
  struct memtable *memtables[4];
  struct source memtable_sources[4];
  size_t memtable_count;
  struct arena arena;
  struct range_deletes range_deletes;
  uint8_t bound_bytes[2][64];
  struct key_bounds bounds;
  uint64_t filter; /* seed of the caller's filter */
};

static turb_error err;
static turb_error *fresh(void) {
  err = (turb_error)TURB_ERROR_INIT;
  return &err;
}

/* ---- making them ---- */

static void begin(struct subject *s, uint64_t seed) {
  memset(s, 0, sizeof *s);
  const uint64_t budgets[] = {3 << 20, 8 << 20, 64 << 20};
  world_begin(&s->world, seed, budgets[seed % 3]);
  arena_init(&s->arena, alloc_default(), NULL, BUDGET_CURSOR, 0);
  s->filter = seed;
}

static struct cursor *add_memtable(struct subject *s, size_t entries) {
  struct world_list *list = &s->parts[s->part_count++];
  *list = world_make(&s->world, entries);
  const size_t i = s->memtable_count++;
  s->memtables[i] = world_memtable(&s->world, list);
  s->memtable_sources[i] = (struct source){.memtable = s->memtables[i], .run = (uint32_t)i};
  struct cursor *cursor;
  CHECK_OK_ERR(memtable_cursor_open(&s->world.context, &s->memtable_sources[i], &cursor, fresh()), &err);
  return cursor;
}

static struct run_view *add_run(struct subject *s, size_t entries, size_t tables) {
  struct world_list *list = &s->parts[s->part_count++];
  *list = world_make(&s->world, entries);
  const size_t i = s->run_count++;
  s->runs[i] = world_run(&s->world, list, tables, (uint32_t)(4 + i));
  return &s->runs[i];
}

static struct cursor *add_concat(struct subject *s, size_t entries, size_t tables, bool streaming) {
  const struct run_view *run = add_run(s, entries, tables);
  struct cursor *cursor;
  CHECK_OK_ERR(concat_cursor_open(&s->world.context, run, streaming, &cursor, fresh()), &err);
  return cursor;
}

static struct cursor *add_merge(struct subject *s, bool streaming) {
  struct cursor *children[6];
  uint32_t n = 0;
  children[n++] = add_memtable(s, 1 + world_random(&s->world, 200));
  const uint32_t runs = 1 + (uint32_t)world_random(&s->world, 4);
  for (uint32_t i = 0; i < runs; i++)
    children[n++] = add_concat(s, world_random(&s->world, 900), 1 + world_random(&s->world, 4), streaming);
  struct cursor *cursor;
  CHECK_OK_ERR(merge_cursor_open(&s->world.context, children, n, &cursor, fresh()), &err);
  return cursor;
}

/* Children of all kinds under one merge: a memtable, a table, a streaming run, a run within (open) bounds, a merge. */
static struct cursor *add_union(struct subject *s) {
  static const struct key_bounds open;
  struct cursor *children[5];
  children[0] = add_memtable(s, world_random(&s->world, 200) + 1);
  const struct run_view *run = add_run(s, 1 + world_random(&s->world, 500), 1);
  CHECK_OK_ERR(table_cursor_open(&s->world.context, &run->sources[0], world_random(&s->world, 2), &children[1], fresh()), &err);
  children[2] = add_concat(s, world_random(&s->world, 600), 3, true);
  children[3] = add_concat(s, world_random(&s->world, 600), 2, false);
  CHECK_OK_ERR(bounded_cursor_open(&s->world.context, children[3], &open, &children[3], fresh()), &err);
  struct cursor *inner[2] = {add_concat(s, world_random(&s->world, 500), 2, false), add_memtable(s, 1 + world_random(&s->world, 100))};
  CHECK_OK_ERR(merge_cursor_open(&s->world.context, inner, 2, &children[4], fresh()), &err);
  struct cursor *cursor;
  CHECK_OK_ERR(merge_cursor_open(&s->world.context, children, 5, &cursor, fresh()), &err);
  return cursor;
}

static void random_bound(struct subject *s, int which, turb_bytes *bound) {
  if (!s->expected.count || world_random(&s->world, 4) == 0)
    return;
  const struct world_entry *e = &s->expected.entries[world_random(&s->world, s->expected.count)];
  memcpy(s->bound_bytes[which], e->key, e->key_size);
  *bound = (turb_bytes){s->bound_bytes[which], e->key_size - (e->key_size > 7 && world_random(&s->world, 3) == 0 ? 1u : 0u)};
}

static struct cursor *bind(struct subject *s, struct cursor *child) {
  random_bound(s, 0, &s->bounds.lower);
  random_bound(s, 1, &s->bounds.upper);
  struct cursor *cursor;
  CHECK_OK_ERR(bounded_cursor_open(&s->world.context, child, &s->bounds, &cursor, fresh()), &err);
  size_t n = 0;
  for (size_t i = 0; i < s->expected.count; i++) {
    const struct world_entry *e = &s->expected.entries[i];
    if (s->bounds.lower.size && key_compare(e->key, e->key_size, s->bounds.lower.data, s->bounds.lower.size) < 0)
      continue;
    if (s->bounds.upper.size && key_compare(e->key, e->key_size, s->bounds.upper.data, s->bounds.upper.size) >= 0)
      continue;
    s->expected.entries[n++] = *e;
  }
  s->expected.count = n;
  return cursor;
}

/* A caller's filter that drops many in a row now and then. */
static bool is_wanted(void *context, turb_bytes key, uint64_t sequence) {
  (void)sequence;
  return (hash64(key.data, key.size < 9 ? key.size : 9, *(const uint64_t *)context) & 3) != 0;
}

static struct cursor *make_visible(struct subject *s, struct cursor *child, bool filtered) {
  const uint64_t snapshot = s->world.next_sequence - world_random(&s->world, s->world.next_sequence / 4 + 1);
  struct range_delete deletes[3];
  size_t count = 0;
  for (; count < 3 && s->expected.count && world_random(&s->world, 2); count++) {
    const struct world_entry *a = &s->expected.entries[world_random(&s->world, s->expected.count)];
    const struct world_entry *b = &s->expected.entries[world_random(&s->world, s->expected.count)];
    deletes[count] = (struct range_delete){{a->key, a->key_size}, {b->key, b->key_size}, s->world.next_sequence++ / 2};
  }
  CHECK_OK_ERR(range_deletes_build(deletes, count, NULL, &s->arena, &s->range_deletes, fresh()), &err);
  CHECK_OK_ERR(range_deletes_copy(&s->range_deletes, &s->arena, &s->range_deletes, fresh()), &err);
  const struct visible_options options = {.snapshot = snapshot,
                                          .range_deletes = &s->range_deletes,
                                          .work_budget = world_random(&s->world, 2) ? 1 + (uint32_t)world_random(&s->world, 100) : 0,
                                          .wanted = filtered ? is_wanted : NULL,
                                          .wanted_context = &s->filter};
  struct cursor *cursor;
  CHECK_OK_ERR(visible_cursor_open(&s->world.context, child, &options, &cursor, fresh()), &err);
  size_t n = 0;
  const struct world_entry *decided = NULL;
  struct world_entry before;
  for (size_t i = 0; i < s->expected.count; i++) {
    const struct world_entry e = s->expected.entries[i];
    if (e.sequence > snapshot || (decided && key_equal(before.key, before.key_size, e.key, e.key_size)))
      continue;
    before = e;
    decided = &before;
    if (e.kind == SLOT_DELETE || range_deletes_cover(&s->range_deletes, (turb_bytes){e.key, e.key_size}, snapshot) > e.sequence)
      continue;
    if (filtered && !is_wanted(&s->filter, (turb_bytes){e.key, e.key_size}, e.sequence))
      continue;
    s->expected.entries[n++] = e;
  }
  s->expected.count = n;
  return cursor;
}

static void end(struct subject *s) {
  cursor_close(s->cursor);
  reads_close(&s->world.reads);
  io_system_drain(s->world.system);
  reads_init(&s->world.reads, s->world.system, NULL);
  for (size_t i = 0; i < s->run_count; i++)
    world_run_free(&s->runs[i]);
  for (size_t i = 0; i < s->memtable_count; i++)
    memtable_release(s->memtables[i]);
  for (size_t i = 0; i < s->part_count; i++)
    world_list_free(&s->parts[i]);
  world_list_free(&s->expected);
  arena_free(&s->arena);
  world_end(&s->world);
}

/* ---- moving them ---- */

static void chill(struct subject *s) {
  for (size_t i = 0; i < s->run_count; i++)
    world_forget(&s->world, &s->runs[i]);
  world_chill(&s->world);
}

/* Goes on with a pending move by hand, so that the old entry can be looked at in between. */
static turb_state finish_move(struct subject *s, turb_state state, const struct slot *old, const struct world_entry *old_entry) {
  while (state == TURB_PENDING || state == TURB_YIELD) {
    if (old)
      CHECK_MSG(world_is(old, old_entry), "the old entry is gone while a move is pending");
    if (state == TURB_PENDING)
      CHECK_OK_ERR(reads_wait(&s->world.reads, fresh()), &err);
    state = cursor_resume(s->cursor);
  }
  return state;
}

/* What keeps the current entry readable is named by the cursor itself; of other entries it knows nothing. Asked in every state. */
static void check_windows(const struct subject *s, const struct slot *stranger) {
  const struct cursor *c = s->cursor;
  if (c->state == TURB_READY) {
    const struct window *window = cursor_window_of(c, c->slot);
    CHECK_MSG(window ? window_covers(window, c->slot) : c->source->memtable != NULL, "no window holds the current entry");
  }
  CHECK(!cursor_window_of(c, stranger));
}

static void check_at(struct subject *s, turb_state state, ptrdiff_t at) {
  static const struct slot stranger;
  check_windows(s, &stranger);
  if (state == TURB_FAILED) {
    (void)!cursor_error(s->cursor, fresh());
    FAIL("failed: %s", err.message);
  }
  if (at < 0 || (size_t)at >= s->expected.count) {
    CHECK_EQ(state, TURB_END);
    return;
  }
  CHECK_EQ(state, TURB_READY);
  CHECK_MSG(world_is(s->cursor->slot, &s->expected.entries[at]), "at %td: sequence %llu, not %llu", at,
            (unsigned long long)slot_sequence(s->cursor->slot), (unsigned long long)s->expected.entries[at].sequence);
}

/* The first expected entry not before (key, sequence). */
static ptrdiff_t lower_bound(const struct subject *s, turb_bytes key, uint64_t sequence) {
  size_t i = 0;
  for (; i < s->expected.count; i++) {
    const struct world_entry *e = &s->expected.entries[i];
    const int c = key_compare(e->key, e->key_size, key.data, key.size);
    if (c > 0 || (c == 0 && e->sequence <= sequence))
      break;
  }
  return (ptrdiff_t)i;
}

struct target {
  uint8_t bytes[64];
  turb_bytes key;
  uint64_t sequence;
};

static void random_target(struct subject *s, bool whole_keys, struct target *t) {
  struct world_list *from = &s->parts[world_random(&s->world, s->part_count)];
  if (from->count) {
    const struct world_entry *e = &from->entries[world_random(&s->world, from->count)];
    memcpy(t->bytes, e->key, e->key_size);
    t->key = (turb_bytes){t->bytes, e->key_size};
    t->sequence = e->sequence;
    if (world_random(&s->world, 3) == 0)
      t->bytes[e->key_size - 1] ^= 1;
  } else {
    memcpy(t->bytes, "shared", 6);
    t->key = (turb_bytes){t->bytes, 6};
    t->sequence = 1;
  }
  if (whole_keys || world_random(&s->world, 2))
    t->sequence = world_random(&s->world, 2) ? SLOT_SEQUENCE_MAX : 0;
}

/* What a batch knows of the key of entry `at` beside the one before it in the walk is true. */
static void check_change(const struct subject *s, uint8_t change, ptrdiff_t at, ptrdiff_t before) {
  if (change == KEY_CHANGE_UNKNOWN)
    return;
  CHECK(before >= 0 && (size_t)before < s->expected.count);
  const struct world_entry *a = &s->expected.entries[before], *b = &s->expected.entries[at];
  CHECK_EQ(key_equal(a->key, a->key_size, b->key, b->key_size), change == KEY_REPEATED);
}

/* A batch from the current place on; returns the place after it. */
static ptrdiff_t take_batch(struct subject *s, ptrdiff_t at, bool backward) {
  struct cursor_ref refs[100];
  struct window *held[64];
  uint8_t changes[100] = {0};
  const uint32_t capacity = 1 + (uint32_t)world_random(&s->world, 100);
  struct cursor_batch batch = {.refs = refs, .changes = changes, .capacity = capacity, .held = held, .held_capacity = 64};
  const turb_state state = cursor_take(s->cursor, &batch, backward);
  CHECK_NE(state, TURB_FAILED);
  CHECK_GT(batch.count, 0);
  for (uint32_t i = 0; i < batch.count; i++) {
    CHECK(at >= 0 && (size_t)at < s->expected.count);
    CHECK_MSG(world_is(refs[i].slot, &s->expected.entries[at]), "batch entry %u", i);
    check_change(s, changes[i], at, at + (backward ? 1 : -1));
    at += backward ? -1 : 1;
  }
  cursor_batch_release(&batch);
  check_at(s, finish_move(s, s->cursor->state, NULL, NULL), at);
  return at;
}

static void walk(struct subject *s, bool whole_keys, int moves) {
  ptrdiff_t at = -2; /* not positioned */
  for (int i = 0; i < moves; i++) {
    const bool placed = at >= 0 && (size_t)at < s->expected.count && s->cursor->state == TURB_READY;
    const uint64_t dice = placed ? world_random(&s->world, 14) : world_random(&s->world, 4);
    if (world_random(&s->world, 40) == 0)
      chill(s);
    struct target target;
    random_target(s, whole_keys, &target);
    const struct slot *old = placed ? s->cursor->slot : NULL;
    const struct world_entry *old_entry = placed ? &s->expected.entries[at] : NULL;
    turb_state state = TURB_READY;
    if (dice == 0) {
      state = cursor_first(s->cursor);
      at = s->expected.count ? 0 : -1;
    } else if (dice == 1) {
      state = cursor_last(s->cursor);
      at = (ptrdiff_t)s->expected.count - 1;
    } else if (dice == 2) {
      if (whole_keys)
        target.sequence = SLOT_SEQUENCE_MAX;
      state = cursor_seek(s->cursor, target.key, target.sequence);
      at = lower_bound(s, target.key, target.sequence);
    } else if (dice == 3) {
      state = cursor_seek_before(s->cursor, target.key, target.sequence);
      at = lower_bound(s, target.key, target.sequence) - 1;
    } else if (dice < 8) {
      state = cursor_advance(s->cursor);
      at++;
    } else if (dice < 12) {
      state = cursor_retreat(s->cursor);
      at--;
    } else {
      const bool backward = dice == 13;
      at = take_batch(s, at, backward);
      continue;
    }
    if ((state == TURB_PENDING || state == TURB_YIELD) && world_random(&s->world, 4) == 0) {
      at = -2; /* the move is dropped for the next one, a seek */
      continue;
    }
    check_at(s, finish_move(s, state, old, old_entry), at);
  }
}

/* Reads fail now and then: the cursor says so, and a seek makes it as good as new. */
static void walk_with_failures(struct subject *s, bool whole_keys) {
  for (int i = 0; i < 30; i++) {
    chill(s);
    turb_simulation_fail_at(s->world.simulation, turb_simulation_operations(s->world.simulation) + 1 + world_random(&s->world, 6), EIO);
    turb_state state = finish_move(s, world_random(&s->world, 2) ? cursor_first(s->cursor) : cursor_last(s->cursor), NULL, NULL);
    for (int n = 0; n < 200 && state == TURB_READY; n++)
      state = finish_move(s, cursor_advance(s->cursor), NULL, NULL);
    if (state == TURB_FAILED) {
      CHECK_STATUS_ERR(cursor_error(s->cursor, fresh()), TURB_IO, &err);
      CHECK_NE(err.file[0], 0);
      CHECK_EQ(cursor_advance(s->cursor), TURB_FAILED);
    }
    turb_simulation_fail_at(s->world.simulation, 0, 0);
    walk(s, whole_keys, 6);
  }
}

enum subject_kind {
  OF_MEMTABLE,
  OF_TABLE,
  OF_STREAM,
  OF_CONCAT,
  OF_CONCAT_STREAM,
  OF_MERGE,
  OF_MERGE_STREAM,
  OF_BOUNDED,
  OF_UNION,
  OF_UNION_BOUNDED,
  OF_VISIBLE,
  OF_VISIBLE_BOUNDED,
  OF_VISIBLE_UNION,
  OF_FILTERED
};

static bool is_visible_kind(enum subject_kind kind) {
  return kind >= OF_VISIBLE;
}

static void make(struct subject *s, enum subject_kind kind) {
  const bool streaming = kind == OF_STREAM || kind == OF_CONCAT_STREAM || kind == OF_MERGE_STREAM;
  struct cursor *cursor = NULL;
  if (kind == OF_MEMTABLE) {
    cursor = add_memtable(s, 1 + world_random(&s->world, 1000));
  } else if (kind == OF_TABLE || kind == OF_STREAM) {
    const struct run_view *run = add_run(s, 1 + world_random(&s->world, 3000), 1);
    CHECK_OK_ERR(table_cursor_open(&s->world.context, &run->sources[0], streaming, &cursor, fresh()), &err);
  } else if (kind == OF_CONCAT || kind == OF_CONCAT_STREAM) {
    cursor = add_concat(s, world_random(&s->world, 2000), 1 + world_random(&s->world, 8), streaming);
  } else if (kind == OF_UNION || kind == OF_UNION_BOUNDED || kind == OF_VISIBLE_UNION) {
    cursor = add_union(s);
  } else {
    cursor = add_merge(s, streaming);
  }
  s->expected = world_join(s->parts, s->part_count);
  if (kind == OF_BOUNDED || kind == OF_UNION_BOUNDED || kind == OF_VISIBLE_BOUNDED)
    cursor = bind(s, cursor);
  if (is_visible_kind(kind))
    cursor = make_visible(s, cursor, kind == OF_FILTERED);
  s->cursor = cursor;
}

static void obey(enum subject_kind kind) {
  const uint64_t seed = test_seed();
  const bool whole_keys = is_visible_kind(kind); /* a visible cursor knows one version of a key */
  const uint64_t rounds = test_scale(6, 4, 120);
  for (uint64_t round = 0; round < rounds; round++) {
    struct subject s;
    begin(&s, seed + round);
    make(&s, kind);
    CHECK_EQ(cursor_advance(s.cursor), TURB_FAILED); /* FRESH */
    walk(&s, whole_keys, 150);
    if (kind != OF_MEMTABLE)
      walk_with_failures(&s, whole_keys);
    if (world_random(&s.world, 2)) { /* closed with reads in flight */
      chill(&s);
      (void)cursor_first(s.cursor);
      CHECK_OK_ERR(reads_submit(&s.world.reads, fresh()), &err);
    }
    end(&s);
  }
}

TEST(contract, memtable) {
  obey(OF_MEMTABLE);
}
TEST(contract, table) {
  obey(OF_TABLE);
}
TEST(contract, table_streaming) {
  obey(OF_STREAM);
}
TEST(contract, concat) {
  obey(OF_CONCAT);
}
TEST(contract, concat_streaming) {
  obey(OF_CONCAT_STREAM);
}
/* A run without tables, as a child of every kind of parent. */
TEST(contract, empty_run) {
  for (uint64_t round = 0; round < 8; round++) {
    struct subject s;
    begin(&s, test_seed() + round);
    struct cursor *children[2] = {add_concat(&s, 0, 1, round & 1), NULL};
    children[1] = round & 2 ? add_memtable(&s, 50) : add_concat(&s, 0, 1, false);
    s.expected = world_join(s.parts, s.part_count);
    CHECK_OK_ERR(merge_cursor_open(&s.world.context, children, 2, &s.cursor, fresh()), &err);
    if (round & 4)
      s.cursor = make_visible(&s, s.cursor, false);
    walk(&s, round & 4, 100);
    end(&s);
  }
}
TEST(contract, merge) {
  obey(OF_MERGE);
}
TEST(contract, merge_streaming) {
  obey(OF_MERGE_STREAM);
}
TEST(contract, bounded) {
  obey(OF_BOUNDED);
}
TEST(contract, unlike_children) {
  obey(OF_UNION);
}
TEST(contract, unlike_children_bounded) {
  obey(OF_UNION_BOUNDED);
}
TEST(contract, visible_of_unlike_children) {
  obey(OF_VISIBLE_UNION);
}
TEST(contract, filtered) {
  obey(OF_FILTERED);
}
TEST(contract, visible) {
  obey(OF_VISIBLE);
}
TEST(contract, visible_bounded) {
  obey(OF_VISIBLE_BOUNDED);
}
