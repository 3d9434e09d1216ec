"""Names and versions of models: keys of a table, never parts of a path that a client chose."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["NAME_RULE", "is_model_name", "is_version"]

NAME_RULE: Final = (
    "the name of a model has letters, digits, '_', '.' and '-', 128 at most, and begins with a letter or digit"
)

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
_VERSION: Final = re.compile(r"[1-9][0-9]{0,17}")


def is_model_name(text: str) -> bool:
    """Whether a folder of this name is a model: letters, digits, ``_``, ``.`` and ``-`` of ASCII, 128 at most.

    >>> [is_model_name(text) for text in ("resnet-50", ".git", "..", "a/b", "mod\u202eel")]
    [True, False, False, False, False]
    """
    return _NAME.fullmatch(text) is not None


def is_version(text: str) -> bool:
    """Whether a folder of this name is a version: a positive number without leading zeros.

    >>> [is_version(text) for text in ("1", "20261116", "0", "01", "-1", "\u0661")]
    [True, True, False, False, False, False]
    """
    return _VERSION.fullmatch(text) is not None
