/* turbidite: an embeddable storage engine for vectors.
 *
 * The whole library is in this header. Simple calls come first:
 *
 *     turb_db *db;  turb_collection *c;  turb_error err = TURB_ERROR_INIT;
 *     turb_open("shop", NULL, &db, &err);
 *     turb_collection_create(db, "items", &(turb_collection_options){
 *         .size = sizeof(turb_collection_options), .dimension = 128, .type = TURB_F32, .metric = TURB_L2}, &c, &err);
 *     turb_put(c, TURB_STR("a"), (turb_bytes){vector, 512}, TURB_NONE, NULL, &err);
 *     turb_result *r;  turb_search(c, (turb_bytes){vector, 512}, NULL, &r, &err);
 *     turb_result_free(r);  turb_close(db, &err);
 *
 * Rules that hold for every call unless it says otherwise:
 *  - Threads: a turb_db, a turb_collection, a turb_snapshot may be used by any number of threads at once. A turb_iterator, a turb_loop, a
 *    turb_batch, a turb_result and a turb_pinned belong to one thread at a time.
 *  - Ownership: what a call creates is released by the call named beside it. Bytes passed in are read during the call only. Pointers handed
 *    out live until the object they came from moves, is released or is closed.
 *  - Errors: a call that can fail returns a turb_status, which must be looked at; out-parameters are cleared on entry, so after a failure
 *    they
 *    are NULL or 0. `error` may be NULL; otherwise its detail (file, offset, option, value) is filled on failure. Beside the errors listed
 *    at a call, any call may return TURB_NO_MEMORY, TURB_BUDGET, TURB_IO, TURB_CORRUPTION, TURB_NO_SPACE, TURB_PERMISSION,
 *    TURB_TOO_MANY_FILES.
 *  - Options: every options struct begins with its own size (TURB_..._INIT sets it); NULL means all defaults; a field of 0 means its
 *    default. Bytes
 *    beyond what this version of the library knows must be 0. A value out of bounds is TURB_INVALID, and the message names option, value
 *    and bounds.
 *  - The library never prints, aborts, exits, or changes signal handlers, the environment or any process-wide state.
 *  - Order: keys by unsigned bytes, a shorter one before its extensions. Units stand in the names.
 */
#ifndef TURBIDITE_H
#define TURBIDITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TURB_VERSION_MAJOR 0
#define TURB_VERSION_MINOR 1
#define TURB_VERSION_PATCH 0

#if defined(__GNUC__)
#define TURB_API __attribute__((visibility("default")))
#define TURB_CHECKED __attribute__((visibility("default"), warn_unused_result))
#else
#define TURB_API
#define TURB_CHECKED
#endif

/* ---- 1. Status, bytes, allocator ------------------------------------------------------------------------------------------------ */

/* The numbers are pinned: they are part of the binary interface. */
typedef enum turb_status {
  TURB_OK = 0,
  TURB_NOT_FOUND = 1,        /* no such key, collection or file */
  TURB_EXISTS = 2,           /* it is there already */
  TURB_INVALID = 3,          /* an argument or option is out of its bounds */
  TURB_CORRUPTION = 4,       /* stored bytes contradict their checksum or format; the error names file and offset */
  TURB_IO = 5,               /* the operating system failed an operation */
  TURB_NO_SPACE = 6,         /* the disk or a quota is full */
  TURB_NO_MEMORY = 7,        /* the allocator returned NULL */
  TURB_BUDGET = 8,           /* the database's memory budget does not allow it */
  TURB_BUSY = 9,             /* live iterators, snapshots, pins or loops forbid it */
  TURB_LOCKED = 10,          /* another opener holds the database */
  TURB_READ_ONLY = 11,       /* opened read-only, or made so by a failed log sync */
  TURB_CONFLICT = 12,        /* a conditional write found another state */
  TURB_CANCELLED = 13,       /* cancelled by request */
  TURB_NEWER_FORMAT = 14,    /* written by a newer version */
  TURB_NOT_A_DATABASE = 15,  /* the folder holds something else */
  TURB_TOO_MANY_FILES = 16,  /* the process's or system's limit of open files */
  TURB_PERMISSION = 17,      /* the operating system forbids it */
  TURB_UNKNOWN_OUTCOME = 18, /* a log sync failed: the write may or may not survive */
  TURB_TIMED_OUT = 19,
  TURB_UNSUPPORTED = 20, /* legal, but not built in or not on this platform */
  TURB_TOO_LARGE = 21    /* a key, attribute, batch or file beyond its limit */
} turb_status;

/* The name of a status, for example "TURB_NOT_FOUND"; static text; never NULL. */
TURB_API const char *turb_status_name(turb_status status);

/* Detail of a failure, owned by the caller. The first failure recorded stays until the caller resets it (TURB_ERROR_INIT). */
typedef struct turb_error {
  turb_status status;
  int os_error;      /* errno, or 0 */
  uint64_t offset;   /* where in the file, or UINT64_MAX */
  char file[256];    /* which file, or "" (a longer path keeps its tail) */
  char message[512]; /* a sentence with all of it */
} turb_error;
#define TURB_ERROR_INIT                                                                                                                     \
  { TURB_OK, 0, UINT64_MAX, "", "" }

typedef struct turb_bytes {
  const void *data;
  size_t size;
} turb_bytes;
#ifdef __cplusplus
#define TURB_STR(literal) (turb_bytes{literal, sizeof(literal) - 1})
#define TURB_NONE (turb_bytes{nullptr, 0})
#else
#define TURB_STR(literal) ((turb_bytes){literal, sizeof(literal) - 1})
#define TURB_NONE ((turb_bytes){NULL, 0})
#endif

/* Every allocation of a database goes through one of these. `allocate` returns memory aligned to `alignment` (a power of two) or NULL;
 * `release`
 * gets the size that was asked for. Both are called from any thread. Default: the process's aligned_alloc and free. */
typedef struct turb_allocator {
  void *context;
  void *(*allocate)(void *context, size_t size, size_t alignment);
  void (*release)(void *context, void *memory, size_t size);
} turb_allocator;

/* ---- 2. Database ---------------------------------------------------------------------------------------------------------------- */

typedef struct turb_db turb_db;
typedef struct turb_collection turb_collection;
typedef struct turb_snapshot turb_snapshot;
typedef struct turb_simulation turb_simulation;

/* How a write is acknowledged. A stronger mode includes the weaker. */
typedef enum turb_durability {
  TURB_DURABLE = 1, /* after its log record survives power loss (default) */
  TURB_LOGGED = 2,  /* after its log record is with the operating system: survives a killed process; turb_sync makes it durable */
  TURB_UNLOGGED = 3 /* in memory: lost unless a flush completed */
} turb_durability;

typedef enum turb_backend {
  TURB_BACKEND_AUTO = 0, /* io_uring; blocking when the kernel or a container's policy refuses it */
  TURB_BACKEND_URING = 1,
  TURB_BACKEND_BLOCKING = 2,
  TURB_BACKEND_SIMULATED = 3 /* `simulation` must be given */
} turb_backend;

typedef enum turb_log_level { TURB_LOG_ERROR = 1, TURB_LOG_WARNING = 2, TURB_LOG_INFO = 3, TURB_LOG_DEBUG = 4 } turb_log_level;

typedef enum turb_event_kind {
  TURB_EVENT_JOB_BEGIN = 1,
  TURB_EVENT_JOB_PROGRESS = 2, /* at most ten a second */
  TURB_EVENT_JOB_END = 3,      /* status says how */
  TURB_EVENT_STALL = 4,        /* writers were delayed; value: microseconds */
  TURB_EVENT_PAUSED = 5,       /* background work paused (full disk); status says why */
  TURB_EVENT_RESUMED = 6,
  TURB_EVENT_READ_ONLY = 7,  /* a log sync failed: the database takes no more writes */
  TURB_EVENT_CORRUPTION = 8, /* damage found; text names file and offset */
  TURB_EVENT_SALVAGED = 9,   /* recovery skipped damaged log records by request; value: bytes */
  TURB_EVENT_DROPPED = 10    /* FIFO dropped the oldest runs: entries_total, bytes_total of them; value: runs; text: why */
} turb_event_kind;

typedef enum turb_job_kind { TURB_JOB_NONE = 0, TURB_JOB_FLUSH = 1, TURB_JOB_MERGE = 2, TURB_JOB_INDEX = 3, TURB_JOB_IMPORT = 4 } turb_job_kind;

typedef struct turb_event {
  size_t size;
  turb_event_kind kind;
  turb_job_kind job_kind;
  uint64_t job;           /* numbers rise within one opening */
  const char *collection; /* its name, or NULL */
  uint64_t entries_done, entries_total;
  uint64_t bytes_done, bytes_total;
  uint64_t value;
  turb_status status;
  const char *text; /* one sentence, valid during the callback */
} turb_event;

typedef struct turb_options {
  size_t size;
  bool create_if_missing;         /* the default when options are NULL is to create */
  bool error_if_exists;           /* TURB_EXISTS when the folder holds a database */
  bool read_only;                 /* shared lock; any number of readers, no writer; replays the log into memory, writes nothing */
  bool salvage;                   /* recovery goes on over damaged log records, and reports what it skipped */
  const turb_allocator *allocator; /* copied */
  turb_backend backend;
  turb_simulation *simulation;    /* borrowed until close */
  uint64_t memory_budget_bytes;   /* everything the database holds: page cache, memtables (to a half), jobs (to a quarter), cursors.
                                     Default 512 MiB; 8 MiB to 1 TiB */
  uint64_t memtable_bytes;        /* a collection's memtable is flushed at this size, or at a quarter of the budget when that is less.
                                     Default 64 MiB; 256 KiB to 4 GiB */
  turb_durability durability;     /* of writes that do not say. Default TURB_DURABLE */
  int32_t worker_threads;         /* background threads: 0 is the default (1), -1 none (call turb_maintain), to 64 */
  uint64_t table_bytes;           /* size at which a merge starts its next table. Default 256 MiB; 64 KiB to 16 GiB */
  uint32_t size_ratio;            /* T of the merge policy: this many runs of like size are merged. Default 10; 2 to 64 */
  uint32_t max_space_amplification_percent; /* merge everything when upper runs exceed this share of the bottom run. Default 100; 10 to 1000 */
  uint64_t rate_limit_bytes_per_s; /* reads and writes of merges; 0: none */
  bool buffered_io;               /* read and write tables through the operating system's page cache instead of O_DIRECT */
  uint32_t ring_entries;          /* operations in flight a ring. Default 256; 8 to 4096 */
  uint64_t registered_buffer_bytes; /* wish; shrinks when the process may not lock as much. Default 4 MiB */
  void *callback_context;
  void (*on_event)(void *context, const turb_event *event); /* any thread; it may read the database, and must not write to it, flush,
                                                               compact, maintain or close it: a writer may be waiting for the event's job */
  void (*on_log)(void *context, turb_log_level level, const char *text);
  turb_log_level log_level; /* default TURB_LOG_WARNING */
} turb_options;
#define TURB_OPTIONS_INIT                                                                                                                   \
  { .size = sizeof(turb_options), .create_if_missing = true }

/* Opens the database in folder `path`, making the folder when it is missing and options allow; recovers what was acknowledged.
 * Release: turb_close. Errors: TURB_LOCKED, TURB_NOT_FOUND, TURB_EXISTS, TURB_NOT_A_DATABASE, TURB_NEWER_FORMAT, TURB_CORRUPTION,
 * TURB_INVALID. */
TURB_CHECKED turb_status turb_open(const char *path, const turb_options *options, turb_db **db, turb_error *error);

/* Stops background work, makes logged writes durable and releases everything; all collection handles die with it. Threads are joined.
 * With live iterators, snapshots, loops, pins, batches or results it returns TURB_BUSY and changes nothing. Any other error is a failed
 * last sync: the
 * database is closed all the same. */
TURB_CHECKED turb_status turb_close(turb_db *db, turb_error *error);

/* ---- 3. Collections ------------------------------------------------------------------------------------------------------------- */

typedef enum turb_type { TURB_F32 = 1, TURB_F16 = 2, TURB_BF16 = 3, TURB_I8 = 4, TURB_U8 = 5, TURB_BITS = 6 } turb_type;

/* Distances, smaller is nearer: L2 is the squared Euclidean distance; INNER_PRODUCT the negated dot product; COSINE 1 - cosine (1 when
 * either vector is
 * zero); MANHATTAN the sum of absolute differences; HAMMING the number of differing bits. HAMMING goes with TURB_BITS only, and TURB_BITS
 * with
 * HAMMING only. */
typedef enum turb_metric { TURB_L2 = 1, TURB_INNER_PRODUCT = 2, TURB_COSINE = 3, TURB_MANHATTAN = 4, TURB_HAMMING = 5 } turb_metric;

typedef enum turb_index { TURB_INDEX_DEFAULT = 0, TURB_INDEX_EXACT = 1 } turb_index;
typedef enum turb_compression { TURB_COMPRESSION_DEFAULT = 0, TURB_COMPRESSION_NONE = 1, TURB_COMPRESSION_ZSTD = 2 } turb_compression;

#define TURB_MAX_KEY_BYTES 4096
#define TURB_MAX_DIMENSION 65536
#define TURB_MAX_ATTRIBUTE_BYTES (16u << 20)
#define TURB_MAX_NAME_BYTES 255

/* How the runs of a collection are merged; docs/compaction.md says when to choose which. */
typedef enum turb_compaction_policy {
  TURB_COMPACTION_DEFAULT = 0,        /* lazy levelling */
  TURB_COMPACTION_LAZY_LEVELLING = 1, /* tiers above one bottom run, with a bound on the space of old versions */
  TURB_COMPACTION_TIERED = 2,         /* size_ratio runs of like size become one: writes least, keeps old versions longest */
  TURB_COMPACTION_LEVELLED = 3,       /* one run a level: reads and stores least, writes most */
  TURB_COMPACTION_FIFO = 4            /* the oldest runs are dropped by size or age, with everything in them */
} turb_compaction_policy;

typedef struct turb_compaction_options {
  size_t size;
  turb_compaction_policy policy;
  uint32_t size_ratio;                      /* default: the database's; 2 to 64 */
  uint32_t max_space_amplification_percent; /* lazy levelling alone. Default: the database's; 10 to 1000 */
  uint64_t fifo_max_bytes;                  /* FIFO alone: the oldest runs are dropped while the tables have more bytes. The newest run stays.
                                               0: no bound */
  uint64_t ttl_s;                           /* FIFO alone: a run is dropped when it is the oldest and all its entries are older than so many
                                               seconds. 0: no bound; FIFO needs one of the two */
} turb_compaction_options;
#define TURB_COMPACTION_OPTIONS_INIT                                                                                                        \
  { .size = sizeof(turb_compaction_options) }

typedef struct turb_collection_options {
  size_t size;
  uint32_t dimension; /* 1 to 65,536 components (bits for TURB_BITS); no default */
  turb_type type;     /* default TURB_F32 */
  turb_metric metric; /* default TURB_L2; TURB_HAMMING for TURB_BITS */
  turb_index index;   /* default: exact */
  turb_compression compression; /* default none; ZSTD: byte-shuffled blocks */
  int32_t compression_level;    /* zstd's; default 3; -7 to 19 */
  const turb_compaction_options *compaction; /* default: lazy levelling by the database's options */
} turb_collection_options;
#define TURB_COLLECTION_OPTIONS_INIT                                                                                                        \
  { .size = sizeof(turb_collection_options) }

/* The handle is the database's: never released by the caller, valid until turb_close. After a drop its calls return TURB_NOT_FOUND.
 * Name: 1 to 255 bytes of UTF-8 without control characters. create: TURB_EXISTS. open: TURB_NOT_FOUND. */
TURB_CHECKED turb_status turb_collection_create(turb_db *db, const char *name, const turb_collection_options *options,
                                                turb_collection **collection, turb_error *error);
TURB_CHECKED turb_status turb_collection_open(turb_db *db, const char *name, turb_collection **collection, turb_error *error);
/* Durable when it returns. Live iterators go on reading what they see; files leave with the last of them. */
TURB_CHECKED turb_status turb_collection_drop(turb_db *db, const char *name, turb_error *error);
/* Changes how the collection's runs are merged from now on (NULL: everything to its default). Durable when it returns; a running merge ends
 * as it began. With FIFO, background work begins at once to drop what lies beyond the bounds: TURB_EVENT_DROPPED tells. A live iterator goes
 * on reading what was dropped; a live snapshot keeps the runs that it sees from being dropped. */
TURB_CHECKED turb_status turb_collection_set_compaction(turb_collection *collection, const turb_compaction_options *options,
                                                        turb_error *error);

typedef struct turb_collection_info {
  size_t size; /* set by the caller: sizeof(turb_collection_info) */
  uint64_t id; /* never reused */
  char name[TURB_MAX_NAME_BYTES + 1];
  uint32_t dimension;
  uint32_t row_bytes; /* bytes of one vector as put and got */
  turb_type type;
  turb_metric metric;
  turb_index index;
  turb_compression compression;
  turb_compaction_policy policy;            /* never TURB_COMPACTION_DEFAULT */
  uint32_t size_ratio;                      /* these four as they were set; 0: the database's option, or no bound */
  uint32_t max_space_amplification_percent;
  uint64_t fifo_max_bytes;
  uint64_t ttl_s;
} turb_collection_info;
TURB_CHECKED turb_status turb_collection_describe(turb_collection *collection, turb_collection_info *info, turb_error *error);
/* Calls `each` for every collection in the order of names; a `false` from it ends the walk. */
TURB_CHECKED turb_status turb_collection_list(turb_db *db, bool (*each)(void *context, const turb_collection_info *info), void *context,
                                              turb_error *error);

/* ---- 4. Writes ------------------------------------------------------------------------------------------------------------------ */

typedef struct turb_write_options {
  size_t size;
  turb_durability durability; /* default: the database's */
  uint64_t *sequence;         /* where to put the write's sequence number, or NULL */
} turb_write_options;
#define TURB_WRITE_OPTIONS_INIT                                                                                                             \
  { .size = sizeof(turb_write_options) }

/* Keys have 1 to 4,096 bytes, a vector exactly row_bytes, attributes at most 16 MiB (TURB_TOO_LARGE). A component that is not finite is
 * TURB_INVALID
 * and the message names it. All writes: TURB_READ_ONLY, TURB_UNKNOWN_OUTCOME (a log sync failed), TURB_NOT_FOUND (dropped collection).
 * put replaces. delete of a missing key is no error. delete_range hides [begin, end); an empty `end` (size 0) means to the last key. */
TURB_CHECKED turb_status turb_put(turb_collection *collection, turb_bytes key, turb_bytes vector, turb_bytes attributes,
                                  const turb_write_options *options, turb_error *error);
TURB_CHECKED turb_status turb_delete(turb_collection *collection, turb_bytes key, const turb_write_options *options, turb_error *error);
TURB_CHECKED turb_status turb_delete_range(turb_collection *collection, turb_bytes begin, turb_bytes end, const turb_write_options *options,
                                           turb_error *error);
/* TURB_CONFLICT when the key is there. */
TURB_CHECKED turb_status turb_put_if_absent(turb_collection *collection, turb_bytes key, turb_bytes vector, turb_bytes attributes,
                                            const turb_write_options *options, turb_error *error);
/* Puts when the key's newest sequence number is `expected`; TURB_CONFLICT otherwise, also when the key is not there. */
TURB_CHECKED turb_status turb_put_if_sequence(turb_collection *collection, turb_bytes key, turb_bytes vector, turb_bytes attributes,
                                              uint64_t expected, const turb_write_options *options, turb_error *error);
/* Replaces the attributes and keeps the vector (it is read and put again). TURB_NOT_FOUND when the key is not there. */
TURB_CHECKED turb_status turb_update_attributes(turb_collection *collection, turb_bytes key, turb_bytes attributes,
                                                const turb_write_options *options, turb_error *error);

/* A batch of writes, atomic also across collections: after a crash, and for every reader, all of it is there or nothing. Later writes to a
 * key win.
 * At most 1 GiB. Release: turb_batch_free. A batch can be written again, and cleared. */
typedef struct turb_batch turb_batch;
TURB_CHECKED turb_status turb_batch_create(turb_db *db, turb_batch **batch, turb_error *error);
TURB_API void turb_batch_free(turb_batch *batch);
TURB_API void turb_batch_clear(turb_batch *batch);
TURB_API size_t turb_batch_count(const turb_batch *batch);
TURB_CHECKED turb_status turb_batch_put(turb_batch *batch, turb_collection *collection, turb_bytes key, turb_bytes vector, turb_bytes attributes,
                                        turb_error *error);
TURB_CHECKED turb_status turb_batch_delete(turb_batch *batch, turb_collection *collection, turb_bytes key, turb_error *error);
TURB_CHECKED turb_status turb_batch_delete_range(turb_batch *batch, turb_collection *collection, turb_bytes begin, turb_bytes end,
                                                 turb_error *error);
TURB_CHECKED turb_status turb_write(turb_db *db, turb_batch *batch, const turb_write_options *options, turb_error *error);

/* Makes every write acknowledged so far durable, but for TURB_UNLOGGED ones: for these turb_flush does. */
TURB_CHECKED turb_status turb_sync(turb_db *db, turb_error *error);

/* ---- 5. Snapshots and point reads ----------------------------------------------------------------------------------------------- */

/* A snapshot fixes what readers see. It keeps old versions and their files alive: see turb_stats.oldest_snapshot_age_ms. */
TURB_CHECKED turb_status turb_snapshot_create(turb_db *db, turb_snapshot **snapshot, turb_error *error);
TURB_API void turb_snapshot_release(turb_snapshot *snapshot);
TURB_API uint64_t turb_snapshot_sequence(const turb_snapshot *snapshot);

typedef enum turb_parts { TURB_KEY = 1, TURB_VECTOR = 2, TURB_ATTRIBUTES = 4, TURB_ALL = 7 } turb_parts;

typedef struct turb_read_options {
  size_t size;
  const turb_snapshot *snapshot; /* default: everything acknowledged before the call */
  uint32_t parts;                /* turb_parts or-ed; default TURB_ALL */
  bool skip_cache_fill;          /* misses are read, but not kept in the page cache */
} turb_read_options;
#define TURB_READ_OPTIONS_INIT                                                                                                              \
  { .size = sizeof(turb_read_options) }

/* Copies an entry out. `vector` (row_bytes long) may be NULL; `attributes` may be NULL; *attributes_size is set to the full size even when
 * `attributes_capacity` is smaller (then TURB_TOO_LARGE and nothing of the attributes is copied). Errors: TURB_NOT_FOUND. */
TURB_CHECKED turb_status turb_get(turb_collection *collection, turb_bytes key, const turb_read_options *options, void *vector,
                                  void *attributes, size_t attributes_capacity, size_t *attributes_size, uint64_t *sequence,
                                  turb_error *error);

/* An entry read in place. The caller owns the struct; turb_pinned_release lets go of what it points to. Hold it briefly: it pins cache
 * pages. */
typedef struct turb_pinned {
  turb_bytes vector;
  turb_bytes attributes;
  uint64_t sequence;
  void *internal[8];
} turb_pinned;
TURB_CHECKED turb_status turb_get_pinned(turb_collection *collection, turb_bytes key, const turb_read_options *options, turb_pinned *pinned,
                                         turb_error *error);
/* Safe on a zeroed struct and twice. */
TURB_API void turb_pinned_release(turb_pinned *pinned);

/* Reads `count` keys as of one moment; all misses go to the device in as few submissions as the ring holds. statuses[i] is TURB_OK or
 * TURB_NOT_FOUND, or
 * that key's own error; the call fails as a whole only for what concerns all keys. Release every pinned[i] whose status is TURB_OK. */
TURB_CHECKED turb_status turb_multi_get(turb_collection *collection, size_t count, const turb_bytes *keys, const turb_read_options *options,
                                        turb_pinned *pinned, turb_status *statuses, turb_error *error);

/* About how many entries (all versions) and bytes (keys, vectors, attributes on disk and in memory) lie in [lower, upper); an empty bound
 * is open. */
TURB_CHECKED turb_status turb_approximate_range(turb_collection *collection, turb_bytes lower, turb_bytes upper, uint64_t *entries,
                                                uint64_t *bytes, turb_error *error);

/* ---- 6. Iterators --------------------------------------------------------------------------------------------------------------- */

/* What a move returns. Only READY means that an entry is there; END and FAILED stay until a seek. */
typedef enum turb_state {
  TURB_READY = 0,
  TURB_PENDING = 1, /* a read is needed and queued: submit, then advance again or await */
  TURB_YIELD = 2,   /* the work budget of this call is spent: call again */
  TURB_END = 3,
  TURB_FAILED = 4 /* turb_iterator_status says why */
} turb_state;

typedef struct turb_entry {
  turb_bytes key;
  turb_bytes vector;     /* size 0 unless opened with TURB_VECTOR, or fetched */
  turb_bytes attributes; /* likewise TURB_ATTRIBUTES */
  uint64_t sequence;
} turb_entry;

/* The frozen prefix of an iterator: reading it is the caller's right, writing it the library's. [window_begin, window_end) are entries in
 * key order that can be
 * stepped through without a call; `entry` is the current one. */
typedef struct turb_iterator {
  const turb_entry *entry;
  const turb_entry *window_begin;
  const turb_entry *window_end;
} turb_iterator;

/* A loop is a ring that the embedder's event loop drives: one descriptor, any number of iterators of one thread. */
typedef struct turb_loop turb_loop;
TURB_CHECKED turb_status turb_loop_open(turb_db *db, turb_loop **loop, turb_error *error);
/* TURB_BUSY while iterators are open on it. */
TURB_CHECKED turb_status turb_loop_close(turb_loop *loop, turb_error *error);
/* Readable (poll, epoll) when completions may be waiting. The loop's; not to be closed. */
TURB_API int turb_loop_descriptor(const turb_loop *loop);
/* Hands everything queued by the loop's iterators to the kernel in one system call. */
TURB_CHECKED turb_status turb_loop_submit(turb_loop *loop, turb_error *error);
/* Takes completions without waiting; returns how many. Then advance the iterators again: all that are PENDING, or those that
 * turb_loop_ready gives. */
TURB_API size_t turb_loop_poll(turb_loop *loop);
/* Takes completions without waiting, and gives the iterators whose move is PENDING and for which a read completed since they were last
 * given, advanced or sought: each once, in the order in which their reads completed, at most `capacity`; returns how many. Advance each of
 * them (that may leave it PENDING, on a further read); those not given have nothing to go on with, so a round of an event loop costs what
 * completed, not what is open. As many as `capacity`: there may be more, call again before waiting on the descriptor, which tells nothing
 * of them. The iterators stay the caller's, who finds what is his by turb_iterator_context; one that is closed, sought or otherwise moved
 * first is not given any more. */
TURB_API size_t turb_loop_ready(turb_loop *loop, turb_iterator **iterators, size_t capacity);
/* Waits until something completes or the time is over (timeout_ms < 0: for ever). TURB_TIMED_OUT. */
TURB_CHECKED turb_status turb_loop_wait(turb_loop *loop, int timeout_ms, turb_error *error);

/* Whether an entry is wanted; asked once for each visible one that a move passes, before its vector and attributes are read. The key is
 * readable during the call. It calls nothing of the library's. */
typedef bool (*turb_key_filter)(void *context, turb_bytes key, uint64_t sequence);

typedef struct turb_iterator_options {
  size_t size;
  const turb_snapshot *snapshot; /* default: what was acknowledged before opening */
  uint32_t parts;                /* turb_parts or-ed; default TURB_ALL */
  turb_bytes lower;              /* first key, or empty */
  turb_bytes upper;              /* key after the last, or empty */
  turb_bytes prefix;             /* only keys that begin so, or empty; lower and upper then narrow it */
  bool streaming;                /* a scan over much: large reads ahead, past the page cache */
  bool skip_cache_fill;
  turb_loop *loop;      /* or NULL: awaits use a ring of the database's */
  uint32_t work_budget; /* entries that one non-blocking call may look at; 0: no bound */
  void *context;        /* the caller's own: turb_iterator_context gives it back */
  turb_key_filter filter; /* or NULL: entries that it does not want are skipped as if they were not there */
  void *filter_context;   /* its first argument */
} turb_iterator_options;
#define TURB_ITERATOR_OPTIONS_INIT                                                                                                          \
  { .size = sizeof(turb_iterator_options) }

/* Release: turb_iterator_close, which never waits. Not positioned at first: begin with a seek. */
TURB_CHECKED turb_status turb_iterator_open(turb_collection *collection, const turb_iterator_options *options, turb_iterator **iterator,
                                            turb_error *error);
TURB_API void turb_iterator_close(turb_iterator *iterator);
/* TURB_OK unless the iterator is FAILED; then the cause, and its detail in `error`. */
TURB_API turb_status turb_iterator_status(const turb_iterator *iterator, turb_error *error);

/* options.context. */
TURB_API void *turb_iterator_context(const turb_iterator *iterator);

/* Non-blocking moves: no system call, no waiting. On READY the entry is there. On PENDING the old entry stays readable, and the same move
 * is continued by turb_advance_slow, or finished by turb_await; a new seek replaces it.
 * seek: first key >= key; seek_for_prev: last key <= key. */
TURB_API turb_state turb_seek(turb_iterator *iterator, turb_bytes key);
TURB_API turb_state turb_seek_for_prev(turb_iterator *iterator, turb_bytes key);
TURB_API turb_state turb_first(turb_iterator *iterator);
TURB_API turb_state turb_last(turb_iterator *iterator);
/* Brings parts that the iterator was not opened for, for the current entry, beside those fetched for it before. They go when it moves. */
TURB_API turb_state turb_fetch(turb_iterator *iterator, uint32_t parts);
/* The rest of advance and retreat beyond the window; also continues any move that is PENDING or YIELD. */
TURB_API turb_state turb_advance_slow(turb_iterator *iterator);
TURB_API turb_state turb_retreat_slow(turb_iterator *iterator);
/* Many entries in one non-blocking call: the current one, unless it is the one that was taken last since the seek, and those that follow it
 * (that precede it, when `backward`) as far as their parts are in memory: at most `capacity`, and none that begins beyond max_bytes of keys,
 * vectors and attributes (0: no bound), at least one. *count tells how many are in entries[], in the order of the walk; the iterator stands
 * on the last of them, which stays readable until the next move completes, the others until it begins. READY: *count is at least 1. Else it is
 * 0, and as for an advance: go on with turb_take again, or with turb_await and then turb_take. With capacity 0 it takes nothing and begins no
 * move: it goes on with what is under way. */
TURB_API turb_state turb_take(turb_iterator *iterator, bool backward, turb_entry *entries, size_t capacity, uint64_t max_bytes,
                              size_t *count);
/* Hands what this iterator queued to the kernel (with a loop: everything of the loop's). */
TURB_CHECKED turb_status turb_submit(turb_iterator *iterator, turb_error *error);
/* Submits and waits until the move is READY, END or FAILED. */
TURB_API turb_state turb_await(turb_iterator *iterator);

static inline turb_state turb_advance(turb_iterator *iterator) {
  if (iterator->entry && iterator->entry + 1 < iterator->window_end) {
    iterator->entry++;
    return TURB_READY;
  }
  return turb_advance_slow(iterator);
}
static inline turb_state turb_retreat(turb_iterator *iterator) {
  if (iterator->entry && iterator->entry > iterator->window_begin) {
    iterator->entry--;
    return TURB_READY;
  }
  return turb_retreat_slow(iterator);
}
/* Finishes a move: turb_finish(it, turb_seek(it, key)) blocks where turb_seek alone would say PENDING. */
static inline turb_state turb_finish(turb_iterator *iterator, turb_state state) {
  return state == TURB_PENDING || state == TURB_YIELD ? turb_await(iterator) : state;
}
static inline turb_state turb_next(turb_iterator *iterator) { return turb_finish(iterator, turb_advance(iterator)); }
static inline turb_state turb_prev(turb_iterator *iterator) { return turb_finish(iterator, turb_retreat(iterator)); }

/* ---- 7. Search ------------------------------------------------------------------------------------------------------------------ */

typedef struct turb_hit {
  turb_bytes key;
  turb_bytes vector;     /* when asked for with parts */
  turb_bytes attributes; /* when asked for with parts */
  uint64_t sequence;
  float distance;
} turb_hit;

typedef enum turb_search_mode { TURB_SEARCH_DEFAULT = 0, TURB_SEARCH_EXACT = 1 } turb_search_mode;

typedef struct turb_search_options {
  size_t size;
  uint32_t k;                    /* default 10; 1 to 1,048,576; with a radius: at most so many */
  turb_search_mode mode;         /* default: by the collection's index */
  const turb_snapshot *snapshot; /* default: everything acknowledged before the call */
  bool has_radius;               /* only entries at distance <= radius */
  float radius;
  turb_bytes lower, upper, prefix; /* only keys in the range, as for iterators */
  bool (*filter)(void *context, turb_bytes key, uint64_t sequence); /* keep? Called on the searching thread, for candidates only */
  void *filter_context;
  uint32_t parts; /* beside the key: TURB_VECTOR, TURB_ATTRIBUTES in the hits; default TURB_KEY alone */
} turb_search_options;
#define TURB_SEARCH_OPTIONS_INIT                                                                                                            \
  { .size = sizeof(turb_search_options) }

/* An answer: hits in order of distance, ties by key. Release: turb_result_free, before turb_close. */
typedef struct turb_result turb_result;

/* The query has the collection's type and dimension. Errors: TURB_INVALID. */
TURB_CHECKED turb_status turb_search(turb_collection *collection, turb_bytes query, const turb_search_options *options, turb_result **result,
                                     turb_error *error);
/* `count` queries, one behind the other, row_bytes each; results[i] answers query i. They share one scan. On failure all results are NULL.
 * */
TURB_CHECKED turb_status turb_search_batch(turb_collection *collection, size_t count, const void *queries, const turb_search_options *options,
                                           turb_result **results, turb_error *error);
TURB_API void turb_result_free(turb_result *result);
TURB_API size_t turb_result_count(const turb_result *result);
/* index < turb_result_count; lives as long as the result. */
TURB_API const turb_hit *turb_result_hit(const turb_result *result, size_t index);

typedef enum turb_short_reason {
  TURB_NOT_SHORT = 0,
  TURB_SHORT_FEW_MATCH = 1 /* fewer than k entries match range, radius and filter */
} turb_short_reason;

typedef struct turb_costs {
  size_t size;        /* set by the caller */
  uint64_t distances; /* computed */
  uint64_t rows_streamed;
  uint64_t bytes_read; /* from the device */
  uint64_t hidden;     /* candidates that a newer version, delete or range delete hid */
  uint64_t filtered;   /* candidates that the filter refused */
  turb_short_reason short_reason;
} turb_costs;
TURB_CHECKED turb_status turb_result_costs(const turb_result *result, turb_costs *costs, turb_error *error);

/* ---- 8. Care of the database ---------------------------------------------------------------------------------------------------- */

/* Writes the memtable (of all collections when NULL is given) to a table and waits for it. */
TURB_CHECKED turb_status turb_flush(turb_db *db, turb_collection *collection, turb_error *error);
/* Merges all runs into one (flushing first), and waits. TURB_CANCELLED after turb_cancel. */
TURB_CHECKED turb_status turb_compact(turb_db *db, turb_collection *collection, turb_error *error);
/* Waits until no job is running or due; timeout_ms < 0: for ever. TURB_TIMED_OUT. */
TURB_CHECKED turb_status turb_wait_idle(turb_db *db, int timeout_ms, turb_error *error);
/* Cancels a running job (0: all merges, if any). TURB_NOT_FOUND when no job has that number. Its inputs stay in place, and the collection
 * does not merge by itself again until its next flush. */
TURB_CHECKED turb_status turb_cancel(turb_db *db, uint64_t job, turb_error *error);
/* Without worker threads: does background work on the calling thread, for about so long; *more is set when work is left. */
TURB_CHECKED turb_status turb_maintain(turb_db *db, uint32_t budget_ms, bool *more, turb_error *error);
/* A consistent copy in the new folder `path` on the same file system: tables are hard links. */
TURB_CHECKED turb_status turb_checkpoint(turb_db *db, const char *path, turb_error *error);

typedef struct turb_verify_report {
  size_t size; /* set by the caller */
  uint64_t files, bytes, entries, problems;
} turb_verify_report;
/* Reads every byte of every file against its checksum and every invariant. Each problem is given to `problem` (may be NULL), and the walk
 * goes on. Returns
 * TURB_CORRUPTION when there was one. */
TURB_CHECKED turb_status turb_verify(turb_db *db, void (*problem)(void *context, const turb_error *problem), void *context,
                                     turb_verify_report *report, turb_error *error);

typedef enum turb_dump_format { TURB_DUMP_TEXT = 0, TURB_DUMP_JSON = 1 } turb_dump_format;
/* Describes one file (table, log, manifest; told apart by its content) in lines given to `line`; needs no open database. A `false` from
 * `line` ends it. */
TURB_CHECKED turb_status turb_dump_file(const char *path, turb_dump_format format, bool (*line)(void *context, const char *text),
                                        void *context, turb_error *error);

typedef struct turb_run_info {
  uint64_t collection;
  uint32_t tables;
  uint64_t entries, bytes;
  uint64_t first_sequence, last_sequence;
} turb_run_info;
/* The LSM tree, newest run first. */
TURB_CHECKED turb_status turb_list_runs(turb_collection *collection, bool (*each)(void *context, const turb_run_info *run), void *context,
                                        turb_error *error);

typedef struct turb_stats {
  size_t size; /* set by the caller: sizeof(turb_stats) */
  turb_backend backend;     /* the one in use */
  bool backend_fell_back;   /* io_uring was refused */
  int backend_os_error;     /* why */
  bool read_only, paused;
  uint64_t registered_buffer_bytes; /* as granted */
  uint64_t memory_budget_bytes, memory_used_bytes, memory_peak_bytes;
  uint64_t cache_bytes, cache_hits, cache_misses;
  uint64_t memtable_bytes, memtables;
  uint64_t tables, runs, table_bytes, log_bytes, disk_bytes; /* disk_bytes agrees with du */
  uint64_t last_sequence, durable_sequence; /* durable: what is logged up to it survives power loss (unlogged writes only when flushed) */
  uint64_t snapshots, oldest_snapshot_age_ms, iterators, oldest_iterator_age_ms;
  uint64_t user_bytes_written;  /* keys, vectors and attributes put */
  uint64_t log_bytes_written, flush_bytes_written, merge_bytes_read, merge_bytes_written;
  uint64_t log_syncs, write_groups;
  uint64_t reads, read_bytes, submissions; /* operations of rings, and system calls that submitted them */
  uint64_t flushes, merges, merges_failed, entries_dropped;
  uint64_t stall_us, stalls;
  uint64_t obsolete_tables; /* kept alive by readers only */
  uint64_t ring_calls;      /* io_uring: submissions, and system calls that only waited or fetched completions */
  uint64_t runs_dropped, run_bytes_dropped; /* by FIFO: beyond fifo_max_bytes or older than ttl_s */
} turb_stats;
TURB_CHECKED turb_status turb_get_stats(turb_db *db, turb_stats *stats, turb_error *error);

/* ---- 9. Import ------------------------------------------------------------------------------------------------------------------ */

typedef enum turb_import_format { TURB_IMPORT_AUTO = 0, TURB_IMPORT_NPY = 1, TURB_IMPORT_IDX = 2, TURB_IMPORT_FVECS = 3 } turb_import_format;

typedef struct turb_import_description {
  size_t size; /* set by the caller */
  turb_import_format format;
  turb_type type;
  uint32_t dimension;
  uint64_t rows, bytes;
} turb_import_description;
/* What a file holds, before anything is loaded. gzip-compressed idx files are read too. */
TURB_CHECKED turb_status turb_import_describe(const char *path, turb_import_format format, turb_import_description *description,
                                              turb_error *error);

typedef struct turb_import_options {
  size_t size;
  turb_import_format format;
  const char *labels_path;    /* idx only: a file of labels, one an item, stored as attributes (decimal text); or NULL */
  uint64_t first_row, rows;   /* a part; rows 0: all that follow */
  uint64_t first_key;         /* key of the first row; keys are 8-byte big-endian numbers */
  turb_bytes key_prefix;      /* put before the number */
  uint32_t batch_rows;        /* rows a write batch; default 256 */
  bool (*progress)(void *context, uint64_t rows_done, uint64_t rows_total); /* false cancels: TURB_CANCELLED, what was written stays */
  void *progress_context;
} turb_import_options;
#define TURB_IMPORT_OPTIONS_INIT                                                                                                            \
  { .size = sizeof(turb_import_options) }
/* Puts every row. Types are converted to the collection's, rounding to nearest; a value out of range is TURB_INVALID naming the row. */
TURB_CHECKED turb_status turb_import(turb_collection *collection, const char *path, const turb_import_options *options, uint64_t *rows_done,
                                     turb_error *error);

/* ---- 10. The simulated disk ----------------------------------------------------------------------------------------------------- */

/* Files in memory behind a seeded scheduler, for storage unit tests: pass it to turb_open with TURB_BACKEND_SIMULATED. It outlives the
 * databases on it, so that
 * a test can cut the power, open again and look. Same seed, same calls (and no worker threads): same schedule. */
typedef struct turb_simulation_options {
  size_t size;
  uint64_t seed;
  uint32_t reorder_percent; /* completions held back so that later ones overtake; 0 to 100 */
  uint32_t short_percent;   /* transfers cut short */
  uint64_t capacity_bytes;  /* the disk is full beyond it; 0: no bound */
  const turb_allocator *allocator;
} turb_simulation_options;
#define TURB_SIMULATION_OPTIONS_INIT                                                                                                        \
  { .size = sizeof(turb_simulation_options) }
/* Release: turb_simulation_free, after every database on it is closed. */
TURB_CHECKED turb_status turb_simulation_create(const turb_simulation_options *options, turb_simulation **simulation, turb_error *error);
TURB_API void turb_simulation_free(turb_simulation *simulation);
/* Operations so far, of every kind that touches the disk (opens and looks at a folder too): the clock by which faults are placed. */
TURB_API uint64_t turb_simulation_operations(const turb_simulation *simulation);
/* The operation with this number fails with the errno given (EIO, ENOSPC, ...), once. 0 takes the order back. */
TURB_API void turb_simulation_fail_at(turb_simulation *simulation, uint64_t operation, int os_error);
/* From this operation on nothing reaches the disk any more and everything fails with EIO, as when the power goes. */
TURB_API void turb_simulation_cut_power_at(turb_simulation *simulation, uint64_t operation);
/* Power comes back: what was never synced is lost, torn or kept, page by page, as the seed decides; names not covered by a sync of their
 * folder likewise. */
TURB_API void turb_simulation_restart(turb_simulation *simulation);
/* Flips bit (0 to 7) of the byte at offset. TURB_NOT_FOUND, TURB_INVALID beyond the end. */
TURB_CHECKED turb_status turb_simulation_flip_bit(turb_simulation *simulation, const char *path, uint64_t offset, uint32_t bit,
                                                  turb_error *error);
TURB_CHECKED turb_status turb_simulation_truncate(turb_simulation *simulation, const char *path, uint64_t size_bytes, turb_error *error);
TURB_API void turb_simulation_set_capacity(turb_simulation *simulation, uint64_t capacity_bytes);
/* Calls `each` for every file, in the order of names. */
TURB_API void turb_simulation_list(turb_simulation *simulation, void (*each)(void *context, const char *path, uint64_t size_bytes),
                                   void *context);

#ifdef __cplusplus
}
#endif
#endif
