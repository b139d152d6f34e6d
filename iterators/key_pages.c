/* key_pages.h has the contract and the invariants. */
#include "iterators/key_pages.h"

#include "base/alloc.h"

#define ALL_BUSY       ((1u << KEY_PAGES_AHEAD) - 1)
#define BUDGET_SHARE   64u /* of the budget, that a tree's pages ahead may take */
#define WARM_LINES     8u  /* of slots, and of keys, of the page that a walk enters next */
#define WARM_KEY_LINES 8u

/* ---- index pages ---- */

static void forget_next_index(struct key_pages *self) {
  if (self->next_index)
    load_reset(self->next_index);
  self->next_index_page = KEY_PAGES_NONE;
}

/* What was read ahead becomes the page at hand. */
static void take_next_index(struct key_pages *self) {
  struct load *load = self->index;
  self->index = self->next_index;
  self->next_index = load;
  self->index_page = KEY_PAGES_NONE;
  forget_next_index(self);
}

turb_state key_pages_index(struct key_pages *self, uint32_t page, const struct slot_page **index, turb_error *err) {
  if (self->index_page == page) {
    *index = load_data(self->index, NULL);
    return TURB_READY;
  }
  if (self->next_index_page == page && load_state(self->next_index) != LOAD_FAILED) {
    take_next_index(self);
  } else if (self->index_page != KEY_PAGES_NONE || load_state(self->index) == LOAD_IDLE) {
    load_reset(self->index);
    self->index_page = KEY_PAGES_NONE;
    (void)load_unit(self->index, self->table, UNIT_INDEX, page, LOAD_FILL_CACHE);
  }
  const enum load_state state = load_state(self->index);
  if (state == LOAD_WAITING)
    return TURB_PENDING;
  if (state == LOAD_READY) {
    self->index_page = page;
    *index = load_data(self->index, NULL);
    return TURB_READY;
  }
  status_forget(err);
  (void)load_error(self->index, err);
  load_reset(self->index);
  return TURB_FAILED;
}

/* The index page beside the one at hand, when it is there; else starts to read it. */
static const struct slot_page *index_beside(struct key_pages *self, enum key_walk walk) {
  const uint32_t page = self->index_page + (uint32_t)walk;
  if (page >= table_index_page_count(self->table))
    return NULL;
  if (self->next_index_page != page) {
    if (!self->next_index && load_create(self->context->reads, self->context->allocator, &self->next_index, NULL) != TURB_OK)
      return NULL;
    forget_next_index(self);
    self->next_index_page = page;
    (void)load_unit(self->next_index, self->table, UNIT_INDEX, page, LOAD_FILL_CACHE);
  }
  return load_state(self->next_index) == LOAD_READY ? load_data(self->next_index, NULL) : NULL;
}

/* ---- loads of key pages ---- */

static struct key_page_load *find(struct key_pages *self, uint32_t ordinal) {
  for (uint32_t left = self->busy; left; left &= left - 1) {
    struct key_page_load *load = &self->loads[__builtin_ctz(left)];
    if (load->ordinal == ordinal)
      return load;
  }
  return NULL;
}

static void forget(struct key_pages *self, struct key_page_load *load) {
  load_reset(load->load);
  load->wanted = false;
  self->busy &= ~(1u << (load - self->loads));
  self->context->pages_ahead--;
}

/* Whether the tree's cursors may hold one more page ahead of their walks: each of many would not miss it, and together they would leave no room
 * for what is wanted. */
static bool may_go_ahead(const struct key_pages *self) {
  return ((uint64_t)self->context->pages_ahead + 1) * SLOT_PAGE_BYTES <= budget_limit(self->context->budget) / BUDGET_SHARE;
}

/* A load for the page, in the place of an idle one, or with `steal` of one whose page nobody waits for. NULL: all are busy, or it may not be read
 * ahead, or there is no memory. */
static struct key_page_load *take(struct key_pages *self, uint32_t ordinal, bool steal, turb_error *err) {
  if (!steal && (self->busy == ALL_BUSY || !may_go_ahead(self)))
    return NULL;
  if (self->busy == ALL_BUSY)
    forget(self, &self->loads[0]);
  const uint32_t i = (uint32_t)__builtin_ctz(~self->busy);
  struct key_page_load *load = &self->loads[i];
  if (!load->load && load_create(self->context->reads, self->context->allocator, &load->load, err) != TURB_OK)
    return NULL;
  self->busy |= 1u << i;
  self->context->pages_ahead++;
  load->ordinal = ordinal;
  return load;
}

static void start(struct key_pages *self, struct key_page_load *load, const struct index_slot *slot) {
  const unsigned flags = (self->context->fill_cache ? LOAD_FILL_CACHE : 0u) | (slot->units == 2 ? LOAD_TWO_UNITS : 0u);
  (void)load_unit(load->load, self->table, UNIT_KEYS, load->ordinal, flags);
}

/* The budget is short: less is read ahead from now on. */
static void shrink(struct key_pages *self) {
  self->depth_max = self->depth_max > 1 ? self->depth_max / 2 : 1;
  if (self->depth > self->depth_max)
    self->depth = self->depth_max;
}

/* Starts reads of the pages that follow `slot` of the index page at hand in the walk, and of the one beside it where they go beyond. */
static void read_ahead(struct key_pages *self, uint16_t slot, enum key_walk walk) {
  const struct cache_directory *directory = table_directory(self->table);
  const struct slot_page *index = key_pages_at_hand(self);
  uint32_t at = slot + (uint32_t)walk; /* beyond the last, or before 0: not below slot_count */
  const uint32_t left = walk == KEY_WALK_FORWARD ? index->slot_count - 1u - slot : slot;
  if (self->depth && left < 3 * KEY_PAGES_AHEAD)
    (void)index_beside(self, walk); /* to be there when its pages are asked for */
  bool beside = false;
  for (uint32_t i = 0; i < self->depth; i++, at += (uint32_t)walk) {
    if (at >= index->slot_count) {
      if (beside || !(index = index_beside(self, walk)))
        return;
      beside = true;
      at = walk == KEY_WALK_FORWARD ? 0 : index->slot_count - 1u;
    }
    const struct index_slot *next = index_slot_at(index, at);
    const uint32_t ordinal = table_key_ordinal(self->table, next->page);
    if (ordinal == UINT32_MAX || find(self, ordinal) || cache_holds(directory, table_unit(self->table, UNIT_KEYS, ordinal)))
      continue;
    struct key_page_load *load = take(self, ordinal, false, NULL);
    if (!load)
      return;
    start(self, load, next);
    if (load_is_short(load->load)) {
      forget(self, load);
      shrink(self);
      return;
    }
  }
}

/* The budget is short for `load`: what is read ahead gives way, and less is read ahead from now on. True when something gave way. *waits:
 * reads are on their way, whose memory will be free. */
static bool shed(struct key_pages *self, const struct key_page_load *load, bool *waits) {
  bool any = false;
  *waits = false;
  shrink(self);
  for (uint32_t left = self->busy; left; left &= left - 1) {
    struct key_page_load *other = &self->loads[__builtin_ctz(left)];
    if (other == load)
      continue;
    if (load_state(other->load) == LOAD_WAITING) {
      *waits = true;
    } else {
      forget(self, other);
      any = true;
    }
  }
  return any;
}

/* A load for a page that is not resident; that of a read ahead that failed goes. */
static struct key_page_load *want(struct key_pages *self, uint32_t ordinal, const struct index_slot *slot, turb_error *err) {
  struct key_page_load *load = find(self, ordinal);
  if (load && (load->wanted || load_state(load->load) != LOAD_FAILED)) {
    load->wanted = true;
    return load;
  }
  if (load)
    forget(self, load);
  load = take(self, ordinal, true, err);
  if (!load)
    return NULL;
  load->wanted = true;
  start(self, load, slot);
  return load;
}

turb_state key_pages_get(struct key_pages *self, uint16_t slot, enum key_walk walk, struct cache_pin *pin, turb_error *err) {
  const struct index_slot *index_slot = index_slot_at(key_pages_at_hand(self), slot);
  const uint32_t ordinal = table_key_ordinal(self->table, index_slot->page);
  if (ordinal == UINT32_MAX) {
    status_forget(err);
    (void)status_set_file(err, TURB_CORRUPTION, io_file_path(table_file(self->table)), (uint64_t)index_slot->page * SLOT_PAGE_BYTES,
                          "the page index names a page outside the key area");
    return TURB_FAILED;
  }
  struct key_page_load *load = find(self, ordinal);
  const bool again = load && load->wanted;
  if (!load && cache_pin(table_directory(self->table), table_unit(self->table, UNIT_KEYS, ordinal), pin))
    return TURB_READY;
  status_forget(err);
  load = want(self, ordinal, index_slot, err);
  if (!load)
    return TURB_FAILED;
  if (walk && !again && load_state(load->load) == LOAD_WAITING) { /* too late: more is read ahead from now on */
    const uint32_t depth = self->depth ? self->depth * 2 : 1;
    self->depth = depth < self->depth_max ? depth : self->depth_max;
    read_ahead(self, slot, walk);
  }
  if (load_is_short(load->load)) {
    bool waits;
    if (shed(self, load, &waits)) {
      load_reset(load->load);
      start(self, load, index_slot);
    }
    if (waits && load_is_short(load->load)) {
      forget(self, load); /* and is tried again when those are there */
      return TURB_PENDING;
    }
  }
  const enum load_state state = load_state(load->load);
  if (state == LOAD_WAITING)
    return TURB_PENDING;
  if (state == LOAD_FAILED) {
    (void)load_error(load->load, err);
    forget(self, load);
    return TURB_FAILED;
  }
  const void *data;
  load_take_pin(load->load, pin, &data);
  forget(self, load);
  if (walk && self->depth) {
    self->depth_max += self->depth_max < KEY_PAGES_AHEAD - 1;
    read_ahead(self, slot, walk);
  }
  return TURB_READY;
}

void key_pages_warm_next(const struct key_pages *self, uint16_t slot, enum key_walk walk, const struct slot_page *page) {
  const struct slot_page *index = key_pages_at_hand(self);
  const uint32_t next = slot + (uint32_t)walk;
  if (!walk || next >= index->slot_count)
    return;
  const uint32_t ordinal = table_key_ordinal(self->table, index_slot_at(index, next)->page);
  if (ordinal == UINT32_MAX)
    return;
  const uint8_t *slots = cache_prefetch(table_directory(self->table), table_unit(self->table, UNIT_KEYS, ordinal));
  if (!slots)
    return;
  __builtin_prefetch(slots); /* the header */
  const bool backward = walk == KEY_WALK_BACKWARD;
  const uint8_t *keys = slots + slot_at(page, backward ? page->slot_count - 1u : 0)->key_offset; /* about where this page's are */
  if (backward) {
    slots = (const uint8_t *)slot_at((const struct slot_page *)slots, page->slot_count) - WARM_LINES * CACHE_LINE_BYTES;
    keys -= (WARM_KEY_LINES - 1) * CACHE_LINE_BYTES;
  }
  prefetch_lines(slots, WARM_LINES);
  prefetch_lines(keys, WARM_KEY_LINES);
}

/* ---- life ---- */

void key_pages_stop(struct key_pages *self) {
  self->depth = 0;
  while (self->busy)
    forget(self, &self->loads[__builtin_ctz(self->busy)]);
  forget_next_index(self);
  if (self->index_page == KEY_PAGES_NONE)
    load_reset(self->index);
}

void key_pages_retarget(struct key_pages *self, struct table *table) {
  key_pages_stop(self);
  load_reset(self->index);
  self->index_page = KEY_PAGES_NONE;
  self->depth_max = KEY_PAGES_AHEAD - 1;
  self->table = table;
}

turb_status key_pages_open(struct key_pages *self, struct cursor_context *context, turb_error *err) {
  *self = (struct key_pages){.context = context, .index_page = KEY_PAGES_NONE, .next_index_page = KEY_PAGES_NONE};
  return load_create(context->reads, context->allocator, &self->index, err);
}

void key_pages_close(struct key_pages *self) {
  self->context->pages_ahead -= (uint32_t)__builtin_popcount(self->busy);
  self->busy = 0;
  load_destroy(self->index);
  load_destroy(self->next_index);
  for (uint32_t i = 0; i < KEY_PAGES_AHEAD; i++)
    load_destroy(self->loads[i].load);
}
