/* Point look-ups in one table (table.h), split like a cursor.
 *
 *   INDEX --page resident or loaded--> LOCATE --key page resident--------------------------------> KEYS
 *                                        |    --else, unless skipped--> FILTER --may contain--> KEYS (loaded)
 *                                        |                                 `--no--> DONE, none
 *   KEYS: found, or none; or all slots of the page come before (key, sequence) and its last key is the key: its older versions may be in the next page: NEXT
 *   NEXT: the next index slot, or the first of the next index page (INDEX), then KEYS
 *
 * A resident key page costs less to search than a filter section, so the filter is only asked before a read. A page may reach over two sections: the key
 * is in neither, or both are looked at.
 */
#include <assert.h>

#include "sstable/filter.h"
#include "sstable/table_parts.h"

enum get_step { STEP_IDLE, STEP_INDEX, STEP_LOCATE, STEP_FILTER, STEP_FILTER_SECOND, STEP_KEYS, STEP_DONE };

/* What a step says. */
enum step_result { STEP_GO, STEP_WAIT, STEP_FAIL };

turb_status table_get_init(struct table_get *get, struct reads *reads, const turb_allocator *allocator, turb_error *err) {
  *get = (struct table_get){.reads = reads, .allocator = allocator};
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
    get->step = STEP_LOCATE;
  }
  return result;
}

/* Is the key page resident? Else the filter is asked first. */
static enum step_result step_locate(struct table_get *get) {
  const struct index_slot *slot = index_slot_of(get);
  get->key_ordinal = table_key_ordinal(get->table, slot->page);
  if (get->key_ordinal == UINT32_MAX) {
    return fail(get, "the index names a page that is no key page");
  }
  const uint32_t unit = table_unit(get->table, UNIT_KEYS, get->key_ordinal);
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
    get->skip_filter = true; /* the key is there: it is this page's last */
    get->step = STEP_LOCATE;
    return;
  }
  cache_unpin(&get->index_pin);
  get->skip_filter = true;
  get->index_page++;
  get->step = get->index_page < table_index_page_count(get->table) ? STEP_INDEX : STEP_DONE;
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
  const uint16_t at = slot_page_lower_bound(page, get->key, get->sequence);
  get->step = STEP_DONE;
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

enum get_state table_get_start(struct table_get *get, struct table *table, turb_bytes key, uint64_t hash, uint64_t sequence, bool skip_filter) {
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
  get->step = get->index_page < table_index_page_count(table) ? STEP_INDEX : STEP_DONE;
  return table_get_step(get);
}

void table_get_close(struct table_get *get) {
  let_go(get);
  load_destroy(get->load);
  *get = (struct table_get){0};
}
