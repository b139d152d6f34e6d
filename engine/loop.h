/* engine/loop: a ring that the embedder's event loop drives, and the iterators on it.
 *
 * A round of the event loop costs what it did, not what is open: the group lists the iterators that queued reads since the last submission,
 * and those for which reads completed since they were last advanced, sought or handed out.
 * Threads: one, the embedder's.
 */
#ifndef TURB_ENGINE_LOOP_H
#define TURB_ENGINE_LOOP_H

#include "engine/db.h"
#include "sstable/load.h"

struct turb_loop {
  turb_db *db;
  struct io_ring *ring;
  struct reads_group group; /* of struct iterator's reads */
  size_t iterator_count;
};

#endif
