/* Loads (load.h): one unit, row or attribute on its way from disk to memory.
 *
 * The work under way is a `fetch`, memory of its own, so that a load that goes away leaves it to the ring. A fetch has one operation for the data and up to
 * three for the checksum pages that verify it, all in one submission:
 *
 *   what                          first round                           second round
 *   index, filter, key, checksum  the unit                              key page of 2 units: the whole page
 *   rows, attributes (units)      the unit and its checksum pages       -
 *   rows of a compressed table    the checksum page                     the block, whose place it tells
 *   a row, an attribute alone     its own pages                         -
 *   an attribute above 1 MiB      its own pages and its checksum pages  -
 *
 * Invariants
 *  1. pending = operations on the reads or in the ring. The fetch is free to be used again when it is 0.
 *  2. While pending > 0 or the load waits the fetch holds a reference of the table.
 *  3. An orphan has neither load nor reads; when its last operation completes (on whatever thread runs the ring) it inserts what verifies into
 *     the cache and frees itself.
 *  4. Nothing is handed out or inserted that was not verified.
 */
#include "sstable/load.h"

#include <assert.h>
#include <string.h>

#include "base/alloc.h"
#include "sstable/filter.h"
#include "sstable/reads.h"
#include "sstable/table_parts.h"

#define RECORD_PAGES 3 /* of an attribute of 16 MiB, which has 256 chunks */

enum fetch_kind { FETCH_UNIT, FETCH_PACKED, FETCH_ROW, FETCH_ATTRIBUTE };

struct record_page {
  struct io_op op;
  struct cache_memory memory; /* being read */
  struct cache_pin pin;       /* resident and checked */
  uint32_t ordinal;
};

struct fetch {
  const turb_allocator *allocator;
  struct load *load;   /* NULL: orphan */
  struct reads *reads; /* NULL: orphan */
  struct table *table;
  enum fetch_kind kind;
  enum unit_kind unit_kind;
  uint32_t unit;
  unsigned flags;
  uint32_t pending;

  struct io_op op; /* the data */
  struct cache_memory memory;
  struct cache_memory stored; /* of a compressed block */
  void *pages;                /* of a row or attribute alone: private, BUDGET_CURSOR; or in `memory` when that is short */
  uint64_t pages_size;
  uint32_t record_count;
  /* a row or attribute alone */
  const struct span *span;
  uint64_t part, hash;
  uint32_t shift, size;                     /* within the pages */
  struct record_page records[RECORD_PAGES]; /* last: mostly none is used, and what is used lies together */
};

/* A cursor has dozens and a loop a thousand cursors: a load is small, and what most of them never need is made when one does. */
struct load {
  struct reads *reads;
  struct fetch *fetch; /* made by the first read; NULL also when it was orphaned */
  enum load_state state;
  uint32_t size;
  struct cache_pin pin;
  const uint8_t *data;
  /* a row that comes with its frame */
  bool is_part;
  uint32_t part_offset, part_size;
  const turb_allocator *allocator;
  const struct table_env *env; /* READY with private memory */
  turb_status why;             /* FAILED */
  turb_error *error;           /* made by the first failure that finds memory, then of the last failure */
};

/* ---- creation ------------------------------------------------------------------------------------------ */

static void op_complete(struct io_op *op);

static struct fetch *fetch_create(const turb_allocator *allocator) {
  struct fetch *fetch = mem_alloc_zeroed(allocator, sizeof *fetch);
  if (fetch != NULL) {
    fetch->allocator = allocator;
  }
  return fetch;
}

turb_status load_create(struct reads *reads, const turb_allocator *allocator, struct load **out, turb_error *err) {
  *out = NULL;
  struct load *load = mem_alloc_zeroed(allocator, sizeof *load);
  if (load == NULL) {
    return status_set(err, TURB_NO_MEMORY, "no memory for a load");
  }
  load->allocator = allocator;
  load->reads = reads;
  *out = load;
  return TURB_OK;
}

void load_destroy(struct load *load) {
  if (load == NULL) {
    return;
  }
  load_reset(load);
  mem_free(load->allocator, load->fetch, sizeof *load->fetch);
  mem_free(load->allocator, load->error, sizeof *load->error);
  mem_free(load->allocator, load, sizeof *load);
}

/* Keeps the words where there is memory for them, and the status in any case. */
static enum load_state load_fail(struct load *load, const turb_error *error) {
  if (load->error == NULL) {
    load->error = mem_alloc(load->allocator, sizeof *load->error);
  }
  if (load->error != NULL) {
    *load->error = *error;
  }
  load->why = error->status;
  load->state = LOAD_FAILED;
  return LOAD_FAILED;
}

/* ---- memory -------------------------------------------------------------------------------------------- */

static void private_free(const struct table_env *env, void *pages, uint64_t size) {
  if (pages != NULL) {
    mem_free(env->allocator, pages, size);
    budget_give(env->budget, BUDGET_CURSOR, size);
  }
}

void load_pin_release(const struct table *table, struct cache_pin *pin) {
  if (pin->frame != NULL) {
    cache_unpin(pin);
    return;
  }
  if (pin->data != NULL) {
    private_free(table->env, (void *)(uintptr_t)pin->data, pin->size); /* ours: const for readers alone */
  }
  *pin = (struct cache_pin){0};
}

static turb_status memory_take(const struct table *table, uint32_t size, enum unit_kind kind, struct cache_memory *memory,
                               turb_error *err) {
  if (!cache_memory_take(table->env->cache, size, kind, true, memory)) {
    return status_set_file(err, TURB_BUDGET, table->path, STATUS_NO_OFFSET, "the page cache has no memory for a unit of %u bytes", size);
  }
  return TURB_OK;
}

/* Everything that a fetch holds but its operations. */
static void fetch_clear(struct fetch *fetch) {
  assert(fetch->pending == 0);
  if (fetch->table == NULL) {
    return;
  }
  struct cache *cache = fetch->table->env->cache;
  if (fetch->memory.frame == NULL) {
    private_free(fetch->table->env, fetch->pages, fetch->pages_size);
  }
  fetch->pages = NULL;
  cache_memory_give(cache, &fetch->memory);
  cache_memory_give(cache, &fetch->stored);
  for (uint32_t i = 0; i < fetch->record_count; i++) {
    cache_memory_give(cache, &fetch->records[i].memory);
    cache_unpin(&fetch->records[i].pin);
  }
  fetch->record_count = 0;
  struct table *table = fetch->table;
  fetch->table = NULL;
  fetch->load = NULL;
  fetch->reads = NULL;
  table_release(table);
}

/* ---- operations ---------------------------------------------------------------------------------------- */

static void fetch_read(struct fetch *fetch, struct io_op *op, void *data, uint64_t size, uint64_t offset) {
  assert(size <= UINT32_MAX && offset % TABLE_PAGE_BYTES == 0 && size % TABLE_PAGE_BYTES == 0);
  *op = (struct io_op){.kind = IO_READ,
                       .file = fetch->table->file,
                       .data = data,
                       .size = (uint32_t)size,
                       .offset = offset,
                       .complete = op_complete,
                       .owner = fetch};
  fetch->pending++;
  reads_add(fetch->reads, op);
}

/* An operation that went well but met the end of the file: the table is shorter than its tail says. */
static turb_status op_check(const struct fetch *fetch, const struct io_op *op, turb_error *err) {
  const turb_status status = io_op_status(op, err);
  if (status != TURB_OK) {
    return status;
  }
  if (op->done < op->size) {
    return status_set_file(err, TURB_CORRUPTION, fetch->table->path, op->offset + op->done,
                           "truncated: %u bytes were to be read, %u are there", op->size, op->done);
  }
  return TURB_OK;
}

/* The checksum pages for `count` parts from `first` on: pinned when resident, else read. */
static turb_status fetch_records(struct fetch *fetch, const struct span *span, uint64_t first, uint64_t count, turb_error *err) {
  struct table *table = fetch->table;
  uint32_t index;
  const uint32_t begin = table_record_page(span, first, &index);
  const uint32_t end = table_record_page(span, first + count - 1, &index) + 1;
  assert(end - begin <= RECORD_PAGES);
  for (uint32_t ordinal = begin; ordinal < end; ordinal++) {
    struct record_page *page = &fetch->records[fetch->record_count++];
    *page = (struct record_page){.ordinal = ordinal};
    const uint32_t unit = table_unit(table, UNIT_CHECKSUMS, ordinal);
    if (cache_pin(&table->directory, unit, &page->pin)) {
      continue;
    }
    const turb_status status = memory_take(table, TABLE_PAGE_BYTES, UNIT_CHECKSUMS, &page->memory, err);
    if (status != TURB_OK) {
      return status;
    }
    uint64_t offset;
    (void)table_unit_bytes(table, UNIT_CHECKSUMS, ordinal, &offset);
    fetch_read(fetch, &page->op, page->memory.data, TABLE_PAGE_BYTES, offset);
  }
  return TURB_OK;
}

/* Checksum pages that were read: checked, made resident, pinned. */
static turb_status records_finish(struct fetch *fetch, turb_error *err) {
  struct table *table = fetch->table;
  turb_status first = TURB_OK;
  for (uint32_t i = 0; i < fetch->record_count; i++) {
    struct record_page *page = &fetch->records[i];
    if (page->memory.frame == NULL) {
      continue;
    }
    turb_status status = op_check(fetch, &page->op, err);
    if (status == TURB_OK) {
      status = table_unit_check(table, UNIT_CHECKSUMS, page->ordinal, page->memory.data, TABLE_PAGE_BYTES, err);
    }
    if (status == TURB_OK) {
      cache_insert(&table->directory, table_unit(table, UNIT_CHECKSUMS, page->ordinal), &page->memory, &page->pin);
    } else if (first == TURB_OK) {
      first = status;
    }
  }
  return first;
}

/* The record of a part, from the pages that records_finish left pinned. */
static turb_status fetch_record(const struct fetch *fetch, const struct span *span, uint64_t part, struct checksum_record *record,
                                turb_error *err) {
  uint32_t index;
  const uint32_t ordinal = table_record_page(span, part, &index);
  const struct record_page *page = &fetch->records[ordinal - fetch->records[0].ordinal];
  return table_record_of(fetch->table, span, part, page->pin.data, record, err);
}

/* ---- what each kind does when its reads are there ------------------------------------------------------ */

/* Compares parts of a unit or attribute with their records. */
static turb_status parts_check(const struct fetch *fetch, enum extent_kind kind, const struct span *span, uint64_t first, uint64_t count,
                               const uint8_t *data, turb_error *err) {
  uint64_t begin;
  (void)table_part_bytes(fetch->table, kind, span, first, &begin);
  for (uint64_t part = first; part < first + count; part++) {
    struct checksum_record record;
    uint64_t offset;
    (void)table_part_bytes(fetch->table, kind, span, part, &offset);
    turb_status status = fetch_record(fetch, span, part, &record, err);
    if (status == TURB_OK) {
      status = table_part_check(fetch->table, kind, span, part, &record, data + (offset - begin), err);
    }
    if (status != TURB_OK) {
      return status;
    }
  }
  return TURB_OK;
}

/* The parts of a row or attribute unit. */
static void unit_parts(const struct table *table, enum unit_kind kind, const struct span *span, uint32_t unit, uint64_t *first,
                       uint64_t *count) {
  const uint64_t within = unit - span->first_unit;
  const uint64_t per_unit = kind == UNIT_ROWS ? table->header.shape.blocks_per_frame : 1;
  *first = span->first_part + within * per_unit;
  const uint64_t left = span->parts - within * per_unit;
  *count = left < per_unit ? left : per_unit;
}

static bool is_verified_by_records(enum unit_kind kind) {
  return kind == UNIT_ROWS || kind == UNIT_ATTRIBUTES;
}

/* A key page of two units: read as one unit first, as nobody said so. True when the second round is on its way. */
static bool second_unit(struct fetch *fetch, turb_status *status, turb_error *err) {
  const struct slot_page *page = fetch->memory.data;
  const struct table *table = fetch->table;
  if (fetch->unit_kind != UNIT_KEYS || fetch->memory.size != TABLE_PAGE_BYTES || page->units != 2 || fetch->load == NULL) {
    return false;
  }
  const struct span *span = table_span_of_unit(table, EXTENT_KEYS, fetch->unit);
  if (fetch->unit + 1 >= span->first_unit + span->units) {
    return false; /* the check will say that it is cut short */
  }
  const uint64_t offset = fetch->op.offset;
  cache_memory_give(table->env->cache, &fetch->memory);
  *status = memory_take(table, 2 * TABLE_PAGE_BYTES, UNIT_KEYS, &fetch->memory, err);
  if (*status == TURB_OK) {
    fetch_read(fetch, &fetch->op, fetch->memory.data, 2 * TABLE_PAGE_BYTES, offset);
    return true;
  }
  return false;
}

static void unit_show(struct fetch *fetch, struct cache_pin *pin) {
  if (fetch->flags & LOAD_FILL_CACHE) {
    cache_insert(&fetch->table->directory, table_unit(fetch->table, fetch->unit_kind, fetch->unit), &fetch->memory, pin);
  } else {
    cache_keep(&fetch->memory, pin);
  }
}

/* False: another round of reads is on its way. */
static bool unit_finish(struct fetch *fetch, turb_status *status, struct cache_pin *pin, turb_error *err) {
  struct table *table = fetch->table;
  *status = op_check(fetch, &fetch->op, err);
  if (*status == TURB_OK && second_unit(fetch, status, err)) {
    return false;
  }
  if (*status == TURB_OK && is_verified_by_records(fetch->unit_kind)) {
    const struct span *span = table_span_of_unit(table, extent_of_unit(fetch->unit_kind), fetch->unit);
    uint64_t first, count;
    unit_parts(table, fetch->unit_kind, span, fetch->unit, &first, &count);
    *status = parts_check(fetch, extent_of_unit(fetch->unit_kind), span, first, count, fetch->memory.data, err);
  } else if (*status == TURB_OK) {
    *status = table_unit_check(table, fetch->unit_kind, fetch->unit, fetch->memory.data, fetch->memory.size, err);
  }
  if (*status == TURB_OK) {
    unit_show(fetch, pin);
  }
  return true;
}

/* Where a compressed block lies, as pages to read: its record is bounded by its span. */
static void packed_pages(const struct span *span, const struct checksum_record *record, uint64_t *offset, uint32_t *size, uint32_t *shift) {
  const uint64_t begin = span->offset + record->offset;
  const uint64_t end = begin + CODEC_STORED_BYTES(record->stored);
  *offset = begin / TABLE_PAGE_BYTES * TABLE_PAGE_BYTES;
  *size = (uint32_t)((end + TABLE_PAGE_BYTES - 1) / TABLE_PAGE_BYTES * TABLE_PAGE_BYTES - *offset);
  *shift = (uint32_t)(begin - *offset);
}

/* The second round of a compressed block, or its end. */
static bool packed_finish(struct fetch *fetch, turb_status *status, struct cache_pin *pin, turb_error *err) {
  struct table *table = fetch->table;
  const struct span *span = table_span_of_unit(table, EXTENT_ROWS, fetch->unit);
  const uint64_t block = span->first_part + (fetch->unit - span->first_unit);
  struct checksum_record record = {0};
  uint64_t offset;
  uint32_t size, shift;
  *status = fetch_record(fetch, span, block, &record, err);
  if (*status == TURB_OK) {
    *status = table_record_check(table, span, block, &record, err);
  }
  if (*status != TURB_OK) {
    return true;
  }
  packed_pages(span, &record, &offset, &size, &shift);
  if (fetch->stored.frame == NULL) {
    if (fetch->load == NULL) {
      return true; /* nobody waits: not worth the read */
    }
    *status = memory_take(table, size, UNIT_ROWS, &fetch->stored, err);
    if (*status != TURB_OK) {
      return true;
    }
    fetch_read(fetch, &fetch->op, fetch->stored.data, size, offset);
    return false;
  }
  *status = op_check(fetch, &fetch->op, err);
  const uint8_t *stored = (const uint8_t *)fetch->stored.data + shift;
  if (*status == TURB_OK) {
    *status = table_part_check(table, EXTENT_ROWS, span, block, &record, stored, err);
  }
  if (*status == TURB_OK) {
    *status = memory_take(table, table->header.shape.block_bytes, UNIT_ROWS, &fetch->memory, err);
  }
  if (*status == TURB_OK) {
    *status = table_block_unpack(table, span, &record, stored, fetch->memory.data, err);
  }
  if (*status == TURB_OK) {
    unit_show(fetch, pin);
  }
  return true;
}

static turb_status row_finish(struct fetch *fetch, turb_error *err) {
  const turb_status status = op_check(fetch, &fetch->op, err);
  if (status != TURB_OK) {
    return status;
  }
  const uint8_t *row = (const uint8_t *)fetch->pages + fetch->shift;
  if (hash64(row, fetch->size, 0) != fetch->hash) {
    return status_set_file(err, TURB_CORRUPTION, fetch->table->path, fetch->op.offset + fetch->shift,
                           "row of %u bytes does not match its hash", fetch->size);
  }
  return TURB_OK;
}

static turb_status attribute_finish(struct fetch *fetch, turb_error *err) {
  const turb_status status = op_check(fetch, &fetch->op, err);
  if (status != TURB_OK) {
    return status;
  }
  const uint8_t *bytes = (const uint8_t *)fetch->pages + fetch->shift;
  if (fetch->record_count != 0) {
    uint64_t chunks = (fetch->shift + (uint64_t)fetch->size + TABLE_ATTRIBUTE_CHUNK_BYTES - 1) / TABLE_ATTRIBUTE_CHUNK_BYTES;
    return parts_check(fetch, EXTENT_ATTRIBUTES, fetch->span, fetch->part, chunks, fetch->pages, err);
  }
  if ((uint32_t)hash64(bytes, fetch->size, 0) != (uint32_t)fetch->hash) {
    return status_set_file(err, TURB_CORRUPTION, fetch->table->path, fetch->op.offset + fetch->shift,
                           "attributes of %u bytes do not match their hash", fetch->size);
  }
  return TURB_OK;
}

/* ---- completion ---------------------------------------------------------------------------------------- */

static void load_ready(struct load *load, const struct cache_pin *pin, const void *data, uint32_t size) {
  load->pin = *pin;
  load->data = data;
  load->size = size;
  load->state = LOAD_READY;
}

/* A pinned unit: all of it, or the part that was asked for. */
static void load_ready_unit(struct load *load, const struct cache_pin *pin) {
  const uint8_t *data = pin->data;
  load_ready(load, pin, load->is_part ? data + load->part_offset : data, load->is_part ? load->part_size : pin->size);
}

/* All operations of the round are done. */
static void fetch_step(struct fetch *fetch) {
  turb_error error;
  status_clear(&error); /* not its texts */
  struct cache_pin pin = {0};
  turb_status status = records_finish(fetch, &error);
  if (status == TURB_OK) {
    switch (fetch->kind) {
    case FETCH_UNIT:
      if (!unit_finish(fetch, &status, &pin, &error)) {
        return;
      }
      break;
    case FETCH_PACKED:
      if (!packed_finish(fetch, &status, &pin, &error)) {
        return;
      }
      break;
    case FETCH_ROW: status = row_finish(fetch, &error); break;
    case FETCH_ATTRIBUTE: status = attribute_finish(fetch, &error); break;
    }
  }
  struct load *load = fetch->load;
  if (load == NULL) { /* an orphan */
    cache_unpin(&pin);
    fetch_clear(fetch);
    mem_free(fetch->allocator, fetch, sizeof *fetch);
    return;
  }
  if (status != TURB_OK) {
    (void)load_fail(load, &error);
  } else if (pin.frame != NULL) {
    load_ready_unit(load, &pin);
  } else if (fetch->memory.frame != NULL) { /* borrowed */
    cache_keep(&fetch->memory, &pin);
    load_ready(load, &pin, (const uint8_t *)fetch->pages + fetch->shift, fetch->size);
    fetch->pages = NULL;
  } else {
    const struct cache_pin private = {NULL, fetch->pages, (uint32_t)fetch->pages_size};
    load->env = fetch->table->env;
    load_ready(load, &private, (const uint8_t *)fetch->pages + fetch->shift, fetch->size);
    fetch->pages = NULL;
  }
  fetch_clear(fetch);
}

static void op_complete(struct io_op *op) {
  struct fetch *fetch = op->owner;
  fetch->pending--;
  if (fetch->reads != NULL) {
    fetch->reads->bytes += op->done;
    reads_done(fetch->reads);
    if (fetch->pending == 0) {
      reads_wake(fetch->reads);
    }
  }
  if (fetch->pending == 0) {
    fetch_step(fetch);
  }
}

/* ---- starting and resetting ---------------------------------------------------------------------------- */

/* Takes the operations that are not in the ring back; those that are go on without us. True when none is left. */
static void fetch_abandon(struct fetch *fetch) {
  struct io_op *ops[1 + RECORD_PAGES] = {&fetch->op};
  uint32_t count = 1;
  for (uint32_t i = 0; i < fetch->record_count; i++) {
    if (fetch->records[i].memory.frame != NULL) {
      ops[count++] = &fetch->records[i].op;
    }
  }
  uint32_t in_ring = 0;
  for (uint32_t i = 0; i < count; i++) {
    in_ring += reads_in_ring(ops[i]);
  }
  for (uint32_t i = 0; i < in_ring; i++) {
    reads_forget(fetch->reads);
  }
  /* What is pending and not in the ring is in the queue; completed operations are in neither. */
  for (struct io_op *op = fetch->reads->queue_head, *next; op != NULL; op = next) {
    next = op->next;
    if (op->owner == fetch) {
      reads_remove(fetch->reads, op);
      op->status = TURB_CANCELLED;
      fetch->pending--;
    }
  }
  assert(fetch->pending == in_ring);
}

void load_reset(struct load *load) {
  struct fetch *fetch = load->fetch;
  if (load->state == LOAD_WAITING) {
    fetch_abandon(fetch);
    if (fetch->pending == 0) {
      fetch_clear(fetch);
    } else {
      fetch->load = NULL;
      fetch->reads = NULL;
      load->fetch = NULL;
    }
  }
  if (load->pin.frame != NULL) {
    cache_unpin(&load->pin);
  } else if (load->pin.data != NULL) {
    private_free(load->env, (void *)(uintptr_t)load->pin.data, load->pin.size);
    load->pin = (struct cache_pin){0};
  }
  load->data = NULL;
  load->size = 0;
  load->is_part = false;
  load->state = LOAD_IDLE;
}

/* A fetch for the load, holding the table. NULL (and the load FAILED) when there is no memory for one. */
static struct fetch *fetch_begin(struct load *load, struct table *table, enum fetch_kind kind, unsigned flags) {
  if (load->fetch == NULL) {
    load->fetch = fetch_create(load->allocator);
  }
  struct fetch *fetch = load->fetch;
  if (fetch == NULL) {
    turb_error error;
    status_clear(&error);
    (void)status_set(&error, TURB_NO_MEMORY, "no memory for a read");
    (void)load_fail(load, &error);
    return NULL;
  }
  fetch->load = load;
  fetch->reads = load->reads;
  fetch->table = table_retain(table);
  fetch->kind = kind;
  fetch->flags = flags;
  fetch->op.state = IO_OP_IDLE; /* none yet */
  load->state = LOAD_WAITING;
  return fetch;
}

/* A start that failed half way: nothing was submitted yet. */
static enum load_state fetch_refused(struct fetch *fetch, const turb_error *error) {
  struct load *load = fetch->load;
  fetch_abandon(fetch);
  fetch_clear(fetch);
  return load_fail(load, error);
}

/* All checksum pages were resident and nothing else is to be read first. */
static enum load_state fetch_started(struct fetch *fetch) {
  struct load *load = fetch->load;
  if (fetch->pending == 0) {
    fetch_step(fetch);
  }
  return load->state;
}

static enum load_state unit_start(struct load *load, struct table *table, enum unit_kind kind, uint32_t ordinal, unsigned flags) {
  const bool packed = kind == UNIT_ROWS && table->header.shape.compression != 0;
  struct fetch *fetch = fetch_begin(load, table, packed ? FETCH_PACKED : FETCH_UNIT, flags);
  if (fetch == NULL) {
    return LOAD_FAILED;
  }
  fetch->unit_kind = kind;
  fetch->unit = ordinal;
  turb_error error;
  status_clear(&error); /* not its texts */
  turb_status status = TURB_OK;
  if (is_verified_by_records(kind)) {
    const struct span *span = table_span_of_unit(table, extent_of_unit(kind), ordinal);
    uint64_t first, count;
    unit_parts(table, kind, span, ordinal, &first, &count);
    status = fetch_records(fetch, span, first, count, &error);
  }
  if (status == TURB_OK && !packed) {
    uint64_t offset;
    uint32_t size = table_unit_bytes(table, kind, ordinal, &offset);
    size = (size + TABLE_PAGE_BYTES - 1) / TABLE_PAGE_BYTES * TABLE_PAGE_BYTES;
    if (kind == UNIT_KEYS && (flags & LOAD_TWO_UNITS)) {
      size *= 2;
    }
    status = memory_take(table, size, kind, &fetch->memory, &error);
    if (status == TURB_OK) {
      fetch_read(fetch, &fetch->op, fetch->memory.data, size, offset);
    }
  }
  return status == TURB_OK ? fetch_started(fetch) : fetch_refused(fetch, &error);
}

static enum load_state out_of_bounds(struct load *load, const struct table *table, const char *what, uint64_t value) {
  turb_error error;
  status_clear(&error);
  (void)status_set_file(&error, TURB_CORRUPTION, table->path, STATUS_NO_OFFSET, "%s %llu lies outside the table", what,
                        (unsigned long long)value);
  return load_fail(load, &error);
}

enum load_state load_unit(struct load *load, struct table *table, enum unit_kind kind, uint32_t ordinal, unsigned flags) {
  load_reset(load);
  if (ordinal >= table_unit_count(table, kind)) {
    return out_of_bounds(load, table, "unit", ordinal);
  }
  struct cache_pin pin;
  if (!(flags & LOAD_ABSENT) && cache_pin(&table->directory, table_unit(table, kind, ordinal), &pin)) {
    load_ready(load, &pin, pin.data, pin.size);
    return LOAD_READY;
  }
  return unit_start(load, table, kind, ordinal, flags);
}

/* The cache has taken what the budget has, and many readers may pin a page of every slab, so that it cannot shrink: a frame of its own then,
 * which one page that nobody pins makes. */
static turb_status borrowed_start(struct fetch *fetch, uint64_t begin, turb_error *err) {
  if (fetch->pages_size > CACHE_UNIT_MAX_BYTES ||
      !cache_memory_take(fetch->table->env->cache, (uint32_t)fetch->pages_size, UNIT_KEYS, true, &fetch->memory)) {
    return status_set_file(err, TURB_BUDGET, fetch->table->path, begin, "the memory budget does not hold %llu bytes to be read",
                           (unsigned long long)fetch->pages_size);
  }
  fetch->pages = fetch->memory.data;
  fetch_read(fetch, &fetch->op, fetch->pages, fetch->pages_size, begin);
  return TURB_OK;
}

/* Private pages for [offset, offset + size) of the file, and their read. */
static turb_status pages_start(struct fetch *fetch, uint64_t offset, uint32_t size, turb_error *err) {
  const struct table_env *env = fetch->table->env;
  const uint64_t begin = offset / TABLE_PAGE_BYTES * TABLE_PAGE_BYTES;
  const uint64_t end = (offset + size + TABLE_PAGE_BYTES - 1) / TABLE_PAGE_BYTES * TABLE_PAGE_BYTES;
  fetch->shift = (uint32_t)(offset - begin);
  fetch->size = size;
  fetch->pages_size = end - begin;
  if (!budget_take(env->budget, BUDGET_CURSOR, fetch->pages_size)) {
    return borrowed_start(fetch, begin, err);
  }
  fetch->pages = mem_alloc_aligned(env->allocator, fetch->pages_size, TABLE_PAGE_BYTES);
  if (fetch->pages == NULL) {
    budget_give(env->budget, BUDGET_CURSOR, fetch->pages_size);
    return status_set(err, TURB_NO_MEMORY, "no memory for %llu bytes to be read", (unsigned long long)fetch->pages_size);
  }
  fetch_read(fetch, &fetch->op, fetch->pages, fetch->pages_size, begin);
  return TURB_OK;
}

enum load_state load_row(struct load *load, struct table *table, uint64_t row, uint64_t row_hash, unsigned flags) {
  load_reset(load);
  if (row >= table->spans[EXTENT_ROWS].end) {
    return out_of_bounds(load, table, "row", row);
  }
  const struct table_shape *shape = &table->header.shape;
  uint32_t frame;
  load->is_part = true;
  load->part_size = shape->row_bytes;
  table_locate_row(table, row, &frame, &load->part_offset);
  struct cache_pin pin;
  if (cache_pin(&table->directory, table_unit(table, UNIT_ROWS, frame), &pin)) {
    load_ready_unit(load, &pin);
    return LOAD_READY;
  }
  if (!(flags & LOAD_POINT) || shape->compression != 0 ||
      ((flags & LOAD_FILL_CACHE) &&
       cache_admits(&table->directory, table_unit(table, UNIT_ROWS, frame), shape->blocks_per_frame * shape->block_bytes))) {
    return unit_start(load, table, UNIT_ROWS, frame, flags);
  }
  struct fetch *fetch = fetch_begin(load, table, FETCH_ROW, flags);
  if (fetch == NULL) {
    return LOAD_FAILED;
  }
  turb_error error;
  status_clear(&error); /* not its texts */
  uint64_t frame_offset;
  (void)table_unit_bytes(table, UNIT_ROWS, frame, &frame_offset);
  fetch->hash = row_hash;
  const turb_status status = pages_start(fetch, frame_offset + load->part_offset, shape->row_bytes, &error);
  return status == TURB_OK ? LOAD_WAITING : fetch_refused(fetch, &error);
}

enum load_state load_attribute(struct load *load, struct table *table, uint64_t offset, uint32_t size, uint32_t attribute_hash,
                               unsigned flags) {
  load_reset(load);
  const struct spans *spans = &table->spans[EXTENT_ATTRIBUTES];
  if (size == 0 || offset >= spans->end || size > spans->end - offset) {
    return out_of_bounds(load, table, "attribute at", offset);
  }
  const struct span *span = table_span_of(table, EXTENT_ATTRIBUTES, offset);
  const uint64_t within = offset - span->first;
  if (size > span->count - within) {
    return out_of_bounds(load, table, "attribute across extents at", offset);
  }
  const uint32_t chunk = span->first_unit + (uint32_t)(within / TABLE_ATTRIBUTE_CHUNK_BYTES);
  const uint32_t in_chunk = (uint32_t)(within % TABLE_ATTRIBUTE_CHUNK_BYTES);
  if (in_chunk + (uint64_t)size <= TABLE_ATTRIBUTE_CHUNK_BYTES) {
    const uint32_t unit = table_unit(table, UNIT_ATTRIBUTES, chunk);
    struct cache_pin pin;
    load->is_part = true;
    load->part_offset = in_chunk;
    load->part_size = size;
    if (cache_pin(&table->directory, unit, &pin)) {
      load_ready_unit(load, &pin);
      return LOAD_READY;
    }
    if (!(flags & LOAD_POINT) || ((flags & LOAD_FILL_CACHE) && cache_admits(&table->directory, unit, TABLE_ATTRIBUTE_CHUNK_BYTES))) {
      return unit_start(load, table, UNIT_ATTRIBUTES, chunk, flags);
    }
  }
  struct fetch *fetch = fetch_begin(load, table, FETCH_ATTRIBUTE, flags);
  if (fetch == NULL) {
    return LOAD_FAILED;
  }
  turb_error error;
  status_clear(&error); /* not its texts */
  turb_status status = TURB_OK;
  fetch->hash = attribute_hash;
  fetch->span = span;
  if (size <= TABLE_INLINE_ATTRIBUTE_BYTES) {
    status = pages_start(fetch, span->offset + within, size, &error);
  } else if (in_chunk != 0) {
    status = status_set_file(&error, TURB_CORRUPTION, table->path, span->offset + within, "an attribute above 1 MiB within an extent");
  } else {
    /* Whole chunks, so that each can be compared with its checksum: the extent is the attribute's own. */
    fetch->part = span->first_part + within / TABLE_ATTRIBUTE_CHUNK_BYTES;
    const uint64_t chunks = (size + TABLE_ATTRIBUTE_CHUNK_BYTES - 1ull) / TABLE_ATTRIBUTE_CHUNK_BYTES;
    const uint64_t whole =
        chunks * TABLE_ATTRIBUTE_CHUNK_BYTES < span->count - within ? chunks * TABLE_ATTRIBUTE_CHUNK_BYTES : span->count - within;
    status = fetch_records(fetch, span, fetch->part, chunks, &error);
    if (status == TURB_OK) {
      status = pages_start(fetch, span->offset + within, (uint32_t)whole, &error);
      fetch->size = size;
    }
  }
  return status == TURB_OK ? LOAD_WAITING : fetch_refused(fetch, &error);
}

/* ---- results ------------------------------------------------------------------------------------------- */

enum load_state load_state(const struct load *load) {
  return load->state;
}

const void *load_data(const struct load *load, uint32_t *size) {
  assert(load->state == LOAD_READY);
  if (size != NULL) {
    *size = load->size;
  }
  return load->data;
}

void load_take_pin(struct load *load, struct cache_pin *pin, const void **data) {
  assert(load->state == LOAD_READY);
  *pin = load->pin;
  if (data != NULL) {
    *data = load->data;
  }
  load->pin = (struct cache_pin){0};
  load->data = NULL;
  load->size = 0;
  load->is_part = false;
  load->state = LOAD_IDLE;
}

bool load_is_short(const struct load *load) {
  return load->state == LOAD_FAILED && load->why == TURB_BUDGET;
}

turb_status load_error(const struct load *load, turb_error *err) {
  if (load->state != LOAD_FAILED) {
    return TURB_OK;
  }
  if (load->error != NULL) {
    return status_copy(err, load->error);
  }
  return status_set(err, load->why, "a read failed, and there was no memory to tell more");
}
