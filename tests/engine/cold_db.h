/* A database with one collection on a simulated disk that completes in any order and often short, whose cache can be emptied: for tests of
 * what is read from it.
 *
 * Threads: one.
 */
#ifndef TURB_TESTS_ENGINE_COLD_DB_H
#define TURB_TESTS_ENGINE_COLD_DB_H

#include "engine/db.h"
#include "tests/support/allocator.h"
#include "tests/support/test.h"

struct cold_db {
  turb_simulation *simulation;
  struct test_allocator allocator; /* the database's */
  turb_db *db;                     /* without workers, 16 MiB */
  turb_collection *c;              /* f32 */
};

void cold_db_begin(struct cold_db *disk, uint64_t seed, uint32_t dimension);
/* Closes it, and checks that no memory is left. */
void cold_db_end(struct cold_db *disk);
/* Nothing of the tables is resident any more, whatever is pinned; what is not pinned is overwritten where it lies, or given back. */
void cold_db_chill(struct cold_db *disk);

#endif
