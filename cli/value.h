/*
 * Keys, attributes and vectors between the command line and the library's bytes.
 *
 *   key         text, or 0x and hexadecimal digits; with --number-keys a number: 8 bytes, big-endian
 *   attributes  text, 0xHEX, or @FILE: the file's bytes
 *   vector      [1, 2.5, -3] or 1,2.5,-3; 0xHEX: the row's bytes; @FILE: the same from a file
 *
 * A component that the collection's type cannot hold (after rounding to nearest, ties to even) is refused with its
 * number; so is a count that is not the dimension.
 *
 * Threads: pure functions; failures go to `problem`.
 */
#ifndef TURB_CLI_VALUE_H
#define TURB_CLI_VALUE_H

#include <stdbool.h>

#include "output.h"
#include "turbidite/turbidite.h"

/* A sentence that says what is wrong with a value. */
struct problem {
  char text[512];
};

/* Bytes of the command line; release with free(value.data). */
struct value {
  void *data;
  size_t size;
};

static inline turb_bytes value_bytes(struct value value) {
  return (turb_bytes){value.data, value.size};
}

bool value_parse_key(const char *text, bool numbers, struct value *value, struct problem *problem);
bool value_parse_attributes(const char *text, struct value *value, struct problem *problem);
bool value_parse_vector(const char *text, const turb_collection_info *info, struct value *value, struct problem *problem);

/* A list of numbers from a file; "-" is standard input. */
bool value_read_vector(const char *path, const turb_collection_info *info, struct value *value, struct problem *problem);

/* A vector as [1, 2.5, -3] in the fewest digits that give the same bytes back; bits as "0x…". At most `limit`
 * components are shown (0: all). JSON: bits are quoted. */
void value_print_vector(struct output *out, const turb_collection_info *info, turb_bytes vector, unsigned limit);

/* A key as text; with numbers, keys of 8 bytes as such. */
void value_print_key(struct output *out, turb_bytes key, bool numbers);
void value_json_key(struct output *out, const char *name, turb_bytes key, bool numbers);

#endif
