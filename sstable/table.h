/* sstable/table: an open table, read. Opening reads the tail in one read; everything else comes through loads (load.h) and streams
 * (stream.h).
 *
 * Resident for every open table: extents, top index, range deletes, properties, the cache directory. Charged to BUDGET_METADATA.
 * Invariants: 1. immutable after table_open; 2. reference-counted (atomically); the last release closes the file, and unlinks it when it
 * was made obsolete.
 * Threads: all calls from any thread.
 */
#ifndef TURB_SSTABLE_TABLE_H
#define TURB_SSTABLE_TABLE_H

#include "io/io.h"
#include "sstable/cache.h"
#include "sstable/format.h"
#include "sstable/load.h"

struct table_env { /* borrowed by tables for their life */
  struct io_system *system;
  const turb_allocator *allocator;
  struct budget *budget;
  struct cache *cache;
  struct block_pool *block_pool; /* of decompressors; or NULL */
  struct logger *logger;
  uint8_t database_id[16];
  bool buffered;                     /* no O_DIRECT */
  _Atomic uint64_t *obsolete_tables; /* how many are open though obsolete; may be NULL */
};

struct table;

/* `record` may be NULL for a file that no manifest names (dump, verify): then the footer is read first. Errors: NOT_FOUND, CORRUPTION,
 * NEWER_FORMAT,
 * NOT_A_DATABASE (a file of another database; the message says so). */
TURB_MUST_CHECK turb_status table_open(const struct table_env *env, const char *path, const struct table_record *record,
                                       struct table **table, turb_error *err);
struct table *table_retain(struct table *table);
void table_release(struct table *table); /* NULL ok */
/* The file is unlinked when the last reference goes. */
void table_make_obsolete(struct table *table);

const struct table_record *table_get_record(const struct table *table); /* with the declared bounds and bulk sequence as opened */
const struct table_shape *table_get_shape(const struct table *table);
const struct range_deletes *table_range_deletes(const struct table *table);
const struct table_env *table_get_env(const struct table *table);
struct io_file *table_file(const struct table *table);
struct cache_directory *table_directory(struct table *table);
turb_bytes table_smallest_key(const struct table *table); /* of its point entries; size 0 when it has none */
turb_bytes table_largest_key(const struct table *table);

/* ---- addresses ---- */
/* The cache unit of (kind, ordinal). Ordinals: index pages, filter sections and checksum pages by number; key pages by their first 4 KiB
 * unit; rows
 * by frame; attributes by chunk. */
uint32_t table_unit(const struct table *table, enum unit_kind kind, uint32_t ordinal);
uint32_t table_unit_count(const struct table *table, enum unit_kind kind);
/* Where a row lies: its frame, and its place within the frame (uncompressed bytes). */
void table_locate_row(const struct table *table, uint64_t row, uint32_t *frame, uint32_t *offset);
/* Where a row lies in the file; UINT64_MAX when rows are compressed: their blocks have checksums of their own. */
uint64_t table_row_offset(const struct table *table, uint64_t row);
/* Rows [*first, *first + *count) of a frame. */
void table_frame_rows(const struct table *table, uint32_t frame, uint64_t *first, uint32_t *count);
/* The chunk that holds attribute bytes [offset, offset + size), where in it they begin, and the chunk's own bytes. False when they cross
 * chunks. */
bool table_locate_attribute(const struct table *table, uint64_t offset, uint32_t size, uint32_t *chunk, uint32_t *within,
                            uint32_t *chunk_bytes);
/* Key ordinal of a file page named by an index slot. UINT32_MAX when it is not in a key extent (corruption). */
uint32_t table_key_ordinal(const struct table *table, uint32_t file_page);

/* ---- the page index ---- */
uint32_t table_index_page_count(const struct table *table);
/* The first index page whose last separator >= key; table_index_page_count when none. */
uint32_t table_find_index_page(const struct table *table, turb_bytes key);
/* Within an index page (pinned): the first slot whose separator >= key; slot_count when none. */
uint16_t index_page_find(const struct slot_page *page, turb_bytes key);
/* About the slot of the key page of index slot `at` before which the key belongs, by where it lies between the separators around the page. */
uint16_t index_page_guess(const struct slot_page *page, uint16_t at, turb_bytes key);
/* Asks, when the key page (a unit of the cache) is resident, for its descriptor and for what a search from the guess on will look at, so that
 * the lines come together. */
void table_prefetch_keys(struct table *table, const struct index_slot *index, uint32_t unit, uint32_t guess, size_t key_size);
static inline const struct index_slot *index_slot_at(const struct slot_page *page, size_t i) {
  return (const struct index_slot *)(page + 1) + i;
}
/* Entries and rows before an index page. */
void table_index_page_base(const struct table *table, uint32_t index_page, uint64_t *entries, uint64_t *rows);
/* The first row whose key is >= key, in one blocking step or from resident pages only (approximate = true: may be off by a page). */
TURB_MUST_CHECK turb_status table_row_lower_bound(struct table *table, struct reads *reads, turb_bytes key, bool approximate, uint64_t *row,
                                                  uint64_t *entry, turb_error *err);

/* Walks every byte of the file against every checksum and invariant of docs/format.md; each problem goes to `problem`, and the walk goes
 * on where it can. */
TURB_MUST_CHECK turb_status table_verify(struct table *table, void (*problem)(void *context, const turb_error *problem), void *context,
                                         uint64_t *bytes, uint64_t *entries, turb_error *err);

/* ---- point look-up, split like a cursor ---- */
enum get_state { GET_READY = 0, GET_PENDING = 1, GET_FAILED = 4 };

struct table_get { /* caller-owned; table_get_init once, table_get_start for each look-up */
  struct reads *reads;
  const turb_allocator *allocator;
  struct load *load; /* keys, index, filter; made at the first miss */
  struct table *table;
  turb_bytes key;
  uint64_t hash, sequence;
  uint32_t step, index_page, key_ordinal;
  uint16_t index_slot, guess;
  struct cache_pin index_pin, key_pin;
  const struct slot *found; /* READY: the newest version at or below `sequence`, or NULL; pinned by key_pin */
  bool skip_filter;
  bool row_wanted; /* by the caller, who sets it after init: the row of what is found is asked for early */
  turb_error error;
};
TURB_MUST_CHECK turb_status table_get_init(struct table_get *get, struct reads *reads, const turb_allocator *allocator, turb_error *err);
/* Resets the look-up that may be under way, also one in flight. `hash` = XXH3-64 of the key. */
enum get_state table_get_start(struct table_get *get, struct table *table, turb_bytes key, uint64_t hash, uint64_t sequence,
                               bool skip_filter);
/* Goes on after completions were polled. */
enum get_state table_get_step(struct table_get *get);
void table_get_close(struct table_get *get); /* never waits */

#endif
