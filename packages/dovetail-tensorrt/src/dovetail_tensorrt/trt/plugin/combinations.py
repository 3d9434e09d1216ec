"""Combinations of types and layouts that a plugin offers for tuning, written as short texts.

A text for a position holds types or layouts joined by ``|``, which vary together with the other positions that have
them, or by ``*``, which vary on their own: ``"FP32|FP16, FP32|FP16"`` is two combinations, ``"FP32*FP16, FP32*FP16"``
is four.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any, Final

from dovetail import DataType, TensorFormat
from dovetail_tensorrt.trt.plugin.errors import DecoratorError

__all__ = ["AutoTuneCombination", "Layout"]

Layout = tuple[DataType, TensorFormat]
"""The type and format of one input or output."""

_TYPES: Final = {
    "FP32": DataType.FLOAT,
    "FP16": DataType.HALF,
    "BF16": DataType.BF16,
    "FP8": DataType.FP8,
    "INT8": DataType.INT8,
    "INT32": DataType.INT32,
    "INT64": DataType.INT64,
    "INT4": DataType.INT4,
    "FP4": DataType.FP4,
    "BOOL": DataType.BOOL,
    "UINT8": DataType.UINT8,
}
_FORMATS: Final = dict(TensorFormat.__members__)


class AutoTuneCombination:
    """Types, layouts and tactics to be tried.

    Args:
        io_types: For each input and output the types, separated by commas.
        layouts: The layouts of each, or one text for all.
        tactics: Positive numbers of the ways to run; none means one way.

    >>> offered = AutoTuneCombination("FP32|FP16, FP32|FP16", "LINEAR", [1, 2])
    >>> [[each.name for each, _ in row] for row in offered.expand(2)]
    [['FLOAT', 'FLOAT'], ['HALF', 'HALF']]
    """

    def __init__(
        self, io_types: str | None = None, layouts: str = "LINEAR", tactics: Iterable[int] | None = None
    ) -> None:
        self._types: dict[int, str] = {}
        self._layouts: dict[int, str] = {}
        self._tactics: tuple[int, ...] = ()
        if io_types is not None:
            self._set_all(io_types, layouts)
        if tactics is not None:
            self.tactics(tactics)

    def _set_all(self, io_types: str, layouts: str) -> None:
        types, formats = _split(io_types), _split(layouts)
        if len(formats) == 1:
            formats = formats * len(types)
        if len(formats) != len(types):
            raise DecoratorError(
                "'layouts' must have one text for all, or one for each input and output",
                expected=f"1 or {len(types)}",
                got=len(formats),
            )
        for position, (names, places) in enumerate(zip(types, formats, strict=True)):
            self.pos(position, names, places)

    def pos(self, pos: int | Iterable[int], types: str, layouts: str = "LINEAR") -> None:
        """Say what one or several positions may have; inputs are counted first, then outputs."""
        positions = [pos] if isinstance(pos, int) else list(pos)
        _parse(types, _TYPES, "type")
        _parse(layouts, _FORMATS, "layout")
        for position in positions:
            if not _is_index(position):
                raise DecoratorError("a position is an index", expected="0 or more", got=repr(position))
            self._types[position], self._layouts[position] = types, layouts

    def tactics(self, tactics: Iterable[int]) -> None:
        """Say which ways to run are tried with these types and layouts."""
        numbers = tuple(tactics)
        if not all(_is_index(number) and number for number in numbers) or len(set(numbers)) != len(numbers):
            raise DecoratorError("tactics are different positive integers", got=numbers)
        self._tactics = numbers

    def get_tactics(self) -> tuple[int, ...]:
        """The ways to run."""
        return self._tactics

    def expand(self, count: int) -> list[tuple[Layout, ...]]:
        """All combinations for so many inputs and outputs: types in the outer loop, layouts in the inner."""
        if set(self._types) != set(range(count)):
            raise DecoratorError(
                "a combination must say the types of every input and output",
                expected=f"positions 0 to {count - 1}",
                got=sorted(self._types),
            )
        types = _vary([_parse(self._types[p], _TYPES, "type") for p in range(count)], "types")
        formats = _vary([_parse(self._layouts[p], _FORMATS, "layout") for p in range(count)], "layouts")
        return [tuple(zip(a, b, strict=True)) for a, b in itertools.product(types, formats)]

    def __repr__(self) -> str:
        return f"AutoTuneCombination({self._types}, {self._layouts}, tactics={self._tactics})"


def _is_index(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _split(text: str) -> list[str]:
    if not isinstance(text, str):
        raise DecoratorError("types and layouts are given as text", got=type(text).__name__)
    return [part.strip() for part in text.split(",")]


def _parse(text: str, known: dict[str, Any], what: str) -> tuple[str, list[Any]]:
    """Whether the choices of a position vary together or alone, and the choices."""
    if not isinstance(text, str):
        raise DecoratorError(f"a {what} is given as text", got=type(text).__name__)
    if "|" in text and "*" in text:
        raise DecoratorError("'|' and '*' are mixed in one position", got=text, fix="use one of them")
    mark = "*" if "*" in text else "|"
    names = [name.strip() for name in text.split(mark)]
    for name in names:
        if name not in known:
            raise DecoratorError(f"there is no {what} '{name}'", expected=", ".join(known))
    return (mark if len(names) > 1 else ""), [known[name] for name in names]


def _vary(positions: Sequence[tuple[str, list[Any]]], what: str) -> list[tuple[Any, ...]]:
    """Every row of choices: those joined by ``|`` change together, those joined by ``*`` each on its own."""
    lengths = {len(choices) for mark, choices in positions if mark == "|"}
    if len(lengths) > 1:
        raise DecoratorError(
            f"{what} joined by '|' vary together, so every position needs as many", got=sorted(lengths)
        )
    rows: dict[tuple[Any, ...], None] = {}
    for step in range(lengths.pop() if lengths else 1):
        fixed = [[choices[step]] if mark == "|" else choices for mark, choices in positions]
        rows.update(dict.fromkeys(itertools.product(*fixed)))
    return list(rows)
