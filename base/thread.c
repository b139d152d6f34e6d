/* Starting and joining named threads; see thread.h. */
#include "base/thread.h"

#include <sched.h>
#include <signal.h>
#include <string.h>

static void *thread_run(void *argument) {
  struct thread *thread = argument;
  (void)pthread_setname_np(pthread_self(), thread->name); /* a name is a help, not a need */
  thread->main(thread->context);
  return NULL;
}

turb_status thread_start(struct thread *thread, const char *name, thread_main_fn main, void *context, turb_error *err) {
  thread->main = main;
  thread->context = context;
  thread->started = false;
  const size_t size = strnlen(name, sizeof thread->name - 1);
  memcpy(thread->name, name, size);
  thread->name[size] = '\0';

  /* The new thread inherits the mask of this one: block everything around its start. */
  sigset_t all;
  sigset_t before;
  (void)sigfillset(&all);
  thread_check(pthread_sigmask(SIG_SETMASK, &all, &before));
  const int result = pthread_create(&thread->handle, NULL, thread_run, thread);
  thread_check(pthread_sigmask(SIG_SETMASK, &before, NULL));
  if (result != 0) {
    /* EAGAIN and EPERM alike: no thread to be had, which no finer code would help to handle. */
    const turb_status code = result == ENOMEM ? TURB_NO_MEMORY : TURB_IO;
    const char *words = strerrordesc_np(result);
    return status_set(err, code, "start thread %s: %s", thread->name, words != NULL ? words : "unknown error");
  }
  thread->started = true;
  return TURB_OK;
}

void thread_join(struct thread *thread) {
  if (thread->started) {
    thread_check(pthread_join(thread->handle, NULL));
    thread->started = false;
  }
}

unsigned thread_cpu_count(void) {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) {
    return 1; /* more CPUs than the set holds, or forbidden: one worker is always right */
  }
  const int count = CPU_COUNT(&set);
  return count > 0 ? (unsigned)count : 1;
}
