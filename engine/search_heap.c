/* The best k of a query (search.h). Items of 8 bytes are heaped; what they stand for stays where it is, in `found`, and is written over
 * when a better one takes its
 * place. Keys lie one behind the other in a buffer that is copied without those that left when it is full. */
#include <string.h>

#include "engine/search.h"

#define FIRST_CAPACITY  16u
#define FIRST_KEY_BYTES 256u

turb_status search_take(const struct search_memory *memory, size_t bytes, void **taken, turb_error *err) {
  *taken = NULL;
  if (!budget_take(memory->budget, BUDGET_SEARCH, bytes))
    return status_set(err, TURB_BUDGET, "the memory budget does not hold %zu bytes for a search", bytes);
  *taken = mem_alloc_aligned(memory->allocator, bytes, 64);
  if (*taken)
    return TURB_OK;
  budget_give(memory->budget, BUDGET_SEARCH, bytes);
  return status_set(err, TURB_NO_MEMORY, "no memory for %zu bytes of a search", bytes);
}

void search_give(const struct search_memory *memory, void *taken, size_t bytes) {
  if (!taken)
    return;
  mem_free(memory->allocator, taken, bytes);
  budget_give(memory->budget, BUDGET_SEARCH, bytes);
}

void search_heap_init(struct search_heap *heap, uint32_t k, float limit) {
  *heap = (struct search_heap){.k = k, .threshold = limit};
}

void search_heap_free(struct search_heap *heap, const struct search_memory *memory) {
  search_give(memory, heap->items, heap->capacity * sizeof *heap->items);
  search_give(memory, heap->found, heap->capacity * sizeof *heap->found);
  search_give(memory, heap->keys, heap->key_capacity);
  heap->items = NULL;
  heap->found = NULL;
  heap->keys = NULL;
  heap->count = heap->capacity = 0;
}

/* ---- order ---- */

static bool is_worse(const struct search_heap *heap, struct search_heap_item a, struct search_heap_item b) {
  if (a.distance != b.distance)
    return a.distance > b.distance;
  const turb_bytes ka = search_heap_key(heap, &heap->found[a.found]), kb = search_heap_key(heap, &heap->found[b.found]);
  return key_compare(ka.data, ka.size, kb.data, kb.size) > 0;
}

static void sift_up(struct search_heap *heap, uint32_t at) {
  const struct search_heap_item item = heap->items[at];
  while (at) {
    const uint32_t parent = (at - 1) / 2;
    if (!is_worse(heap, item, heap->items[parent]))
      break;
    heap->items[at] = heap->items[parent];
    at = parent;
  }
  heap->items[at] = item;
}

static void sift_down(struct search_heap *heap, uint32_t at, uint32_t count) {
  const struct search_heap_item item = heap->items[at];
  for (uint32_t child = 2 * at + 1; child < count; child = 2 * at + 1) {
    if (child + 1 < count && is_worse(heap, heap->items[child + 1], heap->items[child]))
      child++;
    if (!is_worse(heap, heap->items[child], item))
      break;
    heap->items[at] = heap->items[child];
    at = child;
  }
  heap->items[at] = item;
}

bool search_heap_wants(const struct search_heap *heap, float distance, turb_bytes key) {
  if (!(distance <= heap->threshold))
    return false;
  if (heap->count < heap->k || distance < heap->items[0].distance)
    return true;
  const turb_bytes worst = search_heap_key(heap, &heap->found[heap->items[0].found]);
  return key_compare(key.data, key.size, worst.data, worst.size) < 0;
}

void search_heap_sort(struct search_heap *heap) {
  for (uint32_t left = heap->count; left > 1; left--) {
    const struct search_heap_item worst = heap->items[0];
    heap->items[0] = heap->items[left - 1];
    sift_down(heap, 0, left - 1);
    heap->items[left - 1] = worst;
  }
}

/* ---- room ---- */

static turb_status grow(struct search_heap *heap, const struct search_memory *memory, turb_error *err) {
  if (heap->count < heap->capacity)
    return TURB_OK;
  uint32_t capacity = heap->capacity ? heap->capacity * 2 : FIRST_CAPACITY;
  if (capacity > heap->k)
    capacity = heap->k;
  void *items, *found;
  turb_status status = search_take(memory, capacity * sizeof *heap->items, &items, err);
  if (status != TURB_OK)
    return status;
  status = search_take(memory, capacity * sizeof *heap->found, &found, err);
  if (status != TURB_OK) {
    search_give(memory, items, capacity * sizeof *heap->items);
    return status;
  }
  if (heap->count) {
    memcpy(items, heap->items, heap->count * sizeof *heap->items);
    memcpy(found, heap->found, heap->count * sizeof *heap->found);
  }
  search_give(memory, heap->items, heap->capacity * sizeof *heap->items);
  search_give(memory, heap->found, heap->capacity * sizeof *heap->found);
  heap->items = items;
  heap->found = found;
  heap->capacity = capacity;
  return TURB_OK;
}

/* Room for one more key: without `leaving` (an index, or UINT32_MAX), what is kept fills at most half of the new buffer. */
static turb_status grow_keys(struct search_heap *heap, const struct search_memory *memory, size_t bytes, uint32_t leaving,
                             turb_error *err) {
  if (heap->key_end + bytes <= heap->key_capacity)
    return TURB_OK;
  const size_t gone = leaving == UINT32_MAX ? 0 : heap->found[leaving].key.size;
  const size_t wanted = 2 * (heap->key_live - gone + bytes);
  const size_t capacity = wanted < FIRST_KEY_BYTES ? FIRST_KEY_BYTES : wanted;
  void *taken;
  const turb_status status = search_take(memory, capacity, &taken, err);
  if (status != TURB_OK)
    return status;
  uint8_t *keys = taken;
  size_t end = 0;
  for (uint32_t i = 0; i < heap->count; i++) {
    struct search_found *found = &heap->found[i];
    if (i == leaving)
      continue;
    memcpy(keys + end, heap->keys + found->key_at, found->key.size);
    found->key_at = end;
    end += found->key.size;
  }
  search_give(memory, heap->keys, heap->key_capacity);
  heap->keys = keys;
  heap->key_capacity = capacity;
  heap->key_end = end;
  heap->key_live = end + gone;
  return TURB_OK;
}

turb_status search_heap_put(struct search_heap *heap, const struct search_memory *memory, float distance, const struct search_found *found,
                            turb_error *err) {
  const bool full = heap->count == heap->k;
  const uint32_t leaving = full ? heap->items[0].found : UINT32_MAX;
  turb_status status = full ? TURB_OK : grow(heap, memory, err);
  if (status == TURB_OK)
    status = grow_keys(heap, memory, found->key.size, leaving, err);
  if (status != TURB_OK)
    return status;
  const uint32_t place = full ? leaving : heap->count;
  if (full)
    heap->key_live -= heap->found[place].key.size;
  heap->found[place] = *found;
  heap->found[place].key = (turb_bytes){NULL, found->key.size};
  heap->found[place].key_at = heap->key_end;
  memcpy(heap->keys + heap->key_end, found->key.data, found->key.size);
  heap->key_end += found->key.size;
  heap->key_live += found->key.size;
  const struct search_heap_item item = {distance, place};
  if (full) {
    heap->items[0] = item;
    sift_down(heap, 0, heap->count);
  } else {
    heap->items[heap->count] = item;
    sift_up(heap, heap->count++);
  }
  if (heap->count == heap->k)
    heap->threshold = heap->items[0].distance;
  return TURB_OK;
}
