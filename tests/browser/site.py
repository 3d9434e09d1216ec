"""The built site behind a server on loopback, and what a browser finds wrong with a page of it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Literal, NamedTuple

from playwright.sync_api import Browser, Page, Request, Response, Route

__all__ = ["SCHEMES", "WIDTHS", "SiteWalk", "list_pages", "serve_site", "walk_site"]

Scheme = Literal["light", "dark"]
SCHEMES: tuple[Scheme, ...] = ("light", "dark")
WIDTHS = (390, 1280)
_INSPECT = (Path(__file__).parent / "inspect_page.js").read_text(encoding="utf-8")


class _QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Requests are watched in the browser."""


class _QuietServer(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """A browser that goes on to the next page leaves answers unread."""


@contextmanager
def serve_site(folder: Path) -> Iterator[str]:
    """The address of a server for the files of a folder, on loopback."""
    with _QuietServer(("127.0.0.1", 0), partial(_QuietHandler, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


def list_pages(folder: Path) -> list[str]:
    """The path of every page in a folder, relative to it."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.html"))


class SiteWalk(NamedTuple):
    """Pages to open, in each scheme and at each width."""

    browser: Browser
    address: str
    pages: list[str]


def walk_site(walk: SiteWalk) -> list[str]:
    """Everything that is wrong with the pages, one line each."""
    return [problem for scheme in SCHEMES for problem in _walk_scheme(walk, scheme)]


def _walk_scheme(walk: SiteWalk, scheme: Scheme) -> Iterator[str]:
    context = walk.browser.new_context(color_scheme=scheme)
    page, noted = context.new_page(), list[str]()
    _watch(page, noted)
    context.route("**/*", partial(_stay_here, walk.address, noted))
    for name in walk.pages:
        noted.clear()
        found = list(_inspect(page, walk.address + name))
        yield from (f"{name}, {scheme}: {problem}" for problem in (*noted, *found))
    context.close()


def _watch(page: Page, noted: list[str]) -> None:
    page.on("console", lambda message: noted.append(f"console, {message.type}: {message.text}"))
    page.on("pageerror", lambda error: noted.append(f"script: {error}"))
    page.on("requestfailed", lambda request: _note_failure(request, noted))
    page.on("response", lambda response: _note_status(response, noted))


def _note_failure(request: Request, noted: list[str]) -> None:
    # What the search loads in the background ends so when the next page is opened.
    if request.failure != "net::ERR_ABORTED":
        noted.append(f"request failed, {request.failure}: {request.url}")


def _note_status(response: Response, noted: list[str]) -> None:
    if response.status >= HTTPStatus.BAD_REQUEST:
        noted.append(f"status {response.status}: {response.url}")


def _stay_here(address: str, noted: list[str], route: Route) -> None:
    if route.request.url.startswith(address):
        route.continue_()
    else:
        noted.append(f"request to another host: {route.request.url}")
        route.abort()


def _inspect(page: Page, address: str) -> Iterator[str]:
    page.goto(address, wait_until="load")
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        for problem in page.evaluate(_INSPECT):
            yield f"{width} px: {problem}"
