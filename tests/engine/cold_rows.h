/* A collection on the simulated disk whose rows are a page each, with what every stage of its life holds: two runs, range deletes and a
 * memtable. For tests of the public iterator over what is not in memory.
 *
 * Threads: one.
 */
#ifndef TURB_TESTS_ENGINE_COLD_ROWS_H
#define TURB_TESTS_ENGINE_COLD_ROWS_H

#include "engine/iterator.h"
#include "tests/engine/cold_db.h"

#define COLD_KEYS      400u
#define COLD_DIMENSION 1024u
#define COLD_STAGES    3u

struct cold_rows {
  struct cold_db disk;
  turb_snapshot *snapshots[COLD_STAGES + 1]; /* [stage]: after it; the last and 0 have none */
};

/* What a reader must see, in the order of keys. */
struct cold_list {
  uint32_t numbers[COLD_KEYS];
  uint32_t stage, count;
};

void cold_rows_begin(struct cold_rows *rows, uint64_t seed);
void cold_rows_end(struct cold_rows *rows);

turb_bytes cold_rows_key(uint32_t number, char key[16]);
/* The number in a key. */
uint32_t cold_rows_number(turb_bytes key);
/* Which version of the key the stage has; 0: none. */
uint32_t cold_rows_version(uint32_t number, uint32_t stage);
void cold_rows_list(struct cold_list *list, uint32_t stage);
void cold_rows_check(const turb_entry *entry, uint32_t number, uint32_t stage, uint32_t parts);

/* Waits until one of the iterator's reads was completed, without going on with its move. */
void cold_rows_wait(turb_iterator *it);

#endif
