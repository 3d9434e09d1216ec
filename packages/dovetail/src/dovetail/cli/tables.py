"""Tables as text: aligned columns that keep to a width, with long names cut in the middle and sentences wrapped.

A name is told from others by how it begins and how it ends, so what is cut out is the middle. Numbers are never cut.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

__all__ = ["LEAST_WIDTH", "WIDTH", "TableText", "cut_middle", "cut_names", "format_table", "text_width", "wrap"]

WIDTH: Final = 80
"""Columns where there is no terminal to ask."""
LEAST_WIDTH: Final = 12
"""To what a column of texts is narrowed at most."""
_GAP: Final = 2
_SEPARATORS: Final = "/.: "
_HEAD: Final = 8
"""How much of what names have in common is shown at most."""
_TAIL: Final = 4
"""How much of a sentence a line may leave unused to end at a word, as a part of the width."""


def text_width(text: str) -> int:
    """How many columns a text takes.

    >>> text_width("abc"), text_width("日本")
    (3, 4)
    """
    if text.isascii():
        return len(text)
    return sum(_char_width(char) for char in text)


def _char_width(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def cut_middle(text: str, width: int, mark: str = "...") -> str:
    """A text with its middle left out where it is too wide; the end, which tells names apart, keeps more.

    >>> cut_middle("encoder/layer_11/attention/query", 20)
    'encoder/...ion/query'
    >>> cut_middle("short", 20)
    'short'
    """
    if text_width(text) <= width:
        return text
    room = width - len(mark)
    if room < 2:
        return _take(text, width)
    head = _take(text, room // 2)
    tail = _take(text[::-1], room - text_width(head))[::-1]
    return f"{head}{mark}{tail}"


def cut_names(names: Iterable[str], width: int, mark: str = "...") -> dict[str, str]:
    """What each name is cut to; names that begin and end alike keep what tells them apart.

    >>> list(cut_names([f"model/encoder/layer_{n}/attention/query" for n in (1, 2)], 24).values())
    ['mod...layer_1...on/query', 'mod...layer_2...on/query']
    """
    given = list(dict.fromkeys(names))
    cut = {name: cut_middle(name, width, mark) for name in given}
    counts = Counter(cut.values())
    alike = [name for name in given if counts[cut[name]] > 1]
    same = _find_common(min(alike, default=""), max(alike, default=""))
    start = max(same.rfind(separator) for separator in _SEPARATORS) + 1
    head = _take(same, min(_HEAD, width // 8))
    if start > len(head) + len(mark):
        room = width - len(head) - len(mark)
        cut |= {name: f"{head}{mark}{cut_middle(name[start:], room, mark)}" for name in alike}
    return cut


def _find_common(first: str, last: str) -> str:
    """What the first and the last of sorted texts both begin with, and so all of them do."""
    count = next((index for index, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    return first[:count]


def _take(text: str, width: int) -> str:
    taken = 0
    for index, char in enumerate(text):
        taken += _char_width(char)
        if taken > width:
            return text[:index]
    return text


def wrap(text: str, width: int) -> list[str]:
    """A text in lines of a width, broken between words where there are any.

    >>> wrap("no kernel for it", 10)
    ['no kernel', 'for it']
    """
    lines = [line for part in text.split("\n") for line in _wrap_line(part, width)]
    return lines or [""]


def _wrap_line(text: str, width: int) -> Iterator[str]:
    while text_width(text) > width:
        piece = _take(text, width)
        space = piece.rfind(" ") if text[len(piece) : len(piece) + 1] != " " else len(piece)
        if space > len(piece) // _TAIL:
            piece = piece[:space]
        yield piece.rstrip()
        text = text[len(piece) :].lstrip()
    yield text


class TableText(NamedTuple):
    """A table as lines."""

    head: list[str]
    body: list[str]


def format_table(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    width: int = WIDTH,
    right: Iterable[int] = (),
    prose: Iterable[int] = (),
    mark: str = "...",
) -> TableText:
    r"""The lines of a table.

    >>> table = format_table(["name", "all runs"], [["encoder/block/0/query", "7"]], width=22, right=[1])
    >>> print("\n".join((*table.head, *table.body)))
                       all
    name              runs
    encode...0/query     7

    Args:
        headers: The names of the columns, wrapped where they are wider than what is below them.
        rows: The cells.
        width: The most columns a line may have, as far as that can be without cutting numbers.
        right: The columns of numbers.
        prose: The columns of sentences, which are wrapped.
        mark: What stands for the middle of a text that was cut.
    """
    numbers, sentences = frozenset(right), frozenset(prose)
    widths = _find_widths(headers, rows, numbers, width)
    head = [wrap(header, widths[index]) for index, header in enumerate(headers)]
    tallest = max(map(len, head))
    head = [[""] * (tallest - len(lines)) + lines for lines in head]
    cut = [cut_names((row[index] for row in rows), width, mark) for index, width in enumerate(widths)]
    body: list[str] = []
    for row in rows:
        cells = [
            wrap(cell, widths[index]) if index in sentences else [cut[index][cell]] for index, cell in enumerate(row)
        ]
        body += _join_lines(cells, widths, numbers)
    return TableText(_join_lines(head, widths, numbers), body)


def _find_widths(
    headers: Sequence[str], rows: Sequence[Sequence[str]], numbers: frozenset[int], width: int
) -> list[int]:
    """As wide as the cells where there is room; else headers are wrapped first, then texts are narrowed."""
    room = width - _GAP * (len(headers) - 1)
    widths = [max(map(text_width, column)) for column in zip(headers, *rows, strict=True)]
    if sum(widths) <= room:
        return widths
    for index in numbers:
        words = max((text_width(word) for word in headers[index].split()), default=0)
        widths[index] = max([words, *(text_width(row[index]) for row in rows)])
    return _narrow(widths, [index for index in range(len(headers)) if index not in numbers], room)


def _narrow(natural: Sequence[int], flexible: Sequence[int], room: int) -> list[int]:
    """Widths that fit: the widest of the columns that may be narrowed gives up its room first."""
    widths = list(natural)
    excess = sum(widths) - room
    while excess > 0:
        wide = [index for index in flexible if widths[index] > LEAST_WIDTH]
        if not wide:
            break
        most = max(widths[index] for index in wide)
        widest = [index for index in wide if widths[index] == most]
        below = max([LEAST_WIDTH, *(widths[index] for index in flexible if widths[index] < most)])
        step = min(most - below, -(-excess // len(widest))) or 1
        for index in widest:
            taken = min(step, excess)
            widths[index] -= taken
            excess -= taken
    return widths


def _join_lines(cells: Sequence[Sequence[str]], widths: Sequence[int], numbers: frozenset[int]) -> list[str]:
    return [
        _join([cell[number] if number < len(cell) else "" for cell in cells], widths, numbers)
        for number in range(max(map(len, cells)))
    ]


def _join(cells: Sequence[str], widths: Sequence[int], numbers: frozenset[int]) -> str:
    padded = []
    for index, (cell, width) in enumerate(zip(cells, widths, strict=True)):
        blank = " " * max(width - text_width(cell), 0)
        padded.append(blank + cell if index in numbers else cell + blank)
    return (" " * _GAP).join(padded).rstrip()
