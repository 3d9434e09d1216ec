"""What the verifiers of a manifest share: the error of a broken rule, the limits, names, types and dimensions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import ml_dtypes  # noqa: F401 - registers bfloat16, fp8 and the four-bit types with NumPy by name
import numpy as np

from dovetail.element_types import BY_NAME
from dovetail.errors import DovetailError, PlanCorruptError
from dovetail.expr import MAX_DIM, Constant, Dim, Expr, Operation, symbols_of
from dovetail.formats import packed_shape
from dovetail.plan._header import show
from dovetail.plan.limits import MAX_NAME_CHARS
from dovetail.plan.value_types import ValueType, parse_value_type
from dovetail.types import TensorFormat

__all__ = [
    "MAX_BYTES",
    "MAX_RANK",
    "check_dims",
    "check_format",
    "check_indices",
    "check_name",
    "check_range",
    "check_value_type",
    "dtype_from_name",
    "require",
]

MAX_BYTES: Final = 2**47
"""More than any machine can address, and little enough that no sum or product of sizes leaves 64 bits unnoticed."""
MAX_RANK: Final = 32

_DTYPES: Final = frozenset(BY_NAME)
"""The element types of ONNX that are numbers. NumPy has more names, of dates, records and objects: none is taken."""


def require(condition: bool, where: str, what: str, got: object = None) -> None:
    """Raise the error for one rule of the manifest unless it holds."""
    if not condition:
        raise PlanCorruptError(what, where=where, got=None if got is None else show(got), fix="build the plan again")


def dtype_from_name(name: str) -> np.dtype[Any]:
    """The NumPy type of a name in a manifest; anything else than a plain number type is refused.

    >>> dtype_from_name("bfloat16").itemsize
    2
    """
    if name not in _DTYPES:
        raise PlanCorruptError("unknown element type", got=show(name), fix="build the plan again")
    return np.dtype(name)


def check_value_type(type_text: str, dtype: str, where: str) -> ValueType | None:
    """The type of an object value, whose element type must agree; None for plain numbers."""
    if not type_text:
        dtype_from_name(dtype)
        return None
    kind = parse_value_type(type_text)
    if kind.dtype != "object":
        dtype_from_name(kind.dtype)
    require(kind.dtype == dtype, where, "has another element type than its type says", dtype)
    return kind


def check_name(name: str, where: str, *, may_be_empty: bool = False) -> None:
    """A name goes into messages, dicts and C interfaces: it has no NUL and an end."""
    if (name or may_be_empty) and len(name) <= MAX_NAME_CHARS and "\0" not in name:
        return  # thousands are checked when a plan is loaded
    require(may_be_empty or bool(name), where, "a name is empty")
    require("\0" not in name, where, "a name has a NUL character", name)
    require(len(name) <= MAX_NAME_CHARS, where, f"a name has over {MAX_NAME_CHARS} characters", len(name))


def check_range(number: int, end: int, where: str, what: str) -> None:
    """A number counts something: it is not negative and below its end."""
    require(0 <= number < end, where, what, number)


def check_indices(indices: Iterable[int], count: int, where: str, *, absent: bool = False) -> None:
    """Numbers of values must name values; -1 stands for an absent one where that is allowed."""
    lowest = -1 if absent else 0
    for index in indices:
        if not lowest <= index < count:
            require(False, where, "refers to a value that does not exist", index)


def check_dims(dims: Sequence[Dim], where: str, *, nullable: bool = False) -> frozenset[str]:
    """Every dimension must have numbers in range, and be known unless it may be unknown; symbols come back."""
    require(len(dims) <= MAX_RANK, where, "too many dimensions", len(dims))
    names: frozenset[str] = frozenset()
    for dim in dims:
        if isinstance(dim, Constant):
            require(0 <= dim.value < MAX_DIM, where, "a dimension is out of range", dim.value)
        elif dim is not None:
            for constant in _constants(dim):
                require(abs(constant) < MAX_DIM, where, "a dimension has a number out of range", constant)
            names |= symbols_of(dim)
        else:
            require(nullable, where, "a dimension is malformed", "null")
    return names


def _constants(expr: Expr) -> list[int]:
    if isinstance(expr, Operation):
        return _constants(expr.first) + _constants(expr.second)
    return [expr.value] if isinstance(expr, Constant) else []


def check_format(format_name: str, rank: int | None, where: str) -> None:
    """A format must exist, and exist for tensors of that rank, where the rank is known."""
    require(format_name in TensorFormat.__members__, where, "unknown format", format_name)
    if rank is None or format_name == "LINEAR":
        return
    try:
        packed_shape((1,) * rank, TensorFormat[format_name])
    except DovetailError:
        raise PlanCorruptError("the format does not exist for that rank", where=where, got=format_name) from None
