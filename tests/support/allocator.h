/*
 * An allocator that counts, finds leaks and mismatched releases, and fails on demand.
 *
 *   struct test_allocator allocator;
 *   test_allocator_init(&allocator);
 *   for (uint64_t n = 1;; n++) {
 *     test_allocator_fail_at(&allocator, n);
 *     turb_status status = work(&allocator.base);
 *     test_allocator_check_empty(&allocator);
 *     if (!allocator.failed) break;        // went through without meeting the n-th allocation
 *     CHECK_STATUS(status, TURB_NO_MEMORY);
 *   }
 *
 * Each block has a header in front (size, alignment, order number) and guard bytes behind. Released memory
 * is overwritten.
 *
 * Threads: any, under a lock of its own; the fields are read when no other thread works with it.
 */
#ifndef TURB_TESTS_SUPPORT_ALLOCATOR_H
#define TURB_TESTS_SUPPORT_ALLOCATOR_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "turbidite/turbidite.h"

struct test_allocator {
  turb_allocator base; /* what the tested code is given */
  pthread_mutex_t lock;
  struct list blocks;
  uint64_t count;    /* allocations asked for since init or fail_at */
  uint64_t fail_at;  /* the number of the one that fails; 0: none */
  bool fail_after;   /* and all after it */
  bool failed;       /* one did since fail_at */
  size_t live_count; /* blocks and bytes held now */
  size_t live_bytes;
  size_t peak_bytes;
};

void test_allocator_init(struct test_allocator *allocator);

/* Starts counting anew; the n-th allocation from here on fails (0: none). */
void test_allocator_fail_at(struct test_allocator *allocator, uint64_t n);

/* The same, and all after it fail too. */
void test_allocator_fail_from(struct test_allocator *allocator, uint64_t n);

/* Fails the test when a block is live, naming the first few. */
void test_allocator_check_empty(struct test_allocator *allocator);

#endif
