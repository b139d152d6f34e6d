/*
 * The simulated disk: files and folders in memory that know what of them would survive a power cut.
 *
 *   inode   a file or a folder. Names, pending changes and handles hold references; the last one frees it.
 *   page    4 KiB with a reference count. A file has for each page number what it holds now and what is durable; after a sync both are the same
 *           page, and a write to a shared page copies it first.
 *   entry   a name in a folder: what it leads to now and what it leads to durably.
 *   change  a change of names that no sync has covered yet: one name set or removed, or, for a rename, both together.
 *
 * What a power cut does, decided at restart by the seed:
 *  - a page that differs from its durable self is lost, kept, or torn: each of its 512-byte sectors old or new;
 *  - a size that differs from the durable one is any size between both; bytes that were never written read as zeros;
 *  - each pending change happened or did not, by itself (a rename wholly or not at all): no order between names is promised, as POSIX promises
 *    none;
 *  - a sync of a file makes its content durable and not its name; a sync of a folder makes the changes durable that set or remove a name in it.
 * A sync that fails marks its pages clean without having made all of them durable: a later sync says well and saves nothing, as Linux does.
 *
 * Invariants
 *  1. sum of pages held now by files that have a name or a handle = used_bytes / 4096 <= capacity (unless the capacity was lowered).
 *  2. The bytes of a file from size on are zero: its pages there hold nothing, or reserved space.
 *  3. Restart and folder syncs take no memory: they cannot fail for want of it.
 *  4. A call that fails for want of memory or room has changed nothing, but for a write, which may be short.
 * Threads: any; one mutex over everything, never held while a caller's function runs.
 */
#include "io/simulation.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/alloc.h"
#include "base/list.h"
#include "base/random.h"
#include "base/thread.h"
#include "io/io.h"

#define PAGE_BYTES   4096u
#define SECTOR_BYTES 512u
#define NEVER        0 /* the number of no operation */
#define NAME_BYTES   255u
#define PATH_BYTES   4096u

struct page {
  uint64_t references;
  uint8_t bytes[PAGE_BYTES];
};

struct page_pair {
  struct page *now, *durable; /* NULL: zeros */
};

struct inode {
  turb_simulation *simulation;
  uint64_t number;
  uint64_t references;
  uint64_t names;   /* entries that lead here now */
  uint64_t handles; /* of this epoch */
  uint64_t counted_epoch;
  bool folder;
  /* a file */
  uint64_t size, durable_size;
  struct page_pair *pages;
  uint64_t page_capacity;
  uint64_t held;                  /* pages that are not NULL now */
  uint64_t dirty_low, dirty_high; /* page numbers [low, high) that the next sync makes durable */
  uint32_t locks_shared;
  bool locked;
  /* a folder */
  struct list entries;
};

struct entry {
  struct list link; /* in its folder */
  struct inode *now, *durable;
  uint32_t pending; /* changes that name it */
  char *name;
};

struct change {
  struct list link;
  struct inode *set_folder; /* NULL: only removes */
  struct entry *set;
  struct inode *target;        /* what set leads to */
  struct inode *remove_folder; /* NULL: only sets */
  struct entry *removed;
};

struct simulation_handle {
  struct inode *inode;
  uint64_t epoch;
  unsigned flags;
  bool is_lock, shared;
};

struct turb_simulation {
  turb_allocator allocator;
  pthread_mutex_t mutex;
  struct random random;
  uint32_t reorder_percent, short_percent;
  uint64_t capacity_bytes; /* 0: no bound */
  uint64_t used_bytes;
  uint64_t operations;
  uint64_t fail_at;
  int fail_errno;
  uint64_t cut_at;
  bool dark;      /* the power is out */
  uint64_t epoch; /* number of restarts */
  uint64_t next_inode;
  struct page *zeros; /* what reserved space holds */
  struct inode *root;
  struct list changes; /* oldest first */
};

/* ---- pages ---- */

static struct page *page_retain(struct page *page) {
  if (page != NULL) {
    page->references++;
  }
  return page;
}

static void page_release(turb_simulation *simulation, struct page *page) {
  if (page != NULL && --page->references == 0) {
    mem_free(&simulation->allocator, page, sizeof *page);
  }
}

static struct page *page_make(turb_simulation *simulation, const struct page *from) {
  struct page *page = mem_alloc(&simulation->allocator, sizeof *page);
  if (page == NULL) {
    return NULL;
  }
  page->references = 1;
  if (from != NULL) {
    memcpy(page->bytes, from->bytes, PAGE_BYTES);
  } else {
    memset(page->bytes, 0, PAGE_BYTES);
  }
  return page;
}

/* A file without name and handle is gone for whoever asks how full the disk is, though its pages may come back after a power cut. */
static bool is_counted(const struct inode *inode) {
  return inode->names + inode->handles != 0;
}

static bool has_room(const turb_simulation *simulation) {
  return simulation->capacity_bytes == 0 || simulation->used_bytes + PAGE_BYTES <= simulation->capacity_bytes;
}

/* Sets what a page holds now; takes over the reference. */
static void page_set(struct inode *inode, uint64_t number, struct page *page) {
  turb_simulation *simulation = inode->simulation;
  struct page_pair *pair = &inode->pages[number];
  const uint64_t before = pair->now != NULL;
  const uint64_t after = page != NULL;
  inode->held += after - before;
  if (is_counted(inode)) {
    simulation->used_bytes += (after - before) * PAGE_BYTES;
  }
  page_release(simulation, pair->now);
  pair->now = page;
}

static uint64_t pages_of(uint64_t size) {
  return size / PAGE_BYTES + (size % PAGE_BYTES != 0);
}

static int pages_reserve(struct inode *inode, uint64_t count) {
  if (count <= inode->page_capacity) {
    return 0;
  }
  uint64_t capacity = inode->page_capacity * 2;
  if (capacity < count) {
    capacity = count < 8 ? 8 : count;
  }
  if (capacity > SIZE_MAX / sizeof *inode->pages) {
    return EFBIG;
  }
  struct page_pair *pages =
      mem_resize(&inode->simulation->allocator, inode->pages, inode->page_capacity * sizeof *pages, capacity * sizeof *pages);
  if (pages == NULL) {
    return ENOMEM;
  }
  memset(pages + inode->page_capacity, 0, (capacity - inode->page_capacity) * sizeof *pages);
  inode->pages = pages;
  inode->page_capacity = capacity;
  return 0;
}

static void mark_dirty(struct inode *inode, uint64_t low, uint64_t high) {
  if (inode->dirty_low >= inode->dirty_high) {
    inode->dirty_low = low;
    inode->dirty_high = high;
    return;
  }
  inode->dirty_low = low < inode->dirty_low ? low : inode->dirty_low;
  inode->dirty_high = high > inode->dirty_high ? high : inode->dirty_high;
}

/* A page of the file that may be written to: its own, not shared. NULL with *os_error. */
static struct page *page_own(struct inode *inode, uint64_t number, int *os_error) {
  struct page *page = inode->pages[number].now;
  if (page != NULL && page->references == 1) {
    return page;
  }
  if (page == NULL && !has_room(inode->simulation)) {
    *os_error = ENOSPC;
    return NULL;
  }
  struct page *own = page_make(inode->simulation, page);
  if (own == NULL) {
    *os_error = ENOMEM;
    return NULL;
  }
  page_set(inode, number, own);
  return own;
}

/* ---- inodes ---- */

static struct inode *inode_make(turb_simulation *simulation, bool folder) {
  struct inode *inode = mem_alloc_zeroed(&simulation->allocator, sizeof *inode);
  if (inode != NULL) {
    inode->simulation = simulation;
    inode->number = ++simulation->next_inode;
    inode->references = 1;
    inode->folder = folder;
    list_init(&inode->entries);
  }
  return inode;
}

static struct inode *inode_retain(struct inode *inode) {
  inode->references++;
  return inode;
}

static void entry_free(turb_simulation *simulation, struct entry *entry) {
  list_remove(&entry->link);
  mem_free_string(&simulation->allocator, entry->name);
  mem_free(&simulation->allocator, entry, sizeof *entry);
}

static void inode_release(struct inode *inode) {
  if (inode == NULL || --inode->references != 0) {
    return;
  }
  turb_simulation *simulation = inode->simulation;
  for (uint64_t i = 0; i < inode->page_capacity; i++) {
    page_release(simulation, inode->pages[i].now);
    page_release(simulation, inode->pages[i].durable);
  }
  mem_free(&simulation->allocator, inode->pages, inode->page_capacity * sizeof *inode->pages);
  while (!list_is_empty(&inode->entries)) {
    struct entry *entry = LIST_ENTRY(list_first(&inode->entries), struct entry, link);
    assert(entry->pending == 0);
    if (entry->now != NULL) {
      entry->now->names--;
    }
    inode_release(entry->now);
    inode_release(entry->durable);
    entry_free(simulation, entry);
  }
  mem_free(&simulation->allocator, inode, sizeof *inode);
}

/* Changes the number of names or handles that make a file count. */
static void inode_count(struct inode *inode, uint64_t *counter, bool more) {
  const bool before = is_counted(inode);
  *counter += more ? 1 : UINT64_MAX;
  if (before != is_counted(inode)) {
    const uint64_t bytes = inode->held * PAGE_BYTES;
    inode->simulation->used_bytes += before ? 0 - bytes : bytes;
  }
}

/* ---- names ---- */

static struct entry *entry_find(const struct inode *folder, const char *name, size_t size) {
  for (struct list *link = list_first(&folder->entries); link != NULL; link = list_next(&folder->entries, link)) {
    struct entry *entry = LIST_ENTRY(link, struct entry, link);
    if (strncmp(entry->name, name, size) == 0 && entry->name[size] == '\0') {
      return entry;
    }
  }
  return NULL;
}

/* The entry of a name, made when missing: it leads nowhere then. */
static struct entry *entry_get(struct inode *folder, const char *name, size_t size) {
  struct entry *entry = entry_find(folder, name, size);
  if (entry != NULL) {
    return entry;
  }
  const turb_allocator *allocator = &folder->simulation->allocator;
  entry = mem_alloc_zeroed(allocator, sizeof *entry);
  char *copy = mem_alloc(allocator, size + 1);
  if (entry == NULL || copy == NULL) {
    mem_free(allocator, entry, sizeof *entry);
    mem_free(allocator, copy, size + 1);
    return NULL;
  }
  memcpy(copy, name, size);
  copy[size] = '\0';
  entry->name = copy;
  list_init(&entry->link);
  list_push_back(&folder->entries, &entry->link);
  return entry;
}

static void entry_drop_if_unused(turb_simulation *simulation, struct entry *entry) {
  if (entry->now == NULL && entry->durable == NULL && entry->pending == 0) {
    entry_free(simulation, entry);
  }
}

static void entry_set_now(struct entry *entry, struct inode *inode) {
  struct inode *before = entry->now;
  if (inode != NULL) {
    inode_retain(inode);
    inode_count(inode, &inode->names, true);
  }
  entry->now = inode;
  if (before != NULL) {
    inode_count(before, &before->names, false);
    inode_release(before);
  }
}

static void entry_set_durable(struct entry *entry, struct inode *inode) {
  struct inode *before = entry->durable;
  if (inode != NULL) {
    inode_retain(inode);
  }
  entry->durable = inode;
  inode_release(before);
}

/* Where a path leads: the folder of its last name, and that name. The root has none (*size is 0). ENOENT, ENOTDIR. */
static int path_walk(turb_simulation *simulation, const char *path, struct inode **folder, const char **name, size_t *size) {
  struct inode *at = simulation->root;
  *name = "";
  *size = 0;
  for (;;) {
    path += strspn(path, "/");
    const size_t length = strcspn(path, "/");
    if (length == 0) {
      break;
    }
    if (!(length == 1 && path[0] == '.')) {
      if (*size != 0) {
        const struct entry *entry = entry_find(at, *name, *size);
        if (entry == NULL || entry->now == NULL) {
          return ENOENT;
        }
        at = entry->now;
        if (!at->folder) {
          return ENOTDIR;
        }
      }
      *name = path;
      *size = length;
    }
    path += length;
  }
  *folder = at;
  return 0;
}

/* The inode that a path leads to now. */
static int path_find(turb_simulation *simulation, const char *path, struct inode **inode) {
  struct inode *folder = NULL;
  const char *name = NULL;
  size_t size = 0;
  const int os_error = path_walk(simulation, path, &folder, &name, &size);
  if (os_error != 0) {
    return os_error;
  }
  if (size == 0) {
    *inode = folder;
    return 0;
  }
  const struct entry *entry = entry_find(folder, name, size);
  if (entry == NULL || entry->now == NULL) {
    return ENOENT;
  }
  *inode = entry->now;
  return 0;
}

/* ---- pending changes ---- */

/* One of set and removed may be NULL. The change takes effect now, and durably with a sync. */
static int change_make(turb_simulation *simulation, struct inode *set_folder, struct entry *set, struct inode *target,
                       struct inode *remove_folder, struct entry *removed) {
  struct change *change = mem_alloc_zeroed(&simulation->allocator, sizeof *change);
  if (change == NULL) {
    return ENOMEM;
  }
  list_init(&change->link);
  if (set != NULL) {
    change->set_folder = inode_retain(set_folder);
    change->set = set;
    set->pending++;
    change->target = inode_retain(target);
    entry_set_now(set, target);
  }
  if (removed != NULL) {
    change->remove_folder = inode_retain(remove_folder);
    change->removed = removed;
    removed->pending++;
    entry_set_now(removed, NULL);
  }
  list_push_back(&simulation->changes, &change->link);
  return 0;
}

static void change_free(turb_simulation *simulation, struct change *change) {
  list_remove(&change->link);
  if (change->set != NULL) {
    change->set->pending--;
    entry_drop_if_unused(simulation, change->set);
    inode_release(change->target);
    inode_release(change->set_folder);
  }
  if (change->removed != NULL) {
    change->removed->pending--;
    entry_drop_if_unused(simulation, change->removed);
    inode_release(change->remove_folder);
  }
  mem_free(&simulation->allocator, change, sizeof *change);
}

static void change_apply(turb_simulation *simulation, struct change *change) {
  if (change->removed != NULL) {
    entry_set_durable(change->removed, NULL);
  }
  if (change->set != NULL) {
    entry_set_durable(change->set, change->target);
  }
  change_free(simulation, change);
}

static bool shares_name(const struct change *a, const struct change *b) {
  return (a->set != NULL && (a->set == b->set || a->set == b->removed)) ||
         (a->removed != NULL && (a->removed == b->set || a->removed == b->removed));
}

/* Applies a change behind the older ones of the same names, so that a rename between two folders is not overtaken by the making of what it moves.
 * */
static void change_apply_in_order(turb_simulation *simulation, struct change *change) {
  struct list *link = list_first(&simulation->changes);
  while (link != &change->link) {
    struct change *older = LIST_ENTRY(link, struct change, link);
    if (shares_name(older, change)) {
      change_apply_in_order(simulation, older);
      link = list_first(&simulation->changes);
    } else {
      link = list_next(&simulation->changes, link);
    }
  }
  change_apply(simulation, change);
}

static void changes_sync(turb_simulation *simulation, const struct inode *folder) {
  struct list *link = list_first(&simulation->changes);
  while (link != NULL) {
    struct change *change = LIST_ENTRY(link, struct change, link);
    if (change->set_folder == folder || change->remove_folder == folder) {
      change_apply_in_order(simulation, change);
      link = list_first(&simulation->changes);
    } else {
      link = list_next(&simulation->changes, link);
    }
  }
}

/* ---- the clock of operations ---- */

/* Counts an operation. Returns the errno that it has to fail with. */
static int operation_begin(turb_simulation *simulation) {
  const uint64_t number = ++simulation->operations;
  if (simulation->cut_at != NEVER && number >= simulation->cut_at) {
    simulation->dark = true;
  }
  if (simulation->dark) {
    return EIO;
  }
  if (simulation->fail_at == number) {
    simulation->fail_at = NEVER;
    return simulation->fail_errno;
  }
  return 0;
}

static int enter(turb_simulation *simulation) {
  mutex_lock(&simulation->mutex);
  return operation_begin(simulation);
}

static int leave(turb_simulation *simulation, int os_error) {
  mutex_unlock(&simulation->mutex);
  return os_error;
}

/* The same through a handle, which a restart has made stale. */
static int enter_handle(const struct simulation_handle *handle) {
  turb_simulation *simulation = handle->inode->simulation;
  const int os_error = enter(simulation);
  return handle->epoch != simulation->epoch ? EIO : os_error;
}

uint64_t simulation_draw(turb_simulation *simulation, uint64_t bound) {
  mutex_lock(&simulation->mutex);
  const uint64_t value = random_below(&simulation->random, bound);
  mutex_unlock(&simulation->mutex);
  return value;
}

bool simulation_holds_back(turb_simulation *simulation) {
  return simulation->reorder_percent != 0 && simulation_draw(simulation, 100) < simulation->reorder_percent;
}

/* ---- folders ---- */

/* The entry that a new name is to have. EEXIST, ENAMETOOLONG, ENOENT, ENOMEM. */
static int new_name(turb_simulation *simulation, const char *path, struct inode **folder, struct entry **entry) {
  const char *name = NULL;
  size_t size = 0;
  const int os_error = path_walk(simulation, path, folder, &name, &size);
  if (os_error != 0) {
    return os_error;
  }
  if (size == 0) {
    return EEXIST;
  }
  if (size > NAME_BYTES) {
    return ENAMETOOLONG;
  }
  *entry = entry_get(*folder, name, size);
  if (*entry == NULL) {
    return ENOMEM;
  }
  return (*entry)->now != NULL ? EEXIST : 0;
}

/* A new file or folder; its name is pending. */
static int make_inode(turb_simulation *simulation, const char *path, bool is_folder, struct inode **out) {
  struct inode *folder = NULL;
  struct entry *entry = NULL;
  int os_error = new_name(simulation, path, &folder, &entry);
  if (os_error != 0) {
    return os_error;
  }
  struct inode *inode = inode_make(simulation, is_folder);
  os_error = inode == NULL ? ENOMEM : change_make(simulation, folder, entry, inode, NULL, NULL);
  inode_release(inode); /* its name holds it */
  if (os_error != 0) {
    entry_drop_if_unused(simulation, entry);
    return os_error;
  }
  *out = inode;
  return 0;
}

/* The entry that a path leads to, and its folder. */
static int old_name(turb_simulation *simulation, const char *path, struct inode **folder, struct entry **entry) {
  const char *name = NULL;
  size_t size = 0;
  const int os_error = path_walk(simulation, path, folder, &name, &size);
  if (os_error != 0) {
    return os_error;
  }
  *entry = size == 0 ? NULL : entry_find(*folder, name, size);
  if (*entry == NULL || (*entry)->now == NULL) {
    return size == 0 ? EBUSY : ENOENT;
  }
  return 0;
}

static bool is_empty(const struct inode *folder) {
  for (struct list *link = list_first(&folder->entries); link != NULL; link = list_next(&folder->entries, link)) {
    if (LIST_ENTRY(link, struct entry, link)->now != NULL) {
      return false;
    }
  }
  return true;
}

int simulation_make_folder(turb_simulation *simulation, const char *path) {
  struct inode *inode = NULL;
  const int os_error = enter(simulation);
  return leave(simulation, os_error != 0 ? os_error : make_inode(simulation, path, true, &inode));
}

static int remove_name(turb_simulation *simulation, const char *path, bool is_folder) {
  struct inode *folder = NULL;
  struct entry *entry = NULL;
  const int os_error = old_name(simulation, path, &folder, &entry);
  if (os_error != 0) {
    return os_error;
  }
  if (entry->now->folder != is_folder) {
    return is_folder ? ENOTDIR : EISDIR;
  }
  if (is_folder && !is_empty(entry->now)) {
    return ENOTEMPTY;
  }
  return change_make(simulation, NULL, NULL, NULL, folder, entry);
}

int simulation_remove_folder(turb_simulation *simulation, const char *path) {
  const int os_error = enter(simulation);
  return leave(simulation, os_error != 0 ? os_error : remove_name(simulation, path, true));
}

int simulation_unlink(turb_simulation *simulation, const char *path) {
  const int os_error = enter(simulation);
  return leave(simulation, os_error != 0 ? os_error : remove_name(simulation, path, false));
}

/* Copies the name of the folder's entry with this number among those that lead somewhere; false at the end. */
static bool name_at(const struct inode *folder, uint64_t index, char *name) {
  for (struct list *link = list_first(&folder->entries); link != NULL; link = list_next(&folder->entries, link)) {
    const struct entry *entry = LIST_ENTRY(link, struct entry, link);
    if (entry->now != NULL && index-- == 0) {
      memcpy(name, entry->name, strlen(entry->name) + 1);
      return true;
    }
  }
  return false;
}

int simulation_list_folder(turb_simulation *simulation, const char *path, void (*each)(void *context, const char *name), void *context) {
  struct inode *folder = NULL;
  int os_error = enter(simulation);
  if (os_error == 0) {
    os_error = path_find(simulation, path, &folder);
  }
  if (os_error == 0 && !folder->folder) {
    os_error = ENOTDIR;
  }
  if (os_error != 0) {
    return leave(simulation, os_error);
  }
  inode_retain(folder);
  char name[NAME_BYTES + 1];
  for (uint64_t index = 0; name_at(folder, index, name); index++) {
    mutex_unlock(&simulation->mutex); /* the caller may do with the disk what it likes */
    each(context, name);
    mutex_lock(&simulation->mutex);
  }
  inode_release(folder);
  return leave(simulation, 0);
}

static int rename_name(turb_simulation *simulation, const char *from, const char *to) {
  struct inode *from_folder = NULL;
  struct inode *to_folder = NULL;
  struct entry *from_entry = NULL;
  struct entry *to_entry = NULL;
  int os_error = old_name(simulation, from, &from_folder, &from_entry);
  if (os_error != 0) {
    return os_error;
  }
  os_error = new_name(simulation, to, &to_folder, &to_entry);
  if (os_error != 0 && (os_error != EEXIST || to_entry == NULL)) {
    return os_error;
  }
  const struct inode *replaced = to_entry->now;
  if (replaced == from_entry->now) {
    return 0; /* two names of one file: POSIX leaves both */
  }
  if (replaced != NULL && replaced->folder != from_entry->now->folder) {
    return replaced->folder ? EISDIR : ENOTDIR;
  }
  if (replaced != NULL && replaced->folder && !is_empty(replaced)) {
    return ENOTEMPTY;
  }
  os_error = change_make(simulation, to_folder, to_entry, from_entry->now, from_folder, from_entry);
  if (os_error != 0) {
    entry_drop_if_unused(simulation, to_entry);
  }
  return os_error;
}

int simulation_rename(turb_simulation *simulation, const char *from, const char *to) {
  const int os_error = enter(simulation);
  return leave(simulation, os_error != 0 ? os_error : rename_name(simulation, from, to));
}

static int link_name(turb_simulation *simulation, const char *from, const char *to) {
  struct inode *inode = NULL;
  struct inode *folder = NULL;
  struct entry *entry = NULL;
  int os_error = path_find(simulation, from, &inode);
  if (os_error != 0) {
    return os_error;
  }
  if (inode->folder) {
    return EPERM;
  }
  os_error = new_name(simulation, to, &folder, &entry);
  if (os_error != 0) {
    return os_error;
  }
  os_error = change_make(simulation, folder, entry, inode, NULL, NULL);
  if (os_error != 0) {
    entry_drop_if_unused(simulation, entry);
  }
  return os_error;
}

int simulation_link(turb_simulation *simulation, const char *from, const char *to) {
  const int os_error = enter(simulation);
  return leave(simulation, os_error != 0 ? os_error : link_name(simulation, from, to));
}

int simulation_sync_folder(turb_simulation *simulation, const char *path) {
  struct inode *folder = NULL;
  int os_error = enter(simulation);
  if (os_error == 0) {
    os_error = path_find(simulation, path, &folder);
  }
  if (os_error == 0) {
    changes_sync(simulation, folder);
  }
  return leave(simulation, os_error);
}

int simulation_stat(turb_simulation *simulation, const char *path, uint64_t *size, uint64_t *allocated) {
  struct inode *inode = NULL;
  int os_error = enter(simulation);
  if (os_error == 0) {
    os_error = path_find(simulation, path, &inode);
  }
  if (os_error == 0) {
    *size = inode->size;
    *allocated = inode->held * PAGE_BYTES;
  }
  return leave(simulation, os_error);
}

/* ---- content ---- */

static int truncate_file(struct inode *inode, uint64_t size) {
  const uint64_t keep = pages_of(size);
  if (size < inode->size && size % PAGE_BYTES != 0 && inode->pages[keep - 1].now != NULL) {
    int os_error = 0;
    struct page *page = page_own(inode, keep - 1, &os_error);
    if (page == NULL) {
      return os_error;
    }
    memset(page->bytes + size % PAGE_BYTES, 0, PAGE_BYTES - size % PAGE_BYTES);
  }
  const int os_error = pages_reserve(inode, keep);
  if (os_error != 0) {
    return os_error;
  }
  if (size < inode->size) {
    for (uint64_t i = keep; i < inode->page_capacity; i++) {
      page_set(inode, i, NULL);
    }
    mark_dirty(inode, keep != 0 ? keep - 1 : 0, inode->page_capacity);
  }
  inode->size = size;
  return 0;
}

static void sync_file(struct inode *inode) {
  for (uint64_t i = inode->dirty_low; i < inode->dirty_high; i++) {
    struct page_pair *pair = &inode->pages[i];
    if (pair->durable != pair->now) {
      page_release(inode->simulation, pair->durable);
      pair->durable = page_retain(pair->now);
    }
  }
  inode->dirty_low = inode->dirty_high = 0;
  inode->durable_size = inode->size;
}

/* Some pages are durable, none is dirty any more: what Linux leaves behind a failed sync. */
static void sync_file_badly(struct inode *inode) {
  struct random *random = &inode->simulation->random;
  for (uint64_t i = inode->dirty_low; i < inode->dirty_high; i++) {
    struct page_pair *pair = &inode->pages[i];
    if (pair->durable != pair->now && random_one_in(random, 2)) {
      page_release(inode->simulation, pair->durable);
      pair->durable = page_retain(pair->now);
    }
  }
  inode->dirty_low = inode->dirty_high = 0;
}

static int64_t write_file(struct inode *inode, const uint8_t *data, size_t size, uint64_t offset) {
  if (offset > INT64_MAX || size > INT64_MAX - offset) {
    return -EFBIG;
  }
  int os_error = pages_reserve(inode, pages_of(offset + size));
  if (os_error != 0) {
    return -os_error;
  }
  size_t done = 0;
  while (done < size) {
    const uint64_t at = offset + done;
    const size_t within = at % PAGE_BYTES;
    const size_t part = size - done < PAGE_BYTES - within ? size - done : PAGE_BYTES - within;
    struct page *page = page_own(inode, at / PAGE_BYTES, &os_error);
    if (page == NULL) {
      break;
    }
    memcpy(page->bytes + within, data + done, part);
    mark_dirty(inode, at / PAGE_BYTES, at / PAGE_BYTES + 1);
    done += part;
  }
  if (offset + done > inode->size && done != 0) {
    inode->size = offset + done;
  }
  return done != 0 || size == 0 ? (int64_t)done : -os_error;
}

static int64_t read_file(const struct inode *inode, uint8_t *data, size_t size, uint64_t offset) {
  if (offset >= inode->size) {
    return 0;
  }
  if (size > inode->size - offset) {
    size = inode->size - offset;
  }
  for (size_t done = 0; done < size;) {
    const uint64_t at = offset + done;
    const size_t within = at % PAGE_BYTES;
    const size_t part = size - done < PAGE_BYTES - within ? size - done : PAGE_BYTES - within;
    const struct page *page = at / PAGE_BYTES < inode->page_capacity ? inode->pages[at / PAGE_BYTES].now : NULL;
    if (page != NULL) {
      memcpy(data + done, page->bytes + within, part);
    } else {
      memset(data + done, 0, part);
    }
    done += part;
  }
  return (int64_t)size;
}

/* ---- handles ---- */

static struct simulation_handle *handle_make(turb_simulation *simulation, unsigned flags) {
  struct simulation_handle *handle = mem_alloc_zeroed(&simulation->allocator, sizeof *handle);
  if (handle != NULL) {
    handle->epoch = simulation->epoch;
    handle->flags = flags;
  }
  return handle;
}

static void handle_attach(struct simulation_handle *handle, struct inode *inode) {
  handle->inode = inode_retain(inode);
  inode_count(inode, &inode->handles, true);
}

static void handle_free(turb_simulation *simulation, struct simulation_handle *handle) {
  mem_free(&simulation->allocator, handle, sizeof *handle);
}

static int open_inode(turb_simulation *simulation, const char *path, unsigned flags, struct inode **inode) {
  int os_error = path_find(simulation, path, inode);
  if (os_error == ENOENT && (flags & IO_OPEN_CREATE) != 0) {
    return make_inode(simulation, path, false, inode);
  }
  if (os_error != 0) {
    return os_error;
  }
  if ((flags & (IO_OPEN_CREATE | IO_OPEN_EXCLUSIVE)) == (IO_OPEN_CREATE | IO_OPEN_EXCLUSIVE)) {
    return EEXIST;
  }
  if ((*inode)->folder) {
    return EISDIR;
  }
  return (flags & IO_OPEN_TRUNCATE) != 0 ? truncate_file(*inode, 0) : 0;
}

int simulation_open(turb_simulation *simulation, const char *path, unsigned flags, struct simulation_handle **out) {
  *out = NULL;
  int os_error = enter(simulation);
  struct simulation_handle *handle = NULL;
  struct inode *inode = NULL;
  if (os_error == 0) {
    handle = handle_make(simulation, flags);
    os_error = handle == NULL ? ENOMEM : open_inode(simulation, path, flags, &inode);
  }
  if (os_error != 0) {
    handle_free(simulation, handle);
    return leave(simulation, os_error);
  }
  handle_attach(handle, inode);
  *out = handle;
  return leave(simulation, 0);
}

void simulation_close(struct simulation_handle *handle) {
  turb_simulation *simulation = handle->inode->simulation;
  mutex_lock(&simulation->mutex);
  struct inode *inode = handle->inode;
  if (handle->epoch == simulation->epoch) {
    inode_count(inode, &inode->handles, false);
  }
  inode_release(inode);
  handle_free(simulation, handle);
  mutex_unlock(&simulation->mutex);
}

int simulation_lock(turb_simulation *simulation, const char *path, bool shared, struct simulation_handle **out) {
  const unsigned flags = IO_OPEN_READ | (shared ? 0 : IO_OPEN_WRITE | IO_OPEN_CREATE);
  const int os_error = simulation_open(simulation, path, flags, out);
  if (os_error != 0) {
    return os_error;
  }
  struct simulation_handle *handle = *out;
  mutex_lock(&simulation->mutex);
  struct inode *inode = handle->inode;
  const bool held = inode->locked || (!shared && inode->locks_shared != 0);
  if (!held) {
    handle->is_lock = true;
    handle->shared = shared;
    inode->locked = !shared;
    inode->locks_shared += shared;
  }
  mutex_unlock(&simulation->mutex);
  if (held) {
    simulation_close(handle);
    *out = NULL;
    return EWOULDBLOCK;
  }
  return 0;
}

void simulation_unlock(struct simulation_handle *handle) {
  turb_simulation *simulation = handle->inode->simulation;
  mutex_lock(&simulation->mutex);
  assert(handle->is_lock);
  if (handle->epoch == simulation->epoch) {
    if (handle->shared) {
      handle->inode->locks_shared--;
    } else {
      handle->inode->locked = false;
    }
  }
  mutex_unlock(&simulation->mutex);
  simulation_close(handle);
}

uint64_t simulation_inode(const struct simulation_handle *handle) {
  return handle->inode->number;
}

int simulation_size(struct simulation_handle *handle, uint64_t *size) {
  turb_simulation *simulation = handle->inode->simulation;
  mutex_lock(&simulation->mutex);
  const bool good = !simulation->dark && handle->epoch == simulation->epoch;
  *size = good ? handle->inode->size : 0;
  return leave(simulation, good ? 0 : EIO);
}

int simulation_truncate(struct simulation_handle *handle, uint64_t size) {
  int os_error = enter_handle(handle);
  if (os_error == 0) {
    os_error = (handle->flags & IO_OPEN_WRITE) == 0 ? EINVAL : truncate_file(handle->inode, size);
  }
  return leave(handle->inode->simulation, os_error);
}

static int allocate_file(struct inode *inode, uint64_t offset, uint64_t size, bool extend) {
  turb_simulation *simulation = inode->simulation;
  if (offset > INT64_MAX || size > INT64_MAX - offset) {
    return EFBIG;
  }
  const uint64_t end = pages_of(offset + size);
  const int os_error = pages_reserve(inode, end);
  if (os_error != 0) {
    return os_error;
  }
  uint64_t wanted = 0;
  for (uint64_t i = offset / PAGE_BYTES; i < end; i++) {
    wanted += inode->pages[i].now == NULL;
  }
  if (simulation->capacity_bytes != 0 && simulation->used_bytes + wanted * PAGE_BYTES > simulation->capacity_bytes) {
    return ENOSPC;
  }
  for (uint64_t i = offset / PAGE_BYTES; i < end; i++) {
    if (inode->pages[i].now == NULL) {
      page_set(inode, i, page_retain(simulation->zeros));
      mark_dirty(inode, i, i + 1);
    }
  }
  if (extend && offset + size > inode->size) {
    inode->size = offset + size;
  }
  return 0;
}

int simulation_allocate(struct simulation_handle *handle, uint64_t offset, uint64_t size, bool extend) {
  int os_error = enter_handle(handle);
  if (os_error == 0) {
    os_error = (handle->flags & IO_OPEN_WRITE) == 0 ? EBADF : allocate_file(handle->inode, offset, size, extend);
  }
  return leave(handle->inode->simulation, os_error);
}

/* A transfer cut short by the seed, at the unit that the handle's kind of transfer has; never to nothing. */
static size_t shortened(const struct simulation_handle *handle, size_t size) {
  turb_simulation *simulation = handle->inode->simulation;
  const size_t unit = (handle->flags & IO_OPEN_DIRECT) != 0 ? IO_DIRECT_ALIGNMENT : SECTOR_BYTES;
  if (simulation->short_percent == 0 || size <= unit || random_below(&simulation->random, 100) >= simulation->short_percent) {
    return size;
  }
  return (size_t)random_between(&simulation->random, 1, (size - 1) / unit) * unit;
}

int64_t simulation_read(struct simulation_handle *handle, void *data, size_t size, uint64_t offset) {
  turb_simulation *simulation = handle->inode->simulation;
  const int os_error = enter_handle(handle);
  int64_t result = -os_error;
  if (os_error == 0) {
    result = (handle->flags & IO_OPEN_READ) == 0 ? -EBADF : read_file(handle->inode, data, shortened(handle, size), offset);
  }
  mutex_unlock(&simulation->mutex);
  return result;
}

int64_t simulation_write(struct simulation_handle *handle, const void *data, size_t size, uint64_t offset) {
  turb_simulation *simulation = handle->inode->simulation;
  const int os_error = enter_handle(handle);
  int64_t result = -os_error;
  if ((handle->flags & IO_OPEN_WRITE) == 0) {
    result = os_error == 0 ? -EBADF : result;
  } else if (os_error == 0) {
    result = write_file(handle->inode, data, shortened(handle, size), offset);
  } else if (os_error == EIO && !simulation->dark && handle->epoch == simulation->epoch) {
    /* Some of it may have got there. */
    const size_t part = (size_t)random_below(&simulation->random, size / SECTOR_BYTES + 1) * SECTOR_BYTES;
    (void)write_file(handle->inode, data, part, offset);
  }
  mutex_unlock(&simulation->mutex);
  return result;
}

int simulation_sync(struct simulation_handle *handle) {
  turb_simulation *simulation = handle->inode->simulation;
  const int os_error = enter_handle(handle);
  if (os_error == 0) {
    sync_file(handle->inode);
  } else if (!simulation->dark && handle->epoch == simulation->epoch) {
    sync_file_badly(handle->inode);
  }
  return leave(simulation, os_error);
}

/* ---- power ---- */

enum fate { FATE_LOST, FATE_KEPT, FATE_TORN };

static void settle_page(struct inode *inode, uint64_t number, enum fate fate) {
  const turb_simulation *simulation = inode->simulation;
  struct page_pair *pair = &inode->pages[number];
  const bool own = pair->now != NULL && pair->now->references == 1;
  if (fate == FATE_KEPT || (fate == FATE_TORN && !own && random_one_in(&inode->simulation->random, 2))) {
    return;
  }
  if (fate == FATE_LOST || !own) {
    page_set(inode, number, page_retain(pair->durable));
    return;
  }
  for (uint32_t at = 0; at < PAGE_BYTES; at += SECTOR_BYTES) {
    if (random_one_in(&inode->simulation->random, 2)) {
      memcpy(pair->now->bytes + at, pair->durable != NULL ? pair->durable->bytes + at : simulation->zeros->bytes, SECTOR_BYTES);
    }
  }
}

/* What a file's size is after the power cut. */
static uint64_t settle_size(struct random *random, uint64_t durable, uint64_t now) {
  switch (random_below(random, 3)) {
  case 0: return durable;
  case 1: return now;
  default: return now > durable ? random_between(random, durable, now) : durable; /* growing has many steps, cutting has one */
  }
}

/* Decides what is left of a file and makes that both its present and its durable self. Takes no memory. */
static void settle_file(struct inode *inode) {
  turb_simulation *simulation = inode->simulation;
  struct random *random = &simulation->random;
  inode->handles = 0;
  inode->locked = false;
  inode->locks_shared = 0;
  const uint64_t whole = random_below(random, 4); /* files lost or kept as a whole are likely enough to be met in a short test */
  uint64_t size = inode->size;
  if (whole == 0) {
    size = inode->durable_size;
  } else if (whole != 1 && inode->size != inode->durable_size) {
    size = settle_size(random, inode->durable_size, inode->size);
  }
  for (uint64_t i = 0; i < inode->page_capacity; i++) {
    struct page_pair *pair = &inode->pages[i];
    if (pair->now != pair->durable) {
      settle_page(inode, i, whole == 0 ? FATE_LOST : whole == 1 ? FATE_KEPT : (enum fate)random_below(random, 3));
    }
    page_release(simulation, pair->durable);
    pair->durable = NULL;
    if (i >= pages_of(size)) {
      page_set(inode, i, NULL);
    }
  }
  const uint64_t last = size / PAGE_BYTES;
  if (size % PAGE_BYTES != 0 && inode->pages[last].now != NULL && inode->pages[last].now != simulation->zeros) {
    memset(inode->pages[last].now->bytes + size % PAGE_BYTES, 0, PAGE_BYTES - size % PAGE_BYTES);
  }
  inode->size = size;
  inode->dirty_low = 0;
  inode->dirty_high = inode->page_capacity;
  sync_file(inode);
}

/* Deep only as folders are. */
static void settle_folder(struct inode *folder) {
  turb_simulation *simulation = folder->simulation;
  struct list *next = NULL;
  for (struct list *link = list_first(&folder->entries); link != NULL; link = next) {
    struct entry *entry = LIST_ENTRY(link, struct entry, link);
    next = list_next(&folder->entries, link);
    entry_set_now(entry, entry->durable);
    if (entry->now == NULL) {
      entry_drop_if_unused(simulation, entry);
    } else if (entry->now->folder) {
      settle_folder(entry->now);
    } else {
      settle_file(entry->now);
    }
  }
}

static uint64_t count_folder(struct inode *folder) {
  uint64_t bytes = 0;
  for (struct list *link = list_first(&folder->entries); link != NULL; link = list_next(&folder->entries, link)) {
    struct inode *inode = LIST_ENTRY(link, struct entry, link)->now;
    if (inode->folder) {
      bytes += count_folder(inode);
    } else if (inode->counted_epoch != inode->simulation->epoch) {
      inode->counted_epoch = inode->simulation->epoch; /* once, whatever its number of names */
      bytes += inode->held * PAGE_BYTES;
    }
  }
  return bytes;
}

void turb_simulation_restart(turb_simulation *simulation) {
  mutex_lock(&simulation->mutex);
  simulation->dark = false;
  simulation->cut_at = NEVER;
  simulation->epoch++;
  while (!list_is_empty(&simulation->changes)) {
    struct change *change = LIST_ENTRY(list_first(&simulation->changes), struct change, link);
    if (random_one_in(&simulation->random, 2)) {
      change_apply(simulation, change);
    } else {
      change_free(simulation, change);
    }
  }
  settle_folder(simulation->root);
  simulation->used_bytes = count_folder(simulation->root);
  mutex_unlock(&simulation->mutex);
}

void turb_simulation_cut_power_at(turb_simulation *simulation, uint64_t operation) {
  mutex_lock(&simulation->mutex);
  simulation->cut_at = operation;
  mutex_unlock(&simulation->mutex);
}

void turb_simulation_fail_at(turb_simulation *simulation, uint64_t operation, int os_error) {
  mutex_lock(&simulation->mutex);
  simulation->fail_at = operation;
  simulation->fail_errno = os_error;
  mutex_unlock(&simulation->mutex);
}

uint64_t turb_simulation_operations(const turb_simulation *simulation) {
  /* Reading takes the lock, which is the object's and not the caller's to be const about. */
  turb_simulation *writable = (turb_simulation *)(uintptr_t)simulation;
  mutex_lock(&writable->mutex);
  const uint64_t operations = simulation->operations;
  mutex_unlock(&writable->mutex);
  return operations;
}

/* ---- making, damaging, listing ---- */

static turb_status read_options(const turb_simulation_options *given, turb_simulation_options *options, turb_error *err) {
  *options = (turb_simulation_options)TURB_SIMULATION_OPTIONS_INIT;
  if (given == NULL) {
    return TURB_OK;
  }
  if (given->size < sizeof given->size) {
    return status_set(err, TURB_INVALID, "option size is %zu; TURB_SIMULATION_OPTIONS_INIT sets it", given->size);
  }
  for (size_t i = sizeof *options; i < given->size; i++) {
    if (((const uint8_t *)given)[i] != 0) {
      return status_set(err, TURB_INVALID, "simulation options set a field at byte %zu that this version does not know", i);
    }
  }
  memcpy(options, given, given->size < sizeof *options ? given->size : sizeof *options);
  if (options->reorder_percent > 100) {
    return status_set(err, TURB_INVALID, "option reorder_percent is %u; 0 to 100 are allowed", options->reorder_percent);
  }
  if (options->short_percent > 100) {
    return status_set(err, TURB_INVALID, "option short_percent is %u; 0 to 100 are allowed", options->short_percent);
  }
  return TURB_OK;
}

turb_status turb_simulation_create(const turb_simulation_options *given, turb_simulation **out, turb_error *err) {
  *out = NULL;
  turb_simulation_options options;
  const turb_status status = read_options(given, &options, err);
  if (status != TURB_OK) {
    return status;
  }
  const turb_allocator *allocator = options.allocator != NULL ? options.allocator : alloc_default();
  turb_simulation *simulation = mem_alloc_zeroed(allocator, sizeof *simulation);
  if (simulation == NULL) {
    return status_set(err, TURB_NO_MEMORY, "no memory for a simulated disk");
  }
  simulation->allocator = *allocator;
  simulation->reorder_percent = options.reorder_percent;
  simulation->short_percent = options.short_percent;
  simulation->capacity_bytes = options.capacity_bytes;
  random_init(&simulation->random, options.seed);
  list_init(&simulation->changes);
  mutex_init(&simulation->mutex);
  simulation->zeros = page_make(simulation, NULL);
  simulation->root = inode_make(simulation, true);
  if (simulation->zeros == NULL || simulation->root == NULL) {
    turb_simulation_free(simulation);
    return status_set(err, TURB_NO_MEMORY, "no memory for a simulated disk");
  }
  *out = simulation;
  return TURB_OK;
}

void turb_simulation_free(turb_simulation *simulation) {
  if (simulation == NULL) {
    return;
  }
  while (!list_is_empty(&simulation->changes)) {
    change_free(simulation, LIST_ENTRY(list_first(&simulation->changes), struct change, link));
  }
  inode_release(simulation->root);
  page_release(simulation, simulation->zeros);
  mutex_destroy(&simulation->mutex);
  const turb_allocator allocator = simulation->allocator;
  mem_free(&allocator, simulation, sizeof *simulation);
}

static void flip(struct page *page, uint64_t offset, uint32_t bit) {
  page->bytes[offset % PAGE_BYTES] ^= (uint8_t)(1u << bit);
}

/* On the disk itself: in what the file holds now and in what is durable of it. */
static int flip_file(struct inode *inode, uint64_t offset, uint32_t bit) {
  struct page_pair *pair = &inode->pages[offset / PAGE_BYTES];
  const struct page *zeros = inode->simulation->zeros;
  if (pair->now == pair->durable && pair->now != NULL && pair->now != zeros) {
    flip(pair->now, offset, bit);
    return 0;
  }
  int os_error = 0;
  struct page *page = page_own(inode, offset / PAGE_BYTES, &os_error);
  if (page == NULL) {
    return os_error;
  }
  flip(page, offset, bit);
  if (pair->durable != NULL && pair->durable != zeros) {
    flip(pair->durable, offset, bit);
  }
  mark_dirty(inode, offset / PAGE_BYTES, offset / PAGE_BYTES + 1);
  return 0;
}

turb_status turb_simulation_flip_bit(turb_simulation *simulation, const char *path, uint64_t offset, uint32_t bit, turb_error *err) {
  struct inode *inode = NULL;
  mutex_lock(&simulation->mutex);
  int os_error = path_find(simulation, path, &inode);
  bool beyond = false;
  if (os_error == 0) {
    beyond = inode->folder || offset >= inode->size || bit > 7;
    if (!beyond) {
      os_error = pages_reserve(inode, pages_of(inode->size));
    }
    if (!beyond && os_error == 0) {
      os_error = flip_file(inode, offset, bit);
    }
  }
  mutex_unlock(&simulation->mutex);
  if (beyond) {
    return status_set_file(err, TURB_INVALID, path, offset, "no bit %u of a byte of a file is there to be flipped", bit);
  }
  return os_error == 0 ? TURB_OK : status_from_errno(err, os_error, "flip a bit", path, offset);
}

turb_status turb_simulation_truncate(turb_simulation *simulation, const char *path, uint64_t size_bytes, turb_error *err) {
  struct inode *inode = NULL;
  mutex_lock(&simulation->mutex);
  int os_error = path_find(simulation, path, &inode);
  if (os_error == 0) {
    os_error = inode->folder ? EISDIR : truncate_file(inode, size_bytes);
  }
  if (os_error == 0) {
    sync_file(inode);
  }
  mutex_unlock(&simulation->mutex);
  return os_error == 0 ? TURB_OK : status_from_errno(err, os_error, "truncate", path, size_bytes);
}

void turb_simulation_set_capacity(turb_simulation *simulation, uint64_t capacity_bytes) {
  mutex_lock(&simulation->mutex);
  simulation->capacity_bytes = capacity_bytes;
  mutex_unlock(&simulation->mutex);
}

/* The walk of turb_simulation_list: the first path behind `after`. */
struct listing {
  char after[PATH_BYTES], path[PATH_BYTES], best[PATH_BYTES];
  uint64_t size;
  bool found;
};

static void list_files(const struct inode *folder, size_t prefix, struct listing *listing) {
  for (struct list *link = list_first(&folder->entries); link != NULL; link = list_next(&folder->entries, link)) {
    const struct entry *entry = LIST_ENTRY(link, struct entry, link);
    const size_t length = strlen(entry->name);
    if (entry->now == NULL || prefix + length + 2 > PATH_BYTES) {
      continue;
    }
    memcpy(listing->path + prefix, entry->name, length + 1);
    if (entry->now->folder) {
      listing->path[prefix + length] = '/';
      list_files(entry->now, prefix + length + 1, listing);
    } else if (strcmp(listing->path, listing->after) > 0 && (!listing->found || strcmp(listing->path, listing->best) < 0)) {
      memcpy(listing->best, listing->path, prefix + length + 1);
      listing->size = entry->now->size;
      listing->found = true;
    }
  }
}

void turb_simulation_list(turb_simulation *simulation, void (*each)(void *context, const char *path, uint64_t size_bytes), void *context) {
  /* One walk for each file: no memory is needed, and the caller's function may do anything with the disk. */
  struct listing listing = {.found = false};
  do {
    listing.found = false;
    mutex_lock(&simulation->mutex);
    list_files(simulation->root, 0, &listing);
    mutex_unlock(&simulation->mutex);
    if (listing.found) {
      each(context, listing.best, listing.size);
      memcpy(listing.after, listing.best, PATH_BYTES);
    }
  } while (listing.found);
}
