"""Pooling layers: the largest, the mean, or a blend of both in a sliding window."""

# ruff: noqa: A002 - the contract names arguments after builtins

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from dovetail.network.api.core import NetworkCore
from dovetail.network.api.enums import LayerType, PaddingMode, PoolingType
from dovetail.network.api.layers.window import WindowLayer
from dovetail.network.api.properties import Property, choice, dims, flag, real

if TYPE_CHECKING:
    from dovetail.network.api.emission import Emitter
    from dovetail.network.api.tensor import ITensor

__all__ = ["IPoolingLayer", "PoolingLayers"]


class IPoolingLayer(WindowLayer):
    """Slides a window over the input and joins what it sees."""

    __slots__ = ()

    _layer_type = LayerType.POOLING
    _kind = "Pooling"

    type = Property(choice(PoolingType), "How the window becomes one number.")
    window_size_nd = Property(dims(minimum=1), "The size of the window in each spatial dimension.")
    blend_factor = Property(real, "The share of the mean in MAX_AVERAGE_BLEND; the rest is the maximum.")
    average_count_excludes_padding = Property(flag, "Whether the mean leaves padding out of its count.")

    def __init__(self, network: NetworkCore, tensor: ITensor, type: Any, window_size: Any) -> None:
        super().__init__(network, [tensor])
        self.type = type
        self.window_size_nd = window_size
        self.blend_factor = 0.0
        self.average_count_excludes_padding = True
        self._init_window(len(self.window_size_nd))

    def _emit(self, e: Emitter) -> Sequence[ir.Value]:
        x = e.input(0)
        self._check_window(e, x, len(self.window_size_nd))
        if self.type == PoolingType.MAX:
            return [self._maximum(e, x)]
        if self.type == PoolingType.AVERAGE:
            return [self._average(e, x)]
        share = e.scalar(self.blend_factor, "blend_factor", e.dtype(x))
        rest = e.scalar(1.0 - self.blend_factor, "rest", e.dtype(x))
        largest, mean = e.op("Mul", self._maximum(e, x), rest), e.op("Mul", self._average(e, x), share)
        return [e.op("Add", largest, mean)]

    def _maximum(self, e: Emitter, x: ir.Value) -> ir.Value:
        return e.op("MaxPool", x, **self._attributes())

    def _average(self, e: Emitter, x: ir.Value) -> ir.Value:
        excludes = self.average_count_excludes_padding
        return e.op("AveragePool", x, count_include_pad=None if excludes else 1, **self._attributes())

    def _attributes(self) -> dict[str, Any]:
        rounds_up = self.padding_mode == PaddingMode.EXPLICIT_ROUND_UP
        return {
            "kernel_shape": list(self.window_size_nd),
            "strides": list(self.stride_nd),
            "ceil_mode": 1 if rounds_up else None,
            **self._padding(),
        }


class PoolingLayers(NetworkCore):
    """The method that adds pooling."""

    __slots__ = ()

    def add_pooling_nd(self, input: ITensor, type: PoolingType, window_size: Iterable[int]) -> IPoolingLayer:
        """Add a pooling layer; the stride is one until it is set."""
        tensor = self._check_tensor(input, where="add_pooling_nd", argument="input")
        return self._add_layer(IPoolingLayer(self, tensor, type, window_size))
