/*
 * The progress bar; see progress.h.
 */
#include "progress.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define BAR_CELLS     24
#define REDRAW_NS     100000000u
#define LINE_BYTES    256
#define DEFAULT_WIDTH 80

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal_number) {
  (void)signal_number;
  interrupted = 1;
}

void progress_catch_interrupts(void) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = on_interrupt;
  action.sa_flags = (int)SA_RESETHAND;
  (void)sigaction(SIGINT, &action, NULL);
}

bool progress_interrupted(void) {
  return interrupted != 0;
}

static uint64_t now_ns(void) {
  struct timespec now;
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void progress_begin(struct progress *progress, const char *what, const char *unit, bool quiet) {
  (void)pthread_mutex_init(&progress->lock, NULL);
  progress->enabled = !quiet && isatty(STDERR_FILENO) == 1;
  progress->shown = false;
  progress->what = what;
  progress->unit = unit;
  progress->start_ns = now_ns();
  progress->last_ns = 0;
}

double progress_seconds(const struct progress *progress) {
  return (double)(now_ns() - progress->start_ns) / 1e9;
}

/* 1234567 → "1,234,567" */
static const char *grouped(uint64_t value, char text[32]) {
  char digits[24];
  const int size = snprintf(digits, sizeof digits, "%" PRIu64, value);
  size_t used = 0;
  for (int i = 0; i < size; i++) {
    if (i != 0 && (size - i) % 3 == 0) {
      text[used++] = ',';
    }
    text[used++] = digits[i];
  }
  text[used] = '\0';
  return text;
}

static void time_left(double seconds, char text[32]) {
  const uint64_t whole = seconds < 1e9 ? (uint64_t)(seconds + 0.5) : 0;
  if (whole >= 3600) {
    (void)snprintf(text, 32, "%" PRIu64 ":%02" PRIu64 ":%02" PRIu64 " left", whole / 3600, whole / 60 % 60, whole % 60);
  } else {
    (void)snprintf(text, 32, "%" PRIu64 ":%02" PRIu64 " left", whole / 60, whole % 60);
  }
}

static size_t terminal_width(void) {
  struct winsize size;
  memset(&size, 0, sizeof size);
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col != 0 ? size.ws_col : DEFAULT_WIDTH;
}

static void draw(struct progress *progress, uint64_t done, uint64_t total, double seconds) {
  char line[LINE_BYTES], counts[2][32], rate_text[32], left[32] = "";
  char bar[BAR_CELLS + 1] = "";
  const double rate = seconds > 0 ? (double)done / seconds : 0;
  const double share = total != 0 ? (double)done / (double)total : 0;
  for (unsigned i = 0; i < BAR_CELLS; i++) {
    bar[i] = (double)i < share * BAR_CELLS ? '#' : '.';
  }
  if (total >= done && rate > 0) {
    time_left((double)(total - done) / rate, left);
  }
  int size = 0;
  if (total != 0) {
    size = snprintf(line, sizeof line, "%s [%s] %3.0f%%  %s / %s %s  %s/s  %s", progress->what, bar, 100 * share, grouped(done, counts[0]),
                    grouped(total, counts[1]), progress->unit, grouped((uint64_t)rate, rate_text), left);
  } else {
    size = snprintf(line, sizeof line, "%s  %s %s  %s/s", progress->what, grouped(done, counts[0]), progress->unit,
                    grouped((uint64_t)rate, rate_text));
  }
  const size_t width = terminal_width();
  if (size > 0 && (size_t)size >= width) {
    line[width - 1] = '\0'; /* a line that wraps could not be drawn over */
  }
  (void)fprintf(stderr, "\r%s\033[K", line);
  (void)fflush(stderr);
}

void progress_update(struct progress *progress, uint64_t done, uint64_t total) {
  if (!progress->enabled) {
    return;
  }
  (void)pthread_mutex_lock(&progress->lock);
  const uint64_t now = now_ns();
  if (now - progress->last_ns >= REDRAW_NS) {
    progress->last_ns = now;
    progress->shown = true;
    draw(progress, done, total, (double)(now - progress->start_ns) / 1e9);
  }
  (void)pthread_mutex_unlock(&progress->lock);
}

void progress_end(struct progress *progress) {
  (void)pthread_mutex_lock(&progress->lock);
  if (progress->shown) {
    (void)fputs("\r\033[K", stderr);
    (void)fflush(stderr);
    progress->shown = false;
  }
  progress->enabled = false;
  (void)pthread_mutex_unlock(&progress->lock);
  (void)pthread_mutex_destroy(&progress->lock);
}
