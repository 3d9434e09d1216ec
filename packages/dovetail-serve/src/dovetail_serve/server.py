"""A server of models for programs that have no event loop: a notebook, a test, the command line.

The loop has a thread of its own wherever the server runs, so that all of them go one way, and signals stay with the
main thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from dovetail.errors import InputError, UsageError
from dovetail_serve.addresses import check_options, format_address, read_tls
from dovetail_serve.loop_thread import LoopThread
from dovetail_serve.options import ServerOptions
from dovetail_serve.repository.names import is_version

if TYPE_CHECKING:
    from dovetail_serve.addresses import TlsFiles
    from dovetail_serve.protocol.documents import IndexEntry
    from dovetail_serve.running import RunningServer

__all__ = ["Server"]

_USUAL: Final = ServerOptions()


class Server:
    """Serves a folder of models until it is stopped; in a ``with`` statement, from when its models are loaded."""

    def __init__(self, models: str | Path, options: ServerOptions = _USUAL) -> None:
        """Check what can be checked before anything runs.

        Args:
            models: A folder with MODEL/VERSION/model.plan or model.onnx.
            options: Addresses, limits, and what clients may do.

        Raises:
            DovetailError: The folder or a certificate cannot be used, or the options can never be right.
        """
        check_options(options)
        self._models = _require_folder(Path(models))
        self._options = options
        self._tls = read_tls(options)
        self._thread: LoopThread | None = None
        self._running: RunningServer | None = None

    @property
    def options(self) -> ServerOptions:
        """What it was made with."""
        return self._options

    @property
    def http_port(self) -> int | None:
        """The port of HTTP while it runs; None without HTTP."""
        return self._port("http")

    @property
    def grpc_port(self) -> int | None:
        """The port of gRPC while it runs; None without gRPC."""
        return self._port("grpc")

    def _port(self, name: str) -> int | None:
        listener = None if self._running is None else self._running.listeners.get(name)
        return None if listener is None else listener.port

    @property
    def http_url(self) -> str | None:
        """Where HTTP is, such as ``http://127.0.0.1:8000``."""
        scheme = "http" if self._tls is None else "https"
        return f"{scheme}://{format_address(self._options.host, self.http_port)}" if self.http_port else None

    @property
    def grpc_address(self) -> str | None:
        """Where gRPC is, such as ``127.0.0.1:8001``."""
        return format_address(self._options.host, self.grpc_port) if self.grpc_port else None

    def __enter__(self) -> Self:
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
            DovetailError: A port cannot be used.
        """
        if self._thread is not None:
            raise UsageError("the server has been started already", fix="make another one")
        self._thread = LoopThread("dovetail-serve")
        try:
            self._running = self._thread.run(_start(self._models, self._options, self._tls))
        except BaseException:
            self._thread.close()
            raise

    def index(self) -> Sequence[IndexEntry]:
        """The models and their states."""
        thread, running = self._require_running()
        return thread.run(running.index())

    def _require_running(self) -> tuple[LoopThread, RunningServer]:
        if self._thread is None or self._running is None:
            raise UsageError("the server does not run", fix="call start() first, or use it in a 'with' statement")
        return self._thread, self._running

    def wait_until_loaded(self, timeout_s: float | None = None) -> bool:
        """Wait until every model is ready or has failed; whether that came in time."""
        thread, running = self._require_running()
        return thread.run(running.wait_loaded(timeout_s))

    def stop(self) -> bool:
        """Drain and end: accepted requests are answered, new ones are refused; whether all were answered in time.

        A server that has been stopped stays so.
        """
        thread, running = self._thread, self._running
        if thread is None or running is None:
            return True
        try:
            return thread.run(running.stop())
        finally:
            self._running = None
            thread.close()

    def stop_now(self) -> None:
        """Let a ``stop`` that waits, or one to come, wait no longer; may be called from a signal handler."""
        thread, running = self._thread, self._running
        if thread is not None and running is not None:
            thread.call(running.stop_now)


async def _start(models: Path, options: ServerOptions, tls: TlsFiles | None) -> RunningServer:
    from dovetail_serve.running import RunningServer

    running = RunningServer(models, options, tls)
    await running.start()
    return running


def _require_folder(path: Path) -> Path:
    expected = "a folder with MODEL/VERSION/model.plan or model.onnx"
    if not path.is_dir():
        got = "a file" if path.exists() else "nothing"
        raise InputError("there are no models", where=f"'{path}'", expected=expected, got=got)
    if not any(each.is_dir() and not each.name.startswith(".") for each in path.iterdir()):
        raise InputError("there are no models", where=f"'{path}'", expected=expected, got="a folder without folders")
    if any(is_version(each.parent.name) for pattern in ("*/model.plan", "*/model.onnx") for each in path.glob(pattern)):
        fix = f"serve the folder that it is in: dovetail serve {path.resolve().parent}"
        raise InputError("this is one model", where=f"'{path}'", expected=expected, got="VERSION/model.*", fix=fix)
    return path
