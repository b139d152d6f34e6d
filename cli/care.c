/*
 * turb flush, compact, checkpoint, verify: care of the files.
 */
#include <inttypes.h>
#include <stdio.h>

#include "command.h"
#include "database.h"

static const struct option_spec *const write_shared[] = {collection_options, database_options, output_options, quiet_options, NULL};
static const struct option_spec *const whole_shared[] = {database_options, output_options, NULL};

/* ---- flush and compact ---- */

static bool take_stats(const struct session *session, turb_stats *stats, turb_error *err) {
  *stats = (turb_stats){.size = sizeof *stats};
  return turb_get_stats(session->db, stats, err) == TURB_OK;
}

/* What the work changed. */
static void print_change(struct output *out, const turb_stats *before, const turb_stats *after, double seconds) {
  if (!out->json) {
    char sizes[2][32];
    output_format(out, "runs %" PRIu64 " -> %" PRIu64 ", tables %" PRIu64 " -> %" PRIu64 ", %s -> %s, %.2f s\n", before->runs, after->runs,
                  before->tables, after->tables, size_text(before->table_bytes, sizes[0]), size_text(after->table_bytes, sizes[1]),
                  seconds);
    return;
  }
  output_begin(out);
  output_json_number(out, "runs_before", before->runs);
  output_json_number(out, "runs", after->runs);
  output_json_number(out, "tables_before", before->tables);
  output_json_number(out, "tables", after->tables);
  output_json_number(out, "table_bytes_before", before->table_bytes);
  output_json_number(out, "table_bytes", after->table_bytes);
  output_json_double(out, "seconds", seconds);
  output_end(out);
}

/* Flushes or compacts the named collection, or all. */
static int change_run(struct output *out, const struct command *command, const struct database_settings *settings,
                      turb_status (*work)(turb_db *, turb_collection *, turb_error *)) {
  struct session session = {0};
  int code = session_open(&session, command, settings, SESSION_WRITE_ALL);
  if (code >= 0) {
    return code;
  }
  if (settings->collection != NULL) {
    code = session_open_collection(&session, settings->collection);
  }
  if (code >= 0) {
    return session_close(&session, code);
  }
  struct progress progress;
  progress_begin(&progress, command->name, "entries", settings->quiet);
  progress_catch_interrupts();
  session.progress = &progress;
  turb_error err = TURB_ERROR_INIT;
  turb_stats before, after;
  const bool good =
      take_stats(&session, &before, &err) && work(session.db, session.collection, &err) == TURB_OK && take_stats(&session, &after, &err);
  const double seconds = progress_seconds(&progress);
  code = session_close(&session, CLI_OK); /* no event comes after it */
  session.progress = NULL;
  progress_end(&progress);
  if (!good) {
    return session_fail(&session, &err);
  }
  print_change(out, &before, &after, seconds);
  return code;
}

static int flush_run(struct output *out, void *given, int count, char **operands) {
  (void)count;
  (void)operands;
  return change_run(out, &command_flush, given, turb_flush);
}

const struct command command_flush = {
    .name = "flush",
    .operands = "",
    .summary = "Writes what is in memory and in logs to tables",
    .details = "Without --collection, for all collections.",
    .shared = write_shared,
    .settings_bytes = sizeof(struct database_settings),
    .run = flush_run,
};

static int compact_run(struct output *out, void *given, int count, char **operands) {
  (void)count;
  (void)operands;
  return change_run(out, &command_compact, given, turb_compact);
}

const struct command command_compact = {
    .name = "compact",
    .operands = "",
    .summary = "Merges all runs of a collection into one",
    .details = "Without --collection, for all collections. An interrupt cancels and leaves the runs as they were.",
    .shared = write_shared,
    .settings_bytes = sizeof(struct database_settings),
    .run = compact_run,
};

/* ---- checkpoint ---- */

static int checkpoint_run(struct output *out, void *given, int count, char **operands) {
  (void)count;
  struct session session = {0};
  int code = session_open(&session, &command_checkpoint, given, SESSION_WRITE_ALL);
  if (code >= 0) {
    return code;
  }
  turb_error err = TURB_ERROR_INIT;
  const turb_status status = turb_checkpoint(session.db, operands[0], &err);
  code = session_close(&session, status == TURB_OK ? CLI_OK : session_fail(&session, &err));
  if (code == CLI_OK && out->json) {
    output_begin(out);
    output_json_text(out, "checkpoint", operands[0]);
    output_end(out);
  }
  return code;
}

const struct command command_checkpoint = {
    .name = "checkpoint",
    .operands = "PATH",
    .summary = "Makes a consistent copy in a new folder, with hard links",
    .details = "PATH must not be there yet, and lies on the same file system.",
    .shared = whole_shared,
    .min_operands = 1,
    .max_operands = 1,
    .settings_bytes = sizeof(struct database_settings),
    .run = checkpoint_run,
};

/* ---- verify ---- */

static void print_problem(void *context, const turb_error *problem) {
  struct output *out = context;
  if (!out->json) {
    output_format(out, "%s\n", problem->message);
    return;
  }
  output_begin(out);
  output_json_text(out, "problem", problem->message);
  output_json_text(out, "status", turb_status_name(problem->status));
  output_json_text(out, "file", problem->file);
  if (problem->offset != UINT64_MAX) {
    output_json_number(out, "offset", problem->offset);
  }
  output_end(out);
}

static void print_report(struct output *out, const turb_verify_report *report) {
  if (!out->json) {
    char size[32];
    output_format(out, "%" PRIu64 " files, %s, %" PRIu64 " entries, %" PRIu64 " problems\n", report->files, size_text(report->bytes, size),
                  report->entries, report->problems);
    return;
  }
  output_begin(out);
  output_json_number(out, "files", report->files);
  output_json_number(out, "bytes", report->bytes);
  output_json_number(out, "entries", report->entries);
  output_json_number(out, "problems", report->problems);
  output_end(out);
}

static int verify_run(struct output *out, void *given, int count, char **operands) {
  (void)count;
  (void)operands;
  struct session session = {0};
  int code = session_open(&session, &command_verify, given, SESSION_READ_ALL);
  if (code >= 0) {
    return code;
  }
  turb_error err = TURB_ERROR_INIT;
  turb_verify_report report = {.size = sizeof report};
  const turb_status status = turb_verify(session.db, print_problem, out, &report, &err);
  code = status == TURB_OK ? CLI_OK : session_fail(&session, &err);
  if (status == TURB_OK || status == TURB_CORRUPTION) {
    print_report(out, &report);
  }
  return session_close(&session, code);
}

const struct command command_verify = {
    .name = "verify",
    .operands = "",
    .summary = "Reads every byte against its checksum and every invariant",
    .details = "A line each problem, then the totals. Exit code 3 when there is a problem.",
    .shared = whole_shared,
    .settings_bytes = sizeof(struct database_settings),
    .run = verify_run,
};
