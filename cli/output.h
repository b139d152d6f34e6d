/*
 * What commands print: text, or JSON with one object a line, to standard output.
 *
 * Invariants
 *   1. A failed write is remembered and nothing is written after it; output_open says so, and long loops ask.
 *   2. A reader that closed the pipe is no failure: the command ends quietly with the code it would have had.
 *      Any other failure is told on standard error and makes the exit code 1.
 *   3. JSON strings are valid UTF-8. Bytes that are no text stand as "0x…", as they can be given back as operands.
 *
 * Threads: one at a time.
 */
#ifndef TURB_CLI_OUTPUT_H
#define TURB_CLI_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include "turbidite/turbidite.h"

#define OUTPUT_BUFFER_BYTES (64u << 10)

struct output {
  int fd;
  bool json;
  bool by_line; /* a terminal sees each line as it comes */
  bool first;   /* no member of the current JSON object was written yet */
  int failed;   /* errno of the first write that failed */
  size_t used;
  char buffer[OUTPUT_BUFFER_BYTES];
};

void output_init(struct output *out, int fd, bool json);

/* False after a write failed: nobody reads any more. */
bool output_open(const struct output *out);

/* Writes what is left; returns code, or 1 after a message (invariant 2). */
int output_finish(struct output *out, int code);

void output_bytes(struct output *out, const void *bytes, size_t size);
void output_text(struct output *out, const char *text);
void output_format(struct output *out, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Bytes as text where they can be given back as such, else 0xHEX. */
void output_printable(struct output *out, turb_bytes bytes);

/* ---- JSON: output_begin, members, output_end ---- */

void output_begin(struct output *out);
void output_end(struct output *out);
/* Only the name and its colon; a value follows. */
void output_name(struct output *out, const char *name);
void output_json_text(struct output *out, const char *name, const char *text);
/* A key: text, or 0xHEX. */
void output_json_key(struct output *out, const char *name, turb_bytes key);
/* Attributes: any valid UTF-8 as a string, else 0xHEX. */
void output_json_bytes(struct output *out, const char *name, turb_bytes bytes);
void output_json_number(struct output *out, const char *name, uint64_t value);
void output_json_double(struct output *out, const char *name, double value);
void output_json_bool(struct output *out, const char *name, bool value);

/* Whether a key can be shown as text: valid UTF-8 without control characters, not empty, not beginning with 0x. */
bool output_is_plain(turb_bytes bytes);

#endif
