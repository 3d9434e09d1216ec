"""Text for people: lines and tables, drawn with rich on a terminal that has it and as aligned columns elsewhere."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, TextIO

from dovetail.escapes import escape

__all__ = ["Screen", "format_bytes", "format_histogram", "format_time"]

_BLOCKS: Final = " ▁▂▃▄▅▆▇█"


def format_bytes(count: int) -> str:
    """A size for people.

    >>> format_bytes(512), format_bytes(1536), format_bytes(3 << 30)
    ('512 B', '1.5 KiB', '3.0 GiB')
    """
    size, units = float(count), ["B", "KiB", "MiB", "GiB", "TiB"]
    while size >= 1024 and len(units) > 1:
        size, units = size / 1024, units[1:]
    return f"{count} B" if units[0] == "B" else f"{size:.1f} {units[0]}"


def format_time(time_us: float | None) -> str:
    """A duration for people, in microseconds; a dash where there is none.

    >>> format_time(12.34), format_time(None)
    ('12.3 us', '-')
    """
    if time_us is None:
        return "-"
    return f"{time_us:.1f} us" if time_us < 1e4 else f"{time_us / 1e3:.1f} ms"


def format_histogram(counts: Sequence[int]) -> str:
    """Counts as bars of one line.

    >>> format_histogram([0, 1, 8, 3])
    ' ▁█▃'
    """
    most = max(counts, default=0) or 1
    return "".join(_BLOCKS[-(-count * (len(_BLOCKS) - 1) // most)] for count in counts)


class Screen:
    """Writes to a stream; only a terminal gets colours and lines, and ``NO_COLOR`` takes the colours away."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._console = _make_console(stream)
        self._is_empty = True

    @property
    def has_blocks(self) -> bool:
        """Whether what it writes to can show bars."""
        return (getattr(self._stream, "encoding", None) or "").lower().replace("-", "") == "utf8"

    def line(self, text: object = "") -> None:
        """Write one line."""
        self._print(escape(text))

    def title(self, text: object) -> None:
        """Write a heading, set off from what is above it."""
        if not self._is_empty:
            self._print("")
        if self._console is None:
            self._print(escape(text))
        else:
            self._is_empty = False
            self._console.print(escape(text), style="bold")

    def facts(self, pairs: Iterable[tuple[str, object]]) -> None:
        """Write names and values, aligned."""
        rows = [(name, escape(value)) for name, value in pairs]
        width = max((len(name) for name, _ in rows), default=0)
        for name, value in rows:
            self._print(f"{name:<{width}}  {value}")

    def _print(self, text: str) -> None:
        self._is_empty = False
        print(text, file=self._stream)

    def table(self, headers: Sequence[str], rows: Iterable[Sequence[object]], *, right: Iterable[int] = ()) -> None:
        """Write a table; the columns numbered in ``right`` are numbers."""
        cells = [[escape(cell).replace("\n", " ") for cell in row] for row in rows]
        aligned = frozenset(right)
        if self._console is None:
            for text in _columns([list(headers), *cells], aligned):
                self._print(text)
        else:
            self._is_empty = False
            self._console.print(_make_table(headers, cells, aligned))


def _make_console(stream: TextIO) -> Any:
    if not stream.isatty() or os.environ.get("TERM") == "dumb":
        return None
    try:
        from rich.console import Console
    except ModuleNotFoundError:
        return None
    return Console(file=stream, markup=False, highlight=False, emoji=False)


def _make_table(headers: Sequence[str], rows: list[list[str]], right: frozenset[int]) -> Any:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for index, header in enumerate(headers):
        table.add_column(header, justify="right" if index in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def _columns(rows: list[list[str]], right: frozenset[int]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [_pad(width, index in right)(cell) for index, (cell, width) in enumerate(zip(row, widths, strict=True))]
        yield "  ".join(cells).rstrip()


def _pad(width: int, is_number: bool) -> Callable[[str], str]:
    return (lambda cell: cell.rjust(width)) if is_number else (lambda cell: cell.ljust(width))
