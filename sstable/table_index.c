/* Searching the page index: the top index (resident, one separator an index page) and index pages (table.h, docs/format.md 3.6). */
#include <assert.h>
#include <string.h>

#include "base/prefetch.h"
#include "sstable/table_parts.h"

#define NEAR_SLOTS 4u /* to either side of a guess */

uint32_t table_index_page_count(const struct table *table) {
  return table->tail.top_count;
}

/* How many of the numbers are below `prefix`. Branchless: the compiler makes a conditional move of the step, so that random keys cost no mispredictions. */
static uint32_t count_below(const uint64_t *prefixes, uint32_t count, uint64_t prefix) {
  const uint64_t *base = prefixes;
  while (count > 1) {
    const uint32_t half = count / 2;
    __builtin_prefetch(&base[half / 2]);
    __builtin_prefetch(&base[half + (count - half) / 2]);
    base = base[half - 1] < prefix ? base + half : base;
    count -= half;
  }
  return (uint32_t)(base - prefixes) + (count != 0 && *base < prefix);
}

uint32_t table_find_index_page(const struct table *table, turb_bytes key) {
  const struct top_entry *top = table->tail.top;
  const uint32_t count = table->tail.top_count;
  if (count == 0 || key.size == 0) {
    return 0;
  }
  /* What all separators share decides for all of them, unless the key has it too. */
  const size_t shared = table->top_shared;
  if (shared != 0) {
    const int order = memcmp(key.data, top[0].separator.data, key.size < shared ? key.size : shared);
    if (order != 0) {
      return order < 0 ? 0 : count;
    }
    if (key.size < shared) {
      return 0;
    }
  }
  const uint64_t prefix = key_prefix8((const uint8_t *)key.data + shared, key.size - shared);
  uint32_t at = count_below(table->top_prefixes, count, prefix);
  /* Equal prefixes decide nothing. Mostly there are one or two. */
  uint32_t high = at;
  while (high < count && table->top_prefixes[high] == prefix) {
    high++;
    if (high - at == 8) {
      high = at + count_below(table->top_prefixes + at, count - at, prefix + 1);
      if (prefix == UINT64_MAX) {
        high = count;
      }
      break;
    }
  }
  while (at < high) {
    const uint32_t middle = at + (high - at) / 2;
    if (key_compare(top[middle].separator.data, top[middle].separator.size, key.data, key.size) < 0) {
      at = middle + 1;
    } else {
      high = middle;
    }
  }
  return at;
}

/* The first of [low, high) with a prefix at or above `prefix`. */
static uint32_t bound_between(const struct index_slot *slots, uint32_t low, uint32_t high, uint64_t prefix) {
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2;
    if (slots[middle].prefix < prefix) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

/* The same among all (one at least), from where `prefix` lies between the first and the last: for keys that are spread evenly this is the slot
 * or one beside it, and the lines that a bisection would wait for one after the other are not looked at. */
static uint32_t bound_near(const struct index_slot *slots, uint32_t count, uint64_t prefix) {
  const uint64_t first = slots[0].prefix, last = slots[count - 1].prefix;
  if (prefix <= first || prefix > last) {
    return prefix <= first ? 0 : count;
  }
  uint32_t at =
      (uint32_t)((double)(prefix - first) / (double)(last - first) * (count - 1)); /* below count: slots[count - 1] is at or above */
  if (slots[at].prefix < prefix) {
    for (uint32_t steps = 0; steps < NEAR_SLOTS; steps++) {
      if (slots[++at].prefix >= prefix) {
        return at;
      }
    }
    return bound_between(slots, at + 1, count, prefix);
  }
  for (uint32_t steps = 0; steps < NEAR_SLOTS; steps++, at--) {
    if (slots[at - 1].prefix < prefix) { /* slots[0] is below */
      return at;
    }
  }
  return bound_between(slots, 0, at, prefix);
}

uint16_t index_page_find(const struct slot_page *page, turb_bytes key) {
  const struct index_slot *slots = codec_index_slot(page, 0);
  __builtin_prefetch((const uint8_t *)page + SLOT_PAGE_BYTES - 1); /* the first separator */
  const uint32_t count = page->slot_count;
  const size_t shared = page->shared_prefix_size;
  if (key.size == 0) {
    return 0;
  }
  if (shared != 0) {
    const turb_bytes first = codec_index_separator(page, 0);
    const int order = memcmp(key.data, first.data, key.size < shared ? key.size : shared);
    if (order != 0) {
      return order < 0 ? 0 : (uint16_t)count;
    }
    if (key.size < shared) {
      return 0;
    }
  }
  const uint64_t prefix = key_prefix8((const uint8_t *)key.data + shared, key.size - shared);
  uint32_t at = bound_near(slots, count, prefix);
  while (at < count && slots[at].prefix == prefix) {
    const turb_bytes separator = codec_index_separator(page, at);
    if (key_compare(separator.data, separator.size, key.data, key.size) >= 0) {
      break;
    }
    at++;
  }
  return (uint16_t)at;
}

uint16_t index_page_guess(const struct slot_page *index, uint16_t at, turb_bytes key) {
  const struct index_slot *slot = index_slot_at(index, at);
  if (at == 0 || key.size < index->shared_prefix_size) {
    return slot->slots / 2;
  }
  const uint64_t prefix = key_prefix8((const uint8_t *)key.data + index->shared_prefix_size, key.size - index->shared_prefix_size);
  const uint64_t low = slot[-1].prefix, high = slot->prefix;
  if (prefix <= low || prefix >= high) {
    return prefix <= low ? 0 : (uint16_t)(slot->slots - 1);
  }
  return (uint16_t)((double)(prefix - low) / (double)(high - low) * slot->slots);
}

#define ASKED_SLOTS 5u /* on either side of the guess */

/* Asks for the slot of the guess, the header, the keys near the guess, which lie from the page's end downward, and the slots near it: what is needed first
 * comes first, for the lines of a page come one by one. */
static void prefetch_near_slot(const void *page, const struct index_slot *index, uint32_t guess, size_t key_size) {
  const uint8_t *bytes = page;
  const uint32_t low = guess > ASKED_SLOTS ? guess - ASKED_SLOTS : 0;
  const uint32_t high = guess + ASKED_SLOTS < index->slots ? guess + ASKED_SLOTS : index->slots;
  __builtin_prefetch(slot_at(page, guess));
  __builtin_prefetch(bytes);
  for (const uint8_t *at = (const uint8_t *)slot_at(page, low); at < (const uint8_t *)slot_at(page, high); at += CACHE_LINE_BYTES) {
    __builtin_prefetch(at);
  }
  const uint64_t end = index->units * (uint64_t)TABLE_PAGE_BYTES;
  const uint64_t back = (guess + 1) * key_size;
  if (back < end) {
    const uint8_t *key = bytes + (end - back);
    __builtin_prefetch(key);
    __builtin_prefetch(key + CACHE_LINE_BYTES < bytes + end ? key + CACHE_LINE_BYTES : key);
    __builtin_prefetch(key - CACHE_LINE_BYTES);
  }
}

void table_prefetch_keys(struct table *table, const struct index_slot *index, uint32_t unit, uint32_t guess, size_t key_size) {
  const void *page = cache_prefetch(table_directory(table), unit);
  if (page != NULL) {
    prefetch_near_slot(page, index, guess, key_size);
  }
}

void table_index_page_base(const struct table *table, uint32_t index_page, uint64_t *entries, uint64_t *rows) {
  if (index_page >= table->tail.top_count) {
    *entries = table->tail.properties.entries;
    *rows = table->tail.properties.puts;
    return;
  }
  *entries = table->tail.top[index_page].first_entry;
  *rows = table->tail.top[index_page].first_row;
}

/* ---- rows of a key range ------------------------------------------------------------------------------- */

/* Brings a unit and waits for it; true when it is pinned. With reads NULL only what is resident counts (then false with OK). */
static turb_status bring(struct table *table, struct reads *reads, struct load **load, enum unit_kind kind, uint32_t ordinal,
                         unsigned flags, struct cache_pin *pin, turb_error *err) {
  *pin = (struct cache_pin){0};
  if (cache_pin(table_directory(table), table_unit(table, kind, ordinal), pin) || reads == NULL) {
    return TURB_OK;
  }
  if (*load == NULL) {
    const turb_status status = load_create(reads, table->env->allocator, load, err);
    if (status != TURB_OK) {
      return status;
    }
  }
  enum load_state state = load_unit(*load, table, kind, ordinal, flags | LOAD_FILL_CACHE | LOAD_ABSENT);
  while (state == LOAD_WAITING) {
    const turb_status status = reads_wait(reads, err);
    if (status != TURB_OK) {
      return status;
    }
    state = load_state(*load);
  }
  if (state == LOAD_FAILED) {
    return load_error(*load, err);
  }
  load_take_pin(*load, pin, NULL);
  return TURB_OK;
}

/* Within the key page that an index slot names. */
static turb_status bound_in_page(struct table *table, struct reads *reads, struct load **load, const struct index_slot *slot,
                                 turb_bytes key, uint64_t *row, uint64_t *entry, turb_error *err) {
  *row = slot->base_row;
  *entry = slot->first_entry;
  const uint32_t ordinal = table_key_ordinal(table, slot->page);
  if (ordinal == UINT32_MAX) {
    return status_set_file(err, TURB_CORRUPTION, table->path, (uint64_t)slot->page * TABLE_PAGE_BYTES,
                           "the index names a page that is no key page");
  }
  struct cache_pin pin;
  const turb_status status = bring(table, reads, load, UNIT_KEYS, ordinal, slot->units == 2 ? LOAD_TWO_UNITS : 0, &pin, err);
  if (status == TURB_OK && pin.data != NULL) {
    const struct slot_page *page = pin.data;
    const uint16_t at = slot_page_lower_bound(page, key, SLOT_SEQUENCE_MAX);
    *entry += at;
    *row = at < page->slot_count ? slot_row(slot_at(page, at)) : slot->base_row + slot->puts;
  }
  cache_unpin(&pin);
  return status;
}

turb_status table_row_lower_bound(struct table *table, struct reads *reads, turb_bytes key, bool approximate, uint64_t *row,
                                  uint64_t *entry, turb_error *err) {
  const uint32_t index_page = table_find_index_page(table, key);
  table_index_page_base(table, index_page, entry, row);
  if (index_page == table_index_page_count(table)) {
    return TURB_OK;
  }
  struct load *load = NULL;
  struct cache_pin pin;
  turb_status status = bring(table, reads, &load, UNIT_INDEX, index_page, 0, &pin, err);
  if (status == TURB_OK && pin.data != NULL) {
    const struct slot_page *page = pin.data;
    const uint16_t at = index_page_find(page, key);
    if (at == page->slot_count) {
      table_index_page_base(table, index_page + 1, entry, row);
    } else {
      status = bound_in_page(table, approximate ? NULL : reads, &load, codec_index_slot(page, at), key, row, entry, err);
    }
  }
  cache_unpin(&pin);
  load_destroy(load);
  return status;
}
