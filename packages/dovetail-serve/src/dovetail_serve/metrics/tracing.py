"""Traces of OpenTelemetry: a span for each request, with one for its wait and one for its run below it.

The trace that a client names in ``traceparent`` is taken up, over HTTP and gRPC. Where spans go is set as
OpenTelemetry says it, by ``OTEL_EXPORTER_OTLP_ENDPOINT`` and its like. This module needs the extra ``tracing``.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from typing import Any, Final

import grpc.aio

from dovetail.errors import ResourceError
from dovetail_serve import __version__
from dovetail_serve.errors import ServeError
from dovetail_serve.protocol.requests import InferRequest, InferResponse

try:
    from opentelemetry import trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ModuleNotFoundError as missing:
    raise ResourceError(
        f"traces need the package '{missing.name}', which is not installed",
        fix="pip install 'dovetail-serve[tracing]'",
    ) from missing

__all__ = ["SpanWriter", "TraceInterceptor", "set_up_export", "take_up_http"]

_HEADERS: Final = ("traceparent", "tracestate")
_CARRIER: ContextVar[Mapping[str, str] | None] = ContextVar("dovetail_serve_trace", default=None)
"""What the client said of its trace, for the task that answers the request."""


def take_up_http(app: Any) -> Any:
    """An ASGI application whose requests belong to the traces that their headers name."""

    def take_up(scope: Any, receive: Any, send: Any) -> Any:
        _CARRIER.set(_select((key.decode("latin-1"), value.decode("latin-1")) for key, value in scope["headers"]))
        return app(scope, receive, send)

    return take_up


class TraceInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[misc]  # grpc is in no environment that is linted
    """Has calls of gRPC belong to the traces that their metadata name."""

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], details: Any) -> Any:
        """Take note of the trace, for the handler, which runs in the same task."""
        _CARRIER.set(_select(details.invocation_metadata))
        return await continuation(details)


def _select(headers: Any) -> Mapping[str, str]:
    return {key: value for key, value in headers if key in _HEADERS}


class SpanWriter:
    """Writes the spans of requests that have ended."""

    def __init__(self) -> None:
        self._tracer = trace.get_tracer("dovetail_serve", __version__)
        self._propagator = TraceContextTextMapPropagator()

    def observe(self, request: InferRequest, start_ns: int, end: InferResponse | BaseException) -> None:
        """Write the span of a request; queue and run are told apart where it has run."""
        end_ns = time.time_ns()
        context = self._propagator.extract(_CARRIER.get() or {})
        span = self._tracer.start_span("infer", context, trace.SpanKind.SERVER, _describe(request), start_time=start_ns)
        if isinstance(end, InferResponse):
            span.set_attribute("dovetail.version", end.version)
            self._write_parts(span, start_ns, end)
        else:
            kind = type(end).__name__
            span.set_attribute("error.type", kind)
            text = str(end) if isinstance(end, ServeError) else kind
            span.set_status(trace.Status(trace.StatusCode.ERROR, text))
        span.end(end_ns)

    def _write_parts(self, span: Any, start_ns: int, response: InferResponse) -> None:
        context = trace.set_span_in_context(span)
        run_ns = start_ns + response.queue_ns
        self._tracer.start_span("queue", context, start_time=start_ns).end(run_ns)
        self._tracer.start_span("compute", context, start_time=run_ns).end(run_ns + response.compute_ns)


def _describe(request: InferRequest) -> dict[str, str]:
    known = {"dovetail.model": request.model, "dovetail.request_id": request.id}
    return {name: value for name, value in known.items() if value}


def set_up_export() -> Callable[[], None]:
    """Send spans by OTLP over HTTP, to where the environment says; what it returns sends the rest and ends it."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider(resource=Resource.create({SERVICE_NAME: "dovetail-serve"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    end: Callable[[], None] = provider.shutdown
    return end
