/* engine/options: the size-versioned option structs of the public header, checked. Pure functions. */
#ifndef TURB_ENGINE_OPTIONS_H
#define TURB_ENGINE_OPTIONS_H

#include "base/status.h"

struct db_options;

/* Fills `known` (known_size bytes) from an options struct that begins with its own size (NULL: zeros). INVALID: a wrong size, or a
 * non-zero tail that this version does
 * not know; `what` names the struct. */
TURB_MUST_CHECK turb_status options_read(const void *given, void *known, size_t known_size, const char *what, turb_error *err);
/* Fills a caller's info struct (which begins with its own size) as far as it reaches. INVALID: a size that is too small or unset. */
TURB_MUST_CHECK turb_status options_write(const void *full, size_t full_size, void *given, const char *what, turb_error *err);
/* 0 becomes the fallback; *value is out of bounds: INVALID. */
TURB_MUST_CHECK turb_status options_bounded(const char *name, uint64_t given, uint64_t fallback, uint64_t low, uint64_t high,
                                            uint64_t *value, turb_error *err);
#define OPTIONS_SIZE_RATIO_MIN    2u
#define OPTIONS_SIZE_RATIO_MAX    64u
#define OPTIONS_SPACE_PERCENT_MIN 10u
#define OPTIONS_SPACE_PERCENT_MAX 1000u

/* The options of turb_open, with defaults. INVALID names the option, its value and the bounds. */
TURB_MUST_CHECK turb_status options_check(const turb_options *given, struct db_options *options, turb_allocator *allocator,
                                          turb_error *err);

/* How much of a memory budget jobs and memtables may take, at most: the rest, a quarter or more, is for readers. Streaming iterators may
 * take a part of that for large reads, so that what is read by pages has room beside them. */
uint64_t options_job_share(uint64_t budget_bytes);
uint64_t options_memtable_share(uint64_t budget_bytes);
uint64_t options_stream_share(uint64_t budget_bytes);

#endif
