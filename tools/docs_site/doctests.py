"""An extension of Griffe: examples in docstrings become blocks of code, which Markdown would take for quotations."""

from __future__ import annotations

import re
from typing import Any

import griffe

__all__ = ["FencedDoctests", "fence_doctests"]

_EXAMPLE = re.compile(r"^([ \t]*)>>> .*(?:\n(?![ \t]*$).+)*", flags=re.MULTILINE)


def fence_doctests(text: str) -> str:
    r"""A docstring with fences around its examples.

    >>> fence_doctests("Adds.\n\n>>> 1 + 1\n2\n")
    'Adds.\n\n```pycon\n>>> 1 + 1\n2\n```\n'
    """
    return _EXAMPLE.sub(lambda found: f"{found[1]}```pycon\n{found[0]}\n{found[1]}```", text)


class FencedDoctests(griffe.Extension):
    """Fences the examples of every docstring that is read."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the docstring of an object where it has examples."""
        if obj.docstring is not None and ">>> " in obj.docstring.value:
            obj.docstring.value = fence_doctests(obj.docstring.value)
