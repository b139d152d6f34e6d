/*
 * turb import: rows of .npy, idx and fvecs files into a collection.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "database.h"

struct import_settings {
  struct database_settings database;
  int format;
  const char *labels;
  uint64_t first_row, rows, first_key, batch_rows;
  const char *key_prefix;
  bool describe, create;
  int type, metric;
};
#define AT(field) offsetof(struct import_settings, field)

static const struct option_choice format_choices[] = {
    {"auto", TURB_IMPORT_AUTO}, {"npy", TURB_IMPORT_NPY}, {"idx", TURB_IMPORT_IDX}, {"fvecs", TURB_IMPORT_FVECS}, {NULL, 0}};

static const struct option_spec import_options[] = {
    {.name = "format",
     .kind = OPTION_CHOICE,
     .offset = AT(format),
     .argument = "NAME",
     .help = "what the files are",
     .choices = format_choices},
    {.name = "labels",
     .letter = 'L',
     .kind = OPTION_TEXT,
     .offset = AT(labels),
     .argument = "FILE",
     .help = "idx: labels, stored as attributes"},
    {.name = "first-row", .kind = OPTION_NUMBER, .offset = AT(first_row), .argument = "N", .help = "begin at this row of the file (0)"},
    {.name = "rows", .kind = OPTION_NUMBER, .offset = AT(rows), .argument = "N", .help = "so many rows (all that follow)"},
    {.name = "first-key",
     .kind = OPTION_NUMBER,
     .offset = AT(first_key),
     .argument = "N",
     .help = "key of the first row (0); the next ones count up"},
    {.name = "key-prefix", .kind = OPTION_TEXT, .offset = AT(key_prefix), .argument = "KEY", .help = "put before each number"},
    {.name = "batch-rows",
     .kind = OPTION_NUMBER,
     .offset = AT(batch_rows),
     .argument = "N",
     .help = "rows a write",
     .low = 1,
     .high = 65536},
    {.name = "create", .kind = OPTION_FLAG, .offset = AT(create), .help = "make the collection when it is missing, by the first file"},
    {.name = "type",
     .letter = 't',
     .kind = OPTION_CHOICE,
     .offset = AT(type),
     .argument = "NAME",
     .help = "its element type (the file's)",
     .choices = type_choices},
    {.name = "metric",
     .kind = OPTION_CHOICE,
     .offset = AT(metric),
     .argument = "NAME",
     .help = "its distance (l2)",
     .choices = metric_choices},
    {.name = "describe", .kind = OPTION_FLAG, .offset = AT(describe), .help = "only tell what the files hold; needs no database"},
    {.name = NULL}};

static const struct option_spec *const shared[] = {collection_options, database_options, write_options,
                                                   output_options,     quiet_options,    NULL};

static int import_fail(const turb_error *err) {
  const struct session session = {.command = &command_import};
  const int code = session_fail(&session, err);
  return code == CLI_USAGE ? CLI_FAILED : code; /* it is the file that is refused, not the command line */
}

static bool import_describe(const char *path, const struct import_settings *settings, turb_import_description *description,
                            turb_error *err) {
  memset(description, 0, sizeof *description);
  description->size = sizeof *description;
  return turb_import_describe(path, (turb_import_format)settings->format, description, err) == TURB_OK;
}

static int print_description(struct output *out, const struct import_settings *settings, const char *path) {
  turb_import_description description;
  turb_error err = TURB_ERROR_INIT;
  if (!import_describe(path, settings, &description, &err)) {
    return import_fail(&err);
  }
  const char *format = option_choice_name(format_choices, (int)description.format);
  const char *type = option_choice_name(type_choices, (int)description.type);
  if (!out->json) {
    char size[32];
    output_format(out, "%s: %s, %" PRIu64 " rows of %" PRIu32 " components, %s, %s\n", path, format, description.rows,
                  description.dimension, type, size_text(description.bytes, size));
    return CLI_OK;
  }
  output_begin(out);
  output_json_text(out, "file", path);
  output_json_text(out, "format", format);
  output_json_text(out, "type", type);
  output_json_number(out, "dimension", description.dimension);
  output_json_number(out, "rows", description.rows);
  output_json_number(out, "bytes", description.bytes);
  output_end(out);
  return CLI_OK;
}

/* Makes the collection after the first file, unless it is there. */
static int import_create(struct session *session, const struct import_settings *settings, const char *path) {
  turb_import_description description;
  turb_error err = TURB_ERROR_INIT;
  if (settings->database.collection == NULL) {
    return options_refuse(&command_import, "--create needs --collection");
  }
  if (!import_describe(path, settings, &description, &err)) {
    return import_fail(&err);
  }
  turb_collection_options options = TURB_COLLECTION_OPTIONS_INIT;
  options.type = settings->type != 0 ? (turb_type)settings->type : description.type;
  options.metric = (turb_metric)settings->metric;
  options.dimension = options.type == TURB_BITS ? 8 * description.dimension : description.dimension;
  turb_collection *collection = NULL;
  const turb_status status = turb_collection_create(session->db, settings->database.collection, &options, &collection, &err);
  return status == TURB_OK || status == TURB_EXISTS ? -1 : session_fail(session, &err);
}

static bool on_progress(void *context, uint64_t rows_done, uint64_t rows_total) {
  progress_update(context, rows_done, rows_total);
  return !progress_interrupted();
}

static void print_imported(struct output *out, const char *path, uint64_t rows, double seconds) {
  const double rate = seconds > 0 ? (double)rows / seconds : 0;
  if (!out->json) {
    output_format(out, "%s: %" PRIu64 " rows in %.2f s, %.0f rows/s\n", path, rows, seconds, rate);
    return;
  }
  output_begin(out);
  output_json_text(out, "file", path);
  output_json_number(out, "rows", rows);
  output_json_double(out, "seconds", seconds);
  output_json_double(out, "rows_per_s", rate);
  output_end(out);
}

/* One file; *next_key moves on by its rows. */
static int import_file(struct output *out, const struct session *session, const struct import_settings *settings,
                       const struct value *prefix, const char *path, uint64_t *next_key) {
  struct progress progress;
  progress_begin(&progress, "import", "rows", settings->database.quiet);
  turb_import_options options = TURB_IMPORT_OPTIONS_INIT;
  options.format = (turb_import_format)settings->format;
  options.labels_path = settings->labels;
  options.first_row = settings->first_row;
  options.rows = settings->rows;
  options.first_key = *next_key;
  options.key_prefix = value_bytes(*prefix);
  options.batch_rows = (uint32_t)settings->batch_rows;
  options.progress = on_progress;
  options.progress_context = &progress;
  turb_error err = TURB_ERROR_INIT;
  uint64_t rows = 0;
  const turb_status status = turb_import(session->collection, path, &options, &rows, &err);
  const double seconds = progress_seconds(&progress);
  progress_end(&progress);
  *next_key += rows;
  if (status == TURB_OK) {
    print_imported(out, path, rows, seconds);
    return CLI_OK;
  }
  const int code = import_fail(&err);
  if (rows != 0) {
    (void)fprintf(stderr, "turb import: %s: %" PRIu64 " rows were written before\n", path, rows);
  }
  return code;
}

static int import_files(struct output *out, struct session *session, const struct import_settings *settings, const struct value *prefix,
                        int count, char **operands) {
  int code = settings->create ? import_create(session, settings, operands[0]) : -1;
  if (code < 0) {
    code = session_open_collection(session, settings->database.collection);
  }
  if (code >= 0) {
    return code;
  }
  progress_catch_interrupts();
  uint64_t next_key = settings->first_key;
  code = CLI_OK;
  for (int i = 0; i < count && code == CLI_OK; i++) {
    code = import_file(out, session, settings, prefix, operands[i], &next_key);
  }
  return code;
}

static int import_run(struct output *out, void *given, int count, char **operands) {
  const struct import_settings *settings = given;
  int code = CLI_OK;
  if (settings->describe) {
    for (int i = 0; i < count && code == CLI_OK; i++) {
      code = print_description(out, settings, operands[i]);
    }
    return code;
  }
  if (settings->labels != NULL && count != 1) {
    return options_refuse(&command_import, "--labels goes with one file");
  }
  struct value prefix = {NULL, 0};
  struct problem problem;
  if (settings->key_prefix != NULL && !value_parse_key(settings->key_prefix, false, &prefix, &problem)) {
    return options_refuse(&command_import, "--key-prefix: %s", problem.text);
  }
  struct session session = {0};
  code = session_open(&session, &command_import, &settings->database, settings->create ? SESSION_CREATE : SESSION_WRITE_ALL);
  if (code < 0) {
    code = session_close(&session, import_files(out, &session, settings, &prefix, count, operands));
  }
  free(prefix.data);
  return code;
}

const struct command command_import = {
    .name = "import",
    .operands = "FILE...",
    .summary = "Loads the rows of .npy, idx and fvecs files",
    .details =
        "Keys are numbers (8 bytes, big-endian) that count up from --first-key, over all files. Values are rounded to the collection's\n"
        "type; one that it cannot hold is an error that names the row. idx files may be compressed with gzip. An interrupt stops the "
        "import\n"
        "and keeps what was written.",
    .options = import_options,
    .shared = shared,
    .min_operands = 1,
    .max_operands = CLI_ANY_OPERANDS,
    .settings_bytes = sizeof(struct import_settings),
    .run = import_run,
};
