/* sstable/reads: what loads and lanes do with a `struct reads` (load.h) beneath the cursors.
 *
 *   reads_add: queued on the reads --reads_submit--> in the ring --complete--> the owner calls reads_done
 *              reads_remove <--/                     reads_forget <--/ (orphaned: completes without the reads)
 *
 * While an operation waits on the reads its state is IO_OP_IDLE or IO_OP_DONE; in the ring it is IO_OP_QUEUED or IO_OP_SUBMITTED.
 */
#ifndef TURB_SSTABLE_READS_H
#define TURB_SSTABLE_READS_H

#include "sstable/load.h"

static inline bool reads_in_ring(const struct io_op *op) {
  return op->state == IO_OP_QUEUED || op->state == IO_OP_SUBMITTED;
}
/* Queues behind what is queued. No system call, no memory. */
void reads_add(struct reads *reads, struct io_op *op);
/* Takes an operation that is not in the ring yet out again. */
void reads_remove(struct reads *reads, struct io_op *op);
/* Called by `complete` of an operation that still has its reads. */
void reads_done(struct reads *reads);
/* What a cursor may have waited for is there, or needs a further read. */
void reads_wake(struct reads *reads);
/* The operation in the ring is no longer waited for. */
void reads_forget(struct reads *reads);

#endif
