"""Where each file of the repository lies on the site, and how links between files become links between pages."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

__all__ = ["ROOT", "place", "rewrite_links"]

ROOT = Path(__file__).resolve().parents[2]
_PLACES = {
    "README.md": "index.md",
    "docs/README.md": "pages.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
    "CHANGELOG.md": "project/changes.md",
    "LICENSE": "project/license.md",
}
_LINK = re.compile(r"(!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(\s*<?)([^)\s>]+)(>?[^)]*\))")
_CODE = re.compile(r"(^(?:```|~~~).*?^(?:```|~~~)[ \t]*$|`[^`\n]*`)", flags=re.MULTILINE | re.DOTALL)
_HIDDEN = "\x00"
"""Stands for a piece of code while the links around it are rewritten."""


def place(source: str) -> str:
    """The page or file of the site for a path of the repository.

    >>> place("docs/rules/R08-output-shapes.md"), place("docs/adr/README.md"), place("examples/01_pad.py")
    ('rules/R08.md', 'adr/index.md', 'source/examples/01_pad.py.md')
    """
    if source in _PLACES:
        return _PLACES[source]
    if package := re.fullmatch(r"packages/([\w-]+)/README\.md", source):
        return f"packages/{package[1]}.md"
    inside = source.removeprefix("docs/")
    if inside == source:
        return f"{source.removesuffix('README.md')}index.md" if source.endswith("README.md") else f"source/{source}.md"
    if rule := re.fullmatch(r"rules/(R\d+)-.*\.md", inside):
        return f"rules/{rule[1]}.md"
    if inside.endswith(".ipynb"):
        return f"{inside.removesuffix('.ipynb')}.md"
    return re.sub(r"(^|/)README\.md$", r"\1index.md", inside)


def rewrite_links(text: str, source: str, moved: dict[str, str], page: str = "") -> tuple[str, list[str]]:
    """The text with links as they are on the site, and the files that it links to.

    Args:
        text: A page.
        source: Its path in the repository.
        moved: The page of each heading that has one of its own, by ``path#anchor``.
        page: Where the text goes, if that is not the page of the whole file.
    """
    found: list[str] = []
    here = posixpath.dirname(page or place(source))

    def rewrite(link: re.Match[str]) -> str:
        opening, target, closing = link.groups()
        if re.match(r"[a-z][a-z0-9+.-]*:", target):
            return link[0]
        path, hash_sign, anchor = target.partition("#")
        wanted = posixpath.normpath(posixpath.join(posixpath.dirname(source), path)) if path else source
        wanted = _resolve_folder(wanted)
        found.append(wanted)
        address = moved.get(f"{wanted}#{anchor}") or place(wanted) + hash_sign + anchor
        return f"{opening}{posixpath.relpath(address, here or '.')}{closing}"

    code = _CODE.findall(text)
    prose = _LINK.sub(rewrite, _CODE.sub(_HIDDEN, text)).replace("][", "]\\[")
    return re.sub(_HIDDEN, lambda _: code.pop(0), prose), found


def _resolve_folder(path: str) -> str:
    if (ROOT / path).is_dir():
        readme = f"{path}/README.md"
        if not (ROOT / readme).is_file():
            raise SystemExit(f"error: a link leads to {path}, a folder without README.md\n  fix: link to a file of it")
        return readme
    return path
