"""Looks for what a browser would fetch from another host: a site must work where there is no network."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["find_foreign"]

_FETCHED = re.compile(
    r"""<(?:script|link|img|iframe|source|video)\b[^>]*?\s(?:src|href)=["']?(?:https?:)?//[^>]*>"""
    r"""|url\(["']?(?:https?:)?//[^)]*\)|<[^>]*class=["']?mermaid[^>]*>"""
)
"""Elements and styles that fetch; a diagram is one, because the theme gets the library that draws it from elsewhere."""


def find_foreign(html: Path) -> list[str]:
    """Each place of the pages and styles under the folder that fetches from another host, with the page."""
    pages = sorted(path for path in html.rglob("*") if path.suffix in {".html", ".css"})
    return [
        f"{path.relative_to(html).as_posix()}: {found[0][:120]}"
        for path in pages
        for found in _FETCHED.finditer(path.read_text(encoding="utf-8"))
    ]
