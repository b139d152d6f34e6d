/* The page cache; cache.h has the states and invariants.
 *
 * A frame's word `pins` is its state: FRAME_LOCKED set: free or taken, and then the low bits count only readers that came by a stale number
 * and are about to leave; FRAME_LOCKED clear: resident or kept, and the low bits count pins. All else in a descriptor is written while
 * FRAME_LOCKED is set, except `entry` and `owner`, which directory close clears under the shard's lock.
 *
 *   lock     CAS 0 -> LOCKED, under the shard's lock (eviction, close)
 *   publish  subtract LOCKED - 1 (release), by the taker: one pin
 *
 * A directory entry is cleared in the same critical section in which its frame is locked, so an entry that names a frame of another
 * owner is only seen by a reader that loaded it before. That reader's pin fails on LOCKED or on owner and unit.
 */
#include "sstable/cache.h"

#include <assert.h>
#include <sys/mman.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/list.h"
#include "base/thread.h"

#define PAGE_BYTES        4096u
#define CLASSES           (CACHE_UNIT_MAX_BYTES / PAGE_BYTES) /* by pages */
#define SLAB_MIN_BYTES    (64u << 10)
#define SLAB_MAX_BYTES    (2u << 20)
#define SLAB_SHARE        8  /* a new slab is at most this part of what its shard holds, */
#define SLAB_LIMIT_SHARE  32 /* or, in a large cache, this part of what its shard may come to hold */
#define LARGE_BYTES       (UINT64_C(128) << 20)
#define CHUNK_FRAMES      256 /* descriptors that are allocated together */
#define SHARDS_MAX        8
#define UNLIMITED_BYTES   (UINT64_C(16) << 30) /* what the descriptor table is sized for when the budget has no limit */
#define RESERVE_MAX_BYTES (4u << 20)
#define DATA_SHARE        8 /* rows and attributes may always hold this part of the cache */
#define ADMIT_MISSES      3
#define TAKE_ROUNDS       8
/* Takes from one shard before it is the next one's turn: units that come together lie together, and a scan goes on from one into the next. */
#define TURN_TAKES         32
#define STEPS_META         8          /* how far the clock looks before it takes a slab of the other group */
#define STEPS_DATA         64         /* how far before it takes one of the same group */
#define STEPS_ALL          UINT64_MAX /* when nothing else helps */
#define ROUNDS_MAX         8
#define SLAB_CANDIDATES    8
#define SLAB_SAMPLE_FRAMES 16

#define FRAME_LOCKED (UINT32_C(1) << 31)

/* A directory's entry: frame number (0: not resident), and above it the page number of the frame's data, or 0 where that takes more bits than there are. */
#define ENTRY_FRAME_BITS 28
#define ENTRY_FRAMES_MAX (UINT32_C(1) << ENTRY_FRAME_BITS)

enum group { GROUP_META = 0, GROUP_DATA = 1, GROUPS = 2 };

struct slab;
struct cache_shard;

struct cache_frame {
  _Alignas(64) _Atomic uint32_t pins;
  uint32_t unit;
  _Atomic uint64_t owner; /* 0: in no directory */
  void *data;
  union {
    _Atomic uint64_t *entry;  /* resident: its place in the directory */
    struct cache_frame *next; /* free: in the slab's or the pool's list */
  };
  _Atomic(struct cache_shard *) shard; /* NULL: in the pool */
  struct slab *slab;
  uint32_t number;
  uint32_t size;
  _Atomic uint32_t hits;
  _Atomic uint8_t rounds; /* that the clock still passes it over */
  uint8_t rounds_max;
  uint8_t kind;
};
_Static_assert(sizeof(struct cache_frame) == 64, "one cache line a descriptor");

struct slab {
  struct list link;         /* all of the group in the shard, oldest first */
  struct list class_link;   /* all of the class */
  struct list partial_link; /* those of the class with free frames */
  uint8_t *memory;
  uint64_t bytes, charge;
  struct slab_class *class;
  enum group group;
  uint32_t count, free_count;
  struct cache_frame *free;
  struct cache_frame *frames[];
};

struct slab_class {
  struct list slabs;
  struct list partial;
  struct slab *hand; /* NULL: at the first slab */
  uint32_t hand_index;
  uint32_t frame_count;
};

struct cache_shard {
  pthread_mutex_t lock;
  struct cache *cache;
  struct list slabs[GROUPS];
  uint64_t bytes;
  uint64_t evictions;
  struct slab_class classes[GROUPS][CLASSES];
};

struct cache {
  const turb_allocator *allocator;
  struct budget *budget;
  uint64_t reserve_bytes;
  uint64_t slab_bytes; /* of a new slab, however little its shard holds */
  struct cache_shard *shards;
  uint32_t shard_count; /* a power of two */
  uint32_t chunk_max;
  _Atomic(struct cache_frame *) *chunks; /* [chunk_max] */
  _Atomic uint32_t *sketch;              /* misses of row and attribute units: tag << 8 | count */
  uint32_t sketch_size;                  /* a power of two */
  uint64_t base_charge;

  pthread_mutex_t pool_lock;
  struct cache_frame *pool;
  uint32_t pool_count, chunk_count;

  _Alignas(64) _Atomic uint64_t misses;
  _Atomic uint64_t old_hits; /* of counters that wrapped */
  _Atomic uint32_t turn;
  _Atomic uint64_t owners;
  _Atomic uint64_t bytes[GROUPS];
  _Atomic uint32_t free_frames[GROUPS][CLASSES];
};

static enum group group_of(enum unit_kind kind) {
  return kind >= UNIT_ROWS ? GROUP_DATA : GROUP_META;
}

static uint64_t round_up_pow2(uint64_t value) {
  uint64_t power = 1;
  while (power < value) {
    power <<= 1;
  }
  return power;
}

static uint32_t entry_frame(uint64_t entry) {
  return (uint32_t)entry & (ENTRY_FRAMES_MAX - 1);
}

static const void *entry_data(uint64_t entry) {
  return (const void *)(uintptr_t)(entry >> ENTRY_FRAME_BITS << 12); /* PAGE_BYTES */
}

/* Constant while the frame is resident. */
static uint64_t entry_of(const struct cache_frame *frame) {
  const uint64_t page = (uint64_t)(uintptr_t)frame->data / PAGE_BYTES;
  return (page >> (64 - ENTRY_FRAME_BITS) == 0 ? page << ENTRY_FRAME_BITS : 0) | frame->number;
}

static struct cache_frame *frame_at(const struct cache *cache, uint32_t number) {
  struct cache_frame *chunk = atomic_load_explicit(&cache->chunks[number / CHUNK_FRAMES], memory_order_acquire);
  return &chunk[number % CHUNK_FRAMES];
}

/* ---- creation ------------------------------------------------------------------------------------------ */

static uint64_t reclaim(void *context, uint64_t bytes);

static void shard_init(struct cache_shard *shard, struct cache *cache) {
  mutex_init(&shard->lock);
  shard->cache = cache;
  for (int g = 0; g < GROUPS; g++) {
    list_init(&shard->slabs[g]);
    for (size_t c = 0; c < CLASSES; c++) {
      list_init(&shard->classes[g][c].slabs);
      list_init(&shard->classes[g][c].partial);
    }
  }
}

static void cache_free_parts(struct cache *cache) {
  const turb_allocator *a = cache->allocator;
  mem_free(a, cache->shards, cache->shard_count * sizeof *cache->shards);
  mem_free(a, cache->chunks, cache->chunk_max * sizeof *cache->chunks);
  mem_free(a, cache->sketch, cache->sketch_size * sizeof *cache->sketch);
  budget_give(cache->budget, BUDGET_CACHE, cache->base_charge);
  mem_free(a, cache, sizeof *cache);
}

turb_status cache_create(const turb_allocator *allocator, struct budget *budget, struct cache **out, turb_error *err) {
  *out = NULL;
  const uint64_t limit = budget_limit(budget) != UINT64_MAX ? budget_limit(budget) : UNLIMITED_BYTES;
  const uint64_t pages = limit / PAGE_BYTES;
  const uint64_t chunk_max =
      pages / CHUNK_FRAMES + 2 < ENTRY_FRAMES_MAX / CHUNK_FRAMES ? pages / CHUNK_FRAMES + 2 : ENTRY_FRAMES_MAX / CHUNK_FRAMES;
  uint32_t shard_count = 1;
  while (shard_count < SHARDS_MAX && limit / shard_count >= (UINT64_C(128) << 20)) {
    shard_count *= 2;
  }
  uint64_t sketch_size = round_up_pow2(limit >> 17);
  sketch_size = sketch_size < 512 ? 512 : sketch_size > (1u << 18) ? (1u << 18) : sketch_size;
  const uint64_t charge = sizeof(struct cache) + shard_count * sizeof(struct cache_shard) +
                          chunk_max * sizeof(_Atomic(struct cache_frame *)) + sketch_size * sizeof(uint32_t);
  if (!budget_take(budget, BUDGET_CACHE, charge)) {
    return status_set(err, TURB_BUDGET, "the memory budget does not hold the page cache's own %llu bytes", (unsigned long long)charge);
  }
  struct cache *cache = mem_alloc_aligned(allocator, sizeof *cache, 64);
  if (cache == NULL) {
    budget_give(budget, BUDGET_CACHE, charge);
    return status_set(err, TURB_NO_MEMORY, "no memory for the page cache");
  }
  memset(cache, 0, sizeof *cache);
  cache->allocator = allocator;
  cache->budget = budget;
  cache->base_charge = charge;
  cache->reserve_bytes = limit / 64 < RESERVE_MAX_BYTES ? limit / 64 : RESERVE_MAX_BYTES;
  cache->slab_bytes = limit >= LARGE_BYTES ? limit / shard_count / SLAB_LIMIT_SHARE : 0;
  cache->shard_count = shard_count;
  cache->chunk_max = (uint32_t)chunk_max;
  cache->sketch_size = (uint32_t)sketch_size;
  cache->shards = mem_alloc_array(allocator, shard_count, sizeof *cache->shards);
  cache->chunks = mem_alloc_array(allocator, chunk_max, sizeof *cache->chunks);
  cache->sketch = mem_alloc_array(allocator, sketch_size, sizeof *cache->sketch);
  if (cache->shards == NULL || cache->chunks == NULL || cache->sketch == NULL) {
    cache_free_parts(cache);
    return status_set(err, TURB_NO_MEMORY, "no memory for the page cache");
  }
  for (uint32_t s = 0; s < shard_count; s++) {
    shard_init(&cache->shards[s], cache);
  }
  mutex_init(&cache->pool_lock);
  atomic_init(&cache->owners, 0);
  budget_set_reclaimer(budget, reclaim, cache);
  *out = cache;
  return TURB_OK;
}

/* ---- slabs: under the shard's lock --------------------------------------------------------------------- */

/* Descriptors for a slab, from the pool or a new chunk. False when there are too few, and then none are taken. */
static bool pool_take(struct cache *cache, uint32_t count, struct cache_frame **frames) {
  bool ok = true;
  mutex_lock(&cache->pool_lock);
  while (cache->pool_count < count) {
    const uint64_t bytes = CHUNK_FRAMES * sizeof(struct cache_frame);
    ok = cache->chunk_count < cache->chunk_max && budget_try(cache->budget, BUDGET_CACHE, bytes);
    if (!ok) {
      break;
    }
    struct cache_frame *chunk = mem_alloc_aligned(cache->allocator, bytes, 64);
    if (chunk == NULL) {
      budget_give(cache->budget, BUDGET_CACHE, bytes);
      ok = false;
      break;
    }
    memset(chunk, 0, bytes);
    for (uint32_t i = CHUNK_FRAMES; i-- > 0;) {
      struct cache_frame *frame = &chunk[i];
      atomic_init(&frame->pins, FRAME_LOCKED);
      frame->number = cache->chunk_count * CHUNK_FRAMES + i;
      if (frame->number == 0) {
        continue; /* 0 means "not resident" in directories */
      }
      frame->next = cache->pool;
      cache->pool = frame;
      cache->pool_count++;
    }
    atomic_store_explicit(&cache->chunks[cache->chunk_count++], chunk, memory_order_release);
  }
  for (uint32_t i = 0; ok && i < count; i++) {
    frames[i] = cache->pool;
    cache->pool = cache->pool->next;
    cache->pool_count--;
  }
  mutex_unlock(&cache->pool_lock);
  return ok;
}

static void pool_give(struct cache *cache, uint32_t count, struct cache_frame **frames) {
  mutex_lock(&cache->pool_lock);
  for (uint32_t i = 0; i < count; i++) {
    frames[i]->next = cache->pool;
    cache->pool = frames[i];
  }
  cache->pool_count += count;
  mutex_unlock(&cache->pool_lock);
}

static void frame_free(struct cache_frame *frame) {
  struct slab *slab = frame->slab;
  struct cache_shard *shard = atomic_load_explicit(&frame->shard, memory_order_relaxed);
  frame->next = slab->free;
  slab->free = frame;
  if (slab->free_count++ == 0) {
    list_push_back(&slab->class->partial, &slab->partial_link);
  }
  const size_t class = (size_t)(slab->class - shard->classes[slab->group]);
  atomic_fetch_add_explicit(&shard->cache->free_frames[slab->group][class], 1, memory_order_relaxed);
}

static struct cache_frame *class_pop_free(struct cache_shard *shard, enum group group, size_t class) {
  struct list *link = list_first(&shard->classes[group][class].partial);
  if (link == NULL) {
    return NULL;
  }
  struct slab *slab = LIST_ENTRY(link, struct slab, partial_link);
  struct cache_frame *frame = slab->free;
  slab->free = frame->next;
  if (--slab->free_count == 0) {
    list_remove(&slab->partial_link);
  }
  atomic_fetch_sub_explicit(&shard->cache->free_frames[group][class], 1, memory_order_relaxed);
  return frame;
}

/* The size that the shard's next slab should have: small in a small cache, so that it is not cut into a few slabs, and large from the first in a
 * large one, so that all of it lies in huge pages. */
static uint64_t slab_target(const struct cache *cache, uint64_t shard_bytes) {
  const uint64_t most = cache->slab_bytes > shard_bytes / SLAB_SHARE ? cache->slab_bytes : shard_bytes / SLAB_SHARE;
  uint64_t target = SLAB_MIN_BYTES;
  while (target < SLAB_MAX_BYTES && target * 2 <= most) {
    target *= 2;
  }
  return target;
}

static bool budget_has(const struct cache *cache, uint64_t bytes) {
  const uint64_t available = budget_available(cache->budget);
  return available >= bytes && available - bytes >= cache->reserve_bytes;
}

/* Puts a new slab into the class; false when budget or allocator give none of at least a quarter of the wished size. */
static bool shard_grow(struct cache_shard *shard, enum group group, size_t class) {
  struct cache *cache = shard->cache;
  const uint64_t unit = (class + 1) * PAGE_BYTES;
  const uint64_t target = slab_target(cache, shard->bytes);
  const uint64_t most = target / unit != 0 ? target / unit : 1;
  const uint64_t least = target / 4 / unit != 0 ? target / 4 / unit : 1;
  for (uint64_t count = most; count >= least; count /= 2) {
    const uint64_t bytes = count * unit;
    const uint64_t head = sizeof(struct slab) + count * sizeof(struct cache_frame *);
    if (!budget_has(cache, bytes + head) || !budget_try(cache->budget, BUDGET_CACHE, bytes + head)) {
      continue;
    }
    struct slab *slab = mem_alloc(cache->allocator, head);
    uint8_t *memory = mem_alloc_aligned(cache->allocator, bytes, bytes == SLAB_MAX_BYTES ? SLAB_MAX_BYTES : PAGE_BYTES);
    if (slab == NULL || memory == NULL || !pool_take(cache, (uint32_t)count, slab->frames)) {
      mem_free(cache->allocator, memory, bytes);
      mem_free(cache->allocator, slab, head);
      budget_give(cache->budget, BUDGET_CACHE, bytes + head);
      continue;
    }
    if (bytes == SLAB_MAX_BYTES) {
      (void)madvise(memory, bytes, MADV_HUGEPAGE); /* a hint: rows are read at random */
    }
    *slab = (struct slab){.memory = memory,
                          .bytes = bytes,
                          .charge = bytes + head,
                          .class = &shard->classes[group][class],
                          .group = group,
                          .count = (uint32_t)count};
    list_init(&slab->partial_link);
    list_push_back(&shard->slabs[group], &slab->link);
    list_push_back(&slab->class->slabs, &slab->class_link);
    for (uint32_t i = (uint32_t)count; i-- > 0;) {
      struct cache_frame *frame = slab->frames[i];
      assert(frame != NULL);
      frame->data = memory + i * unit;
      frame->slab = slab;
      atomic_store_explicit(&frame->shard, shard, memory_order_relaxed);
      frame_free(frame);
    }
    slab->class->frame_count += slab->count;
    shard->bytes += slab->charge;
    atomic_fetch_add_explicit(&cache->bytes[group], slab->charge, memory_order_relaxed);
    return true;
  }
  return false;
}

/* Gives a slab whose frames are all free back. */
static void slab_release(struct cache_shard *shard, struct slab *slab) {
  struct cache *cache = shard->cache;
  const enum group group = slab->group;
  const size_t class = (size_t)(slab->class - shard->classes[group]);
  assert(slab->free_count == slab->count);
  list_remove(&slab->link);
  list_remove(&slab->partial_link);
  if (slab->class->hand == slab) {
    struct list *next = list_next(&slab->class->slabs, &slab->class_link);
    slab->class->hand = next != NULL ? LIST_ENTRY(next, struct slab, class_link) : NULL;
    slab->class->hand_index = 0;
  }
  list_remove(&slab->class_link);
  slab->class->frame_count -= slab->count;
  atomic_fetch_sub_explicit(&cache->free_frames[group][class], slab->count, memory_order_relaxed);
  for (uint32_t i = 0; i < slab->count; i++) {
    slab->frames[i]->data = NULL;
    slab->frames[i]->slab = NULL;
    atomic_store_explicit(&slab->frames[i]->shard, NULL, memory_order_relaxed);
  }
  pool_give(cache, slab->count, slab->frames);
  shard->bytes -= slab->charge;
  atomic_fetch_sub_explicit(&cache->bytes[group], slab->charge, memory_order_relaxed);
  mem_free(cache->allocator, slab->memory, slab->bytes);
  budget_give(cache->budget, BUDGET_CACHE, slab->charge);
  mem_free(cache->allocator, slab, sizeof *slab + slab->count * sizeof slab->frames[0]);
}

/* ---- eviction: under the shard's lock ------------------------------------------------------------------ */

/* RESIDENT or KEPT without pins -> locked, out of its directory. False when it is pinned, free or taken. */
static bool frame_lock(struct cache_frame *frame) {
  uint32_t unpinned = 0;
  if (!atomic_compare_exchange_strong_explicit(&frame->pins, &unpinned, FRAME_LOCKED, memory_order_acquire, memory_order_relaxed)) {
    return false;
  }
  if (atomic_load_explicit(&frame->owner, memory_order_relaxed) != 0) {
    uint64_t entry = entry_of(frame);
    atomic_compare_exchange_strong_explicit(frame->entry, &entry, 0, memory_order_relaxed, memory_order_relaxed);
    atomic_store_explicit(&frame->owner, 0, memory_order_relaxed);
  }
  return true;
}

/* One frame of the class by the clock, locked and not in the free list; NULL after `steps` frames without a victim (after as many turns as the most
 * rounds that a frame is granted there is none: all are pinned). */
static struct cache_frame *class_evict_one(struct cache_shard *shard, struct slab_class *class, uint64_t steps) {
  const uint64_t most = class->frame_count * (uint64_t)(ROUNDS_MAX + 1);
  for (steps = steps < most ? steps : most; steps != 0; steps--) {
    if (class->hand == NULL || class->hand_index >= class->hand->count) {
      struct list *next = class->hand != NULL ? list_next(&class->slabs, &class->hand->class_link) : NULL;
      next = next != NULL ? next : list_first(&class->slabs);
      if (next == NULL) {
        return NULL;
      }
      class->hand = LIST_ENTRY(next, struct slab, class_link);
      class->hand_index = 0;
    }
    struct cache_frame *frame = class->hand->frames[class->hand_index++];
    if (atomic_load_explicit(&frame->pins, memory_order_relaxed) != 0) {
      continue;
    }
    const uint8_t rounds = atomic_load_explicit(&frame->rounds, memory_order_relaxed);
    if (rounds != 0) {
      atomic_store_explicit(&frame->rounds, (uint8_t)(rounds - 1), memory_order_relaxed);
      continue;
    }
    if (frame_lock(frame)) {
      shard->evictions++;
      return frame;
    }
  }
  return NULL;
}

/* How warm a slab is, from a sample of its frames: the sum of their rounds, scaled. */
static uint64_t slab_warmth(const struct slab *slab) {
  assert(slab->count != 0);
  const uint32_t step = slab->count > SLAB_SAMPLE_FRAMES ? slab->count / SLAB_SAMPLE_FRAMES : 1;
  uint64_t sum = 0, seen = 0;
  for (uint32_t i = 0; i < slab->count; i += step) {
    const struct cache_frame *frame = slab->frames[i];
    seen++;
    if (!(atomic_load_explicit(&frame->pins, memory_order_relaxed) & FRAME_LOCKED)) {
      sum += 1u + atomic_load_explicit(&frame->rounds, memory_order_relaxed);
    }
  }
  return sum * 1024 / seen;
}

/* Something in it is pinned or taken. */
static bool slab_is_busy(const struct slab *slab) {
  uint32_t unpinned = slab->free_count;
  for (uint32_t i = 0; i < slab->count; i++) {
    unpinned += atomic_load_explicit(&slab->frames[i]->pins, memory_order_relaxed) == 0;
  }
  return unpinned != slab->count;
}

/* Evicts all that the slab holds and releases it; false when it is busy. */
static bool slab_evict(struct cache_shard *shard, struct slab *slab) {
  if (slab_is_busy(slab)) {
    return false;
  }
  for (uint32_t i = 0; i < slab->count; i++) {
    if (frame_lock(slab->frames[i])) {
      shard->evictions++;
      frame_free(slab->frames[i]);
    }
  }
  if (slab->free_count != slab->count) {
    return false; /* pinned meanwhile */
  }
  slab_release(shard, slab);
  return true;
}

/* Releases a slab of the group, of the next few that can be released the coldest; returns its bytes, 0 when none can. */
static uint64_t shard_evict_slab(struct cache_shard *shard, enum group group) {
  struct list *head = &shard->slabs[group];
  size_t left = 0;
  for (struct list *link = list_first(head); link != NULL; link = list_next(head, link)) {
    left++;
  }
  while (left != 0) {
    struct slab *best = NULL;
    uint64_t best_warmth = UINT64_MAX;
    for (int i = 0; i < SLAB_CANDIDATES && left != 0; left--) {
      struct slab *slab = LIST_ENTRY(list_first(head), struct slab, link);
      list_remove(&slab->link); /* to the end: the next search begins behind it */
      list_push_back(head, &slab->link);
      if (slab_is_busy(slab)) {
        continue; /* however cold */
      }
      i++;
      const uint64_t warmth = slab_warmth(slab);
      if (warmth < best_warmth) {
        best = slab;
        best_warmth = warmth;
      }
    }
    const uint64_t bytes = best != NULL ? best->charge : 0;
    if (best != NULL && slab_evict(shard, best)) {
      return bytes;
    }
  }
  return 0;
}

static uint64_t cache_evict_slab(struct cache *cache, uint32_t home, enum group group) {
  for (uint32_t i = 0; i < cache->shard_count; i++) {
    struct cache_shard *shard = &cache->shards[(home + i) & (cache->shard_count - 1)];
    mutex_lock(&shard->lock);
    const uint64_t bytes = shard_evict_slab(shard, group);
    mutex_unlock(&shard->lock);
    if (bytes != 0) {
      return bytes;
    }
  }
  return 0;
}

/* Rows hold more than the share that is always theirs. */
static bool data_above_share(const struct cache *cache) {
  const uint64_t data = atomic_load_explicit(&cache->bytes[GROUP_DATA], memory_order_relaxed);
  const uint64_t meta = atomic_load_explicit(&cache->bytes[GROUP_META], memory_order_relaxed);
  return data * DATA_SHARE > data + meta;
}

/* The budget's reclaimer: rows go first, down to their share. */
static uint64_t reclaim(void *context, uint64_t bytes) {
  struct cache *cache = context;
  uint64_t given = 0;
  while (given < bytes) {
    const uint32_t home = atomic_fetch_add_explicit(&cache->turn, 1, memory_order_relaxed) / TURN_TAKES;
    const enum group first = data_above_share(cache) ? GROUP_DATA : GROUP_META;
    uint64_t freed = cache_evict_slab(cache, home, first);
    if (freed == 0) {
      freed = cache_evict_slab(cache, home, first == GROUP_DATA ? GROUP_META : GROUP_DATA);
    }
    if (freed == 0) {
      break;
    }
    given += freed;
  }
  return given;
}

void cache_destroy(struct cache *cache) {
  if (cache == NULL) {
    return;
  }
  budget_set_reclaimer(cache->budget, NULL, NULL);
  for (uint32_t s = 0; s < cache->shard_count; s++) {
    struct cache_shard *shard = &cache->shards[s];
    mutex_lock(&shard->lock);
    for (int g = 0; g < GROUPS; g++) {
      struct list *link;
      while ((link = list_first(&shard->slabs[g])) != NULL) {
        const bool released = slab_evict(shard, LIST_ENTRY(link, struct slab, link));
        assert(released); /* else something is still pinned or taken */
        if (!released) {
          list_remove(link);
        }
      }
    }
    mutex_unlock(&shard->lock);
    mutex_destroy(&shard->lock);
  }
  const uint64_t chunk_bytes = CHUNK_FRAMES * sizeof(struct cache_frame);
  for (uint32_t i = 0; i < cache->chunk_count; i++) {
    mem_free(cache->allocator, atomic_load_explicit(&cache->chunks[i], memory_order_relaxed), chunk_bytes);
    budget_give(cache->budget, BUDGET_CACHE, chunk_bytes);
  }
  mutex_destroy(&cache->pool_lock);
  cache_free_parts(cache);
}

/* ---- taking memory ------------------------------------------------------------------------------------- */

static void memory_set(struct cache_memory *memory, struct cache_frame *frame, uint32_t size, enum unit_kind kind) {
  frame->kind = (uint8_t)kind;
  frame->size = size;
  *memory = (struct cache_memory){frame, frame->data, size};
}

/* A free frame of any shard, or one of a new slab of the home shard. */
static struct cache_frame *take_free(struct cache *cache, uint32_t home, enum group group, size_t class) {
  for (uint32_t i = 0; i < cache->shard_count; i++) {
    struct cache_shard *shard = &cache->shards[(home + i) & (cache->shard_count - 1)];
    if (i != 0 && atomic_load_explicit(&cache->free_frames[group][class], memory_order_relaxed) == 0) {
      break;
    }
    mutex_lock(&shard->lock);
    struct cache_frame *frame = class_pop_free(shard, group, class);
    mutex_unlock(&shard->lock);
    if (frame != NULL) {
      return frame;
    }
  }
  struct cache_shard *shard = &cache->shards[home & (cache->shard_count - 1)];
  struct cache_frame *frame = NULL;
  mutex_lock(&shard->lock);
  if (shard_grow(shard, group, class)) {
    frame = class_pop_free(shard, group, class);
  }
  mutex_unlock(&shard->lock);
  return frame;
}

static struct cache_frame *take_evicted(struct cache *cache, uint32_t home, enum group group, size_t class, uint64_t steps) {
  for (uint32_t i = 0; i < cache->shard_count; i++) {
    struct cache_shard *shard = &cache->shards[(home + i) & (cache->shard_count - 1)];
    mutex_lock(&shard->lock);
    struct cache_frame *frame = class_evict_one(shard, &shard->classes[group][class], steps);
    mutex_unlock(&shard->lock);
    if (frame != NULL) {
      return frame;
    }
  }
  return NULL;
}

bool cache_memory_take(struct cache *cache, uint32_t size, enum unit_kind kind, bool may_evict, struct cache_memory *memory) {
  *memory = (struct cache_memory){0};
  assert(size != 0 && size <= CACHE_UNIT_MAX_BYTES);
  const enum group group = group_of(kind);
  const size_t class = (size - 1) / PAGE_BYTES;
  const uint32_t home = atomic_fetch_add_explicit(&cache->turn, 1, memory_order_relaxed) / TURN_TAKES;
  for (int round = 0; round < TAKE_ROUNDS; round++) {
    struct cache_frame *frame = take_free(cache, home, group, class);
    if (frame == NULL && !may_evict) {
      return false;
    }
    const bool above = data_above_share(cache);
    if (frame == NULL && (group == GROUP_META || above)) {
      frame = take_evicted(cache, home, group, class, group == GROUP_META ? STEPS_META : STEPS_DATA);
    }
    if (frame != NULL) {
      memory_set(memory, frame, size, kind);
      return true;
    }
    /* No cold frame of this size: make room for a slab. Rows above their share pay, then meta units. */
    if (cache_evict_slab(cache, home, above ? GROUP_DATA : GROUP_META) == 0 &&
        cache_evict_slab(cache, home, above ? GROUP_META : GROUP_DATA) == 0) {
      frame = take_evicted(cache, home, group, class, STEPS_ALL);
      if (frame != NULL) {
        memory_set(memory, frame, size, kind);
        return true;
      }
      return false;
    }
  }
  return false;
}

void cache_memory_give(struct cache *cache, struct cache_memory *memory) {
  (void)cache;
  if (memory->frame != NULL) {
    struct cache_shard *shard = atomic_load_explicit(&memory->frame->shard, memory_order_relaxed);
    mutex_lock(&shard->lock);
    frame_free(memory->frame);
    mutex_unlock(&shard->lock);
  }
  *memory = (struct cache_memory){0};
}

/* ---- pins ---------------------------------------------------------------------------------------------- */

/* The last pin of a frame that no directory names: nobody can come any more. */
static void frame_drop(struct cache_frame *frame) {
  struct cache_shard *shard = atomic_load_explicit(&frame->shard, memory_order_relaxed);
  if (shard == NULL) {
    return; /* evicted meanwhile, with its slab */
  }
  mutex_lock(&shard->lock);
  if (atomic_load_explicit(&frame->shard, memory_order_relaxed) == shard &&
      atomic_load_explicit(&frame->owner, memory_order_relaxed) == 0 && frame_lock(frame)) {
    frame_free(frame);
  }
  mutex_unlock(&shard->lock);
}

static void frame_unpin(struct cache_frame *frame) {
  /* Sequentially consistent, as in directory_remove: one of the two sees what the other did. */
  const uint32_t before = atomic_fetch_sub(&frame->pins, 1);
  assert((before & ~FRAME_LOCKED) != 0);
  if (before == 1 && atomic_load(&frame->owner) == 0) {
    frame_drop(frame);
  }
}

static bool frame_pin(struct cache_frame *frame, uint64_t owner, uint32_t unit) {
  const uint32_t before = atomic_fetch_add_explicit(&frame->pins, 1, memory_order_acquire);
  if (!(before & FRAME_LOCKED)) {
    if (atomic_load_explicit(&frame->owner, memory_order_relaxed) == owner && frame->unit == unit) {
      return true;
    }
    frame_unpin(frame);
  } else {
    atomic_fetch_sub_explicit(&frame->pins, 1, memory_order_relaxed);
  }
  return false;
}

static void frame_count_hit(struct cache_frame *frame) {
  /* Loads and stores, not read-modify-writes: a lost count costs less than a locked instruction a hit. */
  const uint32_t hits = atomic_load_explicit(&frame->hits, memory_order_relaxed);
  atomic_store_explicit(&frame->hits, hits + 1, memory_order_relaxed);
  if (hits == UINT32_MAX) {
    struct cache *cache = atomic_load_explicit(&frame->shard, memory_order_relaxed)->cache;
    atomic_fetch_add_explicit(&cache->old_hits, UINT64_C(1) << 32, memory_order_relaxed);
  }
  const uint8_t rounds = atomic_load_explicit(&frame->rounds, memory_order_relaxed);
  if (rounds < frame->rounds_max) {
    atomic_store_explicit(&frame->rounds, (uint8_t)(rounds + 1), memory_order_relaxed);
  }
}

bool cache_pin(struct cache_directory *directory, uint32_t unit, struct cache_pin *pin) {
  struct cache *cache = directory->cache;
  assert(unit < directory->unit_count);
  const uint64_t entry = atomic_load_explicit(&directory->entries[unit], memory_order_acquire);
  if (entry != 0) {
    struct cache_frame *frame = frame_at(cache, entry_frame(entry));
    if (frame_pin(frame, directory->owner, unit)) {
      frame_count_hit(frame);
      *pin = (struct cache_pin){frame, frame->data, frame->size};
      return true;
    }
  }
  atomic_fetch_add_explicit(&cache->misses, 1, memory_order_relaxed);
  *pin = (struct cache_pin){0};
  return false;
}

bool cache_holds(const struct cache_directory *directory, uint32_t unit) {
  assert(unit < directory->unit_count);
  return atomic_load_explicit(&directory->entries[unit], memory_order_relaxed) != 0;
}

const void *cache_prefetch(const struct cache_directory *directory, uint32_t unit) {
  assert(unit < directory->unit_count);
  const uint64_t entry = atomic_load_explicit(&directory->entries[unit], memory_order_acquire);
  if (entry == 0) {
    return NULL;
  }
  __builtin_prefetch(frame_at(directory->cache, entry_frame(entry)), 1);
  return entry_data(entry);
}

void cache_pin_copy(const struct cache_pin *from, struct cache_pin *to) {
  assert(from->frame != NULL);
  atomic_fetch_add_explicit(&from->frame->pins, 1, memory_order_relaxed);
  *to = *from;
}

void cache_unpin(struct cache_pin *pin) {
  if (pin->frame != NULL) {
    frame_unpin(pin->frame);
  }
  *pin = (struct cache_pin){0};
}

/* ---- insertion ----------------------------------------------------------------------------------------- */

/* Rounds that the clock grants a unit at first, and at most. */
static const struct {
  uint8_t first, most;
} kind_rounds[UNIT_KINDS] = {
    [UNIT_INDEX] = {4, ROUNDS_MAX}, [UNIT_FILTER] = {4, ROUNDS_MAX}, [UNIT_KEYS] = {2, 6}, [UNIT_CHECKSUMS] = {1, 3},
    [UNIT_ROWS] = {0, 3},           [UNIT_ATTRIBUTES] = {0, 2},
};

static void frame_publish(struct cache_frame *frame, uint64_t owner, uint32_t unit, _Atomic uint64_t *entry) {
  frame->unit = unit;
  frame->entry = entry;
  atomic_store_explicit(&frame->owner, owner, memory_order_relaxed);
  atomic_store_explicit(&frame->rounds, kind_rounds[frame->kind].first, memory_order_relaxed);
  frame->rounds_max = kind_rounds[frame->kind].most;
  atomic_fetch_sub_explicit(&frame->pins, FRAME_LOCKED - 1, memory_order_release);
}

void cache_keep(struct cache_memory *memory, struct cache_pin *pin) {
  struct cache_frame *frame = memory->frame;
  frame_publish(frame, 0, 0, NULL);
  *pin = (struct cache_pin){frame, frame->data, frame->size};
  *memory = (struct cache_memory){0};
}

/* Ours came second and nobody names it: free it, or leave it to the clock when a stale reader holds it for a moment. */
static void frame_withdraw(struct cache_frame *frame) {
  struct cache_shard *shard = atomic_load_explicit(&frame->shard, memory_order_relaxed);
  mutex_lock(&shard->lock);
  atomic_store_explicit(&frame->owner, 0, memory_order_relaxed);
  frame->entry = NULL;
  mutex_unlock(&shard->lock);
  frame_unpin(frame);
}

void cache_insert(struct cache_directory *directory, uint32_t unit, struct cache_memory *memory, struct cache_pin *pin) {
  struct cache_frame *frame = memory->frame;
  _Atomic uint64_t *entry = &directory->entries[unit];
  assert(unit < directory->unit_count);
  *memory = (struct cache_memory){0};
  frame_publish(frame, directory->owner, unit, entry);
  uint64_t seen = 0;
  for (;;) {
    if (atomic_compare_exchange_weak_explicit(entry, &seen, entry_of(frame), memory_order_release, memory_order_acquire)) {
      *pin = (struct cache_pin){frame, frame->data, frame->size};
      return;
    }
    if (seen == 0) {
      continue; /* a spurious failure */
    }
    struct cache_frame *other = frame_at(directory->cache, entry_frame(seen));
    if (frame_pin(other, directory->owner, unit)) {
      *pin = (struct cache_pin){other, other->data, other->size};
      frame_withdraw(frame);
      return;
    }
    /* The other is being evicted: its evictor clears the entry only while it still names it, so ours may take the place. */
  }
}

/* ---- directories --------------------------------------------------------------------------------------- */

turb_status cache_directory_open(struct cache *cache, uint32_t unit_count, struct cache_directory *directory, turb_error *err) {
  *directory = (struct cache_directory){0};
  const uint64_t bytes = (uint64_t)unit_count * sizeof *directory->entries;
  if (!budget_take(cache->budget, BUDGET_METADATA, bytes)) {
    return status_set(err, TURB_BUDGET, "the memory budget does not hold a table's directory of %u units (%llu bytes)", unit_count,
                      (unsigned long long)bytes);
  }
  _Atomic uint64_t *entries = mem_alloc_array(cache->allocator, unit_count, sizeof *entries);
  if (entries == NULL) {
    budget_give(cache->budget, BUDGET_METADATA, bytes);
    return status_set(err, TURB_NO_MEMORY, "no memory for a table's directory of %u units", unit_count);
  }
  *directory = (struct cache_directory){cache, atomic_fetch_add(&cache->owners, 1) + 1, unit_count, entries};
  return TURB_OK;
}

/* Takes one frame out of the closing directory: freed, or left to its pins. */
static void directory_remove(struct cache_directory *directory, uint32_t unit) {
  _Atomic uint64_t *entry = &directory->entries[unit];
  for (;;) {
    const uint64_t seen = atomic_load_explicit(entry, memory_order_acquire);
    if (seen == 0) {
      return;
    }
    struct cache_frame *frame = frame_at(directory->cache, entry_frame(seen));
    struct cache_shard *shard = atomic_load_explicit(&frame->shard, memory_order_relaxed);
    if (shard == NULL) {
      continue; /* evicted since the load above */
    }
    mutex_lock(&shard->lock);
    /* While the entry names the frame it is ours, and it was when its shard was read: nobody inserts into a closing directory. */
    if (atomic_load_explicit(entry, memory_order_relaxed) == seen) {
      if (frame_lock(frame)) {
        frame_free(frame);
      } else {
        frame->entry = NULL;
        atomic_store_explicit(entry, 0, memory_order_relaxed);
        atomic_store(&frame->owner, 0);
        if (atomic_load(&frame->pins) == 0 && frame_lock(frame)) { /* let go in between, before it could see that owner is 0 */
          frame_free(frame);
        }
      }
    }
    mutex_unlock(&shard->lock);
  }
}

void cache_directory_close(struct cache_directory *directory) {
  if (directory->entries == NULL) {
    return;
  }
  for (uint32_t unit = 0; unit < directory->unit_count; unit++) {
    if (atomic_load_explicit(&directory->entries[unit], memory_order_relaxed) != 0) {
      directory_remove(directory, unit);
    }
  }
  const uint64_t bytes = (uint64_t)directory->unit_count * sizeof *directory->entries;
  mem_free(directory->cache->allocator, directory->entries, bytes);
  budget_give(directory->cache->budget, BUDGET_METADATA, bytes);
  *directory = (struct cache_directory){0};
}

/* ---- admission and statistics -------------------------------------------------------------------------- */

bool cache_admits(struct cache_directory *directory, uint32_t unit, uint32_t size) {
  struct cache *cache = directory->cache;
  const size_t class = (size - 1) / PAGE_BYTES;
  if (atomic_load_explicit(&cache->free_frames[GROUP_DATA][class], memory_order_relaxed) != 0) {
    return true;
  }
  const uint64_t target = slab_target(cache, atomic_load_explicit(&cache->bytes[GROUP_DATA], memory_order_relaxed) / cache->shard_count);
  if (budget_has(cache, target / 4 + size + CHUNK_FRAMES * sizeof(struct cache_frame))) {
    return true;
  }
  /* A place a hash: another unit's miss wears the count down before it takes the place, so that units that miss often keep theirs. */
  const uint64_t hash = hash_mix64(directory->owner * UINT64_C(0x9E3779B97F4A7C15) + unit);
  _Atomic uint32_t *place = &cache->sketch[hash & (cache->sketch_size - 1)];
  const uint32_t tag = (uint32_t)(hash >> 40);
  const uint32_t seen = atomic_load_explicit(place, memory_order_relaxed);
  const uint32_t count = seen & 0xff;
  if (count != 0 && seen >> 8 == tag) {
    if (count + 1 >= ADMIT_MISSES) {
      atomic_store_explicit(place, 0, memory_order_relaxed);
      return true;
    }
    atomic_store_explicit(place, tag << 8 | (count + 1), memory_order_relaxed);
  } else {
    atomic_store_explicit(place, count > 1 ? seen - 1 : tag << 8 | 1, memory_order_relaxed);
  }
  return false;
}

void cache_get_stats(const struct cache *cache, struct cache_stats *stats) {
  struct cache *c = cache->shards[0].cache; /* the locks are not the caller's to see */
  *stats = (struct cache_stats){.misses = atomic_load_explicit(&c->misses, memory_order_relaxed),
                                .hits = atomic_load_explicit(&c->old_hits, memory_order_relaxed),
                                .bytes = c->base_charge};
  for (uint32_t s = 0; s < c->shard_count; s++) {
    mutex_lock(&c->shards[s].lock);
    stats->evictions += c->shards[s].evictions;
    stats->bytes += c->shards[s].bytes;
    mutex_unlock(&c->shards[s].lock);
  }
  mutex_lock(&c->pool_lock);
  const uint32_t chunk_count = c->chunk_count;
  mutex_unlock(&c->pool_lock);
  stats->bytes += (uint64_t)chunk_count * CHUNK_FRAMES * sizeof(struct cache_frame);
  for (uint32_t number = 1; number < chunk_count * CHUNK_FRAMES; number++) {
    const struct cache_frame *frame = frame_at(c, number);
    const uint32_t pins = atomic_load_explicit(&frame->pins, memory_order_relaxed);
    stats->hits += atomic_load_explicit(&frame->hits, memory_order_relaxed);
    stats->frames += (pins & FRAME_LOCKED) == 0;
    stats->pinned_frames += (pins & FRAME_LOCKED) == 0 && pins != 0;
  }
}
