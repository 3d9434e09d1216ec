"""Maps as arrays, for whoever compares, measures or stores them: what all of them have in common is a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["MapTable", "tabulate_maps"]

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class MapTable:
    """Maps that have the same keys: these in order, and a row of elements for each map."""

    keys: tuple[Any, ...]
    rows: Array


def tabulate_maps(value: Any) -> MapTable | None:
    """The table of a map, or of a sequence of maps with the same keys; None for anything else.

    Python has one kind of float. Models give out maps of single precision, so that is what elements are taken for.

    >>> table = tabulate_maps([{"b": 0.25, "a": 0.75}, {"a": 0.5, "b": 0.5}])
    >>> table.keys, table.rows.tolist()
    (('a', 'b'), [[0.75, 0.25], [0.5, 0.5]])
    """
    maps = [value] if isinstance(value, Mapping) else value
    if not isinstance(maps, list | tuple) or not maps or not all(isinstance(entries, Mapping) for entries in maps):
        return None
    keys = tuple(sorted(maps[0]))
    if any(entries.keys() != maps[0].keys() for entries in maps):
        return None
    elements = [entries[key] for entries in maps for key in keys]
    return MapTable(keys, _array_of(elements).reshape(len(maps), len(keys)))


def _array_of(elements: Sequence[Any]) -> Array:
    array = np.array(elements, dtype=object if any(isinstance(element, str) for element in elements) else None)
    return array.astype(np.float32) if array.dtype.kind == "f" else array
