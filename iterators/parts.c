/* parts.h has the contract, the states and the invariants. */
#include "iterators/parts.h"

#include <assert.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "iterators/cursor_parts.h"
#include "sstable/stream.h"

#define LOADS         16u /* at most 32 */
#define HOLDS         96u
#define AHEAD_FRAMES  8u
#define SET_BYTES_MAX (4u << 20) /* a set pins no more than that (nor a thirty-second of the budget), but for its first entry */

/* A lane of rows, alive while its run stands on it or a set holds one of its pieces. */
struct row_lane {
  const turb_allocator *allocator;
  struct lane *lane;
  uint32_t references;
  uint32_t handed_out;
};

struct held {
  struct cache_pin pin;
  struct table *table;   /* of the pin */
  struct row_lane *lane; /* or a piece of it, named by pin.data */
  bool of_before;        /* in the set's list, though the set before has entries in it */
};

/* Memory that a run stands on, and the first and last set (by number) with entries in it; 0: none. */
struct standing {
  struct held held;
  uint64_t used_first, used_last;
};

#define ALONE     UINT32_MAX
#define ALL_LOADS (UINT32_MAX >> (32 - LOADS))

/* Where a run stands. What every seek looks at is first: a thousand iterators are more than caches hold. */
struct run_rows {
  const struct source *source;
  uint64_t first_row, end_row;
  struct row_lane *lane;      /* streaming: of `source` */
  const struct source *paged; /* streaming, but the budget was too short for a lane of this source */
  uint32_t depth;             /* frames to read ahead */
  uint32_t left_in_set;       /* streaming: pieces that the set in hand uses and left behind */
  uint32_t rows_per_block, block_bytes, stride;
  bool linear; /* row n of the frame is at n * stride */
  struct standing frame;
};

struct run_attributes {
  const struct source *source;
  struct standing chunk;
  uint64_t first, end; /* bytes of the attribute area */
};

struct pending {
  struct load *load; /* made when it is needed first */
  const struct source *source;
  enum unit_kind kind;
  uint32_t ordinal; /* frame or chunk; ALONE: one row or attribute by itself */
  uint64_t place;   /* of that: row, or offset in the attribute area */
  bool wanted;      /* an entry waits for it; else it is read ahead, and when that fails nobody hears of it */
};

/* What every seek looks at comes first. */
struct parts {
  struct cursor_context *context;
  struct parts_options options;
  struct run_rows *rows;
  struct run_attributes *attributes;
  struct held *held[2]; /* room for HOLDS, and for what was left while a set was dropped: a frame and a chunk a run */
  uint32_t held_count[2];
  uint32_t set;    /* which hold list the set being resolved has */
  uint32_t at;     /* entries of it resolved so far */
  uint64_t number; /* of the set, from 1 */
  uint64_t set_bytes, set_bytes_max;
  uint64_t standing_bytes; /* of cached frames and chunks that runs stand on; what no entry lies in is let go above set_bytes_max */
  uint32_t victim;         /* the load that gives way next */
  uint32_t busy;           /* bit i: pending[i] has a unit, row or attribute */
  bool resolving;
  bool sought;      /* no set was READY since the last seek */
  bool alone;       /* the set in hand is one entry, read by its own pages */
  bool starved;     /* a load of the set in hand met a short budget: nothing is read ahead until the set is there */
  turb_error error; /* its status shares a line with what is before */
  struct pending pending[LOADS];
};

/* ---- holding ---- */

static void lane_drop(struct row_lane *lane) {
  if (!lane || --lane->references)
    return;
  lane_close(lane->lane);
  mem_free(lane->allocator, lane, sizeof *lane);
}

static void held_release(struct held *held) {
  if (held->lane) {
    lane_release(held->lane->lane, held->pin.data);
    held->lane->handed_out--;
    lane_drop(held->lane);
  } else if (held->pin.data) {
    load_pin_release(held->table, &held->pin);
  }
  *held = (struct held){0};
}

static void release_set(struct parts *self, uint32_t set) {
  for (uint32_t i = 0; i < self->held_count[set]; i++)
    held_release(&self->held[set][i]);
  self->held_count[set] = 0;
}

static bool has_room(const struct parts *self) {
  return self->held_count[self->set] < HOLDS;
}

/* Takes over what the caller held. */
static void hold(struct parts *self, struct held *held) {
  if (!held->pin.data)
    return;
  assert(has_room(self));
  self->set_bytes += held->pin.size;
  self->held[self->set][self->held_count[self->set]++] = *held;
  *held = (struct held){0};
}

static inline void use(const struct parts *self, struct standing *standing) {
  standing->used_last = self->number;
  if (!standing->used_first)
    standing->used_first = self->number;
}

static bool is_used(const struct parts *self, const struct standing *standing) {
  return standing->used_last && standing->used_last + 1 >= self->number;
}

/* Leaves memory: it stays with the set in hand when this one or the one before has entries in it. True when it does. */
static bool leave(struct parts *self, struct standing *standing) {
  const bool stays = is_used(self, standing) && standing->held.pin.data;
  if (!standing->held.lane)
    self->standing_bytes -= standing->held.pin.size;
  if (stays) {
    standing->held.of_before = standing->used_first < self->number;
    hold(self, &standing->held);
  } else {
    held_release(&standing->held);
  }
  *standing = (struct standing){0};
  return stays;
}

/* The set in hand is dropped: what the one before has entries in goes over to its list. */
static void drop_set(struct parts *self) {
  const uint32_t set = self->set;
  for (uint32_t i = 0; i < self->held_count[set]; i++) {
    struct held *held = &self->held[set][i];
    if (!held->of_before) {
      held_release(held);
      continue;
    }
    assert(self->held_count[set ^ 1] < HOLDS + 2 * self->options.run_count);
    self->held[set ^ 1][self->held_count[set ^ 1]++] = *held;
  }
  self->held_count[set] = 0;
}

/* ---- loads ---- */

/* The next of the loads whose bits *left still has; NULL: none. */
static struct pending *next_busy(struct parts *self, uint32_t *left) {
  if (!*left)
    return NULL;
  struct pending *p = &self->pending[__builtin_ctz(*left)];
  *left &= *left - 1;
  return p;
}

static struct pending *find_pending(struct parts *self, const struct source *source, enum unit_kind kind, uint32_t ordinal,
                                    uint64_t place) {
  uint32_t left = self->busy;
  for (struct pending *p; (p = next_busy(self, &left)) != NULL;)
    if (p->source == source && p->kind == kind && p->ordinal == ordinal && p->place == place)
      return p;
  return NULL;
}

static void pending_forget(struct parts *self, struct pending *p) {
  load_reset(p->load);
  self->busy &= ~(1u << (p - self->pending));
}

/* Makes room among busy loads for what an entry waits for: another gives way each time, so that what one entry waits for stays. */
static void steal_pending(struct parts *self) {
  struct pending *victim = &self->pending[self->victim++ % LOADS];
  while (self->alone && victim->ordinal == ALONE) /* two at most, which the entry in hand needs */
    victim = &self->pending[self->victim++ % LOADS];
  pending_forget(self, victim);
}

/* A load for a unit, row or attribute. NULL, and an error, when there is no memory for one. */
static struct pending *take_pending(struct parts *self, const struct source *source, enum unit_kind kind, uint32_t ordinal,
                                    uint64_t place) {
  if (self->busy == ALL_LOADS)
    steal_pending(self);
  const uint32_t i = (uint32_t)__builtin_ctz(~self->busy);
  struct pending *p = &self->pending[i];
  status_forget(&self->error);
  if (!p->load && load_create(self->context->reads, self->context->allocator, &p->load, &self->error) != TURB_OK)
    return NULL;
  self->busy |= 1u << i;
  p->source = source;
  p->kind = kind;
  p->ordinal = ordinal;
  p->place = place;
  p->wanted = false;
  return p;
}

static bool is_resident(const struct source *source, enum unit_kind kind, uint32_t ordinal) {
  return cache_holds(table_directory(source->table), table_unit(source->table, kind, ordinal));
}

static unsigned load_flags_of(const struct parts *self) {
  return self->context->fill_cache && !self->options.streaming ? LOAD_FILL_CACHE : 0;
}

/* Starts to read a unit unless it is resident or on its way. */
static void read_ahead(struct parts *self, const struct source *source, enum unit_kind kind, uint32_t ordinal) {
  if (self->starved || self->busy == ALL_LOADS || ordinal >= table_unit_count(source->table, kind) ||
      find_pending(self, source, kind, ordinal, 0))
    return;
  if (is_resident(source, kind, ordinal))
    return;
  struct pending *p = take_pending(self, source, kind, ordinal, 0);
  if (p)
    (void)load_unit(p->load, source->table, kind, ordinal, load_flags_of(self));
}

/* Lets go of memory that runs stand on without an entry in it: it is mostly still resident when they go on. */
static bool shed_standing(struct parts *self) {
  bool any = false;
  for (uint32_t i = 0; i < self->options.run_count; i++) {
    struct run_rows *rows = &self->rows[i];
    struct run_attributes *attributes = &self->attributes[i];
    if (!rows->lane && rows->source && !is_used(self, &rows->frame)) {
      (void)leave(self, &rows->frame);
      rows->source = NULL;
      any = true;
    }
    if (attributes->source && !is_used(self, &attributes->chunk)) {
      (void)leave(self, &attributes->chunk);
      attributes->source = NULL;
      any = true;
    }
  }
  return any;
}

/* The budget is short for a load: lets go of what can be spared. *waits: reads ahead are on their way, whose memory will be free. */
static bool shed(struct parts *self, const struct pending *but, bool *waits) {
  bool any = shed_standing(self);
  *waits = false;
  uint32_t left = self->busy;
  for (struct pending *p; (p = next_busy(self, &left)) != NULL;) {
    if (p == but)
      continue;
    if (load_state(p->load) == LOAD_WAITING) {
      *waits = true;
    } else {
      pending_forget(self, p);
      any = true;
    }
  }
  return any;
}

/* A run stands on what arrived. */
static void stand(struct parts *self, struct standing *standing, const struct held *arrived) {
  standing->held = *arrived;
  use(self, standing);
  self->standing_bytes += arrived->pin.size;
  if (self->standing_bytes > self->set_bytes_max)
    (void)shed_standing(self);
}

/* Brings a unit: READY with a pin in *held. */
static turb_state need_unit(struct parts *self, const struct source *source, enum unit_kind kind, uint32_t ordinal, struct held *held) {
  struct pending *p = find_pending(self, source, kind, ordinal, 0);
  if (p && !p->wanted && load_state(p->load) == LOAD_FAILED) {
    pending_forget(self, p);
    p = NULL;
  }
  if (!p) {
    if (cache_pin(table_directory(source->table), table_unit(source->table, kind, ordinal), &held->pin)) {
      held->table = source->table;
      return TURB_READY;
    }
    p = take_pending(self, source, kind, ordinal, 0);
    if (!p)
      return TURB_FAILED;
    (void)load_unit(p->load, source->table, kind, ordinal, load_flags_of(self));
  }
  p->wanted = true;
  if (load_is_short(p->load)) {
    bool waits;
    self->starved = true; /* else what is read ahead takes the room of what is read for now, again and again */
    if (shed(self, p, &waits)) {
      load_reset(p->load);
      (void)load_unit(p->load, source->table, kind, ordinal, load_flags_of(self));
    }
    if (waits && load_is_short(p->load)) {
      pending_forget(self, p);
      return TURB_PENDING; /* and is tried again when those are there */
    }
  }
  const enum load_state state = load_state(p->load);
  if (state == LOAD_WAITING)
    return TURB_PENDING;
  turb_state result = TURB_READY;
  if (state == LOAD_READY) {
    const void *data;
    load_take_pin(p->load, &held->pin, &data);
    held->table = source->table;
  } else {
    status_forget(&self->error);
    (void)load_error(p->load, &self->error);
    result = TURB_FAILED;
  }
  pending_forget(self, p);
  return result;
}

/* ---- a row or an attribute alone ---- */

static void hold_alone(struct parts *self, struct pending *p) {
  struct held held = {.table = p->source->table};
  const void *bytes;
  load_take_pin(p->load, &held.pin, &bytes);
  hold(self, &held);
  pending_forget(self, p);
}

/* Goes on with a load of one row or attribute: READY with its bytes. Those of an entry whose row and attributes both come alone are held once
 * both are there. */
static turb_state settle_alone(struct parts *self, struct pending *p, const void **bytes) {
  const enum load_state state = load_state(p->load);
  if (state == LOAD_WAITING)
    return TURB_PENDING;
  if (state == LOAD_READY) {
    *bytes = load_data(p->load, NULL);
    if (!self->alone)
      hold_alone(self, p);
    return TURB_READY;
  }
  status_forget(&self->error);
  (void)load_error(p->load, &self->error);
  pending_forget(self, p);
  return TURB_FAILED;
}

/* The entry is there. */
static void hold_all_alone(struct parts *self) {
  uint32_t left = self->busy;
  for (struct pending *p; (p = next_busy(self, &left)) != NULL;)
    if (p->ordinal == ALONE && load_state(p->load) == LOAD_READY)
      hold_alone(self, p);
}

/* What comes alone met a short budget: by its frame or chunk, then, for which room is made. */
static bool gives_up_alone(struct parts *self, turb_state state) {
  if (state != TURB_FAILED || self->error.status != TURB_BUDGET)
    return false;
  self->sought = self->alone = false;
  status_forget(&self->error);
  return true;
}

/* Whether an entry comes by its own pages: the first after a seek does, unless what it lies in is resident or on its way. Who goes on from
 * there gets frames. */
static bool comes_alone(struct parts *self, const struct source *source, enum unit_kind kind, uint32_t ordinal) {
  return (self->sought || self->alone) && !self->at && !self->options.streaming && !is_resident(source, kind, ordinal) &&
         !find_pending(self, source, kind, ordinal, 0);
}

/* An iterator that waits or stands pins what its entries lie in. Many of them would pin a frame each for one row, until nothing could move any
 * more: then rows that come alone are not brought with their frames into the cache. */
static unsigned alone_flags_of(const struct parts *self) {
  const struct budget *budget = self->context->budget;
  const bool many = budget_used_for(budget, BUDGET_CURSOR) > budget_limit(budget) / 32;
  return LOAD_POINT | (many ? 0u : load_flags_of(self));
}

static turb_state row_alone(struct parts *self, const struct cursor_ref *ref, const void **row) {
  const uint64_t number = slot_row(ref->slot);
  struct pending *p = find_pending(self, ref->source, UNIT_ROWS, ALONE, number);
  if (!p) {
    p = take_pending(self, ref->source, UNIT_ROWS, ALONE, number);
    if (!p)
      return TURB_FAILED;
    (void)load_row(p->load, ref->source->table, number, ref->slot->row_hash, alone_flags_of(self));
    if (load_is_short(p->load)) /* its frame was to be kept */
      (void)load_row(p->load, ref->source->table, number, ref->slot->row_hash, LOAD_POINT);
  }
  self->alone = true;
  return settle_alone(self, p, row);
}

/* Also one that does not lie within one chunk, wherever it stands in a set. */
static turb_state attribute_alone(struct parts *self, const struct cursor_ref *ref, const void **attributes) {
  if (!has_room(self))
    return TURB_YIELD;
  const uint64_t offset = slot_attribute_offset(ref->slot);
  struct pending *p = find_pending(self, ref->source, UNIT_ATTRIBUTES, ALONE, offset);
  if (!p) {
    p = take_pending(self, ref->source, UNIT_ATTRIBUTES, ALONE, offset);
    if (!p)
      return TURB_FAILED;
    const unsigned flags = self->alone ? alone_flags_of(self) : load_flags_of(self);
    const uint32_t size = slot_attribute_size(ref->slot);
    (void)load_attribute(p->load, ref->source->table, offset, size, ref->slot->attribute_hash, flags);
    if (load_is_short(p->load))
      (void)load_attribute(p->load, ref->source->table, offset, size, ref->slot->attribute_hash, LOAD_POINT);
  }
  return settle_alone(self, p, attributes);
}

/* ---- rows, cached ---- */

static const void *row_in_frame(const struct run_rows *run, uint64_t row) {
  const uint32_t n = (uint32_t)(row - run->first_row);
  const uint8_t *data = run->frame.held.pin.data;
  if (run->linear)
    return data + (size_t)n * run->stride;
  return data + (size_t)(n / run->rows_per_block) * run->block_bytes + (size_t)(n % run->rows_per_block) * run->stride;
}

static turb_state cached_row(struct parts *self, const struct cursor_ref *ref, const void **row) {
  const struct source *source = ref->source;
  struct run_rows *run = &self->rows[source->run];
  const uint64_t number = slot_row(ref->slot);
  if (run->source != source || number < run->first_row || number >= run->end_row) {
    if (!has_room(self))
      return TURB_YIELD;
    uint32_t frame, offset;
    table_locate_row(source->table, number, &frame, &offset);
    if (comes_alone(self, source, UNIT_ROWS, frame)) {
      const turb_state alone = row_alone(self, ref, row);
      if (!gives_up_alone(self, alone))
        return alone;
    }
    struct held arrived = {0};
    const turb_state state = need_unit(self, source, UNIT_ROWS, frame, &arrived);
    if (state == TURB_FAILED && !self->at && self->error.status == TURB_BUDGET) {
      status_forget(&self->error);
      return row_alone(self, ref, row); /* there is no room for its frame, but perhaps for its own pages */
    }
    if (state != TURB_READY) {
      if (state == TURB_PENDING && run->source == source) {
        run->depth = run->depth ? (run->depth * 2 < AHEAD_FRAMES ? run->depth * 2 : AHEAD_FRAMES) : 1;
        for (uint32_t i = 1; i <= run->depth; i++)
          read_ahead(self, source, UNIT_ROWS, frame + i);
      }
      return state;
    }
    (void)leave(self, &run->frame);
    const struct table_shape *shape = table_get_shape(source->table);
    uint32_t count;
    if (run->source != source)
      run->depth = 0;
    run->source = source;
    stand(self, &run->frame, &arrived);
    table_frame_rows(source->table, frame, &run->first_row, &count);
    run->end_row = run->first_row + count;
    run->stride = shape->stride;
    run->rows_per_block = shape->rows_per_block;
    run->block_bytes = shape->block_bytes;
    run->linear = shape->stride * shape->rows_per_block == shape->block_bytes;
  }
  *row = row_in_frame(run, number);
  use(self, &run->frame);
  return TURB_READY;
}

/* ---- rows, streaming ---- */

static turb_state open_lane(struct parts *self, struct run_rows *run, const struct source *source, uint64_t first_row) {
  struct row_lane *lane = mem_alloc_zeroed(self->context->allocator, sizeof *lane);
  if (!lane) {
    (void)status_set(&self->error, TURB_NO_MEMORY, "no memory for a streaming cursor");
    return TURB_FAILED;
  }
  lane->allocator = self->context->allocator;
  lane->references = 1;
  const struct lane_options options = {
      .kind = EXTENT_ROWS,
      .first_ordinal = first_row,
      .last_ordinal = table_get_record(source->table)->puts,
      .piece_bytes = self->context->stream_piece_bytes,
      .depth = 4,
      .use = BUDGET_CURSOR,
      .budget = cursor_stream_budget(self->context),
      .eager = self->context->eager,
  };
  if (lane_open(source->table, self->context->reads, &options, &lane->lane, &self->error) != TURB_OK) {
    mem_free(self->context->allocator, lane, sizeof *lane);
    return TURB_FAILED;
  }
  run->lane = lane;
  run->source = source;
  const struct table_shape *shape = table_get_shape(source->table);
  run->stride = shape->stride;
  run->rows_per_block = shape->rows_per_block;
  run->block_bytes = shape->block_bytes;
  run->linear = shape->stride * shape->rows_per_block == shape->block_bytes;
  run->first_row = run->end_row = first_row;
  return TURB_READY;
}

/* A set leaves no more pieces behind than let the next one move on. */
static bool may_leave_piece(const struct parts *self, const struct run_rows *run) {
  if (!self->at || !is_used(self, &run->frame))
    return true;
  const uint32_t depth = lane_depth(run->lane->lane);
  return run->left_in_set + 2 < depth && run->lane->handed_out < depth;
}

static void leave_piece(struct parts *self, struct run_rows *run) {
  run->left_in_set += leave(self, &run->frame);
  run->first_row = run->end_row; /* it stands on none */
}

static turb_state streamed_row(struct parts *self, const struct cursor_ref *ref, const void **row) {
  const struct source *source = ref->source;
  struct run_rows *run = &self->rows[source->run];
  const uint64_t number = slot_row(ref->slot);
  status_forget(&self->error);
  if (run->paged == source)
    return cached_row(self, ref, row);
  if (!run->lane || run->source != source || number < run->first_row) {
    if (!has_room(self))
      return TURB_YIELD;
    (void)leave(self, &run->frame);
    lane_drop(run->lane);
    run->lane = NULL;
    run->left_in_set = 0; /* another lane, other pieces */
    run->source = NULL;
    if (open_lane(self, run, source, number) != TURB_READY) {
      if (self->error.status != TURB_BUDGET)
        return TURB_FAILED;
      status_forget(&self->error);
      run->paged = source;
      return cached_row(self, ref, row);
    }
  }
  while (number >= run->end_row) {
    if (!has_room(self) || !may_leave_piece(self, run))
      return TURB_YIELD;
    leave_piece(self, run);
    struct piece piece;
    bool at_end = false;
    const enum load_state state = lane_piece(run->lane->lane, &piece, &at_end);
    if (state == LOAD_FAILED) {
      (void)lane_error(run->lane->lane, &self->error);
      return TURB_FAILED;
    }
    if (at_end) {
      (void)status_set_file(&self->error, TURB_CORRUPTION, io_file_path(table_file(source->table)), UINT64_MAX,
                            "a slot names row %llu, beyond the table's rows", (unsigned long long)number);
      return TURB_FAILED;
    }
    if (state == LOAD_WAITING)
      return TURB_PENDING;
    run->lane->references++;
    run->lane->handed_out++;
    run->frame.held = (struct held){.pin = {.data = piece.data, .size = piece.size}, .lane = run->lane};
    run->first_row = piece.first_ordinal;
    run->end_row = piece.first_ordinal + piece.count;
  }
  *row = row_in_frame(run, number);
  use(self, &run->frame);
  if (hash64(*row, self->options.row_bytes, 0) != ref->slot->row_hash) {
    (void)status_set_file(&self->error, TURB_CORRUPTION, io_file_path(table_file(source->table)), table_row_offset(source->table, number),
                          "row %llu does not match its hash", (unsigned long long)number);
    return TURB_FAILED;
  }
  return TURB_READY;
}

/* ---- attributes ---- */

static turb_state table_attributes(struct parts *self, const struct cursor_ref *ref, const void **attributes) {
  const struct source *source = ref->source;
  struct run_attributes *run = &self->attributes[source->run];
  const uint64_t offset = slot_attribute_offset(ref->slot);
  const uint32_t size = slot_attribute_size(ref->slot);
  if (run->source != source || offset < run->first || offset + size > run->end) {
    uint32_t chunk, within, chunk_bytes;
    if (!table_locate_attribute(source->table, offset, size, &chunk, &within, &chunk_bytes))
      return attribute_alone(self, ref, attributes);
    if (comes_alone(self, source, UNIT_ATTRIBUTES, chunk)) {
      self->alone = true;
      const turb_state alone = attribute_alone(self, ref, attributes);
      if (!gives_up_alone(self, alone))
        return alone;
    }
    if (!has_room(self))
      return TURB_YIELD;
    struct held arrived = {0};
    const turb_state state = need_unit(self, source, UNIT_ATTRIBUTES, chunk, &arrived);
    if (state == TURB_FAILED && !self->at && self->error.status == TURB_BUDGET) {
      status_forget(&self->error);
      self->alone = true;
      return attribute_alone(self, ref, attributes);
    }
    if (state != TURB_READY) {
      if (state == TURB_PENDING && run->source == source)
        read_ahead(self, source, UNIT_ATTRIBUTES, chunk + 1);
      return state;
    }
    (void)leave(self, &run->chunk);
    run->source = source;
    stand(self, &run->chunk, &arrived);
    run->first = offset - within;
    run->end = run->first + chunk_bytes;
  }
  *attributes = (const uint8_t *)run->chunk.held.pin.data + (offset - run->first);
  use(self, &run->chunk);
  return TURB_READY;
}

/* ---- sets ---- */

static turb_state resolve_one(struct parts *self, const struct cursor_ref *ref, struct entry_parts *out) {
  const uint32_t size = slot_attribute_size(ref->slot);
  const bool rows = self->options.which & TURB_VECTOR && slot_kind(ref->slot) == SLOT_PUT;
  const bool attributes = self->options.which & TURB_ATTRIBUTES && size;
  *out = (struct entry_parts){.attribute_size = attributes ? size : 0};
  if (ref->source->memtable) {
    if (rows)
      out->vector = memtable_row(ref->source->memtable, slot_row(ref->slot));
    if (attributes)
      out->attributes = memtable_attributes(ref->source->memtable, ref->slot);
    return TURB_READY;
  }
  turb_state row_state = TURB_READY, attribute_state = TURB_READY;
  if (rows)
    row_state = self->options.streaming ? streamed_row(self, ref, &out->vector) : cached_row(self, ref, &out->vector);
  if (row_state == TURB_FAILED)
    return TURB_FAILED;
  if (attributes)
    attribute_state = table_attributes(self, ref, &out->attributes); /* goes out with the row's read */
  return row_state != TURB_READY ? row_state : attribute_state;
}

/* Resolves the refs, one after the other in walking order (`step` 1 or -1), whose rows lie in the cached frame that their run stands on and
 * that need nothing else; returns how many. The rows' first and last lines are asked for while the set is made: otherwise its reader waits
 * for them. */
static uint32_t resolve_in_frame(struct parts *self, const struct cursor_ref *ref, ptrdiff_t step, uint32_t count,
                                 struct entry_parts *out) {
  const struct source *source = ref->source;
  if (source->memtable || !(self->options.which & TURB_VECTOR))
    return 0;
  struct run_rows *run = &self->rows[source->run];
  if (run->source != source || run->lane)
    return 0;
  const bool attributes = self->options.which & TURB_ATTRIBUTES;
  const uint64_t first_row = run->first_row, rows = run->end_row - first_row;
  const size_t last_byte = self->options.row_bytes - 1;
  uint32_t n = 0;
  for (; n < count && ref->source == source; n++, ref += step, out += step) {
    const struct slot *slot = ref->slot;
    const uint64_t number = slot_row(slot);
    if (number - first_row >= rows || slot_kind(slot) != SLOT_PUT || (attributes && slot_attribute_size(slot)))
      break;
    const uint8_t *row = row_in_frame(run, number);
    __builtin_prefetch(row);
    __builtin_prefetch(row + last_byte);
    *out = (struct entry_parts){.vector = row};
  }
  if (n)
    use(self, &run->frame);
  return n;
}

/* Reads ahead for entries behind one that waits. */
static void read_ahead_for(struct parts *self, const struct cursor_ref *ref) {
  if (ref->source->memtable)
    return;
  uint32_t ordinal, within, bytes;
  if (self->options.which & TURB_VECTOR && slot_kind(ref->slot) == SLOT_PUT && !self->options.streaming) {
    table_locate_row(ref->source->table, slot_row(ref->slot), &ordinal, &within);
    read_ahead(self, ref->source, UNIT_ROWS, ordinal);
  }
  const uint32_t size = slot_attribute_size(ref->slot);
  if (self->options.which & TURB_ATTRIBUTES && size &&
      table_locate_attribute(ref->source->table, slot_attribute_offset(ref->slot), size, &ordinal, &within, &bytes))
    read_ahead(self, ref->source, UNIT_ATTRIBUTES, ordinal);
}

void parts_begin(struct parts *self) {
  if (self->resolving) {
    drop_set(self);
  } else {
    self->set ^= 1;
    self->number++;
  }
  for (uint32_t i = 0; i < self->options.run_count && self->options.streaming; i++)
    self->rows[i].left_in_set = 0;
  self->resolving = true;
  self->alone = false;
  self->at = 0;
  self->set_bytes = 0;
}

turb_state parts_resolve(struct parts *self, const struct cursor_ref *refs, uint32_t count, bool backward, struct entry_parts *out,
                         uint32_t *resolved) {
  turb_state state = TURB_READY;
  while (self->at < count && (!self->at || (!self->alone && self->set_bytes < self->set_bytes_max))) {
    uint32_t i = backward ? count - 1 - self->at : self->at;
    const uint32_t together = resolve_in_frame(self, &refs[i], backward ? -1 : 1, count - self->at, &out[i]);
    self->at += together;
    if (self->at == count)
      break;
    i = backward ? i - together : i + together;
    state = resolve_one(self, &refs[i], &out[i]);
    if (state != TURB_READY)
      break;
    self->at++;
  }
  *resolved = self->at;
  if (state == TURB_PENDING && !self->alone)
    for (uint32_t j = self->at + 1; j < count; j++)
      read_ahead_for(self, &refs[backward ? count - 1 - j : j]);
  if (state == TURB_FAILED && !self->at)
    return TURB_FAILED;
  if (!self->at)
    return state;
  hold_all_alone(self);
  release_set(self, self->set ^ 1);
  self->resolving = self->starved = self->sought = false;
  return TURB_READY;
}

void parts_reset(struct parts *self) {
  self->sought = true;
  uint32_t left = self->busy;
  for (struct pending *p; (p = next_busy(self, &left)) != NULL;)
    if (p->ordinal == ALONE || load_state(p->load) == LOAD_FAILED) /* nobody will ask for it; whoever needs the unit now reads it again */
      pending_forget(self, p);
  for (uint32_t i = 0; i < self->options.run_count; i++) {
    struct run_rows *run = &self->rows[i];
    run->depth = 0;
    run->paged = NULL;
    if (!self->options.streaming)
      continue;
    lane_drop(run->lane); /* the piece keeps its lane */
    run->lane = NULL;
  }
}

void parts_prefetch(const struct parts *self, uint32_t depth) {
  if (depth == 0) {
    prefetch_lines(self, CURSOR_LINES);
  } else if (depth == 1) {
    prefetch_lines(self->rows, 2);
    __builtin_prefetch(&self->held[0][0]);
    __builtin_prefetch(&self->held[1][0]);
    __builtin_prefetch(&self->pending[0]);
  } else if (depth == 2 && self->busy) {
    prefetch_lines(self->pending[__builtin_ctz(self->busy)].load, 2);
  }
}

turb_status parts_error(const struct parts *self, turb_error *err) {
  return status_copy(err, &self->error);
}

/* ---- life ---- */

turb_status parts_open(struct cursor_context *context, const struct parts_options *options, struct parts **parts, turb_error *err) {
  *parts = NULL;
  struct parts *self = mem_alloc_zeroed(context->allocator, sizeof *self);
  if (!self)
    return status_set(err, TURB_NO_MEMORY, "no memory for a cursor");
  self->context = context;
  self->options = *options;
  const uint64_t share = budget_limit(context->budget) / 32;
  self->set_bytes_max = share < SET_BYTES_MAX ? share : SET_BYTES_MAX;
  turb_status status = TURB_OK;
  self->rows = mem_alloc_array(context->allocator, options->run_count, sizeof *self->rows);
  self->attributes = mem_alloc_array(context->allocator, options->run_count, sizeof *self->attributes);
  const uint32_t room = HOLDS + 2 * options->run_count;
  for (int set = 0; set < 2; set++)
    self->held[set] = mem_alloc_array(context->allocator, room, sizeof **self->held);
  if (!self->rows || !self->attributes || !self->held[0] || !self->held[1])
    status = status_set(err, TURB_NO_MEMORY, "no memory for a cursor over %u runs", options->run_count);
  if (status != TURB_OK) {
    parts_close(self);
    return status;
  }
  *parts = self;
  return TURB_OK;
}

void parts_close(struct parts *self) {
  if (!self)
    return;
  const turb_allocator *allocator = self->context->allocator;
  for (uint32_t i = 0; i < LOADS; i++)
    load_destroy(self->pending[i].load);
  release_set(self, 0);
  release_set(self, 1);
  for (uint32_t i = 0; i < self->options.run_count; i++) {
    if (self->rows) {
      held_release(&self->rows[i].frame.held);
      lane_drop(self->rows[i].lane);
    }
    if (self->attributes)
      held_release(&self->attributes[i].chunk.held);
  }
  for (int set = 0; set < 2; set++)
    mem_free(allocator, self->held[set], (HOLDS + 2 * self->options.run_count) * sizeof *self->held[set]);
  mem_free(allocator, self->rows, self->options.run_count * sizeof *self->rows);
  mem_free(allocator, self->attributes, self->options.run_count * sizeof *self->attributes);
  mem_free(allocator, self, sizeof *self);
}
