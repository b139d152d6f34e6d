/*
 * sstable/stripe: all that a writer gathers in memory beside the vector blocks: key pages, index pages, attributes, filter hashes, checksum
 * records; and the writing of it as extents when the stripe ends (docs/format.md 3).
 *
 *   keys         | finished key pages ... | the page that fills |
 *   index        | finished index pages ... | the page that fills |      slots hold key page numbers within the stripe until it ends
 *   attributes   | bytes of the attribute area since the last extent |
 *   sections     | finished filter sections ... |   hashes: of the section that fills
 *
 * When a stripe ends, the pages that fill and the hashes go on in the next one; nothing is written short. An attribute that is larger than the
 * buffer gets an extent of its own, written as it comes.
 *
 * Invariants
 *   1. After stripe_has_room said yes, an entry's parts fit without a flush.
 *   2. Index slots below `patched` hold page numbers of the file, the others of the stripe.
 *   3. A checksum extent holds the records of all blocks and chunks since the one before it.
 *
 * Threads: one at a time.
 */
#ifndef TURB_SSTABLE_STRIPE_H
#define TURB_SSTABLE_STRIPE_H

#include "sstable/output.h"
#include "sstable/page_builder.h"
#include "sstable/row_writer.h"
#include "sstable/tail_builder.h"

/* Sizes of the parts. Keys and attributes decide how long a stripe is; the others follow. */
#define STRIPE_KEY_BYTES       ((256u << 10) + 2 * PAGE_BUILDER_BYTES)
#define STRIPE_ATTRIBUTE_BYTES (256u << 10)
#define STRIPE_INDEX_BYTES     (5 * PAGE_BUILDER_BYTES)
#define STRIPE_SECTIONS        2u
#define STRIPE_BLOCK_RECORDS   4096u
#define STRIPE_CHUNK_RECORDS   1024u
#define STRIPE_EXTENT_BYTES    (UINT64_C(1) << 30) /* vector extents end near it: offsets of blocks are 32 bits wide */

struct stripe {
  struct output *output;
  struct tail_builder *tail;
  struct row_writer rows;
  uint64_t seed;

  uint8_t *keys;
  uint32_t key_bytes; /* finished pages */
  struct key_page_builder key_page;
  uint64_t key_page_first_entry;

  uint8_t *index;
  uint32_t index_bytes; /* finished pages */
  struct index_page_builder index_page;
  uint32_t patched;   /* of the first index page in memory */
  uint8_t *separator; /* room for one */

  uint8_t *attributes;
  uint32_t attribute_bytes;  /* in memory, since the last attribute extent */
  uint64_t attribute_offset; /* of the next attribute byte in the attribute area */

  uint64_t *hashes;
  uint32_t hash_count;
  uint8_t *sections;
  uint32_t section_count, section_bytes;

  struct checksum_list blocks, chunks;
  struct hash_stream chunk; /* of the extent of its own that is being written */
  uint64_t own_begin;       /* in the file */
  uint32_t own_bytes;       /* written of it */

  uint64_t entries, hash_sum;
};

/* Bytes of the memory that stripe_init carves up (page-aligned), for tables of this shape. */
size_t stripe_memory_bytes(const struct table_shape *shape);
void stripe_init(struct stripe *stripe, const struct table_shape *shape, uint64_t seed, struct output *output, struct tail_builder *tail,
                 void *memory);

/* Whether an entry with so many attribute bytes fits before the stripe must end. */
bool stripe_has_room(const struct stripe *stripe, uint32_t attribute_size);
/* Ends the stripe: all that is complete goes to the file. */
TURB_MUST_CHECK turb_status stripe_flush(struct stripe *stripe, turb_error *err);

/* Adds an entry's slot; `entry->attribute_offset` is set here. key_hash: XXH3-64, seed 0. */
TURB_MUST_CHECK turb_status stripe_add_key(struct stripe *stripe, struct key_page_entry *entry, bool same_key, uint64_t key_hash,
                                           turb_error *err);

/* Attribute bytes of one entry, in parts: begin, put until complete, end. Small ones stay in memory. */
bool stripe_attribute_is_own(uint32_t size);
TURB_MUST_CHECK turb_status stripe_begin_own_attribute(struct stripe *stripe, turb_error *err);
TURB_MUST_CHECK turb_status stripe_put_own_attribute(struct stripe *stripe, const uint8_t *bytes, size_t size, turb_error *err);
TURB_MUST_CHECK turb_status stripe_end_own_attribute(struct stripe *stripe, turb_error *err);
void stripe_put_attribute(struct stripe *stripe, const uint8_t *bytes, size_t size);

/* Completes pages, sections and blocks that fill, and ends the last stripe. */
TURB_MUST_CHECK turb_status stripe_finish(struct stripe *stripe, turb_error *err);

/* Bytes in memory that the file will grow by. */
uint64_t stripe_bytes(const struct stripe *stripe);

#endif
