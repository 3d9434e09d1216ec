"""The thread that a build times on: one daemon thread for every call, stopped or left behind when a call hangs.

Foreign code may keep state per thread, so all calls of a build come from the same thread, whatever thread the build
itself runs in. A call that hangs in Python is stopped by an exception raised in it. One that hangs in C cannot be
stopped: its thread is abandoned, with everything it may still write to, and the next call gets a fresh thread.
"""

from __future__ import annotations

import ctypes
import queue
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar

from dovetail.errors import ResourceError, UsageError

__all__ = ["CallTimeoutError", "TimingWorker"]

T = TypeVar("T")

_STOP_TRIES: Final = 5
_PATIENCE_S: Final = 2.0
"""A call that takes longer is told of; one tick a second then disturbs no measurement."""
_TICK_S: Final = 1.0


class CallTimeoutError(ResourceError):
    """A call did not end in time; ``abandoned`` says whether its thread still runs."""

    def __init__(self, timeout_s: float, *, abandoned: bool) -> None:
        self.abandoned = abandoned
        fate = "it could not be stopped, and its thread was abandoned" if abandoned else "it was stopped"
        super().__init__(f"the call did not end within {timeout_s:.3g} s; {fate}")


class _CallStopped(SystemExit):
    """Raised in a worker thread to end it.

    A SystemExit, because that is the one exception that may arrive at any point of a thread's end without a report,
    and because plugins that catch ``Exception`` do not catch it.
    """


class _Call(Generic[T]):
    """One call and what came of it."""

    def __init__(self, function: Callable[[], T]) -> None:
        self._function = function
        self._result: list[T] = []
        self._error: BaseException | None = None
        self.done = threading.Event()

    def execute(self) -> None:
        """Run on the worker's thread."""
        try:
            self._result.append(self._function())
        except _CallStopped:
            raise
        except BaseException as error:  # noqa: BLE001 - whatever it is, it belongs to the caller
            self._error = error
        self.done.set()

    def take(self) -> T:
        """The result, or the error with the traceback it had; each is handed out once."""
        error, self._error = self._error, None
        if error is not None:
            try:
                raise error
            finally:
                del error  # the traceback holds this frame, and would keep the call's buffers alive with it
        return self._result.pop()


class _Thread:
    """One daemon thread with a queue of its own, so that a retired thread can take no further call."""

    def __init__(self, name: str) -> None:
        self._calls: queue.SimpleQueue[_Call[Any] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    @property
    def is_current(self) -> bool:
        return threading.current_thread() is self._thread

    def submit(self, call: _Call[Any]) -> None:
        self._calls.put(call)

    def end(self, timeout_s: float) -> bool:
        """Let the thread end after its present call; whether it did in time."""
        self._calls.put(None)
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def stop(self, grace_s: float) -> bool:
        """End the thread by raising in it, several times because code may swallow it once; whether it ended."""
        for _ in range(_STOP_TRIES):
            self._interrupt()
            if self.end(grace_s / _STOP_TRIES):
                return True
        return False

    def _interrupt(self) -> None:
        if self._thread.is_alive():
            ident = ctypes.c_ulong(self._thread.ident or 0)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(_CallStopped))

    def _serve(self) -> None:
        try:
            while (call := self._calls.get()) is not None:
                call.execute()
                del call  # an idle thread must not keep the last call's buffers alive
        except _CallStopped:
            return


class TimingWorker:
    """Runs callables one at a time on one daemon thread, each under a time limit.

    >>> with TimingWorker() as worker:
    ...     worker.call(lambda: 2 + 3, timeout_s=10)
    5

    Args:
        grace_s: How long to try to stop a call that ran out of time before its thread is abandoned.
    """

    def __init__(self, *, grace_s: float = 1.0) -> None:
        self._grace_s = grace_s
        self.on_wait: Callable[[float], None] | None = None
        """Told every second how long a call takes that takes long, in the thread that waits for it."""
        self._lock = threading.Lock()
        self._thread: _Thread | None = None
        self._closed = False
        self._abandoned: list[_Call[Any]] = []

    @property
    def abandoned(self) -> int:
        """How many calls could not be stopped; what they refer to is kept alive with the worker."""
        return len(self._abandoned)

    def call(self, function: Callable[[], T], timeout_s: float) -> T:
        """What ``function()`` returns or raises, run on the worker's thread.

        Raises:
            CallTimeoutError: It did not end within ``timeout_s``.
            UsageError: The worker is closed, the limit is no time span, or the call comes from the worker's thread.
        """
        self.check(timeout_s)
        with self._lock:
            call = _Call(function)
            thread = self._thread = self._thread or _Thread("dovetail-timing")
            thread.submit(call)
            try:
                ended = self._wait(call, min(timeout_s, threading.TIMEOUT_MAX))
            except BaseException:  # an interrupt in the waiting thread ends the call too
                self._retire(thread, call)
                raise
            if not ended:
                raise CallTimeoutError(timeout_s, abandoned=self._retire(thread, call))
        return call.take()

    def _wait(self, call: _Call[Any], timeout_s: float) -> bool:
        """Wait for the end of a call, and tell of one that takes long; whether it ended."""
        if self.on_wait is None or call.done.wait(min(timeout_s, _PATIENCE_S)):
            return call.done.wait(timeout_s)
        start = time.perf_counter() - _PATIENCE_S
        while (left_s := timeout_s - (time.perf_counter() - start)) > 0:
            self.on_wait(time.perf_counter() - start)
            if call.done.wait(min(_TICK_S, left_s)):
                return True
        return False

    def check(self, timeout_s: float) -> None:
        """Raise the UsageError that ``call`` would, without calling anything."""
        if self._closed:
            raise UsageError("the timing worker is closed", fix="make a new one")
        if not timeout_s > 0:
            raise UsageError("a call needs a time limit", expected="seconds above 0", got=timeout_s)
        if self._thread is not None and self._thread.is_current:
            raise UsageError("a timed call cannot start another on the same worker", fix="give it a worker of its own")

    def _retire(self, thread: _Thread, call: _Call[Any]) -> bool:
        """Stop a thread and never use it again; whether it had to be abandoned."""
        self._thread = None
        if thread.stop(self._grace_s):
            return False
        self._abandoned.append(call)
        return True

    def close(self) -> None:
        """End the thread; safe to call again."""
        self._closed = True
        thread, self._thread = self._thread, None
        if thread is not None and not thread.is_current:
            thread.end(self._grace_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
