"""A request whose client closes the connection is cancelled."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any, Final, Self

from dovetail_serve.http.body import ClientGoneError

__all__ = ["DisconnectWatch"]

_PATIENCE_S: Final = 0.002
"""Most requests are answered before it is worth a task to look whether their client is still there."""


class DisconnectWatch:
    """Cancels the task that enters it when the client goes; the task then sees ``ClientGoneError``."""

    __slots__ = ("_is_gone", "_owner", "_receive", "_timer", "_watcher")

    def __init__(self, receive: Any) -> None:
        self._receive = receive
        self._watcher: asyncio.Task[None] | None = None
        self._is_gone = False

    def __enter__(self) -> Self:
        self._owner = asyncio.current_task()
        self._timer = asyncio.get_running_loop().call_later(_PATIENCE_S, self._start)
        return self

    def _start(self) -> None:
        self._watcher = asyncio.get_running_loop().create_task(self._watch())

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._is_gone = True
        if self._owner is not None:
            self._owner.cancel()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        if self._watcher is not None:
            self._watcher.cancel()
        if self._is_gone and kind is asyncio.CancelledError and self._owner is not None:
            self._owner.uncancel()
            raise ClientGoneError from None
