/* The rows of tests over what is not in memory; see cold_rows.h. */
#include "tests/engine/cold_rows.h"

#include <stdlib.h>

#define ATTRIBUTE_MAX 3000u
#define RANGE_BEGIN   100u
#define RANGE_END     140u

static turb_error err;
static turb_error *fresh(void) {
  err = (turb_error)TURB_ERROR_INIT;
  return &err;
}

turb_bytes cold_rows_key(uint32_t number, char key[16]) {
  return (turb_bytes){key, (size_t)snprintf(key, 16, "k%05u", number)};
}

uint32_t cold_rows_number(turb_bytes key) {
  char text[16] = {0};
  CHECK_EQ(key.size, 6);
  memcpy(text, key.data, key.size);
  CHECK_EQ(text[0], 'k');
  return (uint32_t)strtoul(text + 1, NULL, 10);
}

uint32_t cold_rows_version(uint32_t number, uint32_t stage) {
  if (stage == 3 && number % 11 == 0)
    return 3;
  if (stage >= 2)
    return number % 7 == 1 || (number >= RANGE_BEGIN && number < RANGE_END) ? 0 : number % 3 == 0 ? 2 : 1;
  return stage;
}

void cold_rows_list(struct cold_list *list, uint32_t stage) {
  list->stage = stage;
  list->count = 0;
  for (uint32_t i = 0; i < COLD_KEYS; i++)
    if (cold_rows_version(i, stage))
      list->numbers[list->count++] = i;
}

static uint32_t make(uint32_t number, uint32_t version, float *vector, uint8_t *attribute) {
  for (uint32_t i = 0; i < COLD_DIMENSION; i++)
    vector[i] = (float)(number * 3 + version * 1000 + i);
  const uint32_t size = number % 5 ? (number * 71 + version * 13) % ATTRIBUTE_MAX : 0;
  memset(attribute, (int)(number + version * 64) & 0xff, size);
  return size;
}

void cold_rows_check(const turb_entry *entry, uint32_t number, uint32_t stage, uint32_t parts) {
  static float vector[COLD_DIMENSION];
  static uint8_t attribute[ATTRIBUTE_MAX];
  const uint32_t size = make(number, cold_rows_version(number, stage), vector, attribute);
  char key[16];
  const turb_bytes wanted = cold_rows_key(number, key);
  CHECK(entry != NULL);
  CHECK_EQ(entry->key.size, wanted.size);
  CHECK_MSG(!memcmp(entry->key.data, wanted.data, wanted.size), "%.6s, not %.6s", (const char *)entry->key.data, key);
  if (parts & TURB_VECTOR) {
    CHECK_EQ(entry->vector.size, sizeof vector);
    CHECK_MEM_EQ(entry->vector.data, vector, sizeof vector);
  }
  if (parts & TURB_ATTRIBUTES) {
    CHECK_EQ(entry->attributes.size, size);
    CHECK(!size || !memcmp(entry->attributes.data, attribute, size));
  }
}

static void put(struct cold_rows *rows, uint32_t number, uint32_t version) {
  static float vector[COLD_DIMENSION];
  static uint8_t attribute[ATTRIBUTE_MAX];
  char key[16];
  const uint32_t size = make(number, version, vector, attribute);
  const turb_bytes row = {vector, sizeof vector}, attributes = {attribute, size};
  CHECK_OK_ERR(turb_put(rows->disk.c, cold_rows_key(number, key), row, attributes, NULL, fresh()), &err);
}

static void play(struct cold_rows *rows, uint32_t stage) {
  char key[16], end[16];
  for (uint32_t i = 0; i < COLD_KEYS; i++) {
    if (stage == 1 || (stage == 2 && i % 3 == 0) || (stage == 3 && i % 11 == 0))
      put(rows, i, stage);
    if (stage == 2 && i % 7 == 1)
      CHECK_OK_ERR(turb_delete(rows->disk.c, cold_rows_key(i, key), NULL, fresh()), &err);
  }
  if (stage == 2)
    CHECK_OK_ERR(turb_delete_range(rows->disk.c, cold_rows_key(RANGE_BEGIN, key), cold_rows_key(RANGE_END, end), NULL, fresh()), &err);
  if (stage == COLD_STAGES)
    return;
  CHECK_OK_ERR(turb_flush(rows->disk.db, rows->disk.c, fresh()), &err);
  CHECK_OK_ERR(turb_snapshot_create(rows->disk.db, &rows->snapshots[stage], fresh()), &err);
}

void cold_rows_begin(struct cold_rows *rows, uint64_t seed) {
  memset(rows, 0, sizeof *rows);
  cold_db_begin(&rows->disk, seed, COLD_DIMENSION);
  for (uint32_t stage = 1; stage <= COLD_STAGES; stage++)
    play(rows, stage);
}

void cold_rows_end(struct cold_rows *rows) {
  for (uint32_t stage = 1; stage < COLD_STAGES; stage++)
    turb_snapshot_release(rows->snapshots[stage]);
  cold_db_end(&rows->disk);
}

void cold_rows_wait(turb_iterator *it) {
  CHECK_OK_ERR(reads_wait(&((struct iterator *)it)->reads, fresh()), &err);
}
