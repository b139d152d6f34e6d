/* Answers (search.h): a heap becomes a result that depends on nothing else: hits, keys, vectors and attributes in one block.
 *
 *   block: turb_hit x count | vectors, 64-aligned, at the row bytes rounded up to 16 | keys | attributes
 *
 * Parts are brought once the hits are known, RESULT_LOADS reads at a time. */
#include <string.h>

#include "engine/search.h"

#define RESULT_LOADS 64u

struct turb_result {
  turb_db *db;
  turb_hit *hits; /* in `block` */
  size_t count;
  void *block;
  size_t block_bytes;
  turb_costs costs;
};

/* ---- parts ---- */

struct part_load {
  struct load *load; /* made when it is first needed */
  uint8_t *to;
  size_t bytes;
  bool busy;
};

struct parts_reader {
  struct search *search;
  struct part_load loads[RESULT_LOADS];
  uint32_t busy;
};

/* Takes what has arrived. */
static turb_status take_arrived(struct parts_reader *reader, turb_error *err) {
  for (uint32_t i = 0; i < RESULT_LOADS && reader->busy; i++) {
    struct part_load *part = &reader->loads[i];
    if (!part->busy || load_state(part->load) == LOAD_WAITING)
      continue;
    part->busy = false;
    reader->busy--;
    if (load_state(part->load) == LOAD_FAILED)
      return load_error(part->load, err);
    memcpy(part->to, load_data(part->load, NULL), part->bytes);
    load_reset(part->load);
  }
  return TURB_OK;
}

static turb_status wait_for_parts(struct parts_reader *reader, uint32_t most, turb_error *err) {
  turb_status status = TURB_OK;
  while (reader->busy > most && status == TURB_OK) {
    status = take_arrived(reader, err);
    if (status == TURB_OK && reader->busy > most)
      status = reads_wait(&reader->search->reads, err);
  }
  return status;
}

static turb_status free_load(struct parts_reader *reader, struct part_load **out, turb_error *err) {
  *out = NULL;
  turb_status status = wait_for_parts(reader, RESULT_LOADS - 1, err);
  if (status != TURB_OK)
    return status;
  struct part_load *part = reader->loads;
  while (part->busy)
    part++;
  if (!part->load)
    status = load_create(&reader->search->reads, reader->search->memory.allocator, &part->load, err);
  *out = part;
  return status;
}

/* A load was started for the part. */
static turb_status begun(struct parts_reader *reader, struct part_load *part, void *to, size_t bytes, turb_error *err) {
  part->to = to;
  part->bytes = bytes;
  part->busy = true;
  reader->busy++;
  return load_state(part->load) == LOAD_WAITING ? TURB_OK : take_arrived(reader, err);
}

static turb_status read_vector(struct parts_reader *reader, const struct search_found *found, void *to, turb_error *err) {
  const uint32_t bytes = reader->search->collection->shape.row_bytes;
  if (found->source->memtable) {
    memcpy(to, memtable_row(found->source->memtable, found->row), bytes);
    return TURB_OK;
  }
  struct part_load *part;
  const turb_status status = free_load(reader, &part, err);
  if (status != TURB_OK)
    return status;
  (void)load_row(part->load, found->source->table, found->row, found->row_hash, LOAD_POINT | LOAD_FILL_CACHE);
  return begun(reader, part, to, bytes, err);
}

static turb_status read_attributes(struct parts_reader *reader, const struct search_found *found, void *to, turb_error *err) {
  if (found->source->memtable) { /* the offset is their address (memtable.h) */
    memcpy(to, (const void *)(uintptr_t)found->attribute_offset, found->attribute_size);
    return TURB_OK;
  }
  struct part_load *part;
  const turb_status status = free_load(reader, &part, err);
  if (status != TURB_OK)
    return status;
  (void)load_attribute(part->load, found->source->table, found->attribute_offset, found->attribute_size, found->attribute_hash,
                       LOAD_POINT | LOAD_FILL_CACHE);
  return begun(reader, part, to, found->attribute_size, err);
}

static turb_status read_parts(struct parts_reader *reader, const struct search_heap *heap, turb_result *result, turb_error *err) {
  turb_status status = TURB_OK;
  for (size_t i = 0; i < result->count && status == TURB_OK; i++) {
    const struct search_found *found = &heap->found[heap->items[i].found];
    const turb_hit *hit = &result->hits[i];
    if (hit->vector.size)
      status = read_vector(reader, found, (void *)(uintptr_t)hit->vector.data, err);
    if (hit->attributes.size && status == TURB_OK)
      status = read_attributes(reader, found, (void *)(uintptr_t)hit->attributes.data, err);
  }
  return status == TURB_OK ? wait_for_parts(reader, 0, err) : status;
}

static turb_status bring_parts(struct search *s, const struct search_heap *heap, turb_result *result, turb_error *err) {
  struct parts_reader reader = {.search = s};
  const turb_status status = read_parts(&reader, heap, result, err);
  for (uint32_t i = 0; i < RESULT_LOADS; i++)
    load_destroy(reader.loads[i].load);
  return status;
}

/* ---- making ---- */

static size_t align_up(size_t bytes, size_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

/* Lays the block out and fills all but the parts' bytes. */
static turb_status lay_out(struct search *s, struct search_heap *heap, turb_result *result, turb_error *err) {
  const uint32_t parts = s->options.parts, row_bytes = s->collection->shape.row_bytes;
  const size_t stride = parts & TURB_VECTOR ? align_up(row_bytes, 16) : 0;
  const size_t vectors_at = align_up(result->count * sizeof(turb_hit), 64), keys_at = vectors_at + result->count * stride;
  size_t key_bytes = 0, attribute_bytes = 0;
  for (size_t i = 0; i < result->count; i++) {
    const struct search_found *found = &heap->found[heap->items[i].found];
    key_bytes += found->key.size;
    attribute_bytes += parts & TURB_ATTRIBUTES ? found->attribute_size : 0;
  }
  result->block_bytes = keys_at + key_bytes + attribute_bytes;
  if (!result->block_bytes)
    return TURB_OK;
  const turb_status status = search_take(&s->memory, result->block_bytes, &result->block, err);
  if (status != TURB_OK)
    return status;
  uint8_t *block = result->block, *key_to = block + keys_at, *attributes_to = key_to + key_bytes;
  result->hits = result->block;
  for (size_t i = 0; i < result->count; i++) {
    const struct search_found *found = &heap->found[heap->items[i].found];
    const turb_bytes key = search_heap_key(heap, found);
    memcpy(key_to, key.data, key.size);
    turb_hit *hit = &result->hits[i];
    *hit = (turb_hit){.key = {key_to, key.size}, .sequence = found->sequence, .distance = heap->items[i].distance};
    key_to += key.size;
    if (stride)
      hit->vector = (turb_bytes){block + vectors_at + i * stride, row_bytes};
    if (parts & TURB_ATTRIBUTES && found->attribute_size) {
      hit->attributes = (turb_bytes){attributes_to, found->attribute_size};
      attributes_to += found->attribute_size;
    }
  }
  return TURB_OK;
}

turb_status search_result_make(struct search *s, uint32_t query, turb_result **out, turb_error *err) {
  *out = NULL;
  struct search_heap *heap = &s->heaps[query];
  turb_result *result = mem_alloc_zeroed(&s->db->allocator, sizeof *result);
  if (!result)
    return status_set(err, TURB_NO_MEMORY, "no memory for a result");
  result->db = s->db;
  result->count = heap->count;
  result->costs = (turb_costs){.size = sizeof result->costs,
                               .distances = s->rows,
                               .rows_streamed = s->rows_streamed,
                               .hidden = heap->hidden,
                               .filtered = heap->filtered,
                               .short_reason = heap->count < heap->k ? TURB_SHORT_FEW_MATCH : TURB_NOT_SHORT};
  atomic_fetch_add_explicit(&s->db->live_results, 1, memory_order_relaxed);
  search_heap_sort(heap);
  turb_status status = lay_out(s, heap, result, err);
  if (status == TURB_OK && s->options.parts & (TURB_VECTOR | TURB_ATTRIBUTES))
    status = bring_parts(s, heap, result, err);
  result->costs.bytes_read = s->reads.bytes;
  search_heap_free(heap, &s->memory);
  if (status != TURB_OK) {
    turb_result_free(result);
    return status;
  }
  *out = result;
  return TURB_OK;
}

/* ---- the public calls ---- */

void turb_result_free(turb_result *result) {
  if (!result)
    return;
  turb_db *db = result->db;
  const struct search_memory memory = {&db->allocator, &db->budget};
  search_give(&memory, result->block, result->block_bytes);
  mem_free(&db->allocator, result, sizeof *result);
  atomic_fetch_sub_explicit(&db->live_results, 1, memory_order_release);
}

size_t turb_result_count(const turb_result *result) {
  return result->count;
}

const turb_hit *turb_result_hit(const turb_result *result, size_t index) {
  return index < result->count ? &result->hits[index] : NULL;
}

turb_status turb_result_costs(const turb_result *result, turb_costs *costs, turb_error *err) {
  return options_write(&result->costs, sizeof result->costs, costs, "turb_costs", err);
}
