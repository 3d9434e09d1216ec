"""From what follows the sums of a kernel to text: the lines that make the value that is stored of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dovetail_cuda.compile.source import Tile, Writer
from dovetail_cuda.graph.regions import ElementRegion, Stored
from dovetail_cuda.lower.expr import Load, walk
from dovetail_cuda.lower.tensors import Rows

__all__ = ["Epilogue", "write_epilogue"]


@dataclass(frozen=True, kw_only=True)
class Epilogue:
    """Lines over ``i`` (a column of rows), ``j`` (a row of columns) and the sums, and the parameters they name."""

    lines: Sequence[str]
    buffers: Mapping[str, str]
    """The type of every buffer that is read, in the order of their parameters, and at last of the one that is written."""


def write_epilogue(
    stored: Stored, *, sums: str, total: str, shape: tuple[int, int], masked: frozenset[str], first: int
) -> Epilogue:
    """Write down what is stored.

    Args:
        stored: The value, in which loads of a buffer stand for the sums.
        sums: That buffer.
        total: The variable that has the sums.
        shape: All rows and columns.
        masked: The axes along which not every lane has an element; their masks are ``i_live`` and ``j_live``.
        first: The number of the first parameter that is named here.
    """
    region = ElementRegion(stored=(stored,), count=shape[0], rows=Rows(shape, (1,)))
    at_hand = {each: total for each in walk(stored.value) if isinstance(each, Load) and each.buffer == sums}
    writer = Writer(region, Tile(rows=1, columns=shape[1]), at_hand=at_hand, masked=masked, first=first)
    writer.write_stores()
    return Epilogue(lines=writer.lines, buffers=writer.buffers)

