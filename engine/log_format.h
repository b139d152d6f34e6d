/*
 * The bytes of logs (docs/format.md 4), for the writer, the recovery and the dump alone.
 *
 * Threads: pure functions.
 */
#ifndef TURB_ENGINE_LOG_FORMAT_H
#define TURB_ENGINE_LOG_FORMAT_H

#include <string.h>

#include "base/coding.h"
#include "base/hash.h"
#include "engine/log.h"
#include "sstable/format.h"

#define LOG_FORMAT_VERSION    1u
#define LOG_PAGE_BYTES        4096u
#define LOG_ALIGNMENT         8u
#define LOG_END_PAYLOAD_BYTES 8u
#define LOG_MAX_STAGING_PAGES 1024u

/* Page 0. */
#define LOG_AT_VERSION        8
#define LOG_AT_STAGING_PAGES  12
#define LOG_AT_DATABASE_ID    16
#define LOG_AT_NUMBER         32
#define LOG_AT_SEED           40
#define LOG_AT_FIRST_SEQUENCE 48
#define LOG_AT_CHECKSUM       56

/* A record. */
#define LOG_RECORD_AT_SIZE    8
#define LOG_RECORD_AT_TYPE    12
#define LOG_RECORD_AT_NUMBER  16
#define LOG_RECORD_AT_OFFSET  24
#define LOG_RECORD_AT_DURABLE 32

static const uint8_t log_magic[8] = {'T', 'U', 'R', 'B', 'L', 'O', 'G', '\n'};

struct log_header {
  uint8_t database_id[LOG_DATABASE_ID_BYTES];
  uint32_t staging_pages;
  uint64_t number, seed, first_sequence;
};

static inline void log_header_encode(uint8_t page[LOG_PAGE_BYTES], const struct log_header *header) {
  memset(page, 0, LOG_PAGE_BYTES);
  memcpy(page, log_magic, sizeof log_magic);
  store_u32(page + LOG_AT_VERSION, LOG_FORMAT_VERSION);
  store_u32(page + LOG_AT_STAGING_PAGES, header->staging_pages);
  memcpy(page + LOG_AT_DATABASE_ID, header->database_id, LOG_DATABASE_ID_BYTES);
  store_u64(page + LOG_AT_NUMBER, header->number);
  store_u64(page + LOG_AT_SEED, header->seed);
  store_u64(page + LOG_AT_FIRST_SEQUENCE, header->first_sequence);
  store_u64(page + LOG_AT_CHECKSUM, hash64(page, LOG_AT_CHECKSUM, 0));
}

/* Where the first record stands. */
static inline uint64_t log_begin(uint32_t staging_pages) {
  return (uint64_t)LOG_PAGE_BYTES * (1 + staging_pages);
}

/* Bytes of a record with its padding. */
static inline uint64_t log_record_size(uint64_t payload_bytes) {
  return (LOG_RECORD_BYTES + payload_bytes + (LOG_ALIGNMENT - 1)) & ~(uint64_t)(LOG_ALIGNMENT - 1);
}

/* The head but for its checksum. */
static inline void log_record_encode(uint8_t head[LOG_RECORD_BYTES], enum log_record_type type, uint32_t payload_bytes, uint64_t number,
                                     uint64_t offset, uint64_t durable) {
  memset(head, 0, LOG_RECORD_BYTES);
  store_u32(head + LOG_RECORD_AT_SIZE, payload_bytes);
  head[LOG_RECORD_AT_TYPE] = (uint8_t)type;
  store_u64(head + LOG_RECORD_AT_NUMBER, number);
  store_u64(head + LOG_RECORD_AT_OFFSET, offset);
  store_u64(head + LOG_RECORD_AT_DURABLE, durable);
}

#endif
