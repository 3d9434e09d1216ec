"""What a command hands back: one document, and how to show it to a person."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from dovetail.cli.screen import Screen
from dovetail.cli.streams import writing_output

__all__ = ["Document", "Reply", "dump_document", "show_answer"]

Document = Mapping[str, Any]
"""Plain data, ready for JSON."""


class Reply(NamedTuple):
    """The result of a command; ``show`` writes the document for people, where ``--json`` writes it whole."""

    document: Document
    show: Callable[[Document, Screen], None]
    exit_code: int = 0
    is_shown: bool = False
    """Whether the command has shown it, because it goes on long after it has an answer."""


def show_answer(answer: Reply, *, as_json: bool) -> None:
    """Write an answer to the standard output, unless the command has done so."""
    if answer.is_shown:
        return
    with writing_output() as stream:
        if as_json:
            print(dump_document(answer.document), file=stream)
        else:
            answer.show(answer.document, Screen(stream))


def dump_document(document: Document | list[Any]) -> str:
    r"""The JSON text; numbers that JSON lacks are strings.

    >>> dump_document({"max": float("inf")})
    '{\n  "max": "inf"\n}'
    """
    import json

    return json.dumps(_plain(document), indent=2, allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
