/* Sorting and ranking the borders of ranges; see range_borders.h. */
#include "base/range_borders.h"

#include "base/coding.h"

static bool border_before(const struct range_border *a, const struct range_border *b) {
  if (a->prefix != b->prefix) {
    return a->prefix < b->prefix;
  }
  return key_compare(a->key.data, a->key.size, b->key.data, b->key.size) < 0;
}

static bool border_equal(const struct range_border *a, const struct range_border *b) {
  return a->prefix == b->prefix && key_equal(a->key.data, a->key.size, b->key.data, b->key.size);
}

/* A bottom-up merge sort, since libc's takes memory of its own. */
struct range_border *range_borders_sort(struct range_border *from, struct range_border *to, size_t count) {
  for (size_t width = 1; width < count; width *= 2) {
    for (size_t start = 0; start < count; start += 2 * width) {
      const size_t middle = start + width < count ? start + width : count;
      const size_t end = middle + width < count ? middle + width : count;
      size_t left = start;
      size_t right = middle;
      for (size_t out = start; out < end; out++) {
        const bool take_right = left == middle || (right < end && border_before(&from[right], &from[left]));
        to[out] = take_right ? from[right++] : from[left++];
      }
    }
    struct range_border *swap = from;
    from = to;
    to = swap;
  }
  return from;
}

bool range_borders_rank(const struct range_delete *const *ranges, uint32_t count, struct arena *scratch, struct range_borders *out) {
  const size_t most = (size_t)count * 2;
  struct range_border *borders = arena_alloc(scratch, most * sizeof *borders, 16);
  struct range_border *other = arena_alloc(scratch, most * sizeof *borders, 16);
  *out = (struct range_borders){.borders = borders};
  out->begins = arena_alloc(scratch, count * sizeof *out->begins, 16);
  out->ends = arena_alloc(scratch, count * sizeof *out->ends, 16);
  if (borders == NULL || other == NULL || out->begins == NULL || out->ends == NULL) {
    return false;
  }
  size_t all = 0;
  for (uint32_t i = 0; i < count; i++) {
    const turb_bytes begin = ranges[i]->begin;
    const turb_bytes end = ranges[i]->end;
    borders[all++] = (struct range_border){key_prefix8(begin.data, begin.size), begin, i, false};
    if (end.size != 0) {
      borders[all++] = (struct range_border){key_prefix8(end.data, end.size), end, i, true};
    }
  }
  out->borders = range_borders_sort(borders, other, all);
  for (size_t i = 0; i < all; i++) {
    const struct range_border border = out->borders[i];
    if (out->count == 0 || !border_equal(&out->borders[out->count - 1], &border)) {
      out->borders[out->count++] = border;
    }
    (border.is_end ? out->ends : out->begins)[border.range] = out->count - 1;
  }
  for (uint32_t i = 0; i < count; i++) {
    if (ranges[i]->end.size == 0) {
      out->ends[i] = out->count;
    }
  }
  return true;
}
