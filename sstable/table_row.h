/* sstable/table_row: from a row's number to its slot, split like a cursor: for scans over rows alone, which ask for the keys of few of
 * them.
 *
 * The index page and the key page are found by the row numbers that the top index and the index slots begin with; key pages fill the
 * cache. The page that was found last stays
 * pinned, and rows that follow each other are looked up in it at once.
 *
 * Threads: one at a time; the same as its reads.
 */
#ifndef TURB_SSTABLE_TABLE_ROW_H
#define TURB_SSTABLE_TABLE_ROW_H

#include "sstable/table.h"

struct table_row_find { /* caller-owned; zeroed, then table_row_find_init once, table_row_find_start for each row */
  struct reads *reads;
  const turb_allocator *allocator;
  struct load *load; /* made at the first miss */
  struct table *table;
  uint64_t row;
  uint64_t end_row; /* behind the last row of the pinned key page */
  uint32_t step, index_page, key_ordinal;
  uint16_t index_slot;
  bool continues; /* the pinned key page begins with the key that ends the page before */
  struct cache_pin index_pin, key_pin;
  const struct slot *slot; /* READY: of the row; pinned by key_pin */
  turb_error error;
};

void table_row_find_init(struct table_row_find *find, struct reads *reads, const turb_allocator *allocator);
/* `row` is below the table's puts. Drops the look-up that may be under way. */
enum get_state table_row_find_start(struct table_row_find *find, struct table *table, uint64_t row);
/* Goes on after completions were polled. */
enum get_state table_row_find_step(struct table_row_find *find);
/* READY: the slot before the found one in the order of entries, or NULL when it is not in the same page (then `continues` tells whether it
 * has the same key). */
static inline const struct slot *table_row_find_before(const struct table_row_find *find) {
  return find->slot > slot_at(find->key_pin.data, 0) ? find->slot - 1 : NULL;
}
void table_row_find_close(struct table_row_find *find); /* never waits */

#endif
