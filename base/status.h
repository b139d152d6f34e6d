/*
 * Status codes and error details.
 *
 * Every call that can fail returns a turb_status; the detail (message, file, offset, the system's error
 * number) goes to the turb_error that the caller passed, which may be NULL.
 *
 * Invariants
 *   1. The first error wins: a turb_error that holds one is not written again until status_clear.
 *   2. message and file are always terminated; a long message loses its end (never the place in it), a long
 *      path its front.
 *
 * Threads: a turb_error belongs to one thread at a time; nothing here is shared.
 */
#ifndef TURB_BASE_STATUS_H
#define TURB_BASE_STATUS_H

#include <stdint.h>

#include "turbidite/turbidite.h"

#ifndef TURB_MUST_CHECK
#define TURB_MUST_CHECK __attribute__((warn_unused_result))
#endif

/* The offset of an error that has none. */
#define STATUS_NO_OFFSET UINT64_MAX

/* Empties err (NULL allowed), so that it can take the next error. */
void status_clear(turb_error *err);

/* The same for an error that only this library writes, so that one without a status is empty: mostly nothing is to be done. */
static inline void status_forget(turb_error *err) {
  if (err->status != TURB_OK) {
    status_clear(err);
  }
}

/* Records code with a formatted message and returns code, whether or not it was recorded. */
turb_status status_set(turb_error *err, turb_status code, const char *format, ...) __attribute__((format(printf, 3, 4)));

/*
 * The same for an error of a file: the message ends with the file's name and, unless it is
 * STATUS_NO_OFFSET, the offset; both are stored in their own fields too. file may be NULL.
 */
turb_status status_set_file(turb_error *err, turb_status code, const char *file, uint64_t offset, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* The status for an error number of the system (positive, or negative as io_uring reports it). */
turb_status status_of_errno(int os_error);

/*
 * Records a failed system call: what says what was tried ("read", "rename to x"), the message adds the
 * system's words for the error, the file and the offset. Returns status_of_errno(os_error).
 */
turb_status status_from_errno(turb_error *err, int os_error, const char *what, const char *file, uint64_t offset);

/* Copies from's error to err under the rule of the first error; returns from's status. */
turb_status status_copy(turb_error *err, const turb_error *from);

#ifdef __clang_analyzer__ /* which sees one file at a time: what they return */
#define status_set(err, code, ...)                    (status_set((err), (code), __VA_ARGS__), (code))
#define status_set_file(err, code, file, offset, ...) (status_set_file((err), (code), (file), (offset), __VA_ARGS__), (code))
#endif

#endif
