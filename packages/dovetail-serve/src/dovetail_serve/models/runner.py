"""Runs batches in one execution context: joins inputs, calls the engine, and gives each request its outputs."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from dovetail import Engine
from dovetail.errors import DovetailError, InputError, ResourceError
from dovetail_serve.errors import RequestError, RunError, ServeError
from dovetail_serve.models.counters import RunCounters
from dovetail_serve.models.padding import Padding
from dovetail_serve.models.pending import PendingRequest
from dovetail_serve.models.ports import ModelPorts
from dovetail_serve.protocol.requests import InferResponse

__all__ = ["Runner"]

Array = Any
_QUIET_NS: Final = 1_000_000_000
_SHOWN: Final = 200
_LOG: Final = logging.getLogger("dovetail_serve.models")


class Runner:
    """One execution context of a model; used by one thread at a time.

    Args:
        name: The model.
        version: Its version.
        engine: What it runs.
        ports: The inputs and outputs of the engine.
        padding: How requests of different sizes are put together.
    """

    def __init__(self, name: str, version: str, engine: Engine, ports: ModelPorts, padding: Padding) -> None:
        self.counters = RunCounters()
        self._name = name
        self._version = version
        self._padding = padding
        self._context = engine.create_execution_context()
        self._names = [port.name for port in ports.outputs]
        self._texts = [i for i, port in enumerate(ports.outputs) if port.datatype == "BYTES"]
        self._unlogged = self._quiet_until_ns = 0
        self._updated = [i for i, port in enumerate(ports.inputs) if port.name in ports.updated]

    def run(self, batch: Sequence[PendingRequest]) -> None:
        """Give each request of a batch its response or its error; this never raises.

        Where a run over several requests fails, each is run alone, so that only the one at fault fails.
        """
        try:
            self.run_together(batch)
        except Exception as error:  # noqa: BLE001 - whatever a model raises is its requests' failure, not the worker's
            if len(batch) > 1:
                for pending in batch:
                    self.run([pending])
                return
            batch[0].error = self._explain(error, batch[0])
            self.counters.add_failure(batch[0])

    def run_together(self, batch: Sequence[PendingRequest]) -> None:
        """Give each request of a batch its response; whatever the model raises goes to the caller."""
        began = time.perf_counter_ns()
        is_single = len(batch) == 1
        samples = batch[0].samples if is_single else sum([pending.samples for pending in batch])
        if is_single and not self._padding.is_declared:
            arrays = batch[0].arrays
        else:
            arrays = self._join(batch)
        if self._updated:
            arrays = self._copy_updated(arrays)
        ready = time.perf_counter_ns()
        results = self._context.call(arrays, {})
        ran = time.perf_counter_ns()
        if self._texts:
            self._encode_texts(results)
        if is_single:
            self._respond(batch[0], results, began, ran)
        else:
            self._split(batch, results, samples, (began, ran))
        self.counters.add_run(batch, samples, (began, ready, ran, time.perf_counter_ns()))

    def _join(self, batch: Sequence[PendingRequest]) -> tuple[Array, ...]:
        requests = self._padding.pad([pending.arrays for pending in batch])
        if len(requests) == 1:
            return tuple(requests[0])
        return tuple([np.concatenate(parts) for parts in zip(*requests, strict=True)])

    def _copy_updated(self, arrays: tuple[Array, ...]) -> tuple[Array, ...]:
        """Copies of what the run writes over: the arrays of requests are not to be written to."""
        return tuple(array.copy() if i in self._updated else array for i, array in enumerate(arrays))

    def _split(
        self, batch: Sequence[PendingRequest], results: list[Array], samples: int, times: tuple[int, int]
    ) -> None:
        for name, result in zip(self._names, results, strict=True):
            if result.shape[:1] != (samples,):
                raise RunError(
                    f"model '{self._name}': output '{name}' has no row for each sample",
                    expected=f"{samples} in the first dimension",
                    got=list(result.shape),
                )
        start = 0
        for pending in batch:
            end = start + pending.samples
            self._respond(pending, [result[start:end] for result in results], *times)
            start = end

    def _respond(self, pending: PendingRequest, results: list[Array], began: int, ran: int) -> None:
        if self._padding.is_declared:
            results = self._padding.cut(pending.arrays, list(results))
        request = pending.request
        outputs = dict(zip(self._names, results))  # noqa: B905 - the engine gives one a name
        if request.outputs is not None:
            outputs = {name: outputs[name] for name in request.outputs}
        waited = began - pending.arrived_ns
        pending.response = InferResponse(self._name, self._version, outputs, request.id, waited, ran - began)

    def _encode_texts(self, results: list[Array]) -> None:
        """Strings as the protocol has them: bytes."""
        for index in self._texts:
            coded = np.empty(results[index].shape, dtype=object)
            coded.reshape(-1)[:] = [str(item).encode() for item in results[index].reshape(-1)]
            results[index] = coded

    def _explain(self, error: Exception, pending: PendingRequest) -> ServeError:
        """What the client is told; the log has the rest."""
        if isinstance(error, InputError):
            return RequestError(error.what, where=self._where(error), expected=error.expected, got=error.got)
        self._log_failure(error, pending)
        if isinstance(error, ServeError):
            return error
        if isinstance(error, ResourceError | MemoryError):
            return RunError(f"model '{self._name}': memory ran out while it ran")
        kind = "" if isinstance(error, DovetailError) else f" ({type(error).__name__})"
        return RunError(f"model '{self._name}' failed while it ran{kind}; the log of the server says why")

    def _log_failure(self, error: Exception, pending: PendingRequest) -> None:
        """Log a failure with its traceback, and those of the next second as a number: clients may send any amount."""
        now_ns = time.perf_counter_ns()
        self._unlogged += 1
        if now_ns < self._quiet_until_ns:
            return
        where = f"model '{self._name}' version {self._version}"
        before = f", and {self._unlogged - 1} before it" if self._unlogged > 1 else ""
        _LOG.error("%s failed, request %a%s", where, pending.request.id[:_SHOWN], before, exc_info=error)
        self._unlogged, self._quiet_until_ns = 0, now_ns + _QUIET_NS

    def _where(self, error: InputError) -> str:
        return f"model '{self._name}'" + (f", {error.where}" if error.where else "")
