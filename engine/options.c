/* engine/options: the size-versioned option structs of the public header, checked. */
#include "engine/options.h"

#include "engine/db.h"

#define KIB UINT64_C(1024)
#define MIB (KIB * 1024)
#define GIB (MIB * 1024)

turb_status options_read(const void *given, void *known, size_t known_size, const char *what, turb_error *err) {
  memset(known, 0, known_size);
  if (!given)
    return TURB_OK;
  size_t size;
  memcpy(&size, given, sizeof size);
  if (size < sizeof size || size > known_size + 4096)
    return status_set(err, TURB_INVALID, "%s.size is %zu: set it to sizeof(%s)", what, size, what);
  memcpy(known, given, size < known_size ? size : known_size);
  for (size_t i = known_size; i < size; i++)
    if (((const uint8_t *)given)[i])
      return status_set(err, TURB_INVALID, "%s has an option at byte %zu that this version of the library does not know", what, i);
  return TURB_OK;
}

turb_status options_write(const void *full, size_t full_size, void *given, const char *what, turb_error *err) {
  size_t size;
  memcpy(&size, given, sizeof size);
  if (size < sizeof size || size > full_size + 4096)
    return status_set(err, TURB_INVALID, "%s.size is %zu: set it to sizeof(%s)", what, size, what);
  memset(given, 0, size);
  memcpy(given, full, size < full_size ? size : full_size);
  memcpy(given, &size, sizeof size);
  return TURB_OK;
}

turb_status options_bounded(const char *name, uint64_t given, uint64_t fallback, uint64_t low, uint64_t high, uint64_t *value,
                            turb_error *err) {
  *value = given ? given : fallback;
  if (*value >= low && *value <= high)
    return TURB_OK;
  return status_set(err, TURB_INVALID, "%s is %llu, and must be from %llu to %llu", name, (unsigned long long)given,
                    (unsigned long long)low, (unsigned long long)high);
}

static uint64_t larger(uint64_t a, uint64_t b) {
  return a > b ? a : b;
}

static uint64_t smaller(uint64_t a, uint64_t b) {
  return a < b ? a : b;
}

uint64_t options_job_share(uint64_t budget_bytes) {
  return larger(budget_bytes / 4, 7 * MIB / 2); /* two table writers, and streams of two runs of any shape */
}

uint64_t options_memtable_share(uint64_t budget_bytes) {
  return smaller(budget_bytes / 2, budget_bytes - options_job_share(budget_bytes) - 2 * MIB);
}

uint64_t options_stream_share(uint64_t budget_bytes) {
  return budget_bytes / 8;
}

turb_status options_check(const turb_options *given, struct db_options *options, turb_allocator *allocator, turb_error *err) {
  turb_options o;
  turb_status status = options_read(given, &o, sizeof o, "turb_options", err);
  if (status != TURB_OK)
    return status;
  if (!given)
    o.create_if_missing = true;
  *options = (struct db_options){0};
  *allocator = o.allocator ? *o.allocator : *alloc_default();
  uint64_t v;
#define BOUNDED(name, fallback, low, high)                                                                                                 \
  if ((status = options_bounded(#name, (uint64_t)o.name, fallback, low, high, &v, err)) != TURB_OK)                                        \
  return status
  BOUNDED(memory_budget_bytes, 512 * MIB, 8 * MIB, 1024 * GIB);
  options->memory_budget_bytes = v;
  BOUNDED(memtable_bytes, 64 * MIB, 256 * KIB, 4 * GIB);
  options->memtable_bytes = smaller(v, options_memtable_share(options->memory_budget_bytes) / 2); /* one fills while one is flushed */
  BOUNDED(table_bytes, 256 * MIB, 64 * KIB, 16 * GIB);
  options->table_bytes = v;
  BOUNDED(size_ratio, 10, OPTIONS_SIZE_RATIO_MIN, OPTIONS_SIZE_RATIO_MAX);
  options->size_ratio = (uint32_t)v;
  BOUNDED(max_space_amplification_percent, 100, OPTIONS_SPACE_PERCENT_MIN, OPTIONS_SPACE_PERCENT_MAX);
  options->max_space_amplification_percent = (uint32_t)v;
  BOUNDED(ring_entries, 256, 8, 4096);
  options->ring_entries = (uint32_t)v;
  BOUNDED(registered_buffer_bytes, 4 * MIB, 1, GIB);
  options->registered_buffer_bytes = v;
  BOUNDED(durability, TURB_DURABLE, TURB_DURABLE, TURB_UNLOGGED);
  options->durability = (turb_durability)v;
  BOUNDED(backend, 0, TURB_BACKEND_AUTO, TURB_BACKEND_SIMULATED);
  options->backend = (turb_backend)v;
  BOUNDED(log_level, TURB_LOG_WARNING, TURB_LOG_ERROR, TURB_LOG_DEBUG);
#undef BOUNDED
  options->log_level = (turb_log_level)v;
  if (o.worker_threads < -1 || o.worker_threads > 64)
    return status_set(err, TURB_INVALID, "worker_threads is %d, and must be from -1 to 64", o.worker_threads);
  options->worker_threads = o.worker_threads == -1 ? 0 : o.worker_threads ? (uint32_t)o.worker_threads : 1;
  if ((options->backend == TURB_BACKEND_SIMULATED) != (o.simulation != NULL))
    return status_set(err, TURB_INVALID, "simulation goes with backend TURB_BACKEND_SIMULATED, and with no other");
  options->simulation = o.simulation;
  if (o.allocator && (!o.allocator->allocate || !o.allocator->release))
    return status_set(err, TURB_INVALID, "allocator lacks allocate or release");
  options->create_if_missing = o.create_if_missing;
  options->error_if_exists = o.error_if_exists;
  options->read_only = o.read_only;
  options->salvage = o.salvage;
  options->buffered_io = o.buffered_io;
  options->rate_limit_bytes_per_s = o.rate_limit_bytes_per_s;
  options->callback_context = o.callback_context;
  options->on_event = o.on_event;
  options->on_log = o.on_log;
  return TURB_OK;
}
