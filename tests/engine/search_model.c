/* The model that searches are compared with: see search_model.h. */
#include "tests/engine/search_model.h"

#include <math.h>
#include <stdlib.h>

static turb_error err;

/* ---- keys and vectors ---- */

turb_bytes model_key(uint32_t number, char key[32]) {
  static const char *const groups[] = {"a", "ab", "b"};
  const int size = snprintf(key, 32, "%s%0*u", groups[number % 3], number % 5 ? 3 : 12, number / 3);
  return (turb_bytes){key, (size_t)size};
}

void model_vector(struct model *m, uint8_t *row) {
  const uint32_t dimension = m->shape.dimension;
  if (m->shape.type == TURB_BITS) {
    for (uint32_t i = 0; i < m->row_bytes; i++)
      row[i] = (uint8_t)random_u64(&m->random);
    if (dimension % 8)
      row[m->row_bytes - 1] &= (uint8_t)((1u << (dimension % 8)) - 1);
    return;
  }
  float values[MODEL_MAX_ROW];
  const bool zero = random_below(&m->random, 50) == 0; /* what cosine treats apart */
  for (uint32_t i = 0; i < dimension; i++) {
    const int value = (int)random_below(&m->random, 5) - (m->shape.type == TURB_U8 ? 0 : 2);
    values[i] = zero ? 0 : (float)value;
  }
  CHECK(vector_from_f32(m->shape.type, values, dimension, row) == SIZE_MAX);
}

/* ---- life ---- */

static void open_all(struct model *m, bool create) {
  CHECK_OK_ERR(turb_open(m->path, &m->options, &m->db, &err), &err);
  if (create)
    CHECK_OK_ERR(turb_collection_create(m->db, "c", &m->shape, &m->collection, &err), &err);
  else
    CHECK_OK_ERR(turb_collection_open(m->db, "c", &m->collection, &err), &err);
}

void model_open(struct model *m, const char *path, const turb_options *options, const turb_collection_options *shape, uint64_t seed) {
  *m = (struct model){.options = *options, .path = path, .shape = *shape, .keys = MODEL_KEYS};
  err = (turb_error)TURB_ERROR_INIT;
  random_init(&m->random, seed);
  m->row_bytes = (uint32_t)vector_row_bytes(shape->type, shape->dimension);
  CHECK_LE(m->row_bytes, MODEL_MAX_ROW);
  m->now = calloc(1, sizeof *m->now);
  for (size_t i = 0; i < MODEL_SNAPSHOTS; i++)
    m->then[i] = calloc(1, sizeof *m->then[i]);
  open_all(m, true);
}

static void release_snapshots(struct model *m) {
  for (size_t i = 0; i < MODEL_SNAPSHOTS; i++) {
    turb_snapshot_release(m->snapshots[i]);
    m->snapshots[i] = NULL;
  }
}

void model_reopen(struct model *m) {
  release_snapshots(m);
  CHECK_OK_ERR(turb_close(m->db, &err), &err);
  open_all(m, false);
}

void model_close(struct model *m) {
  release_snapshots(m);
  CHECK_OK_ERR(turb_close(m->db, &err), &err);
  free(m->now);
  for (size_t i = 0; i < MODEL_SNAPSHOTS; i++)
    free(m->then[i]);
}

/* ---- changes ---- */

void model_put(struct model *m, uint32_t number) {
  char key[32], attributes[64];
  struct model_entry *entry = &m->now->entries[number];
  turb_write_options options = TURB_WRITE_OPTIONS_INIT;
  options.durability = TURB_LOGGED;
  options.sequence = &entry->sequence;
  model_vector(m, entry->row);
  entry->there = true;
  entry->attribute = random_below(&m->random, 2) ? (uint32_t)random_below(&m->random, sizeof attributes) : 0;
  memset(attributes, (int)(number & 0x7f), sizeof attributes);
  CHECK_OK_ERR(turb_put(m->collection, model_key(number, key), (turb_bytes){entry->row, m->row_bytes},
                        (turb_bytes){attributes, entry->attribute}, &options, &err),
               &err);
}

void model_delete(struct model *m, uint32_t number) {
  char key[32];
  m->now->entries[number].there = false;
  CHECK_OK_ERR(turb_delete(m->collection, model_key(number, key), NULL, &err), &err);
}

static int compare(turb_bytes a, turb_bytes b) {
  const int order = memcmp(a.data, b.data, a.size < b.size ? a.size : b.size);
  return order ? order : (a.size > b.size) - (a.size < b.size);
}

static void delete_range(struct model *m) {
  char begin_text[32], end_text[32], text[32];
  turb_bytes begin = model_key((uint32_t)random_below(&m->random, m->keys), begin_text);
  turb_bytes end = model_key((uint32_t)random_below(&m->random, m->keys), end_text);
  if (compare(begin, end) > 0) {
    const turb_bytes swapped = begin;
    begin = end;
    end = swapped;
  }
  CHECK_OK_ERR(turb_delete_range(m->collection, begin, end, NULL, &err), &err);
  for (uint32_t i = 0; i < m->keys; i++) {
    const turb_bytes key = model_key(i, text);
    if (compare(begin, key) <= 0 && compare(key, end) < 0)
      m->now->entries[i].there = false;
  }
}

static void change_snapshot(struct model *m) {
  const size_t i = random_below(&m->random, MODEL_SNAPSHOTS);
  turb_snapshot_release(m->snapshots[i]);
  m->snapshots[i] = NULL;
  if (random_below(&m->random, 3) == 0)
    return;
  CHECK_OK_ERR(turb_snapshot_create(m->db, &m->snapshots[i], &err), &err);
  *m->then[i] = *m->now;
}

void model_step(struct model *m) {
  const uint64_t dice = random_below(&m->random, 1000);
  if (dice < 700)
    model_put(m, (uint32_t)random_below(&m->random, m->keys));
  else if (dice < 900)
    model_delete(m, (uint32_t)random_below(&m->random, m->keys));
  else if (dice < 930)
    delete_range(m);
  else if (dice < 960)
    change_snapshot(m);
  else if (dice < 990)
    CHECK_OK_ERR(turb_flush(m->db, m->collection, &err), &err);
  else if (dice < 994)
    CHECK_OK_ERR(turb_compact(m->db, m->collection, &err), &err);
  else if (dice < 997)
    model_reopen(m);
}

/* ---- brute force ---- */

struct wanted {
  uint32_t number;
  float distance;
};

static int by_distance(const void *a, const void *b) {
  const struct wanted *x = a, *y = b;
  if (x->distance != y->distance)
    return x->distance < y->distance ? -1 : 1;
  char one[32], other[32];
  return compare(model_key(x->number, one), model_key(y->number, other));
}

static bool keeps(void *context, turb_bytes key, uint64_t sequence) {
  const uint64_t *asked = context;
  (void)asked;
  const uint8_t *bytes = key.data;
  return (bytes[key.size - 1] + sequence) % 3 != 0;
}

static bool matches(const turb_search_options *o, turb_bytes key, uint64_t sequence, float distance) {
  if (o->has_radius && !(distance <= o->radius))
    return false;
  if (o->lower.size && compare(key, o->lower) < 0)
    return false;
  if (o->upper.size && compare(key, o->upper) >= 0)
    return false;
  if (o->prefix.size && (key.size < o->prefix.size || memcmp(key.data, o->prefix.data, o->prefix.size)))
    return false;
  return !o->filter || o->filter(o->filter_context, key, sequence);
}

static uint32_t brute_force(const struct model *m, const turb_search_options *o, const struct model_state *state, const uint8_t *query,
                            struct wanted *wanted) {
  static uint8_t scratch[MODEL_MAX_ROW * 8];
  struct kernel_query prepared;
  kernel_query_init(&prepared, kernel_choose(m->shape.metric, m->shape.type, KERNEL_AUTO), query, m->shape.dimension, scratch);
  uint32_t count = 0;
  for (uint32_t i = 0; i < m->keys; i++) {
    char key[32];
    const struct model_entry *entry = &state->entries[i];
    if (!entry->there)
      continue;
    const float distance = kernel_one(&prepared, entry->row);
    if (matches(o, model_key(i, key), entry->sequence, distance))
      wanted[count++] = (struct wanted){i, distance};
  }
  qsort(wanted, count, sizeof *wanted, by_distance);
  return count;
}

static void check_hit(const struct model *m, const turb_search_options *o, const struct model_state *state, const struct wanted *wanted,
                      const turb_hit *hit) {
  char text[32];
  const turb_bytes key = model_key(wanted->number, text);
  const struct model_entry *entry = &state->entries[wanted->number];
  CHECK_MSG(hit->key.size == key.size && !memcmp(hit->key.data, key.data, key.size), "%.*s instead of %.*s", (int)hit->key.size,
            (const char *)hit->key.data, (int)key.size, (const char *)key.data);
  CHECK_MEM_EQ(&hit->distance, &wanted->distance, sizeof hit->distance);
  CHECK_EQ(hit->sequence, entry->sequence);
  if (o->parts & TURB_VECTOR) {
    CHECK_EQ(hit->vector.size, m->row_bytes);
    CHECK_MEM_EQ(hit->vector.data, entry->row, m->row_bytes);
  } else {
    CHECK_EQ(hit->vector.size, 0);
  }
  CHECK_EQ(hit->attributes.size, o->parts & TURB_ATTRIBUTES ? entry->attribute : 0);
  for (size_t i = 0; i < hit->attributes.size; i++)
    CHECK_EQ(((const uint8_t *)hit->attributes.data)[i], wanted->number & 0x7f);
}

static void check_result(const struct model *m, const turb_search_options *o, const struct model_state *state, const uint8_t *query,
                         const turb_result *result) {
  static struct wanted wanted[MODEL_KEYS];
  const uint32_t k = o->k ? o->k : 10, all = brute_force(m, o, state, query, wanted);
  CHECK_EQ(turb_result_count(result), all < k ? all : k);
  for (uint32_t i = 0; i < turb_result_count(result); i++)
    check_hit(m, o, state, &wanted[i], turb_result_hit(result, i));
  turb_costs costs = {.size = sizeof costs};
  CHECK_OK(turb_result_costs(result, &costs, NULL));
  CHECK_EQ(costs.short_reason, all < k ? TURB_SHORT_FEW_MATCH : TURB_NOT_SHORT);
}

void model_check(struct model *m, turb_search_options options, const struct model_state *state, uint32_t queries) {
  static uint8_t vectors[64 * MODEL_MAX_ROW];
  turb_result *results[64] = {0};
  for (uint32_t q = 0; q < queries; q++)
    model_vector(m, vectors + (size_t)q * m->row_bytes);
  if (queries == 1)
    CHECK_OK_ERR(turb_search(m->collection, (turb_bytes){vectors, m->row_bytes}, &options, &results[0], &err), &err);
  else
    CHECK_OK_ERR(turb_search_batch(m->collection, queries, vectors, &options, results, &err), &err);
  for (uint32_t q = 0; q < queries; q++) {
    check_result(m, &options, state, vectors + (size_t)q * m->row_bytes, results[q]);
    turb_result_free(results[q]);
  }
}

void model_check_search(struct model *m) {
  static const uint32_t parts[] = {0, TURB_KEY, TURB_VECTOR, TURB_ATTRIBUTES, TURB_ALL};
  struct random *r = &m->random;
  char lower[32], upper[32];
  uint64_t asked = 0;
  turb_search_options o = TURB_SEARCH_OPTIONS_INIT;
  o.k = (uint32_t)random_below(r, 4) ? (uint32_t)random_below(r, 30) : (uint32_t)random_below(r, 2 * MODEL_KEYS);
  o.parts = parts[random_below(r, 5)];
  if (random_below(r, 4) == 0) {
    o.has_radius = true;
    o.radius = m->shape.metric == TURB_COSINE ? 0.8f : (float)m->shape.dimension;
  }
  if (random_below(r, 4) == 0)
    o.lower = model_key((uint32_t)random_below(r, m->keys), lower);
  if (random_below(r, 4) == 0)
    o.upper = model_key((uint32_t)random_below(r, m->keys), upper);
  if (random_below(r, 4) == 0)
    o.prefix = random_below(r, 2) ? TURB_STR("a") : TURB_STR("ab0");
  if (random_below(r, 4) == 0) {
    o.filter = keeps;
    o.filter_context = &asked;
  }
  const size_t s = random_below(r, 2 * MODEL_SNAPSHOTS);
  const bool then = s < MODEL_SNAPSHOTS && m->snapshots[s];
  if (then)
    o.snapshot = m->snapshots[s];
  model_check(m, o, then ? m->then[s] : m->now, random_below(r, 2) ? 1 : 2 + (uint32_t)random_below(r, 62));
}
