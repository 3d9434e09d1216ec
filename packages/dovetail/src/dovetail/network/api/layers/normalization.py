"""Normalization: layer, instance and group normalization by axes, and local response normalization."""

# ruff: noqa: A002 - the contract names arguments after builtins

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from dovetail.network.api.core import NetworkCore
from dovetail.network.api.enums import LayerType
from dovetail.network.api.layers.base import ILayer
from dovetail.network.api.properties import Property, integer, mask, real

if TYPE_CHECKING:
    from dovetail.network.api.emission import Emitter
    from dovetail.network.api.tensor import ITensor

__all__ = ["ILRNLayer", "INormalizationLayer", "NormalizationLayers"]


class INormalizationLayer(ILayer):
    """``(x - mean) / sqrt(variance + epsilon) * scale + bias`` with mean and variance over some axes.

    Scale and bias have the rank of the input and broadcast to it. With ``num_groups`` above one the channels (axis 1)
    are split into groups, and each is normalized over its channels and the axes after them; scale and bias are then
    (1, channels, 1, ...), or (1, groups, 1, ...) for the first version of the layer.
    """

    __slots__ = ("_is_v2",)

    _layer_type = LayerType.NORMALIZATION
    _kind = "Normalization"
    _input_names = ("input", "scale", "bias")
    _required_inputs = 3

    epsilon = Property(real, "What is added to the variance.")
    axes = Property(mask, "The axes as a bit mask.")
    num_groups = Property(integer(minimum=1), "How many groups the channels are split into.")

    def __init__(self, network: NetworkCore, tensors: Sequence[ITensor], axes: Any, *, is_v2: bool) -> None:
        super().__init__(network, tensors)
        self.axes = axes
        self.epsilon = 1e-5
        self.num_groups = 1
        self._is_v2 = is_v2

    @property
    def is_v2(self) -> bool:
        """Whether scale and bias of groups are given for each channel."""
        return self._is_v2

    def _emit(self, e: Emitter) -> Sequence[ir.Value]:
        x, scale, bias = e.input(0), e.input(1), e.input(2)
        e.require_same_type(x, scale, bias)
        for name, value in (("scale", scale), ("bias", bias)):
            e.require_rank(value, e.rank(x), name)
        axes = e.axes(self.axes, e.rank(x))
        if self.num_groups > 1:
            return [self._groups(e, x, scale, bias, axes)]
        if self._is_layer_norm(e, axes):
            trailing = [e.op("Reshape", v, e.shape_of(v, axes[0])) for v in (scale, bias)]
            return [e.op("LayerNormalization", x, *trailing, axis=axes[0], epsilon=self.epsilon)]
        if self._is_per_channel(e, axes, e.dims(x)[1] if e.rank(x) > 1 else None):
            flat = [e.reshape(v, [-1], "flat") for v in (scale, bias)]
            return [e.op("InstanceNormalization", x, *flat, epsilon=self.epsilon)]
        return [self._compose(e, x, scale, bias, axes)]

    def _is_layer_norm(self, e: Emitter, axes: list[int]) -> bool:
        """Whether the axes are the last ones, and scale and bias speak of exactly those."""
        x = e.input(0)
        rank, first = e.rank(x), axes[0]
        if axes != list(range(first, rank)):
            return False
        sizes = e.dims(x)[first:]
        return None not in sizes and all(
            e.dims(v)[:first] == (1,) * first and e.dims(v)[first:] == sizes for v in (e.input(1), e.input(2))
        )

    def _is_per_channel(self, e: Emitter, axes: list[int], channels: int | None) -> bool:
        """Whether the axes are the spatial ones, and scale and bias have a number for each channel."""
        rank = e.rank(e.input(0))
        wanted = (1, channels, *([1] * (rank - 2)))
        is_spatial = rank > 2 and axes == list(range(2, rank))
        return is_spatial and channels is not None and all(e.dims(e.input(i)) == wanted for i in (1, 2))

    def _groups(self, e: Emitter, x: ir.Value, scale: ir.Value, bias: ir.Value, axes: list[int]) -> ir.Value:
        rank, channels = e.rank(x), e.dims(x)[1] if e.rank(x) > 1 else None
        if rank < 3 or axes != list(range(2, rank)):
            raise e.error("with groups the axes must be all spatial ones", expected=f"{list(range(2, rank))}", got=axes)
        if channels is None or channels % self.num_groups:
            raise e.error("num_groups does not divide the channels", got=f"{channels} / {self.num_groups}")
        if self._is_per_channel(e, axes, channels):
            flat = [e.reshape(v, [-1], "flat") for v in (scale, bias)]
            return e.op("GroupNormalization", x, *flat, num_groups=self.num_groups, epsilon=self.epsilon)
        if self.is_v2 or any(e.dims(v) != (1, self.num_groups, *([1] * (rank - 2))) for v in (scale, bias)):
            count = channels if self.is_v2 else f"{channels} or {self.num_groups}"
            raise e.error(
                "'scale' and 'bias' have the wrong shape",
                expected=f"(1, {count}, 1, ...)",
                got=f"{e.describe(scale)}, {e.describe(bias)}",
            )
        split = e.op("Concat", e.shape_of(x, 0, 1), e.ints([self.num_groups, -1], "groups"), e.shape_of(x, 2), axis=0)
        scale, bias = (e.op("Unsqueeze", v, e.ints([2], "group_axis")) for v in (scale, bias))
        y = self._compose(e, e.reshape(x, split), scale, bias, list(range(2, rank + 1)))
        return e.reshape(y, e.shape_of(x))

    def _compose(self, e: Emitter, x: ir.Value, scale: ir.Value, bias: ir.Value, axes: list[int]) -> ir.Value:
        over = e.ints(axes, "axes")
        centred = e.op("Sub", x, e.op("ReduceMean", x, over, keepdims=1))
        variance = e.op("ReduceMean", e.op("Mul", centred, centred), over, keepdims=1)
        deviation = e.op("Sqrt", e.op("Add", variance, e.scalar(self.epsilon, "epsilon", e.dtype(x))))
        return e.op("Add", e.op("Mul", e.op("Div", centred, deviation), scale), bias)


class ILRNLayer(ILayer):
    """``x / (k + alpha / window * sum of squares) ** beta``, the sum over neighbouring channels."""

    __slots__ = ()

    _layer_type = LayerType.LRN
    _kind = "LRN"

    window_size = Property(integer(minimum=1), "How many channels the sum spans.")
    alpha = Property(real, "The factor of the mean of squares.")
    beta = Property(real, "The exponent.")
    k = Property(real, "What is added.")

    def __init__(self, network: NetworkCore, tensor: ITensor, window: Any, alpha: Any, beta: Any, k: Any) -> None:
        super().__init__(network, [tensor])
        self.window_size, self.alpha, self.beta, self.k = window, alpha, beta, k

    def _emit(self, e: Emitter) -> Sequence[ir.Value]:
        x = e.input(0)
        if e.rank(x) < 3:
            raise e.error("the input needs channels at axis 1", expected="at least 3 dimensions", got=e.describe(x))
        return [e.op("LRN", x, size=self.window_size, alpha=self.alpha, beta=self.beta, bias=self.k)]


class NormalizationLayers(NetworkCore):
    """The methods that add normalization."""

    __slots__ = ()

    def add_normalization(
        self,
        input: ITensor,
        scale: ITensor,
        bias: ITensor,
        axesMask: int,  # noqa: N803 - the contract's name
    ) -> INormalizationLayer:
        """Add a normalization over the axes of a bit mask."""
        tensors = self._check_named("add_normalization", input=input, scale=scale, bias=bias)
        return self._add_layer(INormalizationLayer(self, tensors, axesMask, is_v2=False))

    def add_normalization_v2(
        self,
        input: ITensor,
        scale: ITensor,
        bias: ITensor,
        axesMask: int,  # noqa: N803 - the contract's name
    ) -> INormalizationLayer:
        """Add a normalization whose groups have scale and bias for each channel."""
        tensors = self._check_named("add_normalization_v2", input=input, scale=scale, bias=bias)
        return self._add_layer(INormalizationLayer(self, tensors, axesMask, is_v2=True))

    def add_lrn(self, input: ITensor, window: int, alpha: float, beta: float, k: float) -> ILRNLayer:
        """Add a local response normalization."""
        tensor = self._check_tensor(input, where="add_lrn", argument="input")
        return self._add_layer(ILRNLayer(self, tensor, window, alpha, beta, k))
