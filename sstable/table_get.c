/* Point look-ups in one table (table.h), split like a cursor.
 *
 *   INDEX --page resident or loaded--> LOCATE --key page resident--------------------------------> KEYS
 *                                        |    --else, unless skipped--> FILTER --may contain--> KEYS (loaded)
 *                                        |                                 `--no--> DONE, none
 *   KEYS: found, or none; or all slots of the page come before (key, sequence) and its last key is the key: its older versions may be in the next page: NEXT
 *   NEXT: the next index slot, or the first of the next index page (INDEX), then KEYS
 *
 * The target of a look-up is a page in memory that the processor's caches do not hold, so the time goes into waiting for lines. The separators around
 * the page tell by interpolation about where in it the key stands: the lines there are asked for together, and searched first (find_near).
 *
 * A resident key page costs less to search than a filter section, so the filter is only asked before a read. A page may reach over two sections: the key
 * is in neither, or both are looked at.
 */
#include <assert.h>

#include "base/prefetch.h"
#include "sstable/filter.h"
#include "sstable/table_parts.h"

enum get_step { STEP_IDLE, STEP_INDEX, STEP_LOCATE, STEP_FILTER, STEP_FILTER_SECOND, STEP_KEYS, STEP_DONE };

/* What a step says. */
enum step_result { STEP_GO, STEP_WAIT, STEP_FAIL };

turb_status table_get_init(struct table_get *get, struct reads *reads, const turb_allocator *allocator, turb_error *err) {
  /* Member by member: a look-up that hits takes a microsecond, and clearing the error's text would be a part of it that shows. */
  get->reads = reads;
  get->allocator = allocator;
  get->load = NULL;
  get->table = NULL;
  get->step = STEP_IDLE;
  get->index_pin = get->key_pin = (struct cache_pin){0};
  get->found = NULL;
  get->skip_filter = get->row_wanted = false;
  get->error.status = TURB_OK;
  status_clear(&get->error);
  (void)err;
  return TURB_OK;
}

/* A look-up that hits needs no load: it is made at the first miss. */
static enum load_state begin_load(struct table_get *get, enum unit_kind kind, uint32_t ordinal, unsigned flags) {
  if (get->load == NULL && load_create(get->reads, get->allocator, &get->load, &get->error) != TURB_OK) {
    return LOAD_FAILED;
  }
  return load_unit(get->load, get->table, kind, ordinal, flags | LOAD_FILL_CACHE | LOAD_ABSENT);
}

static void let_go(struct table_get *get) {
  cache_unpin(&get->index_pin);
  cache_unpin(&get->key_pin);
  get->found = NULL;
}

/* The unit pinned, by the cache or by the load under way. */
static enum step_result bring(struct table_get *get, enum unit_kind kind, uint32_t ordinal, unsigned flags, struct cache_pin *pin) {
  enum load_state state = get->load != NULL ? load_state(get->load) : LOAD_IDLE;
  if (state == LOAD_IDLE) {
    if (cache_pin(table_directory(get->table), table_unit(get->table, kind, ordinal), pin)) {
      return STEP_GO;
    }
    state = begin_load(get, kind, ordinal, flags);
  }
  switch (state) {
  case LOAD_READY: load_take_pin(get->load, pin, NULL); return STEP_GO;
  case LOAD_WAITING: return STEP_WAIT;
  case LOAD_FAILED:
    if (get->load != NULL) {
      (void)load_error(get->load, &get->error);
      load_reset(get->load);
    }
    return STEP_FAIL;
  case LOAD_IDLE: break;
  }
  assert(false);
  return STEP_FAIL;
}

static const struct index_slot *index_slot_of(const struct table_get *get) {
  return index_slot_at(get->index_pin.data, get->index_slot);
}

static enum step_result fail(struct table_get *get, const char *what) {
  status_set_file(&get->error, TURB_CORRUPTION, get->table->path, (uint64_t)index_slot_of(get)->page * TABLE_PAGE_BYTES, "%s", what);
  return STEP_FAIL;
}

static enum step_result step_index(struct table_get *get) {
  const enum step_result result = bring(get, UNIT_INDEX, get->index_page, 0, &get->index_pin);
  if (result == STEP_GO) {
    get->index_slot = index_page_find(get->index_pin.data, get->key);
    assert(get->index_slot < ((const struct slot_page *)get->index_pin.data)->slot_count); /* its last separator is the top index's */
    get->guess = index_page_guess(get->index_pin.data, get->index_slot, get->key);
    get->step = STEP_LOCATE;
  }
  return result;
}

#define ROW_LINES_MAX 8u /* of a row; the processor sees by itself how a longer one goes on */

/* Asks for the descriptor of a row's frame and for a line near the row: the address of its page is translated meanwhile, and for a random
 * row that takes as long as a line. */
static void prefetch_near_row(struct table *table, uint64_t row) {
  uint32_t frame, offset;
  table_locate_row(table, row, &frame, &offset);
  const uint8_t *rows = cache_prefetch(table_directory(table), table_unit(table, UNIT_ROWS, frame));
  if (rows != NULL) {
    __builtin_prefetch(rows + offset);
  }
}

/* Asks for what the search of a resident key page will need: the page's descriptor and lines together, and something of the row. */
static void prefetch_keys(const struct table_get *get, const struct index_slot *index, uint32_t unit) {
  table_prefetch_keys(get->table, index, unit, get->guess, get->key.size);
  if (get->row_wanted && index->puts != 0) {
    prefetch_near_row(get->table, index->base_row + (get->guess < index->puts ? get->guess : index->puts - 1u));
  }
}

/* Asks for the row of a slot that probably is the one, while its key is compared and what holds the row is pinned. */
static void prefetch_row(const struct table_get *get, const struct slot *slot) {
  if (!get->row_wanted || slot_kind(slot) != SLOT_PUT) {
    return;
  }
  uint32_t frame, offset;
  table_locate_row(get->table, slot_row(slot), &frame, &offset);
  const uint8_t *row = cache_prefetch(table_directory(get->table), table_unit(get->table, UNIT_ROWS, frame));
  if (row != NULL) {
    const uint32_t row_bytes = table_get_shape(get->table)->row_bytes;
    const uint32_t bytes = row_bytes < ROW_LINES_MAX * CACHE_LINE_BYTES ? row_bytes : ROW_LINES_MAX * CACHE_LINE_BYTES;
    for (uint32_t at = 0; at < bytes; at += CACHE_LINE_BYTES) {
      __builtin_prefetch(row + offset + at);
    }
  }
}

/* Is the key page resident? Else the filter is asked first. */
static enum step_result step_locate(struct table_get *get) {
  const struct index_slot *slot = index_slot_of(get);
  get->key_ordinal = table_key_ordinal(get->table, slot->page);
  if (get->key_ordinal == UINT32_MAX) {
    return fail(get, "the index names a page that is no key page");
  }
  const uint32_t unit = table_unit(get->table, UNIT_KEYS, get->key_ordinal);
  prefetch_keys(get, slot, unit);
  if (!get->skip_filter && !cache_holds(table_directory(get->table), unit)) {
    get->step = STEP_FILTER;
  } else {
    get->step = STEP_KEYS;
  }
  return STEP_GO;
}

static enum step_result step_filter(struct table_get *get) {
  const struct index_slot *slot = index_slot_of(get);
  const uint64_t first = slot->first_entry / TABLE_FILTER_SECTION_ENTRIES;
  const uint64_t last = (slot->first_entry + slot->slots - 1) / TABLE_FILTER_SECTION_ENTRIES;
  struct cache_pin pin;
  const enum step_result result = bring(get, UNIT_FILTER, (uint32_t)(get->step == STEP_FILTER ? first : last), 0, &pin);
  if (result != STEP_GO) {
    return result;
  }
  const bool may_contain = filter_section_may_contain(pin.data, get->hash);
  cache_unpin(&pin);
  if (may_contain) {
    get->step = STEP_KEYS;
  } else {
    get->step = get->step == STEP_FILTER && first != last ? STEP_FILTER_SECOND : STEP_DONE;
  }
  return STEP_GO;
}

/* Older versions of the key may begin the next page. */
static void step_next(struct table_get *get) {
  cache_unpin(&get->key_pin);
  if (get->index_slot + 1u < ((const struct slot_page *)get->index_pin.data)->slot_count) {
    get->index_slot++;
    get->guess = 0;
    get->skip_filter = true; /* the key is there: it is this page's last */
    get->step = STEP_LOCATE;
    return;
  }
  cache_unpin(&get->index_pin);
  get->skip_filter = true;
  get->index_page++;
  get->step = get->index_page < table_index_page_count(get->table) ? STEP_INDEX : STEP_DONE;
}

/*
 * slot_page_lower_bound where only an equal key counts: *certain false leaves it to that. Keys of the page all begin with the shared prefix, so a
 * key that equals one of them does, and need not be compared with it first: that would be one more line to wait for.
 */
static uint16_t find_near(const struct table_get *get, const struct slot_page *page, bool *certain) {
  const turb_bytes key = get->key;
  const uint32_t count = page->slot_count;
  const size_t shared = page->shared_prefix_size;
  const struct slot *slots = slot_at(page, 0);
  *certain = false;
  if (key.size < shared) {
    return 0;
  }
  const uint64_t prefix = key_prefix8((const uint8_t *)key.data + shared, key.size - shared);
  const uint32_t low = slots_bound_near(slots, get->guess, count, prefix);
  if (low < count && slots[low].prefix == prefix) {
    prefetch_row(get, &slots[low]);
    *certain = slot_compare_target(&slots[low], key, get->sequence) >= 0 &&
               key_equal(slot_key(&slots[low]), slots[low].key_size, key.data, key.size);
  }
  return (uint16_t)low;
}

static enum step_result step_keys(struct table_get *get) {
  const struct index_slot *index = index_slot_of(get);
  const enum step_result result = bring(get, UNIT_KEYS, get->key_ordinal, index->units == 2 ? LOAD_TWO_UNITS : 0, &get->key_pin);
  if (result != STEP_GO) {
    return result;
  }
  const struct slot_page *page = get->key_pin.data;
  if (page->slot_count != index->slots || page->base_row != index->base_row) {
    return fail(get, "a key page is not as the index says");
  }
  get->step = STEP_DONE;
  bool certain;
  uint16_t at = find_near(get, page, &certain);
  if (certain) {
    get->found = slot_at(page, at);
    return STEP_GO;
  }
  at = slot_page_lower_bound(page, get->key, get->sequence);
  if (at < page->slot_count) {
    const struct slot *slot = slot_at(page, at);
    if (key_equal(slot_key(slot), slot->key_size, get->key.data, get->key.size)) {
      get->found = slot;
    }
    return STEP_GO;
  }
  const struct slot *last = slot_at(page, page->slot_count - 1u);
  if (key_equal(slot_key(last), last->key_size, get->key.data, get->key.size)) {
    step_next(get);
  }
  return STEP_GO;
}

enum get_state table_get_step(struct table_get *get) {
  enum step_result result = STEP_GO;
  while (result == STEP_GO && get->step != STEP_DONE) {
    switch ((enum get_step)get->step) {
    case STEP_INDEX: result = step_index(get); break;
    case STEP_LOCATE: result = step_locate(get); break;
    case STEP_FILTER:
    case STEP_FILTER_SECOND: result = step_filter(get); break;
    case STEP_KEYS: result = step_keys(get); break;
    case STEP_IDLE:
    case STEP_DONE: result = STEP_FAIL; break;
    }
  }
  if (result == STEP_WAIT) {
    return GET_PENDING;
  }
  if (result == STEP_FAIL) {
    let_go(get);
    get->step = STEP_IDLE;
    return GET_FAILED;
  }
  cache_unpin(&get->index_pin);
  if (get->found == NULL) {
    cache_unpin(&get->key_pin);
  }
  return GET_READY;
}

/* The same before the index page is searched, by where the key lies between the separators around that page: a line near the key page,
 * which the table's proportions tell, and one near the row. */
static void prefetch_about(const struct table_get *get) {
  struct table *table = get->table;
  const uint32_t at = get->index_page;
  const size_t shared = table->top_shared;
  if (at == 0 || get->key.size < shared) {
    return;
  }
  const uint64_t prefix = key_prefix8((const uint8_t *)get->key.data + shared, get->key.size - shared);
  const uint64_t low = table->top_prefixes[at - 1], high = table->top_prefixes[at];
  if (prefix <= low || prefix >= high) {
    return;
  }
  uint64_t entry, row, end_entry, end_row;
  table_index_page_base(table, at, &entry, &row);
  table_index_page_base(table, at + 1, &end_entry, &end_row);
  const double share = (double)(prefix - low) / (double)(high - low);
  const double entry_about = (double)entry + share * (double)(end_entry - entry);
  const uint32_t keys = table_unit_count(table, UNIT_KEYS);
  const uint32_t ordinal = (uint32_t)(entry_about / (double)table->tail.properties.entries * keys);
  const void *page = cache_prefetch(table_directory(table), table_unit(table, UNIT_KEYS, ordinal < keys ? ordinal : keys - 1));
  if (page != NULL) {
    __builtin_prefetch(page);
  }
  const uint64_t row_about = row + (uint64_t)(share * (double)(end_row - row));
  if (get->row_wanted && row_about < table->tail.properties.puts) {
    prefetch_near_row(table, row_about);
  }
}

enum get_state table_get_start(struct table_get *get, struct table *table, turb_bytes key, uint64_t hash, uint64_t sequence,
                               bool skip_filter) {
  let_go(get);
  if (get->load != NULL && load_state(get->load) != LOAD_IDLE) {
    load_reset(get->load);
  }
  if (get->error.status != TURB_OK) {
    status_clear(&get->error);
  }
  get->table = table;
  get->key = key;
  get->hash = hash;
  get->sequence = sequence;
  get->skip_filter = skip_filter;
  get->index_page = table_find_index_page(table, key);
  get->step = STEP_DONE;
  if (get->index_page < table_index_page_count(table)) {
    get->step = STEP_INDEX;
    prefetch_about(get);
  }
  return table_get_step(get);
}

void table_get_close(struct table_get *get) {
  let_go(get);
  load_destroy(get->load);
  get->load = NULL;
}
