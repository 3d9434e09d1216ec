"""Text from strangers, made harmless for whoever shows it: terminals obey what they are sent."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["escape", "escape_line"]

_HIDDEN: Final = r"\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff"
_CONTROL: Final = re.compile(rf"[\x00-\x09\x0b-\x1f{_HIDDEN}]")
_CONTROL_OR_END: Final = re.compile(rf"[\x00-\x1f{_HIDDEN}]")


def escape(text: object) -> str:
    r"""A text without control characters, those that turn its direction, and halves of characters; lines stay.

    >>> escape("a\x1b[31mb")
    'a\\x1b[31mb'
    """
    return _CONTROL.sub(_spell, str(text))


def escape_line(text: object) -> str:
    r"""The same in one line.

    >>> escape_line("a\nb")
    'a\\nb'
    """
    return _CONTROL_OR_END.sub(_spell, str(text))


def _spell(match: re.Match[str]) -> str:
    return match.group().encode("unicode_escape").decode()
