/*
 * sstable/shuffle: bytes of elements to planes and back: all first bytes, then all second bytes, …, so that a compressor sees like with like.
 *
 * The form is one of the file format (docs/format.md 3.3); every version gives the same bytes.
 * Threads: pure functions.
 */
#ifndef TURB_SSTABLE_SHUFFLE_H
#define TURB_SSTABLE_SHUFFLE_H

#include <stddef.h>

/* width: 2 or 4 bytes an element; size: a multiple of width. from and to do not overlap. */
void shuffle_bytes(const void *from, void *to, size_t size, unsigned width);
void unshuffle_bytes(const void *from, void *to, size_t size, unsigned width);

/* The plain loops, to compare with. */
void shuffle_bytes_portable(const void *from, void *to, size_t size, unsigned width);
void unshuffle_bytes_portable(const void *from, void *to, size_t size, unsigned width);

#endif
