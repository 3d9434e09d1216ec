"""The shape mini-language of the command line: ``x:1x3x224x224``, or ``x:min:opt:max`` with three shapes.

Several inputs are joined by commas. A name that has colons is recognised as long as what follows it are one or three
shapes; any name may be put in quotes. A tensor without dimensions has the shape ``scalar``.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from dovetail.errors import UsageError

__all__ = ["Shape", "ShapeBounds", "format_shape", "parse_cases", "parse_shapes"]

Shape = tuple[int, ...]

_SHAPE: Final = re.compile(r"scalar|[0-9]{1,12}(?:[xX][0-9]{1,12})*")
_ITEM: Final = re.compile(r"""(?:'[^']*'|"[^"]*"|[^,'"])+""")
_MAX_DIM: Final = 2**31 - 1
_FORM: Final = "name:1x3x224x224 or name:min:opt:max, such as x:1x3x8x8:2x3x8x8:4x3x8x8"


class ShapeBounds(NamedTuple):
    """The smallest, the tuned and the largest shape of an input."""

    min: Shape
    opt: Shape
    max: Shape


def parse_shapes(texts: Iterable[str], *, option: str = "--shapes") -> dict[str, ShapeBounds]:
    """Read the shapes of inputs by name.

    >>> parse_shapes(["x:2x3,mask:1x8:4x8:8x8"])["mask"]
    ShapeBounds(min=(1, 8), opt=(4, 8), max=(8, 8))
    >>> parse_shapes(["input:0:1x3"])["input:0"].opt
    (1, 3)

    Raises:
        UsageError: A text does not say that, an input is named twice, or bounds do not fit together.
    """
    shapes: dict[str, ShapeBounds] = {}
    for item, where in _items(texts, option):
        name, parts = _split_name(item, where)
        if name in shapes:
            raise UsageError(f"input '{name}' is named twice", where=where, fix=f"give one shape, or {_FORM}")
        shapes[name] = _make_bounds(parts, where)
    return shapes


def parse_cases(texts: Iterable[str], *, option: str = "--shapes") -> list[tuple[Shape, ...]]:
    """Read the shapes of all inputs in order, one case a text; names are allowed and say nothing.

    A text with bounds makes three cases, the tuned one first.

    >>> parse_cases(["2x3x8x8,2x8", "1x4:2x4:3x4"])
    [((2, 3, 8, 8), (2, 8)), ((2, 4),), ((1, 4),), ((3, 4),)]
    """
    cases: list[tuple[Shape, ...]] = []
    for text in texts:
        bounds = [_make_bounds(_split_optional_name(item, where), where) for item, where in _items([text], option)]
        opt, low, high = (tuple(getattr(b, part) for b in bounds) for part in ("opt", "min", "max"))
        cases += dict.fromkeys((opt, low, high))
    return cases


def format_shape(shape: Iterable[int]) -> str:
    """A shape as it is written on the command line.

    >>> format_shape((2, 3)), format_shape(())
    ('2x3', 'scalar')
    """
    return "x".join(str(size) for size in shape) or "scalar"


def _items(texts: Iterable[str], option: str) -> Iterator[tuple[str, str]]:
    """Each input of each text, with the place for messages."""
    for text in texts:
        where = f"{option} {_quote(text)}"
        position = 0
        while True:
            match = _ITEM.match(text, position)
            end = position if match is None else match.end()
            if end < len(text) and text[end] != ",":
                raise UsageError("a quote is not closed", where=where, expected=_FORM)
            item = text[position:end].strip()
            if not item:
                raise UsageError("shapes cannot be read", where=where, expected=_FORM)
            yield item, where
            if end == len(text):
                break
            position = end + 1


def _split_name(item: str, where: str) -> tuple[str, list[str]]:
    if item[0] in "'\"":
        name, _, rest = item[1:].partition(item[0])
        if not name or not rest.startswith(":"):
            raise UsageError("a quoted name must be followed by a colon and a shape", where=where, expected=_FORM)
        return name, rest[1:].split(":")
    pieces = item.split(":")
    count = min(_count_shapes(pieces), len(pieces) - 1)
    if len(pieces) == 1:
        raise UsageError("an input has a name or a shape, but not both", where=where, expected=_FORM, got=_quote(item))
    if count == 0:
        raise _unreadable(pieces[-1], where)
    if count == 2 and _rank(pieces[-1]) == _rank(pieces[-2]):
        raise UsageError("two shapes for one input", where=where, expected=_FORM, got=_quote(item))
    taken = 3 if count >= 3 else 1
    name = ":".join(pieces[:-taken])
    if not name:
        raise UsageError("the name of an input is empty", where=where, expected=_FORM, got=_quote(item))
    return name, pieces[-taken:]


def _split_optional_name(item: str, where: str) -> list[str]:
    pieces = item.split(":")
    return pieces if _count_shapes(pieces) == len(pieces) in (1, 3) else _split_name(item, where)[1]


def _count_shapes(pieces: list[str]) -> int:
    return sum(1 for _ in itertools.takewhile(_SHAPE.fullmatch, reversed(pieces)))


def _rank(text: str) -> int:
    return len(re.split("[xX]", text))


def _make_bounds(parts: list[str], where: str) -> ShapeBounds:
    shapes = [_parse_shape(part, where) for part in parts]
    if len(shapes) == 1:
        return ShapeBounds(shapes[0], shapes[0], shapes[0])
    if len(shapes) != 3:
        raise UsageError("an input has one shape or three", where=where, expected=_FORM, got=f"{len(shapes)} shapes")
    low, opt, high = shapes
    fits = len(low) == len(opt) == len(high) and all(a <= b <= c for a, b, c in zip(low, opt, high, strict=True))
    if not fits:
        raise UsageError("min, opt and max do not fit together", where=where, expected="min <= opt <= max, of one rank")
    return ShapeBounds(low, opt, high)


def _parse_shape(text: str, where: str) -> Shape:
    if _SHAPE.fullmatch(text) is None:
        raise _unreadable(text, where)
    shape = () if text == "scalar" else tuple(int(size) for size in re.split("[xX]", text))
    if max(shape, default=0) > _MAX_DIM:
        raise UsageError("a dimension is too large", where=where, expected=f"at most {_MAX_DIM}", got=max(shape))
    return shape


def _unreadable(text: str, where: str) -> UsageError:
    expected = "sizes of at least 0 joined by x, such as 1x3x224x224"
    return UsageError("a shape cannot be read", where=where, expected=expected, got=_quote(text))


def _quote(text: str) -> str:
    return repr(text if len(text) <= 80 else f"{text[:77]}...")
