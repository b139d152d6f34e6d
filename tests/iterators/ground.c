/* The ground of tests that need one tree many times; see ground.h. */
#include "tests/iterators/ground.h"

#include <stdlib.h>

#include "base/hash.h"

#define RUN_KEYS      260
#define TABLE_KEYS    150
#define MEMTABLE_KEYS 60
#define RUN_TABLES    3

static turb_error err;
static turb_error *fresh(void) {
  err = (turb_error)TURB_ERROR_INIT;
  return &err;
}

void ground_key(struct world_entry *e, uint64_t number) {
  e->key_size = (uint16_t)snprintf((char *)e->key, sizeof e->key, "%06" PRIu64, number);
  uint64_t mixed = number;
  while (e->key_size < 48) {
    mixed = hash_mix64(mixed + UINT64_C(0x9e3779b97f4a7c15));
    e->key[e->key_size++] = (uint8_t)mixed;
  }
}

static int by_entry_order(const void *a, const void *b) {
  const struct world_entry *x = a, *y = b;
  const int c = key_compare(x->key, x->key_size, y->key, y->key_size);
  return c ? c : (x->sequence < y->sequence) - (x->sequence > y->sequence);
}

/* `keys` of 2,000 numbers, some with several versions, some of these deletes. */
static struct world_list make_list(struct world *world, size_t keys) {
  struct world_list list = {.entries = calloc(keys * 4, sizeof *list.entries)};
  for (size_t i = 0; i < keys; i++) {
    const uint64_t number = i * 2000 / keys + world_random(world, 2000 / keys);
    const uint64_t versions = world_random(world, 6) ? 1 : 1 + world_random(world, 4);
    for (uint64_t v = 0; v < versions; v++) {
      struct world_entry *e = &list.entries[list.count++];
      ground_key(e, number);
      e->sequence = world->next_sequence++;
      e->kind = world_random(world, 6) ? SLOT_PUT : SLOT_DELETE;
    }
  }
  qsort(list.entries, list.count, sizeof *list.entries, by_entry_order);
  return list;
}

static turb_bytes key_at(const struct world_list *list, size_t numerator, size_t denominator) {
  const struct world_entry *e = &list->entries[list->count * numerator / denominator];
  return (turb_bytes){e->key, e->key_size};
}

/* The cache keeps the heads of frames once it has had them: after this it is as large as these tests make it. */
static void warm(struct ground *ground) {
  struct cursor *cursor = ground_open(ground, TREE_MERGE);
  for (turb_state s = cursor_first(cursor); s != TURB_END; s = cursor_advance(cursor))
    CHECK_EQ(s == TURB_PENDING ? cursor_await(cursor) : s, TURB_READY);
  cursor_close(cursor);
  ground_chill(ground);
}

void ground_begin(struct ground *ground, uint64_t seed) {
  memset(ground, 0, sizeof *ground);
  struct world *world = &ground->world;
  world_begin(world, seed, 16 << 20);
  test_allocator_init(&ground->allocator);
  world->context.allocator = &ground->allocator.base;
  world->context.stream_piece_bytes = 32 << 10; /* key pages come by two */
  arena_init(&ground->arena, alloc_default(), NULL, BUDGET_CURSOR, 0);
  ground->lists[0] = make_list(world, RUN_KEYS);
  ground->lists[1] = make_list(world, TABLE_KEYS);
  ground->lists[2] = make_list(world, MEMTABLE_KEYS);
  ground->runs[0] = world_run(world, &ground->lists[0], RUN_TABLES, 1);
  ground->runs[1] = world_run(world, &ground->lists[1], 1, 2);
  ground->memtable = world_memtable(world, &ground->lists[2]);
  ground->memtable_source = (struct source){.memtable = ground->memtable, .run = 0};
  ground->bounds = (struct key_bounds){key_at(&ground->lists[0], 1, 8), key_at(&ground->lists[1], 7, 8)};
  ground->snapshot = world->next_sequence - world->next_sequence / 10;
  const struct range_delete deletes[2] = {{key_at(&ground->lists[0], 3, 8), key_at(&ground->lists[0], 4, 8), world->next_sequence / 2},
                                          {key_at(&ground->lists[1], 5, 8), key_at(&ground->lists[1], 6, 8), ground->snapshot}};
  CHECK_OK_ERR(range_deletes_build(deletes, 2, NULL, &ground->arena, &ground->range_deletes, fresh()), &err);
  warm(ground);
}

void ground_end(struct ground *ground) {
  reads_close(&ground->world.reads);
  io_system_drain(ground->world.system);
  test_allocator_check_empty(&ground->allocator);
  reads_init(&ground->world.reads, ground->world.system, NULL);
  for (int i = 0; i < 2; i++)
    world_run_free(&ground->runs[i]);
  memtable_release(ground->memtable);
  for (int i = 0; i < 3; i++)
    world_list_free(&ground->lists[i]);
  arena_free(&ground->arena);
  world_end(&ground->world);
}

void ground_chill(struct ground *ground) {
  for (int i = 0; i < 2; i++)
    world_forget(&ground->world, &ground->runs[i]);
  world_chill(&ground->world);
}

/* ---- trees ---- */

static struct cursor *open_table(struct ground *ground, bool streaming) {
  struct cursor *cursor;
  CHECK_OK_ERR(table_cursor_open(&ground->world.context, &ground->runs[1].sources[0], streaming, &cursor, fresh()), &err);
  return cursor;
}

static struct cursor *open_concat(struct ground *ground, bool streaming) {
  struct cursor *cursor;
  CHECK_OK_ERR(concat_cursor_open(&ground->world.context, &ground->runs[0], streaming, &cursor, fresh()), &err);
  return cursor;
}

static struct cursor *open_merge(struct ground *ground, uint32_t count, bool streaming) {
  struct cursor *children[3] = {open_concat(ground, streaming), open_table(ground, streaming), NULL};
  if (count == 3)
    CHECK_OK_ERR(memtable_cursor_open(&ground->world.context, &ground->memtable_source, &children[2], fresh()), &err);
  struct cursor *cursor;
  CHECK_OK_ERR(merge_cursor_open(&ground->world.context, children, count, &cursor, fresh()), &err);
  return cursor;
}

/* Drops long stretches as well as single keys. */
static bool is_wanted(void *context, turb_bytes key, uint64_t sequence) {
  (void)context;
  (void)sequence;
  const uint8_t *digits = key.data;
  return digits[3] % 3 && digits[5] % 2;
}

struct cursor *ground_open(struct ground *ground, enum tree_kind kind) {
  struct cursor_context *context = &ground->world.context;
  switch (kind) {
  case TREE_TABLE: return open_table(ground, false);
  case TREE_STREAM: return open_table(ground, true);
  case TREE_CONCAT: return open_concat(ground, false);
  case TREE_CONCAT_STREAM: return open_concat(ground, true);
  case TREE_MERGE_TWO: return open_merge(ground, 2, false);
  case TREE_MERGE: return open_merge(ground, 3, false);
  case TREE_MERGE_STREAM: return open_merge(ground, 3, true);
  case TREE_BOUNDED:
  case TREE_VISIBLE:
  case TREE_VISIBLE_BOUNDED:
  case TREE_FILTERED:
  case TREE_KINDS: break;
  }
  struct cursor *cursor = open_merge(ground, 3, false);
  if (kind == TREE_BOUNDED || kind == TREE_VISIBLE_BOUNDED)
    CHECK_OK_ERR(bounded_cursor_open(context, cursor, &ground->bounds, &cursor, fresh()), &err);
  const struct visible_options options = {.snapshot = ground->snapshot,
                                          .range_deletes = &ground->range_deletes,
                                          .work_budget = 24,
                                          .wanted = kind == TREE_FILTERED ? is_wanted : NULL};
  if (kind != TREE_BOUNDED)
    CHECK_OK_ERR(visible_cursor_open(context, cursor, &options, &cursor, fresh()), &err);
  return cursor;
}

/* ---- what they yield ---- */

static bool within(const struct key_bounds *bounds, const struct world_entry *e) {
  return key_compare(e->key, e->key_size, bounds->lower.data, bounds->lower.size) >= 0 &&
         key_compare(e->key, e->key_size, bounds->upper.data, bounds->upper.size) < 0;
}

static void keep_visible(const struct ground *ground, struct world_list *list) {
  size_t n = 0;
  struct world_entry decided = {.key_size = 0};
  for (size_t i = 0; i < list->count; i++) {
    const struct world_entry e = list->entries[i];
    if (e.sequence > ground->snapshot || (decided.key_size && key_equal(decided.key, decided.key_size, e.key, e.key_size)))
      continue;
    decided = e;
    const uint64_t cover = range_deletes_cover(&ground->range_deletes, (turb_bytes){e.key, e.key_size}, ground->snapshot);
    if (e.kind == SLOT_PUT && cover <= e.sequence)
      list->entries[n++] = e;
  }
  list->count = n;
}

static void keep_wanted(struct world_list *list) {
  size_t n = 0;
  for (size_t i = 0; i < list->count; i++)
    if (is_wanted(NULL, (turb_bytes){list->entries[i].key, list->entries[i].key_size}, list->entries[i].sequence))
      list->entries[n++] = list->entries[i];
  list->count = n;
}

struct world_list ground_expected(const struct ground *ground, enum tree_kind kind) {
  const bool is_table = kind == TREE_TABLE || kind == TREE_STREAM, is_concat = kind == TREE_CONCAT || kind == TREE_CONCAT_STREAM;
  struct world_list all = world_join(ground->lists + (is_table ? 1 : 0), is_table || is_concat ? 1 : kind == TREE_MERGE_TWO ? 2 : 3);
  if (kind == TREE_BOUNDED || kind == TREE_VISIBLE_BOUNDED) {
    size_t n = 0;
    for (size_t i = 0; i < all.count; i++)
      if (within(&ground->bounds, &all.entries[i]))
        all.entries[n++] = all.entries[i];
    all.count = n;
  }
  if (tree_knows_whole_keys(kind))
    keep_visible(ground, &all);
  if (kind == TREE_FILTERED)
    keep_wanted(&all);
  return all;
}

ptrdiff_t list_lower_bound(const struct world_list *list, turb_bytes key, uint64_t sequence) {
  size_t i = 0;
  for (; i < list->count; i++) {
    const struct world_entry *e = &list->entries[i];
    const int c = key_compare(e->key, e->key_size, key.data, key.size);
    if (c > 0 || (c == 0 && e->sequence <= sequence))
      break;
  }
  return (ptrdiff_t)i;
}

/* ---- what they leave ---- */

void ground_note_budget(const struct ground *ground, uint64_t used[BUDGET_USES]) {
  for (int use = 0; use < BUDGET_USES; use++)
    used[use] = budget_used_for(&ground->world.budget, (enum budget_use)use);
}

void ground_check_empty(struct ground *ground, const uint64_t before[BUDGET_USES]) {
  struct world *world = &ground->world;
  CHECK_EQ(world->reads.queued, 0);
  CHECK_EQ(world->reads.in_flight, 0);
  reads_close(&world->reads);
  io_system_drain(world->system);
  reads_init(&world->reads, world->system, NULL);
  test_allocator_check_empty(&ground->allocator);
  ground_chill(ground);
  uint64_t after[BUDGET_USES];
  ground_note_budget(ground, after);
  for (int use = 0; use < BUDGET_USES; use++)
    CHECK_MSG(after[use] == before[use], "%s: %" PRIu64 " bytes are held, before it were %" PRIu64, budget_use_name((enum budget_use)use),
              after[use], before[use]);
}
