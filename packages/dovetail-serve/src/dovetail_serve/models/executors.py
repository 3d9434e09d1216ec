"""On which thread requests run: on threads of the model, or on that of the event loop.

Both take a pending request and give it a response or an error. A model gets the second one only where a run was
measured to take less time than the change of threads, and loses it when its runs turn out to be slow.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Sequence
from typing import Final, Protocol

from dovetail_serve.errors import DeadlineError
from dovetail_serve.models.counters import LoopCounters
from dovetail_serve.models.pending import PendingRequest
from dovetail_serve.models.queue import RequestQueue
from dovetail_serve.models.runner import Runner

__all__ = ["Executor", "LoopExecutor", "ThreadExecutor"]

_LOG: Final = logging.getLogger("dovetail_serve.models")
_SLOW_NS: Final = 500_000
_MOST_SLOW: Final = 3
"""So many slow runs in a row are the model's doing; fewer may be the machine's."""
_MOST_SLOW_NS: Final = 20_000_000
"""Two slow runs in a row that hold up the loop for so long are enough."""


class Executor(Protocol):
    """Runs pending requests; called on the thread of the event loop."""

    def submit(self, pending: PendingRequest) -> asyncio.Future[None] | None:
        """Have a request run: a future that is done when it has its answer, or None where it has it already."""

    def cancel(self, pending: PendingRequest) -> None:
        """Take back a request nobody waits for any more, unless it runs already."""


class ThreadExecutor:
    """Runs requests on threads, each with a context of its own, in the order of a queue.

    Args:
        loop: The loop that waits for answers.
        queue: Where requests wait.
        runners: One for each thread.
        counters: What the loop counts of the model.
        name: What the threads are called.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        queue: RequestQueue,
        runners: Sequence[Runner],
        counters: LoopCounters,
        name: str,
    ) -> None:
        self._loop = loop
        self._queue = queue
        self._counters = counters
        self._model = name
        self._threads = [
            threading.Thread(target=self._work, args=(runner,), name=f"{name}-{i}", daemon=True)
            for i, runner in enumerate(runners)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, pending: PendingRequest) -> asyncio.Future[None]:
        """Queue a request.

        Raises:
            QueueFullError: As many wait as may wait.
        """
        pending.future = self._loop.create_future()
        self._queue.put(pending)
        if pending.deadline_ns:
            left_s = max(pending.deadline_ns - time.perf_counter_ns(), 0) / 1e9
            pending.timer = self._loop.call_later(left_s, self._expire, pending)
        return pending.future

    def cancel(self, pending: PendingRequest) -> None:
        """Take a request out of the queue."""
        self._queue.remove(pending)

    def close(self) -> None:
        """End the threads when nothing waits any more, and wait for them."""
        self._queue.close()
        for thread in self._threads:
            thread.join()

    def _expire(self, pending: PendingRequest) -> None:
        if self._queue.remove(pending) or pending.is_expired:
            waited_us = (time.perf_counter_ns() - pending.arrived_ns) // 1000
            self._counters.timed_out += 1
            pending.error = DeadlineError(
                f"model '{self._model}': the request has waited {waited_us} us and has not run"
            )
            _resolve([pending])

    def _work(self, runner: Runner) -> None:
        wake = threading.Lock()
        wake.acquire()
        while (batch := self._queue.take(wake)) is not None:
            runner.run(batch)
            try:
                self._loop.call_soon_threadsafe(_resolve, batch)
            except RuntimeError:
                _LOG.warning(
                    "model '%s': the event loop is closed, nobody waits for %d answers", self._model, len(batch)
                )
            del batch  # or the arrays of the last requests would stay until the next ones come


def _resolve(batch: Sequence[PendingRequest]) -> None:
    for pending in batch:
        future = pending.future
        if future is not None and not future.done():
            future.set_result(None)


class LoopExecutor:
    """Runs requests at once, on the thread that brings them; those that may take long go to the threads.

    Args:
        runner: What runs them.
        others: Where larger requests go, and all of them once runs have turned out to be slow.
        most_bytes: How large a request may be that runs at once: as large as what was measured. A larger one that
            turns out to run in less than ``most_ns`` on a thread raises it.
        most_ns: How long a run may take here.
    """

    def __init__(self, runner: Runner, others: ThreadExecutor, most_bytes: int, most_ns: int) -> None:
        self._runner = runner
        self._others = others
        self._most_bytes = most_bytes
        self._most_ns = most_ns
        self._slow = self._slow_ns = 0
        self.is_demoted = False
        """Whether runs have turned out to be slow, so that all go to the threads."""

    def submit(self, pending: PendingRequest) -> asyncio.Future[None] | None:
        """Run a request, or hand it on."""
        if self.is_demoted:
            return self._others.submit(pending)
        size = sum([array.nbytes for array in pending.arrays])
        if size > self._most_bytes:
            future = self._others.submit(pending)
            future.add_done_callback(lambda _: self._learn(pending, size))
            return future
        start = time.perf_counter_ns()
        self._runner.run((pending,))
        took_ns = time.perf_counter_ns() - start
        if took_ns >= _SLOW_NS or self._slow:
            self._judge(took_ns)
        return None

    def _learn(self, pending: PendingRequest, size: int) -> None:
        """Let requests of a size run at once after one of them was as fast as they have to be."""
        response = pending.response
        if response is not None and response.compute_ns < self._most_ns:
            self._most_bytes = max(self._most_bytes, size)

    def _judge(self, took_ns: int) -> None:
        """Send requests to the threads from now on where runs stay slow."""
        if took_ns < _SLOW_NS:
            self._slow = self._slow_ns = 0
            return
        self._slow += 1
        self._slow_ns += took_ns
        self.is_demoted = self._slow >= _MOST_SLOW or (self._slow > 1 and self._slow_ns > _MOST_SLOW_NS)

    def cancel(self, pending: PendingRequest) -> None:
        """Take a request out of the queue of the threads."""
        self._others.cancel(pending)
