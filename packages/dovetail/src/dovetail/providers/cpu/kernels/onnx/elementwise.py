"""Arithmetic, logic, comparison, bits and selection over two or more broadcast inputs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Final

import numpy as np

from dovetail.errors import ModelError
from dovetail.providers.cpu._numeric import ALL, BOOL, FLOATS, INTEGERS, NUMBERS, Array
from dovetail.providers.cpu.kernels._support import IEEE_FLOATS, STRING, float_reference, reference
from dovetail.providers.cpu.registry import kernel

__all__ = ["bit_shift", "divide", "invert_bits", "mean_of", "modulo", "negate_logic", "power", "where"]

Binary = Callable[[Array, Array], Array]

_ARITHMETIC: Final[dict[str, Binary]] = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply}
_VARIADIC: Final[dict[str, Binary]] = {"Max": np.maximum, "Min": np.minimum, "Sum": np.add}
_LOGIC: Final[dict[str, Binary]] = {"And": np.logical_and, "Or": np.logical_or, "Xor": np.logical_xor}
_BITWISE: Final[dict[str, Binary]] = {
    "BitwiseAnd": np.bitwise_and,
    "BitwiseOr": np.bitwise_or,
    "BitwiseXor": np.bitwise_xor,
}
_COMPARISON: Final[dict[str, tuple[int, Binary]]] = {
    "Equal": (7, np.equal),
    "Greater": (7, np.greater),
    "Less": (7, np.less),
    "GreaterOrEqual": (12, np.greater_equal),
    "LessOrEqual": (12, np.less_equal),
}


def _extreme_into(function: Callable[..., Array]) -> Callable[..., object]:
    """These two take their output by keyword only."""

    def write(a: Array, b: Array, out: Array) -> None:
        function(a, b, out=out)

    return write


def _folding_into(function: Binary, into: Callable[..., object]) -> Callable[..., object]:
    def write(*arrays: Array) -> None:
        *inputs, out = arrays
        if len(inputs) == 1:
            out[...] = inputs[0]
        else:
            into(functools.reduce(function, inputs[:-1]), inputs[-1], out)

    return write


_EXTREMES: Final = {"Max": _extreme_into(np.maximum), "Min": _extreme_into(np.minimum)}


def _pairwise(function: Binary) -> Callable[..., Array]:
    def compute(a: Array, b: Array) -> Array:
        return function(a, b)

    return compute


def _comparing(function: Binary) -> Callable[..., Array]:
    def compute(a: Array, b: Array) -> Array:
        # Comparing arrays of strings gives an array of objects.
        return np.asarray(function(a, b)).astype(np.bool_)

    return compute


def _folding(function: Binary) -> Callable[..., Array]:
    def compute(*inputs: Array) -> Array:
        return functools.reduce(function, inputs[1:], inputs[0].copy())

    return compute


for _op, _function in _ARITHMETIC.items():
    kernel(_op, since=7, types={"T": NUMBERS}, into=_function)(float_reference(_pairwise(_function)))
for _op, _function in _VARIADIC.items():
    _into = _folding_into(_function, _EXTREMES.get(_op, _function))
    _types = FLOATS if _op == "Sum" else NUMBERS
    kernel(_op, since=8, types={"T": _types}, into=_into)(float_reference(_folding(_function)))
for _op, _function in _LOGIC.items():
    kernel(_op, since=7, types={"T": BOOL}, into=_function)(reference(_pairwise(_function)))
for _op, _function in _BITWISE.items():
    kernel(_op, since=18, types={"T": INTEGERS}, into=_function)(reference(_pairwise(_function)))
for _op, (_since, _function) in _COMPARISON.items():
    _compared = ALL + STRING if _op == "Equal" else NUMBERS
    kernel(_op, since=_since, types={"T": _compared}, into=_function)(reference(_comparing(_function)))


def _divide_into(a: Array, b: Array, out: Array) -> None:
    if a.dtype.kind == "f":
        np.divide(a, b, out)
    else:
        out[...] = divide(a, b)


@kernel("Div", since=7, types={"T": NUMBERS}, into=_divide_into)
@float_reference
def divide(a: Array, b: Array) -> Array:
    """Quotients; those of integers are truncated toward zero."""
    if a.dtype.kind not in "iu":
        return np.divide(a, b)
    floored, remainder = np.divmod(a, b)
    # NumPy floors: where the signs differ and something is left over, that is one too low.
    is_low = (remainder != 0) & ((a < 0) != (b < 0))
    return np.where(is_low, floored + 1, floored).astype(a.dtype)


def _mean_into(*arrays: Array) -> None:
    *inputs, out = arrays
    np.divide(functools.reduce(np.add, inputs), len(inputs), out)


@kernel("Mean", since=8, types={"T": FLOATS}, into=_mean_into)
@float_reference
def mean_of(*inputs: Array) -> Array:
    """The element-wise mean of all inputs."""
    return functools.reduce(np.add, inputs) / len(inputs)


def _modulo_into(a: Array, b: Array, out: Array, *, fmod: int = 0) -> None:
    (np.fmod if fmod else np.mod)(a, b, out)


@kernel("Mod", since=10, types={"T": NUMBERS}, into=_modulo_into)
@float_reference
def modulo(a: Array, b: Array, *, fmod: int = 0) -> Array:
    """The remainder with the sign of the divisor, or with ``fmod`` that of the dividend."""
    return np.fmod(a, b) if fmod else np.mod(a, b)


def _power_into(base: Array, exponent: Array, out: Array) -> None:
    if base.dtype.kind == "f" and base.dtype == exponent.dtype:
        np.power(base, exponent, out)
    else:
        out[...] = power(base, exponent)


@kernel("Pow", since=7, until=11, types={"T": IEEE_FLOATS}, into=_power_into)
@kernel("Pow", since=12, types={"T": (*FLOATS, "int32", "int64"), "T1": NUMBERS}, into=_power_into)
@reference
def power(base: Array, exponent: Array) -> Array:
    """Powers in the type of the base, whatever the type of the exponent."""
    kinds = {base.dtype.kind, exponent.dtype.kind}
    if kinds <= {"i", "u"} and not np.any(exponent < 0):
        return _integer_power(base, exponent)
    is_single = kinds.isdisjoint("iu") and max(base.dtype.itemsize, exponent.dtype.itemsize) <= 4
    wide = np.float32 if is_single else np.float64
    return np.asarray(np.power(base.astype(wide), exponent.astype(wide))).astype(base.dtype)


def _integer_power(base: Array, exponent: Array) -> Array:
    """Exact powers modulo the width of the base, through the widest type of its sign."""
    wide = np.uint64 if base.dtype.kind == "u" else np.int64
    # An exponent past the range of int64 would turn negative, which NumPy refuses.
    bounded = np.minimum(exponent.astype(np.uint64), np.uint64(2**62)).astype(wide)
    return np.asarray(np.power(base.astype(wide), bounded)).astype(base.dtype)


@kernel("Not", since=1, types={"T": BOOL}, into=np.logical_not)
@reference
def negate_logic(x: Array) -> Array:
    """The opposite truth value."""
    return np.logical_not(x)


@kernel("BitwiseNot", since=18, types={"T": INTEGERS}, into=np.invert)
@reference
def invert_bits(x: Array) -> Array:
    """Every bit flipped."""
    return np.invert(x)


def _bit_shift_into(x: Array, amount: Array, out: Array, *, direction: str) -> None:
    (np.left_shift if direction == "LEFT" else np.right_shift)(x, amount, out)


@kernel("BitShift", since=11, types={"T": INTEGERS}, into=_bit_shift_into)
@reference
def bit_shift(x: Array, amount: Array, *, direction: str) -> Array:
    """Shifted bits; an amount outside the width leaves only copies of the sign, as NumPy also does."""
    if direction not in ("LEFT", "RIGHT"):
        raise ModelError(f"BitShift direction '{direction}' does not exist", expected="LEFT or RIGHT")
    return np.left_shift(x, amount) if direction == "LEFT" else np.right_shift(x, amount)


@kernel("Where", since=9, types={"B": BOOL})
@reference
def where(condition: Array, x: Array, y: Array) -> Array:
    """Elements of ``x`` where the condition holds, of ``y`` elsewhere."""
    return np.where(condition, x, y)
