"""HTML for notebooks: small tables and lines in the colours of the page, with every text escaped.

Names come from models and plans of strangers, so nothing gets into a page without ``escape_html``.
"""

from __future__ import annotations

import html
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from dovetail.escapes import escape_line

__all__ = ["escape_html", "fold", "heading", "join", "line", "table"]

_MOST_ROWS: Final = 100
"""What a cell of a notebook shows of a table; a network may have thousands of layers."""
_LONGEST_TEXT: Final = 200
_CELL: Final = "padding:1px 8px;text-align:{};vertical-align:top"


def escape_html(text: object) -> str:
    """A text as part of a page: in one line, cut where it is very long, with nothing in it that a browser obeys.

    >>> escape_html("<b>")
    '&lt;b&gt;'
    """
    shown = escape_line(text)
    return html.escape(shown if len(shown) <= _LONGEST_TEXT else f"{shown[: _LONGEST_TEXT - 1]}…")


def join(parts: Iterable[str]) -> str:
    """Parts of a page below each other."""
    return f"<div>{''.join(parts)}</div>"


def heading(title: object, note: object = "") -> str:
    """A title, and beside it what it is about.

    >>> heading("Engine", "2 steps")
    '<div><b>Engine</b> <span style="opacity:.7">2 steps</span></div>'
    """
    beside = f' <span style="opacity:.7">{escape_html(note)}</span>' if note else ""
    return f"<div><b>{escape_html(title)}</b>{beside}</div>"


def line(text: object) -> str:
    """One line of text."""
    return f"<div>{escape_html(text)}</div>"


def fold(title: object, content: str) -> str:
    """A part that a click opens."""
    return f"<details><summary>{escape_html(title)}</summary>{content}</details>"


def table(headers: Sequence[object], rows: Sequence[Sequence[object]], *, right: Collection[int] = ()) -> str:
    """A table of texts; of very long ones the first rows and the count of the others.

    Args:
        headers: The names of the columns.
        rows: The cells.
        right: The columns that are aligned to the right.

    >>> table(["a"], [["1"]], right=[0]).count("text-align:right")
    2
    """
    sides = ["right" if column in right else "left" for column in range(len(headers))]
    head = _row("th", headers, sides)
    body = "".join(_row("td", row, sides) for row in rows[:_MOST_ROWS])
    left_out = len(rows) - _MOST_ROWS
    if left_out > 0:
        body += f'<tr><td colspan="{len(headers)}" style="{_CELL.format("left")}">and {left_out:,} more</td></tr>'
    return f'<table style="border-collapse:collapse"><thead>{head}</thead><tbody>{body}</tbody></table>'


def _row(tag: str, cells: Sequence[object], sides: Sequence[str]) -> str:
    shown = (
        f'<{tag} style="{_CELL.format(side)}">{escape_html(cell)}</{tag}>'
        for cell, side in zip(cells, sides, strict=True)
    )
    return f"<tr>{''.join(shown)}</tr>"
