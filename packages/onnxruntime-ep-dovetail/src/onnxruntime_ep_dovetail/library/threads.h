/* Numbers of threads. The operating system gives the identifier of a thread that has ended to a new one, so a table keyed
   by it would hand the state of the one to the other; these numbers are never used twice.

   Threads that Python did not start have a Python thread state only while a callback runs, so `threading.local` cannot
   hold their numbers. */
#ifndef DOVETAIL_THREADS_H
#define DOVETAIL_THREADS_H
#include <pthread.h>
#include <stdlib.h>

typedef struct LiveThread {
  struct LiveThread* next;
  unsigned long long number;
} LiveThread;

static pthread_mutex_t threads_lock = PTHREAD_MUTEX_INITIALIZER;
static LiveThread* live_threads = NULL; /* those that have a number */
static unsigned long long last_thread_number = 0;
static pthread_key_t thread_key;
static pthread_once_t thread_key_once = PTHREAD_ONCE_INIT;
static int has_thread_key = 0;

/* Runs at the end of a thread, without Python's lock. */
static void forget_thread(void* thread) {
  pthread_mutex_lock(&threads_lock);
  LiveThread** link = &live_threads;
  while (*link && *link != thread) link = &(*link)->next;
  if (*link) *link = (*link)->next;
  pthread_mutex_unlock(&threads_lock);
  free(thread);
}

static void make_thread_key(void) { has_thread_key = !pthread_key_create(&thread_key, forget_thread); }

/* The number of this thread, 0 if there is no memory for it. */
static unsigned long long number_of_thread(void) {
  pthread_once(&thread_key_once, make_thread_key);
  if (!has_thread_key) return 0;
  LiveThread* thread = pthread_getspecific(thread_key);
  if (thread) return thread->number;
  thread = calloc(1, sizeof *thread);
  if (!thread) return 0;
  pthread_mutex_lock(&threads_lock);
  thread->number = ++last_thread_number;
  thread->next = live_threads;
  live_threads = thread;
  pthread_mutex_unlock(&threads_lock);
  if (pthread_setspecific(thread_key, thread)) {
    forget_thread(thread);
    return 0;
  }
  return thread->number;
}

/* Whether the thread of a number still runs. */
static int is_thread_live(unsigned long long number) {
  pthread_mutex_lock(&threads_lock);
  const LiveThread* thread = live_threads;
  while (thread && thread->number != number) thread = thread->next;
  pthread_mutex_unlock(&threads_lock);
  return thread != NULL;
}

#endif
