/* compaction.h has the contract. */
#include "engine/compaction.h"

#include "base/clock.h"
#include "engine/background.h"
#include "engine/job.h"

#define LOOK_AHEAD_S 3600u

/* ---- options ---- */

/* An option that the policy does not look at must not be set. */
static turb_status refuse_unused(const char *name, uint64_t value, const char *policy, turb_error *err) {
  return status_set(err, TURB_INVALID, "%s is %llu, and goes with policy %s alone", name, (unsigned long long)value, policy);
}

static turb_status check_bounds(const turb_compaction_options *o, turb_error *err) {
  uint64_t v;
  if (o->policy < TURB_COMPACTION_DEFAULT || o->policy > TURB_COMPACTION_FIFO)
    return status_set(err, TURB_INVALID, "policy is %d, and must be from %d to %d", (int)o->policy, TURB_COMPACTION_LAZY_LEVELLING,
                      TURB_COMPACTION_FIFO);
  turb_status status =
      options_bounded("size_ratio", o->size_ratio, OPTIONS_SIZE_RATIO_MIN, OPTIONS_SIZE_RATIO_MIN, OPTIONS_SIZE_RATIO_MAX, &v, err);
  if (status == TURB_OK)
    status = options_bounded("max_space_amplification_percent", o->max_space_amplification_percent, OPTIONS_SPACE_PERCENT_MIN,
                             OPTIONS_SPACE_PERCENT_MIN, OPTIONS_SPACE_PERCENT_MAX, &v, err);
  return status;
}

turb_status compaction_check(const turb_compaction_options *given, struct catalog_compaction *compaction, turb_error *err) {
  *compaction = (struct catalog_compaction){0};
  turb_compaction_options o;
  turb_status status = options_read(given, &o, sizeof o, "turb_compaction_options", err);
  if (status == TURB_OK)
    status = check_bounds(&o, err);
  if (status != TURB_OK)
    return status;
  const bool fifo = o.policy == TURB_COMPACTION_FIFO;
  const bool lazy = o.policy == TURB_COMPACTION_DEFAULT || o.policy == TURB_COMPACTION_LAZY_LEVELLING;
  if (o.max_space_amplification_percent && !lazy)
    return refuse_unused("max_space_amplification_percent", o.max_space_amplification_percent, "TURB_COMPACTION_LAZY_LEVELLING", err);
  if (o.fifo_max_bytes && !fifo)
    return refuse_unused("fifo_max_bytes", o.fifo_max_bytes, "TURB_COMPACTION_FIFO", err);
  if (o.ttl_s && !fifo)
    return refuse_unused("ttl_s", o.ttl_s, "TURB_COMPACTION_FIFO", err);
  if (fifo && !o.fifo_max_bytes && !o.ttl_s)
    return status_set(err, TURB_INVALID, "fifo_max_bytes and ttl_s are 0, and policy TURB_COMPACTION_FIFO needs one of them");
  *compaction = (struct catalog_compaction){.policy = o.policy,
                                            .size_ratio = o.size_ratio,
                                            .max_space_amplification_percent = o.max_space_amplification_percent,
                                            .fifo_max_bytes = o.fifo_max_bytes,
                                            .ttl_s = o.ttl_s};
  return TURB_OK;
}

struct policy_options compaction_options(const turb_collection *collection) {
  const struct catalog_compaction *own = &collection->compaction;
  const struct db_options *shared = &collection->db->options;
  return (struct policy_options){
      .policy = own->policy,
      .size_ratio = own->size_ratio ? own->size_ratio : shared->size_ratio,
      .max_space_amplification_percent =
          own->max_space_amplification_percent ? own->max_space_amplification_percent : shared->max_space_amplification_percent,
      .unit_bytes = shared->memtable_bytes,
      .fifo_max_bytes = own->fifo_max_bytes,
      .ttl_s = own->ttl_s,
      .now_s = own->ttl_s ? db_unix_s(collection->db) : 0,
  };
}

void compaction_set(turb_collection *collection, const struct catalog_compaction *compaction) {
  collection->compaction = *compaction;
  if (compaction->policy == TURB_COMPACTION_FIFO)
    atomic_store(&collection->db->has_fifo, true);
}

void compaction_describe(const struct catalog_compaction *compaction, turb_collection_info *info) {
  info->policy = compaction->policy ? compaction->policy : TURB_COMPACTION_LAZY_LEVELLING;
  info->size_ratio = compaction->size_ratio;
  info->max_space_amplification_percent = compaction->max_space_amplification_percent;
  info->fifo_max_bytes = compaction->fifo_max_bytes;
  info->ttl_s = compaction->ttl_s;
}

turb_status turb_collection_set_compaction(turb_collection *collection, const turb_compaction_options *options, turb_error *err) {
  struct catalog_compaction compaction;
  turb_status status = db_check_readable(collection, err);
  if (status == TURB_OK)
    status = compaction_check(options, &compaction, err);
  if (status == TURB_OK)
    status = db_check_writable(collection->db, err);
  if (status != TURB_OK)
    return status;
  turb_db *db = collection->db;
  mutex_lock(&db->mutex);
  status = db_check_readable(collection, err); /* it may have been dropped meanwhile */
  if (status == TURB_OK) {
    struct version_edit edit;
    edit_init(&edit, &db->allocator);
    edit_set_compaction(&edit, collection->id, &compaction);
    job_edit_counters(db, &edit);
    status = manifest_append(db->manifest, &edit, err);
    edit_free(&edit);
  }
  if (status == TURB_OK) {
    compaction_set(collection, &compaction);
    cond_broadcast(&db->work_changed);
  }
  mutex_unlock(&db->mutex);
  return status;
}

/* ---- runs as the policy sees them ---- */

/* Of the newest snapshot; 0: there is none. */
static uint64_t newest_snapshot(turb_db *db) {
  mutex_lock(&db->snapshot_mutex);
  struct list *last = list_last(&db->snapshots);
  const uint64_t sequence = last ? LIST_ENTRY(last, struct turb_snapshot, link)->sequence : 0;
  mutex_unlock(&db->snapshot_mutex);
  return sequence;
}

static void describe_run(const turb_collection *collection, const struct version_run *run, uint64_t snapshot, struct policy_run *out) {
  *out = (struct policy_run){.bytes = run->bytes, .entries = run->entries, .held = run->smallest_sequence <= snapshot};
  if (collection->compaction.ttl_s)
    out->written_by_s = catalog_written_by_s(manifest_catalog(collection->db->manifest), run->largest_sequence);
}

static struct policy_pick pick_among(const turb_collection *collection, const struct policy_run *runs, size_t count, uint32_t fan_in) {
  const struct policy_options options = compaction_options(collection);
  struct policy_pick pick = collection->merge_requested ? policy_everything(runs, count) : policy_next(&options, runs, count);
  const bool may_merge = !collection->merge_blocked && (!collection->merge_held || collection->merge_requested);
  if (!policy_drops(pick.reason) && !may_merge)
    return (struct policy_pick){0};
  return policy_narrow(pick, runs, count, fan_in);
}

struct policy_pick compaction_pick(const turb_collection *collection, uint32_t fan_in) {
  const bool fifo = collection->compaction.policy == TURB_COMPACTION_FIFO;
  turb_db *db = collection->db;
  const struct version *version = collection->version;
  struct policy_pick pick = {0};
  if (collection->merging || version->run_count < (fifo ? 1 : 2))
    return pick;
  struct policy_run small[64];
  struct policy_run *runs = small;
  if (version->run_count > 64)
    runs = mem_alloc_array(&db->allocator, version->run_count, sizeof *runs);
  if (!runs)
    return pick;
  const uint64_t snapshot = fifo ? newest_snapshot(db) : 0;
  for (uint32_t r = 0; r < version->run_count; r++)
    describe_run(collection, &version->runs[r], snapshot, &runs[r]);
  pick = pick_among(collection, runs, version->run_count, fan_in);
  if (runs != small)
    mem_free(&db->allocator, runs, version->run_count * sizeof *runs);
  return pick;
}

uint64_t compaction_next_drop_ns(const turb_collection *collection) {
  const struct version *version = collection->version;
  if (!collection->compaction.ttl_s || collection->merging || !version->run_count)
    return UINT64_MAX;
  struct policy_run oldest;
  describe_run(collection, &version->runs[version->run_count - 1], newest_snapshot(collection->db), &oldest);
  const struct policy_options options = compaction_options(collection);
  const uint64_t at_s = policy_next_drop_s(&options, &oldest, 1);
  if (at_s == UINT64_MAX || at_s <= options.now_s) /* never, or it is due already and something else must change first */
    return UINT64_MAX;
  const uint64_t wait_s = at_s - options.now_s < LOOK_AHEAD_S ? at_s - options.now_s : LOOK_AHEAD_S;
  return clock_monotonic_ns() + wait_s * CLOCK_NS_PER_SECOND;
}
