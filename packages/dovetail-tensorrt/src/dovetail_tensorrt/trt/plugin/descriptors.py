"""What an author is told of a tensor, and says of one: shape as expressions, type, and later sizes and format.

A register function gets descriptors of its inputs and returns descriptors of its outputs. While a plan is built,
``autotune`` and ``aot_impl`` get descriptors that also know sizes and formats.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from dovetail import DataType, DynamicPluginTensorDesc, TensorFormat
from dovetail_tensorrt.trt.plugin.errors import DecoratorError
from dovetail_tensorrt.trt.plugin.expressions import ShapeExpr, ShapeExprs, SizeTensorShapeExpr

__all__ = ["Shape", "SizeTensorDesc", "TensorDesc", "from_shape_expr", "size_tensor"]


class Shape:
    """The sizes of a tensor in the profile that is built; -1 for a dimension that varies, and then its bounds.

    >>> shape = Shape(DynamicPluginTensorDesc(min=(1, 3), opt=(4, 3), max=(8, 3)))
    >>> tuple(shape), shape.is_dynamic, shape.opt, shape.numel()
    ((-1, 3), True, (4, 3), 12)
    >>> shape[0] = 2
    >>> tuple(shape), shape.is_dynamic, shape.numel()
    ((2, 3), False, 6)
    """

    def __init__(self, desc: DynamicPluginTensorDesc | Sequence[int]) -> None:
        if isinstance(desc, DynamicPluginTensorDesc):
            bounds = [tuple(desc.min), tuple(desc.opt), tuple(desc.max)]
        else:
            bounds = [tuple(desc)] * 3
        self._min, self._opt, self._max = bounds

    @property
    def _sizes(self) -> tuple[int, ...]:
        return tuple(low if low == high else -1 for low, high in zip(self._min, self._max, strict=True))

    @property
    def is_dynamic(self) -> bool:
        """Whether a dimension varies."""
        return -1 in self._sizes

    @property
    def min(self) -> tuple[int, ...]:
        """The smallest sizes."""
        return self._bound("min", self._min)

    @property
    def opt(self) -> tuple[int, ...]:
        """The sizes that are tuned for."""
        return self._bound("opt", self._opt)

    @property
    def max(self) -> tuple[int, ...]:
        """The largest sizes; -1 where there is no bound."""
        return self._bound("max", self._max)

    def _bound(self, name: str, sizes: tuple[int, ...]) -> tuple[int, ...]:
        if not self.is_dynamic:
            raise DecoratorError(f"a shape that does not vary has no '{name}'", got=self, fix="ask is_dynamic first")
        return sizes

    def numel(self) -> int:
        """How many elements there are; where a dimension varies, at the sizes that are tuned for."""
        return math.prod(self._opt)

    def __setitem__(self, index: int, size: int) -> None:
        """Give a dimension a size, in all bounds."""
        rows = [list(row) for row in (self._min, self._opt, self._max)]
        for row in rows:
            row[index] = int(size)
        self._min, self._opt, self._max = (tuple(row) for row in rows)

    def __len__(self) -> int:
        return len(self._sizes)

    def __iter__(self) -> Iterator[int]:
        return iter(self._sizes)

    def __getitem__(self, index: Any) -> Any:
        return self._sizes[index]

    def __repr__(self) -> str:
        return f"Shape{self._sizes}"


class TensorDesc:
    """One input or output: its shape as expressions and its type, and while a plan is built its sizes and format."""

    def __init__(
        self,
        shape_expr: ShapeExprs | Sequence[Any] | None = None,
        dtype: DataType | None = None,
        format: TensorFormat | None = None,  # noqa: A002 - the contract's name
        scale: float | None = None,
    ) -> None:
        self._shape_expr = None if shape_expr is None else _as_exprs(shape_expr)
        self._dtype, self._format, self._scale = dtype, format, scale
        self._shape: Shape | None = None
        self._aliased_to: TensorDesc | None = None
        self._is_immutable = False

    def freeze(self) -> TensorDesc:
        """Have nobody change it from now on."""
        self._is_immutable = True
        if self._shape_expr is not None:
            self._shape_expr.freeze()
        return self

    def _change(self, name: str, value: Any) -> None:
        if self._is_immutable:
            raise DecoratorError(
                f"'{name}' of this descriptor cannot be set: it describes an input, or is aliased to one",
                fix="take like() of it, and change that",
            )
        setattr(self, f"_{name}", value)

    def _need(self, name: str) -> Any:
        value = getattr(self, f"_{name}")
        if value is None:
            raise DecoratorError(
                f"'{name}' of a tensor is not known here",
                fix="use it in autotune and aot_impl, where has_shape is True; shape_expr and dtype are always there",
            )
        return value

    @property
    def shape_expr(self) -> ShapeExprs:
        """The dimensions as expressions."""
        exprs: ShapeExprs = self._need("shape_expr")
        return exprs

    @shape_expr.setter
    def shape_expr(self, value: Any) -> None:
        self._change("shape_expr", _as_exprs(value))

    @property
    def dtype(self) -> DataType:
        """The type."""
        dtype: DataType = self._need("dtype")
        return dtype

    @dtype.setter
    def dtype(self, value: DataType) -> None:
        self._change("dtype", value)

    @property
    def format(self) -> TensorFormat:
        """The layout in memory, in ``autotune`` and ``aot_impl``."""
        layout: TensorFormat = self._need("format")
        return layout

    @format.setter
    def format(self, value: TensorFormat) -> None:
        self._change("format", value)

    @property
    def scale(self) -> float:
        """The scale of an INT8 tensor, in ``autotune`` and ``aot_impl``; -1.0 for others."""
        scale: float = self._need("scale")
        return scale

    @scale.setter
    def scale(self, value: float) -> None:
        self._change("scale", value)

    @property
    def shape(self) -> Shape:
        """The sizes, in ``autotune`` and ``aot_impl``."""
        shape: Shape = self._need("shape")
        return shape

    @shape.setter
    def shape(self, value: Any) -> None:
        self._change("shape", value if isinstance(value, Shape) else Shape(value))

    @property
    def has_shape(self) -> bool:
        """Whether sizes and format are known."""
        return self._shape is not None

    @property
    def has_shape_expr(self) -> bool:
        """Whether the dimensions are there as expressions."""
        return self._shape_expr is not None

    @property
    def is_dynamic(self) -> bool:
        """Whether a dimension varies in the profile."""
        return self.shape.is_dynamic

    @property
    def is_size_tensor(self) -> bool:
        """Whether it tells a size while the plugin runs."""
        return False

    @property
    def ndim(self) -> int:
        """How many dimensions there are."""
        return len(self.shape_expr)

    def numel(self) -> int:
        """How many elements there are, in ``autotune`` and ``aot_impl``."""
        return self.shape.numel()

    def like(self) -> TensorDesc:
        """A descriptor of the same shape, type and format that can be changed."""
        return self._copy()

    def aliased(self) -> TensorDesc:
        """The descriptor of an output that shares memory with this input."""
        twin = self._copy()
        twin._aliased_to = self
        return twin.freeze()

    def _copy(self) -> TensorDesc:
        exprs = None if self._shape_expr is None else ShapeExprs.from_tuple(self._shape_expr)
        twin = TensorDesc(exprs, self._dtype, self._format, self._scale)
        twin._shape = self._shape
        return twin

    def get_aliased(self) -> TensorDesc | None:
        """The input that this output shares memory with, if it does."""
        return self._aliased_to

    @property
    def is_aliased(self) -> bool:
        """Whether this is an output that shares memory with an input."""
        return self._aliased_to is not None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._shape_expr}, {self._dtype!r})"


class SizeTensorDesc(TensorDesc):
    """A 0-D integer output in which the plugin tells a size while it runs."""

    def __init__(self, opt: ShapeExpr, upper_bound: ShapeExpr) -> None:
        super().__init__((), DataType.INT32)
        self._opt, self._upper_bound = opt, upper_bound
        self._expr = SizeTensorShapeExpr(self)

    @property
    def opt(self) -> ShapeExpr:
        """The size that is tuned for."""
        return self._opt

    @property
    def upper_bound(self) -> ShapeExpr:
        """The largest size."""
        return self._upper_bound

    @property
    def is_size_tensor(self) -> bool:
        """Always."""
        return True

    def expr(self) -> SizeTensorShapeExpr:
        """The size as a dimension of another output."""
        return self._expr


def _as_exprs(value: Any) -> ShapeExprs:
    if isinstance(value, ShapeExprs):
        return value
    if not isinstance(value, tuple | list):
        raise DecoratorError("a shape is a tuple of expressions and integers, or ShapeExprs", got=type(value).__name__)
    return ShapeExprs.from_tuple(value)


def size_tensor(opt: Any, upper_bound: Any) -> SizeTensorDesc:
    """An output that tells a size while the plugin runs, tuned at ``opt`` and never above ``upper_bound``."""
    return SizeTensorDesc(ShapeExpr(opt), ShapeExpr(upper_bound))


def from_shape_expr(shape_expr: ShapeExprs | Sequence[Any], dtype: DataType) -> TensorDesc:
    """The descriptor of an output of this shape and type."""
    return TensorDesc(_as_exprs(shape_expr), dtype)
