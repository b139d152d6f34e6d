/*
 * The options that tune how a collection's runs are merged, for turb create and turb set.
 *
 * Threads: the main thread.
 */
#ifndef TURB_CLI_TUNING_H
#define TURB_CLI_TUNING_H

#include "database.h"

/* Behind the database's settings in those of both commands: the table writes here. */
struct tuning_settings {
  struct database_settings database;
  int policy;
  uint64_t size_ratio, space_percent, max_bytes, ttl_s;
  bool has_policy, has_size_ratio, has_space_percent, has_max_bytes, has_ttl;
};

extern const struct option_spec tuning_options[]; /* --policy, --size-ratio, --space-percent, --max-bytes, --ttl */
extern const struct option_choice policy_choices[];

/*
 * The library's options: what was given, the rest as `now` has it (NULL: the defaults). A change of the policy takes what does not go with
 * the new one back to its default. False when nothing was given.
 */
bool tuning_read(const struct tuning_settings *settings, const turb_collection_info *now, turb_compaction_options *options);

/* The fields of a collection's JSON object. */
void tuning_print(struct output *out, const turb_collection_info *info);

#endif
