"""Text for people: lines, facts and tables that fit the terminal."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Final, TextIO

from dovetail.cli.tables import LEAST_WIDTH, WIDTH, cut_middle, format_table, wrap
from dovetail.escapes import escape
from dovetail.units import format_bytes, format_time

__all__ = ["Screen", "format_bytes", "format_histogram", "format_time"]

_BLOCKS: Final = " ▁▂▃▄▅▆▇█"


def format_histogram(counts: Sequence[int]) -> str:
    """Counts as bars of one line.

    >>> format_histogram([0, 1, 8, 3])
    ' ▁█▃'
    """
    most = max(counts, default=0) or 1
    return "".join(_BLOCKS[-(-count * (len(_BLOCKS) - 1) // most)] for count in counts)


class Screen:
    """Writes to a stream; a terminal gets headings in bold, unless ``NO_COLOR`` or ``TERM=dumb`` forbid it.

    Tables are as wide as the terminal at most, or ``COLUMNS``, or 80 characters where there is no terminal.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_bold = stream.isatty() and os.environ.get("TERM") != "dumb" and not os.environ.get("NO_COLOR")
        self._width = _find_width(stream)
        self._is_empty = True

    @property
    def has_blocks(self) -> bool:
        """Whether what it writes to can show bars."""
        return (getattr(self._stream, "encoding", None) or "").lower().replace("-", "") == "utf8"

    def line(self, text: object = "") -> None:
        """Write one line."""
        self._print(escape(text))

    def raw(self, text: str) -> None:
        """Write a text as it is, for programs: a script that this program made itself."""
        self._print(text.rstrip("\n"))

    def title(self, text: object) -> None:
        """Write a heading, set off from what is above it."""
        if not self._is_empty:
            self._print("")
        self._print(self._embolden(escape(text)))

    def facts(self, pairs: Iterable[tuple[str, object]]) -> None:
        """Write names and values, aligned."""
        rows = [(name, escape(value)) for name, value in pairs]
        width = max((len(name) for name, _ in rows), default=0)
        for name, value in rows:
            first, *others = wrap(value, max(self._width - width - 2, LEAST_WIDTH))
            self._print(f"{name:<{width}}  {first}".rstrip())
            for other in others:
                self._print(f"{'':<{width}}  {other}")

    def table(
        self,
        headers: Sequence[str],
        rows: Iterable[Sequence[object]],
        *,
        right: Iterable[int] = (),
        prose: Iterable[int] = (),
    ) -> None:
        """Write a table that fits the width.

        Args:
            headers: The names of the columns.
            rows: The cells.
            right: The columns of numbers, which are never cut.
            prose: The columns of sentences, which are wrapped; other texts are cut in the middle.
        """
        cells = [[escape(cell).replace("\n", " ") for cell in row] for row in rows]
        table = format_table(headers, cells, width=self._width, right=right, prose=prose, mark=self._mark)
        for text in table.head:
            self._print(self._embolden(text))
        for text in table.body:
            self._print(text)

    def entry(self, head: object, facts: Iterable[tuple[str, object]] = ()) -> None:
        """Write a line, and under it names and values; what is too long for a line is cut in the middle."""
        rows = [(name, escape(value)) for name, value in facts]
        width = max((len(name) for name, _ in rows), default=0)
        for text in (escape(head), *(f"    {name:<{width}}  {value}" for name, value in rows)):
            self._print(cut_middle(text, self._width, self._mark))

    @property
    def _mark(self) -> str:
        """What stands for the middle of a name that was cut."""
        return "…" if self.has_blocks else "..."

    def _embolden(self, text: str) -> str:
        return f"\x1b[1m{text}\x1b[0m" if self._is_bold and text else text

    def _print(self, text: str) -> None:
        self._is_empty = False
        print(text, file=self._stream)


def _find_width(stream: TextIO) -> int:
    """The columns of the terminal; ``COLUMNS`` goes before it, and stands for it where there is none."""
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given):
        return int(given)
    try:
        return os.get_terminal_size(stream.fileno()).columns or WIDTH
    except (OSError, ValueError, AttributeError):
        return WIDTH
