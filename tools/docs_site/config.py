"""The configuration of the generator: mkdocs.yml with folders of the navigation replaced by their pages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tools.docs_site.layout import ROOT

__all__ = ["expand", "find_left_out", "list_pages", "write_config"]


def write_config(pages: Path) -> Path:
    """Write the configuration for these pages into the folder that holds theirs; HTML goes to ``html`` beside it."""
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    nav = expand(config["nav"], pages)
    if left := find_left_out(nav, pages):
        raise SystemExit(f"error: mkdocs.yml: nav lacks {', '.join(left)}\n  fix: name them, or their folder")
    config |= {"docs_dir": pages.name, "site_dir": "html", "nav": nav}
    for plugin in config["plugins"]:
        if isinstance(plugin, dict) and "mkdocstrings" in plugin:
            handler = plugin["mkdocstrings"]["handlers"]["python"]
            handler["paths"] = [str(ROOT / path) for path in handler["paths"]]
    path = pages.parent / "mkdocs.yml"
    path.write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
    return path


def expand(entry: Any, pages: Path) -> Any:
    """A navigation with each path that ends in / replaced by the pages of that folder, its index first."""
    if isinstance(entry, list):
        return [expand(part, pages) for part in entry]
    if isinstance(entry, dict):
        return {title: expand(part, pages) for title, part in entry.items()}
    if entry.endswith("/"):
        return list_pages(pages, entry)
    if not (pages / entry).is_file():
        raise SystemExit(f"error: mkdocs.yml: nav names {entry}, and there is no such page")
    return entry


def find_left_out(nav: Any, pages: Path) -> list[str]:
    """The pages that a navigation does not name; sources are reached from the pages that speak of them."""
    named = set(_walk(nav))
    found = {path.relative_to(pages).as_posix() for path in pages.rglob("*.md")}
    return sorted(name for name in found - named if not name.startswith("source/"))


def _walk(entry: Any) -> Iterator[str]:
    if isinstance(entry, str):
        yield entry
    else:
        for part in entry.values() if isinstance(entry, dict) else entry:
            yield from _walk(part)


def list_pages(pages: Path, folder: str) -> list[Any]:
    """The pages of a folder by name, each under its title or first heading."""
    found = sorted((pages / folder).glob("*.md"), key=lambda path: (path.name != "index.md", path.name))
    if not found:
        raise SystemExit(f"error: mkdocs.yml: nav names {folder}, which has no page")
    return [_entry(path, pages) for path in found]


def _entry(path: Path, pages: Path) -> Any:
    name = path.relative_to(pages).as_posix()
    title = re.search(r"^(?:title: |# +)(.+)$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return name if path.name == "index.md" or title is None else {title[1].replace("`", ""): name}
