"""Versions of the site: a folder each, a list that the selector reads, and a first page that leads to the newest."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tools.docs_site.layout import ROOT

__all__ = ["order_versions", "read_version", "write_versions"]

_REDIRECT = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Dovetail</title>
<meta http-equiv="refresh" content="0; url={newest}/">
<a href="{newest}/">The documentation of Dovetail {newest}</a>
</html>
"""
_MISSING = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width,initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Dovetail: no such page</title>
<style>body { font-family: sans-serif; margin: 4rem auto; max-width: 40rem; padding: 0 1rem; }</style>
<h1>There is no such page</h1>
<p>It may be one of another version.
<a href="/">The documentation of Dovetail</a> has a search and a list of all pages.</p>
<script>
  // A host shows this page at any depth: the site starts above the folder of the version.
  const site = location.pathname.match(/^(.*?[/])[0-9]+[.][0-9]+[^/]*[/]/);
  if (site) document.querySelector("a").href = site[1];
</script>
</html>
"""


def read_version() -> str:
    """The version of the source."""
    text = (ROOT / "packages/dovetail/src/dovetail/_version.py").read_text(encoding="utf-8")
    found = re.search(r'__version__ *(?::[^=]*)?= *"([^"]+)"', text)
    if found is None:
        raise SystemExit("error: packages/dovetail/src/dovetail/_version.py has no __version__")
    return found[1]


def write_versions(site: Path) -> None:
    """List the folders of versions, lead the first page to the newest, and write the page for what is not there."""
    names = [path.name for path in site.iterdir() if path.is_dir() and re.match(r"\d+\.\d+", path.name)]
    ordered = order_versions(names)
    entries = [{"version": name, "title": name, "aliases": ["latest"] * (name == ordered[0])} for name in ordered]
    (site / "versions.json").write_text(json.dumps(entries, indent=1) + "\n", encoding="utf-8")
    (site / "index.html").write_text(_REDIRECT.format(newest=ordered[0]), encoding="utf-8")
    (site / "404.html").write_text(_MISSING, encoding="utf-8")


def order_versions(names: list[str]) -> list[str]:
    """Versions, the newest first; a release comes before its own pre-releases.

    >>> order_versions(["0.9.0", "0.10.0", "0.10.0.dev1"])
    ['0.10.0', '0.10.0.dev1', '0.9.0']
    """
    return sorted(names, key=_key, reverse=True)


def _key(name: str) -> tuple[tuple[int, ...], bool, str]:
    release = re.match(r"\d+(?:\.\d+)*", name)
    numbers = release[0] if release else "0"
    return tuple(map(int, numbers.split("."))), numbers == name, name
