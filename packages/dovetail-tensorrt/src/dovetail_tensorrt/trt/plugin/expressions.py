"""Symbolic integers: the dimensions, launch shapes and extra arguments that an author computes before they are known.

An expression holds one of Dovetail's dimension expressions, which outlive the call that made them and mix freely, so
nothing here depends on a builder that is current. One without an expression is fake: a register function that is asked
only for types gets these, and what it computes with them is fake again.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, TypeVar

from dovetail.expr import DimensionOperation, IDimensionExpr, IExprBuilder
from dovetail_tensorrt.trt.plugin.errors import DecoratorError

if TYPE_CHECKING:
    from dovetail_tensorrt.trt.plugin.descriptors import SizeTensorDesc

__all__ = [
    "ShapeExpr",
    "ShapeExprs",
    "SizeTensorShapeExpr",
    "SymExpr",
    "SymExprs",
    "SymInt8",
    "SymInt16",
    "SymInt32",
    "SymIntExpr",
    "SymIntExprs",
    "cdiv",
    "max",
    "min",
]

_BUILDER: Final = IExprBuilder()
_MAX_DIMS: Final = 8


class SymExpr:
    """The base of symbolic expressions."""


class SymIntExpr(SymExpr):
    """A symbolic integer; ``+ - * // == <`` give new ones.

    >>> n = SymInt32(7)
    >>> (n // 2 + 1).constant_value(), cdiv(n, 2).constant_value()
    (4, 4)
    """

    bits = 64
    __hash__ = None  # type: ignore[assignment]  # == gives an expression

    def __init__(self, value: Any = None) -> None:
        self._expr = _read(value)

    @property
    def expr(self) -> Any:
        """Dovetail's expression; None for a fake one."""
        return self._expr

    @property
    def is_fake(self) -> bool:
        """Whether nothing but its being there is known, because only types are asked for."""
        return self._expr is None

    @property
    def is_constant(self) -> bool:
        """Whether the value is known now."""
        return self._expr is not None and bool(self._expr.is_constant())

    @property
    def is_size_tensor(self) -> bool:
        """Whether it is a size that the plugin writes while it runs."""
        return False

    def constant_value(self) -> int:
        """The value, where it is known."""
        if not self.is_constant:
            raise DecoratorError(
                f"{self} has no value while the network is built",
                fix="compute with it (+ - * //, cdiv, max, min), or ask is_constant first",
            )
        return int(self._expr.get_constant_value())

    def __add__(self, other: Any) -> Any:
        return _join(DimensionOperation.SUM, self, other)

    def __radd__(self, other: Any) -> Any:
        return _join(DimensionOperation.SUM, other, self)

    def __sub__(self, other: Any) -> Any:
        return _join(DimensionOperation.SUB, self, other)

    def __rsub__(self, other: Any) -> Any:
        return _join(DimensionOperation.SUB, other, self)

    def __mul__(self, other: Any) -> Any:
        return _join(DimensionOperation.PROD, self, other)

    def __rmul__(self, other: Any) -> Any:
        return _join(DimensionOperation.PROD, other, self)

    def __floordiv__(self, other: Any) -> Any:
        return _join(DimensionOperation.FLOOR_DIV, self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return _join(DimensionOperation.FLOOR_DIV, other, self)

    def __eq__(self, other: object) -> Any:
        return _join(DimensionOperation.EQUAL, self, other)

    def __lt__(self, other: Any) -> Any:
        return _join(DimensionOperation.LESS, self, other)

    def __gt__(self, other: Any) -> Any:
        return _join(DimensionOperation.LESS, other, self)

    def __bool__(self) -> bool:
        return bool(self.constant_value())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({'fake' if self._expr is None else self._expr!r})"


class SymInt8(SymIntExpr):
    """A symbolic integer of 8 bits; kernels take none as an extra argument."""

    bits = 8


class SymInt16(SymIntExpr):
    """A symbolic integer of 16 bits; kernels take none as an extra argument."""

    bits = 16


class SymInt32(SymIntExpr):
    """A symbolic integer of 32 bits, which a kernel takes as an extra argument."""

    bits = 32


class ShapeExpr(SymInt32):
    """One dimension of a tensor, constant or known at run time."""


class SizeTensorShapeExpr(ShapeExpr):
    """A dimension that the plugin tells in a size tensor; it stands alone and takes part in no operation."""

    def __init__(self, size_tensor_desc: SizeTensorDesc) -> None:
        super().__init__()
        self.size_tensor_desc = size_tensor_desc

    @property
    def is_fake(self) -> bool:
        """Whether the bound of the size tensor is fake."""
        return self.size_tensor_desc.upper_bound.is_fake

    @property
    def is_size_tensor(self) -> bool:
        """Always."""
        return True

    def __repr__(self) -> str:
        return f"SizeTensorShapeExpr(upper_bound={self.size_tensor_desc.upper_bound!r})"


def _read(value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, SymIntExpr):
        _refuse_size(value)
        return value.expr
    if isinstance(value, IDimensionExpr):
        return value
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise DecoratorError(
            "a symbolic integer is made of an integer or of another one", got=repr(value)[:60], fix="use // to divide"
        )
    return _BUILDER.constant(value.__index__())


def _refuse_size(value: SymIntExpr) -> None:
    if value.is_size_tensor:
        raise DecoratorError(
            "a size tensor takes part in no operation",
            got=value,
            fix="declare the size tensor with the final value and use it as a dimension alone",
        )


def _join(operation: DimensionOperation, first: Any, second: Any) -> Any:
    kind = _common_kind(first, second)
    one, other = _read(first), _read(second)
    if one is None or other is None:
        return kind()
    return kind(_BUILDER.operation(operation, one, other))


def _common_kind(first: Any, second: Any) -> type[SymIntExpr]:
    """The kind of the wider of two; a dimension joined with an integer is one again."""
    kinds = [type(each) for each in (first, second) if isinstance(each, SymIntExpr)]
    for each in (first, second):
        if isinstance(each, SymIntExpr):
            _refuse_size(each)
    if all(issubclass(kind, ShapeExpr) for kind in kinds):
        return ShapeExpr
    widest = builtins.max(kind.bits for kind in kinds)
    return {8: SymInt8, 16: SymInt16, 32: SymInt32}.get(widest, SymIntExpr)


def _require_symbolic(function: str, first: Any, second: Any) -> None:
    if not isinstance(first, SymIntExpr) and not isinstance(second, SymIntExpr):
        raise DecoratorError(
            f"{function} needs a symbolic integer",
            got=f"{type(first).__name__} and {type(second).__name__}",
            fix=f"use Python's own {'-(-a // b)' if function == 'cdiv' else function} for plain integers",
        )


def cdiv(first: Any, second: Any) -> Any:
    """The quotient rounded up; one of the two is symbolic."""
    _require_symbolic("cdiv", first, second)
    return _join(DimensionOperation.CEIL_DIV, first, second)


def max(first: Any, second: Any) -> Any:  # noqa: A001 - the contract's name
    """The larger of two; one of them is symbolic."""
    _require_symbolic("max", first, second)
    return _join(DimensionOperation.MAX, first, second)


def min(first: Any, second: Any) -> Any:  # noqa: A001 - the contract's name
    """The smaller of two; one of them is symbolic."""
    _require_symbolic("min", first, second)
    return _join(DimensionOperation.MIN, first, second)


Self = TypeVar("Self", bound="SymExprs")


class SymExprs:
    """A row of symbolic expressions: so many empty places, or ``from_tuple``.

    >>> row = SymExprs(1); row[0] = SymInt32(5); len(row), row[0]
    (1, SymInt32(5))
    """

    _kind: type[SymIntExpr] = SymIntExpr

    def __init__(self, length: int = 0) -> None:
        self._exprs: list[Any] = [self._kind() for _ in range(length)]
        self._is_immutable = False

    def freeze(self) -> None:
        """Have nobody change it from now on."""
        self._is_immutable = True

    @classmethod
    def from_tuple(cls: type[Self], exprs: Iterable[Any]) -> Self:
        """A row of these; integers become expressions."""
        row = cls()
        row._exprs = [row._convert(expr) for expr in exprs]
        row._check()
        return row

    def _convert(self, value: Any) -> Any:
        return value if isinstance(value, SymIntExpr) else self._kind(value)

    def _check(self) -> None:
        return

    def __len__(self) -> int:
        return len(self._exprs)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._exprs)

    def __getitem__(self, index: Any) -> Any:
        return self._exprs[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        if self._is_immutable:
            raise DecoratorError("the shape of an input cannot be changed", fix="change that of like() of it")
        if not isinstance(index, int):
            raise DecoratorError("one expression is set at a time", got=repr(index))
        self._exprs[index] = self._convert(value)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._exprs})"


class SymIntExprs(SymExprs):
    """A row of symbolic integers, such as the extra arguments of a kernel."""

    _kind = SymInt32


class ShapeExprs(SymExprs):
    """The dimensions of one tensor.

    >>> ShapeExprs.from_tuple((2, 3)).numel().constant_value()
    6
    """

    _kind = ShapeExpr

    def _convert(self, value: Any) -> Any:
        return value if isinstance(value, ShapeExpr) else ShapeExpr(value)

    def _check(self) -> None:
        if len(self._exprs) > _MAX_DIMS:
            raise DecoratorError("too many dimensions", expected=f"at most {_MAX_DIMS}", got=len(self._exprs))

    def numel(self) -> ShapeExpr:
        """How many elements a tensor of this shape has."""
        count: Any = ShapeExpr(1)
        for expr in self._exprs:
            count = count * expr
        result: ShapeExpr = count
        return result
