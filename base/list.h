/*
 * A circular doubly linked list whose links are members of what it links.
 *
 * A list is a head link; an empty one points to itself, and so does a link that is in no list (after
 * list_init or list_remove), so that removing twice is harmless.
 *
 * Threads: under the owner's lock.
 */
#ifndef TURB_BASE_LIST_H
#define TURB_BASE_LIST_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>

struct list {
  struct list *next;
  struct list *prev;
};

/* The structure that holds a link as its member. */
#define LIST_ENTRY(link, type, member) ((type *)(void *)((char *)(link)-offsetof(type, member)))

static inline void list_init(struct list *list) {
  list->next = list;
  list->prev = list;
}

static inline bool list_is_empty(const struct list *list) {
  return list->next == list;
}

/* True while the link is in a list. */
static inline bool list_is_linked(const struct list *link) {
  return link->next != link;
}

/* Puts a link that is in no list in front of another (of the head: at the end). */
static inline void list_insert_before(struct list *at, struct list *link) {
  link->prev = at->prev;
  link->next = at;
  at->prev->next = link;
  at->prev = link;
}

static inline void list_push_front(struct list *list, struct list *link) {
  list_insert_before(list->next, link);
}

static inline void list_push_back(struct list *list, struct list *link) {
  list_insert_before(list, link);
}

static inline void list_remove(struct list *link) {
  assert(link->prev != NULL && link->next != NULL); /* it is in a list, or was initialised */
  link->prev->next = link->next;
  link->next->prev = link->prev;
  list_init(link);
}

/* The first or last link, or NULL. */
static inline struct list *list_first(const struct list *list) {
  return list_is_empty(list) ? NULL : list->next;
}

static inline struct list *list_last(const struct list *list) {
  return list_is_empty(list) ? NULL : list->prev;
}

/* The link after or before one in the list, or NULL at its end. */
static inline struct list *list_next(const struct list *list, const struct list *link) {
  return link->next == list ? NULL : link->next;
}

static inline struct list *list_prev(const struct list *list, const struct list *link) {
  return link->prev == list ? NULL : link->prev;
}

/* Takes the first link out, or NULL. */
static inline struct list *list_pop_front(struct list *list) {
  struct list *link = list_first(list);
  if (link != NULL) {
    list_remove(link);
  }
  return link;
}

/* Moves all links of from to the end of to. */
static inline void list_splice(struct list *to, struct list *from) {
  if (list_is_empty(from)) {
    return;
  }
  from->next->prev = to->prev;
  to->prev->next = from->next;
  from->prev->next = to;
  to->prev = from->prev;
  list_init(from);
}

#endif
