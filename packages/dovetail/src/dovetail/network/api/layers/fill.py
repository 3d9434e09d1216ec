"""The fill layer: evenly spaced or random numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from dovetail.network.api.core import NetworkCore
from dovetail.network.api.enums import FillOperation, LayerType
from dovetail.network.api.layers.base import ILayer
from dovetail.network.api.properties import Property, choice, data_type, dims, integer, real
from dovetail.network.inference.shapes import ir_type_from_data_type
from dovetail.types import DataType

if TYPE_CHECKING:
    from dovetail.network.api.emission import Emitter

__all__ = ["FillLayers", "IFillLayer"]

_TYPES = (DataType.FLOAT, DataType.HALF, DataType.BF16, DataType.INT32, DataType.INT64)


def _number(value: Any, where: str, name: str) -> int | float:
    is_integer = hasattr(value, "__index__")
    return integer()(value, where, name) if is_integer else real(value, where, name)


class IFillLayer(ILayer):
    """Fills a tensor.

    LINSPACE counts from ``alpha`` in steps of ``beta``; with input 2, a step for each dimension. RANDOM_UNIFORM draws
    from ``alpha`` to ``beta``, RANDOM_NORMAL with mean ``alpha`` and deviation ``beta``. Inputs 0, 1 and 2 take the
    place of shape, alpha and beta.
    """

    __slots__ = ()

    _layer_type = LayerType.FILL
    _kind = "Fill"
    _input_names = ("shape", "alpha", "beta")
    _required_inputs = 0
    _shape_inputs = frozenset({0})

    shape = Property(dims(minimum=0), "The dimensions.", resets=0)
    operation = Property(choice(FillOperation), "What is written.")
    alpha = Property(_number, "Start, lower bound or mean.", resets=1)
    beta = Property(_number, "Step, upper bound or deviation.", resets=2)
    to_type = Property(data_type(*_TYPES), "The type of the elements.")

    def __init__(self, network: NetworkCore, shape: Any, operation: Any, output_type: Any) -> None:
        super().__init__(network, [])
        self.shape, self.operation, self.to_type = shape, operation, output_type
        self.alpha, self.beta = 0.0, 1.0

    def is_alpha_beta_int64(self) -> bool:
        """Whether both are integers."""
        return isinstance(self.alpha, int) and isinstance(self.beta, int)

    def _emit(self, e: Emitter) -> Sequence[ir.Value]:
        if self.operation == FillOperation.LINSPACE:
            return [self._count(e)]
        if not self.to_type.is_float:
            raise e.error(f"{self.operation.name} needs a floating-point type", got=self.to_type.name)
        return [self._draw(e)]

    def _sizes(self, e: Emitter) -> list[int | ir.Value]:
        """One scalar for each dimension."""
        given = e.optional_input(0)
        if given is None:
            return list(self.shape)
        e.require_rank(given, 1, "shape")
        rank, value = e.dims(given)[0], e.int64(given)
        if rank is None:
            raise e.error("the rank of the output is not known", got=e.describe(given))
        return [e.op("Gather", value, e.scalar(axis, "axis"), axis=0) for axis in range(rank)]

    def _count(self, e: Emitter) -> ir.Value:
        sizes, dtype = self._sizes(e), ir_type_from_data_type(self.to_type)
        steps = self._steps(e, len(sizes), dtype)
        start = e.optional_input(1)
        result = e.scalar(self.alpha, "alpha", dtype) if start is None else e.cast(e.to_scalar(start, "alpha"), dtype)
        for axis, (size, step) in enumerate(zip(sizes, steps, strict=True)):
            limit = size if isinstance(size, ir.Value) else e.scalar(size, "size")
            counted = e.op("Range", e.scalar(0, "zero"), limit, e.scalar(1, "one"))
            term = e.op("Mul", e.cast(counted, dtype), step)
            after = list(range(1, len(sizes) - axis))
            term = e.op("Unsqueeze", term, e.ints(after, "after")) if after else term
            result = e.op("Add", result, term)
        return result if sizes else e.op("Identity", result)

    def _steps(self, e: Emitter, rank: int, dtype: ir.DataType) -> list[ir.Value]:
        given = e.optional_input(2)
        if given is None:
            if rank > 1:
                raise e.error(
                    "LINSPACE of several dimensions needs a step for each",
                    expected=f"input 2 with {rank} elements",
                    fix="call set_input(2, steps)",
                )
            return [e.scalar(self.beta, "beta", dtype)] * rank
        if e.rank(given) > 1 or (e.rank(given) == 1 and e.dims(given)[0] not in (rank, None)):
            raise e.error("'beta' must hold one step for each dimension", expected=rank, got=e.describe(given))
        steps = e.cast(e.to_vector(given), dtype)
        return [e.op("Gather", steps, e.scalar(axis, "axis"), axis=0) for axis in range(rank)]

    def _draw(self, e: Emitter) -> ir.Value:
        low, high = e.optional_input(1), e.optional_input(2)
        is_uniform = self.operation == FillOperation.RANDOM_UNIFORM
        names = ("low", "high") if is_uniform else ("mean", "scale")
        if low is None and high is None:
            return self._random(e, dict(zip(names, (float(self.alpha), float(self.beta)), strict=True)))
        dtype = ir_type_from_data_type(self.to_type)
        alpha = e.scalar(self.alpha, "alpha", dtype) if low is None else e.cast(e.to_scalar(low, "alpha"), dtype)
        beta = e.scalar(self.beta, "beta", dtype) if high is None else e.cast(e.to_scalar(high, "beta"), dtype)
        unit = self._random(e, dict(zip(names, (0.0, 1.0), strict=True)))
        factor = e.op("Sub", beta, alpha) if is_uniform else beta
        return e.op("Add", e.op("Mul", unit, factor), alpha)

    def _random(self, e: Emitter, attributes: dict[str, Any]) -> ir.Value:
        op = "RandomUniform" if self.operation == FillOperation.RANDOM_UNIFORM else "RandomNormal"
        dtype = ir_type_from_data_type(self.to_type).value
        given = e.optional_input(0)
        if given is None and len(self.shape):
            return e.op(op, dtype=dtype, shape=list(self.shape), **attributes)
        shape = e.int64(given) if given is not None else e.constant(np.empty(0, np.int64), "shape")
        model = e.op("Expand", e.scalar(0.0, "zero", ir.DataType.FLOAT), shape)
        return e.op(f"{op}Like", model, dtype=dtype, **attributes)


class FillLayers(NetworkCore):
    """The method that adds a fill."""

    __slots__ = ()

    def add_fill(self, shape: Iterable[int], op: FillOperation, output_type: DataType = DataType.FLOAT) -> IFillLayer:
        """Add a tensor of evenly spaced or random numbers."""
        return self._add_layer(IFillLayer(self, shape, op, output_type))
