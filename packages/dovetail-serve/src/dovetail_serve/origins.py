"""Requests of web pages: those of another site are refused, which would otherwise use a server of this machine.

Browsers let any page send requests to any address, also to 127.0.0.1, and name the page in ``Origin``. Other clients
send no such header. A name that leads to a loopback address today may have led elsewhere a moment ago, so a server of
this machine alone also looks at what it was called.
"""

from __future__ import annotations

from typing import Any, Final

from dovetail_serve.addresses import is_loopback
from dovetail_serve.errors import ForbiddenError

__all__ = ["OriginGuard", "is_foreign"]

_SCHEMES: Final = ("http://", "https://")


def is_foreign(origin: str, host: str, *, is_local: bool) -> bool:
    """Whether a page is of another site than the server.

    Args:
        origin: The header of that name.
        host: What the client calls the server, with the port.
        is_local: Whether the server is for this machine alone.

    >>> is_foreign("http://127.0.0.1:8000", "127.0.0.1:8000", is_local=True)
    False
    >>> is_foreign("https://example.org", "127.0.0.1:8000", is_local=True)
    True
    >>> is_foreign("http://example.org:8000", "example.org:8000", is_local=True)
    True
    """
    if origin not in [f"{scheme}{host}" for scheme in _SCHEMES]:
        return True
    return is_local and not is_loopback(_host_name(host))


def _host_name(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


class OriginGuard:
    """An ASGI application that takes no requests from pages of other sites."""

    def __init__(self, app: Any, host: str) -> None:
        self._app = app
        self._is_local = is_loopback(host)

    def __call__(self, scope: Any, receive: Any, send: Any) -> Any:
        """Pass a request on, or refuse it; what comes from no page costs a look at the names of its headers."""
        for name, value in scope["headers"]:
            if name == b"origin" and self._refuses(value, scope):
                return _refuse(send)
        return self._app(scope, receive, send)

    def _refuses(self, origin: bytes, scope: Any) -> bool:
        host = dict(scope["headers"]).get(b"host", b"")
        return is_foreign(origin.decode("latin-1"), host.decode("latin-1"), is_local=self._is_local)


async def _refuse(send: Any) -> None:
    from dovetail_serve.http.response import send_error

    await send_error(send, ForbiddenError("pages of other sites may not use this server"))
