/* sstable/writer: writes one table, front to end, in bounded memory. Blocking interface over a ring with several writes in flight.
 *
 * Entries arrive in strict entry order. Memory: about 2.5 MiB plus the largest row, charged to BUDGET_JOB at creation; the same input
 * gives the same bytes.
 * After any error the writer only takes table_writer_destroy. Errors: INVALID (an entry out of order, a put without a row, ...: the
 * message names the key),
 * TOO_LARGE, BUDGET, NO_MEMORY, NO_SPACE, IO, EXISTS (create: a file of that name is there, and stays).
 * Threads: one thread from the first add to destroy (a ring is leased in between).
 */
#ifndef TURB_SSTABLE_WRITER_H
#define TURB_SSTABLE_WRITER_H

#include "sstable/table.h"

struct table_writer;

struct table_writer_options {
  struct table_shape shape; /* derived */
  uint64_t file_number, collection_id;
  uint64_t job, cut;          /* the table seed comes from them and the database id */
  uint64_t bulk_sequence_mode; /* not 0: slots carry sequence 0, and the record's bulk_sequence is given at install */
};

/* What a writer of such tables charges to a budget with this limit, but for the tail's records, which grow with the table. */
uint64_t table_writer_memory_bytes(const struct table_shape *shape, uint64_t budget_limit_bytes);
TURB_MUST_CHECK turb_status table_writer_create(const struct table_env *env, const char *path, const struct table_writer_options *options,
                                                struct table_writer **writer, turb_error *err);
/* Adds one entry: key, sequence and kind, row hash and attribute hash come from `slot` (any page); row (row_bytes) and attributes may be
 * NULL for deletes. */
TURB_MUST_CHECK turb_status table_writer_add(struct table_writer *writer, const struct slot *slot, const void *row, const void *attributes,
                                             turb_error *err);
/* A large attribute can come in parts: add with attributes NULL although slot_attribute_size > 0, then append until complete. */
TURB_MUST_CHECK turb_status table_writer_append_attribute(struct table_writer *writer, const void *bytes, size_t size, turb_error *err);
/* Range-delete fragments, in order, before finish. */
TURB_MUST_CHECK turb_status table_writer_add_range(struct table_writer *writer, const struct range_fragment *fragment, turb_error *err);
/* The table's size if it were finished now, about. */
uint64_t table_writer_bytes(const struct table_writer *writer);
uint64_t table_writer_entries(const struct table_writer *writer);
/* Declared bounds; when never called, the bounds of what was added. */
TURB_MUST_CHECK turb_status table_writer_declare_bounds(struct table_writer *writer, turb_bytes lower, turb_bytes upper, bool upper_open, turb_error *err);
/* INVALID when nothing was added. Writes what is left and the tail, syncs the file (not its folder), fills `record` (its key bytes live as
 * long as the writer). */
TURB_MUST_CHECK turb_status table_writer_finish(struct table_writer *writer, struct table_record *record, turb_error *err);
/* After finish: frees. Otherwise: also closes and unlinks the file. NULL ok. */
void table_writer_destroy(struct table_writer *writer);

#endif
