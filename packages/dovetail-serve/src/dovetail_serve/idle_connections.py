"""Closes connections of HTTP that never finish the head of a request.

uvicorn counts the time of a connection after a response, and HTTP counts that of a body; a client that sends its
headers byte by byte would otherwise keep its connection for ever.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection
from typing import Any, Final

__all__ = ["close_slow_heads"]

_LOOKS: Final = 4
"""How often connections are looked at in the time that they have."""


async def close_slow_heads(connections: Collection[Any], idle_s: float) -> None:
    """Go on for ever closing connections of uvicorn that take longer than ``idle_s`` for the head of a request."""
    seen: dict[Any, float] = {}
    while True:
        await asyncio.sleep(idle_s / _LOOKS)
        now = time.monotonic()
        seen = {each: seen.get(each, now) for each in list(connections) if _has_no_request(each)}
        for connection, since in seen.items():
            if now - since >= idle_s:
                connection.transport.abort()


def _has_no_request(connection: Any) -> bool:
    """Whether a connection is before the end of a head: it has not begun a request, nor waits for the next one."""
    if connection.cycle is None:
        return True
    return bool(connection.cycle.response_complete and connection.timeout_keep_alive_task is None)
