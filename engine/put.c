/* engine/put: the public writes: what is given is checked, coded as a batch, and handed to the queue of writers. */
#include "engine/get.h"
#include "engine/write.h"
#include "index/kernels/convert.h"

struct turb_batch {
  turb_db *db;
  struct batch operations;
};

/* ---- checks ---- */

static turb_status check_key(const turb_collection *c, turb_bytes key, turb_error *err) {
  if (!key.size || !key.data)
    return status_set(err, TURB_INVALID, "%s: the key is empty", c->name);
  if (key.size <= TURB_MAX_KEY_BYTES)
    return TURB_OK;
  return status_set(err, TURB_TOO_LARGE, "%s: the key has %zu bytes, and must have at most %d", c->name, key.size, TURB_MAX_KEY_BYTES);
}

static turb_status check_attributes(const turb_collection *c, turb_bytes attributes, turb_error *err) {
  if (attributes.size <= TURB_MAX_ATTRIBUTE_BYTES)
    return TURB_OK;
  return status_set(err, TURB_TOO_LARGE, "%s: the attributes have %zu bytes, and must have at most %u", c->name, attributes.size,
                    TURB_MAX_ATTRIBUTE_BYTES);
}

turb_status write_check_vector(const turb_collection *c, turb_bytes vector, turb_error *err) {
  if (vector.size != c->shape.row_bytes || !vector.data)
    return status_set(err, TURB_INVALID, "%s: the vector has %zu bytes, and must have %u (dimension %u)", c->name, vector.size,
                      c->shape.row_bytes, c->shape.dimension);
  const size_t bad = vector_first_nonfinite(c->shape.type, vector.data, c->shape.dimension);
  if (bad != SIZE_MAX)
    return status_set(err, TURB_INVALID, "%s: component %zu of the vector is not finite", c->name, bad);
  if (c->shape.type == TURB_BITS && c->shape.dimension % 8) {
    const uint8_t unused = (uint8_t)(0xff << (c->shape.dimension % 8));
    if (((const uint8_t *)vector.data)[vector.size - 1] & unused)
      return status_set(err, TURB_INVALID, "%s: bits above dimension %u are set in the vector's last byte", c->name, c->shape.dimension);
  }
  return TURB_OK;
}

static turb_status check_put(const turb_collection *c, turb_bytes key, turb_bytes vector, turb_bytes attributes, turb_error *err) {
  turb_status status = check_key(c, key, err);
  if (status == TURB_OK)
    status = write_check_vector(c, vector, err);
  if (status == TURB_OK)
    status = check_attributes(c, attributes, err);
  return status;
}

static turb_status check_range(const turb_collection *c, turb_bytes begin, turb_bytes end, turb_error *err) {
  if (begin.size > TURB_MAX_KEY_BYTES || end.size > TURB_MAX_KEY_BYTES)
    return status_set(err, TURB_TOO_LARGE, "%s: a bound has more than %d bytes", c->name, TURB_MAX_KEY_BYTES);
  if (end.size && key_compare(begin.data, begin.size, end.data, end.size) > 0)
    return status_set(err, TURB_INVALID, "%s: the range ends before it begins", c->name);
  return TURB_OK;
}

static turb_status read_options(const turb_db *db, const turb_write_options *given, turb_write_options *options, turb_error *err) {
  turb_status status = options_read(given, options, sizeof *options, "turb_write_options", err);
  if (status != TURB_OK)
    return status;
  if (!options->durability)
    options->durability = db->options.durability;
  if (options->durability < TURB_DURABLE || options->durability > TURB_UNLOGGED)
    return status_set(err, TURB_INVALID, "durability is %d, and must be from %d to %d", (int)options->durability, TURB_DURABLE,
                      TURB_UNLOGGED);
  if (options->sequence)
    *options->sequence = 0;
  return TURB_OK;
}

/* What every write of one collection begins with. */
static turb_status begin_write(turb_collection *c, const turb_write_options *given, turb_write_options *options, turb_error *err) {
  turb_status status = db_check_readable(c, err);
  if (status == TURB_OK)
    status = db_check_writable(c->db, err);
  if (status == TURB_OK)
    status = read_options(c->db, given, options, err);
  return status;
}

/* ---- handing over ---- */

static turb_status submit(turb_db *db, const struct batch *batch, const turb_write_options *options, turb_error *err) {
  struct writer writer = {.batch = batch, .durability = options->durability};
  const turb_status status = write_submit(db, &writer, err);
  if (status == TURB_OK && options->sequence)
    *options->sequence = writer.first_sequence + batch_count(batch) - 1;
  return status;
}

turb_status turb_put(turb_collection *c, turb_bytes key, turb_bytes vector, turb_bytes attributes, const turb_write_options *given,
                     turb_error *err) {
  turb_write_options options;
  turb_status status = begin_write(c, given, &options, err);
  if (status == TURB_OK)
    status = check_put(c, key, vector, attributes, err);
  if (status != TURB_OK)
    return status;
  struct batch batch;
  batch_init(&batch, &c->db->allocator);
  status = batch_put(&batch, c->id, key, vector, attributes, err);
  if (status == TURB_OK)
    status = submit(c->db, &batch, &options, err);
  batch_free(&batch);
  return status;
}

turb_status turb_delete(turb_collection *c, turb_bytes key, const turb_write_options *given, turb_error *err) {
  turb_write_options options;
  turb_status status = begin_write(c, given, &options, err);
  if (status == TURB_OK)
    status = check_key(c, key, err);
  if (status != TURB_OK)
    return status;
  struct batch batch;
  batch_init(&batch, &c->db->allocator);
  status = batch_delete(&batch, c->id, key, err);
  if (status == TURB_OK)
    status = submit(c->db, &batch, &options, err);
  batch_free(&batch);
  return status;
}

turb_status turb_delete_range(turb_collection *c, turb_bytes begin, turb_bytes end, const turb_write_options *given, turb_error *err) {
  turb_write_options options;
  turb_status status = begin_write(c, given, &options, err);
  if (status == TURB_OK)
    status = check_range(c, begin, end, err);
  if (status != TURB_OK)
    return status;
  struct batch batch;
  batch_init(&batch, &c->db->allocator);
  status = batch_delete_range(&batch, c->id, begin, end, err);
  if (status == TURB_OK)
    status = submit(c->db, &batch, &options, err);
  batch_free(&batch);
  return status;
}

/* ---- writes that read first ---- */

enum condition { IF_ABSENT, IF_SEQUENCE, IF_PRESENT };

struct conditional {
  turb_collection *collection;
  turb_bytes key, vector, attributes; /* IF_PRESENT: the vector is the one that is there */
  enum condition condition;
  uint64_t expected;
  struct batch batch;
};

static turb_status judge_condition(const struct conditional *self, turb_status found, uint64_t sequence, turb_error *err) {
  const char *name = self->collection->name;
  switch (self->condition) {
  case IF_ABSENT:
    if (found == TURB_NOT_FOUND)
      return TURB_OK;
    return status_set(err, TURB_CONFLICT, "%s: the key is there, at sequence %llu", name, (unsigned long long)sequence);
  case IF_SEQUENCE:
    if (found == TURB_OK && sequence == self->expected)
      return TURB_OK;
    if (found == TURB_NOT_FOUND)
      return status_set(err, TURB_CONFLICT, "%s: the key is not there; expected sequence %llu", name, (unsigned long long)self->expected);
    return status_set(err, TURB_CONFLICT, "%s: the key is at sequence %llu; expected %llu", name, (unsigned long long)sequence,
                      (unsigned long long)self->expected);
  case IF_PRESENT: return found == TURB_OK ? TURB_OK : status_set(err, TURB_NOT_FOUND, "%s: the key is not there", name);
  }
  return status_set(err, TURB_INVALID, "condition %d", (int)self->condition);
}

/* Under leadership: nobody writes between the reading and the writing. */
static turb_status prepare_conditional(void *context, turb_error *err) {
  struct conditional *self = context;
  struct read_view view;
  turb_status status = read_view_open(self->collection, NULL, &view, err);
  if (status != TURB_OK)
    return status;
  turb_pinned pinned = {0};
  turb_error why = TURB_ERROR_INIT;
  const uint32_t parts = self->condition == IF_PRESENT ? TURB_KEY | TURB_VECTOR : TURB_KEY;
  const turb_status found = get_pinned(&view, self->key, parts, true, &pinned, &why);
  if (found == TURB_OK || found == TURB_NOT_FOUND)
    status = judge_condition(self, found, pinned.sequence, err);
  else
    status = status_copy(err, &why);
  if (status == TURB_OK)
    status = batch_put(&self->batch, self->collection->id, self->key, self->condition == IF_PRESENT ? pinned.vector : self->vector,
                       self->attributes, err);
  turb_pinned_release(&pinned);
  read_view_release(&view);
  return status;
}

static turb_status submit_conditional(struct conditional *self, const turb_write_options *given, turb_error *err) {
  turb_write_options options;
  turb_status status = begin_write(self->collection, given, &options, err);
  if (status == TURB_OK)
    status = self->condition == IF_PRESENT ? check_key(self->collection, self->key, err)
                                           : check_put(self->collection, self->key, self->vector, self->attributes, err);
  if (status == TURB_OK)
    status = check_attributes(self->collection, self->attributes, err);
  if (status != TURB_OK)
    return status;
  turb_db *db = self->collection->db;
  batch_init(&self->batch, &db->allocator);
  struct writer writer = {.batch = &self->batch, .durability = options.durability, .prepare = prepare_conditional, .context = self};
  status = write_submit(db, &writer, err);
  if (status == TURB_OK && options.sequence)
    *options.sequence = writer.first_sequence;
  batch_free(&self->batch);
  return status;
}

turb_status turb_put_if_absent(turb_collection *collection, turb_bytes key, turb_bytes vector, turb_bytes attributes,
                               const turb_write_options *options, turb_error *err) {
  struct conditional self = {.collection = collection, .key = key, .vector = vector, .attributes = attributes, .condition = IF_ABSENT};
  return submit_conditional(&self, options, err);
}

turb_status turb_put_if_sequence(turb_collection *collection, turb_bytes key, turb_bytes vector, turb_bytes attributes, uint64_t expected,
                                 const turb_write_options *options, turb_error *err) {
  struct conditional self = {
      .collection = collection, .key = key, .vector = vector, .attributes = attributes, .condition = IF_SEQUENCE, .expected = expected};
  return submit_conditional(&self, options, err);
}

turb_status turb_update_attributes(turb_collection *collection, turb_bytes key, turb_bytes attributes, const turb_write_options *options,
                                   turb_error *err) {
  struct conditional self = {.collection = collection, .key = key, .attributes = attributes, .condition = IF_PRESENT};
  return submit_conditional(&self, options, err);
}

/* ---- batches ---- */

turb_status turb_batch_create(turb_db *db, turb_batch **out, turb_error *err) {
  *out = NULL;
  turb_batch *batch = mem_alloc_zeroed(&db->allocator, sizeof *batch);
  if (!batch)
    return status_set(err, TURB_NO_MEMORY, "no memory for a batch");
  batch->db = db;
  batch_init(&batch->operations, &db->allocator);
  atomic_fetch_add(&db->live_batches, 1);
  *out = batch;
  return TURB_OK;
}

void turb_batch_free(turb_batch *batch) {
  if (!batch)
    return;
  turb_db *db = batch->db;
  batch_free(&batch->operations);
  mem_free(&db->allocator, batch, sizeof *batch);
  atomic_fetch_sub(&db->live_batches, 1);
}

void turb_batch_clear(turb_batch *batch) {
  batch_clear(&batch->operations);
}
size_t turb_batch_count(const turb_batch *batch) {
  return batch_count(&batch->operations);
}

static turb_status check_member(const turb_batch *batch, turb_collection *c, turb_error *err) {
  const turb_status status = db_check_readable(c, err);
  if (status != TURB_OK || c->db == batch->db)
    return status;
  return status_set(err, TURB_INVALID, "%s is a collection of another database than the batch", c->name);
}

turb_status turb_batch_put(turb_batch *batch, turb_collection *c, turb_bytes key, turb_bytes vector, turb_bytes attributes,
                           turb_error *err) {
  turb_status status = check_member(batch, c, err);
  if (status == TURB_OK)
    status = check_put(c, key, vector, attributes, err);
  return status == TURB_OK ? batch_put(&batch->operations, c->id, key, vector, attributes, err) : status;
}

turb_status turb_batch_delete(turb_batch *batch, turb_collection *c, turb_bytes key, turb_error *err) {
  turb_status status = check_member(batch, c, err);
  if (status == TURB_OK)
    status = check_key(c, key, err);
  return status == TURB_OK ? batch_delete(&batch->operations, c->id, key, err) : status;
}

turb_status turb_batch_delete_range(turb_batch *batch, turb_collection *c, turb_bytes begin, turb_bytes end, turb_error *err) {
  turb_status status = check_member(batch, c, err);
  if (status == TURB_OK)
    status = check_range(c, begin, end, err);
  return status == TURB_OK ? batch_delete_range(&batch->operations, c->id, begin, end, err) : status;
}

turb_status turb_write(turb_db *db, turb_batch *batch, const turb_write_options *given, turb_error *err) {
  turb_write_options options;
  turb_status status = db_check_writable(db, err);
  if (status == TURB_OK)
    status = read_options(db, given, &options, err);
  if (status != TURB_OK)
    return status;
  if (batch->db != db)
    return status_set(err, TURB_INVALID, "the batch is another database's");
  if (!batch_count(&batch->operations))
    return TURB_OK;
  return submit(db, &batch->operations, &options, err);
}

/* ---- sync ---- */

static turb_status prepare_sync(void *context, turb_error *err) {
  return write_sync_log(context, err);
}

turb_status turb_sync(turb_db *db, turb_error *err) {
  const turb_status status = db_check_writable(db, err);
  if (status != TURB_OK)
    return status;
  struct writer writer = {.prepare = prepare_sync, .context = db, .durability = TURB_UNLOGGED};
  return write_submit(db, &writer, err);
}
