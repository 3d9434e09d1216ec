"""The service behind HTTP and gRPC: everything that a client may ask, as Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from dovetail_serve.errors import ServeError
from dovetail_serve.protocol.documents import IndexEntry, ModelConfig, ModelMetadata, ModelStatistics
from dovetail_serve.protocol.requests import InferRequest, InferResponse

__all__ = ["Service"]


class Service(Protocol):
    """Models that answer requests; called on the thread of the event loop. Failures are ``ServeError``."""

    @property
    def is_ready(self) -> bool:
        """Whether it takes requests: it has started, and does not drain."""

    def is_model_ready(self, name: str, version: str = "") -> bool:
        """Whether the model, or the version of it, can run."""

    def describe(self, name: str, version: str = "") -> ModelMetadata:
        """What clients need to write a request."""

    def configuration(self, name: str, version: str = "") -> ModelConfig:
        """How the model is served."""

    def statistics(self, name: str = "", version: str = "") -> Sequence[ModelStatistics]:
        """What has been asked of the model, or of all models."""

    def index(self, *, ready_only: bool = False) -> Sequence[IndexEntry]:
        """The models of the repository, with those that could not be loaded."""

    async def infer(self, request: InferRequest) -> InferResponse:
        """Queue the request, and wait for its response.

        A task that is cancelled takes its request out of the queue: what has not begun never runs.
        """

    def note_unread(self, model: str, version: str, error: ServeError) -> None:
        """Take note of a request for inference that could not be read; the model is empty where it is not known."""

    async def load(self, name: str) -> None:
        """Load or reload a model of the repository; the one that is loaded goes on when it fails."""

    async def unload(self, name: str) -> None:
        """Take a model out of service, after the requests that were accepted."""

    async def drain(self) -> None:
        """Take no further requests, and return when those that were accepted are answered."""
