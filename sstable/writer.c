/*
 * Writing a table: checks of what comes in, and the life of the file. What gathers and how it is written is in stripe.h; rows in row_writer.h.
 *
 *   OPEN --add--> OPEN | ATTRIBUTE (parts are due) --append_attribute, complete--> OPEN --finish--> FINISHED
 *   any --error--> FAILED: only destroy
 *
 * One block of memory (about 2.3 MiB) holds the output's buffers and the stripe; it is charged with the writer itself before it is taken.
 */
#include "sstable/writer.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "sstable/block.h"
#include "sstable/stripe.h"

#define OUTPUT_BUFFER_BYTES     (512u << 10) /* a buffer, where the budget is not short */
#define OUTPUT_BUFFER_MIN_BYTES (64u << 10)
#define WRITER_ALIGNMENT        64 /* of hash states */

enum writer_state { WRITER_OPEN, WRITER_ATTRIBUTE, WRITER_FINISHED, WRITER_FAILED };

struct key_copy { /* empty keys are keys here: `set` tells */
  bool set;
  uint16_t size;
  uint8_t bytes[CODEC_KEY_MAX_BYTES];
};

struct table_writer {
  struct table_env env; /* as given */
  struct table_writer_options options;
  enum writer_state state;
  char *path;
  uint64_t charged_bytes;
  uint8_t *memory;
  size_t memory_bytes;
  struct io_file *file; /* NULL: not created */

  struct output output;
  struct tail_builder tail;
  struct stripe stripe;

  uint32_t attribute_left; /* ATTRIBUTE: bytes still to come */
  bool attribute_own;

  struct table_properties properties;
  struct key_copy smallest, largest, ranges_begin, ranges_end, lower, upper;
  bool ranges_open;
};

/* ---- small things ---- */

static turb_bytes bytes_of(const struct key_copy *key) {
  return (turb_bytes){key->bytes, key->size};
}

static void copy_key(struct key_copy *to, turb_bytes key) {
  to->set = true;
  to->size = (uint16_t)key.size;
  if (key.size != 0) {
    memcpy(to->bytes, key.data, key.size);
  }
}

static int compare(turb_bytes a, turb_bytes b) {
  return key_compare(a.data, a.size, b.data, b.size);
}

#define KEY_TEXT_BYTES 132

/* A key for a message: printable as it is, other bytes as \xNN, cut after 32 bytes. */
static const char *key_text(turb_bytes key, char text[KEY_TEXT_BYTES]) {
  const uint8_t *bytes = key.data;
  size_t at = 0;
  for (size_t i = 0; i < key.size && i < 32; i++) {
    const int c = bytes[i];
    const bool plain = c > 0x20 && c < 0x7f && c != '\\';
    at += (size_t)snprintf(text + at, KEY_TEXT_BYTES - at, plain ? "%c" : "\\x%02x", (unsigned)c);
  }
  (void)snprintf(text + at, KEY_TEXT_BYTES - at, "%s", key.size > 32 ? "..." : "");
  return text;
}

static turb_status fail(struct table_writer *writer, turb_status status) {
  if (status != TURB_OK) {
    writer->state = WRITER_FAILED;
  }
  return status;
}

static turb_status check_open(const struct table_writer *writer, enum writer_state wanted, turb_error *err) {
  if (writer->state == wanted) {
    return TURB_OK;
  }
  static const char *const names[] = {"open", "waiting for the rest of an attribute", "finished", "failed"};
  return status_set_file(err, TURB_INVALID, writer->path, STATUS_NO_OFFSET, "the table writer is %s", names[writer->state]);
}

/* ---- making and destroying ---- */

static turb_status check_options(const struct table_writer_options *options, turb_error *err) {
  const struct table_shape *shape = &options->shape;
  if (shape->dimension == 0 || shape->dimension > CODEC_MAX_DIMENSION || shape->type < TURB_F32 || shape->type > TURB_BITS ||
      shape->compression > 1) {
    return status_set(err, TURB_INVALID, "a table of dimension %" PRIu32 ", type %d, compression %d", shape->dimension, (int)shape->type,
                      (int)shape->compression);
  }
  struct table_shape derived = *shape;
  table_shape_derive(&derived);
  if (derived.row_bytes != shape->row_bytes || derived.stride != shape->stride || derived.rows_per_block != shape->rows_per_block ||
      derived.block_bytes != shape->block_bytes || derived.blocks_per_frame != shape->blocks_per_frame) {
    return status_set(err, TURB_INVALID, "a table's shape must come from table_shape_derive");
  }
  if (options->cut > UINT32_MAX) {
    return status_set(err, TURB_INVALID, "cut %" PRIu64 " is above %u", options->cut, UINT32_MAX);
  }
  return TURB_OK;
}

/* Buffers hold at least one block behind a page; a sixteenth of the budget is enough for one. */
static size_t output_buffer_bytes(const struct table_shape *shape, uint64_t limit) {
  const size_t needed = (size_t)shape->block_bytes + CODEC_PAGE_BYTES;
  const uint64_t share = limit / 16 / CODEC_PAGE_BYTES * CODEC_PAGE_BYTES;
  const size_t wished = share < OUTPUT_BUFFER_MIN_BYTES ? OUTPUT_BUFFER_MIN_BYTES
                        : share < OUTPUT_BUFFER_BYTES   ? share
                                                        : OUTPUT_BUFFER_BYTES;
  return needed > wished ? needed : wished;
}

static uint64_t limit_of(const struct table_env *env) {
  return env->budget != NULL ? budget_limit(env->budget) : UINT64_MAX;
}

uint64_t table_writer_memory_bytes(const struct table_shape *shape, uint64_t budget_limit_bytes) {
  const uint64_t codec = shape->compression != 0 ? block_compressor_bytes(shape->block_bytes, shape->compression_level) : 0;
  return sizeof(struct table_writer) + TAIL_PREPAID_BYTES + OUTPUT_BUFFERS * output_buffer_bytes(shape, budget_limit_bytes) +
         stripe_memory_bytes(shape) + codec;
}

/* Charges and takes the writer and its memory. */
static turb_status take_memory(const struct table_env *env, const char *path, const struct table_writer_options *options,
                               struct table_writer **made, turb_error *err) {
  const size_t buffers = OUTPUT_BUFFERS * output_buffer_bytes(&options->shape, limit_of(env));
  const size_t memory_bytes = buffers + stripe_memory_bytes(&options->shape);
  const uint64_t charged = sizeof **made + memory_bytes + strlen(path) + 1;
  if (env->budget != NULL && !budget_take(env->budget, BUDGET_JOB, charged + TAIL_PREPAID_BYTES)) {
    return status_set_file(err, TURB_BUDGET, path, STATUS_NO_OFFSET, "the memory budget is too small to write a table: %" PRIu64 " bytes",
                           charged + TAIL_PREPAID_BYTES);
  }
  struct table_writer *writer = mem_alloc_aligned(env->allocator, sizeof *writer, WRITER_ALIGNMENT);
  uint8_t *memory = mem_alloc_aligned(env->allocator, memory_bytes, CODEC_PAGE_BYTES);
  char *path_copy = mem_strdup(env->allocator, path);
  if (writer == NULL || memory == NULL || path_copy == NULL) {
    mem_free(env->allocator, writer, sizeof *writer);
    mem_free(env->allocator, memory, memory_bytes);
    mem_free_string(env->allocator, path_copy);
    if (env->budget != NULL) {
      budget_give(env->budget, BUDGET_JOB, charged + TAIL_PREPAID_BYTES);
    }
    return status_set_file(err, TURB_NO_MEMORY, path, STATUS_NO_OFFSET, "no memory to write a table");
  }
  memset(writer, 0, sizeof *writer);
  writer->env = *env;
  writer->options = *options;
  writer->path = path_copy;
  writer->charged_bytes = charged;
  writer->memory = memory;
  writer->memory_bytes = memory_bytes;
  tail_init(&writer->tail, env->allocator, env->budget);
  *made = writer;
  return TURB_OK;
}

static void release_memory(struct table_writer *writer) {
  const turb_allocator *allocator = writer->env.allocator;
  struct budget *budget = writer->env.budget;
  const uint64_t charged = writer->charged_bytes;
  block_compressor_destroy(writer->stripe.rows.compressor);
  tail_free(&writer->tail);
  mem_free(allocator, writer->memory, writer->memory_bytes);
  mem_free_string(allocator, writer->path);
  mem_free(allocator, writer, sizeof *writer);
  if (budget != NULL) {
    budget_give(budget, BUDGET_JOB, charged);
  }
}

static turb_status write_header(struct table_writer *writer, uint64_t seed, turb_error *err) {
  struct table_header header = {.seed = seed,
                                .collection_id = writer->options.collection_id,
                                .file_number = writer->options.file_number,
                                .shape = writer->options.shape};
  memcpy(header.database_id, writer->env.database_id, sizeof header.database_id);
  uint8_t *page = NULL;
  const turb_status status = output_reserve(&writer->output, CODEC_PAGE_BYTES, &page, err);
  if (status == TURB_OK) {
    codec_header_encode(&header, page);
    output_advance(&writer->output, CODEC_PAGE_BYTES);
  }
  return status;
}

/* The file, and all that works on it. */
static turb_status prepare(struct table_writer *writer, turb_error *err) {
  const struct table_shape *shape = &writer->options.shape;
  const struct block_memory memory = {writer->env.allocator, writer->env.budget, BUDGET_JOB};
  struct block_compressor *compressor = NULL;
  turb_status status = TURB_OK;
  if (shape->compression != 0) {
    status = block_compressor_create(&memory, shape->type, shape->block_bytes, shape->compression_level, &compressor, err);
    if (status != TURB_OK) {
      return status;
    }
  }
  const size_t buffer_bytes = output_buffer_bytes(shape, limit_of(&writer->env));
  const uint64_t seed = codec_table_seed(writer->env.database_id, writer->options.job, (uint32_t)writer->options.cut);
  stripe_init(&writer->stripe, shape, seed, &writer->output, &writer->tail, writer->memory + OUTPUT_BUFFERS * buffer_bytes);
  writer->stripe.rows.compressor = compressor;
  const unsigned flags = IO_OPEN_WRITE | IO_OPEN_CREATE | IO_OPEN_EXCLUSIVE | (writer->env.buffered ? 0 : IO_OPEN_DIRECT);
  status = io_file_open(writer->env.system, writer->path, flags, &writer->file, err);
  if (status != TURB_OK) {
    return status;
  }
  output_init(&writer->output, writer->env.system, writer->file, writer->memory, buffer_bytes);
  return write_header(writer, seed, err);
}

turb_status table_writer_create(const struct table_env *env, const char *path, const struct table_writer_options *options,
                                struct table_writer **writer, turb_error *err) {
  *writer = NULL;
  turb_status status = check_options(options, err);
  if (status != TURB_OK) {
    return status;
  }
  struct table_writer *made = NULL;
  status = take_memory(env, path, options, &made, err);
  if (status != TURB_OK) {
    return status;
  }
  assert(made != NULL);
  status = prepare(made, err);
  if (status != TURB_OK) {
    table_writer_destroy(made);
    return status;
  }
  *writer = made;
  return TURB_OK;
}

void table_writer_destroy(struct table_writer *writer) {
  if (writer == NULL) {
    return;
  }
  if (writer->file != NULL) {
    output_close(&writer->output);
    io_file_release(writer->file);
    if (writer->state != WRITER_FINISHED) {
      /* Where this fails too, the file is one that no manifest names: it goes when the database is opened. */
      (void)!io_unlink(writer->env.system, writer->path, NULL);
    }
  }
  release_memory(writer);
}

/* ---- entries ---- */

static turb_status bad_entry(const struct table_writer *writer, turb_status status, turb_bytes key, const char *what, turb_error *err) {
  char text[KEY_TEXT_BYTES];
  return status_set_file(err, status, writer->path, STATUS_NO_OFFSET, "entry with key \"%s\": %s", key_text(key, text), what);
}

static turb_status check_entry(const struct table_writer *writer, const struct key_page_entry *entry, const void *row,
                               const void *attributes, turb_error *err) {
  const turb_bytes key = entry->key;
  const uint64_t kind = entry->sequence_kind & 0xff;
  if (key.size == 0 || key.size > CODEC_KEY_MAX_BYTES) {
    return bad_entry(writer, TURB_INVALID, key, "a key has 1 to 4096 bytes", err);
  }
  if (kind != SLOT_PUT && kind != SLOT_DELETE) {
    return bad_entry(writer, TURB_INVALID, key, "neither a put nor a delete", err);
  }
  if (kind == SLOT_PUT ? row == NULL : (entry->attribute_size != 0 || attributes != NULL)) {
    return bad_entry(writer, TURB_INVALID, key, kind == SLOT_PUT ? "a put without a row" : "a delete with attributes", err);
  }
  if (entry->attribute_size > CODEC_ATTRIBUTE_MAX_BYTES) {
    return bad_entry(writer, TURB_TOO_LARGE, key, "attributes above 16 MiB", err);
  }
  if (entry->sequence_kind >> 8 == 0 && writer->options.bulk_sequence_mode == 0) {
    return bad_entry(writer, TURB_INVALID, key, "no sequence number", err);
  }
  return writer->stripe.entries == UINT32_MAX ? bad_entry(writer, TURB_TOO_LARGE, key, "a table holds at most 2^32 - 1 entries", err)
                                              : TURB_OK;
}

/* Strict entry order against the entry before; *same_key as key pages want it. */
static turb_status check_order(const struct table_writer *writer, const struct key_page_entry *entry, bool *same_key, turb_error *err) {
  *same_key = false;
  const struct key_page_builder *page = &writer->stripe.key_page;
  if (writer->stripe.entries == 0) {
    return TURB_OK;
  }
  const int order = compare(key_page_last_key(page), entry->key);
  *same_key = order == 0;
  if (order > 0 || (order == 0 && key_page_last_sequence_kind(page) >> 8 <= entry->sequence_kind >> 8)) {
    return bad_entry(writer, TURB_INVALID, entry->key, "not in entry order", err);
  }
  return TURB_OK;
}

static void count_entry(struct table_writer *writer, const struct key_page_entry *entry) {
  struct table_properties *p = &writer->properties;
  const uint64_t sequence = entry->sequence_kind >> 8;
  const bool put = (entry->sequence_kind & 0xff) == SLOT_PUT;
  const bool first = p->entries == 0 && p->range_fragments == 0;
  p->entries++;
  p->puts += put;
  p->deletes += !put;
  p->smallest_sequence = first || sequence < p->smallest_sequence ? sequence : p->smallest_sequence;
  p->largest_sequence = sequence > p->largest_sequence ? sequence : p->largest_sequence;
  p->key_bytes += entry->key.size;
  p->attribute_bytes += entry->attribute_size;
  p->largest_key_bytes = entry->key.size > p->largest_key_bytes ? entry->key.size : p->largest_key_bytes;
  p->largest_attribute_bytes = entry->attribute_size > p->largest_attribute_bytes ? entry->attribute_size : p->largest_attribute_bytes;
  if (p->entries == 1) {
    copy_key(&writer->smallest, entry->key);
  }
}

static turb_status append_attribute(struct table_writer *writer, const void *bytes, size_t size, turb_error *err) {
  if (size > writer->attribute_left) {
    return status_set_file(err, TURB_INVALID, writer->path, STATUS_NO_OFFSET, "%zu attribute bytes where %" PRIu32 " are due", size,
                           writer->attribute_left);
  }
  turb_status status = TURB_OK;
  if (writer->attribute_own) {
    status = stripe_put_own_attribute(&writer->stripe, bytes, size, err);
  } else {
    stripe_put_attribute(&writer->stripe, bytes, size);
  }
  writer->attribute_left -= (uint32_t)size;
  if (writer->attribute_left == 0) {
    writer->state = WRITER_OPEN;
    if (writer->attribute_own && status == TURB_OK) {
      status = stripe_end_own_attribute(&writer->stripe, err);
    }
  }
  return status;
}

static turb_status begin_attribute(struct table_writer *writer, const struct key_page_entry *entry, const void *attributes,
                                   turb_error *err) {
  writer->attribute_left = entry->attribute_size;
  writer->attribute_own = stripe_attribute_is_own(entry->attribute_size);
  writer->state = WRITER_ATTRIBUTE;
  if (writer->attribute_own) {
    const turb_status status = stripe_begin_own_attribute(&writer->stripe, err);
    if (status != TURB_OK) {
      return status;
    }
  }
  return attributes != NULL ? append_attribute(writer, attributes, entry->attribute_size, err) : TURB_OK;
}

static turb_status add(struct table_writer *writer, const struct slot *slot, const void *row, const void *attributes, turb_error *err) {
  const bool bulk = writer->options.bulk_sequence_mode != 0;
  const bool put = slot_kind(slot) == SLOT_PUT;
  struct key_page_entry entry = {.key = slot_key_bytes(slot),
                                 .sequence_kind = (bulk ? 0 : slot_sequence(slot) << 8) | (slot->sequence_kind & 0xff),
                                 .row_hash = put ? slot->row_hash : 0,
                                 .attribute_size = slot_attribute_size(slot)};
  entry.attribute_hash = entry.attribute_size != 0 ? slot->attribute_hash : 0;
  bool same_key = false;
  turb_status status = check_entry(writer, &entry, row, attributes, err);
  if (status == TURB_OK) {
    status = check_order(writer, &entry, &same_key, err);
  }
  if (status == TURB_OK && !stripe_has_room(&writer->stripe, entry.attribute_size)) {
    status = stripe_flush(&writer->stripe, err);
  }
  if (status == TURB_OK) {
    status = stripe_add_key(&writer->stripe, &entry, same_key, hash64(entry.key.data, entry.key.size, 0), err);
  }
  if (status != TURB_OK) {
    return status;
  }
  count_entry(writer, &entry);
  if (put) {
    status = row_writer_add(&writer->stripe.rows, row, err);
  }
  return status == TURB_OK && entry.attribute_size != 0 ? begin_attribute(writer, &entry, attributes, err) : status;
}

turb_status table_writer_add(struct table_writer *writer, const struct slot *slot, const void *row, const void *attributes,
                             turb_error *err) {
  const turb_status status = check_open(writer, WRITER_OPEN, err);
  return fail(writer, status == TURB_OK ? add(writer, slot, row, attributes, err) : status);
}

turb_status table_writer_append_attribute(struct table_writer *writer, const void *bytes, size_t size, turb_error *err) {
  const turb_status status = check_open(writer, WRITER_ATTRIBUTE, err);
  return fail(writer, status == TURB_OK ? append_attribute(writer, bytes, size, err) : status);
}

/* ---- range deletes and bounds ---- */

static turb_status check_range(const struct table_writer *writer, const struct range_fragment *fragment, turb_error *err) {
  const bool open = fragment->end.data == NULL;
  if (fragment->begin.size > CODEC_KEY_MAX_BYTES || fragment->end.size > CODEC_KEY_MAX_BYTES || (open && fragment->end.size != 0) ||
      (!open && compare(fragment->begin, fragment->end) >= 0)) {
    return bad_entry(writer, TURB_INVALID, fragment->begin, "a range delete without room between its ends", err);
  }
  if (writer->ranges_open || (writer->ranges_end.set && compare(bytes_of(&writer->ranges_end), fragment->begin) > 0)) {
    return bad_entry(writer, TURB_INVALID, fragment->begin, "a range delete that is not behind the one before", err);
  }
  for (uint32_t i = 0; i < fragment->sequence_count; i++) {
    const uint64_t sequence = fragment->sequences[i];
    if (sequence == 0 || sequence > SLOT_SEQUENCE_MAX || (i != 0 && sequence >= fragment->sequences[i - 1])) {
      return bad_entry(writer, TURB_INVALID, fragment->begin, "a range delete whose sequence numbers do not descend", err);
    }
  }
  return fragment->sequence_count == 0 ? bad_entry(writer, TURB_INVALID, fragment->begin, "a range delete without a sequence number", err)
                                       : TURB_OK;
}

turb_status table_writer_add_range(struct table_writer *writer, const struct range_fragment *fragment, turb_error *err) {
  turb_status status = check_open(writer, WRITER_OPEN, err);
  if (status == TURB_OK) {
    status = check_range(writer, fragment, err);
  }
  if (status == TURB_OK) {
    status = tail_add_range(&writer->tail, fragment, err);
  }
  if (status != TURB_OK) {
    return fail(writer, status);
  }
  struct table_properties *p = &writer->properties;
  const uint64_t lowest = fragment->sequences[fragment->sequence_count - 1], highest = fragment->sequences[0];
  const bool first = p->entries == 0 && p->range_fragments == 0;
  p->smallest_sequence = first || lowest < p->smallest_sequence ? lowest : p->smallest_sequence;
  p->largest_sequence = highest > p->largest_sequence ? highest : p->largest_sequence;
  p->range_fragments++;
  if (!writer->ranges_begin.set) {
    copy_key(&writer->ranges_begin, fragment->begin);
  }
  writer->ranges_open = fragment->end.data == NULL;
  copy_key(&writer->ranges_end, fragment->end);
  return TURB_OK;
}

turb_status table_writer_declare_bounds(struct table_writer *writer, turb_bytes lower, turb_bytes upper, bool upper_open, turb_error *err) {
  turb_status status = check_open(writer, WRITER_OPEN, err);
  if (status == TURB_OK && (lower.size > CODEC_KEY_MAX_BYTES || (!upper_open && upper.size > CODEC_KEY_MAX_BYTES))) {
    status = status_set_file(err, TURB_INVALID, writer->path, STATUS_NO_OFFSET, "a declared bound has more than 4096 bytes");
  }
  if (status != TURB_OK) {
    return fail(writer, status);
  }
  copy_key(&writer->lower, lower);
  copy_key(&writer->upper, upper_open ? (turb_bytes){NULL, 0} : upper);
  writer->properties.upper_kind = upper_open ? TABLE_UPPER_OPEN : TABLE_UPPER_EXCLUSIVE;
  return TURB_OK;
}

/* ---- finishing ---- */

/* The bounds of what was added: the smallest key or first range begin; the largest key, or the last range's end where that is larger. */
static void derive_bounds(struct table_writer *writer) {
  struct table_properties *p = &writer->properties;
  const bool ranges = writer->ranges_begin.set;
  const turb_bytes begin = bytes_of(&writer->ranges_begin), end = bytes_of(&writer->ranges_end);
  const bool range_first = ranges && (p->entries == 0 || compare(begin, p->smallest_key) < 0);
  const bool range_last = ranges && (p->entries == 0 || writer->ranges_open || compare(end, p->largest_key) > 0);
  p->lower = range_first ? begin : p->smallest_key;
  p->upper = range_last ? end : p->largest_key;
  p->upper_kind = !range_last ? TABLE_UPPER_INCLUSIVE : writer->ranges_open ? TABLE_UPPER_OPEN : TABLE_UPPER_EXCLUSIVE;
}

/* Declared bounds hold everything. */
static turb_status check_bounds(struct table_writer *writer, turb_error *err) {
  struct table_properties *p = &writer->properties;
  p->lower = bytes_of(&writer->lower);
  p->upper = bytes_of(&writer->upper);
  const bool open = p->upper_kind == TABLE_UPPER_OPEN;
  if (p->entries != 0 && compare(p->smallest_key, p->lower) < 0) {
    return bad_entry(writer, TURB_INVALID, p->smallest_key, "below the declared bound", err);
  }
  if (p->entries != 0 && !open && compare(p->largest_key, p->upper) >= 0) {
    return bad_entry(writer, TURB_INVALID, p->largest_key, "not below the declared bound", err);
  }
  if (writer->ranges_begin.set && (compare(bytes_of(&writer->ranges_begin), p->lower) < 0 ||
                                   (!open && (writer->ranges_open || compare(bytes_of(&writer->ranges_end), p->upper) > 0)))) {
    return bad_entry(writer, TURB_INVALID, bytes_of(&writer->ranges_begin), "range deletes reach out of the declared bounds", err);
  }
  return TURB_OK;
}

static void fill_record(const struct table_writer *writer, uint64_t tail_offset, struct table_record *record) {
  const struct table_properties *p = &writer->properties;
  *record = (struct table_record){.file_number = writer->options.file_number,
                                  .collection_id = writer->options.collection_id,
                                  .size_bytes = output_position(&writer->output),
                                  .tail_offset = tail_offset,
                                  .seed = writer->stripe.seed,
                                  .lower = p->lower,
                                  .upper = p->upper,
                                  .upper_open = p->upper_kind == TABLE_UPPER_OPEN,
                                  .upper_inclusive = p->upper_kind == TABLE_UPPER_INCLUSIVE,
                                  .entries = p->entries,
                                  .puts = p->puts,
                                  .deletes = p->deletes,
                                  .range_fragments = p->range_fragments,
                                  .smallest_sequence = p->smallest_sequence,
                                  .largest_sequence = p->largest_sequence,
                                  .hash_sum = p->hash_sum};
}

static turb_status finish(struct table_writer *writer, struct table_record *record, turb_error *err) {
  struct table_properties *p = &writer->properties;
  struct stripe *stripe = &writer->stripe;
  if (p->entries == 0 && p->range_fragments == 0) {
    return status_set_file(err, TURB_INVALID, writer->path, STATUS_NO_OFFSET, "a table without entries and range deletes");
  }
  if (p->entries != 0) {
    copy_key(&writer->largest, key_page_last_key(&stripe->key_page));
  }
  p->smallest_key = bytes_of(&writer->smallest);
  p->largest_key = bytes_of(&writer->largest);
  if (!writer->lower.set) {
    derive_bounds(writer);
  }
  turb_status status = writer->lower.set ? check_bounds(writer, err) : TURB_OK;
  if (status == TURB_OK) {
    status = stripe_finish(stripe, err);
  }
  if (status != TURB_OK) {
    return status;
  }
  p->hash_sum = stripe->hash_sum;
  p->vector_blocks = stripe->rows.blocks;
  p->attribute_chunks = stripe->chunks.first_ordinal;
  p->job = writer->options.job;
  p->cut = writer->options.cut;
  uint64_t tail_offset = 0;
  status = tail_write(&writer->tail, p, &writer->output, stripe->seed, &tail_offset, err);
  if (status == TURB_OK) {
    status = output_finish(&writer->output, err);
  }
  if (status == TURB_OK) {
    fill_record(writer, tail_offset, record);
  }
  return status;
}

turb_status table_writer_finish(struct table_writer *writer, struct table_record *record, turb_error *err) {
  *record = (struct table_record){.file_number = 0};
  turb_status status = check_open(writer, WRITER_OPEN, err);
  if (status == TURB_OK) {
    status = finish(writer, record, err);
  }
  if (status != TURB_OK) {
    return fail(writer, status);
  }
  output_close(&writer->output);
  io_file_release(writer->file);
  writer->file = NULL;
  writer->state = WRITER_FINISHED;
  return TURB_OK;
}

uint64_t table_writer_bytes(const struct table_writer *writer) {
  return output_position(&writer->output) + stripe_bytes(&writer->stripe) + tail_bytes(&writer->tail);
}

uint64_t table_writer_entries(const struct table_writer *writer) {
  return writer->stripe.entries;
}
