/* Which rows a search looks at, and how they come (search.h).
 *
 * Sources are taken newest first. A table's rows in the key range are cut into segments: stretches of resident frames are scanned where
 * they are, without adding to the cache; what lies between is
 * streamed by a lane, together with short resident stretches in it. While one lane comes to its end the next segment's is opened, so that
 * the device has work at borders of tables.
 *
 *   walk_next: a segment  --resident--> frames pinned one by one --> scan_blocks
 *                         --streamed--> stream: pieces ------------> scan_blocks --> scan_rows: distances --> candidates
 */
#include <string.h>

#include "engine/search.h"
#include "sstable/stream.h"

/* Pieces on their way keep the device busy, and are still in the processor's caches when they are scanned. They are taken in order, so more
 * of them are asked for than the device needs: some wait behind one that comes late. */
#define PIECE_BYTES     (512u << 10)
#define PIECES_MIN      3u
#define PIECES_MAX      16u
#define ISLAND_FRAMES   16u /* a shorter resident stretch is streamed along */
#define RESIDENT_FRAMES 256u
#define GATHERED_ROWS   256u

/* ---- distances and candidates ---- */

/* Rows whose distances are computed together. */
struct scan_rows {
  const struct source *source;
  const void *data; /* at the stride, or NULL: */
  const void *const *pointers;
  const uint64_t *numbers; /* with pointers */
  uint64_t first;          /* row number of data */
  uint32_t count;
};

typedef float four_floats __attribute__((vector_size(16), aligned(4)));
typedef int32_t four_masks __attribute__((vector_size(16)));

static bool is_any(four_masks masks) {
  uint64_t halves[2];
  memcpy(halves, &masks, sizeof halves);
  return (halves[0] | halves[1]) != 0;
}

static four_masks near_four(const float *distances, four_floats threshold) {
  return *(const four_floats *)(const void *)distances <= threshold;
}

/* The first distance from `i` on that is at or below the threshold; count when none. */
static uint32_t next_near(const float *distances, uint32_t i, uint32_t count, float threshold) {
  const four_floats four = {threshold, threshold, threshold, threshold};
  for (; i + 32 <= count; i += 32) {
    four_masks any = {0};
    for (uint32_t j = 0; j < 32; j += 4)
      any |= near_four(distances + i + j, four);
    if (is_any(any))
      break;
  }
  while (i + 4 <= count && !is_any(near_four(distances + i, four)))
    i += 4;
  while (i < count && !(distances[i] <= threshold))
    i++;
  return i;
}

/* A row of a run that ties with the worst hit and stands behind it in the same run loses by its key. */
static bool loses_tie(const struct search_heap *heap, const struct source *source, uint64_t row, float distance) {
  if (heap->count < heap->k || distance < heap->items[0].distance || !source->table)
    return false;
  const struct search_found *worst = &heap->found[heap->items[0].found];
  return worst->source->run == source->run && (source > worst->source || (source == worst->source && row > worst->row));
}

static turb_status take_candidates(struct search *s, uint32_t query, const struct scan_rows *rows, const float *distances,
                                   turb_error *err) {
  const struct search_heap *heap = &s->heaps[query];
  for (uint32_t i = next_near(distances, 0, rows->count, heap->threshold); i < rows->count;
       i = next_near(distances, i + 1, rows->count, heap->threshold)) {
    const uint64_t row = rows->numbers ? rows->numbers[i] : rows->first + i;
    if (loses_tie(heap, rows->source, row, distances[i]))
      continue;
    const turb_status status = search_checks_add(s, rows->source, row, query, distances[i], err);
    if (status != TURB_OK)
      return status;
  }
  return TURB_OK;
}

static void compute(struct search *s, uint32_t first, uint32_t queries, const struct scan_rows *rows) {
  const size_t stride = s->collection->shape.stride;
  if (rows->pointers) {
    for (uint32_t q = 0; q < queries; q++)
      kernel_gather(&s->queries[first + q], rows->pointers, rows->count, s->distances + (size_t)q * rows->count);
  } else if (queries == 1) {
    kernel_scan(&s->queries[first], rows->data, stride, rows->count, s->distances);
  } else {
    kernel_tile(s->query_pointers + first, queries, rows->data, stride, rows->count, s->distances, rows->count);
  }
}

/* All queries against at most chunk_rows rows. */
static turb_status scan_rows(struct search *s, const struct scan_rows *rows, turb_error *err) {
  s->rows += rows->count;
  for (uint32_t first = 0; first < s->query_count; first += SEARCH_BLOCK) {
    const uint32_t left = s->query_count - first, queries = left < SEARCH_BLOCK ? left : SEARCH_BLOCK;
    compute(s, first, queries, rows);
    for (uint32_t q = 0; q < queries; q++) {
      const turb_status status = take_candidates(s, first + q, rows, s->distances + (size_t)q * rows->count, err);
      if (status != TURB_OK)
        return status;
    }
  }
  return TURB_OK;
}

/* Rows side by side at the stride. */
static turb_status scan_run(struct search *s, const struct source *source, const uint8_t *data, uint64_t first, uint64_t count,
                            turb_error *err) {
  turb_status status = TURB_OK;
  for (uint64_t done = 0; done < count && status == TURB_OK;) {
    const uint32_t some = count - done < s->chunk_rows ? (uint32_t)(count - done) : s->chunk_rows;
    const struct scan_rows rows = {
        .source = source, .data = data + done * s->collection->shape.stride, .first = first + done, .count = some};
    status = scan_rows(s, &rows, err);
    done += some;
  }
  return status;
}

/* Rows [first, last) of blocks that lie one behind the other from `data` on, the first of which begins with row `base`. */
static turb_status scan_blocks(struct search *s, const struct source *source, const uint8_t *data, uint64_t base, uint64_t first,
                               uint64_t last, turb_error *err) {
  const struct table_shape *shape = &s->collection->shape;
  const uint64_t per_block = shape->rows_per_block;
  if (per_block * shape->stride == shape->block_bytes) /* nothing between the blocks */
    return scan_run(s, source, data + (first - base) * shape->stride, first, last - first, err);
  turb_status status = TURB_OK;
  for (uint64_t row = first; row < last && status == TURB_OK;) {
    const uint64_t block = (row - base) / per_block, within = (row - base) % per_block;
    const uint64_t count = per_block - within < last - row ? per_block - within : last - row;
    status = scan_run(s, source, data + block * shape->block_bytes + within * shape->stride, row, count, err);
    row += count;
  }
  return status;
}

/* ---- memtables ---- */

static turb_status scan_memtable(struct search *s, const struct source *source, turb_error *err) {
  const struct memtable *memtable = source->memtable;
  const uint64_t rows = memtable_rows(memtable);
  turb_status status = TURB_OK;
  for (uint64_t row = 0; row < rows && status == TURB_OK;) {
    uint64_t count;
    const uint8_t *data = memtable_row_run(memtable, row, &count);
    if (count > rows - row)
      count = rows - row;
    status = scan_run(s, source, data, row, count, err);
    row += count;
  }
  return status;
}

/* The rows of a key range, gathered in key order. */
static turb_status scan_memtable_range(struct search *s, const struct source *source, turb_error *err) {
  const struct memtable *memtable = source->memtable;
  const struct key_bounds *bounds = &s->bounds;
  const void *pointers[GATHERED_ROWS];
  uint64_t numbers[GATHERED_ROWS];
  struct scan_rows rows = {.source = source, .pointers = pointers, .numbers = numbers};
  const struct memtable_node *node =
      bounds->lower.size ? memtable_lower_bound(memtable, bounds->lower, SLOT_SEQUENCE_MAX) : memtable_first(memtable);
  turb_status status = TURB_OK;
  for (; node && status == TURB_OK; node = memtable_next(node)) {
    const struct slot *slot = memtable_node_slot(node);
    if (bounds->upper.size && key_compare(slot_key(slot), slot->key_size, bounds->upper.data, bounds->upper.size) >= 0)
      break;
    if (slot_kind(slot) != SLOT_PUT || slot_sequence(slot) > s->view.sequence)
      continue;
    numbers[rows.count] = slot_row(slot);
    pointers[rows.count++] = memtable_row(memtable, slot_row(slot));
    if (rows.count == GATHERED_ROWS || rows.count == s->chunk_rows) {
      status = scan_rows(s, &rows, err);
      rows.count = 0;
    }
  }
  return status == TURB_OK && rows.count ? scan_rows(s, &rows, err) : status;
}

/* ---- the walk over tables ---- */

struct segment {
  const struct source *source; /* NULL: the end */
  uint64_t first, last;
  bool streamed;
};

struct walk {
  struct search *search;
  uint32_t run, table;         /* the next table */
  const struct source *source; /* the current one: rows [row, end) are left; or NULL */
  uint64_t row, end;
  bool run_entered;
};

/* Does the view see anything of the table? */
static bool is_in_view(const struct table *table, uint64_t sequence) {
  const struct table_record *record = table_get_record(table);
  return (record->bulk_sequence ? record->bulk_sequence : record->smallest_sequence) <= sequence;
}

/* Rows of the table in the key range. */
static turb_status rows_in_bounds(struct search *s, struct table *table, uint64_t *first, uint64_t *last, turb_error *err) {
  const turb_bytes lower = s->bounds.lower, upper = s->bounds.upper;
  const turb_bytes smallest = table_smallest_key(table), largest = table_largest_key(table);
  uint64_t entry;
  turb_status status = TURB_OK;
  *first = 0;
  *last = table_get_record(table)->puts;
  if (lower.size && key_compare(smallest.data, smallest.size, lower.data, lower.size) < 0)
    status = table_row_lower_bound(table, &s->reads, lower, false, first, &entry, err);
  if (status == TURB_OK && upper.size && key_compare(largest.data, largest.size, upper.data, upper.size) >= 0)
    status = table_row_lower_bound(table, &s->reads, upper, false, last, &entry, err);
  return status;
}

/* The next table with rows to look at becomes walk->source; NULL: none is left. */
static turb_status walk_table(struct walk *walk, turb_error *err) {
  struct search *s = walk->search;
  const struct version *version = s->view.version;
  walk->source = NULL;
  while (walk->run < version->run_count) {
    const struct run_view *run = &version->runs[walk->run].view;
    if (!walk->run_entered)
      walk->table = s->bounds.lower.size ? run_view_find(run, s->bounds.lower) : 0;
    walk->run_entered = true;
    const struct table_record *record = walk->table < run->count ? table_get_record(run->sources[walk->table].table) : NULL;
    if (!record ||
        (s->bounds.upper.size && key_compare(record->lower.data, record->lower.size, s->bounds.upper.data, s->bounds.upper.size) >= 0)) {
      walk->run++;
      walk->run_entered = false;
      continue;
    }
    const struct source *source = &run->sources[walk->table++];
    if (!record->puts || !is_in_view(source->table, s->view.sequence))
      continue;
    const turb_status status = rows_in_bounds(s, source->table, &walk->row, &walk->end, err);
    if (status != TURB_OK)
      return status;
    if (walk->row < walk->end) {
      walk->source = source;
      return TURB_OK;
    }
  }
  return TURB_OK;
}

static bool holds_frame(struct table *table, uint32_t frame) {
  return cache_holds(table_directory(table), table_unit(table, UNIT_ROWS, frame));
}

/* The frames from `frame` on that are (resident) or are not, up to `most` and `end`; a stretch that is not goes over short islands that
 * are. */
static uint32_t stretch_end(struct table *table, uint32_t frame, uint32_t end, bool resident) {
  uint32_t island = 0;
  uint32_t at = frame;
  if (resident) {
    while (at < end && at - frame < RESIDENT_FRAMES && holds_frame(table, at))
      at++;
    return at;
  }
  for (; at < end; at++) {
    island = holds_frame(table, at) ? island + 1 : 0;
    if (island == ISLAND_FRAMES)
      return at + 1 - ISLAND_FRAMES;
  }
  return end - island;
}

static turb_status walk_next(struct walk *walk, struct segment *segment, turb_error *err) {
  *segment = (struct segment){0};
  if (!walk->source || walk->row >= walk->end) {
    const turb_status status = walk_table(walk, err);
    if (status != TURB_OK || !walk->source)
      return status;
  }
  struct table *table = walk->source->table;
  uint32_t first_frame, last_frame, offset, count;
  table_locate_row(table, walk->row, &first_frame, &offset);
  table_locate_row(table, walk->end - 1, &last_frame, &offset);
  segment->streamed = !holds_frame(table, first_frame);
  const uint32_t end = stretch_end(table, first_frame, last_frame + 1, !segment->streamed);
  uint64_t first_row;
  table_frame_rows(table, end - 1, &first_row, &count);
  segment->source = walk->source;
  segment->first = walk->row;
  segment->last = first_row + count < walk->end ? first_row + count : walk->end;
  walk->row = segment->last;
  return TURB_OK;
}

/* ---- resident rows ---- */

struct frame {
  struct cache_pin pin;
  uint32_t number;
  uint64_t first, last; /* rows */
};

static bool take_frame(struct table *table, uint32_t number, struct frame *frame) {
  uint32_t count;
  if (!cache_pin(table_directory(table), table_unit(table, UNIT_ROWS, number), &frame->pin))
    return false;
  frame->number = number;
  table_frame_rows(table, number, &frame->first, &count);
  frame->last = frame->first + count;
  return true;
}

/* When a frame left the cache since the walk looked, the rest of the segment is to be streamed. */
static turb_status scan_resident(struct search *s, struct segment *segment, turb_error *err) {
  struct table *table = segment->source->table;
  struct frame frame, next;
  turb_status status = TURB_OK;
  uint32_t number, offset;
  table_locate_row(table, segment->first, &number, &offset);
  if (!take_frame(table, number, &frame)) {
    segment->streamed = true;
    return TURB_OK;
  }
  while (status == TURB_OK) {
    const bool more = frame.last < segment->last;
    const uint64_t last = more ? frame.last : segment->last;
    const bool taken = more && take_frame(table, frame.number + 1, &next);
    status = scan_blocks(s, segment->source, frame.pin.data, frame.first, segment->first, last, err);
    cache_unpin(&frame.pin);
    segment->first = last;
    if (status != TURB_OK || !taken) {
      segment->streamed = more && !taken;
      if (taken)
        cache_unpin(&next.pin);
      break;
    }
    frame = next;
  }
  return status;
}

/* ---- streamed rows ---- */

struct stream { /* a lane over a segment */
  struct segment segment;
  struct lane *lane; /* NULL: none */
  bool begun;        /* `piece` (or the end) came when the first reads were started */
  bool end;
  struct piece piece;
};

static turb_status stream_open(struct search *s, const struct segment *segment, struct stream *stream, turb_error *err) {
  const struct table_shape *shape = &s->collection->shape;
  const uint64_t bytes = ((segment->last - segment->first) / shape->rows_per_block + 1) * shape->block_bytes;
  const uint64_t pieces = bytes / PIECE_BYTES + 1;
  const struct lane_options options = {.kind = EXTENT_ROWS,
                                       .first_ordinal = segment->first,
                                       .last_ordinal = segment->last,
                                       .piece_bytes = bytes < PIECE_BYTES ? (uint32_t)bytes : PIECE_BYTES,
                                       .depth = pieces < PIECES_MIN   ? PIECES_MIN
                                                : pieces > PIECES_MAX ? PIECES_MAX
                                                                      : (uint32_t)pieces,
                                       .use = BUDGET_SEARCH,
                                       .verify = true,
                                       .eager = true};
  *stream = (struct stream){.segment = *segment};
  return lane_open(segment->source->table, &s->reads, &options, &stream->lane, err);
}

static void stream_close(struct stream *stream) {
  lane_close(stream->lane);
  *stream = (struct stream){0};
}

/* The next piece, waited for; *end: there is none. */
static turb_status stream_piece(struct search *s, struct stream *stream, struct piece *piece, bool *end, turb_error *err) {
  if (stream->begun) {
    stream->begun = false;
    *piece = stream->piece;
    *end = stream->end;
    return TURB_OK;
  }
  for (;;) {
    const enum load_state state = lane_piece(stream->lane, piece, end);
    if (state == LOAD_READY)
      return TURB_OK;
    if (state == LOAD_FAILED)
      return lane_error(stream->lane, err);
    assert(state == LOAD_WAITING);
    turb_status status = reads_wait(&s->reads, err);
    if (status == TURB_OK)
      status = search_checks_poll(s, err);
    if (status != TURB_OK)
      return status;
  }
}

static turb_status scan_piece(struct search *s, const struct stream *stream, const struct piece *piece, turb_error *err) {
  const uint64_t piece_last = piece->first_ordinal + piece->count;
  const uint64_t first = piece->first_ordinal > stream->segment.first ? piece->first_ordinal : stream->segment.first;
  const uint64_t last = piece_last < stream->segment.last ? piece_last : stream->segment.last;
  s->rows_streamed += last - first;
  turb_status status = scan_blocks(s, stream->segment.source, piece->data, piece->first_ordinal, first, last, err);
  return status == TURB_OK ? search_checks_poll(s, err) : status;
}

/* Starts the first reads. */
static turb_status stream_begin(struct stream *stream, turb_error *err) {
  const enum load_state state = lane_piece(stream->lane, &stream->piece, &stream->end);
  stream->begun = state == LOAD_READY;
  return state == LOAD_FAILED ? lane_error(stream->lane, err) : TURB_OK;
}

/* The stream's last rows are on their way: the segment behind it is looked up, and when it is streamed too its first reads go out. */
static turb_status open_next(struct search *s, struct walk *walk, struct segment *next, struct stream *ahead, turb_error *err) {
  turb_status status = walk_next(walk, next, err);
  if (status != TURB_OK || !next->source || !next->streamed)
    return status;
  status = stream_open(s, next, ahead, err);
  return status == TURB_OK ? stream_begin(ahead, err) : status;
}

/* Scans a streamed segment; *next is the one behind it, whose stream may have been opened. */
static turb_status scan_streamed(struct search *s, struct walk *walk, struct stream *stream, struct segment *next, struct stream *ahead,
                                 turb_error *err) {
  bool end = false, looked = false;
  turb_status status = TURB_OK;
  const uint64_t ahead_rows = (uint64_t)PIECES_MAX * PIECE_BYTES / s->collection->shape.stride;
  while (status == TURB_OK) {
    struct piece piece;
    status = stream_piece(s, stream, &piece, &end, err);
    if (status != TURB_OK || end)
      break;
    if (!looked && stream->segment.last - piece.first_ordinal <= ahead_rows) {
      looked = true;
      status = open_next(s, walk, next, ahead, err);
    }
    if (status == TURB_OK)
      status = scan_piece(s, stream, &piece, err);
    lane_release(stream->lane, piece.data);
  }
  if (status == TURB_OK && !looked)
    status = walk_next(walk, next, err);
  return status;
}

static turb_status scan_tables(struct search *s, turb_error *err) {
  struct walk walk = {.search = s};
  struct segment segment, next = {0};
  struct stream stream = {0}, ahead = {0};
  turb_status status = walk_next(&walk, &segment, err);
  while (status == TURB_OK && segment.source) {
    if (!segment.streamed)
      status = scan_resident(s, &segment, err);
    if (status == TURB_OK && segment.streamed) {
      if (!stream.lane)
        status = stream_open(s, &segment, &stream, err);
      if (status == TURB_OK)
        status = scan_streamed(s, &walk, &stream, &next, &ahead, err);
      stream_close(&stream);
      stream = ahead;
      ahead = (struct stream){0};
    } else if (status == TURB_OK) {
      status = walk_next(&walk, &next, err);
    }
    segment = next;
  }
  stream_close(&stream);
  stream_close(&ahead);
  return status;
}

turb_status search_scan(struct search *s, turb_error *err) {
  const struct version *version = s->view.version;
  turb_status status = TURB_OK;
  for (uint32_t i = 0; i < version->memtable_count && status == TURB_OK; i++) {
    const struct source *source = &version->memtables[i];
    if (!memtable_rows(source->memtable) || memtable_first_sequence(source->memtable) > s->view.sequence)
      continue;
    const bool bounded = s->bounds.lower.size || s->bounds.upper.size;
    status = bounded ? scan_memtable_range(s, source, err) : scan_memtable(s, source, err);
  }
  if (status == TURB_OK)
    status = scan_tables(s, err);
  return status == TURB_OK ? search_checks_drain(s, err) : status;
}
