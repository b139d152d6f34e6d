/*
 * turb stats and runs: what a database holds and did.
 */
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "command.h"
#include "database.h"

static const struct option_spec *const stats_shared[] = {database_options, output_options, NULL};
static const struct option_spec *const runs_shared[] = {collection_options, database_options, output_options, NULL};

/* ---- stats ---- */

enum stat_kind { STAT_COUNT, STAT_BYTES };

/* Every counter of turb_stats, in the order in which it is shown; a NULL name begins a group. */
static const struct {
  const char *name;
  enum stat_kind kind;
  size_t offset;
} fields[] = {
#define FIELD(name, kind)                                                                                                                  \
  { #name, kind, offsetof(turb_stats, name) }
    FIELD(registered_buffer_bytes, STAT_BYTES),
    FIELD(memory_budget_bytes, STAT_BYTES),
    FIELD(memory_used_bytes, STAT_BYTES),
    FIELD(memory_peak_bytes, STAT_BYTES),
    FIELD(cache_bytes, STAT_BYTES),
    FIELD(cache_hits, STAT_COUNT),
    FIELD(cache_misses, STAT_COUNT),
    FIELD(memtable_bytes, STAT_BYTES),
    FIELD(memtables, STAT_COUNT),
    FIELD(tables, STAT_COUNT),
    FIELD(runs, STAT_COUNT),
    FIELD(table_bytes, STAT_BYTES),
    FIELD(log_bytes, STAT_BYTES),
    FIELD(disk_bytes, STAT_BYTES),
    FIELD(last_sequence, STAT_COUNT),
    FIELD(durable_sequence, STAT_COUNT),
    FIELD(snapshots, STAT_COUNT),
    FIELD(oldest_snapshot_age_ms, STAT_COUNT),
    FIELD(iterators, STAT_COUNT),
    FIELD(oldest_iterator_age_ms, STAT_COUNT),
    FIELD(user_bytes_written, STAT_BYTES),
    FIELD(log_bytes_written, STAT_BYTES),
    FIELD(flush_bytes_written, STAT_BYTES),
    FIELD(merge_bytes_read, STAT_BYTES),
    FIELD(merge_bytes_written, STAT_BYTES),
    FIELD(log_syncs, STAT_COUNT),
    FIELD(write_groups, STAT_COUNT),
    FIELD(reads, STAT_COUNT),
    FIELD(read_bytes, STAT_BYTES),
    FIELD(submissions, STAT_COUNT),
    FIELD(ring_calls, STAT_COUNT),
    FIELD(flushes, STAT_COUNT),
    FIELD(merges, STAT_COUNT),
    FIELD(merges_failed, STAT_COUNT),
    FIELD(entries_dropped, STAT_COUNT),
    FIELD(stall_us, STAT_COUNT),
    FIELD(stalls, STAT_COUNT),
    FIELD(obsolete_tables, STAT_COUNT),
    FIELD(runs_dropped, STAT_COUNT),
    FIELD(run_bytes_dropped, STAT_BYTES),
#undef FIELD
};
#define FIELDS (sizeof fields / sizeof fields[0])

static uint64_t field_value(const turb_stats *stats, size_t index) {
  uint64_t value = 0;
  memcpy(&value, (const uint8_t *)stats + fields[index].offset, sizeof value);
  return value;
}

static void print_stats_text(struct output *out, const turb_stats *stats) {
  output_format(out, "%-26s %s%s\n", "backend", option_choice_name(backend_choices, (int)stats->backend),
                stats->backend_fell_back ? " (io_uring was refused)" : "");
  if (stats->backend_fell_back) {
    output_format(out, "%-26s %s\n", "why", strerror(stats->backend_os_error));
  }
  output_format(out, "%-26s %s\n", "read_only", stats->read_only ? "yes" : "no");
  output_format(out, "%-26s %s\n", "paused", stats->paused ? "yes" : "no");
  for (size_t i = 0; i < FIELDS; i++) {
    char size[32];
    const uint64_t value = field_value(stats, i);
    output_format(out, "%-26s %" PRIu64, fields[i].name, value);
    if (fields[i].kind == STAT_BYTES && value >= 1024) {
      output_format(out, " (%s)", size_text(value, size));
    }
    output_text(out, "\n");
  }
}

static void print_stats_json(struct output *out, const turb_stats *stats) {
  output_begin(out);
  output_json_text(out, "backend", option_choice_name(backend_choices, (int)stats->backend));
  output_json_bool(out, "backend_fell_back", stats->backend_fell_back);
  output_json_number(out, "backend_os_error", (uint64_t)stats->backend_os_error);
  output_json_bool(out, "read_only", stats->read_only);
  output_json_bool(out, "paused", stats->paused);
  for (size_t i = 0; i < FIELDS; i++) {
    output_json_number(out, fields[i].name, field_value(stats, i));
  }
  output_end(out);
}

static int stats_run(struct output *out, void *given, int count, char **operands) {
  (void)count;
  (void)operands;
  struct session session = {0};
  const int code = session_open(&session, &command_stats, given, SESSION_READ_ALL);
  if (code >= 0) {
    return code;
  }
  turb_stats stats = {.size = sizeof stats};
  turb_error err = TURB_ERROR_INIT;
  if (turb_get_stats(session.db, &stats, &err) != TURB_OK) {
    return session_close(&session, session_fail(&session, &err));
  }
  if (out->json) {
    print_stats_json(out, &stats);
  } else {
    print_stats_text(out, &stats);
  }
  return session_close(&session, CLI_OK);
}

const struct command command_stats = {
    .name = "stats",
    .operands = "",
    .summary = "Shows sizes and counters",
    .details = "Sizes are those of the files; counters of work begin at zero with each opening.",
    .shared = stats_shared,
    .settings_bytes = sizeof(struct database_settings),
    .run = stats_run,
};

/* ---- runs ---- */

static bool print_run(void *context, const turb_run_info *run) {
  struct output *out = context;
  if (!out->json) {
    char size[32];
    output_format(out, "%8" PRIu32 "  %12" PRIu64 "  %12s  %14" PRIu64 "  %14" PRIu64 "\n", run->tables, run->entries,
                  size_text(run->bytes, size), run->first_sequence, run->last_sequence);
    return output_open(out);
  }
  output_begin(out);
  output_json_number(out, "collection", run->collection);
  output_json_number(out, "tables", run->tables);
  output_json_number(out, "entries", run->entries);
  output_json_number(out, "bytes", run->bytes);
  output_json_number(out, "first_sequence", run->first_sequence);
  output_json_number(out, "last_sequence", run->last_sequence);
  output_end(out);
  return output_open(out);
}

static int runs_run(struct output *out, void *given, int count, char **operands) {
  (void)count;
  (void)operands;
  struct session session = {0};
  const int code = session_open(&session, &command_runs, given, SESSION_READ);
  if (code >= 0) {
    return code;
  }
  if (!out->json) {
    output_format(out, "%8s  %12s  %12s  %14s  %14s\n", "TABLES", "ENTRIES", "SIZE", "FIRST SEQUENCE", "LAST SEQUENCE");
  }
  turb_error err = TURB_ERROR_INIT;
  const turb_status status = turb_list_runs(session.collection, print_run, out, &err);
  return session_close(&session, status == TURB_OK ? CLI_OK : session_fail(&session, &err));
}

const struct command command_runs = {
    .name = "runs",
    .operands = "",
    .summary = "Shows a collection's LSM tree, newest run first",
    .shared = runs_shared,
    .settings_bytes = sizeof(struct database_settings),
    .run = runs_run,
};
