"""Sizes in the text of a kernel: what varies with shapes becomes a parameter behind the buffers.

Whoever writes a kernel writes a size down as any number; one that varies leaves its own sign in the text, and here
equal ones get one name.
"""

from __future__ import annotations

import re
from typing import Final

from dovetail_cuda.lower.sizes import greatest, least, size_from_text

__all__ = ["list_sizes", "name_sizes"]

_SIGN: Final = re.compile("«([^»]*)»")
_INT32_END: Final = 2**31
_LAST_PARAMETER: Final = ", EARLY: tl.constexpr):"
"""How the header of every generated kernel ends."""


def list_sizes(text: str) -> list[int]:
    """The sizes that vary in the text of a kernel, in the order of its parameters."""
    return [size_from_text(found) for found in _find(text)]


def name_sizes(text: str) -> tuple[str, dict[str, str]]:
    """The text with parameters for sizes, and Triton's type of each by its name."""
    names = {found: f"n{number}" for number, found in enumerate(_find(text))}
    if not names:
        return text, {}
    header = f", {', '.join(names.values())}{_LAST_PARAMETER}"
    named = _SIGN.sub(lambda match: names[match.group(1)], text).replace(_LAST_PARAMETER, header, 1)
    return named, {name: _find_type(size_from_text(found)) for found, name in names.items()}


def _find(text: str) -> list[str]:
    return list(dict.fromkeys(_SIGN.findall(text)))


def _find_type(size: int) -> str:
    return "i64" if max(greatest(size), -least(size)) >= _INT32_END else "i32"
