"""Element types by their ONNX number, and the conversions between them that Cast and QuantizeLinear define."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from dovetail.element_types import ELEMENT_TYPES
from dovetail.errors import ModelError
from dovetail.providers.cpu._numeric import Array

__all__ = ["DTYPES", "convert", "dtype_of", "integer_limits", "is_integer"]

DTYPES: Final[dict[int, np.dtype[Any]]] = {
    8: np.dtype(np.object_),
    **{each.onnx_number: each.dtype for each in ELEMENT_TYPES},
}
"""The numbers of ``TensorProto.DataType``."""

_FLOAT8_MAX: Final = {each.dtype: each.largest for each in ELEMENT_TYPES if each.largest is not None}
_E8M0: Final = DTYPES[24]
_SMALL_INTEGERS: Final = {
    each.dtype: (-(2 ** (each.bits - 1)), 2 ** (each.bits - 1) - 1) if each.kind == "int" else (0, 2**each.bits - 1)
    for each in ELEMENT_TYPES
    if each.is_packed and each.kind in ("int", "uint")
}


def dtype_of(number: int) -> np.dtype[Any]:
    """The NumPy dtype of an ONNX element type number.

    >>> dtype_of(16).name
    'bfloat16'
    """
    try:
        return DTYPES[number]
    except KeyError:
        raise ModelError(f"element type number {number} does not exist", expected=f"1 to {max(DTYPES)}") from None


def is_integer(dtype: np.dtype[Any]) -> bool:
    """Whether a dtype is an integer type, the two- and four-bit ones included."""
    return dtype.kind in "iu" or dtype in _SMALL_INTEGERS


def integer_limits(dtype: np.dtype[Any]) -> tuple[int, int]:
    """The smallest and the largest value of an integer type.

    >>> integer_limits(dtype_of(22))
    (-8, 7)
    """
    if dtype in _SMALL_INTEGERS:
        return _SMALL_INTEGERS[dtype]
    limits = np.iinfo(dtype)
    return int(limits.min), int(limits.max)


def convert(x: Array, dtype: np.dtype[Any], *, saturate: bool = True, round_mode: str = "up") -> Array:
    """Convert element by element under the rules of Cast; the result is always a new array."""
    if dtype == _E8M0 and x.dtype != _E8M0:
        return _to_e8m0(_as_numbers(x), saturate=saturate, round_mode=round_mode)
    if dtype == np.object_:
        return _to_strings(x)
    if x.dtype == np.object_:
        return _from_strings(x, dtype, saturate=saturate)
    if dtype in _FLOAT8_MAX and saturate:
        return _saturate(x, dtype)
    if dtype == np.bool_:
        return np.asarray(_as_numbers(x) != 0)
    if x.dtype.kind == "V" and dtype != x.dtype:
        # Not every pair of these types has a conversion of its own; the step between holds all their values.
        x = x.astype(np.int32 if is_integer(x.dtype) else np.float32)
    return x.astype(dtype)


def _as_numbers(x: Array) -> Array:
    """Types that NumPy itself does not know, and strings, as float64, which holds all their values."""
    return x.astype(np.float64) if x.dtype.kind in "VO" else x


def _saturate(x: Array, dtype: np.dtype[Any]) -> Array:
    limit = _FLOAT8_MAX[dtype]
    wide = x.astype(np.float64) if x.dtype.kind != "f" else x
    return np.asarray(np.clip(wide, -limit, limit).astype(dtype))


def _to_e8m0(x: Array, *, saturate: bool, round_mode: str) -> Array:
    """Powers of two only: the mantissa decides whether the exponent goes up; there is no zero, sign or infinity."""
    round_up_from = {"up": np.nextafter(0.5, 1.0), "nearest": 0.75, "down": 1.0}.get(round_mode)
    if round_up_from is None:
        raise ModelError(f"round_mode '{round_mode}' does not exist", expected="up, down or nearest")
    value = x.astype(np.float64)
    mantissa, exponent = np.frexp(value)
    biased = exponent - 1 + (mantissa >= round_up_from) + 127
    biased = np.where(value == 0, -1, np.where(np.isposinf(value), 255, biased))
    outside = (biased < 0) | (biased > 254)
    bits = np.clip(biased, 0, 254) if saturate else np.where(outside, 255, biased)
    return np.where(np.isnan(value) | (value < 0), 255, bits).astype(np.uint8).view(_E8M0)


def _to_strings(x: Array) -> Array:
    strings = np.empty(x.shape, dtype=object)
    strings.reshape(-1)[:] = [_to_string(value) for value in x.reshape(-1)]
    return strings


def _to_string(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, np.integer | np.bool_) or is_integer(value.dtype):
        return str(int(value))
    if np.isnan(value):
        return "NaN"
    if np.isinf(value):
        return "INF" if value > 0 else "-INF"
    wide = value if isinstance(value, np.float16 | np.float32 | np.float64) else np.float32(value)
    return np.format_float_positional(wide, trim="-")


def _from_strings(x: Array, dtype: np.dtype[Any], *, saturate: bool) -> Array:
    parse = _parse_integer if is_integer(dtype) else float
    try:
        values = [parse(text) for text in x.reshape(-1)]
    except ValueError as error:
        raise ModelError(f"a string cannot be cast to {dtype.name}: {error}", fix="cast only numeric strings") from None
    numbers = np.array(values, dtype=np.float64 if parse is float else object).reshape(x.shape)
    if dtype.kind in "iu":
        return numbers.astype(dtype)
    return convert(numbers.astype(np.float64), dtype, saturate=saturate)


def _parse_integer(text: str) -> int:
    """Plain digits exactly, since float64 does not hold every int64; anything else through float."""
    try:
        return int(text)
    except ValueError:
        return int(float(text))
