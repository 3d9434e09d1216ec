"""Dimension expressions across the binary interface, where they are numbered records."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Sequence
from typing import Any, Final

from dovetail.errors import PluginError
from dovetail.expr import Constant, DimensionOperation, DimsExprs, Expr, IExprBuilder
from dovetail.plugin.native.layout import NativeExpr, NativeShapes, ShapesSink

__all__ = ["ShapeExchange"]

_CONSTANT: Final = 0
_LEAF: Final = 1
_OPERATION: Final = 2
_SIZE_TENSOR: Final = 3


class ShapeExchange:
    """One call of ``getOutputShapes``: what goes in, and the answer once the library has given it."""

    def __init__(self, inputs: Sequence[DimsExprs], shape_inputs: Sequence[DimsExprs]) -> None:
        self._leaves: list[Expr] = [dim for dims in (*inputs, *shape_inputs) for dim in dims]
        numbers = itertools.count()
        self.exprs: Final = (NativeExpr * len(self._leaves))(*map(_pack_leaf, self._leaves, numbers))
        indices = itertools.count()
        self.inputs: Final = _pack_shapes(inputs, indices)
        self.shape_inputs: Final = _pack_shapes(shape_inputs, indices)
        self.sink: Final = ShapesSink(self._receive)
        self.answer: list[DimsExprs] = []
        self._problem: Exception | None = None

    def raise_problem(self) -> None:
        """Raise what was wrong with the answer."""
        if self._problem is not None:
            raise self._problem

    def _receive(self, token: int, exprs: Any, count: int, outputs: Any) -> None:
        try:
            known = self._read_exprs([exprs[index] for index in range(count)])
            self.answer = _read_shapes(outputs.contents, known)
        except Exception as error:  # noqa: BLE001 - nothing may be raised into the library
            self._problem = error

    def _read_exprs(self, records: Sequence[NativeExpr]) -> list[Expr]:
        builder, known = IExprBuilder(), list[Expr]()
        for record in records:
            known.append(self._read_expr(record, builder, known))
        return known

    def _read_expr(self, record: NativeExpr, builder: IExprBuilder, known: Sequence[Expr]) -> Expr:
        if record.kind == _CONSTANT:
            return Constant(record.value)
        if record.kind == _LEAF:
            return self._leaves[int(record.value)]
        first, second = known[record.first], known[record.second]
        if record.kind == _SIZE_TENSOR:
            return builder.declare_size_tensor(record.operation, first, second)
        made = builder.operation(DimensionOperation(record.operation), first, second)
        if record.kind != _OPERATION or made is None:
            raise PluginError("getOutputShapes used an unknown expression", got=record.kind)
        return made


def _pack_leaf(expr: Expr, number: int) -> NativeExpr:
    if isinstance(expr, Constant):
        return NativeExpr(_CONSTANT, 0, 0, 0, expr.value)
    return NativeExpr(_LEAF, 0, 0, 0, number)


def _pack_shapes(shapes: Sequence[DimsExprs], indices: itertools.count[int]) -> NativeShapes:
    ranks = [len(dims) for dims in shapes]
    dims = [next(indices) for _ in range(sum(ranks))]
    return NativeShapes(len(ranks), (ctypes.c_int32 * len(ranks))(*ranks), (ctypes.c_int32 * len(dims))(*dims))


def _read_shapes(shapes: NativeShapes, known: Sequence[Expr]) -> list[DimsExprs]:
    ranks = shapes.ranks[: shapes.count]
    dims = iter(shapes.dims[: sum(ranks)])
    return [DimsExprs([known[next(dims)] for _ in range(rank)]) for rank in ranks]
