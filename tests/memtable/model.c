/* The model of a memtable; see model.h. */
#include "tests/memtable/model.h"

#include <stdlib.h>

#include "base/hash.h"
#include "tests/support/test.h"

void model_init(struct model *model, struct memtable *memtable, uint32_t row_bytes, enum model_keys keys) {
  *model = (struct model){.memtable = memtable, .row_bytes = row_bytes, .keys = keys};
}

void model_free(struct model *model) {
  for (size_t i = 0; i < model->count; i++) {
    free(model->entries[i].key);
    free(model->entries[i].attributes);
  }
  free(model->entries);
}

static size_t stems_key(struct random *random, uint8_t *out) {
  static const uint8_t letters[] = {0, 0, 1, 'a', 0xff};
  static const uint8_t stems[] = {0, 11, 30, 100};
  const size_t stem = stems[random_below(random, sizeof stems)];
  const size_t size = stem + random_between(random, 1, 12);
  memset(out, random_one_in(random, 2) ? 'p' : 0, stem);
  for (size_t i = stem; i < size; i++) {
    out[i] = letters[random_below(random, sizeof letters)];
  }
  return size;
}

size_t model_key(const struct model *model, struct random *random, uint8_t *out) {
  char digits[24];
  switch (model->keys) {
  case MODEL_SHORT: {
    const size_t size = random_between(random, 1, 4);
    for (size_t i = 0; i < size; i++) {
      out[i] = (uint8_t)random_below(random, 3);
    }
    return size;
  }
  case MODEL_RANDOM: random_fill(random, out, 16); return 16;
  case MODEL_DECIMAL: snprintf(digits, sizeof digits, "%016" PRIu64, random_below(random, 100000)); break;
  case MODEL_ASCENDING: snprintf(digits, sizeof digits, "%016" PRIu64, model->sequence * 3); break;
  case MODEL_DESCENDING: snprintf(digits, sizeof digits, "%016" PRIu64, 9999999999 - model->sequence * 7); break;
  case MODEL_STEMS: return stems_key(random, out);
  case MODEL_LONG: {
    const size_t size =
        random_one_in(random, 3) ? TURB_MAX_KEY_BYTES - random_below(random, 120) : random_between(random, 1, TURB_MAX_KEY_BYTES);
    memset(out, 'l', size);
    random_fill(random, out + size - 1, 1);
    return size;
  }
  case MODEL_KINDS: break;
  }
  memcpy(out, digits, 16);
  return 16;
}

void model_row(uint64_t sequence, uint32_t row_bytes, uint8_t *out) {
  struct random random;
  random_init(&random, sequence);
  random_fill(&random, out, row_bytes);
}

static size_t lower_bound(const struct model *model, turb_bytes key, uint64_t sequence) {
  size_t low = 0;
  size_t high = model->count;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    const struct model_entry *entry = &model->entries[middle];
    const int order = key_compare(entry->key, entry->key_size, key.data, key.size);
    if (order < 0 || (order == 0 && entry->sequence > sequence)) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

static void *copy_of(turb_bytes bytes) {
  void *copy = malloc(bytes.size + 1);
  CHECK(copy != NULL);
  if (bytes.size != 0) {
    memcpy(copy, bytes.data, bytes.size);
  }
  return copy;
}

static void remember(struct model *model, turb_bytes key, bool is_put, turb_bytes attributes) {
  if (model->count == model->capacity) {
    model->capacity = model->capacity * 2 + 64;
    model->entries = realloc(model->entries, model->capacity * sizeof *model->entries);
    CHECK(model->entries != NULL);
  }
  const size_t at = lower_bound(model, key, model->sequence);
  memmove(&model->entries[at + 1], &model->entries[at], (model->count - at) * sizeof *model->entries);
  model->entries[at] = (struct model_entry){.key = copy_of(key),
                                            .key_size = key.size,
                                            .sequence = model->sequence,
                                            .is_put = is_put,
                                            .row = model->rows,
                                            .attributes = attributes.size != 0 ? copy_of(attributes) : NULL,
                                            .attribute_size = attributes.size};
  model->count++;
  model->rows += is_put;
}

turb_status model_put(struct model *model, turb_bytes key, bool is_put, turb_bytes attributes, turb_error *err) {
  const uint64_t sequence = model->sequence + 1;
  turb_status status;
  if (is_put) {
    uint8_t *row = malloc(model->row_bytes);
    CHECK(row != NULL);
    model_row(sequence, model->row_bytes, row);
    const uint32_t attribute_hash = attributes.size != 0 ? (uint32_t)hash64(attributes.data, attributes.size, 0) : 0;
    status = memtable_put(model->memtable, key, sequence, row, hash64(row, model->row_bytes, 0), attributes, attribute_hash, err);
    free(row);
  } else {
    status = memtable_delete(model->memtable, key, sequence, err);
  }
  if (status == TURB_OK) {
    model->sequence = sequence;
    remember(model, key, is_put, attributes);
  }
  return status;
}

turb_status model_step(struct model *model, struct random *random, size_t attribute_most, turb_error *err) {
  uint8_t key[TURB_MAX_KEY_BYTES];
  const size_t key_size = model_key(model, random, key);
  size_t attribute_size = 0;
  if (attribute_most != 0 && !random_one_in(random, 3)) {
    attribute_size = random_one_in(random, 20) ? random_below(random, attribute_most + 1) : random_below(random, attribute_most / 50 + 1);
  }
  uint8_t *attributes = malloc(attribute_size + 1);
  CHECK(attributes != NULL);
  random_fill(random, attributes, attribute_size);
  const bool is_put = !random_one_in(random, 5);
  const turb_status status =
      model_put(model, (turb_bytes){key, key_size}, is_put, is_put ? (turb_bytes){attributes, attribute_size} : TURB_NONE, err);
  free(attributes);
  return status;
}

static void check_entry(const struct model *model, const struct slot *slot, const struct model_entry *entry, uint8_t *row) {
  CHECK_EQ(slot->key_size, entry->key_size);
  CHECK_MEM_EQ(slot_key(slot), entry->key, entry->key_size);
  CHECK_EQ(slot_sequence(slot), entry->sequence);
  CHECK_EQ(slot_kind(slot), entry->is_put ? SLOT_PUT : SLOT_DELETE);
  CHECK_EQ(slot_row(slot), entry->row);
  CHECK_EQ(slot_attribute_size(slot), entry->attribute_size);
  CHECK_EQ((uintptr_t)slot_page_of(slot) % SLOT_PAGE_BYTES, 0);
  CHECK_LE((const uint8_t *)(slot + 1) - (const uint8_t *)slot_page_of(slot), SLOT_PAGE_BYTES);
  if (entry->attribute_size != 0) {
    CHECK_MEM_EQ(memtable_attributes(model->memtable, slot), entry->attributes, entry->attribute_size);
    CHECK_EQ(slot->attribute_hash, (uint32_t)hash64(entry->attributes, entry->attribute_size, 0));
  } else {
    CHECK_EQ(slot->attribute_hash, 0);
  }
  if (entry->is_put) {
    CHECK(memtable_row_slot(model->memtable, entry->row) == slot);
    model_row(entry->sequence, model->row_bytes, row);
    CHECK_MEM_EQ(memtable_row(model->memtable, entry->row), row, model->row_bytes);
    CHECK_EQ(slot->row_hash, hash64(row, model->row_bytes, 0));
  } else {
    CHECK_EQ(slot->row_hash, 0);
  }
}

void model_check(const struct model *model) {
  const struct memtable *memtable = model->memtable;
  uint8_t *row = malloc(model->row_bytes);
  CHECK(row != NULL);
  CHECK(memtable_valid(memtable));
  CHECK_EQ(memtable_entries(memtable), model->count);
  CHECK_EQ(memtable_rows(memtable), model->rows);
  const struct memtable_node *node = memtable_first(memtable);
  for (size_t i = 0; i < model->count; i++) {
    CHECK(node != NULL);
    check_entry(model, memtable_node_slot(node), &model->entries[i], row);
    node = memtable_next(node);
  }
  CHECK(node == NULL);
  node = memtable_last(memtable);
  for (size_t i = model->count; i-- != 0;) {
    CHECK(node != NULL);
    CHECK_EQ(slot_sequence(memtable_node_slot(node)), model->entries[i].sequence);
    node = memtable_previous(memtable, node);
  }
  CHECK(node == NULL);
  free(row);
}

static void check_node(const struct model *model, const struct memtable_node *node, size_t index) {
  if (index >= model->count) { /* also the one before the first */
    CHECK(node == NULL);
    return;
  }
  CHECK(node != NULL);
  CHECK_EQ(slot_sequence(memtable_node_slot(node)), model->entries[index].sequence);
}

void model_check_lookups(const struct model *model, struct random *random, size_t count) {
  for (size_t i = 0; i < count; i++) {
    uint8_t key[TURB_MAX_KEY_BYTES];
    size_t size = model_key(model, random, key);
    uint64_t sequence = random_below(random, model->sequence + 2);
    if (model->count != 0 && random_one_in(random, 2)) {
      const struct model_entry *entry = &model->entries[random_below(random, model->count)];
      size = entry->key_size;
      memcpy(key, entry->key, size);
      sequence = random_one_in(random, 2) ? entry->sequence + random_below(random, 3) - 1 : sequence;
    }
    if (random_one_in(random, 8)) {
      size = random_below(random, size + 1);
    }
    sequence = random_one_in(random, 8) ? SLOT_SEQUENCE_MAX : sequence;
    const turb_bytes target = {key, size};
    const size_t at = lower_bound(model, target, sequence);
    check_node(model, memtable_lower_bound(model->memtable, target, sequence), at);
    check_node(model, memtable_before(model->memtable, target, sequence), at - 1);
    const struct slot *got = memtable_get(model->memtable, target, sequence);
    const bool found = at < model->count && key_equal(model->entries[at].key, model->entries[at].key_size, key, size);
    CHECK_EQ(got != NULL, found);
    if (found) {
      CHECK_EQ(slot_sequence(got), model->entries[at].sequence);
    }
  }
}
