/* The runs that are under way: what ONNX Runtime says of them when they start, and what must be raised when they end.

   ONNX Runtime tells an execution provider of every run, on the thread that asked for it. The options of the run say
   whether somebody wants it to end early. An exception that is no error, such as that of Ctrl-C, cannot pass through
   ONNX Runtime, which has statuses only: it is kept here and raised in the caller when the run is over. */
#ifndef DOVETAIL_RUNS_H
#define DOVETAIL_RUNS_H
#include <Python.h>
#include <pthread.h>
#include <stdatomic.h>

typedef struct Run {
  struct Run* next;
  const void* ep;
  const void* options; /* OrtRunOptions; lives as long as the run */
  pthread_t thread;
  PyThreadState* caller; /* of the thread, NULL where no Python called */
  PyObject* interrupt; /* what is to be raised when the run is over */
} Run;

static pthread_mutex_t runs_lock = PTHREAD_MUTEX_INITIALIZER;
static Run* runs = NULL; /* the newest first */
static atomic_int num_interrupts = 0;
static PyObject* make_carrier = NULL; /* makes a class whose call gives an exception that exists already */

/* The run of an execution provider on this thread, or its only one: ONNX Runtime has threads of its own. Needs the
   lock. */
static Run* find_run(const void* ep) {
  Run* only = NULL;
  int count = 0;
  for (Run* run = runs; run; run = run->next) {
    if (run->ep != ep) continue;
    if (pthread_equal(run->thread, pthread_self())) return run;
    only = run;
    count++;
  }
  return count == 1 ? only : NULL;
}

/* True if this thread is between the start and the end of a run of an execution provider. */
static int is_running_here(const void* ep) {
  pthread_mutex_lock(&runs_lock);
  const Run* run = runs;
  while (run && !(run->ep == ep && pthread_equal(run->thread, pthread_self()))) run = run->next;
  pthread_mutex_unlock(&runs_lock);
  return run != NULL;
}

static void begin_run(const void* ep, const void* options) {
  Run* run = calloc(1, sizeof *run);
  if (!run) return; /* it is not watched */
  run->ep = ep;
  run->options = options;
  run->thread = pthread_self();
  run->caller = PyGILState_GetThisThreadState();
  pthread_mutex_lock(&runs_lock);
  run->next = runs;
  runs = run;
  pthread_mutex_unlock(&runs_lock);
}

/* Has an exception raised in the Python that called, once it gets control back. Needs Python's lock. */
static void raise_in_caller(PyObject* exception) {
  PyObject* carrier = make_carrier ? PyObject_CallOneArg(make_carrier, exception) : NULL;
  PyErr_Clear();
  if (carrier) PyThreadState_SetAsyncExc(PyThread_get_thread_ident(), carrier);
  Py_XDECREF(carrier);
}

static void end_run(const void* ep) {
  pthread_mutex_lock(&runs_lock);
  Run** link = &runs;
  while (*link && !((*link)->ep == ep && pthread_equal((*link)->thread, pthread_self()))) link = &(*link)->next;
  Run* run = *link;
  if (run) *link = run->next;
  pthread_mutex_unlock(&runs_lock);
  if (run && run->interrupt) {
    atomic_fetch_sub(&num_interrupts, 1);
    PyGILState_STATE lock = PyGILState_Ensure();
    raise_in_caller(run->interrupt);
    Py_DECREF(run->interrupt);
    PyGILState_Release(lock);
  }
  free(run);
}

/* Whether a run of an execution provider has been broken off by an exception. */
static int is_interrupted(const void* ep) {
  if (!atomic_load(&num_interrupts)) return 0;
  pthread_mutex_lock(&runs_lock);
  const Run* run = find_run(ep);
  int found = run && run->interrupt;
  pthread_mutex_unlock(&runs_lock);
  return found;
}

/* Keep an exception until the run is over; 0 where no Python called and there is nobody to raise it in. Needs Python's
   lock. */
static int keep_interrupt(const void* ep, PyObject* exception) {
  pthread_mutex_lock(&runs_lock);
  Run* run = find_run(ep);
  PyFrameObject* frame = run && run->caller ? PyThreadState_GetFrame(run->caller) : NULL;
  int is_kept = frame != NULL;
  if (is_kept && !run->interrupt) {
    run->interrupt = Py_NewRef(exception);
    atomic_fetch_add(&num_interrupts, 1);
  }
  pthread_mutex_unlock(&runs_lock);
  Py_XDECREF(frame);
  return is_kept;
}

/* Whether the options of a run say that it is to end; `offset` is where in them that stands. */
static int is_terminated(const void* ep, Py_ssize_t offset) {
  pthread_mutex_lock(&runs_lock);
  const Run* run = find_run(ep);
  int found = run && ((const volatile char*)run->options)[offset] != 0;
  pthread_mutex_unlock(&runs_lock);
  return found;
}

#endif
