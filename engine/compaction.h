/* engine/compaction: how a collection's runs are merged: the options of the collection before those of the database, and the policy's pick
 * (compactor/policy) among the runs of the current version.
 *
 * Snapshots read the current version, so a run that one of them sees is held: it may be merged, not dropped. A run's time is that of the
 * first mark of sequence against time at or above its entries: never too early, up to a minute late (an hour for
 * what is two days old, a day for what is sixty).
 *
 * Threads: under db->mutex, unless said otherwise.
 */
#ifndef TURB_ENGINE_COMPACTION_H
#define TURB_ENGINE_COMPACTION_H

#include "compactor/policy.h"
#include "engine/db.h"

/* Checks options (NULL: all defaults). INVALID names the option, its value and the bounds. Any thread. */
TURB_MUST_CHECK turb_status compaction_check(const turb_compaction_options *given, struct catalog_compaction *compaction, turb_error *err);
/* Gives a handle its options, which the manifest has. */
void compaction_set(turb_collection *collection, const struct catalog_compaction *compaction);
/* The options of the collection where they are set, the database's elsewhere; the time is now. */
struct policy_options compaction_options(const turb_collection *collection);
/* What is due: a merge of at most `fan_in` runs, or a drop; POLICY_NOTHING also when there is no memory to find out. A drop is picked also
 * while merges are held or blocked. */
struct policy_pick compaction_pick(const turb_collection *collection, uint32_t fan_in);
/* When time alone makes a drop due, on the monotonic clock, and an hour ahead at most, since the time of day may be set; UINT64_MAX: never. */
uint64_t compaction_next_drop_ns(const turb_collection *collection);
/* The options of a collection into its description. */
void compaction_describe(const struct catalog_compaction *compaction, turb_collection_info *info);

#endif
