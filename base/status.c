/*
 * Status names and the writing of error details; see status.h for the rules.
 *
 * Nothing here takes memory or a lock, so that an error can always be reported.
 */
#include "base/status.h"

#ifdef __clang_analyzer__
#undef status_set
#undef status_set_file
#endif

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

const char *turb_status_name(turb_status status) {
  switch (status) {
  case TURB_OK: return "TURB_OK";
  case TURB_NOT_FOUND: return "TURB_NOT_FOUND";
  case TURB_EXISTS: return "TURB_EXISTS";
  case TURB_INVALID: return "TURB_INVALID";
  case TURB_CORRUPTION: return "TURB_CORRUPTION";
  case TURB_IO: return "TURB_IO";
  case TURB_NO_SPACE: return "TURB_NO_SPACE";
  case TURB_NO_MEMORY: return "TURB_NO_MEMORY";
  case TURB_BUDGET: return "TURB_BUDGET";
  case TURB_BUSY: return "TURB_BUSY";
  case TURB_LOCKED: return "TURB_LOCKED";
  case TURB_READ_ONLY: return "TURB_READ_ONLY";
  case TURB_CONFLICT: return "TURB_CONFLICT";
  case TURB_CANCELLED: return "TURB_CANCELLED";
  case TURB_NEWER_FORMAT: return "TURB_NEWER_FORMAT";
  case TURB_NOT_A_DATABASE: return "TURB_NOT_A_DATABASE";
  case TURB_TOO_MANY_FILES: return "TURB_TOO_MANY_FILES";
  case TURB_PERMISSION: return "TURB_PERMISSION";
  case TURB_UNKNOWN_OUTCOME: return "TURB_UNKNOWN_OUTCOME";
  case TURB_TIMED_OUT: return "TURB_TIMED_OUT";
  case TURB_UNSUPPORTED: return "TURB_UNSUPPORTED";
  case TURB_TOO_LARGE: return "TURB_TOO_LARGE";
  }
  return "TURB_UNKNOWN_STATUS";
}

void status_clear(turb_error *err) {
  if (err == NULL) {
    return;
  }
  err->status = TURB_OK;
  err->os_error = 0;
  err->offset = STATUS_NO_OFFSET;
  err->file[0] = '\0';
  err->message[0] = '\0';
}

/* Claims err for code; false when it holds an earlier error or there is nothing to record. */
static bool status_claim(turb_error *err, turb_status code) {
  if (err == NULL || err->status != TURB_OK || code == TURB_OK) {
    return false;
  }
  status_clear(err);
  err->status = code;
  return true;
}

/* A path that is too long keeps its tail: the name says more than the folder. */
static void copy_path(char *to, size_t capacity, const char *path) {
  const size_t size = strlen(path);
  if (size >= capacity) {
    path += size - (capacity - 1);
  }
  memcpy(to, path, strlen(path) + 1);
}

/* Appends the place to the message; a message that is cut short loses its own end, never the place. */
static void status_append_place(turb_error *err, const char *file, uint64_t offset) {
  char place[sizeof err->file + 64];
  if (file != NULL) {
    copy_path(err->file, sizeof err->file, file);
  }
  err->offset = offset;
  int size = 0;
  if (file != NULL && offset != STATUS_NO_OFFSET) {
    size = snprintf(place, sizeof place, " (%s, offset %llu)", err->file, (unsigned long long)offset);
  } else if (file != NULL) {
    size = snprintf(place, sizeof place, " (%s)", err->file);
  } else if (offset != STATUS_NO_OFFSET) {
    size = snprintf(place, sizeof place, " (offset %llu)", (unsigned long long)offset);
  }
  if (size <= 0) {
    return;
  }
  const size_t place_size = (size_t)size;
  size_t at = strlen(err->message);
  if (at > sizeof err->message - 1 - place_size) {
    at = sizeof err->message - 1 - place_size;
  }
  memcpy(err->message + at, place, place_size + 1);
}

turb_status status_set(turb_error *err, turb_status code, const char *format, ...) {
  if (!status_claim(err, code)) {
    return code;
  }
  va_list arguments;
  va_start(arguments, format);
  (void)vsnprintf(err->message, sizeof err->message, format, arguments);
  va_end(arguments);
  return code;
}

turb_status status_set_file(turb_error *err, turb_status code, const char *file, uint64_t offset, const char *format, ...) {
  if (!status_claim(err, code)) {
    return code;
  }
  va_list arguments;
  va_start(arguments, format);
  (void)vsnprintf(err->message, sizeof err->message, format, arguments);
  va_end(arguments);
  status_append_place(err, file, offset);
  return code;
}

turb_status status_of_errno(int os_error) {
  switch (os_error < 0 ? -os_error : os_error) {
  case 0: return TURB_OK;
  case ENOSPC:
  case EDQUOT: return TURB_NO_SPACE;
  case ENOMEM: return TURB_NO_MEMORY;
  case EMFILE:
  case ENFILE: return TURB_TOO_MANY_FILES;
  case EACCES:
  case EPERM:
  case EROFS: return TURB_PERMISSION;
  case ENOENT: return TURB_NOT_FOUND;
  case EEXIST: return TURB_EXISTS;
  case ECANCELED: return TURB_CANCELLED;
  default: return TURB_IO;
  }
}

turb_status status_from_errno(turb_error *err, int os_error, const char *what, const char *file, uint64_t offset) {
  const int number = os_error < 0 ? -os_error : os_error;
  const turb_status code = status_of_errno(number);
  if (!status_claim(err, code)) {
    return code;
  }
  err->os_error = number;
  /* Untranslated and thread-safe, unlike strerror. */
  const char *words = strerrordesc_np(number);
  if (words != NULL) {
    (void)snprintf(err->message, sizeof err->message, "%s: %s", what, words);
  } else {
    (void)snprintf(err->message, sizeof err->message, "%s: system error %d", what, number);
  }
  status_append_place(err, file, offset);
  return code;
}

turb_status status_copy(turb_error *err, const turb_error *from) {
  if (err != NULL && err != from && err->status == TURB_OK && from->status != TURB_OK) {
    *err = *from;
  }
  return from->status;
}
