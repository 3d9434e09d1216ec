"""The page of a report: data, styles and scripts in one file that reads nothing from anywhere.

The policy in it names the digests of its own style and script. Whatever a name in a plan holds, nothing else runs.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any, Final

__all__ = ["make_page"]

_SCRIPTS: Final = ("base", "model", "layout", "graph", "story", "charts", "panels", "main")
"""In the order they need each other."""


def make_page(engines: Sequence[Mapping[str, Any]]) -> str:
    """The page for one engine, or for two to compare.

    Args:
        engines: What ``describe_engine`` gives for each.
    """
    style = _read("style.css")
    script = "\n".join(('"use strict";', *(_read(f"{name}.js") for name in _SCRIPTS)))
    parts = {
        "@@POLICY@@": "; ".join(
            ("default-src 'none'", f"style-src {_digest(style)}", f"script-src {_digest(script)}", "base-uri 'none'")
        ),
        "@@STYLE@@": style,
        "@@DATA@@": _pack({"engines": engines}),
        "@@SCRIPT@@": script,
    }
    page = _read("page.html")
    for mark, text in parts.items():
        page = page.replace(mark, text)
    return page


def _read(name: str) -> str:
    return (files("dovetail.report") / "assets" / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _pack(document: Mapping[str, Any]) -> str:
    """The document in letters that no parser of HTML stops at; equal documents give equal texts."""
    text = json.dumps(document, separators=(",", ":"), allow_nan=False).encode()
    return base64.b64encode(gzip.compress(text, 9, mtime=0)).decode()
