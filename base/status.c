/*
 * Status names and the writing of error details; see status.h for the rules.
 *
 * Nothing here takes memory or a lock, so that an error can always be reported.
 */
#include "base/status.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

const char *turb_status_name(turb_status status)
{
    switch (status) {
    case TURB_OK: return "ok";
    case TURB_NOT_FOUND: return "not found";
    case TURB_EXISTS: return "exists already";
    case TURB_INVALID: return "invalid argument";
    case TURB_CORRUPTION: return "corruption";
    case TURB_IO: return "input/output error";
    case TURB_NO_SPACE: return "no space";
    case TURB_NO_MEMORY: return "out of memory";
    case TURB_BUDGET: return "memory budget exceeded";
    case TURB_BUSY: return "busy";
    case TURB_LOCKED: return "locked";
    case TURB_READ_ONLY: return "read-only";
    case TURB_CONFLICT: return "conflict";
    case TURB_CANCELLED: return "cancelled";
    case TURB_NEWER_FORMAT: return "newer format";
    case TURB_NOT_A_DATABASE: return "not a database";
    case TURB_TOO_MANY_FILES: return "too many open files";
    case TURB_PERMISSION: return "permission denied";
    case TURB_UNKNOWN_OUTCOME: return "unknown outcome";
    case TURB_TIMED_OUT: return "timed out";
    case TURB_UNSUPPORTED: return "unsupported";
    case TURB_TOO_LARGE: return "too large";
    }
    return "unknown status";
}

void status_clear(turb_error *err)
{
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
static bool status_claim(turb_error *err, turb_status code)
{
    if (err == NULL || err->status != TURB_OK || code == TURB_OK) {
        return false;
    }
    status_clear(err);
    err->status = code;
    return true;
}

static void copy_text(char *to, size_t capacity, const char *from)
{
    const size_t size = strnlen(from, capacity - 1);
    memcpy(to, from, size);
    to[size] = '\0';
}

/* Appends the place to the message; a message that is cut short loses its own end, never the place. */
static void status_append_place(turb_error *err, const char *file, uint64_t offset)
{
    char place[sizeof err->file + 64];
    if (file != NULL) {
        copy_text(err->file, sizeof err->file, file);
    }
    err->offset = offset;
    int size = 0;
    if (file != NULL && offset != STATUS_NO_OFFSET) {
        size = snprintf(place, sizeof place, " (%s, offset %llu)", err->file,
                        (unsigned long long)offset);
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

turb_status status_set(turb_error *err, turb_status code, const char *format, ...)
{
    if (!status_claim(err, code)) {
        return code;
    }
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(err->message, sizeof err->message, format, arguments);
    va_end(arguments);
    return code;
}

turb_status status_set_file(turb_error *err, turb_status code, const char *file, uint64_t offset,
                            const char *format, ...)
{
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

turb_status status_of_errno(int os_error)
{
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

turb_status status_from_errno(turb_error *err, int os_error, const char *what, const char *file,
                              uint64_t offset)
{
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

turb_status status_copy(turb_error *err, const turb_error *from)
{
    if (err != NULL && err != from && err->status == TURB_OK && from->status != TURB_OK) {
        *err = *from;
    }
    return from->status;
}
