/* io: everything that blocks. Files, operations, rings, and the three backends behind one function table.
 *
 * A system (one a database) knows its backend and opens files; a ring (one thread at a time) carries operations. An operation is memory of
 * its
 * owner's: the owner fills it, queues it, and does not touch it again until `complete` is called from io_ring_poll or io_ring_wait on the
 * ring's
 * thread.
 *
 *   IDLE --io_ring_queue--> QUEUED --io_ring_submit--> SUBMITTED --(kernel)--> io_ring_poll --> DONE (complete() called)
 *
 * Invariants
 *  1. `complete` is called exactly once for every queued operation, never from io_ring_queue or io_ring_submit, on the ring's thread.
 *  2. READ and WRITE are complete transfers: short ones are resumed, EINTR and EAGAIN retried, requests above the device's limit split. A
 *     read
 *     that meets the end of the file is OK with done < size.
 *  3. A failed IO_SYNC poisons its file: every later sync of it fails with the same error (the kernel may have dropped the dirty pages).
 *  4. A file is opened either direct or buffered, and is never read both ways by one system. Direct transfers have offset, size and memory
 *     aligned
 *     to IO_DIRECT_ALIGNMENT.
 *  5. Operations linked with IO_OP_LINKED start only after the one before completed well; after a failure the rest of the chain completes
 *     with
 *     TURB_CANCELLED.
 *  6. A ring that is destroyed first cancels and reaps everything in flight (io_ring_in_flight tells how much there is), calling
 *     `complete` for
 *     each.
 *  7. `complete` may queue and submit on the same ring, also the same operation again; it must not poll, wait, run or destroy it.
 * Threads: io_system and io_file calls from any thread; a ring and its operations from one thread at a time.
 */
#ifndef TURB_IO_IO_H
#define TURB_IO_IO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/budget.h"
#include "base/logger.h"
#include "base/status.h"
#include "turbidite/turbidite.h"

#define IO_DIRECT_ALIGNMENT 4096u
#define IO_NO_TIMEOUT       UINT64_MAX

struct io_system;
struct io_file;
struct io_ring;
struct io_lock;

struct io_system_options {
  turb_backend backend;        /* AUTO tries io_uring, then blocking */
  turb_simulation *simulation; /* for TURB_BACKEND_SIMULATED, borrowed */
  const turb_allocator *allocator;
  struct logger *logger;
  struct budget *budget;            /* ring and buffer memory is charged to it; may be NULL */
  uint32_t ring_entries;            /* 0: 256 */
  uint64_t registered_buffer_bytes; /* wish for each ring that asks for fixed buffers; 0: 4 MiB */
  /* For tests: what the system would refuse. 0: nothing. */
  int refused_uring_errno;         /* setting up io_uring fails with it */
  uint64_t refused_register_bytes; /* registering a buffer as large as this or larger fails with ENOMEM */
  bool refused_direct;             /* opening with O_DIRECT is treated as if the file system refused it */
};

struct io_stats { /* sums since opening, read without locks; transfers count when their operation completes */
  turb_backend backend;
  bool fell_back;
  int fallback_errno;
  uint64_t registered_buffer_bytes;                       /* the most that a ring was granted */
  uint64_t reads, read_bytes, writes, write_bytes, syncs; /* operations and blocking calls */
  uint64_t submissions;                                   /* system calls that handed a ring's requests over, waiting or not */
  uint64_t ring_calls;                                    /* those, and the ones that only waited or fetched completions (io_uring) */
};

/* ---- system and names (blocking; each is one operation of the simulated clock) ---- */
TURB_MUST_CHECK turb_status io_system_open(const struct io_system_options *options, struct io_system **system, turb_error *err);
/* Ends (cancels, completes) what closed cursors left under way on rings that nobody leases: afterwards it holds no file, frame or table
 * any more. Before the
 * owners of those are closed. */
void io_system_drain(struct io_system *system);
void io_system_close(struct io_system *system); /* all files, locks and rings are closed before */
void io_system_stats(const struct io_system *system, struct io_stats *stats);

TURB_MUST_CHECK turb_status io_make_folder(struct io_system *system, const char *path, turb_error *err);   /* EXISTS when there */
TURB_MUST_CHECK turb_status io_remove_folder(struct io_system *system, const char *path, turb_error *err); /* an empty one */
TURB_MUST_CHECK turb_status io_list_folder(struct io_system *system, const char *path, void (*each)(void *context, const char *name),
                                           void *context, turb_error *err); /* unsorted, without . and ..; `each` may remove names */
TURB_MUST_CHECK turb_status io_rename(struct io_system *system, const char *from, const char *to, turb_error *err); /* replaces */
TURB_MUST_CHECK turb_status io_link(struct io_system *system, const char *from, const char *to, turb_error *err);
TURB_MUST_CHECK turb_status io_unlink(struct io_system *system, const char *path, turb_error *err);
TURB_MUST_CHECK turb_status io_sync_folder(struct io_system *system, const char *path, turb_error *err);
/* size and allocated bytes on disk; NOT_FOUND. Either out may be NULL. */
TURB_MUST_CHECK turb_status io_stat(struct io_system *system, const char *path, uint64_t *size, uint64_t *allocated, turb_error *err);
/* Advisory lock on a file that is created when missing (an existing one only when shared); LOCKED when another opener (also in this
 * process) holds
 * it against us. */
TURB_MUST_CHECK turb_status io_lock(struct io_system *system, const char *path, bool shared, struct io_lock **lock, turb_error *err);
void io_unlock(struct io_lock *lock);

/* ---- files ---- */
enum io_open_flags {
  IO_OPEN_READ = 1,
  IO_OPEN_WRITE = 2,
  IO_OPEN_CREATE = 4,
  IO_OPEN_EXCLUSIVE = 8, /* with CREATE: EXISTS when there */
  IO_OPEN_TRUNCATE = 16,
  IO_OPEN_DIRECT = 32 /* where the file system allows it; io_file_is_direct tells */
};
/* The file is reference-counted: open gives one reference; operations in flight hold their own. The last release closes it. */
TURB_MUST_CHECK turb_status io_file_open(struct io_system *system, const char *path, unsigned flags, struct io_file **file,
                                         turb_error *err);
struct io_file *io_file_retain(struct io_file *file);
void io_file_release(struct io_file *file); /* NULL ok */
const char *io_file_path(const struct io_file *file);
bool io_file_is_direct(const struct io_file *file);
TURB_MUST_CHECK turb_status io_file_size(struct io_file *file, uint64_t *size, turb_error *err);
TURB_MUST_CHECK turb_status io_file_truncate(struct io_file *file, uint64_t size, turb_error *err);
/* Reserves space on disk; `extend` also sets the size. Not supported by the file system: OK without effect. */
TURB_MUST_CHECK turb_status io_file_allocate(struct io_file *file, uint64_t offset, uint64_t size, bool extend, turb_error *err);
/* Blocking transfers outside any ring (log, manifest, tails): complete, or an error. read: CORRUPTION "truncated" when the file ends
 * early. */
TURB_MUST_CHECK turb_status io_file_read(struct io_file *file, void *data, size_t size, uint64_t offset, turb_error *err);
TURB_MUST_CHECK turb_status io_file_write(struct io_file *file, const void *data, size_t size, uint64_t offset, turb_error *err);
TURB_MUST_CHECK turb_status io_file_sync(struct io_file *file, turb_error *err); /* data, and what is needed to read it back */

/* ---- operations ---- */
enum io_op_kind { IO_READ = 1, IO_WRITE = 2, IO_SYNC = 3, IO_OPEN = 4, IO_UNLINK = 5 };
enum io_op_state { IO_OP_IDLE = 0, IO_OP_QUEUED = 1, IO_OP_SUBMITTED = 2, IO_OP_DONE = 3 };
enum io_op_flags {
  IO_OP_LINKED = 1,      /* the next queued operation waits for this one */
  IO_OP_FIXED_BUFFER = 2 /* `data` lies within the buffer of io_ring_fixed_buffer */
};

struct io_op {
  /* filled by the owner */
  uint8_t kind;  /* enum io_op_kind */
  uint8_t flags; /* enum io_op_flags */
  uint8_t state; /* enum io_op_state; the ring's to change */
  uint32_t size;
  struct io_file *file; /* READ, WRITE, SYNC: borrowed, retained by the ring while in flight */
  void *data;
  uint64_t offset;
  const char *path; /* OPEN, UNLINK: alive until completion */
  unsigned open_flags;
  void (*complete)(struct io_op *op);
  void *owner;
  /* the result */
  turb_status status;
  int os_error;
  uint32_t done;          /* bytes transferred */
  struct io_file *opened; /* OPEN: a new reference, the owner's */
  /* the ring's own */
  uint32_t slot;
  struct io_op *next;
};
/* Turns a completed operation's failure into an error with file, offset and cause; OK when it went well. */
TURB_MUST_CHECK turb_status io_op_status(const struct io_op *op, turb_error *err);

/* ---- rings ---- */
struct io_ring_options {
  uint32_t entries;  /* 0: the system's */
  bool pollable;     /* io_ring_descriptor will be used */
  bool fixed_buffer; /* register a buffer, as large as allowed */
};
TURB_MUST_CHECK turb_status io_ring_create(struct io_system *system, const struct io_ring_options *options, struct io_ring **ring,
                                           turb_error *err);
void io_ring_destroy(struct io_ring *ring);
/* A ring from the system's pool (made when the pool is empty), for the calling thread until it is given back. Operations that nobody waits
 * for any
 * more (their owners free themselves) may be in flight then: who leases the ring next completes them on the way, or io_system_drain does.
 * */
TURB_MUST_CHECK turb_status io_ring_lease(struct io_system *system, struct io_ring **ring, turb_error *err);
void io_ring_return(struct io_ring *ring);

/* Queues; makes no system call and takes no memory. False when `entries` operations are queued or in flight: submit, wait and try again. */
bool io_ring_queue(struct io_ring *ring, struct io_op *op);
/* All that is queued, in one system call (none when nothing is queued). On failure the operations stay queued. */
TURB_MUST_CHECK turb_status io_ring_submit(struct io_ring *ring, turb_error *err);
/* Completes what is done; returns how many operations completed. Makes no system call when nothing is done. With io_uring it makes one when
 * completions wait in the kernel to be posted (a flag in shared memory says so), and one when a short transfer is resumed. */
size_t io_ring_poll(struct io_ring *ring);
/* Submits and waits until at least `count` operations completed since the call (or nothing is in flight), at most timeout_ns. TIMED_OUT. */
TURB_MUST_CHECK turb_status io_ring_wait(struct io_ring *ring, size_t count, uint64_t timeout_ns, turb_error *err);
/* Asks to cancel a queued or submitted operation; it still completes (TURB_CANCELLED, or as it went), and what is linked behind it with
 * TURB_CANCELLED unless it went well. No-op on IDLE and DONE. */
void io_ring_cancel(struct io_ring *ring, struct io_op *op);
/* Queues, submits and waits for one operation (completes others on the way). */
TURB_MUST_CHECK turb_status io_ring_run(struct io_ring *ring, struct io_op *op, turb_error *err);
size_t io_ring_in_flight(const struct io_ring *ring); /* queued and submitted */
size_t io_ring_room(const struct io_ring *ring);      /* how many more io_ring_queue takes */
/* Readable while completions wait to be polled. For rings made `pollable`, else -1. With io_uring, epoll_wait on it may return EINTR when a
 * completion arrives. */
int io_ring_descriptor(const struct io_ring *ring);
/* The registered buffer (page-aligned), or NULL with size 0 when none was granted. */
void *io_ring_fixed_buffer(struct io_ring *ring, size_t *size);
struct io_system *io_ring_system(struct io_ring *ring);

#endif
