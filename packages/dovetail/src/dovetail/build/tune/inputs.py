"""Numbers to tune with: the same in every build, around one, and in range of nearly everything that reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from dovetail.errors import BuildError, UsageError
from dovetail.near_names import name_known, suggest
from dovetail.plan.manifest import Manifest, ProfileRecord, TensorRecord

__all__ = ["draw_all_inputs", "draw_array", "draw_integers", "draw_numbers", "make_generator"]

_SEED: Final = 20240607


def make_generator(index: int) -> np.random.Generator:
    """The generator of an input, by its position."""
    return np.random.default_rng(_SEED + index)


def draw_numbers(rng: np.random.Generator, shape: Sequence[int]) -> npt.NDArray[Any]:
    """Numbers between -1 and 1."""
    return rng.uniform(-1.0, 1.0, shape).astype(np.float32)


def draw_integers(rng: np.random.Generator, shape: Sequence[int], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Zeros and ones: integers may be indices, and these are in range of nearly everything."""
    return rng.integers(0, 2, shape).astype(dtype)


def draw_array(index: int, shape: Sequence[int], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """An input of a network, by its position.

    >>> draw_array(0, (2,), "int32").dtype.name, draw_array(1, (2, 3), "float16").shape
    ('int32', (2, 3))
    """
    rng, kind = make_generator(index), np.dtype(dtype).kind
    if kind in "iub":
        return draw_integers(rng, shape, dtype)
    return draw_numbers(rng, shape).astype(dtype)


def draw_all_inputs(manifest: Manifest, given: Mapping[str, Any] | None = None) -> list[list[npt.NDArray[Any]]]:
    """For each profile the inputs of a network at the shapes it is tuned for; dims that nobody set are 1.

    Args:
        manifest: The network.
        given: Arrays by input, in place of made up ones.

    Raises:
        BuildError: An input is no tensor of numbers.
        UsageError: An array is for no input.
    """
    known, arrays = [record.name for record in manifest.inputs], dict(given or {})
    for name in arrays:
        if name not in known:
            fix = suggest(name, known)
            raise UsageError(f"there is no input '{name}'", where="rival_inputs", expected=name_known(known), fix=fix)
    profiles = manifest.profiles or [ProfileRecord()]
    return [
        [_draw_input(number, record, bounds, arrays.get(record.name)) for number, record in enumerate(manifest.inputs)]
        for bounds in profiles
    ]


def _draw_input(index: int, record: TensorRecord, bounds: ProfileRecord, given: Any) -> npt.NDArray[Any]:
    if given is not None:
        return np.asarray(given, record.dtype)
    if record.type or record.dtype == "object":
        raise BuildError(
            "nothing can be made up for it to time the network with",
            where=f"input '{record.name}'",
            expected="a tensor of numbers",
            got=record.type or "strings",
        )
    if record.name in bounds.values:
        return np.array(bounds.values[record.name][1], record.dtype).reshape(_shape_of(record, bounds))
    return draw_array(index, _shape_of(record, bounds), record.dtype)


def _shape_of(record: TensorRecord, bounds: ProfileRecord) -> list[int]:
    if record.name in bounds.shapes:
        return list(bounds.shapes[record.name][1])
    return [1 if size is None else size for size in record.sizes or ()]
