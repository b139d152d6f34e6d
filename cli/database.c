/*
 * Shared options, sessions and errors; see database.h.
 */
#include "database.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AT(field) offsetof(struct database_settings, field)

const struct option_choice type_choices[] = {{"f32", TURB_F32},   {"f16", TURB_F16}, {"bf16", TURB_BF16}, {"i8", TURB_I8}, {"u8", TURB_U8},
                                             {"bits", TURB_BITS}, {NULL, 0}};
const struct option_choice metric_choices[] = {{"l2", TURB_L2},           {"inner-product", TURB_INNER_PRODUCT},
                                               {"cosine", TURB_COSINE},   {"manhattan", TURB_MANHATTAN},
                                               {"hamming", TURB_HAMMING}, {NULL, 0}};
const struct option_choice index_choices[] = {{"default", TURB_INDEX_DEFAULT}, {"exact", TURB_INDEX_EXACT}, {NULL, 0}};
const struct option_choice compression_choices[] = {
    {"default", TURB_COMPRESSION_DEFAULT}, {"none", TURB_COMPRESSION_NONE}, {"zstd", TURB_COMPRESSION_ZSTD}, {NULL, 0}};
const struct option_choice backend_choices[] = {
    {"auto", TURB_BACKEND_AUTO}, {"uring", TURB_BACKEND_URING}, {"blocking", TURB_BACKEND_BLOCKING}, {NULL, 0}};
const struct option_choice durability_choices[] = {
    {"durable", TURB_DURABLE}, {"logged", TURB_LOGGED}, {"unlogged", TURB_UNLOGGED}, {NULL, 0}};

const struct option_spec database_options[] = {
    {.name = "db",
     .letter = 'd',
     .kind = OPTION_TEXT,
     .offset = AT(path),
     .argument = "PATH",
     .help = "the database's folder (or $TURB_DB)"},
    {.name = "memory",
     .letter = 'm',
     .kind = OPTION_SIZE,
     .offset = AT(memory_bytes),
     .argument = "SIZE",
     .help = "memory budget, such as 256M",
     .low = UINT64_C(8) << 20,
     .high = UINT64_C(1) << 40},
    {.name = "backend",
     .kind = OPTION_CHOICE,
     .offset = AT(backend),
     .argument = "NAME",
     .help = "how files are read and written",
     .choices = backend_choices},
    {.name = "read-only",
     .kind = OPTION_FLAG,
     .offset = AT(read_only),
     .help = "change nothing, beside other readers (what commands that only read do anyway)"},
    {.name = "salvage", .kind = OPTION_FLAG, .offset = AT(salvage), .help = "go on over damaged log records, and say what is lost"},
    {.name = NULL}};
const struct option_spec write_options[] = {{.name = "durability",
                                             .kind = OPTION_CHOICE,
                                             .offset = AT(durability),
                                             .argument = "NAME",
                                             .help = "when a write counts as done",
                                             .choices = durability_choices},
                                            {.name = NULL}};
const struct option_spec collection_options[] = {{.name = "collection",
                                                  .letter = 'c',
                                                  .kind = OPTION_TEXT,
                                                  .offset = AT(collection),
                                                  .argument = "NAME",
                                                  .help = "the collection; may be left out where there is only one"},
                                                 {.name = NULL}};
const struct option_spec key_options[] = {{.name = "number-keys",
                                           .letter = 'n',
                                           .kind = OPTION_FLAG,
                                           .offset = AT(number_keys),
                                           .help = "keys are numbers, as import makes them (8 bytes, big-endian)"},
                                          {.name = NULL}};
const struct option_spec output_options[] = {
    {.name = "json", .letter = 'j', .kind = OPTION_FLAG, .offset = AT(json), .help = "one JSON object a line"}, {.name = NULL}};
const struct option_spec quiet_options[] = {
    {.name = "quiet", .letter = 'q', .kind = OPTION_FLAG, .offset = AT(quiet), .help = "no progress bar"}, {.name = NULL}};

/* ---- errors ---- */

int status_exit_code(turb_status status) {
  switch (status) {
  case TURB_OK: return CLI_OK;
  case TURB_CORRUPTION: return CLI_CORRUPT;
  case TURB_INVALID: return CLI_USAGE;
  default: return CLI_FAILED;
  }
}

int session_fail(const struct session *session, const turb_error *err) {
  const char *message = err->message[0] != '\0' ? err->message : turb_status_name(err->status);
  (void)fprintf(stderr, "turb %s: %s\n", session->command->name, message);
  return status_exit_code(err->status);
}

int session_refuse(const struct session *session, const char *what, const struct problem *problem) {
  return options_refuse(session->command, "%s: %s", what, problem->text);
}

const char *size_text(uint64_t bytes, char text[32]) {
  static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = (double)bytes;
  unsigned unit = 0;
  while (value >= 1024 && unit < 4) {
    value /= 1024;
    unit++;
  }
  (void)snprintf(text, 32, unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
  return text;
}

/* ---- sessions ---- */

static void on_log(void *context, turb_log_level level, const char *text) {
  const struct session *session = context;
  (void)fprintf(stderr, "turb %s: %s: %s\n", session->command->name, level <= TURB_LOG_ERROR ? "error" : "warning", text);
}

/* Any thread. */
static void on_event(void *context, const turb_event *event) {
  const struct session *session = context;
  if (event->kind == TURB_EVENT_SALVAGED) {
    (void)fprintf(stderr, "turb %s: salvage skipped %" PRIu64 " bytes: %s\n", session->command->name, event->value, event->text);
  }
  if (session->progress != NULL && event->kind == TURB_EVENT_JOB_PROGRESS && event->job_kind == TURB_JOB_MERGE) {
    progress_update(session->progress, event->entries_done, event->entries_total);
    if (progress_interrupted()) {
      turb_error ignored = TURB_ERROR_INIT; /* none is running any more: as good */
      (void)!turb_cancel(session->db, event->job, &ignored);
    }
  }
}

/* The only collection of a database, and how many there are. */
struct only {
  uint64_t count;
  char name[TURB_MAX_NAME_BYTES + 1];
};

static bool find_only(void *context, const turb_collection_info *info) {
  struct only *only = context;
  only->count++;
  memcpy(only->name, info->name, sizeof only->name);
  return only->count < 2;
}

int session_open_collection(struct session *session, const char *name) {
  turb_error err = TURB_ERROR_INIT;
  struct only only = {0, ""};
  if (name == NULL) {
    if (turb_collection_list(session->db, find_only, &only, &err) != TURB_OK) {
      return session_fail(session, &err);
    }
    if (only.count != 1) {
      return options_refuse(session->command, "%s; name one with --collection",
                            only.count == 0 ? "the database has no collection" : "the database has several collections");
    }
    name = only.name;
  }
  session->info.size = sizeof session->info;
  if (turb_collection_open(session->db, name, &session->collection, &err) != TURB_OK ||
      turb_collection_describe(session->collection, &session->info, &err) != TURB_OK) {
    return session_fail(session, &err);
  }
  return -1;
}

int session_open(struct session *session, const struct command *command, const struct database_settings *settings, enum session_mode mode) {
  session->command = command;
  session->settings = settings;
  session->db = NULL;
  session->collection = NULL;
  const char *path = settings->path != NULL ? settings->path : getenv("TURB_DB");
  if (path == NULL || *path == '\0') {
    return options_refuse(command, "no database is named; give --db PATH or set TURB_DB");
  }
  turb_options options = TURB_OPTIONS_INIT;
  options.create_if_missing = mode == SESSION_CREATE;
  options.read_only = settings->read_only || mode == SESSION_READ || mode == SESSION_READ_ALL;
  options.salvage = settings->salvage;
  options.memory_budget_bytes = settings->memory_bytes;
  options.durability = (turb_durability)settings->durability;
  options.backend = (turb_backend)settings->backend;
  options.callback_context = session;
  options.on_event = on_event;
  options.on_log = on_log;
  turb_error err = TURB_ERROR_INIT;
  if (turb_open(path, &options, &session->db, &err) != TURB_OK) {
    return session_fail(session, &err);
  }
  if (mode != SESSION_READ && mode != SESSION_WRITE) {
    return -1;
  }
  const int code = session_open_collection(session, settings->collection);
  return code < 0 ? -1 : session_close(session, code);
}

int session_close(struct session *session, int code) {
  turb_error err = TURB_ERROR_INIT;
  if (session->db != NULL && turb_close(session->db, &err) != TURB_OK) {
    const int failed = session_fail(session, &err);
    code = code == CLI_OK ? failed : code;
  }
  session->db = NULL;
  session->collection = NULL;
  return code;
}
