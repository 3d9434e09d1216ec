"""``/metrics``: what Prometheus reads, behind the same key as everything else."""

from __future__ import annotations

from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from starlette.requests import Request
from starlette.responses import Response

from dovetail_serve.metrics.collector import ServiceCollector
from dovetail_serve.metrics.observed import ObservedService

__all__ = ["make_metrics_app"]


def make_metrics_app(service: ObservedService) -> Any:
    """An ASGI application that answers with the metrics of a service, in the format that the client asks for."""
    registry = CollectorRegistry()
    registry.register(ServiceCollector(service))

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        request = Request(scope)
        if request.method not in ("GET", "HEAD"):
            await Response(status_code=405, headers={"Allow": "GET, HEAD"})(scope, receive, send)
            return
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        await Response(encode(registry), headers={"Content-Type": content_type})(scope, receive, send)

    return answer
