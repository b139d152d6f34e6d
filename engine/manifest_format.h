/*
 * The bytes of manifests (docs/format.md 5), for manifest.c and manifest_read.c alone.
 *
 * Threads: pure functions.
 */
#ifndef TURB_ENGINE_MANIFEST_FORMAT_H
#define TURB_ENGINE_MANIFEST_FORMAT_H

#include <string.h>

#include "base/coding.h"
#include "base/hash.h"
#include "engine/manifest.h"
#include "sstable/format.h"

#define MANIFEST_FORMAT_VERSION 1u
#define MANIFEST_HEADER_BYTES   4096u
#define MANIFEST_RECORD_BYTES   16u /* in front of the payload */
#define MANIFEST_ALIGNMENT      8u

/* Page 0. */
#define MANIFEST_AT_VERSION     8
#define MANIFEST_AT_RESERVED    12
#define MANIFEST_AT_DATABASE_ID 16
#define MANIFEST_AT_EDITION     32
#define MANIFEST_AT_SEED        40
#define MANIFEST_AT_CREATION    48
#define MANIFEST_AT_CHECKSUM    56

/* A record. */
#define MANIFEST_RECORD_AT_SIZE     8
#define MANIFEST_RECORD_AT_RESERVED 12

static const uint8_t manifest_magic[8] = {'T', 'U', 'R', 'B', 'M', 'A', 'N', '\n'};

static inline void manifest_header_encode(uint8_t page[MANIFEST_HEADER_BYTES], const struct manifest_header *header) {
  memset(page, 0, MANIFEST_HEADER_BYTES);
  memcpy(page, manifest_magic, sizeof manifest_magic);
  store_u32(page + MANIFEST_AT_VERSION, header->version);
  memcpy(page + MANIFEST_AT_DATABASE_ID, header->database_id, MANIFEST_DATABASE_ID_BYTES);
  store_u64(page + MANIFEST_AT_EDITION, header->edition);
  store_u64(page + MANIFEST_AT_SEED, header->seed);
  store_u64(page + MANIFEST_AT_CREATION, header->creation_seconds);
  store_u64(page + MANIFEST_AT_CHECKSUM, hash64(page, MANIFEST_AT_CHECKSUM, 0));
}

/* Bytes of a record with its padding. */
static inline uint64_t manifest_record_size(uint64_t payload_bytes) {
  return (MANIFEST_RECORD_BYTES + payload_bytes + (MANIFEST_ALIGNMENT - 1)) & ~(uint64_t)(MANIFEST_ALIGNMENT - 1);
}

#endif
