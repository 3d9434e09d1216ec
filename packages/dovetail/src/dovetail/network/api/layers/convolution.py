"""Convolution and deconvolution layers."""

# ruff: noqa: A002 - the contract names arguments after builtins

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from dovetail.network.api.core import NetworkCore
from dovetail.network.api.enums import LayerType, PaddingMode
from dovetail.network.api.layers.window import WindowLayer
from dovetail.network.api.properties import Property, WeightsProperty, dims, integer
from dovetail.types import Weights

if TYPE_CHECKING:
    from dovetail.network.api.emission import Emitter
    from dovetail.network.api.tensor import ITensor

__all__ = ["ConvolutionLayers", "IConvolutionLayer", "IDeconvolutionLayer"]


class _Convolution(WindowLayer):
    """Kernel, bias and groups. Input 1 takes the place of the kernel, input 2 that of the bias."""

    __slots__ = ()

    _input_names = ("input", "kernel", "bias")

    num_output_maps = Property(integer(minimum=1), "How many channels the output has.")
    num_groups = Property(integer(minimum=1), "How many groups the channels are split into.")
    kernel_size_nd = Property(dims(minimum=1), "The size of the kernel in each spatial dimension.")
    dilation_nd = Property(dims(minimum=1), "The distance between the taps of the kernel.")
    kernel = WeightsProperty("The kernel's weights; None when input 1 gives them.")
    bias = WeightsProperty("The bias, one number a channel; None for no bias or when input 2 gives it.")

    def __init__(
        self, network: NetworkCore, tensor: ITensor, num_output_maps: int, kernel_shape: Any, kernel: Any, bias: Any
    ) -> None:
        super().__init__(network, [tensor])
        self.num_output_maps = num_output_maps
        self.kernel_size_nd = kernel_shape
        self.kernel = kernel
        self.bias = bias
        self.num_groups = 1
        self.dilation_nd = (1,) * len(self.kernel_size_nd)
        self._init_window(len(self.kernel_size_nd))

    def _weights(self) -> dict[str, Weights]:
        given = {role: self._stored_weights(role) for role in ("kernel", "bias")}
        return {
            role: value
            for index, (role, value) in enumerate(given.items(), 1)
            if value is not None and self.get_input(index) is None
        }

    def _kernel_value(self, e: Emitter, x: ir.Value) -> ir.Value:
        given = e.optional_input(1)
        if given is not None:
            e.require_rank(given, len(self.kernel_size_nd) + 2, "kernel")
            return given
        kernel = self._stored_weights("kernel")
        if kernel is None:
            raise e.error("the layer has no kernel", fix="pass weights, or a tensor with set_input(1, kernel)")
        value = e.weights("kernel", kernel.numpy().reshape(self._kernel_shape(e, x)))
        e.require_same_type(x, value)
        return value

    def _kernel_shape(self, e: Emitter, x: ir.Value) -> tuple[int, ...]:
        raise NotImplementedError

    def _bias_value(self, e: Emitter, x: ir.Value) -> ir.Value | None:
        given, bias = e.optional_input(2), self._stored_weights("bias")
        if given is not None or bias is None:
            return given
        if len(bias) != self.num_output_maps:
            raise e.error("the bias has the wrong count", expected=self.num_output_maps, got=len(bias))
        value = e.weights("bias", bias.numpy().reshape(-1))
        e.require_same_type(x, value)
        return value

    @property
    def _extents(self) -> list[int]:
        """The dilated filter size in each spatial dimension."""
        return [d * (k - 1) + 1 for d, k in zip(self.dilation_nd, self.kernel_size_nd, strict=True)]

    def _attributes(self, padding: dict[str, Any]) -> dict[str, Any]:
        return {
            "kernel_shape": list(self.kernel_size_nd),
            "strides": list(self.stride_nd),
            "dilations": list(self.dilation_nd),
            "group": self.num_groups,
            **padding,
        }

    def _check_input(self, e: Emitter) -> ir.Value:
        x = e.input(0)
        self._check_window(e, x, len(self.kernel_size_nd), dilation_nd=list(self.dilation_nd))
        return x

    def _check_groups(self, e: Emitter, channels: int | None) -> None:
        for name, count in (("num_output_maps", self.num_output_maps), ("the input's channels", channels)):
            if count is not None and count % self.num_groups:
                raise e.error(f"num_groups does not divide {name}", got=f"{count} / {self.num_groups}")


class IConvolutionLayer(_Convolution):
    """Slides a kernel over the input; the kernel is (maps, channels / groups, *kernel_size_nd)."""

    __slots__ = ()

    _layer_type = LayerType.CONVOLUTION
    _kind = "Convolution"

    def _kernel_shape(self, e: Emitter, x: ir.Value) -> tuple[int, ...]:
        count = len(self.kernel) if self.kernel is not None else 0
        unit = self.num_output_maps * math.prod(self.kernel_size_nd)
        channels = e.dims(x)[1]
        self._check_groups(e, channels)
        wanted = None if channels is None else unit * (channels // self.num_groups)
        if count % unit or (wanted is not None and count != wanted):
            raise e.error(
                "the kernel has the wrong count of weights",
                expected=f"{wanted or f'a multiple of {unit}'}: maps x channels / groups x kernel size",
                got=count,
            )
        return (self.num_output_maps, count // unit, *self.kernel_size_nd)

    def _emit(self, e: Emitter) -> Sequence[ir.Value]:
        x = self._check_input(e)
        kernel, bias = self._kernel_value(e, x), self._bias_value(e, x)
        padding = self._padding()
        if self.padding_mode == PaddingMode.EXPLICIT_ROUND_UP:
            x = self._round_up(e, x, self._extents)
        elif self._is_same and any(spacing > 1 for spacing in self.dilation_nd):
            padding = self._same_padding(e, x, self._extents)
        return [e.op("Conv", x, kernel, bias, **self._attributes(padding))]


class IDeconvolutionLayer(_Convolution):
    """The transpose of a convolution; the kernel is (channels, maps / groups, *kernel_size_nd)."""

    __slots__ = ()

    _layer_type = LayerType.DECONVOLUTION
    _kind = "Deconvolution"

    def _kernel_shape(self, e: Emitter, x: ir.Value) -> tuple[int, ...]:
        count = len(self.kernel) if self.kernel is not None else 0
        channels = e.dims(x)[1]
        self._check_groups(e, channels)
        unit = self.num_output_maps // self.num_groups * math.prod(self.kernel_size_nd)
        wanted = None if channels is None else unit * channels
        if count % unit or (wanted is not None and count != wanted):
            raise e.error(
                "the kernel has the wrong count of weights",
                expected=f"{wanted or f'a multiple of {unit}'}: channels x maps / groups x kernel size",
                got=count,
            )
        return (count // unit, self.num_output_maps // self.num_groups, *self.kernel_size_nd)

    def _emit(self, e: Emitter) -> Sequence[ir.Value]:
        # The output size has one formula, so both explicit modes say the same.
        x = self._check_input(e)
        attributes = self._attributes(self._same_crop() if self._is_same else self._padding())
        return [e.op("ConvTranspose", x, self._kernel_value(e, x), self._bias_value(e, x), **attributes)]

    def _same_crop(self) -> dict[str, Any]:
        """Return SAME padding by ``PaddingMode`` of NvInfer.h: P = max(DK - S, 0), whatever the size of the image.

        The output has min(I * S, (I - 1) * S + DK) elements; ``auto_pad`` of ONNX always gives I * S.
        """
        totals = [max(extent - stride, 0) for extent, stride in zip(self._extents, self.stride_nd, strict=True)]
        return {"pads": self._split(totals)}


class ConvolutionLayers(NetworkCore):
    """The methods that add convolutions."""

    __slots__ = ()

    def add_convolution_nd(
        self,
        input: ITensor,
        num_output_maps: int,
        kernel_shape: Iterable[int],
        kernel: Any = None,
        bias: Any = None,
    ) -> IConvolutionLayer:
        """Add a convolution.

        Args:
            input: (N, C, spatial...).
            num_output_maps: Channels of the output.
            kernel_shape: Size of the kernel in each spatial dimension.
            kernel: The weights; None when ``set_input(1, tensor)`` gives them.
            bias: One number a channel, or None.
        """
        tensor = self._check_tensor(input, where="add_convolution_nd", argument="input")
        return self._add_layer(IConvolutionLayer(self, tensor, num_output_maps, kernel_shape, kernel, bias))

    def add_deconvolution_nd(
        self,
        input: ITensor,
        num_output_maps: int,
        kernel_shape: Iterable[int],
        kernel: Any = None,
        bias: Any = None,
    ) -> IDeconvolutionLayer:
        """Add a deconvolution; the arguments are those of ``add_convolution_nd``."""
        tensor = self._check_tensor(input, where="add_deconvolution_nd", argument="input")
        return self._add_layer(IDeconvolutionLayer(self, tensor, num_output_maps, kernel_shape, kernel, bias))
