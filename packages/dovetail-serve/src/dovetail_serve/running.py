"""A server while it runs: the service and what listens to it, on the event loop that it was started on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from dovetail_serve.addresses import TlsFiles
from dovetail_serve.assembly import make_listeners
from dovetail_serve.listeners import Listener
from dovetail_serve.options import ServerOptions
from dovetail_serve.protocol.documents import IndexEntry
from dovetail_serve.service import InferenceService

__all__ = ["RunningServer"]

_LOG: Final = logging.getLogger("dovetail_serve.server")
_LAST_WORDS_S: Final = 5.0
"""How long responses that are ready have to be sent after draining."""


class RunningServer:
    """Everything between ``start`` and ``stop``; all of it is called on one event loop."""

    def __init__(self, models: Path, options: ServerOptions, tls: TlsFiles | None) -> None:
        self._options = options
        self._service = InferenceService(models, options)
        self._listeners = make_listeners(self._service, options, tls)
        self._hurry = asyncio.Event()

    @property
    def listeners(self) -> dict[str, Listener]:
        """What listens: ``http``, ``grpc``."""
        return self._listeners

    @property
    def service(self) -> InferenceService:
        """What answers requests."""
        return self._service

    async def start(self, *, load_first: bool = False) -> None:
        """Listen, and begin to load models, or load them all before anybody can connect."""
        try:
            if load_first:
                await self._service.start()
                await self._service.wait_loaded()
            for listener in self._listeners.values():
                await listener.start()
            if not load_first:
                await self._service.start()
        except BaseException:
            await self._close(0.0)
            raise

    async def index(self) -> Sequence[IndexEntry]:
        """The models and their states."""
        return self._service.index()

    async def wait_loaded(self, timeout_s: float | None) -> bool:
        """Wait until every model is ready or has failed; whether that came in time."""
        try:
            await asyncio.wait_for(self._service.wait_loaded(), timeout_s)
        except TimeoutError:
            return False
        return True

    async def stop(self) -> bool:
        """Drain and end; whether all accepted requests were answered."""
        is_drained = await self._drain()
        await self._close(_LAST_WORDS_S if is_drained else 0.0)
        return is_drained

    def stop_now(self) -> None:
        """Let a ``stop`` that waits, or one to come, wait no longer."""
        self._hurry.set()

    async def _drain(self) -> bool:
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

    async def _close(self, grace_s: float) -> None:
        await asyncio.gather(*(listener.stop(grace_s) for listener in self._listeners.values()))
        await self._service.close()
