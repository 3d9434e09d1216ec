"""How far two results are apart: errors, cosine, the worst element, and whether that is close enough. Pure numbers.

By default an element may be off by a share of the largest magnitude in its tensor, by type: rounding errors grow with
the terms of a sum, not with what is left after they cancel. 8-bit and 4-bit integers, which are mostly quantized
numbers, may be off by one step; other integers, booleans and strings must be equal. A tolerance that is given replaces
all of this: an element may then be off by ``atol + rtol * |reference|``. NaN agrees with NaN and an infinity with
itself, and they are counted; a tensor that has nothing else verifies nothing, so that it is not close.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from dovetail._coverage import EMPTY, Coverage, cover, same_specials
from dovetail.element_types import ELEMENT_TYPES
from dovetail.tools.map_tables import MapTable, tabulate_maps

__all__ = ["TensorDifference", "Tolerance", "ValueRange", "compare_values", "describe_range"]

Array = npt.NDArray[Any]
Flags = npt.NDArray[np.bool_]

_SHARES: Final = {each.name: each.tolerance for each in ELEMENT_TYPES if each.tolerance}
_LAYER_SHARES: Final = {
    "fp16": _SHARES["float16"],
    "bf16": _SHARES["bfloat16"],
    "fp8": _SHARES["float8_e4m3fn"],
    "int8": 0.1,
    "int8 weights": 5e-2,
    "int4 weights": 0.25,
}
"""The same by the types that layers compute in, as plans name them."""
_LEAST: Final = 1e-2
"""Tensors smaller than this are what is left of larger numbers: their rounding counts."""
_SHOWN_KEYS: Final = 8
_STEPPED: Final = frozenset(each.name for each in ELEMENT_TYPES if each.kind in ("int", "uint") and each.bits <= 8)


@dataclass(frozen=True, kw_only=True)
class Tolerance:
    """How far off an element may be; what is None is decided by the type."""

    atol: float | None = None
    rtol: float | None = None
    allow_nan: bool = False
    """Whether tensors without a finite element may be close, although nothing in them can be compared."""
    layer_types: frozenset[str] = frozenset()
    """What layers of either side compute in, as their plans say, where that is narrower than the outputs."""

    @property
    def is_given(self) -> bool:
        """Whether anybody gave one."""
        return self.atol is not None or self.rtol is not None

    @property
    def layer_share(self) -> float:
        """The share of the largest magnitude that the types of layers allow; 0 where they decide nothing."""
        return 0.0 if self.is_given else max((_LAYER_SHARES.get(name, 0.0) for name in self.layer_types), default=0.0)

    def allowed(self, reference: Array, dtype: str) -> Any:
        """The largest difference that passes, for all elements or for each."""
        if self.is_given:
            return (self.atol or 0.0) + (self.rtol or 0.0) * np.abs(reference)
        if dtype in _STEPPED:
            return 1.0
        if dtype not in _SHARES:
            return 0.0
        finite = np.abs(reference[np.isfinite(reference)])
        return max(_SHARES[dtype], self.layer_share) * max(float(finite.max()) if finite.size else 0.0, _LEAST)


@dataclass(frozen=True, kw_only=True)
class ValueRange:
    """What the elements of a tensor are like."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    min: float | None = None
    """Of the finite elements; None where there are none, or no numbers."""
    max: float | None = None
    mean: float | None = None
    num_nan: int = 0
    num_inf: int = 0


@dataclass(frozen=True, kw_only=True)
class TensorDifference:
    """A tensor of the candidate beside that of the reference.

    Errors and cosine are over elements that are finite on both sides, and None where there are none; relative errors
    are over those whose reference is not 0.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    is_close: bool
    reason: str = ""
    """Why it is not close."""
    is_verified: bool = True
    """False where the sides are alike but there is no finite element to compare, so that this means nothing."""
    note: str = ""
    """What was not compared although it is close: elements that are not finite, or everything, as it is empty."""
    max_abs: float | None = None
    mean_abs: float | None = None
    max_rel: float | None = None
    mean_rel: float | None = None
    cosine: float | None = None
    num_wrong: int = 0
    """Elements that are further off than allowed."""
    size: int = 0
    num_compared: int = 0
    """Elements that are finite on both sides; of what is no number, all."""
    worst_index: tuple[int, ...] | None = None
    """Where they differ most; None when they are equal or cannot be compared."""
    worst_candidate: Any = None
    worst_reference: Any = None
    num_nan: tuple[int, int] = (0, 0)
    """In the candidate and in the reference."""
    num_inf: tuple[int, int] = (0, 0)

    @property
    def differs(self) -> bool:
        """Whether something is unlike, which a tensor with nothing to compare is not."""
        return not self.is_close and self.is_verified

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def compare_values(name: str, candidate: Any, reference: Any, tolerance: Tolerance | None = None) -> TensorDifference:
    """Compare two arrays, two sequences, two maps, or two optionals.

    >>> difference = compare_values("y", np.float32([1, 2]), np.float32([1, 2.5]))
    >>> difference.is_close, difference.worst_index, difference.max_abs
    (False, (1,), 0.5)
    """
    tolerance = tolerance or Tolerance()
    if candidate is None or reference is None:
        return _compare_nothing(name, candidate, reference)
    tables = tabulate_maps(candidate), tabulate_maps(reference)
    if tables[0] is not None and tables[1] is not None:
        return _compare_tables(name, tables[0], tables[1], tolerance)
    if isinstance(candidate, list | tuple) or isinstance(reference, list | tuple):
        return _compare_sequences(name, candidate, reference, tolerance)
    if tables != (None, None):
        reason = "no map instead of a map" if tables[0] is None else "a map instead of no map"
        return TensorDifference(name=name, dtype="map", shape=(), is_close=False, reason=reason)
    return _compare_arrays(name, np.asarray(candidate), np.asarray(reference), tolerance)


def describe_range(name: str, value: Any) -> ValueRange:
    """What the elements of a tensor are like; of a sequence, those of all its tensors, and of maps all elements."""
    table = tabulate_maps(value)
    if table is not None:
        array, kind = table.rows, f"map of {len(table.keys)}"
    elif value is None or isinstance(value, list | tuple):
        items = [np.asarray(item).ravel() for item in value or ()]
        array = np.concatenate(items) if items else np.zeros(0)
        kind = "none" if value is None else f"sequence of {len(items)}"
    else:
        array = np.asarray(value)
        kind = _type_name(array)
    shape = array.shape
    if array.dtype.kind in "OSU" or not array.size:
        return ValueRange(name=name, dtype=kind, shape=shape)
    numbers = _numbers(array)
    finite = np.abs(numbers[np.isfinite(numbers)]) if numbers.dtype.kind == "c" else numbers[np.isfinite(numbers)]
    return ValueRange(
        name=name,
        dtype=kind,
        shape=shape,
        min=float(finite.min()) if finite.size else None,
        max=float(finite.max()) if finite.size else None,
        mean=float(finite.mean()) if finite.size else None,
        num_nan=int(np.isnan(numbers).sum()),
        num_inf=int(np.isinf(numbers).sum()),
    )


# kinds of values


def _compare_nothing(name: str, candidate: Any, reference: Any) -> TensorDifference:
    is_same = candidate is None and reference is None
    reason = "" if is_same else f"the {'candidate' if candidate is None else 'reference'} gives nothing"
    return TensorDifference(
        name=name, dtype="none", shape=(), is_close=is_same, reason=reason, note=EMPTY if is_same else ""
    )


def _compare_sequences(name: str, candidate: Any, reference: Any, tolerance: Tolerance) -> TensorDifference:
    lengths = [len(side) if isinstance(side, list | tuple) else None for side in (candidate, reference)]
    if lengths[0] != lengths[1]:
        texts = ["no sequence" if length is None else f"{length} elements" for length in lengths]
        reason = f"{texts[0]} instead of {texts[1]}"
        return TensorDifference(name=name, dtype="sequence", shape=(), is_close=False, reason=reason)
    found = [
        compare_values(f"{name}[{i}]", a, b, tolerance)
        for i, (a, b) in enumerate(zip(candidate, reference, strict=True))
    ]
    if not found:
        return TensorDifference(name=name, dtype="sequence", shape=(0,), is_close=True, note=EMPTY)
    worst = max(found, key=lambda item: (item.differs, not item.is_close, item.max_abs or 0.0))
    return replace(
        worst,
        is_verified=worst.differs or all(item.is_verified for item in found),
        note="; ".join(f"{item.name}: {item.note}" for item in found if item.note),
    )


def _compare_tables(name: str, candidate: MapTable, reference: MapTable, tolerance: Tolerance) -> TensorDifference:
    """Maps of the same keys, as arrays with a row a map and a column a key."""
    if candidate.keys != reference.keys:
        reason = f"the keys are {_keys_text(candidate.keys)} instead of {_keys_text(reference.keys)}"
        return TensorDifference(name=name, dtype="map", shape=reference.rows.shape, is_close=False, reason=reason)
    return _compare_arrays(name, candidate.rows, reference.rows, tolerance)


def _keys_text(keys: Sequence[Any]) -> str:
    text = ", ".join(map(repr, keys[:_SHOWN_KEYS]))
    return f"{text}, ..." if len(keys) > _SHOWN_KEYS else text or "none"


def _type_name(array: Array) -> str:
    return "string" if array.dtype.kind in "OSU" else array.dtype.name


def _compare_arrays(name: str, candidate: Array, reference: Array, tolerance: Tolerance) -> TensorDifference:
    dtype, shape = _type_name(reference), reference.shape
    if _type_name(candidate) != dtype:
        reason = f"the type is {_type_name(candidate)} instead of {dtype}"
        return TensorDifference(name=name, dtype=dtype, shape=shape, is_close=False, reason=reason)
    if candidate.shape != shape:
        reason = f"the shape is {_shape_text(candidate.shape)} instead of {_shape_text(shape)}"
        return TensorDifference(name=name, dtype=dtype, shape=shape, is_close=False, reason=reason)
    if dtype == "string":
        return _compare_exactly(name, candidate, reference)
    return _compare_numbers(name, candidate, reference, tolerance)


def _shape_text(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) or "scalar"


def _compare_exactly(name: str, candidate: Array, reference: Array) -> TensorDifference:
    wrong = np.asarray(candidate.astype(object) != reference.astype(object), dtype=np.bool_).reshape(reference.shape)
    count = int(wrong.sum())
    worst = _index_of(int(np.argmax(wrong)), wrong.shape) if count else None
    return TensorDifference(
        name=name,
        dtype="string",
        shape=reference.shape,
        is_close=not count,
        reason=f"{count} of {wrong.size} differ" if count else "",
        note="" if wrong.size else EMPTY,
        num_wrong=count,
        size=wrong.size,
        num_compared=wrong.size,
        worst_index=worst,
        worst_candidate=None if worst is None else str(candidate[worst]),
        worst_reference=None if worst is None else str(reference[worst]),
    )


# numbers


def _numbers(array: Array) -> Array:
    """As float64, or complex128; what is beyond 2**53 is rounded, which differences of integers allow for."""
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def _compare_numbers(name: str, candidate: Array, reference: Array, tolerance: Tolerance) -> TensorDifference:
    dtype = reference.dtype.name
    a, b = _numbers(candidate), _numbers(reference)
    with np.errstate(all="ignore"):  # infinities and NaN are what this is about
        finite = np.isfinite(a) & np.isfinite(b)
        errors = np.where(finite, np.abs(a - b), 0.0)
        if reference.dtype.kind in "iub":
            errors = np.where(errors == 0, np.asarray(candidate != reference, np.float64), errors)
        wrong = (errors > tolerance.allowed(b, dtype)) & finite
        wrong |= ~finite & ~same_specials(a, b)
        judged = _judge(int(wrong.sum()), wrong, finite, cover(a, b), tolerance)
        worst = _find_worst(errors, wrong & ~finite)
        return TensorDifference(
            name=name,
            dtype=dtype,
            shape=reference.shape,
            **judged,
            **_measure(a[finite], b[finite], errors[finite]),
            worst_index=worst,
            worst_candidate=None if worst is None else _plain(candidate[worst]),
            worst_reference=None if worst is None else _plain(reference[worst]),
        )


def _judge(count: int, wrong: Flags, finite: Flags, coverage: Coverage, tolerance: Tolerance) -> dict[str, Any]:
    """Whether it is close, why not, and how much was compared."""
    is_alike_in_nothing = not count and coverage.is_hollow
    is_close = not count and (tolerance.allow_nan or not is_alike_in_nothing)
    return {
        "is_close": is_close,
        "is_verified": not is_alike_in_nothing,
        "reason": "" if is_close else _explain(count, wrong, finite) if count else coverage.describe(),
        "note": coverage.describe() if is_close else "",
        "num_wrong": count,
        "size": coverage.size,
        "num_compared": coverage.num_compared,
        "num_nan": coverage.num_nan,
        "num_inf": coverage.num_inf,
    }


def _measure(a: Array, b: Array, errors: Array) -> dict[str, Any]:
    """Errors and cosine of numbers that are finite; nothing when there are none."""
    if not errors.size:
        return {}
    magnitudes = np.abs(b)
    relative = errors[magnitudes > 0] / magnitudes[magnitudes > 0]
    return {
        "max_abs": float(errors.max()),
        "mean_abs": float(errors.mean()),
        "max_rel": float(relative.max()) if relative.size else 0.0,
        "mean_rel": float(relative.mean()) if relative.size else 0.0,
        "cosine": _cosine(a, b),
    }


def _explain(count: int, wrong: Flags, finite: Flags) -> str:
    text = f"{count} of {wrong.size} element{'s' if wrong.size != 1 else ''} differ{'s' if count == 1 else ''}"
    odd = int((wrong & ~finite).sum())
    return f"{text}, {odd} in NaN or infinity" if odd else text


def _find_worst(errors: Array, odd: Flags) -> tuple[int, ...] | None:
    """A difference in NaN or infinity comes before any number."""
    if odd.any():
        return _index_of(int(np.argmax(odd)), odd.shape)
    if not errors.size or not errors.any():
        return None
    return _index_of(int(np.argmax(errors)), errors.shape)


def _index_of(position: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(axis) for axis in np.unravel_index(position, shape))


def _cosine(a: Array, b: Array) -> float:
    """Of the angle between two vectors; 1 for two zeros, 0 for one."""
    scales = [float(np.abs(side).max()) if side.size else 0.0 for side in (a, b)]
    if not all(scales):
        return float(scales[0] == scales[1])
    a, b = a / scales[0], b / scales[1]
    return float(np.clip(np.real(np.vdot(a, b)) / np.sqrt(np.vdot(a, a).real * np.vdot(b, b).real), -1.0, 1.0))


def _plain(element: Any) -> float | int | bool | str:
    """One element as plain data; numbers of types that JSON lacks become the nearest that it has."""
    if isinstance(element, bool | np.bool_):
        return bool(element)
    if isinstance(element, np.integer):
        return int(element)
    return str(element) if np.iscomplexobj(element) else float(element)
