/* One thread appends while another syncs: marks never run ahead, and all that was appended is recovered. */
#include <stdatomic.h>

#include "base/thread.h"
#include "tests/engine/log_fixture.h"

#define BOUND 300u

struct shared {
  struct log_writer *writer;
  _Atomic bool done;
  _Atomic uint64_t syncs;
};

static void sync_on(void *context) {
  struct shared *shared = context;
  while (!atomic_load(&shared->done)) {
    const uint64_t before = log_writer_end(shared->writer);
    CHECK_OK(log_writer_sync(shared->writer, NULL));
    const uint64_t durable = log_writer_durable(shared->writer);
    CHECK_GE(durable, before);
    CHECK_LE(durable, log_writer_end(shared->writer));
    atomic_fetch_add(&shared->syncs, 1);
  }
}

TEST(log_threads, appends_run_while_syncs_do) {
  const char *folder = test_tmpdir();
  struct io_system *system = NULL;
  CHECK_OK(io_system_open(&(struct io_system_options){.backend = TURB_BACKEND_BLOCKING}, &system, NULL));
  struct random random;
  random_init(&random, test_seed());
  struct shared shared = {.writer = log_make(system, folder, 5)};
  struct thread thread = {.started = false};
  CHECK_OK(thread_start(&thread, "syncer", sync_on, &shared, NULL));
  const uint64_t records = test_scale(3000, 1000, 20000);
  for (uint64_t i = 0; i < records || atomic_load(&shared.syncs) < 3; i++) {
    uint8_t payload[BOUND];
    const turb_bytes piece = {payload, log_payload(i, BOUND, payload)};
    uint64_t end = 0;
    CHECK_OK(log_writer_append(shared.writer, random_one_in(&random, 8) ? LOG_APPEND_SYNCED : LOG_APPEND_LOGGED, &piece, 1, &end, NULL));
    CHECK_EQ(end, log_writer_end(shared.writer));
  }
  atomic_store(&shared.done, true);
  thread_join(&thread);
  const uint64_t end = log_writer_end(shared.writer);
  log_writer_close(shared.writer);
  struct log_seen seen = {.bound = BOUND};
  const struct log_recovery_options options = log_options(system, folder, &seen);
  struct log_recovery recovery;
  CHECK_OK(log_recover(&options, 5, &recovery, NULL));
  CHECK_GE(seen.count, records);
  CHECK_EQ(recovery.end, end);
  io_system_close(system);
}
