/* sstable/load: one unit, or the pages of one row or attribute, on its way from disk to memory; and `reads`, the queue that a tree of
 * cursors shares.
 *
 * A cursor that misses starts a load and is PENDING. Nothing is submitted by starting: reads_submit hands everything that is queued on
 * `reads` to a
 * ring in one system call. A load is memory of its own (not the cursor's): when the cursor goes away first, load_destroy leaves it to the
 * ring, which
 * completes it into the cache (or frees it) and releases the table reference.
 *
 *   IDLE --load_unit / load_row--> WAITING --completions--> READY (pin holds verified bytes) | FAILED (err says why)
 *   any --load_reset--> IDLE (in flight: the operation goes on as an orphan, and the next unit's gets memory of its own)
 *
 * Threads: a reads, its loads and its ring belong to one thread at a time.
 */
#ifndef TURB_SSTABLE_LOAD_H
#define TURB_SSTABLE_LOAD_H

#include "base/list.h"
#include "io/io.h"
#include "sstable/cache.h"
#include "sstable/format.h"

struct table;

/* Many queues on one ring whose owner looks only at those with something to do. The owner's thread. */
struct reads_group {
  struct list queued; /* of struct reads, by queued_link: with operations that are not in the ring yet, oldest first */
  struct list woken;  /* by woken_link: what a load or lane of theirs waited for was completed since they were last taken out */
};

struct reads {
  struct io_system *system;
  struct io_ring *ring; /* a loop's, or leased while operations are in flight, or NULL */
  bool leased;
  struct io_op *queue_head, *queue_tail; /* started, not submitted */
  uint32_t queued, in_flight;
  uint64_t completed;        /* operations of this queue, ever */
  uint64_t bytes;            /* that they transferred */
  struct reads_group *group; /* or NULL */
  struct list queued_link, woken_link;
};
void reads_init(struct reads *reads, struct io_system *system, struct io_ring *ring);
void reads_group_init(struct reads_group *group);
/* The queue, which is empty, belongs to the group until reads_close. The group's ring is its own. */
void reads_join(struct reads *reads, struct reads_group *group);
/* Moves what the group's queues hold into the ring, the longest waiting queue first, as far as there is room; without submitting. Costs
 * what is queued, not what is open. */
void reads_group_hand_over(struct reads_group *group);
/* Submits what is queued; leases a ring when there is none. */
TURB_MUST_CHECK turb_status reads_submit(struct reads *reads, turb_error *err);
/* For who waited and goes on to compute: what was queued meanwhile, which is read ahead, is read in the meantime. A submission that fails
 * fails those reads, and is told when one of them is wanted. */
void reads_submit_ahead(struct reads *reads);
/* Submits, then runs the ring until at least one operation of this queue completed (or none is in flight). */
TURB_MUST_CHECK turb_status reads_wait(struct reads *reads, turb_error *err);
/* Takes completions unless some were taken that the caller has not heard of; not 0 when there is news. The queue is not woken any more. */
size_t reads_poll(struct reads *reads);
/* All its loads are idle or abandoned; gives a leased ring back, with orphans in flight or not. Unsubmitted orphans are submitted or
 * dropped. */
void reads_close(struct reads *reads);

enum load_state { LOAD_IDLE = 0, LOAD_WAITING = 1, LOAD_READY = 2, LOAD_FAILED = 3 };

/* Opaque; made once, used many times. Small: memory for reads is made by the first read, that for an error's words by the first failure. */
struct load;
TURB_MUST_CHECK turb_status load_create(struct reads *reads, const turb_allocator *allocator, struct load **load, turb_error *err);
/* Never waits; in-flight operations are orphaned. NULL ok. */
void load_destroy(struct load *load);
/* Forgets the current unit (unpins, or orphans what is in flight). */
void load_reset(struct load *load);

enum load_flags {
  LOAD_FILL_CACHE = 1, /* insert into the cache */
  LOAD_POINT = 2,      /* a point read: row units are inserted only when cache_admits, else only the row's own pages are read */
  LOAD_TWO_UNITS = 4,  /* a key page of two units, as its index slot says; without it such a page takes two reads */
  LOAD_ABSENT = 8,     /* load_unit: the caller has just looked and found that it is not resident (so that a miss is counted once) */
};
/* Starts to bring a unit into memory, unless it is resident: then the load is READY at once. A row unit (frame) is verified by its
 * checksum page,
 * which is brought along in the same submission when it is not resident. */
enum load_state load_unit(struct load *load, struct table *table, enum unit_kind kind, uint32_t unit_ordinal, unsigned flags);
/* Brings one row of a put (slot known and pinned by the caller until READY): from the cache, else by its own pages, verified by row_hash.
 * */
enum load_state load_row(struct load *load, struct table *table, uint64_t row, uint64_t row_hash, unsigned flags);
/* Brings attribute bytes [offset, offset + size), size > 0, of the attribute area, verified by `attribute_hash` (or by chunks when larger
 * than 1 MiB). */
enum load_state load_attribute(struct load *load, struct table *table, uint64_t offset, uint32_t size, uint32_t attribute_hash,
                               unsigned flags);
/* The state now, without a system call and without polling the ring. */
enum load_state load_state(const struct load *load);
/* Whether it failed because the memory budget was short: who can lets go of something and tries again. */
bool load_is_short(const struct load *load);
/* READY: the pinned unit, row or attribute. The pin stays the load's; load_take_pin moves it to the caller. */
const void *load_data(const struct load *load, uint32_t *size);
void load_take_pin(struct load *load, struct cache_pin *pin, const void **data);
/* FAILED: why. The status is right in any case; file, offset and words need memory. */
turb_status load_error(const struct load *load, turb_error *err);

/* A pin outside the cache (a row read by its own pages) has frame NULL; its memory is given back by load_pin_release, which also unpins
 * ordinary pins.
 * (Only row and attribute loads make such pins.) */
void load_pin_release(const struct table *table, struct cache_pin *pin);

#endif
