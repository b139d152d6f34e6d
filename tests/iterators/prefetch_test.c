/* Read-ahead of key pages (iterators/key_pages.h): how far it goes, and what becomes of it when reads fail or memory is short. */
#include <errno.h>

#include "iterators/key_pages.h"
#include "tests/iterators/ground.h"

#define ENTRIES 9000u /* of 48-byte keys, some 45 a page: four index pages or more */

struct scene {
  struct world world;
  struct world_list list;
  struct run_view run;
  struct table *table;
  struct key_pages pages;
};

static turb_error err;
static turb_error *fresh(void) {
  err = (turb_error)TURB_ERROR_INIT;
  return &err;
}

static void begin_tables(struct scene *s, uint64_t budget, size_t tables) {
  static struct world_entry entries[ENTRIES];
  memset(s, 0, sizeof *s);
  world_begin(&s->world, test_seed(), budget);
  for (uint32_t i = 0; i < ENTRIES; i++) {
    ground_key(&entries[i], i);
    entries[i].sequence = i + 1;
    entries[i].kind = SLOT_PUT;
  }
  s->list = (struct world_list){entries, ENTRIES};
  s->run = world_run(&s->world, &s->list, tables, 0);
  s->table = s->run.sources[0].table;
  world_chill(&s->world);
}

static void begin(struct scene *s, uint64_t budget) {
  begin_tables(s, budget, 1);
  CHECK_OK_ERR(key_pages_open(&s->pages, &s->world.context, fresh()), &err);
  key_pages_retarget(&s->pages, s->table);
  CHECK_GE(table_index_page_count(s->table), 3u);
}

static void end(struct scene *s) {
  if (s->pages.context)
    key_pages_close(&s->pages);
  reads_close(&s->world.reads);
  io_system_drain(s->world.system);
  world_run_free(&s->run);
  world_end(&s->world);
}

static uint32_t reads_under_way(const struct scene *s) {
  return s->world.reads.queued + s->world.reads.in_flight;
}

/* A walk over all key pages from one end to the other. */
struct walk {
  enum key_walk direction;
  uint32_t index_page;
  const struct slot_page *index;
  uint32_t slot, pages, waits;
};

static const struct slot_page *bring_index(struct scene *s, uint32_t page) {
  const struct slot_page *index;
  turb_state state;
  while ((state = key_pages_index(&s->pages, page, &index, fresh())) == TURB_PENDING)
    CHECK_OK_ERR(reads_wait(&s->world.reads, fresh()), &err);
  CHECK_EQ(state, TURB_READY);
  return index;
}

static void walk_begin(struct scene *s, struct walk *walk, enum key_walk direction) {
  *walk = (struct walk){.direction = direction};
  walk->index_page = direction == KEY_WALK_FORWARD ? 0 : table_index_page_count(s->table) - 1;
  walk->index = bring_index(s, walk->index_page);
  walk->slot = direction == KEY_WALK_FORWARD ? 0 : walk->index->slot_count - 1u;
}

/* The page at the walk's place, as often as it takes; what it is when it comes. */
static turb_state walk_page(struct scene *s, struct walk *walk) {
  struct cache_pin pin = {0};
  turb_state state;
  while ((state = key_pages_get(&s->pages, (uint16_t)walk->slot, walk->direction, &pin, fresh())) == TURB_PENDING) {
    walk->waits++;
    CHECK_OK_ERR(reads_wait(&s->world.reads, fresh()), &err);
  }
  if (state == TURB_READY) {
    walk->pages++;
    CHECK_GT(((const struct slot_page *)pin.data)->slot_count, 0);
    load_pin_release(s->table, &pin);
  }
  return state;
}

static bool walk_step(struct scene *s, struct walk *walk) {
  walk->slot += (uint32_t)walk->direction;
  if (walk->slot < walk->index->slot_count)
    return true;
  const uint32_t next = walk->index_page + (uint32_t)walk->direction;
  if (next >= table_index_page_count(s->table))
    return false;
  walk->index_page = next;
  walk->index = bring_index(s, next);
  walk->slot = walk->direction == KEY_WALK_FORWARD ? 0 : walk->index->slot_count - 1u;
  return true;
}

static uint32_t key_page_count(const struct scene *s) {
  return table_unit_count(s->table, UNIT_KEYS);
}

/* A walk reads more and more ahead, and goes on doing so over the borders of index pages; at the end it reads nothing more. */
static void reads_ahead(enum key_walk direction) {
  struct scene s;
  begin(&s, 64u << 20);
  struct walk walk;
  walk_begin(&s, &walk, direction);
  const uint32_t pages = key_page_count(&s);
  uint32_t deepest = 0;
  do {
    CHECK_EQ(walk_page(&s, &walk), TURB_READY);
    const uint32_t ahead = (uint32_t)__builtin_popcount(s.pages.busy);
    deepest = ahead > deepest ? ahead : deepest;
    if (walk.pages >= 16 && walk.pages + KEY_PAGES_AHEAD <= pages) /* also where an index page ends */
      CHECK_MSG(ahead >= 1, "%u pages ahead of page %u of %u", ahead, walk.pages, pages);
  } while (walk_step(&s, &walk));
  CHECK_EQ(walk.pages, pages);
  CHECK_EQ(deepest, KEY_PAGES_AHEAD - 1);
  CHECK_EQ(s.pages.busy, 0u);
  CHECK_EQ(reads_under_way(&s), 0u);
  end(&s);
}

TEST(prefetch, forward) {
  reads_ahead(KEY_WALK_FORWARD);
}
TEST(prefetch, backward) {
  reads_ahead(KEY_WALK_BACKWARD);
}

/* Depth doubles with each page that a walk waits for: 1, 2, 4, and all that there is; a seek begins anew. */
TEST(prefetch, depth_doubles) {
  struct scene s;
  begin(&s, 64u << 20);
  struct walk walk;
  walk_begin(&s, &walk, KEY_WALK_FORWARD);
  static const uint32_t depths[] = {1, 2, 4, KEY_PAGES_AHEAD - 1, KEY_PAGES_AHEAD - 1};
  for (size_t i = 0; i < sizeof depths / sizeof *depths; i++) {
    struct cache_pin pin;
    walk.slot = (uint32_t)(i * KEY_PAGES_AHEAD); /* nothing there is on its way */
    CHECK_EQ(key_pages_get(&s.pages, (uint16_t)walk.slot, KEY_WALK_FORWARD, &pin, fresh()), TURB_PENDING);
    CHECK_EQ(s.pages.depth, depths[i]);
    CHECK_EQ((uint32_t)__builtin_popcount(s.pages.busy), depths[i] + 1);
    CHECK_EQ(walk_page(&s, &walk), TURB_READY);
    const uint32_t depth = s.pages.depth;
    key_pages_stop(&s.pages);
    CHECK_EQ(s.pages.busy, 0u);
    CHECK_EQ(s.pages.depth, 0u);
    s.pages.depth = depth;
  }
  end(&s);
}

/* Cursor moves: a seek has one read under way at a time, its index page's and then its key page's. */
TEST(prefetch, a_seek_reads_its_page_alone) {
  struct scene s;
  begin_tables(&s, 64u << 20, 1);
  struct cursor *cursor;
  CHECK_OK_ERR(table_cursor_open(&s.world.context, &s.run.sources[0], false, &cursor, fresh()), &err);
  for (int i = 0; i < 20; i++) {
    world_forget(&s.world, &s.run);
    const struct world_entry *goal = &s.list.entries[world_random(&s.world, ENTRIES)];
    const turb_bytes key = {goal->key, goal->key_size};
    turb_state state = i % 2 ? cursor_seek(cursor, key, SLOT_SEQUENCE_MAX) : cursor_seek_before(cursor, key, 0);
    uint32_t waits = 0;
    for (; state == TURB_PENDING; waits++) {
      CHECK_EQ(reads_under_way(&s), 1u);
      CHECK_OK_ERR(reads_wait(&s.world.reads, fresh()), &err);
      state = cursor_resume(cursor);
    }
    CHECK_EQ(state, TURB_READY);
    CHECK(world_is(cursor->slot, goal));
    CHECK_LE(waits, 4u); /* before the first entry of an index page: two of each */
    CHECK_EQ(reads_under_way(&s), 0u);
  }
  cursor_close(cursor);
  end(&s);
}

/* A run's next table is on its way before the walk comes to its border. */
static void crosses_borders(bool backward) {
  struct scene s;
  begin_tables(&s, 64u << 20, 6);
  struct cursor *cursor;
  CHECK_OK_ERR(concat_cursor_open(&s.world.context, &s.run, false, &cursor, fresh()), &err);
  (void)(backward ? cursor_last(cursor) : cursor_first(cursor));
  turb_state state = cursor_await(cursor);
  const struct source *source = cursor->source;
  uint32_t count = 0, borders = 0;
  while (state == TURB_READY) {
    CHECK(world_is(cursor->slot, &s.list.entries[backward ? ENTRIES - 1 - count : count]));
    count++;
    state = backward ? cursor_retreat(cursor) : cursor_advance(cursor);
    uint32_t waits = 0;
    for (; state == TURB_PENDING; waits++) {
      CHECK_OK_ERR(reads_wait(&s.world.reads, fresh()), &err);
      state = cursor_resume(cursor);
    }
    while (reads_under_way(&s)) /* a fast device: what was asked for is there at once */
      CHECK_OK_ERR(reads_wait(&s.world.reads, fresh()), &err);
    if (state == TURB_READY && cursor->source != source) {
      const bool long_enough = table_get_record(source->table)->entries >= 200; /* more than a page or two */
      CHECK(!long_enough || waits == 0);
      borders += long_enough;
      source = cursor->source;
    }
  }
  CHECK_EQ(state, TURB_END);
  CHECK_EQ(count, ENTRIES);
  CHECK_GT(borders, 0u);
  cursor_close(cursor);
  end(&s);
}

TEST(prefetch, tables_of_a_run) {
  crosses_borders(false);
}
TEST(prefetch, tables_of_a_run_backward) {
  crosses_borders(true);
}

/* Takes what memory the cache can give, but for `spare` pages. */
static size_t take_memory(struct scene *s, struct cache_memory *taken, size_t capacity, size_t spare) {
  size_t count = 0;
  while (count < capacity && cache_memory_take(s->world.cache, SLOT_PAGE_BYTES, UNIT_KEYS, true, &taken[count]))
    count++;
  CHECK_LT(count, capacity);
  while (spare-- != 0)
    cache_memory_give(s->world.cache, &taken[--count]);
  return count;
}

/* A short budget: the walk goes on with what there is, less is read ahead, and more again when there is room. */
TEST(prefetch, gives_way_to_a_short_budget) {
  static struct cache_memory taken[4096];
  struct scene s;
  begin(&s, 8u << 20);
  struct walk walk;
  walk_begin(&s, &walk, KEY_WALK_FORWARD);
  for (int i = 0; i < 12; i++) {
    CHECK_EQ(walk_page(&s, &walk), TURB_READY);
    CHECK(walk_step(&s, &walk));
  }
  CHECK_EQ(s.pages.depth_max, KEY_PAGES_AHEAD - 1);
  key_pages_stop(&s.pages);
  size_t count = take_memory(&s, taken, sizeof taken / sizeof *taken, 3);
  uint32_t least = KEY_PAGES_AHEAD;
  for (int i = 0; i < 24; i++) {
    CHECK_EQ(walk_page(&s, &walk), TURB_READY);
    least = s.pages.depth_max < least ? s.pages.depth_max : least;
    CHECK(walk_step(&s, &walk));
  }
  CHECK_LE(least, KEY_PAGES_AHEAD / 2);
  while (count != 0)
    cache_memory_give(s.world.cache, &taken[--count]);
  do
    CHECK_EQ(walk_page(&s, &walk), TURB_READY);
  while (walk_step(&s, &walk));
  CHECK_EQ(walk.pages, key_page_count(&s));
  CHECK_EQ(s.pages.depth_max, KEY_PAGES_AHEAD - 1);
  end(&s);
}

/* A read ahead that fails is none of the walk's business: when its page is wanted it is read again. */
TEST(prefetch, a_failed_read_ahead_is_tried_again) {
  for (enum key_walk direction = KEY_WALK_BACKWARD; direction <= KEY_WALK_FORWARD; direction += 2) {
    struct scene s;
    begin(&s, 64u << 20);
    struct walk walk;
    walk_begin(&s, &walk, direction);
    uint32_t faults = 0;
    bool more;
    do {
      CHECK_EQ(walk_page(&s, &walk), TURB_READY);
      more = walk_step(&s, &walk);
      while (more && s.world.reads.queued) { /* nobody waits for these: one of them fails */
        turb_simulation_fail_at(s.world.simulation, turb_simulation_operations(s.world.simulation) + 1, EIO);
        faults++;
        while (reads_under_way(&s))
          CHECK_OK_ERR(reads_wait(&s.world.reads, fresh()), &err);
        turb_simulation_fail_at(s.world.simulation, 0, 0);
      }
    } while (more);
    CHECK_EQ(walk.pages, key_page_count(&s));
    CHECK_GT(faults, 5u);
    end(&s);
  }
}
