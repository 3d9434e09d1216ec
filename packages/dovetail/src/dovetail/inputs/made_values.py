"""Values that are made when the shape of their input is known: one number everywhere, and draws from a range.

``uniform(0,255)`` draws between two numbers, for integers both included; ``normal(0,1)`` takes mean and deviation;
``zeros`` and ``ones`` need no numbers.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from dovetail.errors import InputError, UsageError
from dovetail.inputs.element_values import convert_value, is_integer_type
from dovetail.inputs.specs import InputSpec

__all__ = ["Filled", "MadeValue", "NormalDraws", "UniformDraws", "parse_made_value", "require_modest"]

Array = npt.NDArray[Any]

_CALL: Final = re.compile(r"(uniform|normal|zeros|ones)(?:\((.*)\))?", re.DOTALL)
_FORM: Final = "uniform(low,high), normal(mean,deviation), zeros or ones"
_COUNTS: Final = {"uniform": 2, "normal": 2, "zeros": 0, "ones": 0}
_MOST_ELEMENTS: Final = 1 << 28
"""A model may ask for any size, and numbers for that would take all memory and minutes."""


class MadeValue(ABC):
    """A value that is made for a shape."""

    @abstractmethod
    def make(self, spec: InputSpec, shape: Sequence[int], rng: np.random.Generator) -> Array:
        """The array; the same generator gives the same numbers."""


@dataclass(frozen=True)
class Filled(MadeValue):
    """One value everywhere; for an input without dimensions the value itself."""

    value: Any

    def make(self, spec: InputSpec, shape: Sequence[int], rng: np.random.Generator) -> Array:
        """The array."""
        require_modest(spec, shape)
        return np.full(shape, convert_value(self.value, spec))


@dataclass(frozen=True)
class UniformDraws(MadeValue):
    """Numbers between two others; for integers both ends are included, for floats the upper one is not."""

    low: float
    high: float

    def make(self, spec: InputSpec, shape: Sequence[int], rng: np.random.Generator) -> Array:
        """The array."""
        require_modest(spec, shape)
        dtype = _numeric_type(spec)
        low, high = (_end_of(end, spec) for end in (self.low, self.high))
        if dtype.kind == "b" or is_integer_type(dtype):
            drawn = np.uint64 if low >= 0 else np.int64
            return np.asarray(rng.integers(low, high, shape, drawn, endpoint=True)).astype(dtype)
        return np.asarray(rng.uniform(low, high, shape)).astype(dtype)


@dataclass(frozen=True)
class NormalDraws(MadeValue):
    """Numbers of a normal distribution."""

    mean: float
    deviation: float

    def make(self, spec: InputSpec, shape: Sequence[int], rng: np.random.Generator) -> Array:
        """The array."""
        require_modest(spec, shape)
        dtype = _numeric_type(spec)
        if dtype.kind == "b" or is_integer_type(dtype):
            raise UsageError(
                "normal draws are floats", where=spec.where, expected="uniform(low,high)", got=f"an input of {dtype}"
            )
        return np.asarray(rng.normal(self.mean, self.deviation, shape)).astype(dtype)


def parse_made_value(text: str, spec: InputSpec) -> MadeValue | None:
    """What a text such as ``uniform(0,255)`` makes; None where it is none of these.

    >>> parse_made_value("uniform(0,255)", InputSpec(name="x", dtype="uint8", dims=[]))
    UniformDraws(low=0, high=255)

    Raises:
        UsageError: It is one, and its numbers cannot be read.
    """
    match = _CALL.fullmatch(text)
    if match is None:
        return None
    kind, words = match[1], [word for word in (match[2] or "").split(",") if word.strip()]
    if len(words) != _COUNTS[kind]:
        raise UsageError("values cannot be made", where=f"{spec.where}, {text!r}", expected=_FORM)
    numbers = [_read_number(word, spec, text) for word in words]
    if kind == "uniform":
        return _make_uniform(numbers[0], numbers[1], spec, text)
    if kind == "normal":
        return _make_normal(numbers[0], numbers[1], spec, text)
    return Filled(0 if kind == "zeros" else 1)


def _make_uniform(low: float, high: float, spec: InputSpec, text: str) -> UniformDraws:
    if low > high:
        raise UsageError("the lower end is above the upper one", where=f"{spec.where}, {text!r}", expected=_FORM)
    return UniformDraws(low, high)


def _make_normal(mean: float, deviation: float, spec: InputSpec, text: str) -> NormalDraws:
    if deviation < 0:
        raise UsageError("the deviation is negative", where=f"{spec.where}, {text!r}", expected=_FORM)
    return NormalDraws(mean, deviation)


def _read_number(word: str, spec: InputSpec, text: str) -> float:
    try:
        number = int(word[:40]) if word.strip().lstrip("-").isdecimal() else float(word[:40])
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise UsageError(
            "a number cannot be read", where=f"{spec.where}, {text!r}", expected=_FORM, got=repr(word[:40])
        )
    return number


def _numeric_type(spec: InputSpec) -> np.dtype[Any]:
    if spec.dtype == "object" or not spec.is_tensor:
        kind = "texts" if spec.is_tensor else spec.type
        raise UsageError("numbers cannot be drawn for it", where=spec.where, expected="an input of numbers", got=kind)
    return np.dtype(spec.dtype)


def _end_of(end: float, spec: InputSpec) -> Any:
    """An end of a range, which must be a value of the input's type."""
    value = convert_value(end, spec)
    is_whole = spec.dtype == "bool" or is_integer_type(value.dtype)
    return int(value) if is_whole else float(value)


def require_modest(spec: InputSpec, shape: Sequence[int]) -> None:
    """Check that values for a shape can be made up.

    Raises:
        InputError: There would be too many.
    """
    if math.prod(shape) > _MOST_ELEMENTS:
        raise InputError(
            "nothing of this size is made up",
            where=spec.where,
            expected=f"at most {_MOST_ELEMENTS} elements",
            got=math.prod(shape),
            fix="give an array (--inputs), or set a smaller shape (--shapes)",
        )
