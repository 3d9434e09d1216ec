"""A server of models: HTTP and gRPC over one service, on an event loop in a thread of its own.

The loop has its own thread wherever the server runs, so that a notebook, a test and the command line go one way, and
signals stay with the main thread.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Coroutine, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, TypeVar

from dovetail.errors import UsageError
from dovetail_serve.addresses import check_options, format_address, read_tls
from dovetail_serve.options import ServerOptions

if TYPE_CHECKING:
    from dovetail_serve.listeners import Listener
    from dovetail_serve.protocol.documents import IndexEntry
    from dovetail_serve.service import InferenceService

__all__ = ["Server"]

T = TypeVar("T")

_LOG: Final = logging.getLogger("dovetail_serve.server")
_LAST_WORDS_S: Final = 5.0
"""How long responses that are ready have to be sent after draining."""
_POLL_S: Final = 0.02


class Server:
    """Serves a folder of models until it is stopped.

    >>> from dovetail_serve.server import Server
    >>> with Server("models", ServerOptions(http_port=0, grpc_port=0)) as server:  # doctest: +SKIP
    ...     print(server.http_url, [entry.state for entry in server.index()])
    """

    def __init__(self, models: str | Path, options: ServerOptions = ServerOptions()) -> None:
        check_options(options)
        self._models = Path(models)
        self._options = options
        self._tls = read_tls(options)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._service: InferenceService | None = None
        self._listeners: dict[str, Listener] = {}
        self._hurry: asyncio.Event | None = None

    @property
    def options(self) -> ServerOptions:
        """What it was made with."""
        return self._options

    @property
    def http_port(self) -> int | None:
        """The port of HTTP while it runs; None without HTTP."""
        return self._listeners["http"].port if "http" in self._listeners else None

    @property
    def grpc_port(self) -> int | None:
        """The port of gRPC while it runs; None without gRPC."""
        return self._listeners["grpc"].port if "grpc" in self._listeners else None

    @property
    def http_url(self) -> str | None:
        """Where HTTP is, such as ``http://127.0.0.1:8000``."""
        scheme = "http" if self._tls is None else "https"
        return f"{scheme}://{self._address(self.http_port)}" if self.http_port else None

    @property
    def grpc_address(self) -> str | None:
        """Where gRPC is, such as ``127.0.0.1:8001``."""
        return self._address(self.grpc_port) if self.grpc_port else None

    def _address(self, port: int | None) -> str:
        return format_address(self._options.host, port or 0)

    def __enter__(self) -> Server:
        self.start()
        self.wait_until_loaded()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Listen, and begin to load models; returns when connections are taken.

        Raises:
            DovetailError: The folder, a port or a certificate cannot be used.
        """
        if self._loop is not None:
            raise UsageError("the server has been started already", fix="make another one")
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run_loop, name="dovetail-serve", daemon=True)
        self._thread.start()
        try:
            self._await(self._start())
        except BaseException:
            self.stop_now()
            self.stop()
            raise

    def _run_loop(self) -> None:
        assert self._loop is not None
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        _finish(self._loop)

    def _await(self, work: Coroutine[Any, Any, T]) -> T:
        return self._submit(work).result()

    def _submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def _start(self) -> None:
        from dovetail_serve.assembly import make_listeners
        from dovetail_serve.service import InferenceService

        self._hurry = asyncio.Event()
        self._service = InferenceService(self._models, self._options)
        listeners = make_listeners(self._service, self._options, self._tls)
        for name, listener in listeners.items():
            await listener.start()
            self._listeners[name] = listener
        await self._service.start()

    def index(self) -> Sequence[IndexEntry]:
        """The models and their states."""
        return self._await(self._ask_index())

    async def _ask_index(self) -> Sequence[IndexEntry]:
        assert self._service is not None
        return self._service.index()

    def wait_until_loaded(self, timeout_s: float | None = None) -> bool:
        """Wait until every model is ready or has failed; whether that came in time."""
        end = None if timeout_s is None else time.monotonic() + timeout_s
        while any(entry.state == "LOADING" for entry in self.index()):
            if end is not None and time.monotonic() > end:
                return False
            time.sleep(_POLL_S)
        return True

    def stop(self) -> bool:
        """Drain and end: accepted requests are answered, new ones are refused; whether all were answered in time."""
        if self._loop is None or self._thread is None or not self._thread.is_alive():
            return True
        try:
            return self._await(self._stop())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def stop_now(self) -> None:
        """Let a ``stop`` that waits, or one to come, wait no longer."""
        if self._loop is not None and self._hurry is not None:
            self._loop.call_soon_threadsafe(self._hurry.set)

    async def _stop(self) -> bool:
        is_drained = await self._drain() if self._service is not None else True
        grace_s = _LAST_WORDS_S if is_drained else 0.0
        await asyncio.gather(*(listener.stop(grace_s) for listener in self._listeners.values()))
        if self._service is not None:
            await self._service.close()
        return is_drained

    async def _drain(self) -> bool:
        assert self._service is not None
        assert self._hurry is not None
        drained, hurried = asyncio.create_task(self._service.drain()), asyncio.create_task(self._hurry.wait())
        both = (drained, hurried)
        await asyncio.wait(both, timeout=self._options.drain_s, return_when=asyncio.FIRST_COMPLETED)
        is_drained = drained.done()
        if not is_drained:
            reason = "a second signal came" if hurried.done() else f"{self._options.drain_s:g} s have passed"
            _LOG.error("stopped before all requests were answered: %s", reason)
        for task in both:
            task.cancel()
        await asyncio.gather(*both, return_exceptions=True)
        return is_drained


def _finish(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel what is left on a loop and close it."""
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()
