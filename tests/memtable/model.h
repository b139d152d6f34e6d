/*
 * A memtable beside a plain sorted array of what it should hold, for the tests of this folder.
 *
 * Threads: one.
 */
#ifndef TURB_TESTS_MEMTABLE_MODEL_H
#define TURB_TESTS_MEMTABLE_MODEL_H

#include "base/random.h"
#include "memtable/memtable.h"

/* How keys are made. */
enum model_keys {
  MODEL_SHORT,      /* 1 to 4 bytes of few letters: many versions of a key */
  MODEL_RANDOM,     /* 16 random bytes */
  MODEL_DECIMAL,    /* 16 digits, mostly zeros in front */
  MODEL_ASCENDING,  /* each behind the one before */
  MODEL_DESCENDING, /* each before the one before */
  MODEL_STEMS,      /* long common beginnings, zeros, keys that extend each other */
  MODEL_LONG,       /* up to 4,096 bytes */
  MODEL_KINDS
};

struct model_entry {
  uint8_t *key;
  size_t key_size;
  uint64_t sequence;
  bool is_put;
  uint64_t row;        /* its number */
  uint8_t *attributes; /* NULL: none */
  size_t attribute_size;
};

struct model {
  struct memtable *memtable;
  uint32_t row_bytes;
  struct model_entry *entries; /* in entry order */
  size_t count, capacity;
  uint64_t rows;
  uint64_t sequence; /* of the last entry */
  enum model_keys keys;
};

void model_init(struct model *model, struct memtable *memtable, uint32_t row_bytes, enum model_keys keys);
/* Not the memtable. */
void model_free(struct model *model);

/* A key of the model's kind; out has TURB_MAX_KEY_BYTES. */
size_t model_key(const struct model *model, struct random *random, uint8_t *out);

/* Puts (or deletes) and, when that worked, remembers it. */
turb_status model_put(struct model *model, turb_bytes key, bool is_put, turb_bytes attributes, turb_error *err);

/* One put or delete of a random key, with attributes up to attribute_most now and then. */
turb_status model_step(struct model *model, struct random *random, size_t attribute_most, turb_error *err);

/* Everything that the memtable says, forward and backward, against the array. */
void model_check(const struct model *model);

/* Random look-ups. */
void model_check_lookups(const struct model *model, struct random *random, size_t count);

/* The bytes of a row of that sequence. */
void model_row(uint64_t sequence, uint32_t row_bytes, uint8_t *out);

#endif
