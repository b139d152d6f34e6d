/* The ground of the tests: see world.h. */
#include "tests/system/world.h"

#include <stdlib.h>

uint64_t world_random(struct world *world, uint64_t below) {
  world->rng.state += UINT64_C(0x9e3779b97f4a7c15);
  uint64_t x = world->rng.state;
  x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
  x ^= x >> 31;
  return below ? x % below : x;
}

/* ---- keys and values ---- */

static int by_bytes(const void *a, const void *b) {
  const struct world_key *x = a, *y = b;
  const int c = memcmp(x->bytes, y->bytes, x->size < y->size ? x->size : y->size);
  return c ? c : (x->size > y->size) - (x->size < y->size);
}

static void make_key(struct world *world, struct world_key *key, size_t number) {
  size_t size = 1 + world_random(world, 40);
  if (world_random(world, 100) == 0)
    size = 3000 + world_random(world, 1000);
  char text[32];
  const int n = snprintf(text, sizeof text, "%zx", number * 2654435761u % 1000003);
  if (size < (size_t)n)
    size = (size_t)n; /* distinct for distinct numbers */
  key->bytes = malloc(size);
  key->size = size;
  const uint8_t fill = world_random(world, 3) ? 'a' : 0xff;
  memset(key->bytes, fill, size);
  memcpy(key->bytes, text, (size_t)n);
}

void world_init(struct world *world, uint64_t seed, size_t key_count, uint32_t dimension) {
  memset(world, 0, sizeof *world);
  world->options = (turb_options)TURB_OPTIONS_INIT;
  world->rng.state = seed;
  world->key_count = key_count;
  world->dimension = dimension;
  world->next_value = 1;
  for (int c = 0; c < WORLD_COLLECTIONS; c++) {
    struct world_collection *collection = &world->collections[c];
    collection->keys = calloc(key_count, sizeof *collection->keys);
    for (size_t k = 0; k < key_count; k++)
      make_key(world, &collection->keys[k], k);
    qsort(collection->keys, key_count, sizeof *collection->keys, by_bytes);
  }
}

void world_free(struct world *world) {
  for (int c = 0; c < WORLD_COLLECTIONS; c++) {
    for (size_t k = 0; k < world->key_count; k++) {
      free(world->collections[c].keys[k].bytes);
      free(world->collections[c].keys[k].versions);
    }
    free(world->collections[c].keys);
  }
}

size_t world_vector_bytes(const struct world *world) {
  return world->dimension * sizeof(float);
}

void world_vector(const struct world *world, uint64_t value, float *vector) {
  for (uint32_t i = 0; i < world->dimension; i++)
    vector[i] = (float)((value * 31 + i * 7) % 1009) - 500.0f;
}

size_t world_attributes(uint64_t value, uint8_t *bytes) {
  const size_t size = value % 7 == 0 ? 0 : value % 97 == 0 ? 4000 : value % 50;
  for (size_t i = 0; i < size; i++)
    bytes[i] = (uint8_t)(value + i);
  return size;
}

/* ---- the model ---- */

uint64_t world_expected(const struct world_collection *collection, size_t key, uint64_t sequence, uint64_t *at) {
  const struct world_key *k = &collection->keys[key];
  for (size_t i = k->count; i-- > 0;)
    if (k->versions[i].sequence <= sequence) {
      if (at)
        *at = k->versions[i].sequence;
      return k->versions[i].value;
    }
  if (at)
    *at = 0;
  return 0;
}

void world_record(struct world_collection *collection, size_t key, uint64_t sequence, uint64_t value) {
  struct world_key *k = &collection->keys[key];
  if (k->count == k->capacity) {
    k->capacity = k->capacity ? k->capacity * 2 : 4;
    k->versions = realloc(k->versions, k->capacity * sizeof *k->versions);
  }
  k->versions[k->count++] = (struct world_version){sequence, value};
}

void world_forget_after(struct world *world, uint64_t sequence) {
  for (int c = 0; c < WORLD_COLLECTIONS; c++)
    for (size_t k = 0; k < world->key_count; k++) {
      struct world_key *key = &world->collections[c].keys[k];
      while (key->count && key->versions[key->count - 1].sequence > sequence)
        key->count--;
    }
  world->sequence = sequence;
}

void world_apply(struct world *world, const struct world_pending *pending) {
  for (size_t i = 0; i < pending->count; i++) {
    world->sequence++;
    for (size_t k = pending->changes[i].first; k < pending->changes[i].last; k++)
      world_record(&world->collections[pending->changes[i].collection], k, world->sequence, pending->changes[i].value);
  }
}

/* ---- opening ---- */

turb_status world_open(struct world *world, turb_error *err) {
  static const char *names[WORLD_COLLECTIONS] = {"first", "second"};
  turb_status status = turb_open(world->path, &world->options, &world->db, err);
  for (int c = 0; c < WORLD_COLLECTIONS && status == TURB_OK; c++) {
    turb_error why = TURB_ERROR_INIT;
    status = turb_collection_open(world->db, names[c], &world->collections[c].handle, &why);
    if (status != TURB_NOT_FOUND) {
      if (status != TURB_OK && err)
        *err = why;
      continue;
    }
    turb_collection_options options = TURB_COLLECTION_OPTIONS_INIT;
    options.dimension = world->dimension;
    options.compression = world->compression;
    status = turb_collection_create(world->db, names[c], &options, &world->collections[c].handle, err);
  }
  if (status != TURB_OK && world->db) {
    turb_error ignored = TURB_ERROR_INIT;
    (void)!turb_close(world->db, &ignored);
    world->db = NULL;
  }
  return status;
}

void world_close(struct world *world) {
  while (world->snapshot_count)
    world_drop_snapshot(world);
  turb_error err = TURB_ERROR_INIT;
  const turb_status status = turb_close(world->db, &err);
  CHECK_MSG(status != TURB_BUSY, "close: %s", err.message);
  world->db = NULL;
}

void world_take_snapshot(struct world *world) {
  if (world->snapshot_count == 8)
    world_drop_snapshot(world);
  struct world_snapshot *s = &world->snapshots[world->snapshot_count];
  turb_error err = TURB_ERROR_INIT;
  CHECK_OK_ERR(turb_snapshot_create(world->db, &s->handle, &err), &err);
  s->sequence = turb_snapshot_sequence(s->handle);
  CHECK_EQ(s->sequence, world->sequence);
  world->snapshot_count++;
}

void world_drop_snapshot(struct world *world) {
  if (!world->snapshot_count)
    return;
  const size_t i = world_random(world, world->snapshot_count);
  turb_snapshot_release(world->snapshots[i].handle);
  world->snapshots[i] = world->snapshots[--world->snapshot_count];
}

/* ---- writes ---- */

static turb_bytes key_of(const struct world *world, uint32_t collection, size_t key) {
  return (turb_bytes){world->collections[collection].keys[key].bytes, world->collections[collection].keys[key].size};
}

static void add_change(struct world_pending *pending, uint32_t collection, size_t first, size_t last, uint64_t value) {
  pending->changes[pending->count].collection = collection;
  pending->changes[pending->count].first = first;
  pending->changes[pending->count].last = last;
  pending->changes[pending->count].value = value;
  pending->count++;
}

static turb_status write_batch(struct world *world, const turb_write_options *options, struct world_pending *pending, float *vector,
                               uint8_t *attributes, turb_error *err) {
  turb_batch *batch;
  turb_status status = turb_batch_create(world->db, &batch, err);
  if (status != TURB_OK)
    return status;
  const size_t n = 1 + world_random(world, 12);
  for (size_t i = 0; i < n && status == TURB_OK; i++) {
    const uint32_t c = (uint32_t)world_random(world, WORLD_COLLECTIONS);
    const size_t k = world_random(world, world->key_count);
    if (world_random(world, 4)) {
      const uint64_t value = world->next_value++;
      world_vector(world, value, vector);
      const size_t size = world_attributes(value, attributes);
      status = turb_batch_put(batch, world->collections[c].handle, key_of(world, c, k), (turb_bytes){vector, world_vector_bytes(world)},
                              (turb_bytes){attributes, size}, err);
      add_change(pending, c, k, k + 1, value);
    } else {
      status = turb_batch_delete(batch, world->collections[c].handle, key_of(world, c, k), err);
      add_change(pending, c, k, k + 1, 0);
    }
  }
  if (status == TURB_OK)
    status = turb_write(world->db, batch, options, err);
  else
    pending->count = 0;
  turb_batch_free(batch);
  return status;
}

static turb_status write_conditional(struct world *world, enum world_write kind, uint32_t c, size_t k, const turb_write_options *options,
                                     struct world_pending *pending, float *vector, uint8_t *attributes, turb_error *err) {
  uint64_t at;
  const uint64_t now = world_expected(&world->collections[c], k, world->sequence, &at);
  turb_collection *handle = world->collections[c].handle;
  turb_status status, wanted;
  uint64_t value = world->next_value++;
  world_vector(world, value, vector);
  size_t size = world_attributes(value, attributes);
  const turb_bytes row = {vector, world_vector_bytes(world)};
  if (kind == WORLD_IF_ABSENT) {
    wanted = now ? TURB_CONFLICT : TURB_OK;
    status = turb_put_if_absent(handle, key_of(world, c, k), row, (turb_bytes){attributes, size}, options, err);
  } else if (kind == WORLD_IF_SEQUENCE) {
    const bool right = world_random(world, 2);
    wanted = now && right ? TURB_OK : TURB_CONFLICT;
    status =
        turb_put_if_sequence(handle, key_of(world, c, k), row, (turb_bytes){attributes, size}, right ? at : at + 1000000, options, err);
  } else {
    /* The vector stays, so the value keeps it: the model knows attributes by value alone. */
    value = now;
    size = world_attributes(value, attributes);
    wanted = now ? TURB_OK : TURB_NOT_FOUND;
    status = turb_update_attributes(handle, key_of(world, c, k), (turb_bytes){attributes, size}, options, err);
  }
  if (wanted == TURB_OK)
    add_change(pending, c, k, k + 1, value);
  if (status != TURB_OK && status == wanted) {
    if (err)
      *err = (turb_error)TURB_ERROR_INIT;
    return TURB_OK;
  }
  CHECK_MSG(status == wanted || (status != TURB_OK && status != TURB_CONFLICT && status != TURB_NOT_FOUND), "conditional write: %s, not %s",
            turb_status_name(status), turb_status_name(wanted));
  return status;
}

turb_status world_write(struct world *world, turb_durability durability, struct world_pending *pending, turb_error *err) {
  float vector[64];
  uint8_t attributes[4096];
  pending->count = 0;
  turb_write_options options = TURB_WRITE_OPTIONS_INIT;
  options.durability = durability;
  uint64_t sequence = 0;
  options.sequence = &sequence;
  const uint64_t dice = world_random(world, 100);
  const enum world_write kind = dice < 50   ? WORLD_PUT
                                : dice < 65 ? WORLD_DELETE
                                : dice < 69 ? WORLD_DELETE_RANGE
                                : dice < 85 ? WORLD_BATCH
                                : dice < 90 ? WORLD_IF_ABSENT
                                : dice < 95 ? WORLD_IF_SEQUENCE
                                            : WORLD_ATTRIBUTES;
  const uint32_t c = (uint32_t)world_random(world, WORLD_COLLECTIONS);
  const size_t k = world_random(world, world->key_count);
  turb_collection *handle = world->collections[c].handle;
  turb_status status = TURB_OK;
  if (kind == WORLD_PUT) {
    const uint64_t value = world->next_value++;
    world_vector(world, value, vector);
    const size_t size = world_attributes(value, attributes);
    add_change(pending, c, k, k + 1, value);
    status = turb_put(handle, key_of(world, c, k), (turb_bytes){vector, world_vector_bytes(world)}, (turb_bytes){attributes, size},
                      &options, err);
  } else if (kind == WORLD_DELETE) {
    add_change(pending, c, k, k + 1, 0);
    status = turb_delete(handle, key_of(world, c, k), &options, err);
  } else if (kind == WORLD_DELETE_RANGE) {
    size_t last = k + world_random(world, 30);
    const bool open = last >= world->key_count;
    if (open)
      last = world->key_count;
    add_change(pending, c, k, last, 0);
    status = turb_delete_range(handle, key_of(world, c, k), open ? TURB_NONE : key_of(world, c, last), &options, err);
  } else if (kind == WORLD_BATCH) {
    status = write_batch(world, &options, pending, vector, attributes, err);
  } else {
    status = write_conditional(world, kind, c, k, &options, pending, vector, attributes, err);
  }
  if (status == TURB_OK && pending->count) {
    world_apply(world, pending);
    CHECK_EQ(sequence, world->sequence);
  }
  return status;
}

/* ---- comparing ---- */

/* Whether an entry is what the model has for this value. */
static bool entry_is(const struct world *world, uint64_t value, uint64_t at, turb_bytes vector, turb_bytes attributes, uint64_t sequence) {
  float wanted[64];
  uint8_t bytes[4096];
  world_vector(world, value, wanted);
  const size_t size = world_attributes(value, bytes);
  return sequence == at && vector.size == world_vector_bytes(world) && !memcmp(vector.data, wanted, vector.size) &&
         attributes.size == size && (!size || !memcmp(attributes.data, bytes, size));
}

/* Whether a walk over all entries in one direction meets what the model has. `status` tells an I/O error apart. */
static bool scan_matches(struct world *world, uint32_t c, const turb_snapshot *snapshot, uint64_t sequence, bool backward, bool streaming) {
  turb_iterator_options options = TURB_ITERATOR_OPTIONS_INIT;
  options.snapshot = snapshot;
  options.streaming = streaming;
  turb_iterator *it;
  turb_error err = TURB_ERROR_INIT;
  CHECK_OK_ERR(turb_iterator_open(world->collections[c].handle, &options, &it, &err), &err);
  bool good = true;
  turb_state state = turb_finish(it, backward ? turb_last(it) : turb_first(it));
  for (size_t i = 0; i < world->key_count && good; i++) {
    const size_t k = backward ? world->key_count - 1 - i : i;
    uint64_t at;
    const uint64_t value = world_expected(&world->collections[c], k, sequence, &at);
    if (!value)
      continue;
    const struct world_key *key = &world->collections[c].keys[k];
    good = state == TURB_READY && it->entry->key.size == key->size && !memcmp(it->entry->key.data, key->bytes, key->size) &&
           entry_is(world, value, at, it->entry->vector, it->entry->attributes, it->entry->sequence);
    if (good)
      state = backward ? turb_prev(it) : turb_next(it);
  }
  good = good && state == TURB_END;
  if (state == TURB_FAILED) {
    (void)!turb_iterator_status(it, &err);
    FAIL("scan: %s", err.message);
  }
  turb_iterator_close(it);
  return good;
}

bool world_matches(struct world *world) {
  for (uint32_t c = 0; c < WORLD_COLLECTIONS; c++)
    if (!scan_matches(world, c, NULL, world->sequence, false, false))
      return false;
  return true;
}

static void check_one_get(struct world *world, uint32_t c, size_t k, const turb_snapshot *snapshot, uint64_t sequence) {
  turb_read_options options = TURB_READ_OPTIONS_INIT;
  options.snapshot = snapshot;
  turb_pinned pinned;
  turb_error err = TURB_ERROR_INIT;
  uint64_t at;
  const uint64_t value = world_expected(&world->collections[c], k, sequence, &at);
  const turb_status status = turb_get_pinned(world->collections[c].handle, key_of(world, c, k), &options, &pinned, &err);
  if (!value) {
    CHECK_STATUS_ERR(status, TURB_NOT_FOUND, &err);
    return;
  }
  CHECK_OK_ERR(status, &err);
  CHECK(entry_is(world, value, at, pinned.vector, pinned.attributes, pinned.sequence));
  turb_pinned_release(&pinned);
}

void world_check_get(struct world *world) {
  const uint32_t c = (uint32_t)world_random(world, WORLD_COLLECTIONS);
  const struct world_snapshot *s =
      world->snapshot_count && world_random(world, 2) ? &world->snapshots[world_random(world, world->snapshot_count)] : NULL;
  if (world_random(world, 4)) {
    check_one_get(world, c, world_random(world, world->key_count), s ? s->handle : NULL, s ? s->sequence : world->sequence);
    return;
  }
  enum { MANY = 40 };
  turb_bytes keys[MANY];
  size_t numbers[MANY];
  turb_pinned pinned[MANY];
  turb_status statuses[MANY];
  const size_t count = 1 + world_random(world, MANY);
  for (size_t i = 0; i < count; i++) {
    numbers[i] = world_random(world, world->key_count);
    keys[i] = key_of(world, c, numbers[i]);
  }
  turb_read_options options = TURB_READ_OPTIONS_INIT;
  options.snapshot = s ? s->handle : NULL;
  turb_error err = TURB_ERROR_INIT;
  CHECK_OK_ERR(turb_multi_get(world->collections[c].handle, count, keys, &options, pinned, statuses, &err), &err);
  for (size_t i = 0; i < count; i++) {
    uint64_t at;
    const uint64_t value = world_expected(&world->collections[c], numbers[i], s ? s->sequence : world->sequence, &at);
    CHECK_EQ(statuses[i], value ? TURB_OK : TURB_NOT_FOUND);
    if (value)
      CHECK(entry_is(world, value, at, pinned[i].vector, pinned[i].attributes, pinned[i].sequence));
    turb_pinned_release(&pinned[i]);
  }
}

void world_check(struct world *world) {
  for (uint32_t c = 0; c < WORLD_COLLECTIONS; c++) {
    CHECK_MSG(scan_matches(world, c, NULL, world->sequence, false, false), "forward scan of %u differs", c);
    CHECK_MSG(scan_matches(world, c, NULL, world->sequence, true, false), "backward scan of %u differs", c);
    CHECK_MSG(scan_matches(world, c, NULL, world->sequence, false, true), "streaming scan of %u differs", c);
    for (size_t i = 0; i < world->snapshot_count; i++) {
      CHECK_MSG(scan_matches(world, c, world->snapshots[i].handle, world->snapshots[i].sequence, false, false),
                "scan of %u at a snapshot differs", c);
      CHECK_MSG(scan_matches(world, c, world->snapshots[i].handle, world->snapshots[i].sequence, true, false),
                "backward scan of %u at a snapshot differs", c);
    }
  }
}

/* ---- walking ---- */

struct walk {
  struct world *world;
  uint32_t c;
  uint64_t sequence;
  size_t low, high; /* keys in bounds */
};

/* The next key from `from` on (inclusive) that is visible, or -1. */
static ptrdiff_t visible_from(const struct walk *walk, ptrdiff_t from, int step) {
  for (ptrdiff_t k = from; k >= (ptrdiff_t)walk->low && k < (ptrdiff_t)walk->high; k += step)
    if (world_expected(&walk->world->collections[walk->c], (size_t)k, walk->sequence, NULL))
      return k;
  return -1;
}

static void check_position(const struct walk *walk, const turb_iterator *it, turb_state state, ptrdiff_t wanted) {
  if (state == TURB_FAILED) {
    turb_error err = TURB_ERROR_INIT;
    (void)!turb_iterator_status(it, &err);
    FAIL("walk: %s", err.message);
  }
  if (wanted < 0) {
    CHECK_EQ(state, TURB_END);
    return;
  }
  CHECK_EQ(state, TURB_READY);
  const struct world_collection *collection = &walk->world->collections[walk->c];
  const struct world_key *key = &collection->keys[wanted];
  CHECK_EQ(it->entry->key.size, key->size);
  CHECK_MEM_EQ(it->entry->key.data, key->bytes, key->size);
  uint64_t at;
  const uint64_t value = world_expected(collection, (size_t)wanted, walk->sequence, &at);
  CHECK(entry_is(walk->world, value, at, it->entry->vector, it->entry->attributes, it->entry->sequence));
}

void world_walk(struct world *world) {
  struct walk walk = {
      .world = world, .c = (uint32_t)world_random(world, WORLD_COLLECTIONS), .sequence = world->sequence, .high = world->key_count};
  turb_iterator_options options = TURB_ITERATOR_OPTIONS_INIT;
  if (world->snapshot_count && world_random(world, 2)) {
    const struct world_snapshot *s = &world->snapshots[world_random(world, world->snapshot_count)];
    options.snapshot = s->handle;
    walk.sequence = s->sequence;
  }
  options.streaming = world_random(world, 4) == 0;
  options.skip_cache_fill = world_random(world, 4) == 0;
  if (world_random(world, 3) == 0)
    options.work_budget = 1 + (uint32_t)world_random(world, 50);
  if (world_random(world, 2)) {
    walk.low = world_random(world, world->key_count);
    options.lower = key_of(world, walk.c, walk.low);
  }
  if (world_random(world, 2)) {
    walk.high = walk.low + world_random(world, world->key_count - walk.low);
    options.upper = key_of(world, walk.c, walk.high);
  }
  turb_iterator *it;
  turb_error err = TURB_ERROR_INIT;
  CHECK_OK_ERR(turb_iterator_open(world->collections[walk.c].handle, &options, &it, &err), &err);
  ptrdiff_t at = -1;
  for (int i = 0; i < 30; i++) {
    const uint64_t move = at < 0 ? world_random(world, 4) : world_random(world, 12);
    const size_t k = world_random(world, world->key_count);
    if (move == 0) {
      at = visible_from(&walk, (ptrdiff_t)walk.low, 1);
      check_position(&walk, it, turb_finish(it, turb_first(it)), at);
    } else if (move == 1) {
      at = visible_from(&walk, (ptrdiff_t)walk.high - 1, -1);
      check_position(&walk, it, turb_finish(it, turb_last(it)), at);
    } else if (move == 2) {
      at = visible_from(&walk, (ptrdiff_t)(k < walk.low ? walk.low : k), 1);
      check_position(&walk, it, turb_finish(it, turb_seek(it, key_of(world, walk.c, k))), at);
    } else if (move == 3) {
      at = visible_from(&walk, (ptrdiff_t)(k >= walk.high ? walk.high : k + 1) - 1, -1);
      check_position(&walk, it, turb_finish(it, turb_seek_for_prev(it, key_of(world, walk.c, k))), at);
    } else if (move < 9) {
      at = visible_from(&walk, at + 1, 1);
      check_position(&walk, it, turb_next(it), at);
    } else {
      at = visible_from(&walk, at - 1, -1);
      check_position(&walk, it, turb_prev(it), at);
    }
  }
  turb_iterator_close(it);
}
