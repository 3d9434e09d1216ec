"""Regions that read across what they write, such as a change of layout, as rows and columns.

With one lane for each element of the result in its order, what lanes beside each other read lies far apart. In a tile
of rows and columns Triton has the lanes of a load along the one and those of the store along the other.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from dovetail_cuda.graph.regions import ElementRegion, Stored
from dovetail_cuda.lower.expr import COLUMN, ROW, Load, rewrite
from dovetail_cuda.lower.index import Index, Quotient, Remainder, Var, replace_variables
from dovetail_cuda.lower.sizes import is_fixed
from dovetail_cuda.lower.tensors import Rows

__all__ = ["turn_region"]

_FEWEST: Final = 16
"""Where either side has fewer elements, a tile gains nothing."""


def turn_region(region: ElementRegion) -> ElementRegion:
    """The region as rows and columns, where something that it reads lies along its rows; else the region itself."""
    columns = _find_columns(region)
    if not columns:
        return region
    row, column = Index.variable(ROW, region.count // columns), Index.variable(COLUMN, columns)
    flat = {ROW: row * columns + column}
    return replace(
        region,
        stored=tuple(_move(stored, flat) for stored in region.stored),
        count=region.count // columns,
        rows=Rows((region.count // columns, columns), (1,)),
    )


def _move(stored: Stored, places: dict[str, Index]) -> Stored:
    value = rewrite(stored.value, lambda each: None, lambda index: replace_variables(index, places))
    return replace(stored, value=value, place=replace_variables(stored.place, places))


def _find_columns(region: ElementRegion) -> int:
    """How many elements of the result lie beside each other that are read from afar; 0 where none are."""
    if region.rows is not None or not is_fixed(region.count):
        return 0
    if region.has_sums or not all(_is_flat(stored.place) for stored in region.stored):
        return 0
    loads = [part for stored in region.stored for part in stored.parts if isinstance(part, Load)]
    return max((_find_turned(each.index, region.count) for each in loads), default=0)


def _is_flat(place: Index) -> bool:
    return isinstance(place.single, Var)


def _find_turned(index: Index, count: int) -> int:
    """The size of the last dimension of the result, where steps along it are long and those along another are short."""
    last = [(atom.by, factor) for atom, factor in index.terms if isinstance(atom, Remainder) and _is_flat(atom.of)]
    short = [atom for atom, factor in index.terms if factor == 1 and isinstance(atom, Quotient | Remainder)]
    if len(last) != 1 or last[0][1] < _FEWEST or not is_fixed(last[0][0]) or count % last[0][0]:
        return 0
    along = max((atom.bounds[1] + 1 for atom in short), default=0)
    return last[0][0] if along >= _FEWEST and last[0][0] >= _FEWEST else 0
