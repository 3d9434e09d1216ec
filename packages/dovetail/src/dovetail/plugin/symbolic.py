"""Dimensions that add up: what a quick layer's shape function computes with.

A ``SymbolicDim`` is an expression of the contract with Python's operators. The functions here take plain integers
too, so that a shape function can be called with the shapes of arrays.
"""

from __future__ import annotations

from typing import Any, Final, Union

from dovetail.errors import PluginError
from dovetail.expr import DimensionOperation, IDimensionExpr, IExprBuilder

__all__ = ["SymbolicDim", "ceil_div", "dim_max", "dim_min", "expr_from_dim"]

_BUILDER: Final = IExprBuilder()

DimLike = Union["SymbolicDim", int]


class SymbolicDim:
    """One dimension, constant or known only at run time; ``+ - * // % == <`` give new ones.

    >>> n = SymbolicDim(_BUILDER.constant(7))
    >>> n // 2 + 1, ceil_div(n, 2)
    (4, 4)
    """

    __slots__ = ("expr",)
    __hash__ = None  # type: ignore[assignment]  # == gives an expression

    def __init__(self, expr: Any) -> None:
        self.expr = expr

    def __add__(self, other: DimLike) -> SymbolicDim:
        return _join(DimensionOperation.SUM, self, other)

    def __radd__(self, other: DimLike) -> SymbolicDim:
        return _join(DimensionOperation.SUM, other, self)

    def __sub__(self, other: DimLike) -> SymbolicDim:
        return _join(DimensionOperation.SUB, self, other)

    def __rsub__(self, other: DimLike) -> SymbolicDim:
        return _join(DimensionOperation.SUB, other, self)

    def __mul__(self, other: DimLike) -> SymbolicDim:
        return _join(DimensionOperation.PROD, self, other)

    def __rmul__(self, other: DimLike) -> SymbolicDim:
        return _join(DimensionOperation.PROD, other, self)

    def __floordiv__(self, other: DimLike) -> SymbolicDim:
        return _join(DimensionOperation.FLOOR_DIV, self, other)

    def __rfloordiv__(self, other: DimLike) -> SymbolicDim:
        return _join(DimensionOperation.FLOOR_DIV, other, self)

    def __mod__(self, other: DimLike) -> SymbolicDim:
        return self - self // other * other

    def __rmod__(self, other: DimLike) -> SymbolicDim:
        return other - other // self * self

    def __neg__(self) -> SymbolicDim:
        return 0 - self

    def __eq__(self, other: object) -> SymbolicDim:  # type: ignore[override]  # an expression, 1 or 0
        return _join(DimensionOperation.EQUAL, self, other)

    def __lt__(self, other: DimLike) -> SymbolicDim:
        return _join(DimensionOperation.LESS, self, other)

    def __gt__(self, other: DimLike) -> SymbolicDim:
        return _join(DimensionOperation.LESS, other, self)

    def __bool__(self) -> bool:
        return bool(self.__index__())

    def __index__(self) -> int:
        if not self.expr.is_constant():
            raise PluginError(
                f"dimension {self.expr} has no value yet",
                fix="compute with it (+ - * //, ceil_div, dim_max, dim_min) instead of branching on it",
            )
        value: int = self.expr.get_constant_value()
        return value

    __int__ = __index__

    def __repr__(self) -> str:
        return repr(self.expr)


def _join(operation: DimensionOperation, first: object, second: object) -> SymbolicDim:
    return SymbolicDim(_BUILDER.operation(operation, expr_from_dim(first), expr_from_dim(second)))


def expr_from_dim(dim: object) -> Any:
    """The expression of a dimension: of a symbolic one, an integer, or an expression as it is."""
    if isinstance(dim, SymbolicDim):
        return dim.expr
    if isinstance(dim, IDimensionExpr):
        return dim
    try:
        return _BUILDER.constant(dim.__index__())  # type: ignore[attr-defined]  # refused below
    except AttributeError:
        raise PluginError(
            "a dimension must be an integer or made from input dimensions",
            got=repr(dim)[:60],
            fix="use // for division",
        ) from None


def ceil_div(first: DimLike, second: DimLike) -> Any:
    """The quotient rounded up.

    >>> ceil_div(7, 2)
    4
    """
    if isinstance(first, int) and isinstance(second, int):
        return -(-first // second)
    return _join(DimensionOperation.CEIL_DIV, first, second)


def dim_max(first: DimLike, second: DimLike) -> Any:
    """The larger dimension, also when it is known only at run time."""
    if isinstance(first, int) and isinstance(second, int):
        return max(first, second)
    return _join(DimensionOperation.MAX, first, second)


def dim_min(first: DimLike, second: DimLike) -> Any:
    """The smaller dimension, also when it is known only at run time."""
    if isinstance(first, int) and isinstance(second, int):
        return min(first, second)
    return _join(DimensionOperation.MIN, first, second)
