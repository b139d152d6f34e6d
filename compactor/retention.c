/* retention.h has the contract, the states and the invariants. */
#include "compactor/retention.h"

void retention_init(struct retention *retention, const uint64_t *snapshots, size_t snapshot_count,
                    const struct range_deletes *range_deletes, bool bottom) {
  retention->snapshots = snapshots;
  retention->snapshot_count = snapshot_count;
  retention->range_deletes = range_deletes && range_deletes->count ? range_deletes : NULL;
  retention->bottom = bottom;
  retention->has_key = false;
  retention->key_size = 0;
  retention->stripe = 0;
}

uint64_t retention_stripe(const struct retention *retention, uint64_t sequence) {
  size_t low = 0, high = retention->snapshot_count;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if (retention->snapshots[middle] < sequence)
      low = middle + 1;
    else
      high = middle;
  }
  return low < retention->snapshot_count ? retention->snapshots[low] : UINT64_MAX;
}

enum retention_verdict retention_judge(struct retention *retention, const struct slot *slot, const struct slot *before) {
  const uint8_t *key = slot_key(slot);
  const bool same = before ? before->key_size == slot->key_size && !memcmp(slot_key(before), key, slot->key_size)
                           : retention->has_key && key_equal(retention->key, retention->key_size, key, slot->key_size);
  const uint64_t sequence = slot_sequence(slot);
  const uint64_t stripe = retention->snapshot_count ? retention_stripe(retention, sequence) : UINT64_MAX;
  const bool shadowed = same && stripe == retention->stripe;
  retention->stripe = stripe;
  if (shadowed)
    return DROP_SHADOWED;
  if (retention->range_deletes && range_deletes_cover(retention->range_deletes, slot_key_bytes(slot), stripe) > sequence)
    return DROP_RANGE_DELETED;
  if (slot_kind(slot) == SLOT_DELETE && !retention_keeps_range(retention, sequence))
    return DROP_DELETE;
  return RETAIN;
}

void retention_remember(struct retention *retention, const struct slot *last) {
  retention->has_key = true;
  retention->key_size = last->key_size;
  memcpy(retention->key, slot_key(last), last->key_size);
}

bool retention_keeps_range(const struct retention *retention, uint64_t sequence) {
  return !retention->bottom || (retention->snapshot_count && retention->snapshots[0] < sequence);
}
