/*
 * A log with a model of what it holds, for the tests of log and recovery.
 *
 * Record i has a payload made from its number alone (log_payload), so that recovered records are checked without keeping bytes. Threads: one.
 */
#ifndef TURB_TESTS_ENGINE_LOG_FIXTURE_H
#define TURB_TESTS_ENGINE_LOG_FIXTURE_H

#include "engine/log.h"
#include "engine/name.h"
#include "tests/engine/sim_world.h"

#define MODEL_MOST 4096

struct log_model {
  size_t count;
  size_t synced; /* records that a sync covered */
  size_t size_bound;
  uint64_t offset[MODEL_MOST], end[MODEL_MOST], mark[MODEL_MOST];
};

extern const uint8_t log_test_database[LOG_DATABASE_ID_BYTES];

/* The payload of record i: its number, then bytes that follow from it; 8 to bound bytes. */
size_t log_payload(uint64_t i, size_t bound, uint8_t *to);

struct log_writer *log_make(struct io_system *system, const char *folder, uint64_t number);
/* Appends the model's next record in 1 to 3 pieces. */
turb_status log_add(struct log_writer *writer, struct log_model *model, enum log_append_mode mode, turb_error *err);
turb_status log_sync(struct log_writer *writer, struct log_model *model, turb_error *err);

/* What recovery gives is checked against payloads 0, 1, 2, …; or, with salvage, against ascending ones. */
struct log_seen {
  size_t bound; /* the model's */
  uint64_t next;
  size_t count;
  bool gaps; /* allowed */
  size_t ends, skips;
  uint64_t skipped_bytes;
};
struct log_recovery_options log_options(struct io_system *system, const char *folder, struct log_seen *seen);

#endif
