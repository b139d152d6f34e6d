/*
 * The names of a database's files (docs/format.md 1): made from a kind and a number, and told apart.
 *
 * Threads: pure functions.
 */
#ifndef TURB_ENGINE_NAME_H
#define TURB_ENGINE_NAME_H

#include <stdbool.h>
#include <stdint.h>

#include "base/alloc.h"

enum name_kind {
  NAME_OTHER = 0, /* not ours: left alone */
  NAME_LOCK,
  NAME_MANIFEST,
  NAME_MANIFEST_TEMPORARY,
  NAME_LOG,
  NAME_TABLE,
  NAME_SEGMENT,
  NAME_CODEBOOK
};

#define NAME_BYTES 40 /* the longest name with its terminator */

/* The kind of a name without folder, and its number (0 where the kind has none). Only what name_format writes is recognised. */
enum name_kind name_parse(const char *name, uint64_t *number);

/* Writes the name of a kind other than NAME_OTHER; number is ignored where the kind has none. */
void name_format(char name[NAME_BYTES], enum name_kind kind, uint64_t number);

/* folder/name, or NULL when there is no memory. Release: mem_free_string. */
TURB_MUST_CHECK char *name_path(const turb_allocator *allocator, const char *folder, enum name_kind kind, uint64_t number);

#endif
