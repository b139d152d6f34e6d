/*
 * What the parts of io/ share: the insides of systems, files and rings, and the two function tables behind which the backends stand.
 *
 * A backend is a disk (names, files, blocking transfers: io/posix.c or io/simulated.c) and a carrier (what takes the requests of a ring:
 * io/uring.c, io/blocking.c, io/simulated.c). io/ring.c turns operations into requests, one for each piece of at most IO_PIECE_BYTES, and requests
 * back into completed operations. Carriers know no operation's owner and resume nothing.
 *
 * Rules
 *  1. Disk calls and carriers speak in error numbers: 0 or bytes when it went well, else errno (disk calls) or -errno (results of requests).
 *  2. Every request that a carrier took comes back through io_ring_finish exactly once, from `reap`, on the ring's thread.
 *  3. A request that was put as `linked` and does not transfer all its bytes makes its carrier give the following ones back with -ECANCELED.
 * Threads: as in io.h; what crosses threads is atomic or under io_system.mutex.
 */
#ifndef TURB_IO_BACKEND_H
#define TURB_IO_BACKEND_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "base/alloc.h"
#include "base/list.h"
#include "io/io.h"

/* The largest request. Linux caps what a device takes in one (max_sectors_kb, 1,280 KiB and up on today's disks), splits what is larger itself, and
 * where that needs more request tags than are free, io_uring hands the whole of it to a worker thread; other systems' large reads fell apart
 * there. Pieces of 1 MiB stay below the cap. 8 MiB reads, two in flight, measured: 930 MB/s in pieces and 910 MB/s whole, 0.09 and 0.06 CPU
 * seconds a GiB. */
#define IO_PIECE_BYTES (1u << 20)

/* What files are created with, less the umask. */
#define IO_FILE_MODE 0644

/* How often one request may end with EINTR, EAGAIN or without progress before that counts as an error. */
#define IO_ATTEMPTS 1000u

struct io_request;
struct simulation_handle;
struct blocking_pool;

/* ---- disks ---- */

struct io_disk {
  int (*make_folder)(struct io_system *system, const char *path);
  int (*remove_folder)(struct io_system *system, const char *path);
  int (*list_folder)(struct io_system *system, const char *path, void (*each)(void *context, const char *name), void *context);
  int (*rename)(struct io_system *system, const char *from, const char *to);
  int (*link)(struct io_system *system, const char *from, const char *to);
  int (*unlink)(struct io_system *system, const char *path);
  int (*sync_folder)(struct io_system *system, const char *path);
  int (*stat)(struct io_system *system, const char *path, uint64_t *size, uint64_t *allocated);
  /* Fill in the file's or lock's descriptor or handle, and file->direct. lock: EWOULDBLOCK when it is held. */
  int (*open)(struct io_file *file);
  void (*close)(struct io_file *file);
  int (*lock)(struct io_lock *lock);
  void (*unlock)(struct io_lock *lock);
  int (*size)(struct io_file *file, uint64_t *size);
  int (*truncate)(struct io_file *file, uint64_t size);
  int (*allocate)(struct io_file *file, uint64_t offset, uint64_t size, bool extend); /* EOPNOTSUPP when the file system cannot */
  /* One transfer, which may be short: bytes, or -errno. */
  int64_t (*read)(struct io_file *file, void *data, size_t size, uint64_t offset);
  int64_t (*write)(struct io_file *file, const void *data, size_t size, uint64_t offset);
  int (*sync)(struct io_file *file);
};

extern const struct io_disk io_disk_posix;
extern const struct io_disk io_disk_simulated;

/* ---- carriers ---- */

struct io_carrier {
  turb_backend backend;
  bool grants_buffer; /* has a use for a registered buffer, or pretends to */
  /* Sets ring->carrier_state. Returns errno. `requests` is how many can be in the carrier at once. */
  int (*create)(struct io_ring *ring, const struct io_ring_options *options, uint32_t requests);
  void (*destroy)(struct io_ring *ring); /* nothing is in flight */
  int (*register_buffer)(struct io_ring *ring, void *data, size_t size);
  /* How many requests can be put before a flush. */
  uint32_t (*space)(struct io_ring *ring);
  void (*put)(struct io_ring *ring, struct io_request *request); /* there is space */
  /* Hands over what was put: 0 or errno, and then what was not taken stays for the next flush. */
  int (*flush)(struct io_ring *ring);
  /* io_ring_finish for each request that is done; without a system call where possible. */
  void (*reap)(struct io_ring *ring);
  /* Flushes and sleeps until about `count` requests are done; ETIME after timeout_ns. */
  int (*wait)(struct io_ring *ring, uint32_t count, uint64_t timeout_ns);
  /* Tries to have a request end early. */
  void (*cancel)(struct io_ring *ring, struct io_request *request);
  /* Takes back what was put and never flushed, for a ring whose flushes fail when it is destroyed. */
  void (*withdraw)(struct io_ring *ring);
  int (*descriptor)(const struct io_ring *ring);
};

extern const struct io_carrier io_carrier_uring;
extern const struct io_carrier io_carrier_blocking;
extern const struct io_carrier io_carrier_simulated;

/* ---- the insides ---- */

struct io_counters {
  uint64_t reads, read_bytes, writes, write_bytes, syncs, submissions;
  uint64_t ring_calls;
};

struct io_system {
  turb_allocator allocator;
  struct logger *logger;
  struct budget *budget;
  struct io_system_options options;
  const struct io_disk *disk;
  const struct io_carrier *carrier;
  turb_simulation *simulation;
  bool automatic; /* may fall back */
  _Atomic bool fell_back;
  _Atomic int fallback_errno;
  _Atomic uint32_t files, locks, rings;
  _Atomic uint64_t registered_buffer_bytes;
  _Atomic uint64_t reads, read_bytes, writes, write_bytes, syncs, submissions, ring_calls;
  pthread_mutex_t mutex; /* guards what follows */
  struct list pool;      /* of rings that are not leased */
  struct list open_files;
  struct blocking_pool *blocking; /* made with the first blocking ring */
};

struct io_file {
  struct io_system *system;
  _Atomic uint32_t references;
  _Atomic int sync_error; /* of the first failed sync; final */
  unsigned flags;
  bool direct;
  int descriptor;                   /* posix */
  struct simulation_handle *handle; /* simulated */
  uint64_t device, inode;           /* what it is, whatever its name */
  struct list link;                 /* in system->open_files */
  char *path;
};

struct io_lock {
  struct io_system *system;
  bool shared;
  int descriptor;
  struct simulation_handle *handle;
  char *path;
};

enum io_request_link {
  IO_LINK_NONE,    /* follows nothing */
  IO_LINK_WAITING, /* what it follows has not ended */
  IO_LINK_CLEAR,   /* ... went well */
  IO_LINK_BROKEN   /* ... failed */
};

/* One piece of an operation. The first piece's request stays the operation's until it completes and holds what its pieces have in common. */
struct io_request {
  struct io_op *op;
  struct io_request *next; /* in ring->again, or a carrier's list while it has the request */
  /* the piece: what is left of it */
  uint8_t *data;
  uint64_t offset;
  uint32_t size;
  uint16_t attempts;
  uint8_t kind;
  bool linked; /* the request put next waits for this one */
  bool fixed;  /* data lies in the registered buffer */
  bool in_carrier;
  bool busy;            /* a piece is under way here */
  struct io_file *file; /* OPEN: the new one */
  /* of the operation, in its first piece */
  uint8_t link;    /* enum io_request_link */
  bool held;       /* waits here, not in the carrier, for what it follows */
  bool cancelled;  /* by io_ring_cancel */
  uint32_t pieces; /* under way */
  uint32_t issued; /* bytes that pieces were made for */
  uint32_t end;    /* transferred up to here at most: size, the end of the file, or the first failure */
  int error;       /* errno of the first failure */
};

struct io_ring {
  struct io_system *system;
  const struct io_carrier *carrier;
  void *carrier_state;
  uint32_t entries;
  uint32_t request_count;
  struct io_request *requests;
  uint32_t *unused; /* stack of request numbers */
  uint32_t unused_count;
  uint32_t queued;                            /* operations in the queue; each is sure of a request */
  uint32_t in_flight;                         /* operations queued, submitted or ready */
  uint32_t carried;                           /* requests in the carrier */
  struct io_op *queue_head, *queue_tail;      /* QUEUED, linked by op->next */
  struct io_op *ready_head, *ready_tail;      /* ended, complete() due */
  struct io_request *again_head, *again_tail; /* to be put (again) */
  uint64_t completed;
  bool pollable;
  bool leased;
  bool closing;
  bool completing;             /* in a poll: complete() may queue and submit, but not poll */
  struct io_counters counters; /* not yet added to the system's */
  void *buffer;
  size_t buffer_size;
  uint64_t charged;
  struct list link; /* in system->pool */
};

/* ring.c, for carriers: the request is done; result: bytes, 0, or -errno. */
void io_ring_finish(struct io_ring *ring, struct io_request *request, int64_t result);
static inline uint32_t io_request_number(const struct io_ring *ring, const struct io_request *request) {
  return (uint32_t)(request - ring->requests);
}

/* file.c: a file that is not open yet, with one reference; NULL without memory. */
struct io_file *io_file_prepare(struct io_system *system, const char *path, unsigned flags);
/* ... is open now. */
void io_file_opened(struct io_file *file);
/* ... could not be opened. */
void io_file_discard(struct io_file *file);
/* After a transfer of `moved` bytes at offset that was short: how much of it counts (direct files go on at a multiple of their alignment), and
 * whether a read has met the end of the file. Returns errno. */
int io_file_short(struct io_file *file, bool write, uint64_t offset, size_t moved, size_t *counts, bool *ended);
/* Remembers the first failed sync and returns the error that this one has to report. */
int io_file_sync_result(struct io_file *file, int error);

/* posix.c */
int io_posix_open_flags(unsigned flags, bool direct);
void io_posix_identify(struct io_file *file);

/* blocking.c */
void blocking_pool_destroy(struct blocking_pool *pool);

/* system.c */
void io_system_count(struct io_system *system, struct io_counters *counters); /* adds and clears */
void io_system_fell_back(struct io_system *system, int os_error);

#endif
