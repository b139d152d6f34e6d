/*
 * Buffered output and the JSON writer; see output.h.
 */
#include "output.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "command.h"

void output_init(struct output *out, int fd, bool json) {
  out->fd = fd;
  out->json = json;
  out->by_line = isatty(fd) == 1;
  out->first = true;
  out->failed = 0;
  out->used = 0;
}

bool output_open(const struct output *out) {
  return out->failed == 0;
}

static void output_write(struct output *out, const char *bytes, size_t size) {
  while (size != 0 && out->failed == 0) {
    const ssize_t count = write(out->fd, bytes, size);
    if (count >= 0) {
      bytes += count;
      size -= (size_t)count;
    } else if (errno != EINTR) {
      out->failed = errno;
    }
  }
}

static void output_flush(struct output *out) {
  output_write(out, out->buffer, out->used);
  out->used = 0;
}

int output_finish(struct output *out, int code) {
  output_flush(out);
  if (out->failed == 0 || out->failed == EPIPE) {
    return code;
  }
  (void)fprintf(stderr, "turb: cannot write to standard output: %s\n", strerror(out->failed));
  return code == CLI_OK ? CLI_FAILED : code;
}

void output_bytes(struct output *out, const void *bytes, size_t size) {
  const char *from = bytes;
  if (size == 0 || out->failed != 0) {
    return;
  }
  if (size > sizeof out->buffer - out->used) {
    output_flush(out);
  }
  if (size > sizeof out->buffer) {
    output_write(out, from, size);
    return;
  }
  memcpy(out->buffer + out->used, from, size);
  out->used += size;
  if (out->by_line && from[size - 1] == '\n') {
    output_flush(out);
  }
}

void output_text(struct output *out, const char *text) {
  output_bytes(out, text, strlen(text));
}

void output_format(struct output *out, const char *format, ...) {
  char text[2048];
  va_list arguments;
  va_start(arguments, format);
  const int size = vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  if (size > 0) {
    output_bytes(out, text, (size_t)size < sizeof text ? (size_t)size : sizeof text - 1);
  }
}

/* ---- text or not ---- */

/* The bytes of the UTF-8 character at from, 0 where there is none (also for surrogates and overlong forms). */
static size_t utf8_size(const uint8_t *from, size_t left) {
  if (from[0] < 0x80) {
    return 1;
  }
  const size_t size = from[0] >= 0xf0 ? 4 : from[0] >= 0xe0 ? 3 : 2;
  if (from[0] < 0xc2 || from[0] > 0xf4 || size > left) {
    return 0;
  }
  for (size_t i = 1; i < size; i++) {
    if ((from[i] & 0xc0) != 0x80) {
      return 0;
    }
  }
  const bool overlong = (from[0] == 0xe0 && from[1] < 0xa0) || (from[0] == 0xf0 && from[1] < 0x90);
  const bool beyond = (from[0] == 0xed && from[1] > 0x9f) || (from[0] == 0xf4 && from[1] > 0x8f);
  return overlong || beyond ? 0 : size;
}

static bool is_hexadecimal(turb_bytes bytes) {
  const char *text = bytes.data;
  return bytes.size >= 2 && text[0] == '0' && text[1] == 'x';
}

/* allow_controls: JSON can escape them, a terminal should not get them. */
static bool is_text(turb_bytes bytes, bool allow_controls) {
  const uint8_t *at = bytes.data;
  for (size_t left = bytes.size; left != 0;) {
    const size_t size = utf8_size(at, left);
    const bool control = size == 1 ? *at < 0x20 || *at == 0x7f : size == 2 && at[0] == 0xc2 && at[1] < 0xa0;
    if (size == 0 || (control && !allow_controls)) {
      return false;
    }
    at += size;
    left -= size;
  }
  return true;
}

bool output_is_plain(turb_bytes bytes) {
  return bytes.size != 0 && !is_hexadecimal(bytes) && is_text(bytes, false);
}

static void output_hexadecimal(struct output *out, turb_bytes bytes) {
  static const char digits[] = "0123456789abcdef";
  const uint8_t *from = bytes.data;
  output_text(out, "0x");
  for (size_t i = 0; i < bytes.size; i++) {
    const char pair[2] = {digits[from[i] >> 4], digits[from[i] & 15]};
    output_bytes(out, pair, sizeof pair);
  }
}

void output_printable(struct output *out, turb_bytes bytes) {
  if (output_is_plain(bytes)) {
    output_bytes(out, bytes.data, bytes.size);
  } else if (bytes.size != 0) {
    output_hexadecimal(out, bytes);
  }
}

/* ---- JSON ---- */

static void output_string(struct output *out, turb_bytes text) {
  const char *from = text.data;
  output_text(out, "\"");
  for (size_t i = 0; i < text.size; i++) {
    const char byte = from[i];
    if (byte == '"' || byte == '\\') {
      output_text(out, "\\");
      output_bytes(out, &byte, 1);
    } else if ((unsigned char)byte < 0x20 || byte == 0x7f) {
      output_format(out, "\\u%04x", (unsigned)(unsigned char)byte);
    } else {
      output_bytes(out, &byte, 1);
    }
  }
  output_text(out, "\"");
}

void output_begin(struct output *out) {
  output_text(out, "{");
  out->first = true;
}

void output_end(struct output *out) {
  output_text(out, "}\n");
}

void output_name(struct output *out, const char *name) {
  if (!out->first) {
    output_text(out, ",");
  }
  out->first = false;
  output_string(out, (turb_bytes){name, strlen(name)});
  output_text(out, ":");
}

void output_json_key(struct output *out, const char *name, turb_bytes key) {
  output_name(out, name);
  if (output_is_plain(key)) {
    output_string(out, key);
    return;
  }
  output_text(out, "\"");
  output_hexadecimal(out, key);
  output_text(out, "\"");
}

void output_json_bytes(struct output *out, const char *name, turb_bytes bytes) {
  if (!is_hexadecimal(bytes) && is_text(bytes, true)) {
    output_name(out, name);
    output_string(out, bytes);
    return;
  }
  output_json_key(out, name, bytes);
}

void output_json_text(struct output *out, const char *name, const char *text) {
  const turb_bytes bytes = {text, strlen(text)};
  output_name(out, name);
  if (is_text(bytes, true)) {
    output_string(out, bytes);
    return;
  }
  /* A file's name, say, that is not UTF-8: what is not ASCII is left out. */
  output_text(out, "\"");
  for (const char *at = text; *at != '\0'; at++) {
    const bool shown = *at >= 0x20 && *at < 0x7f && *at != '"' && *at != '\\';
    output_bytes(out, shown ? at : "?", 1);
  }
  output_text(out, "\"");
}

void output_json_number(struct output *out, const char *name, uint64_t value) {
  output_name(out, name);
  output_format(out, "%llu", (unsigned long long)value);
}

void output_json_double(struct output *out, const char *name, double value) {
  output_name(out, name);
  if (isfinite(value)) {
    output_format(out, "%.9g", value);
  } else {
    output_text(out, "null"); /* JSON has no word for it */
  }
}

void output_json_bool(struct output *out, const char *name, bool value) {
  output_name(out, name);
  output_text(out, value ? "true" : "false");
}
