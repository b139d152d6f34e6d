/* engine/write: the one way of entries into the database.
 *
 * Writers queue up; the first leads. The leader takes those behind it along (a group), makes room in the memtables, gives out sequence
 * numbers, appends one record to the log, syncs it when
 * one of the group wants that, puts the entries into the memtables and moves visible_sequence over all of them in one step.
 *
 * A writer may bring a `prepare` instead of operations: it runs under leadership, alone (conditional writes read before they write;
 * switching a memtable is one too).
 *
 *   QUEUED --first in the queue--> LEADING --> DONE          QUEUED --taken into a group--> DONE
 */
#ifndef TURB_ENGINE_WRITE_H
#define TURB_ENGINE_WRITE_H

#include "engine/batch.h"
#include "engine/db.h"

struct writer {
  /* filled by the caller */
  const struct batch *batch; /* operations; or filled by prepare */
  turb_durability durability;
  turb_status (*prepare)(void *context, turb_error *err); /* or NULL */
  void *context;
  /* the result */
  uint64_t first_sequence;
  turb_status status;
  turb_error error;
  /* the queue's */
  struct list link;
  bool done;
  sem_t turn; /* posted once the result is there, or it is this writer's turn to lead, or the leader's company is there */
};

/* Queues, waits, leads when it is its turn. Returns writer->status. */
TURB_MUST_CHECK turb_status write_submit(turb_db *db, struct writer *writer, turb_error *err);

/* Under leadership (from a prepare): seals the newest memtable of the collection, when it holds anything, and puts an empty one before it.
 * */
TURB_MUST_CHECK turb_status write_switch_memtable(turb_collection *collection, turb_error *err);
/* Puts an empty memtable before the newest (which may be none), whose entries will begin in log `first_log`. */
TURB_MUST_CHECK turb_status write_push_memtable(turb_collection *collection, uint64_t first_log, turb_error *err);
/* The same through the queue. */
TURB_MUST_CHECK turb_status write_seal(turb_collection *collection, turb_error *err);

/* Puts a recovered or logged operation into the collection's newest memtable; room was reserved. */
TURB_MUST_CHECK turb_status write_apply(turb_collection *collection, const struct batch_operation *operation, turb_error *err);

/* Under leadership: makes all that was appended durable. */
TURB_MUST_CHECK turb_status write_sync_log(turb_db *db, turb_error *err);

/* Size, finite components, unused bits of a vector for the collection. INVALID. */
TURB_MUST_CHECK turb_status write_check_vector(const turb_collection *collection, turb_bytes vector, turb_error *err);

#endif
