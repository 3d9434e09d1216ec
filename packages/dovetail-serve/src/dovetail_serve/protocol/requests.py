"""An inference request and its response, without the bytes they came in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

__all__ = ["InferRequest", "InferResponse"]

Array = Any


class InferRequest(msgspec.Struct, frozen=True):
    """One request: arrays by name for one model. The arrays may be views of the body and must not be written to."""

    model: str
    inputs: Mapping[str, Array]
    """A BYTES tensor is an array of objects, each of them ``bytes``."""
    version: str = ""
    """A version of the model; empty for the one that the model's policy chooses."""
    outputs: Sequence[str] | None = None
    """The outputs that are wanted; None for all."""
    id: str = ""
    priority: int = 0
    """Smaller runs earlier; 0 is the model's default."""
    timeout_us: int = 0
    """How long it may wait in the queue; 0 for the model's default."""
    parameters: Mapping[str, bool | int | float | str] = {}
    """What else the client sent; kept for logs and traces."""


class InferResponse(msgspec.Struct, frozen=True):
    """The outputs of one request, in the order in which they were asked for."""

    model: str
    version: str
    outputs: Mapping[str, Array]
    id: str = ""
    queue_ns: int = 0
    """How long the request waited; for logs and traces."""
    compute_ns: int = 0
    """How long the run took that it was in."""
