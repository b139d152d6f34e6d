/* engine/loop: a ring that the embedder's event loop drives, and the iterators on it. Threads: one, the embedder's. */
#ifndef TURB_ENGINE_LOOP_H
#define TURB_ENGINE_LOOP_H

#include "engine/db.h"

struct turb_loop {
  turb_db *db;
  struct io_ring *ring;
  struct list iterators; /* of struct iterator, by loop_link */
  size_t iterator_count;
};

#endif
