"""The standard health service of gRPC, for orchestrators and load balancers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from dovetail_serve.errors import ServeError
from dovetail_serve.grpc.messages import HEALTH
from dovetail_serve.grpc.request import parse
from dovetail_serve.protocol.service import Service

__all__ = ["HEALTH_SERVICE", "INFERENCE_SERVICE", "HealthMethods", "UnknownServiceError"]

HEALTH_SERVICE: Final = "grpc.health.v1.Health"
INFERENCE_SERVICE: Final = "inference.GRPCInferenceService"
_POLL_S: Final = 0.25
_SERVING, _NOT_SERVING, _UNKNOWN = 1, 2, 3


class UnknownServiceError(ServeError):
    """The health of a service was asked for that the server does not have."""

    http_status = 404
    grpc_status = "NOT_FOUND"


class HealthMethods:
    """Says whether the server takes requests."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def _status(self, data: bytes) -> int:
        name = parse(HEALTH["HealthCheckRequest"](), data).service
        if name not in ("", INFERENCE_SERVICE, HEALTH_SERVICE):
            return _UNKNOWN
        return _SERVING if self._service.is_ready else _NOT_SERVING

    async def check(self, data: bytes, remaining_s: float | None) -> bytes:
        """The status now."""
        status = self._status(data)
        if status == _UNKNOWN:
            raise UnknownServiceError("there is no such service", expected=INFERENCE_SERVICE)
        return _encode(status)

    async def watch(self, data: bytes) -> AsyncIterator[bytes]:
        """The status now, and each time that it changes."""
        last = None
        while True:
            status = self._status(data)
            if status != last:
                last = status
                yield _encode(status)
            await asyncio.sleep(_POLL_S)


def _encode(status: int) -> bytes:
    data: bytes = HEALTH["HealthCheckResponse"](status=status).SerializeToString()
    return data
