/*
 * The memtable: pages, entries, counters, and the calls that put the parts together; see memtable.h for the layout and the invariants.
 *
 * A put takes everything that can fail first (the row's place, room in a page, room for the attributes), in steps that each leave the
 * table sound and are not lost for the next attempt; then it writes and links the entry, which cannot fail.
 */
#include "memtable/memtable.h"

#include <stdatomic.h>
#include <string.h>

#include "base/arena.h"
#include "base/coding.h"
#include "memtable/index.h"
#include "memtable/memory.h"
#include "memtable/ranges.h"
#include "memtable/rows.h"

#define FIRST_CHUNK_BYTES        (12u << 10)
#define LARGEST_CHUNK_BYTES      (1u << 20)
#define SIDE_FIRST_CHUNK_BYTES   (4u << 10)
#define SIDE_LARGEST_CHUNK_BYTES (256u << 10)
/* Attributes from here on get a chunk of their own, with a page at its front. */
#define OWN_ATTRIBUTE_BYTES (256u << 10)
/* Reserving more than this in one call is refused: attribute deltas have 32 bits. */
#define RESERVE_LIMIT_BYTES (UINT64_C(1) << 31)
#define NODE_ALIGNMENT      8u
#define ROW_DELTA_BITS      (32u - SLOT_ATTRIBUTE_BITS)

_Static_assert((SLOT_PAGE_BYTES - sizeof(struct slot_page)) / sizeof(struct slot) < (1u << ROW_DELTA_BITS), "row deltas reach over a page");
_Static_assert(TURB_MAX_ATTRIBUTE_BYTES < (1u << SLOT_ATTRIBUTE_BITS), "attribute sizes fit their bits");
_Static_assert(2 * SLOT_PAGE_BYTES - sizeof(struct slot_page) - sizeof(struct slot) - MEMTABLE_NODE_BYTES - NODE_ALIGNMENT >=
                   TURB_MAX_KEY_BYTES,
               "the longest key fits two units");

/* The page that entries go to. */
struct open_page {
  struct slot_page *page; /* NULL: none yet */
  struct slot *next;
  uint8_t *slots_end;  /* of its first unit */
  uint8_t *keys_begin; /* keys and nodes lie from here on */
  uint8_t *base;       /* of the chunk that it lies in */
};

struct memtable {
  turb_allocator allocator;
  struct budget *budget;
  _Atomic uint32_t references;
  struct memtable_memory memory; /* pages, attributes, rows, range deletes */
  struct memtable_memory side;   /* the index, and merged levels of range deletes: what a write can do without */
  struct memtable_index index;
  struct memtable_rows rows;
  struct memtable_ranges ranges;
  struct open_page open;
  _Atomic uint64_t entries;
  _Atomic uint64_t first_sequence;
  _Atomic uint64_t last_sequence;
};

/* ---- life ---- */

turb_status memtable_create(const struct memtable_options *options, struct memtable **out, turb_error *err) {
  *out = NULL;
  assert(options->row_bytes != 0 && options->stride >= options->row_bytes);
  if (!budget_take(options->budget, BUDGET_MEMTABLE, sizeof(struct memtable))) {
    return status_set(err, TURB_BUDGET, "the memory budget has no %zu bytes for a memtable", sizeof(struct memtable));
  }
  struct memtable *memtable = mem_alloc_zeroed(options->allocator, sizeof *memtable);
  if (memtable == NULL) {
    budget_give(options->budget, BUDGET_MEMTABLE, sizeof *memtable);
    return status_set(err, TURB_NO_MEMORY, "no memory for a memtable");
  }
  memtable->allocator = *options->allocator;
  memtable->budget = options->budget;
  atomic_init(&memtable->references, 1);
  memtable_memory_init(&memtable->memory, &memtable->allocator, options->budget, options->pool, FIRST_CHUNK_BYTES, LARGEST_CHUNK_BYTES);
  memtable_memory_init(&memtable->side, &memtable->allocator, options->budget, options->pool, SIDE_FIRST_CHUNK_BYTES,
                       SIDE_LARGEST_CHUNK_BYTES);
  memtable_index_init(&memtable->index, &memtable->side);
  memtable_rows_init(&memtable->rows, &memtable->memory, options->row_bytes, options->stride);
  memtable_ranges_init(&memtable->ranges, &memtable->memory, &memtable->side);
  atomic_init(&memtable->entries, 0);
  atomic_init(&memtable->first_sequence, 0);
  atomic_init(&memtable->last_sequence, 0);
  *out = memtable;
  return TURB_OK;
}

struct memtable *memtable_retain(struct memtable *memtable) {
  atomic_fetch_add_explicit(&memtable->references, 1, memory_order_relaxed);
  return memtable;
}

void memtable_release(struct memtable *memtable) {
  if (memtable == NULL || atomic_fetch_sub_explicit(&memtable->references, 1, memory_order_acq_rel) != 1) {
    return;
  }
  memtable_memory_free(&memtable->memory);
  memtable_memory_free(&memtable->side);
  const turb_allocator allocator = memtable->allocator;
  struct budget *budget = memtable->budget;
  mem_free(&allocator, memtable, sizeof *memtable);
  budget_give(budget, BUDGET_MEMTABLE, sizeof *memtable);
}

/* ---- places for an entry ---- */

static size_t node_bytes(size_t key_size) {
  return (MEMTABLE_NODE_BYTES + key_size + NODE_ALIGNMENT - 1) & ~(size_t)(NODE_ALIGNMENT - 1);
}

static bool page_fits(const struct open_page *open, size_t key_size) {
  if (open->page == NULL) {
    return false;
  }
  uint8_t *slot_end = (uint8_t *)(open->next + 1);
  return slot_end <= open->slots_end && slot_end + node_bytes(key_size) <= open->keys_begin;
}

/* The bytes of a page that is opened for a key. */
static size_t page_bytes(size_t key_size) {
  const size_t needed = sizeof(struct slot_page) + sizeof(struct slot) + node_bytes(key_size);
  return needed <= SLOT_PAGE_BYTES ? SLOT_PAGE_BYTES : 2 * SLOT_PAGE_BYTES;
}

/* Room for it was ensured. */
static void page_open(struct memtable *memtable, struct memtable_region *region, size_t key_size) {
  const size_t bytes = page_bytes(key_size);
  uint8_t *memory = memtable_region_units(region, bytes);
  struct slot_page *page = (struct slot_page *)(void *)memory;
  *page = (struct slot_page){.base_row = memtable_rows_count(&memtable->rows),
                             .base_attribute = (uintptr_t)region->base,
                             .units = (uint8_t)(bytes / SLOT_PAGE_BYTES)};
  memtable->open = (struct open_page){.page = page,
                                      .next = (struct slot *)(void *)(page + 1),
                                      .slots_end = memory + SLOT_PAGE_BYTES,
                                      .keys_begin = memory + bytes,
                                      .base = region->base};
}

/* An open page with room for the key, and *attributes where its attributes go (in the chunk that the page lies in). */
static turb_status entry_room(struct memtable *memtable, size_t key_size, size_t attribute_size, uint8_t **attributes, turb_error *err) {
  struct memtable_memory *memory = &memtable->memory;
  const bool fits = page_fits(&memtable->open, key_size);
  const bool current = memtable->open.base == memory->current.base;
  *attributes = NULL;
  if (fits && (attribute_size == 0 || (current && memtable_region_room(&memory->current) >= attribute_size))) {
    *attributes = attribute_size != 0 ? memtable_region_bytes(&memory->current, attribute_size, 1) : NULL;
    return TURB_OK;
  }
  const size_t page = page_bytes(key_size);
  if (attribute_size > OWN_ATTRIBUTE_BYTES && !memtable_memory_holds(memory, page + attribute_size)) {
    struct memtable_region own;
    const turb_status status = memtable_memory_own(memory, page, attribute_size, &own, err);
    if (status == TURB_OK) {
      page_open(memtable, &own, key_size);
      *attributes = memtable_region_bytes(&own, attribute_size, 1);
    }
    return status;
  }
  const turb_status status = memtable_memory_ensure(memory, page, attribute_size, err);
  if (status != TURB_OK) {
    return status;
  }
  if (!fits || (attribute_size != 0 && memtable->open.base != memory->current.base)) {
    page_open(memtable, &memory->current, key_size);
  }
  *attributes = attribute_size != 0 ? memtable_region_bytes(&memory->current, attribute_size, 1) : NULL;
  return TURB_OK;
}

/* ---- writing ---- */

static void sequences_note(struct memtable *memtable, uint64_t sequence) {
  const uint64_t first = atomic_load_explicit(&memtable->first_sequence, memory_order_relaxed);
  const uint64_t last = atomic_load_explicit(&memtable->last_sequence, memory_order_relaxed);
  if (first == 0 || sequence < first) {
    atomic_store_explicit(&memtable->first_sequence, sequence, memory_order_relaxed);
  }
  if (sequence > last) {
    atomic_store_explicit(&memtable->last_sequence, sequence, memory_order_relaxed);
  }
}

/* Takes an entry's slot and node in the open page and fills what puts and deletes have in common. */
static struct slot *entry_write(struct memtable *memtable, turb_bytes key, uint64_t sequence, enum slot_kind kind,
                                struct memtable_node **node) {
  struct open_page *open = &memtable->open;
  struct slot *slot = open->next++;
  open->keys_begin -= node_bytes(key.size);
  *node = (struct memtable_node *)(void *)open->keys_begin;
  (*node)->slot_distance = (uint16_t)(open->keys_begin - (uint8_t *)slot);
  (*node)->key_size = (uint16_t)key.size;
  uint8_t *stored = memtable_node_key(*node);
  memcpy(stored, key.data, key.size);
  const uint64_t row_delta = memtable_rows_count(&memtable->rows) - open->page->base_row;
  *slot = (struct slot){.prefix = key_prefix8(key.data, key.size),
                        .sequence_kind = sequence << 8 | (uint64_t)kind,
                        .attribute_size_row_delta = (uint32_t)row_delta << SLOT_ATTRIBUTE_BITS,
                        .key_offset = (uint16_t)(stored - (uint8_t *)open->page),
                        .key_size = (uint16_t)key.size};
  return slot;
}

static void entry_publish(struct memtable *memtable, const struct memtable_place *place, struct memtable_node *node, uint64_t sequence) {
  memtable_index_insert(&memtable->index, place, node);
  sequences_note(memtable, sequence);
  const uint64_t entries = atomic_load_explicit(&memtable->entries, memory_order_relaxed);
  atomic_store_explicit(&memtable->entries, entries + 1, memory_order_release);
}

static void entry_assert(turb_bytes key, uint64_t sequence) {
  assert(key.size != 0 && key.size <= TURB_MAX_KEY_BYTES);
  assert(sequence != 0 && sequence <= SLOT_SEQUENCE_MAX);
  (void)key;
  (void)sequence;
}

turb_status memtable_put(struct memtable *memtable, turb_bytes key, uint64_t sequence, const void *row, uint64_t row_hash,
                         turb_bytes attributes, uint32_t attribute_hash, turb_error *err) {
  entry_assert(key, sequence);
  assert(attributes.size <= TURB_MAX_ATTRIBUTE_BYTES);
  const uint64_t number = memtable_rows_count(&memtable->rows);
  turb_status status = memtable_rows_ensure(&memtable->rows, number + 1, err);
  if (status != TURB_OK) {
    return status;
  }
  struct memtable_place place; /* looked up early: what it brings into the cache arrives while the row is copied */
  memtable_index_find(&memtable->index, key, sequence, &place);
  uint8_t *stored = NULL;
  status = entry_room(memtable, key.size, attributes.size, &stored, err);
  if (status != TURB_OK) {
    return status;
  }
  struct memtable_node *node = NULL;
  struct slot *slot = entry_write(memtable, key, sequence, SLOT_PUT, &node);
  slot->row_hash = row_hash;
  if (attributes.size != 0) {
    memcpy(stored, attributes.data, attributes.size);
    slot->attribute_hash = attribute_hash;
    slot->attribute_delta = (uint32_t)(stored - memtable->open.base);
    slot->attribute_size_row_delta |= (uint32_t)attributes.size;
  }
  memcpy(memtable_rows_at(&memtable->rows, number), row, memtable->rows.row_bytes);
  entry_publish(memtable, &place, node, sequence);
  memtable_rows_publish(&memtable->rows, slot);
  return TURB_OK;
}

turb_status memtable_delete(struct memtable *memtable, turb_bytes key, uint64_t sequence, turb_error *err) {
  entry_assert(key, sequence);
  uint8_t *stored = NULL;
  const turb_status status = entry_room(memtable, key.size, 0, &stored, err);
  if (status != TURB_OK) {
    return status;
  }
  struct memtable_place place;
  memtable_index_find(&memtable->index, key, sequence, &place);
  struct memtable_node *node = NULL;
  (void)entry_write(memtable, key, sequence, SLOT_DELETE, &node);
  entry_publish(memtable, &place, node, sequence);
  return TURB_OK;
}

turb_status memtable_delete_range(struct memtable *memtable, turb_bytes begin, turb_bytes end, uint64_t sequence, turb_error *err) {
  assert(sequence != 0 && sequence <= SLOT_SEQUENCE_MAX);
  const turb_status status = memtable_ranges_add(&memtable->ranges, begin, end, sequence, err);
  if (status == TURB_OK) {
    sequences_note(memtable, sequence);
  }
  return status;
}

/*
 * Of two pages that follow each other, the first key of the second did not fit the first: so all pages but the last are at least half
 * full, which the factor in memtable_need covers. The last one comes on top, and one that is given up where the next chunk begins.
 */
turb_status memtable_reserve(struct memtable *memtable, size_t entries, size_t bytes, turb_error *err) {
  if (bytes > RESERVE_LIMIT_BYTES || entries > RESERVE_LIMIT_BYTES) {
    return status_set(err, TURB_TOO_LARGE, "a batch of %zu entries and %zu bytes is too large for a memtable", entries, bytes);
  }
  const turb_status status = memtable_rows_ensure(&memtable->rows, memtable_rows_count(&memtable->rows) + entries, err);
  if (status != TURB_OK) {
    return status;
  }
  const size_t page = bytes >= 2 * SLOT_PAGE_BYTES - 512 ? 2 * SLOT_PAGE_BYTES : SLOT_PAGE_BYTES; /* a key of two units needs as much */
  const size_t pages = memtable->open.page != NULL ? 2 * page : page;
  return memtable_memory_reserve(&memtable->memory, bytes + pages, err);
}

/* ---- counters ---- */

uint64_t memtable_bytes(const struct memtable *memtable) {
  return sizeof *memtable + memtable_memory_charged(&memtable->memory) + memtable_memory_charged(&memtable->side);
}

uint64_t memtable_entries(const struct memtable *memtable) {
  return atomic_load_explicit(&memtable->entries, memory_order_acquire);
}

uint64_t memtable_range_delete_count(const struct memtable *memtable) {
  return memtable_ranges_count(&memtable->ranges);
}

uint64_t memtable_rows(const struct memtable *memtable) {
  return memtable_rows_count(&memtable->rows);
}

uint64_t memtable_first_sequence(const struct memtable *memtable) {
  return atomic_load_explicit(&memtable->first_sequence, memory_order_relaxed);
}

uint64_t memtable_last_sequence(const struct memtable *memtable) {
  return atomic_load_explicit(&memtable->last_sequence, memory_order_relaxed);
}

/* ---- rows and attributes ---- */

const void *memtable_row(const struct memtable *memtable, uint64_t row) {
  return memtable_rows_at(&memtable->rows, row);
}

const void *memtable_attributes(const struct memtable *memtable, const struct slot *slot) {
  (void)memtable;
  return (const void *)(uintptr_t)slot_attribute_offset(slot);
}

const void *memtable_row_run(const struct memtable *memtable, uint64_t row, uint64_t *count) {
  const uint64_t rows = memtable_rows_count(&memtable->rows);
  uint64_t first = 0;
  assert(row < rows);
  (void)memtable_rows_piece(&memtable->rows, row, &first);
  const uint64_t end = first + memtable_rows_in_piece(&memtable->rows, first);
  *count = (end < rows ? end : rows) - row;
  return memtable_rows_at(&memtable->rows, row);
}

const struct slot *memtable_row_slot(const struct memtable *memtable, uint64_t row) {
  return *memtable_rows_slot(&memtable->rows, row);
}

/* ---- order ---- */

static struct memtable_node *node_next(const struct memtable_node *node) {
  return atomic_load_explicit(&node->next, memory_order_acquire);
}

const struct memtable_node *memtable_first(const struct memtable *memtable) {
  return node_next(&memtable->index.head);
}

const struct memtable_node *memtable_last(const struct memtable *memtable) {
  const struct memtable_node *node = atomic_load_explicit(&memtable->index.tail, memory_order_acquire);
  for (const struct memtable_node *next = node_next(node); next != NULL; next = node_next(node)) {
    node = next;
  }
  return node != &memtable->index.head ? node : NULL;
}

const struct memtable_node *memtable_next(const struct memtable_node *node) {
  return node_next(node);
}

const struct memtable_node *memtable_previous(const struct memtable *memtable, const struct memtable_node *node) {
  const struct memtable_node *previous = atomic_load_explicit(&node->prev, memory_order_acquire);
  for (const struct memtable_node *next = node_next(previous); next != node; next = node_next(previous)) {
    previous = next;
  }
  return previous != &memtable->index.head ? previous : NULL;
}

const struct memtable_node *memtable_before(const struct memtable *memtable, turb_bytes key, uint64_t sequence) {
  struct memtable_node *after = NULL;
  const struct memtable_node *node = memtable_index_search(&memtable->index, key, sequence, &after);
  return node != &memtable->index.head ? node : NULL;
}

const struct memtable_node *memtable_lower_bound(const struct memtable *memtable, turb_bytes key, uint64_t sequence) {
  struct memtable_node *after = NULL;
  (void)memtable_index_search(&memtable->index, key, sequence, &after);
  return after;
}

const struct slot *memtable_node_slot(const struct memtable_node *node) {
  return memtable_index_slot(node);
}

const struct slot *memtable_get(const struct memtable *memtable, turb_bytes key, uint64_t sequence) {
  const struct memtable_node *node = memtable_lower_bound(memtable, key, sequence);
  if (node == NULL || !key_equal(memtable_node_key(node), node->key_size, key.data, key.size)) {
    return NULL;
  }
  return memtable_index_slot(node);
}

bool memtable_valid(const struct memtable *memtable) {
  return memtable_index_valid(&memtable->index);
}

/* ---- range deletes ---- */

uint64_t memtable_range_cover(const struct memtable *memtable, turb_bytes key, uint64_t snapshot) {
  return memtable_ranges_cover(&memtable->ranges, key, snapshot);
}

turb_status memtable_range_deletes_seen(const struct memtable *memtable, uint64_t snapshot, const struct range_snapshots *snapshots,
                                        struct arena *arena, struct range_deletes *deletes, turb_error *err) {
  *deletes = (struct range_deletes){NULL, 0};
  const struct memtable_range *newest = memtable_ranges_newest(&memtable->ranges);
  size_t count = 0;
  for (const struct memtable_range *range = newest; range != NULL; range = range->older) {
    count += range->range.sequence <= snapshot;
  }
  if (count == 0) {
    return TURB_OK;
  }
  struct arena scratch;
  arena_init(&scratch, arena->allocator, arena->budget, arena->use, 0);
  struct range_delete *list = arena_alloc(&scratch, count * sizeof *list, _Alignof(struct range_delete));
  turb_status status = TURB_OK;
  if (list == NULL) {
    status = status_set(err, scratch.failure, "no memory for a list of %zu range deletes", count);
  } else {
    size_t at = 0;
    for (const struct memtable_range *range = newest; range != NULL; range = range->older) {
      if (range->range.sequence <= snapshot) {
        list[at++] = range->range;
      }
    }
    status = range_deletes_build(list, count, snapshots, arena, deletes, err);
  }
  arena_free(&scratch);
  return status;
}

turb_status memtable_range_deletes(const struct memtable *memtable, uint64_t snapshot, struct arena *arena, struct range_deletes *deletes,
                                   turb_error *err) {
  return memtable_range_deletes_seen(memtable, snapshot, NULL, arena, deletes, err);
}
