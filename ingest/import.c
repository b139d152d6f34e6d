/*
 * turb_import and turb_import_describe: rows of a file become writes of a collection.
 *
 * A file is read in chunks of whole rows, each row is converted and put into a batch, and each full batch is
 * written. Memory: one chunk of at most CHUNK_BYTES (or one row), one row of the converter and its floats,
 * all charged to the database's budget, beside what the batch itself holds.
 *
 * Durability: where the database's writes are durable, batches are only logged and one sync at the end makes all of them
 * durable, so that the call's return acknowledges what it says and costs one sync, not one a batch. A call that ends
 * early syncs what it wrote as well.
 *
 * Invariants
 *   1. rows_done counts rows whose batch was acknowledged; they are a prefix of the part asked for.
 *   2. Each error that has a row names it.
 *
 * Threads: one call works on its calling thread alone; any number of them may run.
 */
#include <endian.h>
#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#include "base/budget.h"
#include "engine/db.h"
#include "engine/options.h"
#include "ingest/convert.h"
#include "ingest/labels.h"
#include "ingest/reader.h"

#define CHUNK_BYTES         (2u << 20)
#define DEFAULT_BATCH_ROWS  256u
#define DEFAULT_BATCH_BYTES (4u << 20) /* fewer rows than the default where they are long */
#define MAX_BATCH_ROWS      65536u
#define NUMBER_BYTES        8

struct import {
  turb_db *db;
  turb_collection *collection;
  turb_collection_info info;
  turb_import_options options; /* with defaults filled in */
  const char *path;
  struct ingest_reader reader;
  struct ingest_converter converter;
  struct ingest_labels labels;
  bool has_labels;
  turb_batch *batch;
  uint8_t *chunk;
  size_t chunk_bytes;
  size_t chunk_rows;
  uint64_t charged_bytes;
  uint64_t rows_total; /* of the part */
  uint64_t rows_done;  /* written */
  uint8_t key[TURB_MAX_KEY_BYTES];
  turb_error *err;
};

/* ---- options ---- */

static turb_status import_check_options(struct import *import) {
  turb_import_options *options = &import->options;
  if (options->key_prefix.size > TURB_MAX_KEY_BYTES - NUMBER_BYTES) {
    return status_set(import->err, TURB_TOO_LARGE, "option key_prefix: %zu bytes, at most %d are possible", options->key_prefix.size,
                      TURB_MAX_KEY_BYTES - NUMBER_BYTES);
  }
  if (options->batch_rows > MAX_BATCH_ROWS) {
    return status_set(import->err, TURB_INVALID, "option batch_rows: %" PRIu32 " is not in 1 to %u", options->batch_rows, MAX_BATCH_ROWS);
  }
  if (options->batch_rows == 0) {
    const uint32_t fitting = DEFAULT_BATCH_BYTES / import->info.row_bytes;
    options->batch_rows = fitting < 1 ? 1 : fitting > DEFAULT_BATCH_ROWS ? DEFAULT_BATCH_ROWS : fitting;
  }
  return TURB_OK;
}

/* The part of the file that is asked for. */
static turb_status import_check_part(struct import *import) {
  const turb_import_options *options = &import->options;
  const uint64_t rows = import->reader.layout.rows;
  if (options->first_row > rows || options->rows > rows - options->first_row) {
    return status_set_file(import->err, TURB_INVALID, import->path, STATUS_NO_OFFSET,
                           "options first_row %" PRIu64 " and rows %" PRIu64 " pass the file's %" PRIu64 " rows", options->first_row,
                           options->rows, rows);
  }
  import->rows_total = options->rows != 0 ? options->rows : rows - options->first_row;
  if (import->rows_total != 0 && options->first_key > UINT64_MAX - (import->rows_total - 1)) {
    return status_set(import->err, TURB_INVALID, "option first_key: %" PRIu64 " and %" PRIu64 " rows pass 2^64", options->first_key,
                      import->rows_total);
  }
  return TURB_OK;
}

/* ---- set-up ---- */

static turb_status import_take_memory(struct import *import) {
  const size_t stride = ingest_reader_stride(&import->reader);
  const size_t fitting = CHUNK_BYTES / stride;
  import->chunk_rows = fitting < 1 ? 1 : fitting;
  if (import->chunk_rows > import->rows_total) {
    import->chunk_rows = (size_t)import->rows_total;
  }
  import->chunk_bytes = import->chunk_rows * stride;
  const uint64_t bytes = import->chunk_bytes + ingest_converter_bytes(&import->reader.layout, import->info.type);
  if (!budget_take(&import->db->budget, BUDGET_INGEST, bytes)) {
    return status_set(import->err, TURB_BUDGET, "import needs %" PRIu64 " bytes for a chunk of %zu rows; the budget has %" PRIu64 " left",
                      bytes, import->chunk_rows, budget_available(&import->db->budget));
  }
  import->charged_bytes = bytes;
  import->chunk = mem_alloc(&import->db->allocator, import->chunk_bytes);
  if (import->chunk == NULL) {
    return status_set(import->err, TURB_NO_MEMORY, "no memory for a chunk of %zu rows", import->chunk_rows);
  }
  return ingest_converter_init(&import->db->allocator, &import->reader.layout, &import->info, &import->converter, import->err);
}

static turb_status import_open_labels(struct import *import) {
  const char *path = import->options.labels_path;
  if (path == NULL) {
    return TURB_OK;
  }
  if (import->reader.format != &ingest_format_idx) {
    return status_set_file(import->err, TURB_INVALID, import->path, STATUS_NO_OFFSET,
                           "option labels_path: labels go with idx files, this one is %s", import->reader.format->name);
  }
  import->has_labels = true;
  return ingest_labels_open(&import->db->allocator, path, import->reader.layout.rows, &import->labels, import->err);
}

/* A dimension that differs is told before anything is charged or read. */
static turb_status import_open(struct import *import, const turb_import_options *options) {
  import->info.size = sizeof import->info;
  turb_status status = turb_collection_describe(import->collection, &import->info, import->err);
  if (status == TURB_OK) {
    status = options_read(options, &import->options, sizeof import->options, "turb_import_options", import->err);
  }
  if (status == TURB_OK) {
    status = import_check_options(import);
  }
  if (status == TURB_OK) {
    status = ingest_reader_open(&import->db->allocator, import->path, import->options.format, &import->reader, import->err);
  }
  if (status == TURB_OK && import->reader.layout.dimension != 0) { /* an empty fvecs file has none */
    status = ingest_converter_check(&import->reader.layout, &import->info, import->path, import->err);
  }
  if (status == TURB_OK) {
    status = import_check_part(import);
  }
  if (status == TURB_OK) {
    status = import_open_labels(import);
  }
  if (status == TURB_OK && import->rows_total != 0) {
    status = import_take_memory(import);
  }
  if (status == TURB_OK) {
    status = turb_batch_create(import->db, &import->batch, import->err);
  }
  return status;
}

static void import_close(struct import *import) {
  turb_batch_free(import->batch);
  ingest_labels_close(&import->labels);
  ingest_converter_free(&import->converter);
  mem_free(&import->db->allocator, import->chunk, import->chunk_bytes);
  budget_give(&import->db->budget, BUDGET_INGEST, import->charged_bytes);
  ingest_reader_close(&import->reader);
}

/* ---- rows ---- */

static turb_status import_refuse_component(struct import *import, uint64_t row, const uint8_t *raw, size_t component) {
  const struct ingest_converter *converter = &import->converter;
  return status_set_file(import->err, TURB_INVALID, import->path,
                         ingest_reader_row_offset(&import->reader, row) + component * ingest_element_bytes(converter->element),
                         "row %" PRIu64 ": component %zu is %g, which %s cannot hold", row, component,
                         ingest_component(converter->element, converter->swap, raw, component), ingest_type_name(converter->type));
}

/* The write call's own error, with the row that it lacks. */
static turb_status import_name_row(struct import *import, uint64_t row, const turb_error *cause) {
  if (cause->status == TURB_INVALID) {
    return status_set_file(import->err, cause->status, import->path, ingest_reader_row_offset(&import->reader, row), "row %" PRIu64 ": %s",
                           row, cause->message);
  }
  return status_copy(import->err, cause);
}

/* raw: the row's components; row: its number in the file. */
static turb_status import_add_row(struct import *import, uint64_t row, const uint8_t *raw) {
  size_t component = 0;
  const void *vector = ingest_convert_row(&import->converter, raw, &component);
  if (vector == NULL) {
    return import_refuse_component(import, row, raw, component);
  }
  char label[INGEST_LABEL_TEXT_BYTES];
  turb_bytes attributes = TURB_NONE;
  if (import->has_labels) {
    const turb_status status = ingest_labels_get(&import->labels, row, label, &attributes.size, import->err);
    if (status != TURB_OK) {
      return status;
    }
    attributes.data = label;
  }
  const size_t prefix = import->options.key_prefix.size;
  const uint64_t number = htobe64(import->options.first_key + (row - import->options.first_row));
  memcpy(import->key + prefix, &number, sizeof number);
  turb_error cause = TURB_ERROR_INIT;
  const turb_status status = turb_batch_put(import->batch, import->collection, (turb_bytes){import->key, prefix + NUMBER_BYTES},
                                            (turb_bytes){vector, import->info.row_bytes}, attributes, &cause);
  return status == TURB_OK ? TURB_OK : import_name_row(import, row, &cause);
}

static turb_status import_write_batch(struct import *import) {
  const size_t count = turb_batch_count(import->batch);
  if (count == 0) {
    return TURB_OK;
  }
  turb_write_options options = TURB_WRITE_OPTIONS_INIT;
  options.durability = import->db->options.durability == TURB_DURABLE ? TURB_LOGGED : import->db->options.durability;
  const turb_status status = turb_write(import->db, import->batch, &options, import->err);
  if (status != TURB_OK) {
    return status;
  }
  turb_batch_clear(import->batch);
  import->rows_done += count;
  if (import->options.progress != NULL &&
      !import->options.progress(import->options.progress_context, import->rows_done, import->rows_total)) {
    return status_set(import->err, TURB_CANCELLED, "import cancelled after %" PRIu64 " of %" PRIu64 " rows", import->rows_done,
                      import->rows_total);
  }
  return TURB_OK;
}

/* count rows of the part, from its row `first` on. */
static turb_status import_chunk(struct import *import, uint64_t first, size_t count) {
  const size_t stride = ingest_reader_stride(&import->reader);
  const uint64_t row = import->options.first_row + first;
  turb_status status = ingest_reader_read(&import->reader, row, count, import->chunk, import->err);
  for (size_t i = 0; i < count && status == TURB_OK; i++) {
    status = import_add_row(import, row + i, import->chunk + i * stride + import->reader.layout.prefix_bytes);
    if (status == TURB_OK && turb_batch_count(import->batch) >= import->options.batch_rows) {
      status = import_write_batch(import);
    }
  }
  return status;
}

static turb_status import_run(struct import *import) {
  memcpy(import->key, import->options.key_prefix.data != NULL ? import->options.key_prefix.data : "", import->options.key_prefix.size);
  turb_status status = TURB_OK;
  for (uint64_t first = 0; first < import->rows_total && status == TURB_OK;) {
    const uint64_t left = import->rows_total - first;
    const size_t count = left < import->chunk_rows ? (size_t)left : import->chunk_rows;
    status = import_chunk(import, first, count);
    first += count;
  }
  if (status == TURB_OK) {
    status = import_write_batch(import);
  }
  if (import->rows_done != 0 && import->db->options.durability == TURB_DURABLE) {
    /* Also after a failure: what rows_done counts is acknowledged. The first error stays. */
    const turb_status synced = turb_sync(import->db, import->err);
    status = status == TURB_OK ? synced : status;
  }
  return status;
}

turb_status turb_import(turb_collection *collection, const char *path, const turb_import_options *options, uint64_t *rows_done,
                        turb_error *error) {
  if (rows_done != NULL) {
    *rows_done = 0;
  }
  if (collection == NULL || path == NULL) {
    return status_set(error, TURB_INVALID, "turb_import: %s is NULL", collection == NULL ? "collection" : "path");
  }
  turb_db *db = collection->db;
  struct import *import = mem_alloc_zeroed(&db->allocator, sizeof *import);
  if (import == NULL) {
    return status_set(error, TURB_NO_MEMORY, "no memory to import %s", path);
  }
  import->db = db;
  import->collection = collection;
  import->path = path;
  import->err = error;
  turb_status status = import_open(import, options);
  if (status == TURB_OK) {
    status = import_run(import);
  }
  if (rows_done != NULL) {
    *rows_done = import->rows_done;
  }
  import_close(import);
  mem_free(&db->allocator, import, sizeof *import);
  return status;
}

/* ---- describe ---- */

turb_status turb_import_describe(const char *path, turb_import_format format, turb_import_description *description, turb_error *error) {
  if (path == NULL || description == NULL) {
    return status_set(error, TURB_INVALID, "turb_import_describe: %s is NULL", path == NULL ? "path" : "description");
  }
  const size_t known = sizeof *description;
  const size_t size = description->size < known ? description->size : known;
  if (size < offsetof(turb_import_description, type)) {
    return status_set(error, TURB_INVALID, "turb_import_description: size %zu is too small", description->size);
  }
  turb_import_description found = {.size = description->size};
  memcpy(description, &found, size);
  struct ingest_reader reader;
  const turb_status status = ingest_reader_open(alloc_default(), path, format, &reader, error);
  if (status != TURB_OK) {
    return status;
  }
  found.format = reader.format->id;
  found.type = ingest_natural_type(reader.layout.element);
  found.dimension = reader.layout.dimension;
  found.rows = reader.layout.rows;
  found.bytes = reader.layout.rows * reader.layout.row_bytes;
  memcpy(description, &found, size);
  ingest_reader_close(&reader);
  return TURB_OK;
}
