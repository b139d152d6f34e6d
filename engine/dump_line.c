/* Lines of a dump, as text or JSON: see dump_line.h. */
#include "engine/dump_line.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void dump_lines_init(struct dump_lines *lines, turb_dump_format format, bool (*line)(void *context, const char *text), void *context,
                     const turb_allocator *allocator) {
  *lines = (struct dump_lines){.format = format, .line = line, .context = context};
  buffer_init(&lines->text, allocator);
}

void dump_lines_free(struct dump_lines *lines) {
  buffer_free(&lines->text);
}

static void add(struct dump_lines *lines, const char *text) {
  (void)buffer_append(&lines->text, text, strlen(text));
}

static bool is_json(const struct dump_lines *lines) {
  return lines->format == TURB_DUMP_JSON;
}

void dump_line_begin(struct dump_lines *lines, const char *name) {
  buffer_clear(&lines->text);
  add(lines, is_json(lines) ? "{\"line\":\"" : name);
  if (is_json(lines)) {
    add(lines, name);
    add(lines, "\"");
  }
}

static void begin_field(struct dump_lines *lines, const char *name) {
  add(lines, is_json(lines) ? ",\"" : " ");
  add(lines, name);
  add(lines, is_json(lines) ? "\":" : "=");
}

void dump_line_number(struct dump_lines *lines, const char *name, uint64_t value) {
  char digits[24];
  (void)snprintf(digits, sizeof digits, "%" PRIu64, value);
  begin_field(lines, name);
  add(lines, digits);
}

void dump_line_signed(struct dump_lines *lines, const char *name, int64_t value) {
  char digits[24];
  (void)snprintf(digits, sizeof digits, "%" PRId64, value);
  begin_field(lines, name);
  add(lines, digits);
}

void dump_line_word(struct dump_lines *lines, const char *name, const char *value) {
  begin_field(lines, name);
  add(lines, is_json(lines) ? "\"" : "");
  add(lines, value);
  add(lines, is_json(lines) ? "\"" : "");
}

/* The bytes of the UTF-8 character at `at`, 0 where there is none (also for overlong forms and surrogates). */
static size_t utf8_size(const uint8_t *at, size_t left) {
  if (at[0] < 0x80)
    return 1;
  const size_t size = at[0] >= 0xf0 ? 4 : at[0] >= 0xe0 ? 3 : 2;
  if (at[0] < 0xc2 || at[0] > 0xf4 || size > left)
    return 0;
  for (size_t i = 1; i < size; i++)
    if ((at[i] & 0xc0) != 0x80)
      return 0;
  const bool overlong = (at[0] == 0xe0 && at[1] < 0xa0) || (at[0] == 0xf0 && at[1] < 0x90);
  const bool beyond = (at[0] == 0xed && at[1] > 0x9f) || (at[0] == 0xf4 && at[1] > 0x8f);
  return overlong || beyond ? 0 : size;
}

static bool is_plain(turb_bytes bytes) {
  const uint8_t *at = bytes.data;
  if (bytes.size >= 2 && at[0] == '0' && at[1] == 'x')
    return false;
  for (size_t left = bytes.size; left;) {
    const size_t size = utf8_size(at, left);
    if (!size || *at < 0x20 || *at == 0x7f || (size == 2 && at[0] == 0xc2 && at[1] < 0xa0))
      return false;
    at += size;
    left -= size;
  }
  return true;
}

static void add_digits(struct dump_lines *lines, turb_bytes bytes) {
  static const char digits[] = "0123456789abcdef";
  const uint8_t *from = bytes.data;
  add(lines, "0x");
  uint8_t *to = buffer_extend(&lines->text, 2 * bytes.size);
  for (size_t i = 0; i < bytes.size && to; i++) {
    to[2 * i] = (uint8_t)digits[from[i] >> 4];
    to[2 * i + 1] = (uint8_t)digits[from[i] & 15];
  }
}

static void add_plain(struct dump_lines *lines, turb_bytes bytes) {
  const char *from = bytes.data;
  for (size_t i = 0; i < bytes.size; i++) {
    if (is_json(lines) && (from[i] == '"' || from[i] == '\\'))
      add(lines, "\\");
    (void)buffer_append(&lines->text, from + i, 1);
  }
}

void dump_line_hexadecimal(struct dump_lines *lines, const char *name, turb_bytes bytes) {
  begin_field(lines, name);
  add(lines, is_json(lines) ? "\"" : "");
  add_digits(lines, bytes);
  add(lines, is_json(lines) ? "\"" : "");
}

void dump_line_bytes(struct dump_lines *lines, const char *name, turb_bytes bytes) {
  if (!is_plain(bytes)) {
    dump_line_hexadecimal(lines, name, bytes);
    return;
  }
  begin_field(lines, name);
  add(lines, is_json(lines) ? "\"" : "");
  add_plain(lines, bytes);
  add(lines, is_json(lines) ? "\"" : "");
}

bool dump_line_end(struct dump_lines *lines) {
  if (is_json(lines))
    add(lines, "}");
  (void)buffer_append_u8(&lines->text, 0);
  if (lines->stopped || lines->failure != TURB_OK)
    return false;
  lines->failure = buffer_status(&lines->text);
  if (lines->failure != TURB_OK)
    return false;
  lines->stopped = !lines->line(lines->context, (const char *)lines->text.data);
  return !lines->stopped;
}
