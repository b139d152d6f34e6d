/* Lanes (stream.h): sequential reads past the cache.
 *
 * A slot is one piece's worth of memory with its read:
 *
 *   FREE --plan: read queued--> READING --completed--> READ --checked, unpacked--> HANDED --lane_release--> FREE
 *
 * The slots between FREE and HANDED are in `queue`, in the order of ordinals. What is planned next starts at `next`.
 *
 * Checksum records are needed in order: for uncompressed extents when a piece is handed out (`verify`), for compressed ones when it is
 * planned, since they say where the blocks lie. Slots of one page each hold the page in use and those read ahead: as many as describe all
 * pieces on their way and one more, so that a page is there before the pieces that it describes.
 *
 * A key page of two units may be cut by the border of two pieces. Its first unit is then taken off the first piece and put in front of the next one:
 * each slot has a page of room for it.
 *
 * The memory of all pieces is one region, in huge pages where it is large enough: what a read brought is in no cache of the processor, and with
 * small pages translating its addresses takes longer than everything else that is done with it.
 *
 * Invariants
 *  1. The budget is charged for all slots at opening; streaming takes no memory. A slot that goes gives its part of a large region back
 *     to the system, and its charge; a small region goes, with its charge, with the last of its slots.
 *  2. A slot in the ring when the lane closes becomes an orphan: it holds the table, and frees itself when the read completes.
 *  3. After an error the lane is FAILED for good: whoever wants to go on opens another.
 */
#include "sstable/stream.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>

#include "base/alloc.h"
#include "sstable/reads.h"
#include "sstable/table_parts.h"

#define DEPTH_MIN     3u
#define DEPTH_DEFAULT 4u
#define DEPTH_MAX     64u
#define RECORDS_MIN   3u
#define RECORDS_MAX   16u
#define PIECE_MAX     (64u << 20)
#define HUGE_BYTES    (2u << 20) /* of a huge page; with other sizes of them it does no harm */

enum slot_state { SLOT_FREE, SLOT_READING, SLOT_READ, SLOT_HANDED };

/* Of the lane's ring alone, so counted without atomics: the lane and its orphans are its owner's, one after the other. */
struct lane_region {
  uint32_t references; /* the lane's and one a slot */
  enum budget_use use;
  struct budget *budget;
  uint8_t *memory;
  uint64_t size, charged; /* charged: for what slots have not given back yet */
};

struct lane_slot {
  struct io_op op;
  struct lane *lane;   /* NULL: orphan */
  struct table *table; /* held by orphans */
  enum budget_use use;
  struct budget *budget;
  enum slot_state state;
  struct lane_region *region; /* that memory lies in; NULL: it is the slot's own */
  uint8_t *memory;            /* a page of room, then what is read */
  uint64_t memory_size;
  uint8_t *unpacked; /* compressed rows */
  uint64_t unpacked_size;
  struct checksum_record *records; /* compressed rows: one a block of the piece */
  uint64_t records_size;
  const struct span *span;
  struct piece piece;
  uint64_t first_part, parts, checked; /* of rows and attributes; checked of them compared or unpacked */
};

struct lane {
  struct table *table;
  struct reads *reads;
  struct lane_options options;
  uint64_t piece_bytes;
  struct lane_region *region;
  uint64_t next;
  const struct span *span; /* that holds next; NULL: at the end */
  struct lane_slot *slots[DEPTH_MAX];
  struct lane_slot *queue[DEPTH_MAX];
  uint32_t queue_head, queue_count;
  uint32_t records;                            /* slots for checksum pages */
  struct lane_slot *record_slots[RECORDS_MAX]; /* FREE, READING, READ, or HANDED: checked */
  uint32_t record_pages[RECORDS_MAX];          /* ordinals */
  struct block_decompressor *decompressor;
  bool carries; /* `carry` is the first unit of a key page whose second begins the next piece */
  turb_error error;
  uint8_t carry[TABLE_PAGE_BYTES];
};

static bool is_compressed(const struct lane *lane) {
  return lane->options.kind == EXTENT_ROWS && lane->table->header.shape.compression != 0;
}

static bool has_records(const struct lane *lane) {
  return is_compressed(lane) || lane->options.verify;
}

/* The least that a piece can hold. */
static uint64_t unit_bytes(const struct table_shape *shape, enum extent_kind kind) {
  switch (kind) {
  case EXTENT_ROWS: return shape->block_bytes;
  case EXTENT_ATTRIBUTES: return TABLE_ATTRIBUTE_CHUNK_BYTES;
  default: return TABLE_PAGE_BYTES;
  }
}

/* ---- slots --------------------------------------------------------------------------------------------- */

static void region_drop(struct lane_region *region, const struct table_env *env) {
  if (region == NULL || --region->references != 0) {
    return;
  }
  mem_free(env->allocator, region->memory, region->size);
  budget_give(region->budget, region->use, region->charged);
  mem_free(env->allocator, region, sizeof *region);
}

/* A slot of a large region goes before others: a lane that was closed while one piece is held keeps no more than that. Of a small one this would
 * cost more, in pages that come anew, than it frees. */
static void region_give(struct lane_region *region, uint8_t *memory, uint64_t size) {
  if (region->size >= HUGE_BYTES && region->references > 1 && madvise(memory, size, MADV_DONTNEED) == 0) {
    region->charged -= size;
    budget_give(region->budget, region->use, size);
  }
}

/* For all pieces of the lane; the budget was charged for it, which stays the caller's when there is no memory. */
static turb_status region_create(struct lane *lane, uint64_t size) {
  const turb_allocator *allocator = lane->table->env->allocator;
  struct lane_region *region = mem_alloc(allocator, sizeof *region);
  uint8_t *memory = mem_alloc_aligned(allocator, size, size >= HUGE_BYTES ? HUGE_BYTES : TABLE_PAGE_BYTES);
  if (region == NULL || memory == NULL) {
    mem_free(allocator, memory, size);
    mem_free(allocator, region, sizeof *region);
    return TURB_NO_MEMORY;
  }
  if (size >= HUGE_BYTES) {
    (void)madvise(memory, size / HUGE_BYTES * HUGE_BYTES, MADV_HUGEPAGE); /* a hint */
  }
  *region = (struct lane_region){
      .references = 1, .use = lane->options.use, .budget = lane->options.budget, .memory = memory, .size = size, .charged = size};
  lane->region = region;
  return TURB_OK;
}

static void slot_free(struct lane_slot *slot, const struct table_env *env) {
  if (slot == NULL) {
    return;
  }
  uint64_t own = slot->unpacked_size + slot->records_size;
  if (slot->region == NULL) {
    mem_free(env->allocator, slot->memory, slot->memory_size);
    own += slot->memory_size;
  } else {
    region_give(slot->region, slot->memory, slot->memory_size);
    region_drop(slot->region, env);
  }
  mem_free(env->allocator, slot->unpacked, slot->unpacked_size);
  mem_free(env->allocator, slot->records, slot->records_size);
  budget_give(slot->budget, slot->use, own);
  mem_free(env->allocator, slot, sizeof *slot);
}

/* What a slot charges for pieces of this size. */
static uint64_t slot_bytes(const struct table_shape *shape, enum extent_kind kind, uint64_t piece_bytes, struct lane_slot *sizes) {
  const uint64_t blocks = piece_bytes / unit_bytes(shape, kind);
  sizes->memory_size = piece_bytes + TABLE_PAGE_BYTES; /* room in front, or for the odd ends of packed blocks */
  if (kind == EXTENT_ROWS && shape->compression != 0) {
    sizes->memory_size += TABLE_PAGE_BYTES;
    sizes->unpacked_size = piece_bytes;
    sizes->records_size = blocks * sizeof(struct checksum_record);
  }
  return sizes->memory_size + sizes->unpacked_size + sizes->records_size;
}

static void slot_complete(struct io_op *op) {
  struct lane_slot *slot = op->owner;
  if (slot->lane == NULL) {
    struct table *table = slot->table;
    slot_free(slot, table->env);
    table_release(table);
    return;
  }
  slot->state = SLOT_READ;
  slot->lane->reads->bytes += op->done;
  reads_done(slot->lane->reads);
  reads_wake(slot->lane->reads);
}

/* The memory that is a slot's own; the budget was charged for it. */
static turb_status slot_create(struct lane *lane, const struct lane_slot *sizes, struct lane_slot **out) {
  const struct table_env *env = lane->table->env;
  struct lane_slot *slot = mem_alloc_zeroed(env->allocator, sizeof *slot);
  *out = slot;
  if (slot == NULL) {
    return TURB_NO_MEMORY;
  }
  slot->lane = lane;
  slot->use = lane->options.use;
  slot->budget = lane->options.budget;
  if (sizes->memory_size != 0) {
    slot->memory = mem_alloc_aligned(env->allocator, sizes->memory_size, TABLE_PAGE_BYTES);
    slot->memory_size = slot->memory != NULL ? sizes->memory_size : 0;
  }
  if (sizes->unpacked_size != 0) {
    slot->unpacked = mem_alloc_aligned(env->allocator, sizes->unpacked_size, TABLE_PAGE_BYTES);
    slot->unpacked_size = slot->unpacked != NULL ? sizes->unpacked_size : 0;
    slot->records = mem_alloc(env->allocator, sizes->records_size);
    slot->records_size = slot->records != NULL ? sizes->records_size : 0;
  }
  const uint64_t got = slot->memory_size + slot->unpacked_size + slot->records_size;
  const uint64_t wanted = sizes->memory_size + sizes->unpacked_size + sizes->records_size;
  if (got != wanted) {
    budget_give(slot->budget, slot->use, wanted - got); /* slot_free gives the rest */
    return TURB_NO_MEMORY;
  }
  return TURB_OK;
}

/* ---- opening and closing ------------------------------------------------------------------------------- */

uint64_t lane_least_bytes(const struct table_shape *shape, enum extent_kind kind) {
  struct lane_slot sizes = {0};
  const uint64_t pieces = DEPTH_MIN * slot_bytes(shape, kind, unit_bytes(shape, kind), &sizes);
  const bool compressed = kind == EXTENT_ROWS && shape->compression != 0;
  return pieces + (compressed ? RECORDS_MIN * TABLE_PAGE_BYTES + block_decompressor_bytes(shape->block_bytes) : 0);
}

/* Charges depth slots: first fewer of them, then smaller ones, down to 3 of one unit. */
static turb_status charge_slots(struct lane *lane, turb_error *err) {
  struct budget *budget = lane->options.budget;
  const uint64_t unit = unit_bytes(&lane->table->header.shape, lane->options.kind);
  for (;;) {
    struct lane_slot sizes = {0};
    const uint64_t bytes = slot_bytes(&lane->table->header.shape, lane->options.kind, lane->piece_bytes, &sizes);
    if (budget_take(budget, lane->options.use, bytes * lane->options.depth)) {
      return TURB_OK;
    }
    if (lane->options.depth > DEPTH_MIN) {
      lane->options.depth--;
    } else if (lane->piece_bytes > unit) {
      lane->piece_bytes = lane->piece_bytes / 2 / unit != 0 ? lane->piece_bytes / 2 / unit * unit : unit;
    } else {
      return status_set_file(err, TURB_BUDGET, lane->table->path, STATUS_NO_OFFSET,
                             "the memory budget does not hold %u pieces of %" PRIu64 " bytes to stream a table", lane->options.depth,
                             bytes);
    }
  }
}

static turb_status make_slots(struct lane *lane, turb_error *err) {
  turb_status status = charge_slots(lane, err);
  if (status != TURB_OK) {
    return status;
  }
  struct lane_slot sizes = {0};
  const uint32_t depth = lane->options.depth;
  const uint64_t bytes = slot_bytes(&lane->table->header.shape, lane->options.kind, lane->piece_bytes, &sizes);
  const uint64_t memory_size = sizes.memory_size, own = bytes - memory_size;
  status = region_create(lane, memory_size * depth);
  if (status != TURB_OK) {
    budget_give(lane->options.budget, lane->options.use, bytes * depth);
    return status_set(err, status, "no memory to stream a table");
  }
  sizes.memory_size = 0;
  for (uint32_t i = 0; i < depth; i++) {
    status = slot_create(lane, &sizes, &lane->slots[i]);
    if (status != TURB_OK) {
      /* This slot gives back what it got; those after it and a slot that is not there were charged as well. */
      const uint64_t left = depth - i - (lane->slots[i] != NULL);
      budget_give(lane->options.budget, lane->options.use, left * own);
      return status_set(err, status, "no memory to stream a table");
    }
    lane->slots[i]->region = lane->region;
    lane->slots[i]->memory = lane->region->memory + i * memory_size;
    lane->slots[i]->memory_size = memory_size;
    lane->region->references++;
  }
  return TURB_OK;
}

/* Slots for checksum pages, up to `count` of them. */
static turb_status make_record_slots(struct lane *lane, uint32_t count, turb_error *err) {
  const struct lane_slot sizes = {.memory_size = TABLE_PAGE_BYTES};
  for (; lane->records < count; lane->records++) {
    if (!budget_take(lane->options.budget, lane->options.use, TABLE_PAGE_BYTES)) {
      return status_set_file(err, TURB_BUDGET, lane->table->path, STATUS_NO_OFFSET,
                             "the memory budget does not hold a page of checksums to stream a table");
    }
    struct lane_slot **slot = &lane->record_slots[lane->records];
    const turb_status status = slot_create(lane, &sizes, slot);
    if (status != TURB_OK) {
      if (*slot == NULL) {
        budget_give(lane->options.budget, lane->options.use, TABLE_PAGE_BYTES);
      }
      slot_free(*slot, lane->table->env);
      *slot = NULL;
      return status_set(err, status, "no memory to stream a table");
    }
  }
  return TURB_OK;
}

static turb_status make_helpers(struct lane *lane, turb_error *err) {
  const struct table_env *env = lane->table->env;
  turb_status status = TURB_OK;
  if (has_records(lane)) {
    status = make_record_slots(lane, RECORDS_MIN, err);
  }
  if (status == TURB_OK && is_compressed(lane)) {
    const struct block_memory memory = {env->allocator, lane->options.budget, lane->options.use};
    status =
        block_decompressor_create(&memory, lane->table->header.shape.type, lane->table->header.shape.block_bytes, &lane->decompressor, err);
  }
  return status;
}

/* More slots for checksum pages, where there is room: a lane of large or many pieces waits for pages without them. */
static void make_more_record_slots(struct lane *lane) {
  const uint64_t parts = lane->piece_bytes / unit_bytes(&lane->table->header.shape, lane->options.kind) * lane->options.depth;
  const uint64_t wish = parts / TABLE_CHECKSUMS_PER_PAGE + RECORDS_MIN;
  turb_error none = TURB_ERROR_INIT;
  (void)make_record_slots(lane, wish < RECORDS_MAX ? (uint32_t)wish : RECORDS_MAX, &none);
}

/* To the unit's beginning that holds the ordinal. */
static void lane_place(struct lane *lane, uint64_t ordinal) {
  const struct table *table = lane->table;
  lane->next = ordinal;
  lane->span = NULL;
  if (ordinal >= lane->options.last_ordinal) {
    return;
  }
  lane->span = table_span_of(table, lane->options.kind, ordinal);
  const uint64_t within = ordinal - lane->span->first;
  if (lane->options.kind == EXTENT_ROWS) {
    lane->next -= within % table->header.shape.rows_per_block;
  } else if (lane->options.kind == EXTENT_ATTRIBUTES) {
    lane->next -= within % TABLE_ATTRIBUTE_CHUNK_BYTES;
  }
}

/* No piece is longer than the extent that it lies in. */
static uint64_t longest_span(const struct table *table, enum extent_kind kind) {
  uint64_t pages = 1;
  for (uint32_t i = 0; i < table->spans[kind].count; i++) {
    pages = pages < table->spans[kind].at[i].pages ? table->spans[kind].at[i].pages : pages;
  }
  return pages * TABLE_PAGE_BYTES;
}

turb_status lane_open(struct table *table, struct reads *reads, const struct lane_options *options, struct lane **out, turb_error *err) {
  *out = NULL;
  assert(options->kind == EXTENT_ROWS || options->kind == EXTENT_KEYS || options->kind == EXTENT_ATTRIBUTES ||
         options->kind == EXTENT_CHECKSUMS);
  struct lane *lane = mem_alloc_zeroed(table->env->allocator, sizeof *lane);
  if (lane == NULL) {
    return status_set(err, TURB_NO_MEMORY, "no memory to stream a table");
  }
  lane->table = table_retain(table);
  lane->reads = reads;
  lane->options = *options;
  struct lane_options *own = &lane->options;
  const uint64_t end = table->spans[own->kind].end;
  own->last_ordinal = own->last_ordinal < end ? own->last_ordinal : end;
  own->budget = own->budget != NULL ? own->budget : table->env->budget;
  own->depth = own->depth == 0 ? DEPTH_DEFAULT : own->depth;
  own->depth = own->depth < DEPTH_MIN ? DEPTH_MIN : own->depth > DEPTH_MAX ? DEPTH_MAX : own->depth;
  own->verify = own->verify && (own->kind == EXTENT_ROWS || own->kind == EXTENT_ATTRIBUTES);
  const uint64_t unit = unit_bytes(&table->header.shape, own->kind);
  uint64_t wish = own->piece_bytes != 0 ? own->piece_bytes : own->kind == EXTENT_ROWS ? 1u << 20 : 256u << 10;
  wish = wish < PIECE_MAX ? wish : PIECE_MAX;
  wish = wish < longest_span(table, own->kind) ? wish : longest_span(table, own->kind);
  lane->piece_bytes = wish / unit != 0 ? wish / unit * unit : unit;
  lane_place(lane, own->first_ordinal);
  turb_status status = make_helpers(lane, err); /* first: slots take what is left */
  if (status == TURB_OK) {
    status = make_slots(lane, err);
  }
  if (status == TURB_OK && has_records(lane)) {
    make_more_record_slots(lane);
  }
  if (status != TURB_OK) {
    lane_close(lane);
    return status;
  }
  *out = lane;
  return TURB_OK;
}

/* Frees a slot, or leaves it to the ring. */
static void slot_close(struct lane *lane, struct lane_slot *slot) {
  if (slot != NULL && slot->state == SLOT_READING && reads_in_ring(&slot->op)) {
    reads_forget(lane->reads);
    slot->table = table_retain(lane->table);
    slot->lane = NULL;
    return;
  }
  if (slot != NULL && slot->state == SLOT_READING) {
    reads_remove(lane->reads, &slot->op);
  }
  slot_free(slot, lane->table->env);
}

void lane_close(struct lane *lane) {
  if (lane == NULL) {
    return;
  }
  struct table *table = lane->table;
  for (uint32_t i = 0; i < DEPTH_MAX; i++) {
    slot_close(lane, lane->slots[i]);
  }
  for (uint32_t i = 0; i < lane->records; i++) {
    slot_close(lane, lane->record_slots[i]);
  }
  region_drop(lane->region, table->env);
  block_decompressor_destroy(lane->decompressor);
  mem_free(table->env->allocator, lane, sizeof *lane);
  table_release(table);
}

uint32_t lane_depth(const struct lane *lane) {
  return lane->options.depth;
}

turb_status lane_error(const struct lane *lane, turb_error *err) {
  return status_copy(err, &lane->error);
}

/* ---- checksum records ---------------------------------------------------------------------------------- */

static void slot_read(struct lane *lane, struct lane_slot *slot, void *data, uint64_t offset, uint64_t size) {
  slot->op = (struct io_op){.kind = IO_READ,
                            .file = lane->table->file,
                            .data = data,
                            .size = (uint32_t)size,
                            .offset = offset,
                            .complete = slot_complete,
                            .owner = slot};
  slot->state = SLOT_READING;
  reads_add(lane->reads, &slot->op);
}

/* What the read of a slot brought: all of it, or lane->error says why not. */
static bool slot_arrived(struct lane *lane, const struct lane_slot *slot) {
  if (io_op_status(&slot->op, &lane->error) != TURB_OK) {
    return false;
  }
  if (slot->op.done < slot->op.size) {
    status_set_file(&lane->error, TURB_CORRUPTION, lane->table->path, slot->op.offset + slot->op.done,
                    "truncated: %u bytes were to be read, %u are there", slot->op.size, slot->op.done);
    return false;
  }
  return true;
}

/* Starts reads of the checksum page and of those behind it, but for one slot: it may hold the page before, whose read nobody waits for. */
static void bring_records(struct lane *lane, uint32_t page) {
  const uint32_t count = table_unit_count(lane->table, UNIT_CHECKSUMS);
  for (uint32_t ahead = page; ahead < page + lane->records - 1 && ahead < count; ahead++) {
    const uint32_t at = ahead % lane->records;
    struct lane_slot *slot = lane->record_slots[at];
    if (slot->state != SLOT_READING && (slot->state == SLOT_FREE || lane->record_pages[at] != ahead)) {
      uint64_t offset;
      (void)table_unit_bytes(lane->table, UNIT_CHECKSUMS, ahead, &offset);
      lane->record_pages[at] = ahead;
      slot_read(lane, slot, slot->memory, offset, TABLE_PAGE_BYTES);
    }
  }
}

/* The record of a part: READY, WAITING for its page, or FAILED (lane->error). The pages behind it are brought along. */
static enum load_state lane_record(struct lane *lane, const struct span *span, uint64_t part, struct checksum_record *record) {
  uint32_t index;
  const uint32_t page = table_record_page(span, part, &index);
  bring_records(lane, page);
  struct lane_slot *slot = lane->record_slots[page % lane->records];
  if (slot->state == SLOT_READING) { /* this page, or one that was read ahead in vain */
    return LOAD_WAITING;
  }
  if (slot->state == SLOT_READ) {
    const struct codec_place place = table_place(lane->table, slot->op.offset);
    if (!slot_arrived(lane, slot) || codec_checksum_page_check(slot->memory, TABLE_PAGE_BYTES, &place, &lane->error) != TURB_OK) {
      return LOAD_FAILED;
    }
    slot->state = SLOT_HANDED;
  }
  const struct checksum_page *data = (const struct checksum_page *)(const void *)slot->memory;
  return table_record_of(lane->table, span, part, data, record, &lane->error) == TURB_OK ? LOAD_READY : LOAD_FAILED;
}

/* ---- planning ------------------------------------------------------------------------------------------ */

/* Queues the read of a planned piece. */
static void piece_read(struct lane *lane, struct lane_slot *slot, uint64_t offset, uint64_t size) {
  slot->checked = 0;
  lane->queue[(lane->queue_head + lane->queue_count++) % DEPTH_MAX] = slot;
  slot_read(lane, slot, slot->memory + TABLE_PAGE_BYTES, offset, size);
}

/* Where a piece that starts at lane->next ends, in parts of rows or attributes. */
static void plan_parts(const struct lane *lane, struct lane_slot *slot) {
  const struct span *span = lane->span;
  const uint64_t per_part = lane->options.kind == EXTENT_ROWS ? lane->table->header.shape.rows_per_block : TABLE_ATTRIBUTE_CHUNK_BYTES;
  const uint64_t end = lane->options.last_ordinal < span->first + span->count ? lane->options.last_ordinal : span->first + span->count;
  const uint64_t parts_left = (end - lane->next + per_part - 1) / per_part;
  const uint64_t parts_most = lane->piece_bytes / unit_bytes(&lane->table->header.shape, lane->options.kind);
  slot->span = span;
  slot->first_part = span->first_part + (lane->next - span->first) / per_part;
  slot->parts = parts_left < parts_most ? parts_left : parts_most;
  const uint64_t count = slot->parts * per_part < end - lane->next ? slot->parts * per_part : end - lane->next;
  slot->piece = (struct piece){.first_ordinal = lane->next, .count = (uint32_t)count};
}

/* Past the piece of this slot. */
static void plan_next(struct lane *lane, const struct lane_slot *slot) {
  lane->next = slot->piece.first_ordinal + slot->piece.count;
  if (lane->next >= lane->options.last_ordinal) {
    lane->span = NULL;
  } else if (lane->next >= lane->span->first + lane->span->count) {
    lane->span++; /* ordinals of a kind have no gaps */
  }
}

static void plan_plain(struct lane *lane, struct lane_slot *slot) {
  const struct span *span = lane->span;
  uint64_t begin, size;
  if (lane->options.kind == EXTENT_ROWS || lane->options.kind == EXTENT_ATTRIBUTES) {
    plan_parts(lane, slot);
    (void)table_part_bytes(lane->table, lane->options.kind, span, slot->first_part, &begin);
    uint64_t last_begin;
    const uint64_t last_size = table_part_bytes(lane->table, lane->options.kind, span, slot->first_part + slot->parts - 1, &last_begin);
    size = last_begin + last_size - begin;
    size = (size + TABLE_PAGE_BYTES - 1) / TABLE_PAGE_BYTES * TABLE_PAGE_BYTES; /* a chunk ends with its extent's bytes */
  } else {
    const uint64_t end = lane->options.last_ordinal < span->first + span->count ? lane->options.last_ordinal : span->first + span->count;
    const uint64_t most = lane->piece_bytes / TABLE_PAGE_BYTES;
    const uint64_t count = end - lane->next < most ? end - lane->next : most;
    begin = (lane->next - span->first) * TABLE_PAGE_BYTES;
    size = count * TABLE_PAGE_BYTES;
    slot->span = span;
    slot->piece = (struct piece){.first_ordinal = lane->next, .count = (uint32_t)count};
  }
  slot->piece.data = slot->memory + TABLE_PAGE_BYTES;
  slot->piece.size = (uint32_t)size;
  slot->piece.file_offset = span->offset + begin;
  piece_read(lane, slot, slot->piece.file_offset, size);
  plan_next(lane, slot);
}

/* A piece of compressed blocks: of one checksum page, so that one page decides where it lies. */
static enum load_state plan_packed(struct lane *lane, struct lane_slot *slot) {
  const struct span *span = lane->span;
  const struct table_shape *shape = &lane->table->header.shape;
  plan_parts(lane, slot);
  uint32_t index;
  (void)table_record_page(span, slot->first_part, &index);
  if (slot->parts > TABLE_CHECKSUMS_PER_PAGE - index) {
    slot->parts = TABLE_CHECKSUMS_PER_PAGE - index;
    slot->piece.count = (uint32_t)slot->parts * shape->rows_per_block;
  }
  for (uint64_t i = 0; i < slot->parts; i++) {
    struct checksum_record *record = &slot->records[i];
    const enum load_state state = lane_record(lane, span, slot->first_part + i, record);
    if (state != LOAD_READY) {
      return state;
    }
    if (table_record_check(lane->table, span, slot->first_part + i, record, &lane->error) != TURB_OK) {
      return LOAD_FAILED;
    }
    if (i != 0 && record->offset != record[-1].offset + CODEC_STORED_BYTES(record[-1].stored)) {
      status_set_file(&lane->error, TURB_CORRUPTION, lane->table->path, span->offset + record->offset,
                      "block %" PRIu64 " does not lie behind the one before", slot->first_part + i);
      return LOAD_FAILED;
    }
  }
  const struct checksum_record *last = &slot->records[slot->parts - 1];
  const uint64_t begin = span->offset + slot->records[0].offset;
  const uint64_t end = span->offset + last->offset + CODEC_STORED_BYTES(last->stored);
  const uint64_t first_page = begin / TABLE_PAGE_BYTES * TABLE_PAGE_BYTES;
  slot->piece.data = slot->unpacked;
  slot->piece.size = (uint32_t)slot->parts * shape->block_bytes;
  slot->piece.file_offset = first_page;
  piece_read(lane, slot, first_page, (end - first_page + TABLE_PAGE_BYTES - 1) / TABLE_PAGE_BYTES * TABLE_PAGE_BYTES);
  plan_next(lane, slot);
  return LOAD_READY;
}

/* Starts reads into all free slots. WAITING when a checksum page must come first. */
static enum load_state lane_fill(struct lane *lane) {
  if (lane->options.verify && lane->queue_count == 0 && lane->span != NULL) { /* in front of the pieces */
    const uint64_t per_part = lane->options.kind == EXTENT_ROWS ? lane->table->header.shape.rows_per_block : TABLE_ATTRIBUTE_CHUNK_BYTES;
    uint32_t index;
    bring_records(lane, table_record_page(lane->span, lane->span->first_part + (lane->next - lane->span->first) / per_part, &index));
  }
  for (uint32_t i = 0; i < lane->options.depth && lane->span != NULL; i++) {
    struct lane_slot *slot = lane->slots[i];
    if (slot->state != SLOT_FREE) {
      continue;
    }
    if (!is_compressed(lane)) {
      plan_plain(lane, slot);
      continue;
    }
    const enum load_state state = plan_packed(lane, slot);
    if (state != LOAD_READY) {
      return state;
    }
  }
  return LOAD_READY;
}

/* ---- handing out --------------------------------------------------------------------------------------- */

/* Compares the parts of a piece with their records, from where it stopped last time. */
static enum load_state verify_parts(struct lane *lane, struct lane_slot *slot) {
  uint64_t begin;
  (void)table_part_bytes(lane->table, lane->options.kind, slot->span, slot->first_part, &begin);
  for (; slot->checked < slot->parts; slot->checked++) {
    const uint64_t part = slot->first_part + slot->checked;
    struct checksum_record record;
    const enum load_state state = lane_record(lane, slot->span, part, &record);
    if (state != LOAD_READY) {
      return state;
    }
    uint64_t offset;
    (void)table_part_bytes(lane->table, lane->options.kind, slot->span, part, &offset);
    if (table_part_check(lane->table, lane->options.kind, slot->span, part, &record, slot->piece.data + (offset - begin), &lane->error) !=
        TURB_OK) {
      return LOAD_FAILED;
    }
  }
  return LOAD_READY;
}

static enum load_state unpack_parts(struct lane *lane, struct lane_slot *slot) {
  const struct table_shape *shape = &lane->table->header.shape;
  const uint8_t *base = (const uint8_t *)slot->op.data + (slot->span->offset + slot->records[0].offset - slot->op.offset);
  for (; slot->checked < slot->parts; slot->checked++) {
    const struct checksum_record *record = &slot->records[slot->checked];
    const uint8_t *stored = base + (record->offset - slot->records[0].offset);
    turb_status status =
        table_part_check(lane->table, EXTENT_ROWS, slot->span, slot->first_part + slot->checked, record, stored, &lane->error);
    if (status == TURB_OK) {
      const struct codec_place place = table_place(lane->table, slot->span->offset + record->offset);
      status = block_decompress(lane->decompressor, stored, record->stored, slot->unpacked + slot->checked * shape->block_bytes, &place,
                                &lane->error);
    }
    if (status != TURB_OK) {
      return LOAD_FAILED;
    }
  }
  return LOAD_READY;
}

/* Checks key pages, and mends a page that the border of two pieces cut. */
static enum load_state check_keys(struct lane *lane, struct lane_slot *slot) {
  struct piece *piece = &slot->piece;
  uint8_t *data = slot->memory + TABLE_PAGE_BYTES;
  if (lane->carries) {
    data -= TABLE_PAGE_BYTES;
    memcpy(data, lane->carry, TABLE_PAGE_BYTES);
    piece->data = data;
    piece->size += TABLE_PAGE_BYTES;
    piece->file_offset -= TABLE_PAGE_BYTES;
    piece->first_ordinal--;
    piece->count++;
    lane->carries = false;
  }
  const bool extent_goes_on = piece->first_ordinal + piece->count < slot->span->first + slot->span->count;
  for (uint32_t at = 0; at < piece->size;) {
    struct slot_page *page = (struct slot_page *)(void *)(data + at);
    if (piece->size - at == TABLE_PAGE_BYTES && page->units == 2 && extent_goes_on) {
      memcpy(lane->carry, page, TABLE_PAGE_BYTES);
      lane->carries = true;
      piece->size -= TABLE_PAGE_BYTES;
      piece->count--;
      break;
    }
    if (table_key_page_check(lane->table, page, piece->size - at, piece->file_offset + at, &lane->error) != TURB_OK) {
      return LOAD_FAILED;
    }
    at += page->units * TABLE_PAGE_BYTES;
  }
  return LOAD_READY;
}

static enum load_state slot_check(struct lane *lane, struct lane_slot *slot) {
  if (!slot_arrived(lane, slot)) {
    return LOAD_FAILED;
  }
  if (is_compressed(lane)) {
    return unpack_parts(lane, slot);
  }
  if (lane->options.verify) {
    return verify_parts(lane, slot);
  }
  if (lane->options.kind == EXTENT_KEYS) {
    return check_keys(lane, slot);
  }
  for (uint32_t at = 0; lane->options.kind == EXTENT_CHECKSUMS && at < slot->piece.size; at += TABLE_PAGE_BYTES) {
    const struct codec_place place = table_place(lane->table, slot->piece.file_offset + at);
    if (codec_checksum_page_check(slot->piece.data + at, TABLE_PAGE_BYTES, &place, &lane->error) != TURB_OK) {
      return LOAD_FAILED;
    }
  }
  return LOAD_READY;
}

static enum load_state piece_next(struct lane *lane, struct piece *piece, bool *end) {
  for (;;) {
    const enum load_state filled = lane_fill(lane);
    if (filled == LOAD_FAILED) {
      return LOAD_FAILED;
    }
    if (lane->queue_count == 0) {
      if (filled == LOAD_WAITING) {
        return LOAD_WAITING;
      }
      *end = lane->span == NULL;
      return *end ? LOAD_READY : LOAD_IDLE;
    }
    struct lane_slot *slot = lane->queue[lane->queue_head];
    if (slot->state == SLOT_READING) {
      return LOAD_WAITING;
    }
    const enum load_state state = slot_check(lane, slot);
    if (state != LOAD_READY) {
      return state;
    }
    lane->queue_head = (lane->queue_head + 1) % DEPTH_MAX;
    lane->queue_count--;
    if (slot->piece.size == 0) { /* all of it was carried to the next */
      slot->state = SLOT_FREE;
      continue;
    }
    slot->state = SLOT_HANDED;
    *piece = slot->piece;
    return LOAD_READY;
  }
}

enum load_state lane_piece(struct lane *lane, struct piece *piece, bool *end) {
  *piece = (struct piece){0};
  *end = false;
  if (lane->error.status != TURB_OK) {
    return LOAD_FAILED;
  }
  const enum load_state state = piece_next(lane, piece, end);
  if (state != LOAD_FAILED && lane->options.eager && lane->reads->queued != 0 && reads_submit(lane->reads, &lane->error) != TURB_OK) {
    if (state == LOAD_READY && !*end) {
      lane_release(lane, piece->data);
    }
    *piece = (struct piece){0};
    return LOAD_FAILED;
  }
  return state;
}

void lane_release(struct lane *lane, const void *data) {
  for (uint32_t i = 0; i < lane->options.depth; i++) {
    struct lane_slot *slot = lane->slots[i];
    if (slot->state == SLOT_HANDED && slot->piece.data == data) {
      slot->state = SLOT_FREE;
      return;
    }
  }
  assert(false); /* no such piece is handed out */
}
