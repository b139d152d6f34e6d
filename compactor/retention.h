/* compactor/retention: what a merge keeps: everything that the newest state or a snapshot can see.
 *
 * Snapshots cut the sequence numbers into stripes: two sequences are in one stripe when no snapshot lies between them (s <= snapshot < t
 * separates s and t). Of the versions of a key, the newest of
 * each stripe is kept. A range delete hides what is older in its own stripe. A delete with nothing older below it (bottom) and no snapshot
 * below it has done its work.
 *
 * Entries come in entry order. Threads: one, the job's.
 */
#ifndef TURB_COMPACTOR_RETENTION_H
#define TURB_COMPACTOR_RETENTION_H

#include <stdbool.h>

#include "base/range_deletes.h"
#include "base/slot.h"

enum retention_verdict { RETAIN = 0, DROP_SHADOWED = 1, DROP_RANGE_DELETED = 2, DROP_DELETE = 3, RETENTION_VERDICTS = 4 };

struct retention {
  const uint64_t *snapshots; /* ascending */
  size_t snapshot_count;
  const struct range_deletes *range_deletes; /* of the inputs, or NULL */
  bool bottom;
  /* the key before, in the caller's order */
  bool has_key;
  uint16_t key_size;
  uint64_t stripe; /* of its version before */
  uint8_t key[TURB_MAX_KEY_BYTES];
};

void retention_init(struct retention *retention, const uint64_t *snapshots, size_t snapshot_count,
                    const struct range_deletes *range_deletes, bool bottom);
/* `before` is the entry before this one when it is still in memory, or NULL: then the remembered key is compared. */
enum retention_verdict retention_judge(struct retention *retention, const struct slot *slot, const struct slot *before);
/* Remembers the key of the last judged entry, before its page goes. */
void retention_remember(struct retention *retention, const struct slot *last);
/* The stripe of a sequence: the smallest snapshot at or above it, or UINT64_MAX. */
uint64_t retention_stripe(const struct retention *retention, uint64_t sequence);
/* Whether a range delete of this sequence is still needed in the output. */
bool retention_keeps_range(const struct retention *retention, uint64_t sequence);

#endif
