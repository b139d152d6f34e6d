/*
 * turb set, and the options that it shares with turb create; see tuning.h.
 */
#include "tuning.h"

#define AT(field) offsetof(struct tuning_settings, field)

const struct option_choice policy_choices[] = {{"default", TURB_COMPACTION_DEFAULT}, {"lazy", TURB_COMPACTION_LAZY_LEVELLING},
                                               {"tiered", TURB_COMPACTION_TIERED},   {"levelled", TURB_COMPACTION_LEVELLED},
                                               {"fifo", TURB_COMPACTION_FIFO},       {NULL, 0}};

const struct option_spec tuning_options[] = {{.name = "policy",
                                              .kind = OPTION_CHOICE,
                                              .offset = AT(policy),
                                              .argument = "NAME",
                                              .help = "how runs are merged (lazy)",
                                              .choices = policy_choices,
                                              .given_offset = AT(has_policy)},
                                             {.name = "size-ratio",
                                              .kind = OPTION_NUMBER,
                                              .offset = AT(size_ratio),
                                              .argument = "N",
                                              .help = "runs of like size that are merged, 2 to 64; 0: the database's",
                                              .high = 64,
                                              .given_offset = AT(has_size_ratio)},
                                             {.name = "space-percent",
                                              .kind = OPTION_NUMBER,
                                              .offset = AT(space_percent),
                                              .argument = "N",
                                              .help = "lazy: of upper runs beside the bottom run, 10 to 1000; 0: the database's",
                                              .high = 1000,
                                              .given_offset = AT(has_space_percent)},
                                             {.name = "max-bytes",
                                              .kind = OPTION_SIZE,
                                              .offset = AT(max_bytes),
                                              .argument = "SIZE",
                                              .help = "fifo: the oldest runs are dropped beyond it; 0: no bound",
                                              .given_offset = AT(has_max_bytes)},
                                             {.name = "ttl",
                                              .kind = OPTION_NUMBER,
                                              .offset = AT(ttl_s),
                                              .argument = "SECONDS",
                                              .help = "fifo: runs are dropped when all their entries are older; 0: no bound",
                                              .given_offset = AT(has_ttl)},
                                             {.name = NULL}};

bool tuning_read(const struct tuning_settings *settings, const turb_collection_info *now, turb_compaction_options *options) {
  *options = (turb_compaction_options)TURB_COMPACTION_OPTIONS_INIT;
  if (now != NULL) {
    options->policy = now->policy;
    options->size_ratio = now->size_ratio;
    options->max_space_amplification_percent = now->max_space_amplification_percent;
    options->fifo_max_bytes = now->fifo_max_bytes;
    options->ttl_s = now->ttl_s;
  }
  if (settings->has_policy && settings->policy != (int)options->policy) {
    options->policy = (turb_compaction_policy)settings->policy;
    options->max_space_amplification_percent = 0;
    options->fifo_max_bytes = 0;
    options->ttl_s = 0;
  }
  if (settings->has_size_ratio) {
    options->size_ratio = (uint32_t)settings->size_ratio;
  }
  if (settings->has_space_percent) {
    options->max_space_amplification_percent = (uint32_t)settings->space_percent;
  }
  if (settings->has_max_bytes) {
    options->fifo_max_bytes = settings->max_bytes;
  }
  if (settings->has_ttl) {
    options->ttl_s = settings->ttl_s;
  }
  return settings->has_policy || settings->has_size_ratio || settings->has_space_percent || settings->has_max_bytes || settings->has_ttl;
}

void tuning_print(struct output *out, const turb_collection_info *info) {
  output_json_text(out, "policy", option_choice_name(policy_choices, (int)info->policy));
  output_json_number(out, "size_ratio", info->size_ratio);
  output_json_number(out, "max_space_amplification_percent", info->max_space_amplification_percent);
  output_json_number(out, "fifo_max_bytes", info->fifo_max_bytes);
  output_json_number(out, "ttl_s", info->ttl_s);
}

static int set_run(struct output *out, void *given, int count, char **operands) {
  (void)count;
  const struct tuning_settings *settings = given;
  struct session session = {0};
  int code = session_open(&session, &command_set, &settings->database, SESSION_WRITE_ALL);
  if (code >= 0) {
    return code;
  }
  code = session_open_collection(&session, operands[0]);
  if (code >= 0) {
    return session_close(&session, code);
  }
  turb_error err = TURB_ERROR_INIT;
  turb_compaction_options options;
  if (!tuning_read(settings, &session.info, &options)) {
    return session_close(&session, options_refuse(&command_set, "no option of the collection is given"));
  }
  turb_collection_info info = {.size = sizeof info};
  if (turb_collection_set_compaction(session.collection, &options, &err) != TURB_OK ||
      turb_collection_describe(session.collection, &info, &err) != TURB_OK) {
    return session_close(&session, session_fail(&session, &err));
  }
  code = session_close(&session, CLI_OK);
  if (code == CLI_OK && out->json) {
    output_begin(out);
    output_json_text(out, "collection", info.name);
    tuning_print(out, &info);
    output_end(out);
  }
  return code;
}

static const struct option_spec *const set_shared[] = {database_options, output_options, NULL};

const struct command command_set = {
    .name = "set",
    .operands = "NAME",
    .summary = "Tunes how a collection's runs are merged",
    .details = "What is not given stays as it is, but a change of the policy takes what does not go with it back.",
    .options = tuning_options,
    .shared = set_shared,
    .min_operands = 1,
    .max_operands = 1,
    .settings_bytes = sizeof(struct tuning_settings),
    .run = set_run,
};
