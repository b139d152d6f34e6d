/*
 * The manifest: the log of version edits (docs/format.md 5) and the catalog that they add up to.
 *
 *   SETTLED --append: write, sync--> SETTLED
 *      |  a write or sync fails
 *      +------------------------> UNSETTLED --a new edition is written, renamed, its folder synced--> SETTLED
 *
 * Invariants
 *   1. The catalog holds exactly the edits whose append returned OK (and, after opening, what the file held).
 *   2. SETTLED: the file named MANIFEST, now and after a power loss, holds exactly the catalog's edits. UNSETTLED: it may hold also an edit
 *      whose append failed, or be the edition before. Nothing is appended to it until a new edition is wholly in place.
 *   3. An edition is replaced by writing MANIFEST.tmp, syncing it, renaming it, syncing the folder: at each step either edition is whole.
 *
 * After a failed append: when manifest_is_settled says true, the edit did not happen, and what it was to add may be removed. Otherwise its
 * outcome is open: no file that it adds *or* removes may be deleted until manifest_rewrite went well (then it did not happen). A failed
 * write
 * is followed by one attempt to write a new edition with the edit in it; when that goes well, the append did.
 *
 * Threads: one at a time, the catalog included.
 */
#ifndef TURB_ENGINE_MANIFEST_H
#define TURB_ENGINE_MANIFEST_H

#include <stdbool.h>
#include <stdint.h>

#include "base/alloc.h"
#include "base/logger.h"
#include "base/status.h"
#include "engine/catalog.h"
#include "io/io.h"

#define MANIFEST_DATABASE_ID_BYTES 16u

struct manifest;

struct manifest_options {
  struct io_system *system;
  const turb_allocator *allocator;
  const struct logger *logger; /* may be NULL */
  const char *folder;          /* exists */
  bool read_only;
};

/* A new, empty database in the folder. EXISTS when it holds a MANIFEST; NOT_A_DATABASE when it holds logs or tables without one. */
TURB_MUST_CHECK turb_status manifest_create(const struct manifest_options *options, struct manifest **manifest, turb_error *err);

/*
 * Reads and verifies the manifest; unless read-only, replaces it by a new edition and removes a left-over MANIFEST.tmp. A failure of that
 * replacement (a full disk) does not fail the opening: it is logged, and made up for by the next append. NOT_FOUND: no MANIFEST and nothing
 * that looks like a database. NOT_A_DATABASE, NEWER_FORMAT, CORRUPTION (with file and offset).
 */
TURB_MUST_CHECK turb_status manifest_open(const struct manifest_options *options, struct manifest **manifest, turb_error *err);

/*
 * An edit: checked against the catalog (INVALID), written, synced, applied. READ_ONLY. Errors of the disk: see above. Writes a new edition
 * first when the
 * manifest is not settled, and afterwards when it has grown beyond 4 MiB and twice its last snapshot (a failure of the latter is logged
 * and tried again later).
 */
TURB_MUST_CHECK turb_status manifest_append(struct manifest *manifest, const struct version_edit *edit, turb_error *err);

/* Writes a new edition now. */
TURB_MUST_CHECK turb_status manifest_rewrite(struct manifest *manifest, turb_error *err);

/* Writes a manifest with this catalog and the same database id into another folder, durable but for the folder's own name (for
 * checkpoints). */
TURB_MUST_CHECK turb_status manifest_copy(const struct manifest *manifest, const struct catalog *catalog, const char *folder,
                                          turb_error *err);

void manifest_close(struct manifest *manifest); /* NULL ok */

const struct catalog *manifest_catalog(const struct manifest *manifest);
const uint8_t *manifest_database_id(const struct manifest *manifest); /* 16 bytes */
uint64_t manifest_edition(const struct manifest *manifest);
uint64_t manifest_creation_seconds(const struct manifest *manifest); /* unix time */
uint64_t manifest_bytes(const struct manifest *manifest);            /* of the file */
bool manifest_is_settled(const struct manifest *manifest);

/* ---- reading without opening: verify and dump ---- */

struct manifest_header {
  uint32_t version;
  uint8_t database_id[MANIFEST_DATABASE_ID_BYTES];
  uint64_t edition, seed, creation_seconds;
};
struct manifest_record {
  uint64_t offset;
  turb_bytes payload; /* lives during the call only */
};
/*
 * Walks header and records of a manifest file; both callbacks may be NULL, a status other than TURB_OK from one ends the walk with it.
 * *end (may be NULL): behind the last good record; *torn_bytes (may be NULL): what a torn last record left behind it.
 */
TURB_MUST_CHECK turb_status manifest_read(struct io_system *system, const turb_allocator *allocator, const char *path,
                                          turb_status (*header)(void *context, const struct manifest_header *header, turb_error *err),
                                          turb_status (*record)(void *context, const struct manifest_record *record, turb_error *err),
                                          void *context, uint64_t *end, uint64_t *torn_bytes, turb_error *err);

#endif
