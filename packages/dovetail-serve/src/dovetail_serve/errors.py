"""What a client can be told has gone wrong: each error has a status of HTTP and one of gRPC.

A message of these reaches clients: it names what they sent and what the model declares, never a path, an address or a
text of another library.
"""

from __future__ import annotations

from typing import ClassVar

from dovetail.errors import DovetailError

__all__ = [
    "DeadlineError",
    "DrainingError",
    "ForbiddenError",
    "NotReadyError",
    "QueueFullError",
    "RequestError",
    "RunError",
    "ServeError",
    "TooLargeError",
    "UnauthorizedError",
    "UnknownModelError",
    "UnsupportedError",
]


class ServeError(DovetailError):
    """The root of what a client is told."""

    http_status: ClassVar[int] = 500
    grpc_status: ClassVar[str] = "INTERNAL"
    """The name of a member of ``grpc.StatusCode``."""


class RequestError(ServeError):
    """The request does not fit the protocol or the model."""

    http_status = 400
    grpc_status = "INVALID_ARGUMENT"


class UnauthorizedError(ServeError):
    """The key is missing or wrong."""

    http_status = 401
    grpc_status = "UNAUTHENTICATED"


class ForbiddenError(ServeError):
    """The server was started without what the request asks for, such as control of models."""

    http_status = 403
    grpc_status = "PERMISSION_DENIED"


class UnknownModelError(ServeError):
    """There is no such model or version."""

    http_status = 404
    grpc_status = "NOT_FOUND"


class UnsupportedError(ServeError):
    """The protocol has what the request asks for, and this server does not."""

    http_status = 400
    grpc_status = "UNIMPLEMENTED"


class TooLargeError(ServeError):
    """The request is over a limit of size."""

    http_status = 413
    grpc_status = "RESOURCE_EXHAUSTED"


class RunError(ServeError):
    """The model failed while it ran."""


class NotReadyError(ServeError):
    """The model is there and cannot run: it is loading, or could not be loaded."""

    http_status = 503
    grpc_status = "UNAVAILABLE"


class QueueFullError(ServeError):
    """As many requests wait as may wait."""

    http_status = 503
    grpc_status = "UNAVAILABLE"
    retry_after_s: ClassVar[int] = 1


class DrainingError(ServeError):
    """The server is stopping and takes no further requests."""

    http_status = 503
    grpc_status = "UNAVAILABLE"
    retry_after_s: ClassVar[int] = 1


class DeadlineError(ServeError):
    """The request waited longer than it may; it has not run."""

    http_status = 504
    grpc_status = "DEADLINE_EXCEEDED"
