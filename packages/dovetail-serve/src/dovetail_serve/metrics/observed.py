"""A service that is watched: failures are counted and logged, requests where somebody wants them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import Protocol

from dovetail_serve.errors import ServeError, UnknownModelError
from dovetail_serve.metrics.logs import FailureLog, RequestLog
from dovetail_serve.options import ServerOptions
from dovetail_serve.protocol.documents import IndexEntry, ModelConfig, ModelMetadata, ModelStatistics
from dovetail_serve.protocol.requests import InferRequest, InferResponse
from dovetail_serve.protocol.service import Service

__all__ = ["ObservedService", "RequestObserver", "make_observer"]


class RequestObserver(Protocol):
    """Is told of each request when it has ended."""

    def observe(self, request: InferRequest, start_ns: int, end: InferResponse | BaseException) -> None:
        """Take note of a request that came at ``start_ns`` of ``time.time_ns``, and of its response or failure."""


def make_observer(options: ServerOptions) -> RequestObserver | None:
    """What the options want to know of each request; None for nothing."""
    observers: list[RequestObserver] = []
    if options.log_requests:
        observers.append(RequestLog())
    if options.tracing:
        from dovetail_serve.metrics.tracing import SpanWriter

        observers.append(SpanWriter())
    if len(observers) > 1:
        return _Observers(observers)
    return observers[0] if observers else None


class _Observers:
    def __init__(self, parts: Sequence[RequestObserver]) -> None:
        self._parts = parts

    def observe(self, request: InferRequest, start_ns: int, end: InferResponse | BaseException) -> None:
        for part in self._parts:
            part.observe(request, start_ns, end)


class ObservedService:
    """Passes everything on to a service, and counts the requests that fail by model and kind."""

    def __init__(self, service: Service, observer: RequestObserver | None = None) -> None:
        self._service = service
        self._observer = observer
        self._log = FailureLog()
        self.failures: Counter[tuple[str, str]] = Counter()
        """By model and name of the error. A model that is not there has no name: clients could make up any number."""

    @property
    def is_ready(self) -> bool:
        """That of the service."""
        return self._service.is_ready

    def is_model_ready(self, name: str, version: str = "") -> bool:
        """That of the service."""
        return self._service.is_model_ready(name, version)

    def describe(self, name: str, version: str = "") -> ModelMetadata:
        """That of the service."""
        return self._service.describe(name, version)

    def configuration(self, name: str, version: str = "") -> ModelConfig:
        """That of the service."""
        return self._service.configuration(name, version)

    def statistics(self, name: str = "", version: str = "") -> Sequence[ModelStatistics]:
        """That of the service."""
        return self._service.statistics(name, version)

    def index(self, *, ready_only: bool = False) -> Sequence[IndexEntry]:
        """That of the service."""
        return self._service.index(ready_only=ready_only)

    async def infer(self, request: InferRequest) -> InferResponse:
        """Pass a request on, and take note of how it ends."""
        if self._observer is not None:
            return await self._infer_observed(request, self._observer)
        try:
            return await self._service.infer(request)
        except ServeError as error:
            self._note_failure(request, error)
            raise

    async def _infer_observed(self, request: InferRequest, observer: RequestObserver) -> InferResponse:
        start_ns = time.time_ns()
        try:
            response = await self._service.infer(request)
        except BaseException as error:
            if isinstance(error, ServeError):
                self._note_failure(request, error)
            observer.observe(request, start_ns, error)
            raise
        observer.observe(request, start_ns, response)
        return response

    def _note_failure(self, request: InferRequest, error: ServeError) -> None:
        model = "" if isinstance(error, UnknownModelError) else request.model
        self.failures[model, type(error).__name__] += 1
        self._log.write(model, request, error)

    def note_unread(self, model: str, version: str, error: ServeError) -> None:
        """Count and log a request that could not be read, without what it held."""
        self._service.note_unread(model, version, error)
        known = self._know(model)
        request = InferRequest(known, {}, version if known else "")
        self._note_failure(request, type(error)(error.what, where=error.where))
        if self._observer is not None:
            self._observer.observe(request, time.time_ns(), error)

    def _know(self, model: str) -> str:
        """The name of a model that is there; empty for any other."""
        try:
            self._service.describe(model)
        except UnknownModelError:
            return ""
        except ServeError:
            return model
        return model

    async def load(self, name: str) -> None:
        """That of the service."""
        await self._service.load(name)

    async def unload(self, name: str) -> None:
        """That of the service."""
        await self._service.unload(name)

    async def drain(self) -> None:
        """That of the service."""
        await self._service.drain()
