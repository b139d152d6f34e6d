/* sstable/cache: the page cache, sharded, charged to the budget. It holds units of tables: index pages, filter sections, key pages,
 * checksum pages,
 * frames of rows, chunks of attributes.
 *
 * There is no hash table: a table keeps an array (directory) with one word for each of its units, the frame's number and the place of its
 * data, so a hit is one array look-up and one atomic pin. Frame descriptors are never given back while the cache lives, so a stale number is
 * harmless: the pin is taken first, then owner and unit are compared.
 *
 *   FREE --cache_memory_take--> TAKEN --cache_insert--> RESIDENT (pins >= 0) --evict: pins 0, by a CAS--> FREE
 *                               TAKEN --cache_keep----> KEPT (pins > 0, in no directory) --last unpin--> FREE
 *                               TAKEN --cache_memory_give--> FREE
 *
 * Memory comes in slabs of up to 2 MiB, each cut into frames of one size and one group (meta: index, filter, key and checksum units; data:
 * rows
 * and attributes). A freed frame is used again without a call of the allocator; what the budget is charged is what is held, free frames
 * included.
 *
 * Invariants
 *  1. A frame with pins > 0 is neither evicted nor written.
 *  2. Memory is charged (BUDGET_CACHE) before it is taken; under pressure from others the cache gives up slabs without pins (it is the
 *     budget's reclaimer).
 *     It grows into whatever the budget leaves, but for a small reserve that spares small takers of others a reclaim each.
 *  3. Index, filter, key and checksum units outlive row and attribute units: the clock gives them more rounds, and rows take no memory
 *     from them
 *     once they hold an eighth of the cache.
 *  4. A table that closes removes its frames first; frames pinned then belong to the pins.
 * Threads: all calls from any thread, but a directory is closed by one when no other uses it. A hit takes no lock. Locks: a shard's, then
 * the
 * descriptor pool's.
 */
#ifndef TURB_SSTABLE_CACHE_H
#define TURB_SSTABLE_CACHE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/budget.h"
#include "base/status.h"

enum unit_kind { UNIT_INDEX = 0, UNIT_FILTER = 1, UNIT_KEYS = 2, UNIT_CHECKSUMS = 3, UNIT_ROWS = 4, UNIT_ATTRIBUTES = 5, UNIT_KINDS = 6 };

#define CACHE_UNIT_MAX_BYTES (96u * 4096u)

struct cache;
struct cache_frame;

/* A pinned unit. Zeroed is empty. Moves by assignment (then zero the source). */
struct cache_pin {
  struct cache_frame *frame; /* NULL: empty, or private memory */
  const void *data;          /* page-aligned */
  uint32_t size;
};

/* A frame to be read into, the taker's alone. Zeroed is none. Moves by assignment (then zero the source). */
struct cache_memory {
  struct cache_frame *frame;
  void *data; /* page-aligned, size rounded up to pages */
  uint32_t size;
};

/* One a table: the directory of its units. */
struct cache_directory {
  struct cache *cache;
  uint64_t owner; /* never reused in a cache's life, never 0 */
  uint32_t unit_count;
  _Atomic uint64_t *entries; /* [unit_count], 0: not resident; charged to BUDGET_METADATA */
};

/* Becomes the reclaimer of `budget`. */
TURB_MUST_CHECK turb_status cache_create(const turb_allocator *allocator, struct budget *budget, struct cache **cache, turb_error *err);
void cache_destroy(struct cache *cache); /* nothing is pinned or taken, all directories are closed; NULL ok */

TURB_MUST_CHECK turb_status cache_directory_open(struct cache *cache, uint32_t unit_count, struct cache_directory *directory,
                                                 turb_error *err);
void cache_directory_close(struct cache_directory *directory);

/* Pins a resident unit; false (and an empty pin) when it is not there. Counts a hit or a miss. */
bool cache_pin(struct cache_directory *directory, uint32_t unit, struct cache_pin *pin);
/* Whether the unit is resident now; counts nothing. */
bool cache_holds(const struct cache_directory *directory, uint32_t unit);
/* Asks for the descriptor of a resident unit and says where its data lies, so that the caller can ask for that at the same time. Nothing keeps the
 * data there: it must not be read before the unit is pinned. NULL: not resident, or not known. */
const void *cache_prefetch(const struct cache_directory *directory, uint32_t unit);
/* Another pin on the same unit. */
void cache_pin_copy(const struct cache_pin *from, struct cache_pin *to);
/* Lets go; safe on an empty pin, which it leaves empty. */
void cache_unpin(struct cache_pin *pin);

/* Page-aligned memory for a unit to be read into (size up to CACHE_UNIT_MAX_BYTES); false and nothing when neither the budget nor eviction
 * yields it.
 * Eviction happens only for `may_evict`. */
TURB_MUST_CHECK bool cache_memory_take(struct cache *cache, uint32_t size, enum unit_kind kind, bool may_evict,
                                       struct cache_memory *memory);
void cache_memory_give(struct cache *cache, struct cache_memory *memory); /* none is ok */
/* Makes the memory the resident unit and pins it. When another came first, the memory is given back and theirs is pinned. */
void cache_insert(struct cache_directory *directory, uint32_t unit, struct cache_memory *memory, struct cache_pin *pin);
/* Pins the memory without showing it to others: the last unpin gives it back. */
void cache_keep(struct cache_memory *memory, struct cache_pin *pin);

/* Admission of row and attribute units on point reads: true while memory is free without evicting, or when this unit has missed several
 * times lately. */
bool cache_admits(struct cache_directory *directory, uint32_t unit, uint32_t size);

struct cache_stats {
  uint64_t bytes;        /* charged */
  uint64_t frames;       /* resident */
  uint64_t hits, misses; /* hits of frames evicted meanwhile included; a few are lost when threads hit one frame at once */
  uint64_t evictions, pinned_frames;
};
/* Walks all frame descriptors. */
void cache_get_stats(const struct cache *cache, struct cache_stats *stats);

#endif
