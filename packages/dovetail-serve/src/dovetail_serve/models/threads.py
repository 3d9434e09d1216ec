"""Runs what takes long beside the event loop, on threads that never keep a process from ending."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

__all__ = ["run_on_thread"]

_T = TypeVar("_T")


async def run_on_thread(function: Callable[..., _T], *arguments: object) -> _T:
    """The result of a function that runs on a thread of its own.

    Threads of a pool are waited for when a process ends, so one build that hangs would keep the server from stopping.
    A task that is cancelled stops waiting; the function goes on.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[_T] = loop.create_future()

    def finish(result: _T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]

    def work() -> None:
        result, error = None, None
        try:
            result = function(*arguments)
        except BaseException as raised:  # noqa: BLE001 - it is raised again where somebody waits for it
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop is closed, and nobody waits
            loop.call_soon_threadsafe(finish, result, error)

    threading.Thread(target=work, name="dovetail-load", daemon=True).start()
    return await future
