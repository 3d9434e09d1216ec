"""Outputs in files: an array a ``.npy``, or all of a run in one ``.npz``, which a later run can be compared with.

Elements of sequences are stored under their numbers, as ``name[0]``. Maps with the same keys, as classifiers give them,
are stored as ``name.keys`` and ``name.values``, a table with a row for each map.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dovetail.errors import InputError
from dovetail.inputs.array_files import load_arrays, name_type, pack_arrays
from dovetail.inputs.specs import InputSpec
from dovetail.near_names import name_known
from dovetail.tools.map_tables import tabulate_maps

__all__ = ["flatten_outputs", "pack_array", "pack_outputs", "read_outputs"]

Array = npt.NDArray[Any]


def flatten_outputs(outputs: Mapping[str, Any]) -> Iterator[tuple[str, Array]]:
    """Every array, those in sequences under their numbers; maps with the same keys as these and a table."""
    for name, value in outputs.items():
        table = tabulate_maps(value)
        if table is not None:
            yield f"{name}.keys", np.array(table.keys)
            yield f"{name}.values", table.rows
        elif isinstance(value, list):
            yield from flatten_outputs({f"{name}[{index}]": item for index, item in enumerate(value)})
        elif value is not None:
            yield name, value


def pack_array(array: Array) -> bytes:
    """The contents of a ``.npy`` file."""
    buffer = io.BytesIO()
    np.save(buffer, array.astype(str) if array.dtype.kind == "O" else array, allow_pickle=False)
    return buffer.getvalue()


def pack_outputs(outputs: Mapping[str, Any]) -> bytes:
    """The contents of a ``.npz`` file that ``read_outputs`` gives back."""
    return pack_arrays(dict(flatten_outputs(outputs)))


def read_outputs(path: Path, specs: Sequence[InputSpec]) -> dict[str, Any]:
    """Saved outputs by name, for comparison with those that an engine has.

    Raises:
        InputError: The file cannot be read, or lacks an output.
    """
    arrays = load_arrays(path)
    outputs: dict[str, Any] = {}
    for spec in specs:
        if spec.name in arrays:
            outputs[spec.name] = name_type(arrays[spec.name], spec)
        elif f"{spec.name}.keys" in arrays and f"{spec.name}.values" in arrays:
            outputs[spec.name] = _read_maps(arrays[f"{spec.name}.keys"], arrays[f"{spec.name}.values"], spec)
        elif f"{spec.name}[0]" in arrays:
            outputs[spec.name] = _read_items(arrays, spec)
        else:
            raise InputError(
                f"output '{spec.name}' is not in the file",
                where=f"'{path}'",
                expected=", ".join(each.name for each in specs),
                got=name_known(arrays, nothing="no arrays"),
                fix="save the outputs with 'dovetail run ... --save-outputs outputs.npz'",
            )
    return outputs


def _read_maps(keys: Array, rows: Array, spec: InputSpec) -> Any:
    maps = [dict(zip(keys.tolist(), row.tolist(), strict=True)) for row in np.atleast_2d(rows)]
    return maps if "seq(" in spec.type else maps[0]


def _read_items(arrays: Mapping[str, Array], spec: InputSpec) -> list[Array]:
    items: list[Array] = []
    while (found := arrays.get(f"{spec.name}[{len(items)}]")) is not None:
        items.append(name_type(found, spec))
    return items
