"""Checked properties of layers: each converts what it is given, and tells the network that the layer changed.

A property is declared once in a layer class with a converter; the converters here refuse a wrong value with the name
of the layer, what was expected, what came and how to fix it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

import numpy as np

from dovetail.errors import UsageError
from dovetail.types import DataType, Dims, Permutation, Weights

if TYPE_CHECKING:
    from dovetail.network.api.layers.base import ILayer

__all__ = [
    "Property",
    "WeightsProperty",
    "check_name",
    "choice",
    "convert_weights",
    "data_type",
    "dims",
    "flag",
    "integer",
    "mask",
    "optional",
    "permutation",
    "real",
    "reals",
    "text",
]

T = TypeVar("T")
E = TypeVar("E", bound=IntEnum)
Converter = Callable[[Any, str, str], T]
"""Takes the value, the layer as messages name it, and the property's name."""


class Property(Generic[T]):
    """A checked, settable property of a layer.

    Args:
        convert: Turns a given value into the stored one, or raises.
        doc: What the property means.
        resets: An input that stops counting when the property is set, because both say the same thing.
    """

    def __init__(self, convert: Converter[T], doc: str, *, resets: int | None = None) -> None:
        self._convert = convert
        self._resets = resets
        self.__doc__ = doc

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, layer: None, owner: type) -> Property[T]: ...
    @overload
    def __get__(self, layer: ILayer, owner: type) -> T: ...
    def __get__(self, layer: ILayer | None, owner: type) -> Property[T] | T:
        if layer is None:
            return self
        value: T = layer._values[self._name]
        # Dims are mutable: what the caller gets must not be what the layer keeps.
        return value.__copy__() if isinstance(value, Dims) else value  # type: ignore[return-value]

    def __set__(self, layer: ILayer, value: Any) -> None:
        layer._values[self._name] = self._convert(value, layer._where, self._name)
        if self._resets is not None:
            layer._drop_input(self._resets)
        layer._changed()


class WeightsProperty(Property[Any]):
    """Weights of a layer, read as the contract has it: a flat array, or ``Weights`` of a type that NumPy lacks.

    Args:
        doc: What the weights are for.
        convert: Turns what is given into ``Weights``, or None for no weights.
    """

    def __init__(self, doc: str, convert: Converter[Weights | None] | None = None) -> None:
        super().__init__(convert or convert_weights, doc)

    def __get__(self, layer: ILayer | None, owner: type) -> Any:
        stored = super().__get__(layer, owner)
        if not isinstance(stored, Weights):
            return stored
        array = stored.numpy()
        return array.reshape(-1) if array.dtype.type.__module__ == "numpy" else stored


def _refuse(value: Any, where: str, name: str, expected: object, fix: str | None = None) -> UsageError:
    return UsageError(f"'{name}' is wrong", where=where, expected=expected, got=repr(value)[:80], fix=fix)


def check_name(value: Any, where: str, what: str, max_bytes: int) -> None:
    """Refuse what is no name: something else than a string, nothing, or too much."""
    if not isinstance(value, str) or not 0 < len(value.encode()) <= max_bytes:
        raise UsageError(
            f"{what} is wrong", where=where, expected=f"a string of 1 to {max_bytes} bytes", got=repr(value)[:60]
        )


def integer(*, minimum: int | None = None) -> Converter[int]:
    """An integer, of at least the minimum."""
    expected = "an integer" if minimum is None else f"an integer at least {minimum}"

    def convert(value: Any, where: str, name: str) -> int:
        is_integer = hasattr(value, "__index__") and not isinstance(value, float)
        number = int(value) if is_integer else 0
        too_small = minimum is not None and number < minimum
        if not is_integer or too_small:
            raise _refuse(value, where, name, expected)
        return number

    return convert


def mask(value: Any, where: str, name: str) -> int:
    """A set of axes: bit i stands for axis i."""
    if not hasattr(value, "__index__") or int(value) <= 0:
        raise _refuse(value, where, name, "a bit mask with at least one axis", "use 1 << axis")
    return int(value)


def real(value: Any, where: str, name: str) -> float:
    """A number that is not NaN."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise _refuse(value, where, name, "a number") from None
    if math.isnan(number):
        raise _refuse(value, where, name, "a number")
    return number


def reals(value: Any, where: str, name: str) -> tuple[float, ...]:
    """A sequence of numbers."""
    if not isinstance(value, Iterable):
        raise _refuse(value, where, name, "a sequence of numbers")
    return tuple(real(item, where, name) for item in value)


def flag(value: Any, where: str, name: str) -> bool:
    """True or false."""
    if not isinstance(value, bool | int | np.bool_):
        raise _refuse(value, where, name, "True or False")
    return bool(value)


def text(value: Any, where: str, name: str) -> str:
    """A string."""
    if not isinstance(value, str):
        raise _refuse(value, where, name, "a string")
    return value


def dims(*, minimum: int | None = None) -> Converter[Dims]:
    """A sequence of at most eight integers, each at least ``minimum``."""
    wanted = "a sequence of integers" + ("" if minimum is None else f", each at least {minimum}")

    def convert(value: Any, where: str, name: str) -> Dims:
        if isinstance(value, str | bytes) or not isinstance(value, Iterable):
            raise _refuse(value, where, name, wanted)
        numbers = list(value)
        if not all(hasattr(number, "__index__") for number in numbers):
            raise _refuse(value, where, name, wanted)
        if len(numbers) > Dims.MAX_DIMS:
            raise _refuse(value, where, name, f"at most {Dims.MAX_DIMS} dimensions")
        if minimum is not None and any(int(number) < minimum for number in numbers):
            raise _refuse(value, where, name, wanted)
        return Dims(numbers)

    return convert


def permutation(value: Any, where: str, name: str) -> Permutation:
    """An order of axes: each axis once."""
    order = dims(minimum=0)(value, where, name)
    if sorted(order) != list(range(len(order))):
        raise _refuse(value, where, name, "each axis exactly once", "give the input axis of every output axis")
    return Permutation(order)


def choice(enum: type[E]) -> Converter[E]:
    """A member of an enumeration, or its number."""

    def convert(value: Any, where: str, name: str) -> E:
        try:
            return enum(value)
        except (ValueError, TypeError):
            expected = f"one of {enum.__name__}: " + ", ".join(member.name for member in enum)
            raise _refuse(value, where, name, expected) from None

    return convert


def data_type(*allowed: DataType) -> Converter[DataType]:
    """A DataType, one of ``allowed`` when any are given."""

    def convert(value: Any, where: str, name: str) -> DataType:
        known = choice(DataType)(value, where, name)
        if allowed and known not in allowed:
            raise _refuse(known.name, where, name, "one of " + ", ".join(member.name for member in allowed))
        return known

    return convert


def optional(convert: Converter[T]) -> Converter[T | None]:
    """The same, or None for what is not set."""

    def convert_or_none(value: Any, where: str, name: str) -> T | None:
        return None if value is None else convert(value, where, name)

    return convert_or_none


def convert_weights(value: Any, where: str, name: str) -> Weights | None:
    """Weights from an array, from Weights, or None when there are none; nothing is copied."""
    if value is None or isinstance(value, Weights):
        return value if value is not None and len(value) else None
    try:
        converted = Weights(np.asarray(value))
    except (UsageError, TypeError, ValueError) as error:
        raise UsageError(
            f"'{name}' is not usable as weights: {error}", where=where, got=type(value).__name__, fix="pass an array"
        ) from None
    return converted if len(converted) else None
