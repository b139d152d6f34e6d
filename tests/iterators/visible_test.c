/* The visible cursor at the borders of its stretches. */
#include <stdlib.h>

#include "tests/iterators/cursor_world.h"

static turb_error err;

/* `count` keys of one version each, walked to both ends. Backward, a full stretch and the key carried over from the one before it come
 * together. */
static void walk_both_ways(struct world *world, size_t count) {
  struct world_list list = {.entries = calloc(count, sizeof *list.entries), .count = count};
  for (size_t i = 0; i < count; i++)
    list.entries[i] = (struct world_entry){.key = {(uint8_t)(i >> 8), (uint8_t)i}, .key_size = 2, .sequence = i + 1, .kind = SLOT_PUT};
  struct memtable *memtable = world_memtable(world, &list);
  const struct source source = {.memtable = memtable};
  struct cursor *child, *cursor;
  CHECK_OK_ERR(memtable_cursor_open(&world->context, &source, &child, &err), &err);
  const struct visible_options options = {.snapshot = SLOT_SEQUENCE_MAX};
  CHECK_OK_ERR(visible_cursor_open(&world->context, child, &options, &cursor, &err), &err);
  size_t at = count;
  for (turb_state s = cursor_last(cursor); s == TURB_READY; s = cursor_retreat(cursor))
    CHECK(world_is(cursor->slot, &list.entries[--at]));
  CHECK_EQ(at, 0);
  CHECK_EQ(cursor->state, TURB_END);
  for (turb_state s = cursor_first(cursor); s == TURB_READY; s = cursor_advance(cursor))
    CHECK(world_is(cursor->slot, &list.entries[at++]));
  CHECK_EQ(at, count);
  cursor_close(cursor);
  memtable_release(memtable);
  world_list_free(&list);
}

TEST(visible, walks_any_number_of_keys) {
  struct world world;
  world_begin(&world, 1, 64 << 20);
  for (size_t count = 1; count < 400; count++)
    walk_both_ways(&world, count);
  world_end(&world);
}
