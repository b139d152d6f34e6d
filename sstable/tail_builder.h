/*
 * sstable/tail_builder: what a table's tail will say, as it grows while the table is written, and the writing of tail and footer
 * (docs/format.md 3.10).
 *
 * Range deletes, extents and top index are kept in their encoded form. Invariants: 1. extents are added in file order, and their ordinals follow each
 * other without gaps, as they are counted here; 2. memory is charged (BUDGET_JOB) before it is taken.
 *
 * Threads: one at a time.
 */
#ifndef TURB_SSTABLE_TAIL_BUILDER_H
#define TURB_SSTABLE_TAIL_BUILDER_H

#include "base/budget.h"
#include "sstable/codec.h"
#include "sstable/output.h"

struct tail_builder {
  struct budget *budget; /* NULL: not charged */
  uint64_t charged_bytes;
  uint64_t prepaid_bytes; /* of these: not used yet */
  struct buffer ranges, extents, top, properties;
  uint32_t range_count;
  uint64_t next_ordinal[EXTENT_CHECKSUMS + 1];
};

/* What a table of some ten thousand entries needs: charged before its first, so that others cannot take it while the table grows. */
#define TAIL_PREPAID_BYTES (48u << 10)

/* Takes no memory. The caller has charged TAIL_PREPAID_BYTES to the budget (when there is one), which tail_free gives back. */
void tail_init(struct tail_builder *tail, const turb_allocator *allocator, struct budget *budget);
void tail_free(struct tail_builder *tail);

TURB_MUST_CHECK turb_status tail_add_range(struct tail_builder *tail, const struct range_fragment *fragment, turb_error *err);
/* An extent of `pages` pages at a page border of the file; does nothing when count is 0. */
TURB_MUST_CHECK turb_status tail_add_extent(struct tail_builder *tail, enum extent_kind kind, uint64_t offset, uint64_t pages,
                                            uint32_t count, turb_error *err);
/* One index page: its last separator; entries and rows before it. */
TURB_MUST_CHECK turb_status tail_add_top(struct tail_builder *tail, turb_bytes separator, uint64_t first_entry, uint64_t first_row,
                                         turb_error *err);

/* About the bytes of tail and footer. */
uint64_t tail_bytes(const struct tail_builder *tail);

/* Appends tail and footer at the output's position, a page border; the file then ends at one. */
TURB_MUST_CHECK turb_status tail_write(struct tail_builder *tail, const struct table_properties *properties, struct output *output,
                                       uint64_t seed, uint64_t *tail_offset, turb_error *err);

#endif
