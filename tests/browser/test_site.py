"""The site of the documentation in a real browser: every page, light and dark, narrow and wide, offline."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.browser.browsing import run_browser
from tests.browser.site import SiteWalk, list_pages, serve_site, walk_site

SITE = Path(__file__).parents[2] / "build/site"
_SAMPLE_STEP = 20
_BAD_PAGE = """<!doctype html><html lang="en"><title>bad</title><body style="background: #111; color: #eee">
<img src="nothing.png"><script src="https://elsewhere.example/a.js"></script><script>console.error("a message")</script>
<article><p style="width: 2000px">x</p><pre><code style="color: #222">import this</code></pre></article>
</body></html>"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with run_browser() as found:
        yield found


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    if not (SITE / "index.html").is_file():
        pytest.skip("there is no site in build/site: 'make docs' builds it")
    with serve_site(SITE) as found:
        yield found


@pytest.fixture
def pages(address: str) -> list[str]:
    """Every page of every version; the first page and the one for what is not there are tested by themselves."""
    return [name for name in list_pages(SITE) if "/" in name]


def test_a_sample_of_pages_is_whole(browser: Browser, address: str, pages: list[str]) -> None:
    assert walk_site(SiteWalk(browser, address, pages[::_SAMPLE_STEP])) == []


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_page_is_whole(browser: Browser, address: str, pages: list[str]) -> None:
    assert len(pages) > 200
    assert walk_site(SiteWalk(browser, address, pages)) == []


def test_the_first_page_leads_to_the_newest_version(browser: Browser, address: str) -> None:
    page = browser.new_page()
    page.goto(address)
    page.wait_for_url(f"{address}*/")
    assert page.inner_text("article h1").startswith("Dovetail")
    page.close()


def test_the_page_for_what_is_not_there_leads_to_the_start_from_any_depth(browser: Browser, address: str) -> None:
    page = browser.new_page()
    page.route("**/0.9.0/**", lambda route: route.fulfill(status=404, path=SITE / "404.html"))
    page.goto(f"{address}deep/0.9.0/rules/none/")
    assert page.inner_text("h1") == "There is no such page"
    assert page.evaluate("document.querySelector('a').href") == f"{address}deep/"
    page.close()


def test_a_search_finds_a_page(browser: Browser, address: str) -> None:
    page = browser.new_page()
    page.goto(address)
    page.wait_for_url(f"{address}*/")
    page.click(".md-search__button")
    page.keyboard.type("moving average")
    page.get_by_text(re.compile(r"^[1-9][0-9]* results$")).wait_for()
    page.close()


def test_what_is_wrong_with_a_page_is_found(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "bad.html").write_text(_BAD_PAGE, encoding="utf-8")
    with serve_site(tmp_path) as address:
        found = "\n".join(walk_site(SiteWalk(browser, address, ["bad.html"])))
    for expected in (
        "status 404",
        "request to another host: https://elsewhere.example/a.js",
        "console, error: a message",
        "390 px: scrolls sideways",
        "image without alt",
        "image that cannot be drawn",
        "no text",
        "contrast 1.",
    ):
        assert expected in found
