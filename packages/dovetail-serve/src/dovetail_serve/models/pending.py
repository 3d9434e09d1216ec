"""A request on its way through a model."""

from __future__ import annotations

from asyncio import Future, TimerHandle
from typing import Any

from dovetail_serve.errors import ServeError
from dovetail_serve.protocol.requests import InferRequest, InferResponse

__all__ = ["PendingRequest"]

Array = Any


class PendingRequest:
    """One request with its arrays in the order of the engine, and later its response or its error."""

    __slots__ = (
        "arrays",
        "arrived_ns",
        "deadline_ns",
        "error",
        "future",
        "group",
        "is_expired",
        "priority",
        "request",
        "response",
        "samples",
        "timer",
    )

    def __init__(
        self, request: InferRequest, arrays: tuple[Array, ...], samples: int, group: object, arrived_ns: int
    ) -> None:
        self.request = request
        self.arrays = arrays
        self.samples = samples
        self.group = group
        """Requests of equal groups can run together."""
        self.arrived_ns = arrived_ns
        self.priority = request.priority
        self.deadline_ns = 0
        """When it may no longer begin; 0 for no limit."""
        self.is_expired = False
        """Whether whoever was to run it found it too late."""
        self.response: InferResponse | None = None
        self.error: ServeError | None = None
        self.future: Future[None] | None = None
        """Done when there is a response or an error; None where nobody has to wait."""
        self.timer: TimerHandle | None = None
