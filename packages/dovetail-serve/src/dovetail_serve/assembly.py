"""Puts a server together: the service with its observers, HTTP with its pages, gRPC."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dovetail_serve.addresses import TlsFiles
from dovetail_serve.listeners import GrpcListener, HttpListener, Listener
from dovetail_serve.metrics.observed import ObservedService, make_observer
from dovetail_serve.options import ServerOptions
from dovetail_serve.protocol.service import Service

if TYPE_CHECKING:
    App = Any

__all__ = ["make_listeners"]


def make_listeners(service: Service, options: ServerOptions, tls: TlsFiles | None) -> dict[str, Listener]:
    """What listens to a service, by name, not yet started."""
    observed = ObservedService(service, make_observer(options))
    listeners: dict[str, Listener] = {}
    if options.http_port is not None:
        listeners["http"] = HttpListener(_make_http(observed, options), options, options.http_port)
    if options.grpc_port is not None:
        listeners["grpc"] = GrpcListener(_make_grpc(observed, options), options, options.grpc_port, tls)
    return listeners


def _make_http(service: ObservedService, options: ServerOptions) -> App:
    from dovetail_serve.http import make_app
    from dovetail_serve.http.access import KeyMiddleware
    from dovetail_serve.metrics.endpoint import make_metrics_app
    from dovetail_serve.origins import OriginGuard
    from dovetail_serve.page import make_page_app

    metrics = make_metrics_app(service)
    if options.api_key is not None:
        metrics = KeyMiddleware(metrics, options.api_key)
    # The page holds nothing of any model: it is open to all, and asks for the key itself.
    app = OriginGuard(_add_pages(make_app(service, options), {"/": make_page_app(), "/metrics": metrics}), options.host)
    if options.tracing:
        from dovetail_serve.metrics.tracing import take_up_http

        return take_up_http(app)
    return app


def _add_pages(app: App, pages: Mapping[str, App]) -> App:
    """An application with further pages: one look into a dictionary, as each request passes here."""

    def dispatch(scope: Any, receive: Any, send: Any) -> Any:
        return pages.get(scope.get("path"), app)(scope, receive, send)

    return dispatch


def _make_grpc(service: ObservedService, options: ServerOptions) -> Any:
    from dovetail_serve.grpc import make_grpc_server

    interceptors: list[Any] = []
    if options.tracing:
        from dovetail_serve.metrics.tracing import TraceInterceptor

        interceptors.append(TraceInterceptor())
    return make_grpc_server(service, options, interceptors)
