/* get.h has the contract, the states and the invariants. */
#include "engine/get.h"

#include "base/hash.h"

#define MULTI_GETS 128u /* keys under way at once */

enum stage { STAGE_IDLE, STAGE_MEMTABLES, STAGE_RUN, STAGE_TABLE, STAGE_FOUND, STAGE_PARTS, STAGE_DONE };

struct part {        /* a row or attributes */
  struct load *load; /* made at the first miss */
  struct cache_pin pin;
  const void *data;
  bool waits;
  bool alone; /* its unit is damaged somewhere: read by its own pages */
};

struct get {
  const struct read_view *view;
  struct reads *reads;
  turb_bytes key;
  uint64_t hash;
  uint32_t which;
  unsigned load_flags;
  enum stage stage;
  uint32_t run;
  struct table_get in_table;
  const struct slot *slot; /* found */
  const struct source *source;
  struct part row, attributes;
  turb_status status;
  size_t index; /* multi-get: which key */
};

/* ---- one key ---- */

static turb_error *error_of(struct get *get) {
  return &get->in_table.error;
}

static const turb_allocator *allocator_of(const struct get *get) {
  return &get->view->version->db->allocator;
}

static void begin(struct get *get, turb_bytes key) {
  get->key = key;
  get->hash = hash64(key.data, key.size, 0);
  get->stage = STAGE_MEMTABLES;
  get->run = 0;
  get->slot = NULL;
  get->status = TURB_OK;
  get->row.data = get->attributes.data = NULL;
}

static void finish(struct get *get, turb_status status) {
  get->status = status;
  get->stage = STAGE_DONE;
}

static void look_in_memtables(struct get *get) {
  const struct version *version = get->view->version;
  for (uint32_t i = 0; i < version->memtable_count; i++) {
    if (!memtable_entries(version->memtables[i].memtable))
      continue;
    get->slot = memtable_get(version->memtables[i].memtable, get->key, get->view->sequence);
    if (!get->slot)
      continue;
    get->source = &version->memtables[i];
    get->stage = STAGE_FOUND;
    return;
  }
  get->stage = STAGE_RUN;
}

/* The next run that may hold the key; true when its look-up waits. */
static bool look_in_run(struct get *get) {
  const struct version *version = get->view->version;
  for (; get->run < version->run_count; get->run++) {
    const struct run_view *view = &version->runs[get->run].view;
    const uint32_t at = run_view_find(view, get->key);
    if (at == view->count)
      continue;
    get->source = &view->sources[at];
    const turb_bytes smallest = table_smallest_key(get->source->table);
    if (key_compare(get->key.data, get->key.size, smallest.data, smallest.size) < 0)
      continue;
    get->stage = STAGE_TABLE;
    switch (table_get_start(&get->in_table, get->source->table, get->key, get->hash, get->view->sequence, false)) {
    case GET_READY: return false;
    case GET_PENDING: return true;
    case GET_FAILED: finish(get, get->in_table.error.status); return false;
    }
  }
  finish(get, TURB_NOT_FOUND);
  return false;
}

static void after_table(struct get *get) {
  get->slot = get->in_table.found;
  get->stage = get->slot ? STAGE_FOUND : STAGE_RUN;
  if (!get->slot)
    get->run++;
}

static bool take_load(struct get *get, struct part *part) {
  return part->load || load_create(get->reads, allocator_of(get), &part->load, error_of(get)) == TURB_OK;
}

static void start(const struct get *get, const struct part *part, unsigned flags) {
  struct table *table = get->source->table;
  const struct slot *slot = get->slot;
  if (part == &get->row)
    (void)load_row(part->load, table, slot_row(slot), slot->row_hash, flags);
  else
    (void)load_attribute(part->load, table, slot_attribute_offset(slot), slot_attribute_size(slot), slot->attribute_hash, flags);
}

/* The part's load is READY, waits or failed. Damage beside the part in a unit that was to fill the cache does not concern it. */
static void settle(struct get *get, struct part *part) {
  if (load_state(part->load) == LOAD_FAILED && !part->alone && load_error(part->load, NULL) == TURB_CORRUPTION) {
    part->alone = true;
    start(get, part, LOAD_POINT);
  }
  switch (load_state(part->load)) {
  case LOAD_READY: load_take_pin(part->load, &part->pin, &part->data); break;
  case LOAD_WAITING: part->waits = true; return;
  case LOAD_FAILED:
    (void)load_error(part->load, error_of(get));
    finish(get, error_of(get)->status);
    break;
  case LOAD_IDLE: break;
  }
  part->waits = false;
  load_reset(part->load);
}

static void want_row(struct get *get) {
  struct table *table = get->source->table;
  const uint64_t row = slot_row(get->slot);
  uint32_t frame, offset;
  table_locate_row(table, row, &frame, &offset);
  if (cache_pin(table_directory(table), table_unit(table, UNIT_ROWS, frame), &get->row.pin)) {
    get->row.data = (const uint8_t *)get->row.pin.data + offset;
    return;
  }
  if (!take_load(get, &get->row)) {
    finish(get, TURB_NO_MEMORY);
    return;
  }
  start(get, &get->row, get->load_flags);
  settle(get, &get->row);
}

static void want_attributes(struct get *get) {
  struct table *table = get->source->table;
  const uint64_t offset = slot_attribute_offset(get->slot);
  const uint32_t size = slot_attribute_size(get->slot);
  uint32_t chunk, within, chunk_bytes;
  if (table_locate_attribute(table, offset, size, &chunk, &within, &chunk_bytes) &&
      cache_pin(table_directory(table), table_unit(table, UNIT_ATTRIBUTES, chunk), &get->attributes.pin)) {
    get->attributes.data = (const uint8_t *)get->attributes.pin.data + within;
    return;
  }
  if (!take_load(get, &get->attributes)) {
    finish(get, TURB_NO_MEMORY);
    return;
  }
  start(get, &get->attributes, get->load_flags);
  settle(get, &get->attributes);
}

/* The newest version at the view is known. */
static void decide(struct get *get) {
  const struct slot *slot = get->slot;
  if (slot_kind(slot) != SLOT_PUT || read_view_cover(get->view, get->key) > slot_sequence(slot)) {
    finish(get, TURB_NOT_FOUND);
    return;
  }
  get->stage = STAGE_PARTS;
  if (get->source->memtable) {
    get->row.data = memtable_row(get->source->memtable, slot_row(slot));
    if (slot_attribute_size(slot))
      get->attributes.data = memtable_attributes(get->source->memtable, slot);
    return;
  }
  if (get->which & TURB_VECTOR)
    want_row(get);
  if (get->which & TURB_ATTRIBUTES && slot_attribute_size(slot) && get->stage == STAGE_PARTS)
    want_attributes(get);
}

/* Goes on until done (true) or a read is needed (false). */
static bool step(struct get *get) {
  while (get->stage != STAGE_DONE) {
    switch (get->stage) {
    case STAGE_MEMTABLES: look_in_memtables(get); break;
    case STAGE_RUN:
      if (look_in_run(get))
        return false;
      if (get->stage == STAGE_TABLE)
        after_table(get);
      break;
    case STAGE_TABLE: {
      const enum get_state state = table_get_step(&get->in_table);
      if (state == GET_PENDING)
        return false;
      if (state == GET_FAILED)
        finish(get, get->in_table.error.status);
      else
        after_table(get);
      break;
    }
    case STAGE_FOUND: decide(get); break;
    case STAGE_PARTS:
      if (get->row.waits)
        settle(get, &get->row);
      if (get->attributes.waits)
        settle(get, &get->attributes);
      if (get->row.waits || get->attributes.waits)
        return false;
      if (get->stage == STAGE_PARTS)
        finish(get, TURB_OK);
      break;
    case STAGE_IDLE:
    case STAGE_DONE: return true;
    }
  }
  return true;
}

static void drop_part(struct get *get, struct part *part) {
  if (part->pin.data && get->source)
    load_pin_release(get->source->table, &part->pin);
  part->pin = (struct cache_pin){0};
  part->data = NULL;
  part->waits = part->alone = false;
  if (part->load)
    load_reset(part->load);
}

static void close_get(struct get *get) {
  drop_part(get, &get->row);
  drop_part(get, &get->attributes);
  load_destroy(get->row.load);
  load_destroy(get->attributes.load);
  table_get_close(&get->in_table);
}

/* ---- pins ---- */

enum { PIN_VERSION, PIN_TABLE, PIN_ROW_FRAME, PIN_ROW_DATA, PIN_ATTRIBUTES_FRAME, PIN_ATTRIBUTES_DATA, PIN_SIZES };

/* What was found becomes the caller's pin. */
static void hand_over(struct get *get, turb_pinned *pinned) {
  const struct slot *slot = get->slot;
  pinned->sequence = slot_sequence(slot);
  if (get->which & TURB_VECTOR)
    pinned->vector = (turb_bytes){get->row.data, get->view->version->shape->row_bytes};
  if (get->which & TURB_ATTRIBUTES)
    pinned->attributes = (turb_bytes){get->attributes.data, slot_attribute_size(slot)};
  pinned->internal[PIN_VERSION] = version_retain(get->view->version);
  pinned->internal[PIN_TABLE] = get->source->table;
  pinned->internal[PIN_ROW_FRAME] = get->row.pin.frame;
  pinned->internal[PIN_ROW_DATA] = (void *)(uintptr_t)get->row.pin.data;
  pinned->internal[PIN_ATTRIBUTES_FRAME] = get->attributes.pin.frame;
  pinned->internal[PIN_ATTRIBUTES_DATA] = (void *)(uintptr_t)get->attributes.pin.data;
  pinned->internal[PIN_SIZES] = (void *)(uintptr_t)((uint64_t)get->row.pin.size << 32 | get->attributes.pin.size);
  get->row.pin = get->attributes.pin = (struct cache_pin){0};
  atomic_fetch_add_explicit(&get->view->version->db->live_pins, 1, memory_order_relaxed);
}

void turb_pinned_release(turb_pinned *pinned) {
  if (!pinned || !pinned->internal[PIN_VERSION])
    return;
  struct version *version = pinned->internal[PIN_VERSION];
  turb_db *db = version->db;
  const struct table *table = pinned->internal[PIN_TABLE];
  const uint64_t sizes = (uint64_t)(uintptr_t)pinned->internal[PIN_SIZES];
  struct cache_pin row = {pinned->internal[PIN_ROW_FRAME], pinned->internal[PIN_ROW_DATA], (uint32_t)(sizes >> 32)};
  struct cache_pin attributes = {pinned->internal[PIN_ATTRIBUTES_FRAME], pinned->internal[PIN_ATTRIBUTES_DATA], (uint32_t)sizes};
  if (row.data)
    load_pin_release(table, &row);
  if (attributes.data)
    load_pin_release(table, &attributes);
  *pinned = (turb_pinned){0};
  version_release(version);
  atomic_fetch_sub_explicit(&db->live_pins, 1, memory_order_release);
}

/* ---- blocking ---- */

static turb_status init_get(struct get *get, const struct read_view *view, struct reads *reads, uint32_t which, bool fill_cache,
                            turb_error *err) {
  /* Member by member, as in table_get_init. */
  get->view = view;
  get->reads = reads;
  get->which = which;
  get->load_flags = LOAD_POINT | (fill_cache ? LOAD_FILL_CACHE : 0u);
  get->stage = STAGE_IDLE;
  get->slot = NULL;
  get->source = NULL;
  get->row = get->attributes = (struct part){0};
  get->status = TURB_OK;
  const turb_status status = table_get_init(&get->in_table, reads, allocator_of(get), err);
  get->in_table.row_wanted = (which & TURB_VECTOR) != 0;
  return status;
}

/* Runs one look-up to its end. */
static turb_status run(struct get *get, turb_bytes key, turb_error *err) {
  begin(get, key);
  while (!step(get)) {
    const turb_status status = reads_wait(get->reads, err);
    if (status != TURB_OK)
      return status;
  }
  if (get->status != TURB_OK && get->status != TURB_NOT_FOUND)
    return status_copy(err, error_of(get));
  return get->status;
}

turb_status get_pinned(const struct read_view *view, turb_bytes key, uint32_t parts, bool fill_cache, turb_pinned *pinned,
                       turb_error *err) {
  *pinned = (turb_pinned){0};
  struct reads reads;
  struct get get;
  reads_init(&reads, view->version->db->system, NULL);
  turb_status status = init_get(&get, view, &reads, parts, fill_cache, err);
  if (status == TURB_OK)
    status = run(&get, key, err);
  if (status == TURB_OK)
    hand_over(&get, pinned);
  close_get(&get);
  reads_close(&reads);
  return status;
}

/* ---- the public calls ---- */

static turb_status read_options(const turb_read_options *given, turb_read_options *options, turb_error *err) {
  const turb_status status = options_read(given, options, sizeof *options, "turb_read_options", err);
  if (status != TURB_OK)
    return status;
  if (options->parts & ~(uint32_t)TURB_ALL)
    return status_set(err, TURB_INVALID, "parts is %u, and must be of TURB_KEY, TURB_VECTOR, TURB_ATTRIBUTES", options->parts);
  if (!options->parts)
    options->parts = TURB_ALL;
  return TURB_OK;
}

static turb_status not_found(const turb_collection *collection, turb_error *err) {
  return status_set(err, TURB_NOT_FOUND, "%s: the key is not there", collection->name);
}

static turb_status check_key(const turb_collection *collection, turb_bytes key, turb_error *err) {
  if (key.size && key.size <= TURB_MAX_KEY_BYTES)
    return TURB_OK;
  return status_set(err, key.size ? TURB_TOO_LARGE : TURB_INVALID, "%s: the key has %zu bytes, and must have 1 to %d", collection->name,
                    key.size, TURB_MAX_KEY_BYTES);
}

turb_status turb_get_pinned(turb_collection *collection, turb_bytes key, const turb_read_options *given, turb_pinned *pinned,
                            turb_error *err) {
  *pinned = (turb_pinned){0};
  turb_read_options options;
  struct read_view view;
  turb_status status = read_options(given, &options, err);
  if (status == TURB_OK)
    status = read_view_open(collection, options.snapshot, &view, err);
  if (status != TURB_OK)
    return status;
  status = check_key(collection, key, err);
  if (status == TURB_OK) {
    status = get_pinned(&view, key, options.parts, !options.skip_cache_fill, pinned, err);
    if (status == TURB_NOT_FOUND)
      status = not_found(collection, err);
  }
  read_view_release(&view);
  return status;
}

turb_status turb_get(turb_collection *collection, turb_bytes key, const turb_read_options *given, void *vector, void *attributes,
                     size_t attributes_capacity, size_t *attributes_size, uint64_t *sequence, turb_error *err) {
  if (attributes_size)
    *attributes_size = 0;
  if (sequence)
    *sequence = 0;
  turb_read_options options;
  turb_status status = read_options(given, &options, err);
  if (status != TURB_OK)
    return status;
  options.parts = TURB_KEY | (vector ? TURB_VECTOR : 0u) | (attributes ? TURB_ATTRIBUTES : 0u);
  options.size = sizeof options;
  struct read_view view;
  status = read_view_open(collection, options.snapshot, &view, err);
  if (status != TURB_OK)
    return status;
  struct reads reads;
  struct get get;
  reads_init(&reads, collection->db->system, NULL);
  status = init_get(&get, &view, &reads, options.parts, !options.skip_cache_fill, err);
  if (status == TURB_OK)
    status = check_key(collection, key, err);
  if (status == TURB_OK)
    status = run(&get, key, err);
  if (status == TURB_OK) {
    const uint32_t size = slot_attribute_size(get.slot);
    if (attributes_size)
      *attributes_size = size;
    if (sequence)
      *sequence = slot_sequence(get.slot);
    if (vector)
      memcpy(vector, get.row.data, collection->shape.row_bytes);
    if (attributes && size > attributes_capacity)
      status = status_set(err, TURB_TOO_LARGE, "%s: the attributes have %u bytes, and the buffer %zu", collection->name, size,
                          attributes_capacity);
    else if (attributes && size)
      memcpy(attributes, get.attributes.data, size);
  } else if (status == TURB_NOT_FOUND) {
    status = not_found(collection, err);
  }
  close_get(&get);
  reads_close(&reads);
  read_view_release(&view);
  return status;
}

/* ---- many keys ---- */

struct multi_get {
  const struct read_view *view;
  size_t count, next; /* keys, and the next to begin */
  const turb_bytes *keys;
  turb_pinned *pinned;
  turb_status *statuses;
  struct get *gets;
  size_t get_count, active;
  turb_error *err;
};

/* A look-up ended: its result goes to the caller, and it takes the next key. */
static void next_key(struct multi_get *multi, struct get *get) {
  for (;;) {
    if (get->stage == STAGE_DONE) {
      multi->statuses[get->index] = get->status;
      if (get->status == TURB_OK)
        hand_over(get, &multi->pinned[get->index]);
      else if (get->status != TURB_NOT_FOUND)
        (void)status_copy(multi->err, error_of(get));
      status_clear(error_of(get));
      drop_part(get, &get->row);
      drop_part(get, &get->attributes);
    }
    if (multi->next == multi->count) {
      get->stage = STAGE_IDLE;
      multi->active--;
      return;
    }
    get->index = multi->next++;
    begin(get, multi->keys[get->index]);
    if (!step(get))
      return;
  }
}

static turb_status run_many(struct multi_get *multi, struct reads *reads, turb_error *err) {
  multi->active = multi->get_count;
  for (size_t i = 0; i < multi->get_count; i++)
    next_key(multi, &multi->gets[i]);
  while (multi->active) {
    const turb_status status = reads_wait(reads, err);
    if (status != TURB_OK)
      return status;
    for (size_t i = 0; i < multi->get_count; i++)
      if (multi->gets[i].stage != STAGE_IDLE && step(&multi->gets[i]))
        next_key(multi, &multi->gets[i]);
  }
  return TURB_OK;
}

static turb_status get_many(struct multi_get *multi, const turb_read_options *options, turb_error *err) {
  turb_db *db = multi->view->version->db;
  struct reads reads;
  reads_init(&reads, db->system, NULL);
  multi->get_count = multi->count < MULTI_GETS ? multi->count : MULTI_GETS;
  const size_t bytes = multi->get_count * sizeof *multi->gets;
  multi->gets = mem_alloc(&db->allocator, bytes);
  if (!multi->gets)
    return status_set(err, TURB_NO_MEMORY, "no memory for %zu look-ups", multi->get_count);
  turb_status status = TURB_OK;
  for (size_t i = 0; i < multi->get_count; i++)
    status = init_get(&multi->gets[i], multi->view, &reads, options->parts, !options->skip_cache_fill, err);
  if (status == TURB_OK)
    status = run_many(multi, &reads, err);
  for (size_t i = 0; i < multi->get_count; i++)
    close_get(&multi->gets[i]);
  reads_close(&reads);
  mem_free(&db->allocator, multi->gets, bytes);
  return status;
}

turb_status turb_multi_get(turb_collection *collection, size_t count, const turb_bytes *keys, const turb_read_options *given,
                           turb_pinned *pinned, turb_status *statuses, turb_error *err) {
  for (size_t i = 0; i < count; i++) {
    pinned[i] = (turb_pinned){0};
    statuses[i] = TURB_NOT_FOUND;
  }
  turb_read_options options;
  turb_status status = read_options(given, &options, err);
  for (size_t i = 0; i < count && status == TURB_OK; i++)
    status = check_key(collection, keys[i], err);
  struct read_view view;
  if (status == TURB_OK)
    status = read_view_open(collection, options.snapshot, &view, err);
  if (status != TURB_OK || !count) {
    if (status == TURB_OK)
      read_view_release(&view);
    return status;
  }
  struct multi_get multi = {.view = &view, .count = count, .keys = keys, .pinned = pinned, .statuses = statuses, .err = err};
  status = get_many(&multi, &options, err);
  if (status != TURB_OK)
    for (size_t i = 0; i < count; i++)
      turb_pinned_release(&pinned[i]);
  read_view_release(&view);
  return status;
}

turb_status turb_approximate_range(turb_collection *collection, turb_bytes lower, turb_bytes upper, uint64_t *entries, uint64_t *bytes,
                                   turb_error *err) {
  *entries = *bytes = 0;
  struct read_view view;
  turb_status status = read_view_open(collection, NULL, &view, err);
  if (status != TURB_OK)
    return status;
  struct reads reads;
  reads_init(&reads, collection->db->system, NULL);
  const struct version *version = view.version;
  for (uint32_t i = 0; i < version->memtable_count; i++) {
    const struct memtable *memtable = version->memtables[i].memtable;
    uint64_t n = 0;
    const struct memtable_node *node = lower.size ? memtable_lower_bound(memtable, lower, SLOT_SEQUENCE_MAX) : memtable_first(memtable);
    for (; node; node = memtable_next(node), n++) {
      const struct slot *slot = memtable_node_slot(node);
      if (upper.size && key_compare(slot_key(slot), slot->key_size, upper.data, upper.size) >= 0)
        break;
    }
    *entries += n;
    const uint64_t all = memtable_entries(memtable);
    if (all)
      *bytes += (uint64_t)((double)memtable_bytes(memtable) / (double)all * (double)n);
  }
  for (uint32_t r = 0; r < version->run_count && status == TURB_OK; r++) {
    const struct run_view *run = &version->runs[r].view;
    for (uint32_t t = lower.size ? run_view_find(run, lower) : 0; t < run->count && status == TURB_OK; t++) {
      struct table *table = run->sources[t].table;
      const struct table_record *record = table_get_record(table);
      if (upper.size && key_compare(record->lower.data, record->lower.size, upper.data, upper.size) >= 0)
        break;
      uint64_t row, first = 0, last = record->entries;
      if (lower.size)
        status = table_row_lower_bound(table, &reads, lower, true, &row, &first, err);
      if (upper.size && status == TURB_OK)
        status = table_row_lower_bound(table, &reads, upper, true, &row, &last, err);
      if (status != TURB_OK || last <= first)
        continue;
      *entries += last - first;
      *bytes += (uint64_t)((double)record->size_bytes / (double)record->entries * (double)(last - first));
    }
  }
  reads_close(&reads);
  read_view_release(&view);
  return status;
}
