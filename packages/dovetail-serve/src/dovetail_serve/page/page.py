"""The page: one file that is the same for everybody and reads what it shows from the server as any client does.

Nothing of a model is written into it here, so no name can become markup. The policy in its headers names the digests of
its own style and script, and lets it talk to this server alone.
"""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files
from typing import Any, Final, NamedTuple

from starlette.responses import Response

__all__ = ["PageDocument", "make_page", "make_page_app"]

_SCRIPTS: Final = ("elements", "api", "tensors", "image", "models", "form", "main")
"""In the order they need each other."""


class PageDocument(NamedTuple):
    """The page, and the policy that it is sent with."""

    text: str
    policy: str


def make_page() -> PageDocument:
    """Put the page together.

    >>> page = make_page()
    >>> "http://" in page.text.replace("http://www.w3.org", ""), page.policy[:19]
    (False, "default-src 'none';")
    """
    style = _read("style.css")
    script = "\n".join(('"use strict";', *(_read(f"{name}.js") for name in _SCRIPTS)))
    policy = (
        "default-src 'none'",
        f"style-src {_digest(style)}",
        f"script-src {_digest(script)}",
        "connect-src 'self'",
        "img-src blob: data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
    text = _read("page.html").replace("@@STYLE@@", style).replace("@@SCRIPT@@", script)
    return PageDocument(text, "; ".join(policy))


def make_page_app() -> Any:
    """An ASGI application that answers with the page."""
    page = make_page()
    headers = {
        "Content-Security-Policy": page.policy,
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "no-cache",
    }
    shown = Response(page.text, media_type="text/html", headers=headers)
    refused = Response(status_code=405, headers={"Allow": "GET, HEAD"})

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        response = shown if scope["method"] in ("GET", "HEAD") else refused
        await response(scope, receive, send)

    return answer


def _read(name: str) -> str:
    return (files("dovetail_serve.page") / "assets" / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
