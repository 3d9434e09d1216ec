/* The end of the process while threads run sessions.

   While the interpreter finalizes, Python 3.11 to 3.13 ends every other thread that acquires the GIL by unwinding its
   stack (CPython issue 87135; Python 3.14 blocks such threads). Unwinding terminates the process in the first function of
   ONNX Runtime or pybind11 that is noexcept or catches all exceptions. Two rules keep the threads of sessions from it:

   - Callbacks into Python are called through a gate, whose cleanup blocks a thread that is being unwound.
   - Before the interpreter finalizes, runs are held where they begin and end, so that no thread returns from a run to
     pybind11, which acquires the GIL in a destructor. A held run goes on after a limit if the interpreter still runs by
     then: an exit handler may be waiting for its thread.

   The thread that ends the interpreter is never blocked. Needs -fexceptions. */
#ifndef DOVETAIL_CLOSING_H
#define DOVETAIL_CLOSING_H
#include <Python.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>

#include "runs.h"

/* Functions that a gate calls, in words after the start of its object, which has fewer slots. */
#define GATE_OFFSET 48

static atomic_int is_closing = 0; /* set after the two variables below, which are written once */
static pthread_t closing_thread;
static int64_t max_hold_time_ns;

static int is_python_gone(void) {
#if PY_VERSION_HEX >= 0x030D0000
  return !Py_IsInitialized() || Py_IsFinalizing();
#else
  return !Py_IsInitialized() || _Py_IsFinalizing();
#endif
}

static int64_t monotonic_time_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void block_forever(void) {
  for (;;) pause();
}

/* The cleanup of a call that may acquire the GIL. */
static void stop_if_unwinding(volatile int* is_inside) {
  if (*is_inside) block_forever();
}

static int is_other_thread_closing(void) {
  return atomic_load_explicit(&is_closing, memory_order_acquire) && !pthread_equal(pthread_self(), closing_thread);
}

/* True if this thread would be unwound if it returned to Python. A thread that Python does not know may go on: its
   caller is no Python, and receives an error. */
static int must_not_return(void) {
  return is_other_thread_closing() && is_python_gone() && PyGILState_GetThisThreadState();
}

/* Holds the run of an execution provider on this thread from the time the process begins to end. A thread with the GIL
   goes on, because the end would wait for it. */
static void hold_run(const void* ep) {
  if (!is_other_thread_closing()) return;
  if (!PyGILState_GetThisThreadState() || PyGILState_Check() || !is_running_here(ep)) return;
  while (!is_python_gone()) {
    if (monotonic_time_ns() > max_hold_time_ns) return;
    usleep(500);
  }
  block_forever();
}

/* From now on the threads that run sessions are held, except this one. */
static void start_closing_now(int64_t max_hold_ns) {
  if (atomic_load(&is_closing)) return;
  closing_thread = pthread_self();
  max_hold_time_ns = monotonic_time_ns() + max_hold_ns;
  atomic_store(&is_closing, 1);
}

/* ---- gates ---- */

/* One gate for each slot of an object: it calls the function at the same place after GATE_OFFSET words. Arguments and
   results are integers and pointers. The calling conventions of 64-bit x86 and Arm pass the first six of them in
   registers, so that a gate may have more parameters than its function. */
typedef uint64_t (*NarrowCall)(void*, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);
typedef uint64_t (*WideCall)(void*, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);
#define NUM_NARROW_ARGUMENTS 6
#define NUM_WIDE_ARGUMENTS 7

static inline void enter_gate(const void* object) {
  if (is_other_thread_closing() && is_python_gone()) block_forever(); /* entering Python would unwind it */
  hold_run(object);
}

static inline uint64_t call_narrow(size_t index, void* object, uint64_t a, uint64_t b, uint64_t c, uint64_t d,
                                   uint64_t e) {
  __attribute__((cleanup(stop_if_unwinding))) volatile int is_inside = 1;
  enter_gate(object);
  uint64_t result = ((NarrowCall*)object)[GATE_OFFSET + index](object, a, b, c, d, e);
  hold_run(object);
  is_inside = 0;
  return result;
}

static inline uint64_t call_wide(size_t index, void* object, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e,
                                 uint64_t f) {
  __attribute__((cleanup(stop_if_unwinding))) volatile int is_inside = 1;
  enter_gate(object);
  uint64_t result = ((WideCall*)object)[GATE_OFFSET + index](object, a, b, c, d, e, f);
  is_inside = 0;
  return result;
}

#define FOR_8(X, t) X(t##0) X(t##1) X(t##2) X(t##3) X(t##4) X(t##5) X(t##6) X(t##7)
#define FOR_EACH_GATE(X) FOR_8(X, 00) FOR_8(X, 01) FOR_8(X, 02) FOR_8(X, 03) FOR_8(X, 04) FOR_8(X, 05) /* octal */
#define NARROW_GATE(i)                                                                                     \
  static uint64_t narrow_gate_##i(void* object, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e) { \
    return call_narrow(i, object, a, b, c, d, e);                                                          \
  }
#define WIDE_GATE(i)                                                                                              \
  static uint64_t wide_gate_##i(void* object, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f) { \
    return call_wide(i, object, a, b, c, d, e, f);                                                                \
  }
#define NARROW_ENTRY(i) narrow_gate_##i,
#define WIDE_ENTRY(i) wide_gate_##i,

FOR_EACH_GATE(NARROW_GATE)
FOR_EACH_GATE(WIDE_GATE)
static const NarrowCall narrow_gates[GATE_OFFSET] = {FOR_EACH_GATE(NARROW_ENTRY)};
static const WideCall wide_gates[GATE_OFFSET] = {FOR_EACH_GATE(WIDE_ENTRY)};

#endif
