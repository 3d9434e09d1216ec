"""Mathematical functions of one input, tests for special values, and conversions between types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from dovetail.errors import ModelError
from dovetail.providers.cpu._numeric import FLOATS, NUMBERS, Array
from dovetail.providers.cpu.kernels._conversion import convert, dtype_of
from dovetail.providers.cpu.kernels._erf import erf
from dovetail.providers.cpu.kernels._support import (
    FLOAT4,
    FLOAT6,
    FLOAT8,
    INT2,
    INT4,
    SIGNED,
    float_reference,
    reference,
)
from dovetail.providers.cpu.registry import kernel

__all__ = [
    "bit_cast",
    "cast_like",
    "cast_like_plain",
    "cast_like_saturating",
    "cast_plain",
    "cast_saturating",
    "cast_to",
    "identity",
    "is_inf",
    "is_nan",
    "reciprocal",
]

Unary = Callable[[Array], Array]

_FUNCTIONS: Final[dict[str, tuple[int, Unary]]] = {
    "Exp": (6, np.exp),
    "Log": (6, np.log),
    "Sqrt": (6, np.sqrt),
    "Sin": (7, np.sin),
    "Cos": (7, np.cos),
    "Tan": (7, np.tan),
    "Asin": (7, np.arcsin),
    "Acos": (7, np.arccos),
    "Atan": (7, np.arctan),
    "Sinh": (9, np.sinh),
    "Cosh": (9, np.cosh),
    "Asinh": (9, np.arcsinh),
    "Acosh": (9, np.arccosh),
    "Atanh": (9, np.arctanh),
    "Tanh": (6, np.tanh),
    "Ceil": (6, np.ceil),
    "Floor": (6, np.floor),
    "Round": (11, np.rint),
    "Erf": (9, erf),
}
_SIGNED: Final[dict[str, tuple[int, Unary]]] = {"Abs": (6, np.abs), "Neg": (6, np.negative), "Sign": (9, np.sign)}
_SUB_BYTE_WIDTHS: Final = {
    name: width for width, names in ((2, INT2), (4, INT4 + FLOAT4), (6, FLOAT6)) for name in names
}


def _applying(function: Unary) -> Unary:
    def compute(x: Array) -> Array:
        return function(x)

    return compute


for _op, (_since, _function) in _FUNCTIONS.items():
    _into = _function if isinstance(_function, np.ufunc) else None
    kernel(_op, since=_since, types={"T": FLOATS}, into=_into)(float_reference(_applying(_function)))
for _op, (_since, _function) in _SIGNED.items():
    _types = SIGNED if _op == "Neg" else NUMBERS
    kernel(_op, since=_since, types={"T": _types}, into=_function)(float_reference(_applying(_function)))


def _reciprocal_into(x: Array, out: Array) -> None:
    np.divide(x.dtype.type(1), x, out)


@kernel("Reciprocal", since=6, types={"T": FLOATS}, into=_reciprocal_into)
@float_reference
def reciprocal(x: Array) -> Array:
    """One over each element."""
    return np.asarray(np.divide(x.dtype.type(1), x))


@kernel("IsInf", since=10, types={"T1": FLOATS + FLOAT8})
@reference
def is_inf(x: Array, *, detect_negative: int = 1, detect_positive: int = 1) -> Array:
    """Where an element is an infinity of a sign that is asked for."""
    wide = _as_native(x)
    return (np.isneginf(wide) & bool(detect_negative)) | (np.isposinf(wide) & bool(detect_positive))


@kernel("IsNaN", since=9, types={"T1": FLOATS + FLOAT8}, into=np.isnan)
@reference
def is_nan(x: Array) -> Array:
    """Where an element is not a number."""
    return np.isnan(_as_native(x))


def _as_native(x: Array) -> Array:
    """Types that NumPy itself does not know as float32, which holds all their values."""
    return x.astype(np.float32) if x.dtype.kind == "V" else x


def _identity_into(x: Array, out: Array) -> None:
    out[...] = x


@kernel("Identity", since=1, into=_identity_into)
@reference
def identity(x: Any) -> Any:
    """A copy of a tensor or of a sequence; an absent optional stays absent."""
    return None if x is None else x.copy()


def _convert_into(x: Array, out: Array, saturate: int = 1, round_mode: str = "up") -> None:
    # What NumPy has conversions for, it converts while it copies, as astype does.
    is_native = out.dtype.kind in "biuf"
    out[...] = x if is_native else convert(x, out.dtype, saturate=bool(saturate), round_mode=round_mode)


def _cast_into(x: Array, out: Array, *, to: int, **options: Any) -> None:
    _convert_into(x, out, **options)


def _cast_like_into(x: Array, target: Array, out: Array, **options: Any) -> None:
    _convert_into(x, out, **options)


@kernel("Cast", since=6, until=18, into=_cast_into)
@reference
def cast_plain(x: Array, *, to: int) -> Array:
    """Each element converted to the element type with this ONNX number."""
    return convert(x, dtype_of(to))


@kernel("Cast", since=19, until=23, into=_cast_into)
@reference
def cast_saturating(x: Array, *, to: int, saturate: int = 1) -> Array:
    """``cast_plain`` with a choice for values outside the range of an 8-bit float."""
    return convert(x, dtype_of(to), saturate=bool(saturate))


@kernel("Cast", since=24, into=_cast_into)
@reference
def cast_to(x: Array, *, to: int, saturate: int = 1, round_mode: str = "up") -> Array:
    """``cast_saturating`` with a choice of rounding to powers of two (float8e8m0)."""
    return convert(x, dtype_of(to), saturate=bool(saturate), round_mode=round_mode)


@kernel("CastLike", since=15, until=18, into=_cast_like_into)
@reference
def cast_like_plain(x: Array, target: Array) -> Array:
    """Each element converted to the element type of ``target``."""
    return convert(x, target.dtype)


@kernel("CastLike", since=19, until=23, into=_cast_like_into)
@reference
def cast_like_saturating(x: Array, target: Array, *, saturate: int = 1) -> Array:
    """``cast_like_plain`` with a choice for values outside the range of an 8-bit float."""
    return convert(x, target.dtype, saturate=bool(saturate))


@kernel("CastLike", since=24, into=_cast_like_into)
@reference
def cast_like(x: Array, target: Array, *, saturate: int = 1, round_mode: str = "up") -> Array:
    """``cast_like_saturating`` with a choice of rounding to powers of two (float8e8m0)."""
    return convert(x, target.dtype, saturate=bool(saturate), round_mode=round_mode)


@kernel("BitCast", since=26)
@reference
def bit_cast(x: Array, *, to: int) -> Array:
    """The same bits read as another element type of the same width."""
    target = dtype_of(to)
    if target == np.object_ or _bit_width(target) != _bit_width(x.dtype):
        raise ModelError(
            f"BitCast cannot read {x.dtype.name} as {target.name}", expected="two numeric types of the same width"
        )
    return np.ascontiguousarray(x).view(target).reshape(x.shape).copy()


def _bit_width(dtype: np.dtype[Any]) -> int:
    """Bits an element has in ONNX; types below eight bits take a whole byte in NumPy."""
    return _SUB_BYTE_WIDTHS.get(dtype.name, dtype.itemsize * 8)
