"""A browser of the machine that cannot reach anything but the page it is given."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from playwright.sync_api import Browser, Page, sync_playwright

__all__ = ["OpenPage", "open_page", "run_browser"]

_READY_MS = 20_000


@dataclass(kw_only=True)
class OpenPage:
    """A page, and what it complained of or asked for."""

    page: Page
    problems: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        return self.page.evaluate(script)

    @property
    def ready_ms(self) -> int:
        """From the start of loading until the graph was drawn."""
        return int(self.run("document.documentElement.dataset.ready"))


@contextmanager
def run_browser() -> Iterator[Browser]:
    """Chromium; CHROMIUM names another one than Debian's."""
    path = os.environ.get("CHROMIUM") or "/usr/bin/chromium"
    with sync_playwright() as playwright:
        # A container has no user namespaces for the sandbox, and the pages are our own.
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@contextmanager
def open_page(
    browser: Browser,
    path: Path,
    link: str = "",
    *,
    size: tuple[int, int] = (1440, 900),
    scheme: Literal["light", "dark"] = "light",
) -> Iterator[OpenPage]:
    """A page from a file, offline, once its graph is drawn."""
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]}, color_scheme=scheme, offline=True, accept_downloads=True
    )
    found = OpenPage(page=context.new_page())
    found.page.on("console", lambda message: found.problems.append(f"{message.type}: {message.text}"))
    found.page.on("pageerror", lambda error: found.problems.append(str(error)))
    found.page.on("request", lambda request: found.requests.append(request.url))
    found.page.on("dialog", lambda dialog: found.problems.append(f"dialog: {dialog.message}"))
    found.page.goto(f"{path.resolve().as_uri()}#{link}")
    found.page.wait_for_selector("html[data-ready]", timeout=_READY_MS)
    yield found
    context.close()
