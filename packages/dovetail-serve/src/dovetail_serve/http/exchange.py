"""One request and its client: the bytes that come, and whether somebody still waits for a response."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, Final, TypeVar

from dovetail_serve.errors import DeadlineError
from dovetail_serve.http.overdue import Overdue

__all__ = ["ClientGoneError", "Exchange", "Patience"]

T = TypeVar("T")

_BEFORE_WATCH_S: Final = 0.002
"""Most requests are answered before it is worth a task to look whether their client is still there."""


class ClientGoneError(Exception):
    """The client closed the connection; nobody waits for a response."""


class Patience:
    """What the exchanges of one server share: how long bytes may take, and who is watched."""

    def __init__(self, idle_s: float) -> None:
        self.idle_s = idle_s
        self.reading: Final[Overdue[Exchange]] = Overdue(idle_s, Exchange.stop_reading)
        self.running: Final[Overdue[Exchange]] = Overdue(_BEFORE_WATCH_S, Exchange.start_watch)


class Exchange:
    """The bytes of a request, and a wait for its response that ends when the client goes."""

    __slots__ = ("_is_gone", "_is_idle", "_owner", "_patience", "_receive", "_watcher")

    def __init__(self, receive: Any, patience: Patience) -> None:
        self._receive = receive
        self._patience = patience
        self._owner = asyncio.current_task()
        self._watcher: asyncio.Task[None] | None = None
        self._is_gone = False
        self._is_idle = False

    async def read_part(self) -> tuple[bytes, bool]:
        """The next bytes of the body, and whether they are the last."""
        self._patience.reading.add(self)
        try:
            message = await self._receive()
        except asyncio.CancelledError:
            if self._is_idle:
                raise self._uncancelled(DeadlineError("the body of the request did not arrive in time")) from None
            raise
        finally:
            self._patience.reading.remove(self)
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        return message.get("body", b""), not message.get("more_body", False)

    def stop_reading(self) -> None:
        """End the wait for bytes."""
        self._is_idle = True
        self._cancel_owner()

    async def wait_for(self, work: Awaitable[T]) -> T:
        """What ``work`` gives; it is cancelled when the client goes."""
        self._patience.running.add(self)
        try:
            return await work
        except asyncio.CancelledError:
            if self._is_gone:
                raise self._uncancelled(ClientGoneError()) from None
            raise
        finally:
            self._patience.running.remove(self)
            if self._watcher is not None:
                self._watcher.cancel()

    def start_watch(self) -> None:
        """Look whether the client goes."""
        self._watcher = asyncio.get_running_loop().create_task(self._watch())

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._is_gone = True
        self._cancel_owner()

    def _cancel_owner(self) -> None:
        if self._owner is not None:
            self._owner.cancel()

    def _uncancelled(self, error: Exception) -> Exception:
        if self._owner is not None:
            self._owner.uncancel()
        return error
