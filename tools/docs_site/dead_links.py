"""Looks for links inside the site that lead nowhere: to no page or file, or to no heading of the page."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

__all__ = ["find_dead"]

_HOST = "http://site/"
_REFERENCES = {"a": "href", "link": "href", "img": "src", "script": "src"}


class _PageParser(HTMLParser):
    """The anchors of a page, and what it refers to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = {"", "__top"}
        self.references: dict[str, None] = {}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the names that an element has, and where it leads."""
        for key, value in attrs:
            if value is not None and (key == "id" or (tag == "a" and key == "name")):
                self.anchors.add(value)
            elif value is not None and key == _REFERENCES.get(tag):
                self.references[value] = None


def find_dead(html: Path) -> list[str]:
    """Each link of the pages under the folder that leads nowhere, with its page."""
    pages = {path.relative_to(html).as_posix(): path for path in sorted(html.rglob("*.html"))}
    parsed = {name: _PageParser(path.read_text(encoding="utf-8")) for name, path in pages.items()}
    return [
        f"{name}: {reference}"
        for name, page in parsed.items()
        for reference in page.references
        if not _leads_somewhere(reference, name, html, parsed)
    ]


def _leads_somewhere(reference: str, page: str, html: Path, parsed: dict[str, _PageParser]) -> bool:
    if reference.startswith("/"):
        return False  # the site may lie in any folder of a host
    address = urlsplit(urljoin(_HOST + page, reference))
    if f"{address.scheme}://{address.netloc}/" != _HOST:
        return True
    path = unquote(address.path).lstrip("/")
    target = f"{path}index.html" if path.endswith("/") or not path else path
    if target in parsed:
        return unquote(address.fragment) in parsed[target].anchors
    return (html / target).is_file()
