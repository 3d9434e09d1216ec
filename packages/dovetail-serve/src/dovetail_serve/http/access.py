"""The API key over HTTP, asked for everywhere but at the health of the server, which orchestrators probe."""

from __future__ import annotations

from typing import Any, Final

from dovetail_serve.errors import UnauthorizedError
from dovetail_serve.http.response import send_error
from dovetail_serve.protocol.keys import check_key

__all__ = ["KeyMiddleware"]

_OPEN: Final = frozenset({"/v2/health/live", "/v2/health/ready"})


class KeyMiddleware:
    """Lets requests with the key through."""

    def __init__(self, app: Any, key: str) -> None:
        self._app = app
        self._key = key

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass on a request that has the key."""
        if scope["type"] == "http" and scope["path"] not in _OPEN:
            try:
                check_key(self._key, {name.decode("latin-1"): value for name, value in scope["headers"]})
            except UnauthorizedError as error:
                await send_error(send, error)
                return
        await self._app(scope, receive, send)
