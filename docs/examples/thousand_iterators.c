/* One thread, one epoll loop, a thousand iterators: each seeks a random key and walks a few entries, again and again, while a timer beside
 * them shows that the thread is free for other work. Sums over what was read are compared with what was written.
 *
 *   thousand_iterators [FOLDER [VISITS]]        default: numbers.db, 20 visits an iterator
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <turbidite/turbidite.h>

#define ITERATORS 1000
#define ENTRIES   100000u
#define STEPS     5 /* entries that a visit walks */
#define DIMENSION 128
#define READY     64 /* iterators moved between two submissions, so that the disk works meanwhile */

static turb_error error = TURB_ERROR_INIT;

static void must(turb_status status) {
  if (status == TURB_OK)
    return;
  (void)fprintf(stderr, "%s\n", error.message);
  exit(1);
}

/* Entry n: the key is n in eight digits, the vector begins with n. */
static turb_bytes make_key(uint32_t n, char text[16]) {
  return (turb_bytes){text, (size_t)snprintf(text, 16, "%08u", n)};
}

struct visitor { /* one iterator and what it is at */
  turb_iterator *it;
  uint32_t at;    /* the entry that it moves to */
  int steps_left; /* of this visit */
  uint32_t visits_left;
};

struct program {
  turb_db *db;
  turb_collection *numbers;
  turb_loop *loop;
  int epoll, timer;
  struct visitor visitors[ITERATORS];
  size_t busy;
  uint64_t entries, sum, expected, rounds, ticks, random;
};

/* ---- data ---- */

static void fill(struct program *p) {
  float vector[DIMENSION] = {0};
  char key[16];
  turb_write_options quick = TURB_WRITE_OPTIONS_INIT;
  quick.durability = TURB_UNLOGGED; /* the flush makes them durable */
  for (uint32_t n = 0; n < ENTRIES; n++) {
    vector[0] = (float)n;
    must(turb_put(p->numbers, make_key(n, key), (turb_bytes){vector, sizeof vector}, TURB_NONE, &quick, &error));
  }
  must(turb_flush(p->db, p->numbers, &error));
}

static void open_database(struct program *p, const char *folder) {
  turb_options options = TURB_OPTIONS_INIT;
  options.memory_budget_bytes = 48u << 20; /* less than the data: most visits wait for the disk */
  options.ring_entries = 1024;
  must(turb_open(folder, &options, &p->db, &error));
  turb_collection_options shape = TURB_COLLECTION_OPTIONS_INIT;
  shape.dimension = DIMENSION;
  const turb_status status = turb_collection_open(p->db, "numbers", &p->numbers, &error);
  if (status != TURB_NOT_FOUND) {
    must(status);
    return;
  }
  error = (turb_error)TURB_ERROR_INIT;
  must(turb_collection_create(p->db, "numbers", &shape, &p->numbers, &error));
  fill(p);
}

/* ---- visits ---- */

static turb_state begin_visit(struct program *p, struct visitor *v) {
  p->random = p->random * UINT64_C(6364136223846793005) + 1442695040888963407u;
  v->at = (uint32_t)((p->random >> 33) % (ENTRIES - STEPS));
  v->steps_left = STEPS;
  char key[16];
  return turb_seek(v->it, make_key(v->at, key)); /* the library copies the key */
}

static void take(struct program *p, struct visitor *v) {
  float first;
  memcpy(&first, v->it->entry->vector.data, sizeof first);
  p->entries++;
  p->sum += (uint64_t)first;
  p->expected += v->at;
}

/* Goes on until the iterator waits for a read or has made all its visits. */
static void drive(struct program *p, struct visitor *v, turb_state state) {
  while (state == TURB_READY) {
    take(p, v);
    if (--v->steps_left > 0) {
      v->at++;
      state = turb_advance(v->it);
    } else if (--v->visits_left > 0) {
      state = begin_visit(p, v);
    } else {
      p->busy--;
      return;
    }
  }
  if (state != TURB_PENDING) {
    must(turb_iterator_status(v->it, &error));
    (void)fprintf(stderr, "entry %u is not there\n", v->at);
    exit(1);
  }
}

static void open_visitors(struct program *p, uint32_t visits) {
  turb_iterator_options options = TURB_ITERATOR_OPTIONS_INIT;
  options.parts = TURB_KEY | TURB_VECTOR;
  options.loop = p->loop;
  p->busy = ITERATORS;
  for (size_t i = 0; i < ITERATORS; i++) {
    struct visitor *v = &p->visitors[i];
    v->visits_left = visits;
    options.context = v; /* turb_iterator_context finds it again */
    must(turb_iterator_open(p->numbers, &options, &v->it, &error));
  }
  for (size_t i = 0; i < ITERATORS; i++)
    drive(p, &p->visitors[i], begin_visit(p, &p->visitors[i]));
}

/* ---- the event loop ---- */

static void watch(struct program *p, int descriptor) {
  struct epoll_event event = {.events = EPOLLIN, .data.fd = descriptor};
  if (epoll_ctl(p->epoll, EPOLL_CTL_ADD, descriptor, &event) != 0) {
    perror("epoll_ctl");
    exit(1);
  }
}

static void open_loop(struct program *p) {
  must(turb_loop_open(p->db, &p->loop, &error));
  p->epoll = epoll_create1(EPOLL_CLOEXEC);
  p->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
  const struct itimerspec every = {.it_interval.tv_nsec = 1000000, .it_value.tv_nsec = 1000000};
  if (timerfd_settime(p->timer, 0, &every, NULL) != 0)
    perror("timerfd_settime");
  watch(p, p->timer);
  watch(p, turb_loop_descriptor(p->loop));
}

/* Sleeps until a read completes or the timer is due. */
static void wait_for_events(struct program *p) {
  struct epoll_event events[2];
  const int count = epoll_wait(p->epoll, events, 2, -1);
  if (count < 0 && errno != EINTR) {
    perror("epoll_wait");
    exit(1);
  }
  for (int i = 0; i < count; i++) {
    uint64_t expired;
    if (events[i].data.fd == p->timer && read(p->timer, &expired, sizeof expired) == sizeof expired)
      p->ticks += expired; /* other work of the thread */
  }
}

static void run(struct program *p) {
  turb_iterator *ready[READY];
  while (p->busy > 0) {
    must(turb_loop_submit(p->loop, &error));
    const size_t count = turb_loop_ready(p->loop, ready, READY);
    for (size_t i = 0; i < count; i++) /* only those whose reads came, not all that are open */
      drive(p, turb_iterator_context(ready[i]), turb_advance(ready[i]));
    if (count == 0 && p->busy > 0)
      wait_for_events(p);
    p->rounds++;
  }
}

int main(int count, char **arguments) {
  static struct program p = {.random = 1};
  const unsigned long visits = count > 2 ? strtoul(arguments[2], NULL, 10) : 20;
  open_database(&p, count > 1 ? arguments[1] : "numbers.db");
  open_loop(&p);
  turb_stats before = {.size = sizeof before}, after = before;
  must(turb_get_stats(p.db, &before, &error));
  open_visitors(&p, visits ? (uint32_t)visits : 1);
  run(&p);
  must(turb_get_stats(p.db, &after, &error));
  for (size_t i = 0; i < ITERATORS; i++)
    turb_iterator_close(p.visitors[i].it);
  must(turb_loop_close(p.loop, &error));
  must(turb_close(p.db, &error));
  (void)close(p.epoll);
  (void)close(p.timer);
  printf("iterators %d\nentries %llu\nsum %llu, expected %llu\nreads %llu\nrounds %llu\nring system calls %llu\ntimer ticks %llu\n",
         ITERATORS, (unsigned long long)p.entries, (unsigned long long)p.sum, (unsigned long long)p.expected,
         (unsigned long long)(after.reads - before.reads), (unsigned long long)p.rounds,
         (unsigned long long)(after.ring_calls - before.ring_calls), (unsigned long long)p.ticks);
  return p.sum == p.expected ? 0 : 1;
}
