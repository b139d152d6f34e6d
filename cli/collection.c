/*
 * turb create, drop, collections: the collections of a database.
 */
#include <inttypes.h>
#include <stdio.h>

#include "command.h"
#include "database.h"
#include "tuning.h"

static const struct option_spec *const database_shared[] = {database_options, write_options, output_options, NULL};
static const struct option_spec *const create_shared[] = {tuning_options, database_options, write_options, output_options, NULL};
static const struct option_spec *const list_shared[] = {database_options, output_options, NULL};

/* ---- create ---- */

struct create_settings {
  struct tuning_settings tuning;
  uint64_t dimension;
  int type, metric, index, compression;
  int64_t level;
};
#define AT(field) offsetof(struct create_settings, field)

static const struct option_spec create_options[] = {
    {.name = "dimension",
     .letter = 'D',
     .kind = OPTION_NUMBER,
     .offset = AT(dimension),
     .argument = "N",
     .help = "components of a vector (bits for bits)",
     .low = 1,
     .high = TURB_MAX_DIMENSION},
    {.name = "type",
     .letter = 't',
     .kind = OPTION_CHOICE,
     .offset = AT(type),
     .argument = "NAME",
     .help = "element type (f32)",
     .choices = type_choices},
    {.name = "metric",
     .kind = OPTION_CHOICE,
     .offset = AT(metric),
     .argument = "NAME",
     .help = "distance (l2; hamming for bits)",
     .choices = metric_choices},
    {.name = "index", .kind = OPTION_CHOICE, .offset = AT(index), .argument = "NAME", .help = "index kind", .choices = index_choices},
    {.name = "compression",
     .kind = OPTION_CHOICE,
     .offset = AT(compression),
     .argument = "NAME",
     .help = "of vectors in tables",
     .choices = compression_choices},
    {.name = "level", .kind = OPTION_SIGNED, .offset = AT(level), .argument = "N", .help = "zstd's level (3)", .high = 22},
    {.name = NULL}};

static int create_run(struct output *out, void *given, int count, char **operands) {
  (void)count;
  const struct create_settings *settings = given;
  if (settings->dimension == 0) {
    return options_refuse(&command_create, "--dimension is missing");
  }
  struct session session = {0};
  int code = session_open(&session, &command_create, &settings->tuning.database, SESSION_CREATE);
  if (code >= 0) {
    return code;
  }
  turb_collection_options options = TURB_COLLECTION_OPTIONS_INIT;
  options.dimension = (uint32_t)settings->dimension;
  options.type = (turb_type)settings->type;
  options.metric = (turb_metric)settings->metric;
  options.index = (turb_index)settings->index;
  options.compression = (turb_compression)settings->compression;
  options.compression_level = (int32_t)settings->level;
  turb_compaction_options compaction;
  options.compaction = tuning_read(&settings->tuning, NULL, &compaction) ? &compaction : NULL;
  turb_error err = TURB_ERROR_INIT;
  turb_collection *collection = NULL;
  turb_collection_info info = {.size = sizeof info};
  if (turb_collection_create(session.db, operands[0], &options, &collection, &err) != TURB_OK ||
      turb_collection_describe(collection, &info, &err) != TURB_OK) {
    return session_close(&session, session_fail(&session, &err));
  }
  code = session_close(&session, CLI_OK);
  if (code == CLI_OK && out->json) {
    output_begin(out);
    output_json_text(out, "collection", info.name);
    output_json_number(out, "id", info.id);
    output_end(out);
  }
  return code;
}

const struct command command_create = {
    .name = "create",
    .operands = "NAME",
    .summary = "Makes a collection, and the database when it is missing",
    .options = create_options,
    .shared = create_shared,
    .min_operands = 1,
    .max_operands = 1,
    .settings_bytes = sizeof(struct create_settings),
    .run = create_run,
};

/* ---- drop ---- */

static int drop_run(struct output *out, void *given, int count, char **operands) {
  (void)count;
  const struct database_settings *settings = given;
  struct session session = {0};
  int code = session_open(&session, &command_drop, settings, SESSION_WRITE_ALL);
  if (code >= 0) {
    return code;
  }
  turb_error err = TURB_ERROR_INIT;
  const turb_status status = turb_collection_drop(session.db, operands[0], &err);
  code = session_close(&session, status == TURB_OK ? CLI_OK : session_fail(&session, &err));
  if (code == CLI_OK && out->json) {
    output_begin(out);
    output_json_text(out, "dropped", operands[0]);
    output_end(out);
  }
  return code;
}

const struct command command_drop = {
    .name = "drop",
    .operands = "NAME",
    .summary = "Drops a collection with all that it holds",
    .shared = database_shared,
    .min_operands = 1,
    .max_operands = 1,
    .settings_bytes = sizeof(struct database_settings),
    .run = drop_run,
};

/* ---- collections ---- */

static bool print_collection(void *context, const turb_collection_info *info) {
  struct output *out = context;
  const char *type = option_choice_name(type_choices, (int)info->type);
  const char *metric = option_choice_name(metric_choices, (int)info->metric);
  if (!out->json) {
    output_format(out, "%-24s  %6" PRIu32 "  %-4s  %-13s  %-7s  %-11s  %s\n", info->name, info->dimension, type, metric,
                  option_choice_name(index_choices, (int)info->index), option_choice_name(compression_choices, (int)info->compression),
                  option_choice_name(policy_choices, (int)info->policy));
    return output_open(out);
  }
  output_begin(out);
  output_json_text(out, "name", info->name);
  output_json_number(out, "id", info->id);
  output_json_number(out, "dimension", info->dimension);
  output_json_text(out, "type", type);
  output_json_text(out, "metric", metric);
  output_json_text(out, "index", option_choice_name(index_choices, (int)info->index));
  output_json_text(out, "compression", option_choice_name(compression_choices, (int)info->compression));
  output_json_number(out, "row_bytes", info->row_bytes);
  tuning_print(out, info);
  output_end(out);
  return output_open(out);
}

static int collections_run(struct output *out, void *given, int count, char **operands) {
  (void)count;
  (void)operands;
  const struct database_settings *settings = given;
  struct session session = {0};
  const int code = session_open(&session, &command_collections, settings, SESSION_READ_ALL);
  if (code >= 0) {
    return code;
  }
  if (!out->json) {
    output_format(out, "%-24s  %6s  %-4s  %-13s  %-7s  %-11s  %s\n", "NAME", "DIM", "TYPE", "METRIC", "INDEX", "COMPRESSION", "POLICY");
  }
  turb_error err = TURB_ERROR_INIT;
  const turb_status status = turb_collection_list(session.db, print_collection, out, &err);
  return session_close(&session, status == TURB_OK ? CLI_OK : session_fail(&session, &err));
}

const struct command command_collections = {
    .name = "collections",
    .operands = "",
    .summary = "Lists the collections",
    .shared = list_shared,
    .settings_bytes = sizeof(struct database_settings),
    .run = collections_run,
};
