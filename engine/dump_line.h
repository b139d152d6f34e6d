/* engine/dump_line: the lines that a dump consists of: a name, then fields, as text (`entry key=a sequence=3`) or as one JSON object
 * (`{"entry":{"key":"a","sequence":3}}` without the inner braces: `{"line":"entry","key":"a","sequence":3}`).
 *
 * Bytes are shown as text where they are plain UTF-8 without control characters and do not begin with 0x, else as 0x and hexadecimal
 * digits.
 * Threads: one.
 */
#ifndef TURB_ENGINE_DUMP_LINE_H
#define TURB_ENGINE_DUMP_LINE_H

#include "base/coding.h"

struct dump_lines {
  turb_dump_format format;
  bool (*line)(void *context, const char *text);
  void *context;
  struct buffer text;
  bool stopped; /* the caller wants no more */
  turb_status failure;
};

void dump_lines_init(struct dump_lines *lines, turb_dump_format format, bool (*line)(void *context, const char *text), void *context,
                     const turb_allocator *allocator);
void dump_lines_free(struct dump_lines *lines);

void dump_line_begin(struct dump_lines *lines, const char *name);
void dump_line_number(struct dump_lines *lines, const char *name, uint64_t value);
void dump_line_signed(struct dump_lines *lines, const char *name, int64_t value);
void dump_line_word(struct dump_lines *lines, const char *name, const char *value); /* plain ASCII without quotes */
void dump_line_bytes(struct dump_lines *lines, const char *name, turb_bytes bytes);
void dump_line_hexadecimal(struct dump_lines *lines, const char *name, turb_bytes bytes); /* always as digits */
/* Hands the line over. False: no more are wanted, or there was no memory (lines->failure). */
bool dump_line_end(struct dump_lines *lines);

#endif
