/* Looking up rows (table_row.h):  INDEX --page pinned--> KEYS --page pinned--> DONE */
#include "sstable/table_row.h"

#include <assert.h>

#include "sstable/table_parts.h"

enum { STEP_IDLE, STEP_INDEX, STEP_KEYS, STEP_DONE };

void table_row_find_init(struct table_row_find *find, struct reads *reads, const turb_allocator *allocator) {
  *find = (struct table_row_find){.reads = reads, .allocator = allocator};
}

/* The last index page that begins at or before the row: pages without a row begin where the next one does. */
static uint32_t find_index_page(const struct table *table, uint64_t row) {
  const struct top_entry *top = table->tail.top;
  uint32_t low = 0, high = table->tail.top_count;
  while (high - low > 1) {
    const uint32_t middle = low + (high - low) / 2;
    if (top[middle].first_row <= row) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

static uint16_t find_index_slot(const struct slot_page *page, uint64_t row) {
  uint16_t low = 0, high = page->slot_count;
  while (high - low > 1) {
    const uint16_t middle = (uint16_t)((low + high) / 2);
    if (codec_index_slot(page, middle)->base_row <= row) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

/* The last slot with this row number: deletes before it carry the same one. */
static const struct slot *find_slot(const struct slot_page *page, uint64_t row) {
  uint32_t low = 0, high = page->slot_count;
  while (high - low > 1) {
    const uint32_t middle = (low + high) / 2;
    if (slot_row(slot_at(page, middle)) <= row) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return slot_at(page, low);
}

static enum get_state fail(struct table_row_find *find, uint64_t offset, const char *what) {
  status_set_file(&find->error, TURB_CORRUPTION, find->table->path, offset, "%s", what);
  return GET_FAILED;
}

/* The unit pinned: READY, or it is on its way, or failed. */
static enum get_state bring(struct table_row_find *find, enum unit_kind kind, uint32_t ordinal, unsigned flags, struct cache_pin *pin) {
  enum load_state state = find->load != NULL ? load_state(find->load) : LOAD_IDLE;
  if (state == LOAD_IDLE) {
    if (cache_pin(table_directory(find->table), table_unit(find->table, kind, ordinal), pin)) {
      return GET_READY;
    }
    if (find->load == NULL && load_create(find->reads, find->allocator, &find->load, &find->error) != TURB_OK) {
      return GET_FAILED;
    }
    state = load_unit(find->load, find->table, kind, ordinal, flags | LOAD_FILL_CACHE | LOAD_ABSENT);
  }
  switch (state) {
  case LOAD_READY: load_take_pin(find->load, pin, NULL); return GET_READY;
  case LOAD_WAITING: return GET_PENDING;
  case LOAD_FAILED:
    (void)load_error(find->load, &find->error);
    load_reset(find->load);
    return GET_FAILED;
  case LOAD_IDLE: break;
  }
  assert(false);
  return GET_FAILED;
}

/* Does the key page that the current index slot names begin with the key that ends the page before? A separator equals the key behind it only then. */
static bool page_continues(const struct table_row_find *find, const struct slot_page *page) {
  const turb_bytes key = slot_key_bytes(slot_at(page, 0));
  turb_bytes separator;
  if (find->index_slot != 0) {
    separator = codec_index_separator(find->index_pin.data, find->index_slot - 1u);
  } else if (find->index_page != 0) {
    separator = find->table->tail.top[find->index_page - 1].separator;
  } else {
    return false;
  }
  return key_equal(separator.data, separator.size, key.data, key.size);
}

static enum get_state step_index(struct table_row_find *find) {
  const enum get_state state = bring(find, UNIT_INDEX, find->index_page, 0, &find->index_pin);
  if (state != GET_READY) {
    return state;
  }
  const struct slot_page *page = find->index_pin.data;
  find->index_slot = find_index_slot(page, find->row);
  const struct index_slot *slot = codec_index_slot(page, find->index_slot);
  find->key_ordinal = table_key_ordinal(find->table, slot->page);
  if (find->key_ordinal == UINT32_MAX) {
    return fail(find, (uint64_t)slot->page * TABLE_PAGE_BYTES, "the index names a page that is no key page");
  }
  find->step = STEP_KEYS;
  return GET_READY;
}

static enum get_state take_slot(struct table_row_find *find, uint64_t page_offset) {
  find->slot = find_slot(find->key_pin.data, find->row);
  find->step = STEP_DONE;
  if (slot_kind(find->slot) != SLOT_PUT || slot_row(find->slot) != find->row) {
    find->slot = NULL;
    return fail(find, page_offset, "a key page does not have the row that the index says");
  }
  return GET_READY;
}

static enum get_state step_keys(struct table_row_find *find) {
  const struct index_slot *index = codec_index_slot(find->index_pin.data, find->index_slot);
  const enum get_state state = bring(find, UNIT_KEYS, find->key_ordinal, index->units == 2 ? LOAD_TWO_UNITS : 0, &find->key_pin);
  if (state != GET_READY) {
    return state;
  }
  const struct slot_page *page = find->key_pin.data;
  const uint64_t offset = (uint64_t)index->page * TABLE_PAGE_BYTES;
  if (page->slot_count != index->slots || page->base_row != index->base_row) {
    return fail(find, offset, "a key page is not as the index says");
  }
  find->continues = page_continues(find, page);
  find->end_row = index->base_row + index->puts;
  cache_unpin(&find->index_pin);
  return take_slot(find, offset);
}

static void let_go(struct table_row_find *find) {
  cache_unpin(&find->index_pin);
  cache_unpin(&find->key_pin);
  find->slot = NULL;
}

enum get_state table_row_find_step(struct table_row_find *find) {
  enum get_state state = GET_READY;
  while (state == GET_READY && find->step != STEP_DONE) {
    switch (find->step) {
    case STEP_INDEX: state = step_index(find); break;
    case STEP_KEYS: state = step_keys(find); break;
    default:
      assert(false);
      state = GET_FAILED;
      break;
    }
  }
  if (state == GET_FAILED) {
    let_go(find);
    find->step = STEP_IDLE;
  }
  return state;
}

enum get_state table_row_find_start(struct table_row_find *find, struct table *table, uint64_t row) {
  assert(row < table->tail.properties.puts);
  if (find->key_pin.data != NULL && find->table == table && find->step == STEP_DONE) {
    const struct slot_page *page = find->key_pin.data;
    if (row >= page->base_row && row < find->end_row) {
      find->row = row;
      find->slot = find_slot(page, row);
      if (slot_kind(find->slot) == SLOT_PUT && slot_row(find->slot) == row) {
        return GET_READY;
      }
    }
  }
  let_go(find);
  if (find->load != NULL && load_state(find->load) != LOAD_IDLE) {
    load_reset(find->load);
  }
  if (find->error.status != TURB_OK) {
    status_clear(&find->error);
  }
  find->table = table;
  find->row = row;
  find->index_page = find_index_page(table, row);
  find->step = STEP_INDEX;
  return table_row_find_step(find);
}

void table_row_find_close(struct table_row_find *find) {
  let_go(find);
  load_destroy(find->load);
  *find = (struct table_row_find){0};
}
