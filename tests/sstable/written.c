/* See written.h. */
#include "tests/sstable/written.h"

#include <stdlib.h>

#include "sstable/block.h"
#include "sstable/filter.h"

/* ---- the disk ---- */

static void init_disk(struct written_disk *disk) {
  memset(disk, 0, sizeof *disk);
  test_allocator_init(&disk->allocator);
  test_allocator_init(&disk->system_allocator);
  budget_init(&disk->budget, UINT64_MAX);
}

static void init_env(struct written_disk *disk) {
  disk->env = (struct table_env){.system = disk->system, .allocator = &disk->allocator.base, .budget = &disk->budget};
  memcpy(disk->env.database_id, "a database's id.", 16);
}

bool written_disk_open_real(struct written_disk *disk, turb_backend backend, bool buffered) {
  init_disk(disk);
  turb_error err = TURB_ERROR_INIT;
  const struct io_system_options options = {.backend = backend, .allocator = &disk->system_allocator.base};
  if (io_system_open(&options, &disk->system, &err) != TURB_OK) {
    fprintf(stderr, "skipped: %s\n", err.message);
    return false;
  }
  init_env(disk);
  disk->env.buffered = buffered;
  return true;
}

void written_disk_open(struct written_disk *disk, uint64_t seed) {
  init_disk(disk);
  turb_error err = TURB_ERROR_INIT;
  const turb_simulation_options options = {.size = sizeof options, .seed = seed, .reorder_percent = 30, .short_percent = 20};
  CHECK_OK_ERR(turb_simulation_create(&options, &disk->simulation, &err), &err);
  const struct io_system_options system_options = {
      .backend = TURB_BACKEND_SIMULATED, .simulation = disk->simulation, .allocator = &disk->system_allocator.base};
  CHECK_OK_ERR(io_system_open(&system_options, &disk->system, &err), &err);
  CHECK_OK_ERR(io_make_folder(disk->system, "/db", &err), &err);
  init_env(disk);
}

void written_disk_close(struct written_disk *disk) {
  test_allocator_check_empty(&disk->allocator);
  CHECK_EQ(budget_used(&disk->budget), 0);
  io_system_close(disk->system);
  test_allocator_check_empty(&disk->system_allocator);
  turb_simulation_free(disk->simulation); /* NULL on the real disk */
}

bool written_disk_has(struct written_disk *disk, const char *path) {
  return io_stat(disk->system, path, NULL, NULL, NULL) == TURB_OK;
}

/* ---- entries ---- */

static void *take(size_t size) {
  void *memory = malloc(size != 0 ? size : 1);
  CHECK(memory != NULL);
  return memory;
}

static turb_bytes random_bytes(struct random *random, size_t size) {
  uint8_t *bytes = take(size);
  random_fill(random, bytes, size);
  return (turb_bytes){bytes, size};
}

/* A key above `before`: the counter makes it so, whatever fills the rest. */
static turb_bytes next_key(struct random *random, const struct written_wish *wish, uint64_t number) {
  const size_t size = random_between(random, wish->key_min, wish->key_max);
  uint8_t *key = take(size);
  memset(key, 'k', size);
  const uint64_t counter = __builtin_bswap64(number);
  const size_t digits = size < 6 ? size : 6;
  const size_t at = size > 24 ? size - 8 : size - digits; /* long keys share a long prefix */
  memcpy(key + at, (const uint8_t *)&counter + 8 - digits, digits);
  for (size_t i = at + digits; i < size; i++) {
    key[i] = (uint8_t)random_u32(random);
  }
  return (turb_bytes){key, size};
}

static size_t attribute_size(struct random *random, size_t most) {
  switch (random_below(random, 4)) {
  case 0: return 0;
  case 1: return random_below(random, most + 1);
  default: return random_below(random, (most < 100 ? most : 100) + 1);
  }
}

static int compare_keys(turb_bytes a, turb_bytes b) {
  return key_compare(a.data, a.size, b.data, b.size);
}

static int compare_entries(const void *a, const void *b) {
  const struct written_entry *x = a, *y = b;
  const int order = compare_keys(x->key, y->key);
  return order != 0 ? order : x->sequence > y->sequence ? -1 : x->sequence < y->sequence;
}

struct written_set written_set_make(const struct written_wish *wish, uint64_t seed) {
  struct random random;
  random_init(&random, seed);
  struct written_set set = {.shape = {.dimension = wish->dimension,
                                      .type = wish->type,
                                      .metric = wish->type == TURB_BITS ? TURB_HAMMING : TURB_L2,
                                      .compression = wish->compression,
                                      .compression_level = 1},
                            .bulk = wish->bulk};
  table_shape_derive(&set.shape);
  set.entries = take(wish->entries * sizeof *set.entries);
  for (uint64_t number = 1; set.count < wish->entries; number++) {
    unsigned versions = wish->bulk || wish->versions < 2 ? 1 : (unsigned)random_between(&random, 1, wish->versions);
    const turb_bytes key = next_key(&random, wish, number);
    uint64_t sequence = 1000000 + random_below(&random, 1000000);
    for (; versions != 0 && set.count < wish->entries; versions--) {
      struct written_entry *entry = &set.entries[set.count++];
      uint8_t *copy = take(key.size);
      memcpy(copy, key.data, key.size);
      *entry = (struct written_entry){.key = {copy, key.size}, .sequence = sequence, .kind = SLOT_PUT};
      sequence -= random_between(&random, 1, 1000);
      if (random_below(&random, 100) < wish->deletes_percent) {
        entry->kind = SLOT_DELETE;
        continue;
      }
      uint8_t *row = take(set.shape.row_bytes);
      for (size_t i = 0; i < set.shape.row_bytes; i++) {
        row[i] = (uint8_t)(wish->compression != 0 && i % 4 != 0 ? 60 + i % 4 : random_u32(&random));
      }
      entry->row = row;
      entry->attributes = random_bytes(&random, attribute_size(&random, wish->attribute_max));
    }
    free((void *)(uintptr_t)key.data);
  }
  /* Keys of changing size do not come out in order by themselves. */
  qsort(set.entries, set.count, sizeof *set.entries, compare_entries);
  return set;
}

void written_set_free(struct written_set *set) {
  for (size_t i = 0; i < set->count; i++) {
    free((void *)(uintptr_t)set->entries[i].key.data);
    free((void *)(uintptr_t)set->entries[i].row);
    free((void *)(uintptr_t)set->entries[i].attributes.data);
  }
  free(set->entries);
  *set = (struct written_set){.count = 0};
}

/* ---- writing ---- */

const struct slot *written_slot(const struct written_entry *entry, uint32_t row_bytes) {
  static _Alignas(4096) uint8_t page[8192];
  struct slot_page *header = (struct slot_page *)(void *)page;
  *header = (struct slot_page){.slot_count = 1, .units = 2};
  struct slot *slot = (struct slot *)(void *)(header + 1);
  const bool put = entry->kind == SLOT_PUT;
  *slot =
      (struct slot){.sequence_kind = entry->sequence << 8 | entry->kind,
                    .row_hash = put ? hash64(entry->row, row_bytes, 0) : 0,
                    .attribute_hash = entry->attributes.size != 0 ? (uint32_t)hash64(entry->attributes.data, entry->attributes.size, 0) : 0,
                    .attribute_size_row_delta = (uint32_t)entry->attributes.size,
                    .key_offset = 4096,
                    .key_size = (uint16_t)entry->key.size};
  memcpy(page + 4096, entry->key.data, entry->key.size < 4096 ? entry->key.size : 4096);
  return slot;
}

static turb_status add(struct table_writer *writer, const struct written_entry *entry, uint32_t row_bytes, size_t part, turb_error *err) {
  const struct slot *slot = written_slot(entry, row_bytes);
  const uint8_t *attributes = entry->attributes.data;
  const size_t size = entry->attributes.size;
  const bool parts = part != 0 && size > part;
  turb_status status = table_writer_add(writer, slot, entry->row, parts || entry->kind == SLOT_DELETE ? NULL : attributes, err);
  for (size_t at = 0; parts && at < size && status == TURB_OK; at += part) {
    status = table_writer_append_attribute(writer, attributes + at, size - at < part ? size - at : part, err);
  }
  return status;
}

turb_status written_write(struct written_disk *disk, const char *path, const struct written_set *set, size_t attribute_part,
                          struct table_record *record, turb_error *err) {
  const struct table_writer_options options = {
      .shape = set->shape, .file_number = 7, .collection_id = 3, .job = 11, .cut = 2, .bulk_sequence_mode = set->bulk};
  struct table_writer *writer = NULL;
  turb_status status = table_writer_create(&disk->env, path, &options, &writer, err);
  CHECK_EQ(writer == NULL, status != TURB_OK);
  for (size_t i = 0; i < set->count && status == TURB_OK; i++) {
    status = add(writer, &set->entries[i], set->shape.row_bytes, attribute_part, err);
  }
  for (size_t i = 0; i < set->range_count && status == TURB_OK; i++) {
    status = table_writer_add_range(writer, &set->ranges[i], err);
  }
  if (status == TURB_OK) {
    CHECK_EQ(table_writer_entries(writer), set->count);
    const uint64_t about = table_writer_bytes(writer);
    status = table_writer_finish(writer, record, err);
    if (status == TURB_OK) {
      CHECK_LT(record->size_bytes, about + about / 8 + 65536 + 2 * set->shape.block_bytes);
      CHECK_LT(about, record->size_bytes + record->size_bytes / 8 + 65536);
      record->lower.data = record->upper.data = NULL; /* the writer's; compared by written_check from the tail */
    }
  }
  table_writer_destroy(writer);
  return status;
}

uint8_t *written_read(struct written_disk *disk, const char *path, size_t *size) {
  turb_error err = TURB_ERROR_INIT;
  struct io_file *file = NULL;
  uint64_t bytes = 0;
  CHECK_OK_ERR(io_file_open(disk->system, path, IO_OPEN_READ, &file, &err), &err);
  CHECK_OK_ERR(io_file_size(file, &bytes, &err), &err);
  uint8_t *data = NULL;
  CHECK(posix_memalign((void **)&data, 4096, bytes) == 0);
  CHECK_OK_ERR(io_file_read(file, data, bytes, 0, &err), &err);
  io_file_release(file);
  *size = bytes;
  return data;
}

/* ---- checking ---- */

struct walk {
  const uint8_t *file;
  const struct written_set *set;
  struct table_header header;
  struct table_tail tail;
  struct codec_limits limits;
  struct block_decompressor *decompressor;
  size_t entry; /* next, of the key pages */
  size_t row;   /* next put's place among the entries */
  uint64_t rows;
  uint64_t attribute_offset;
  uint64_t hash_sum;
  uint32_t index_page, index_slot; /* of the key page to come: in order of the file */
};

static struct codec_place place_at(const struct walk *walk, uint64_t offset) {
  return (struct codec_place){"table", walk->header.seed, offset};
}

static const struct written_entry *next_put(struct walk *walk) {
  while (walk->set->entries[walk->row].kind != SLOT_PUT) {
    walk->row++;
  }
  return &walk->set->entries[walk->row++];
}

static void check_slot(struct walk *walk, const struct slot_page *page, const struct slot *slot) {
  const struct written_entry *entry = &walk->set->entries[walk->entry++];
  const uint8_t *key = (const uint8_t *)page + slot->key_offset;
  const bool put = entry->kind == SLOT_PUT;
  CHECK_EQ(slot->key_size, entry->key.size);
  CHECK_MEM_EQ(key, entry->key.data, entry->key.size);
  CHECK_EQ(slot->sequence_kind, (walk->set->bulk ? 0 : entry->sequence) << 8 | entry->kind);
  CHECK_EQ(slot->row_hash, put ? hash64(entry->row, walk->set->shape.row_bytes, 0) : 0);
  CHECK_EQ(slot_attribute_size(slot), entry->attributes.size);
  CHECK_EQ(page->base_row + (slot->attribute_size_row_delta >> SLOT_ATTRIBUTE_BITS), walk->rows);
  CHECK_EQ(page->base_attribute + slot->attribute_delta, walk->attribute_offset);
  walk->rows += put;
  walk->attribute_offset += entry->attributes.size;
  walk->hash_sum += codec_entry_hash(key, slot->key_size, slot->sequence_kind, slot->row_hash, slot->attribute_hash);
}

/* The index page with this number, found through the extents. */
static const struct slot_page *index_page(const struct walk *walk, uint32_t number, uint64_t *offset) {
  for (uint32_t i = 0; i < walk->tail.extent_count; i++) {
    const struct extent *extent = &walk->tail.extents[i];
    if (extent->kind == EXTENT_INDEX && number >= extent->first_ordinal && number - extent->first_ordinal < extent->count) {
      const uint64_t page = extent->first_page + (number - extent->first_ordinal) * codec_index_page_pages(extent);
      *offset = page * 4096;
      return (const struct slot_page *)(const void *)(walk->file + page * 4096);
    }
  }
  FAIL("no index page %u", number);
}

/* A key page against its index slot; then both go on. */
static void check_index_of(struct walk *walk, const struct slot_page *page, uint64_t offset, uint64_t hash_sum) {
  uint64_t index_offset = 0;
  const struct slot_page *index = index_page(walk, walk->index_page, &index_offset);
  if (walk->index_slot == 0) {
    const struct codec_place place = place_at(walk, index_offset);
    turb_error err = TURB_ERROR_INIT;
    CHECK_OK_ERR(codec_index_page_check(index, index->units * 4096u, &place, &walk->limits, &err), &err);
    const struct top_entry *top = &walk->tail.top[walk->index_page];
    const turb_bytes last = codec_index_separator(index, index->slot_count - 1u);
    CHECK_EQ(compare_keys(top->separator, last), 0);
    CHECK_EQ(top->first_entry, codec_index_slot(index, 0)->first_entry);
    CHECK_EQ(top->first_row, codec_index_slot(index, 0)->base_row);
  }
  const struct index_slot *slot = codec_index_slot(index, walk->index_slot);
  CHECK_EQ((uint64_t)slot->page * 4096, offset);
  CHECK_EQ(slot->units, page->units);
  CHECK_EQ(slot->slots, page->slot_count);
  CHECK_EQ(slot->hash_sum, hash_sum);
  CHECK_EQ(slot->base_row, page->base_row);
  CHECK_EQ(slot->base_attribute, page->base_attribute);
  CHECK_EQ(slot->first_entry, walk->entry - page->slot_count);
  CHECK_EQ(slot->puts, walk->rows - page->base_row);
  const turb_bytes separator = codec_index_separator(index, walk->index_slot);
  CHECK_LE(compare_keys(walk->set->entries[walk->entry - 1].key, separator), 0);
  if (walk->entry < walk->set->count) {
    const turb_bytes next = walk->set->entries[walk->entry].key;
    const turb_bytes last = walk->set->entries[walk->entry - 1].key;
    CHECK_LE(compare_keys(separator, next), compare_keys(last, next) == 0 ? 0 : -1);
  }
  if (++walk->index_slot == index->slot_count) {
    walk->index_slot = 0;
    walk->index_page++;
  }
}

static void check_keys(struct walk *walk, const struct extent *extent) {
  for (uint64_t at = extent->first_page; at < extent->first_page + extent->pages;) {
    const struct slot_page *page = (const struct slot_page *)(const void *)(walk->file + at * 4096);
    const struct codec_place place = place_at(walk, at * 4096);
    turb_error err = TURB_ERROR_INIT;
    CHECK_OK_ERR(codec_key_page_check(page, (extent->first_page + extent->pages - at) * 4096, &place, &walk->limits, &err), &err);
    const uint64_t before = walk->hash_sum;
    for (uint32_t i = 0; i < page->slot_count; i++) {
      check_slot(walk, page, slot_at(page, i));
    }
    check_index_of(walk, page, at * 4096, walk->hash_sum - before);
    at += page->units;
  }
}

static void check_filters(const struct walk *walk, const struct extent *extent) {
  const uint8_t *at = walk->file + extent->first_page * 4096;
  for (uint64_t section = extent->first_ordinal; section < extent->first_ordinal + extent->count; section++) {
    const size_t first = section * TABLE_FILTER_SECTION_ENTRIES;
    const size_t rest = walk->set->count - first;
    const uint32_t count = (uint32_t)(rest < TABLE_FILTER_SECTION_ENTRIES ? rest : TABLE_FILTER_SECTION_ENTRIES);
    const struct codec_place place = place_at(walk, (uint64_t)(at - walk->file));
    turb_error err = TURB_ERROR_INIT;
    CHECK_OK_ERR(filter_section_check(at, codec_filter_pages(count) * 4096, &place, count, &err), &err);
    for (size_t i = first; i < first + count; i++) {
      const turb_bytes key = walk->set->entries[i].key;
      CHECK(filter_section_may_contain(at, hash64(key.data, key.size, 0)));
    }
    at += codec_filter_pages(count) * 4096;
  }
}

/* The record of a block or chunk: the checksum pages before are those of earlier ordinals. */
static const struct checksum_record *record_of(const struct walk *walk, uint8_t kind, uint64_t ordinal) {
  for (uint32_t i = 0; i < walk->tail.extent_count; i++) {
    const struct extent *extent = &walk->tail.extents[i];
    for (uint64_t at = extent->first_page; extent->kind == EXTENT_CHECKSUMS && at < extent->first_page + extent->pages; at++) {
      const struct checksum_page *page = (const struct checksum_page *)(const void *)(walk->file + at * 4096);
      const struct codec_place place = place_at(walk, at * 4096);
      turb_error err = TURB_ERROR_INIT;
      if (page->kind == kind && ordinal >= page->first_ordinal && ordinal - page->first_ordinal < page->count) {
        CHECK_OK_ERR(codec_checksum_page_check(page, 4096, &place, &err), &err);
        return codec_checksum_record(page, (uint32_t)(ordinal - page->first_ordinal));
      }
    }
  }
  FAIL("no checksum of part %" PRIu64 " of kind %u", ordinal, kind);
}

static void check_rows(struct walk *walk, const struct extent *extent, uint64_t *block) {
  const struct table_shape *shape = &walk->header.shape;
  const uint64_t begin = extent->first_page * 4096;
  uint8_t *plain = take(shape->block_bytes);
  for (uint32_t done = 0; done < extent->count; ++*block) {
    const struct checksum_record *record = record_of(walk, EXTENT_ROWS, *block);
    const uint32_t stored = CODEC_STORED_BYTES(record->stored);
    const uint8_t *bytes = walk->file + begin + record->offset;
    CHECK_LE(record->offset + stored, extent->pages * 4096);
    CHECK_EQ(codec_part_checksum(bytes, stored, walk->header.seed, begin + record->offset), record->checksum);
    if (shape->compression == 0) {
      CHECK_EQ(record->stored, shape->block_bytes);
      CHECK_EQ(record->offset, done / shape->rows_per_block * shape->block_bytes);
    } else {
      const struct codec_place place = place_at(walk, begin + record->offset);
      turb_error err = TURB_ERROR_INIT;
      CHECK_OK_ERR(block_decompress(walk->decompressor, bytes, record->stored, plain, &place, &err), &err);
      bytes = plain;
    }
    size_t at = 0;
    for (uint32_t i = 0; i < shape->rows_per_block && done < extent->count; i++, done++, at += shape->stride) {
      CHECK_MEM_EQ(bytes + at, next_put(walk)->row, shape->row_bytes);
      for (size_t pad = shape->row_bytes; pad < shape->stride; pad++) {
        CHECK_EQ(bytes[at + pad], 0);
      }
    }
    for (; at < shape->block_bytes; at++) {
      CHECK_EQ(bytes[at], 0);
    }
  }
  free(plain);
}

static void check_attributes(const struct walk *walk, const struct extent *extent, uint64_t *chunk, size_t *entry) {
  const uint8_t *bytes = walk->file + extent->first_page * 4096;
  for (uint32_t at = 0; at < extent->count; at += TABLE_ATTRIBUTE_CHUNK_BYTES, ++*chunk) {
    const uint32_t rest = extent->count - at;
    const uint32_t size = rest < TABLE_ATTRIBUTE_CHUNK_BYTES ? rest : TABLE_ATTRIBUTE_CHUNK_BYTES;
    const struct checksum_record *record = record_of(walk, EXTENT_ATTRIBUTES, *chunk);
    CHECK_EQ(record->offset, at);
    CHECK_EQ(record->stored, size);
    CHECK_EQ(codec_part_checksum(bytes + at, size, walk->header.seed, extent->first_page * 4096 + at), record->checksum);
  }
  /* An attribute never crosses extents. */
  for (uint32_t at = 0; at < extent->count; ++*entry) {
    const turb_bytes attributes = walk->set->entries[*entry].attributes;
    CHECK_LE(attributes.size, extent->count - at);
    CHECK_MEM_EQ(bytes + at, attributes.data, attributes.size);
    CHECK(attributes.size <= TABLE_INLINE_ATTRIBUTE_BYTES || extent->count == attributes.size);
    at += (uint32_t)attributes.size;
  }
}

static void check_tail(const struct walk *walk, const struct table_record *record) {
  const struct written_set *set = walk->set;
  const struct table_properties *p = &walk->tail.properties;
  CHECK_EQ(p->entries, set->count);
  CHECK_EQ(p->entries, record->entries);
  CHECK_EQ(p->puts, record->puts);
  CHECK_EQ(p->deletes, record->deletes);
  CHECK_EQ(p->range_fragments, set->range_count);
  CHECK_EQ(p->smallest_sequence, record->smallest_sequence);
  CHECK_EQ(p->largest_sequence, record->largest_sequence);
  CHECK_EQ(p->hash_sum, record->hash_sum);
  CHECK_EQ(p->lower.size, record->lower.size);
  CHECK_EQ(p->upper.size, record->upper.size);
  CHECK_EQ(p->upper_kind == TABLE_UPPER_OPEN, record->upper_open);
  CHECK_EQ(p->upper_kind == TABLE_UPPER_INCLUSIVE, record->upper_inclusive);
  if (set->count != 0) {
    CHECK_EQ(compare_keys(p->smallest_key, set->entries[0].key), 0);
    CHECK_EQ(compare_keys(p->largest_key, set->entries[set->count - 1].key), 0);
  }
  CHECK_EQ(walk->tail.deletes.count, set->range_count);
  for (size_t i = 0; i < set->range_count; i++) {
    const struct range_fragment *got = &walk->tail.deletes.fragments[i], *wanted = &set->ranges[i];
    CHECK_EQ(compare_keys(got->begin, wanted->begin), 0);
    CHECK_EQ(got->end.data == NULL, wanted->end.data == NULL);
    CHECK_EQ(compare_keys(got->end, wanted->end), 0);
    CHECK_EQ(got->sequence_count, wanted->sequence_count);
    CHECK_MEM_EQ(got->sequences, wanted->sequences, got->sequence_count * sizeof *got->sequences);
  }
}

static void walk_extents(struct walk *walk) {
  uint64_t next_page = 1, block = 0, chunk = 0;
  size_t attribute_entry = 0;
  for (uint32_t i = 0; i < walk->tail.extent_count; i++) {
    const struct extent *extent = &walk->tail.extents[i];
    CHECK_EQ(extent->first_page, next_page); /* our writer leaves no gaps */
    next_page += extent->pages;
    switch (extent->kind) {
    case EXTENT_ROWS: check_rows(walk, extent, &block); break;
    case EXTENT_KEYS: check_keys(walk, extent); break;
    case EXTENT_ATTRIBUTES: check_attributes(walk, extent, &chunk, &attribute_entry); break;
    case EXTENT_FILTER: check_filters(walk, extent); break;
    default: break;
    }
  }
  CHECK_EQ(next_page, walk->limits.pages);
  CHECK_EQ(walk->entry, walk->set->count);
  CHECK_EQ(walk->index_page, walk->tail.top_count);
  CHECK_EQ(walk->hash_sum, walk->tail.properties.hash_sum);
  CHECK_EQ(walk->attribute_offset, walk->tail.properties.attribute_bytes);
}

void written_check(const uint8_t *file, size_t size, const struct written_set *set, const struct table_record *record) {
  turb_error err = TURB_ERROR_INIT;
  struct walk walk = {.file = file, .set = set};
  CHECK_EQ(size, record->size_bytes);
  CHECK_EQ(size % 4096, 0);
  CHECK_OK_ERR(codec_header_decode(file, size, "table", (const uint8_t *)"a database's id.", &walk.header, &err), &err);
  CHECK_EQ(walk.header.seed, record->seed);
  CHECK_EQ(walk.header.file_number, record->file_number);
  struct table_footer footer;
  struct codec_place place = place_at(&walk, size - 64);
  CHECK_OK_ERR(codec_footer_decode(file + size - 64, 64, &place, &footer, &err), &err);
  CHECK_EQ(footer.tail_offset, record->tail_offset);
  struct arena arena;
  arena_init(&arena, alloc_default(), NULL, BUDGET_JOB, 0);
  place.offset = footer.tail_offset;
  CHECK_OK_ERR(codec_tail_decode(file + footer.tail_offset, size - 64 - footer.tail_offset, &place, footer.tail_checksum,
                                 &walk.header.shape, &arena, &walk.tail, &err),
               &err);
  walk.limits = codec_limits_of(&walk.tail.properties, footer.tail_offset);
  const struct block_memory memory = {alloc_default(), NULL, BUDGET_JOB};
  CHECK_OK(block_decompressor_create(&memory, set->shape.type, set->shape.block_bytes, &walk.decompressor, &err));
  check_tail(&walk, record);
  walk_extents(&walk);
  block_decompressor_destroy(walk.decompressor);
  arena_free(&arena);
}
