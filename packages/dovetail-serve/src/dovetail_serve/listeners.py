"""The two ways in: uvicorn for HTTP and grpc.aio for gRPC, started and stopped alike on one event loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from typing import Any, Final, Protocol

import grpc
import uvicorn

from dovetail.errors import ResourceError
from dovetail_serve.addresses import TlsFiles, bind_socket, format_address
from dovetail_serve.idle_connections import close_slow_heads
from dovetail_serve.options import ServerOptions

__all__ = ["GrpcListener", "HttpListener", "Listener"]

_POLL_S: Final = 0.005
_IDLE_CLOSE_S: Final = 1.0


class Listener(Protocol):
    """Takes requests from one port."""

    port: int
    """The port that it has; before it has started, the one that is wanted."""

    async def start(self) -> None:
        """Listen."""

    async def stop(self, grace_s: float) -> None:
        """Take no further connections, send the responses that are due, and close; at once for 0."""


class HttpListener:
    """uvicorn over a socket of ours."""

    def __init__(self, app: Any, options: ServerOptions, port: int) -> None:
        self._host = options.host
        self._server = _SignalFreeServer(_configure(app, options))
        self._idle_s = options.limits.idle_s
        self._sweep: asyncio.Task[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self.port = port

    async def start(self) -> None:
        """Bind, and wait until connections are taken."""
        listening = bind_socket(self._host, self.port, option="--http-port")
        self.port = listening.getsockname()[1]
        self._task = asyncio.create_task(self._server.serve(sockets=[listening]))
        while not self._server.started:
            if self._task.done():
                await self._task
                raise ResourceError("HTTP ended while it started", where=format_address(self._host, self.port))
            await asyncio.sleep(_POLL_S)
        self._sweep = asyncio.create_task(close_slow_heads(self._server.server_state.connections, self._idle_s))

    async def stop(self, grace_s: float) -> None:
        """Close idle connections, and the others after their responses."""
        if self._sweep is not None:
            self._sweep.cancel()
        if self._task is None:
            return
        # uvicorn logs an error when no time is left, also where nobody is connected and nothing is given up.
        is_idle = not (self._server.server_state.connections or self._server.server_state.tasks)
        self._server.config.timeout_graceful_shutdown = max(grace_s, _IDLE_CLOSE_S) if is_idle else grace_s
        self._server.force_exit = grace_s <= 0
        self._server.should_exit = True
        await self._task


class _SignalFreeServer(uvicorn.Server):  # type: ignore[misc]  # uvicorn is in no environment that is linted
    """Leaves signals to whoever runs the process."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _configure(app: Any, options: ServerOptions) -> uvicorn.Config:
    limits = options.limits
    return uvicorn.Config(
        app,
        interface="asgi3",
        http="h11",  # the other parser of uvicorn has no limit on headers
        lifespan="off",
        ws="none",
        log_config=None,
        log_level=logging.WARNING,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=limits.connections,
        timeout_keep_alive=limits.idle_s,
        h11_max_incomplete_event_size=limits.header_bytes,
        ssl_certfile=options.tls_certificate,
        ssl_keyfile=options.tls_key,
    )


class GrpcListener:
    """A server of grpc.aio at a port of ours."""

    def __init__(self, server: Any, options: ServerOptions, port: int, tls: TlsFiles | None) -> None:
        self._server = server
        self._host = options.host
        self._tls = tls
        self.port = port

    async def start(self) -> None:
        """Bind, and take calls."""
        # gRPC shares ports between processes: only a socket that does not can tell that one is taken.
        with bind_socket(self._host, self.port, option="--grpc-port") as probe:
            self.port = probe.getsockname()[1]
        address = format_address(self._host, self.port)
        try:
            self._add_port(address)
        except RuntimeError as error:
            fix = "choose another port: --grpc-port 0 takes any that is free"
            raise ResourceError("gRPC cannot listen", where=address, fix=fix) from error
        await self._server.start()

    def _add_port(self, address: str) -> None:
        if self._tls is None:
            self._server.add_insecure_port(address)
        else:
            pair = [(self._tls.key, self._tls.certificate)]
            self._server.add_secure_port(address, grpc.ssl_server_credentials(pair))

    async def stop(self, grace_s: float) -> None:
        """End calls after their responses."""
        await self._server.stop(grace_s)
