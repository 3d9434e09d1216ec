"""Gathers the pages of the repository into one folder: links rewritten, notebooks and linked sources made pages."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tools.docs_site.layout import ROOT, place, rewrite_links

__all__ = ["gather", "show_notebook", "write_page"]

_STARTS = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "LICENSE")
_PICTURES = {".png", ".svg", ".jpg", ".gif", ".css", ".js"}
_LANGUAGES = {".py": "python", ".h": "cpp", ".cpp": "cpp", ".toml": "toml", ".txt": "cmake"}


def gather(target: Path, moved: dict[str, str]) -> None:
    """Write every page of ``docs``, and every file that pages link to, under the folder."""
    docs = sorted(path for path in (ROOT / "docs").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    queue = [*_STARTS, *(path.relative_to(ROOT).as_posix() for path in docs)]
    done: set[str] = set()
    while queue:
        source = queue.pop(0)
        if source not in done:
            done.add(source)
            queue += _write(source, target, moved)


def _write(source: str, target: Path, moved: dict[str, str]) -> list[str]:
    path = ROOT / source
    if path.suffix in _PICTURES:
        (target / source.removeprefix("docs/")).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target / source.removeprefix("docs/"))
        return []
    text, found = _read(path), list[str]()
    if path.suffix in {".md", ".ipynb"}:
        text, found = rewrite_links(text, source, moved)
    write_page(target / place(source), _title_of_rule(source) + text)
    return found


def _title_of_rule(source: str) -> str:
    """Metadata with a short title for the page of a rule, whose heading is a sentence."""
    rule = re.fullmatch(r"docs/rules/(R\d+)-(.*)\.md", source)
    return f"---\ntitle: {rule[1]} {rule[2].replace('-', ' ')}\n---\n\n" if rule else ""


def _read(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        return show_notebook(json.loads(text))
    if path.suffix == ".md":
        return text
    fence = "````"
    return f"# {path.name}\n\n{fence}{_LANGUAGES.get(path.suffix, 'text')}\n{text.rstrip()}\n{fence}\n"


def write_page(path: Path, text: str) -> None:
    """Write a page, and the folders that it lies in."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def show_notebook(notebook: dict[str, Any]) -> str:
    """A notebook as a page: texts, code and what the code printed."""
    return "\n\n".join(part for cell in notebook["cells"] for part in _show_cell(cell)) + "\n"


def _show_cell(cell: dict[str, Any]) -> Iterator[str]:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        yield source
        return
    yield f"```python\n{source}\n```"
    for output in cell.get("outputs", []):
        data = output.get("data", {})
        if "text/html" in data:
            yield f'<div class="output">\n{_flatten("".join(data["text/html"]))}\n</div>'
        else:
            text = "".join(output.get("text") or data.get("text/plain") or output.get("traceback") or "")
            yield f"```text\n{_plain(text)}\n```"


def _flatten(html: str) -> str:
    """HTML without empty lines, at which Markdown would end the block."""
    return re.sub(r"\n\s*", "\n", html).strip()


def _plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text).rstrip()
