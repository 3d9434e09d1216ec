"""The gRPC server: its methods, its limits, the API key, and the status of what fails."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any, Final

import grpc

from dovetail_serve.errors import ServeError, UnsupportedError
from dovetail_serve.grpc.health import HEALTH_SERVICE, INFERENCE_SERVICE, HealthMethods
from dovetail_serve.grpc.methods import OPEN_METHODS, UNSUPPORTED_METHODS, InferenceMethods
from dovetail_serve.grpc.response import status_of
from dovetail_serve.grpc.stream import answer_stream
from dovetail_serve.options import Limits, ServerOptions
from dovetail_serve.protocol.keys import check_key
from dovetail_serve.protocol.service import Service

__all__ = ["make_grpc_server"]

Method = Callable[[bytes, float | None], Awaitable[bytes]]

_METADATA_BYTES: Final = 16 << 10


def make_grpc_server(
    service: Service, options: ServerOptions, interceptors: Sequence[grpc.aio.ServerInterceptor] = ()
) -> grpc.aio.Server:
    """The server of ``service``, without a port yet; made and started on the event loop that it is to run on."""
    server = grpc.aio.server(
        interceptors=tuple(interceptors),
        options=_channel_options(options.limits),
        maximum_concurrent_rpcs=options.limits.connections,
    )
    server.add_generic_rpc_handlers((_inference_handlers(service, options), _health_handlers(service)))
    return server


def _channel_options(limits: Limits) -> list[tuple[str, int]]:
    return [
        ("grpc.max_receive_message_length", limits.body_bytes),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_metadata_size", _METADATA_BYTES),
        ("grpc.max_concurrent_streams", limits.connections),
        # Half-open connections end; clients may ask as often as every ten seconds.
        ("grpc.keepalive_time_ms", int(limits.idle_s * 1000)),
        ("grpc.keepalive_timeout_ms", 20_000),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),
        # Another server on the port is an error, not a second one that gets every other connection.
        ("grpc.so_reuseport", 0),
    ]


def _inference_handlers(service: Service, options: ServerOptions) -> grpc.GenericRpcHandler:
    methods: dict[str, Method] = dict(InferenceMethods(service, options).by_name)
    for name, what in UNSUPPORTED_METHODS.items():
        methods[name] = _refuse(what)
    handlers = {
        name: grpc.unary_unary_rpc_method_handler(_UnaryMethod(method, _key_for(name, options)).answer)
        for name, method in methods.items()
    }
    stream = _StreamMethod(service, options)
    handlers["ModelStreamInfer"] = grpc.stream_stream_rpc_method_handler(stream.answer)
    return grpc.method_handlers_generic_handler(INFERENCE_SERVICE, handlers)


def _health_handlers(service: Service) -> grpc.GenericRpcHandler:
    health = HealthMethods(service)
    return grpc.method_handlers_generic_handler(
        HEALTH_SERVICE,
        {
            "Check": grpc.unary_unary_rpc_method_handler(_UnaryMethod(health.check, None).answer),
            "Watch": grpc.unary_stream_rpc_method_handler(_WatchMethod(health).answer),
        },
    )


def _key_for(name: str, options: ServerOptions) -> str | None:
    return None if name in OPEN_METHODS else options.api_key


def _refuse(what: str) -> Method:
    async def refuse(data: bytes, remaining_s: float | None) -> bytes:
        raise UnsupportedError(f"{what} over the protocol is not supported")

    return refuse


class _UnaryMethod:
    """A method with the API key before it and the status of what fails after it."""

    def __init__(self, method: Method, key: str | None) -> None:
        self._method = method
        self._key = key

    async def answer(self, data: bytes, context: Any) -> bytes:
        try:
            if self._key is not None:
                check_key(self._key, dict(context.invocation_metadata()))
            return await self._method(data, context.time_remaining())
        except Exception as error:
            await _abort(context, error)
            raise


class _StreamMethod:
    """The stream of requests, with the API key before it."""

    def __init__(self, service: Service, options: ServerOptions) -> None:
        self._service = service
        self._options = options

    async def answer(self, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        if self._options.api_key is not None:
            try:
                check_key(self._options.api_key, dict(context.invocation_metadata()))
            except Exception as error:  # noqa: BLE001 - the client gets a status of the protocol
                await _abort(context, error)
        async with aclosing(answer_stream(requests, self._service, self._options.limits)) as responses:
            async for response in responses:
                yield response


class _WatchMethod:
    """The watch of health, with the status of what fails."""

    def __init__(self, health: HealthMethods) -> None:
        self._health = health

    async def answer(self, data: bytes, context: Any) -> AsyncIterator[bytes]:
        try:
            async for response in self._health.watch(data):
                yield response
        except ServeError as error:
            await _abort(context, error)


async def _abort(context: Any, error: Exception) -> None:
    code, text = status_of(error)
    retry_after_s = getattr(error, "retry_after_s", None)
    trailing = () if retry_after_s is None else (("retry-after", str(retry_after_s)),)
    await context.abort(code, text, trailing)
