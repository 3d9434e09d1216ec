"""Values of inputs and outputs as rows: type, shape, smallest, largest and mean, and what is not finite."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from dovetail.cli.answers import Document
from dovetail.cli.screen import Screen
from dovetail.cli.shapes import format_shape

if TYPE_CHECKING:
    import numpy.typing as npt

    Array = npt.NDArray[Any]

__all__ = ["describe_value", "each_row", "show_odd", "show_values"]

_NOTHING: Final[Mapping[str, float | None]] = {"min": None, "max": None, "mean": None, "num_nan": 0, "num_inf": 0}


def describe_value(name: str, value: Any) -> dict[str, Any]:
    """One row; a sequence has the rows of what is in it, maps a row for each key, and an empty optional nothing."""
    if value is None:
        return {"name": name, "dtype": "none", "shape": None, **_NOTHING}
    if isinstance(value, list | Mapping):
        kind = "sequence" if isinstance(value, list) else "map"
        items = [describe_value(item_name, item) for item_name, item in _items(name, value)]
        return {"name": name, "dtype": f"{kind} of {len(value)}", "shape": None, **_NOTHING, "items": items}
    dtype = "string" if value.dtype.kind == "O" else value.dtype.name
    return {"name": name, "dtype": dtype, "shape": list(value.shape), **_statistics(value)}


def _items(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """What is in a sequence or a map; maps with the same keys together, as what each key leads to in all of them."""
    from dovetail.tools.map_tables import tabulate_maps

    table = tabulate_maps(value)
    if table is not None:
        each = f"{name}[*]" if isinstance(value, list) else name
        yield from ((f"{each}[{key!r}]", column) for key, column in zip(table.keys, table.rows.T, strict=True))
    elif isinstance(value, list):
        yield from ((f"{name}[{index}]", item) for index, item in enumerate(value))


def _statistics(array: Array) -> dict[str, float | None]:
    """Smallest, largest and mean of what is finite, and how much is not; nothing of an array without numbers."""
    import numpy as np

    if not array.size or array.dtype.kind in "OSU":
        return dict(_NOTHING)
    values = array if array.dtype.kind == "c" else array.astype(np.float64)
    finite = values[np.isfinite(values)]
    counts = {"num_nan": int(np.isnan(values).sum()), "num_inf": int(np.isinf(values).sum())}
    if not finite.size or values.dtype.kind == "c":  # complex numbers have no order
        return {**_NOTHING, **counts}
    with np.errstate(over="ignore"):  # the mean of large numbers may be infinite
        return {"min": float(finite.min()), "max": float(finite.max()), "mean": float(finite.mean()), **counts}


def show_values(rows: Iterable[Mapping[str, Any]], screen: Screen) -> None:
    """Write a table with a row for each value, and for what is in sequences and maps."""
    screen.table(
        ("name", "type", "shape", "min", "max", "mean"),
        [
            (row["name"], row["dtype"], _shape(row["shape"]), *(_number(row[key]) for key in ("min", "max", "mean")))
            for row in each_row(rows)
        ],
        right=(3, 4, 5),
    )


def each_row(rows: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Values, each before what is in it."""
    for row in rows:
        yield from (row, *row.get("items", ()))


def show_odd(document: Document, screen: Screen) -> None:
    """Say of each input and output how many elements are no finite numbers."""
    for side in ("inputs", "outputs"):
        for row in each_row(document[side]):
            if row["num_nan"] or row["num_inf"]:
                screen.line(f"{side[:-1]} '{row['name']}' has {_odd_text(row)}")


def _odd_text(row: Mapping[str, Any]) -> str:
    """How many elements of a tensor are no finite numbers."""
    count = math.prod(row["shape"])
    odd = [f"{row[key]} {word}" for key, word in (("num_nan", "NaN"), ("num_inf", "infinite")) if row[key]]
    left = count - row["num_nan"] - row["num_inf"]
    rest = f"; min, max and mean are of the other {left}" if left else ""
    return f"{' and '.join(odd)} of {count} element{'' if count == 1 else 's'}{rest}"


def _shape(shape: list[int] | None) -> str:
    return "-" if shape is None else format_shape(shape)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.6g}"
