"""A loaded model: an engine, what runs it, and the requests on their way."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any

from dovetail import Engine
from dovetail_serve.errors import QueueFullError, RequestError, ServeError
from dovetail_serve.models.checking import RequestChecker
from dovetail_serve.models.choices import BatchChoice
from dovetail_serve.models.counters import LoopCounters, gather_statistics
from dovetail_serve.models.executors import Executor, LoopExecutor, ThreadExecutor
from dovetail_serve.models.padding import Padding
from dovetail_serve.models.pending import PendingRequest
from dovetail_serve.models.ports import ModelPorts
from dovetail_serve.models.queue import RequestQueue
from dovetail_serve.models.runner import Runner
from dovetail_serve.protocol.documents import ModelStatistics
from dovetail_serve.protocol.requests import InferRequest, InferResponse
from dovetail_serve.repository.plans import PlanCopy
from dovetail_serve.repository.settings import ModelSettings

__all__ = ["LoadedModel", "ModelParts"]

Array = Any


@dataclass(frozen=True)
class ModelParts:
    """Everything that loading made, warm and measured."""

    name: str
    version: str
    engine: Engine
    plan: PlanCopy
    """The copy that the engine has mapped; it goes with the engine."""
    ports: ModelPorts
    settings: ModelSettings
    padding: Padding
    runners: tuple[Runner, ...]
    """One for each instance."""
    loop_runner: Runner | None
    """What runs on the thread of the event loop, where the model is fast enough."""
    loop_bytes: int
    """How large a request may be that runs there, before larger ones are known to be fast."""
    loop_ns: int
    """How long a run may take there."""
    batching: BatchChoice
    note: str
    """On which thread requests run and why, for statistics."""


class LoadedModel:
    """Answers the requests of one version of a model; used on the thread of the event loop.

    Args:
        parts: What loading made.
        loop: The event loop.
    """

    def __init__(self, parts: ModelParts, loop: asyncio.AbstractEventLoop) -> None:
        settings = parts.settings
        self.parts = parts
        self._counters = LoopCounters()
        self._checker = RequestChecker(parts.name, parts.ports, settings.max_batch_size, parts.padding)
        delay_ns = settings.max_queue_delay_us * 1000 if parts.batching.max_samples > 1 else 0
        self._queue = RequestQueue(parts.name, settings.max_queue_size, parts.batching.max_samples, delay_ns)
        self._threads = ThreadExecutor(loop, self._queue, parts.runners, self._counters, parts.name)
        self._on_loop = (
            None
            if parts.loop_runner is None
            else LoopExecutor(parts.loop_runner, self._threads, parts.loop_bytes, parts.loop_ns)
        )
        self._executor: Executor = self._on_loop or self._threads
        self._active = 0
        self._all_answered = asyncio.Event()
        self._all_answered.set()

    async def infer(self, request: InferRequest) -> InferResponse:
        """Run a request; see ``Service.infer``."""
        pending = self._accept(request)
        if not self._active:
            self._all_answered.clear()
        self._active += 1
        try:
            future = self._executor.submit(pending)
            if future is not None:
                await future
        except QueueFullError:
            self._counters.rejected += 1
            raise
        except asyncio.CancelledError:
            self._executor.cancel(pending)
            if pending.error is None:  # one that came too late is counted as that
                self._counters.cancelled += 1
            raise
        finally:
            self._active -= 1
            if not self._active:
                self._all_answered.set()
            if pending.timer is not None:
                pending.timer.cancel()
        if pending.error is not None:
            raise pending.error
        return _require(pending)

    def _accept(self, request: InferRequest) -> PendingRequest:
        """Check a request, and give it what the model has as defaults."""
        try:
            pending = self._checker.check(request)
        except RequestError:
            self._counters.add_refusal(time.perf_counter_ns())
            raise
        self._counters.last_ns = pending.arrived_ns
        settings = self.parts.settings
        timeout_us = request.timeout_us or settings.default_timeout_us
        if timeout_us:
            pending.deadline_ns = pending.arrived_ns + timeout_us * 1000
        if not pending.priority:
            pending.priority = settings.default_priority
        return pending

    @property
    def active(self) -> int:
        """How many requests were accepted and are not answered."""
        return self._active

    async def finish(self) -> None:
        """Return when every accepted request is answered."""
        while self._active:
            await self._all_answered.wait()

    def close(self) -> None:
        """End the threads and close the engine; call it when nobody uses the model, on any thread."""
        self._threads.close()
        self.parts.engine.close()
        self.parts.plan.remove()

    def statistics(self) -> ModelStatistics:
        """What has been asked of it."""
        parts = self.parts
        runners = [*parts.runners, *([] if parts.loop_runner is None else [parts.loop_runner])]
        return gather_statistics(
            parts.name,
            parts.version,
            self._counters,
            [runner.counters for runner in runners],
            waiting=len(self._queue),
            batching=f"{parts.batching.reason}; {self._describe_threads()}",
        )

    def _describe_threads(self) -> str:
        if self._on_loop is not None and self._on_loop.is_demoted:
            return "runs on threads of its own, as runs have turned out to be slow"
        return self.parts.note


def _require(pending: PendingRequest) -> InferResponse:
    if pending.response is None:
        raise ServeError(f"model '{pending.request.model}' gave no answer")
    return pending.response
