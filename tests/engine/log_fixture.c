/* The log of the tests and its model; see log_fixture.h. */
#include "tests/engine/log_fixture.h"

#include <stdlib.h>

#include "base/coding.h"

const uint8_t log_test_database[LOG_DATABASE_ID_BYTES] = "a test database";

size_t log_payload(uint64_t i, size_t bound, uint8_t *to) {
  struct random random;
  random_init(&random, i + 1);
  const size_t size = (size_t)random_between(&random, 8, bound);
  random_fill(&random, to, size);
  store_u64(to, i);
  return size;
}

struct log_writer *log_make(struct io_system *system, const char *folder, uint64_t number) {
  const struct log_writer_options options = {.system = system,
                                             .allocator = alloc_default(),
                                             .folder = folder,
                                             .database_id = log_test_database,
                                             .number = number,
                                             .first_sequence = 1};
  struct log_writer *writer = NULL;
  CHECK_OK(log_writer_create(&options, &writer, NULL));
  return writer;
}

turb_status log_add(struct log_writer *writer, struct log_model *model, enum log_append_mode mode, turb_error *err) {
  CHECK(model->count < MODEL_MOST);
  uint8_t *payload = malloc(model->size_bound);
  CHECK(payload != NULL);
  const size_t size = log_payload(model->count, model->size_bound, payload);
  const size_t a = size / 3;
  const size_t b = model->count % 2 == 0 ? a : size / 2;
  const turb_bytes pieces[] = {{payload, a}, {payload + a, b - a}, {payload + b, size - b}};
  const size_t i = model->count;
  model->offset[i] = log_writer_end(writer);
  model->mark[i] = log_writer_durable(writer);
  const turb_status status = log_writer_append(writer, mode, pieces, 3, &model->end[i], err);
  if (status == TURB_OK) {
    CHECK_EQ(model->end[i], log_writer_end(writer));
    model->count++;
  }
  free(payload);
  return status;
}

turb_status log_sync(struct log_writer *writer, struct log_model *model, turb_error *err) {
  const size_t covered = model->count;
  const turb_status status = log_writer_sync(writer, err);
  if (status == TURB_OK) {
    model->synced = covered;
    CHECK_EQ(log_writer_durable(writer), log_writer_end(writer));
  }
  return status;
}

static turb_status see(void *context, const struct log_record *record, turb_error *err) {
  (void)err;
  struct log_seen *seen = context;
  CHECK_EQ(record->payload_offset, record->offset + LOG_RECORD_BYTES);
  if (record->type == LOG_END) {
    seen->ends++;
    return TURB_OK;
  }
  uint8_t *wanted = malloc(seen->bound);
  CHECK(wanted != NULL && record->payload.size >= 8);
  const uint64_t i = load_u64(record->payload.data);
  CHECK(seen->gaps ? i >= seen->next : i == seen->next);
  CHECK_EQ(log_payload(i, seen->bound, wanted), record->payload.size);
  CHECK_MEM_EQ(record->payload.data, wanted, record->payload.size);
  seen->next = i + 1;
  seen->count++;
  free(wanted);
  return TURB_OK;
}

static void skip(void *context, const char *file, uint64_t offset, uint64_t bytes) {
  struct log_seen *seen = context;
  CHECK(file[0] != '\0' && offset % 8 == 0 && bytes != 0);
  seen->skips++;
  seen->skipped_bytes += bytes;
}

struct log_recovery_options log_options(struct io_system *system, const char *folder, struct log_seen *seen) {
  return (struct log_recovery_options){.system = system,
                                       .allocator = alloc_default(),
                                       .folder = folder,
                                       .database_id = log_test_database,
                                       .record = see,
                                       .context = seen,
                                       .skipped = skip};
}
