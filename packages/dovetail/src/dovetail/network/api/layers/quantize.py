"""Quantize and dequantize with a scale for the tensor, for each slice of an axis or for each block, and dynamically."""

# ruff: noqa: A002 - the contract names arguments after builtins

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import onnx_ir as ir

from dovetail.network.api.core import NetworkCore
from dovetail.network.api.enums import LayerType
from dovetail.network.api.layers.base import ILayer
from dovetail.network.api.properties import Property, data_type, dims, integer, optional
from dovetail.network.inference.shapes import ir_type_from_data_type
from dovetail.types import DataType, Dims

if TYPE_CHECKING:
    from dovetail.network.api.emission import Emitter
    from dovetail.network.api.tensor import ITensor

__all__ = ["IDequantizeLayer", "IDynamicQuantizeLayer", "IQuantizeLayer", "QuantizeLayers"]

_NARROW: Final = (DataType.INT8, DataType.FP8, DataType.INT4, DataType.FP4, DataType.UINT8)
_WIDE: Final = (DataType.FLOAT, DataType.HALF, DataType.BF16)
_LARGEST: Final = {DataType.FP4: 6.0, DataType.FP8: 448.0, DataType.INT8: 127.0, DataType.INT4: 7.0}


class _ScaledLayer(ILayer):
    """A layer with a scale (input 1) and an optional zero point (input 2)."""

    __slots__ = ()

    _input_names = ("input", "scale", "zero_point")
    _required_inputs = 2

    axis = Property(integer(), "The axis that a 1-D scale speaks of; -1 while it is not set.")
    block_shape = Property(optional(dims(minimum=-1)), "The elements that share a scale, in each dimension; -1 is all.")

    def __init__(self, network: NetworkCore, tensors: Sequence[ITensor]) -> None:
        super().__init__(network, tensors)
        self.axis = -1
        self.block_shape = None

    def _arrange(self, e: Emitter, x: ir.Value, scale: ir.Value) -> tuple[ir.Value, dict[str, Any]]:
        """The scale as ONNX takes it, and the attributes that go with it."""
        if all(size == 1 for size in e.dims(scale)):
            return e.to_scalar(scale, "scale"), {}
        if e.rank(scale) == 1 and self.block_shape is None and e.rank(x) > 1:
            return scale, self._per_axis(e, x, scale)
        if e.rank(scale) == 1 and e.rank(x) == 1 and e.dims(scale) == e.dims(x):
            return scale, {"axis": 0}
        e.require_rank(scale, e.rank(x), "scale")
        blocks = _blocks(e, x, scale, self.block_shape)
        return spread_scale(e, x, scale, blocks)

    def _per_axis(self, e: Emitter, x: ir.Value, scale: ir.Value) -> dict[str, int]:
        axis = e.axis(self.axis, e.rank(x))
        size, count = e.dims(x)[axis], e.dims(scale)[0]
        if size is not None and count is not None and size != count:
            raise e.error(
                f"the scale does not fit axis {axis}",
                expected=f"{size} elements, or one",
                got=e.describe(scale),
                fix="set 'axis' to the axis of the channels",
            )
        return {"axis": axis}

    def _zero_point(self, e: Emitter, scale: ir.Value) -> ir.Value | None:
        given = e.optional_input(2)
        if given is not None and e.rank(scale) == 0:
            return e.to_scalar(given, "zero_point")
        return given


def _blocks(e: Emitter, x: ir.Value, scale: ir.Value, shape: Dims | None) -> list[int]:
    """How many elements of each axis share a scale."""
    sizes, counts, blocks = e.dims(x), e.dims(scale), []
    given = [] if shape is None else [*([1] * (e.rank(x) - len(shape))), *shape]
    for axis, (size, count) in enumerate(zip(sizes, counts, strict=True)):
        block = given[axis] if given else 0
        if block < 1:
            if size is None or count is None or count == 0:
                raise e.error(
                    f"how many elements of axis {axis} share a scale is not known",
                    got=f"{e.describe(x)}, {e.describe(scale)}",
                    fix="set block_shape",
                )
            block = -(-size // count)
        if size is not None and count is not None and -(-size // block) != count:
            raise e.error(
                f"the scale does not fit axis {axis}",
                expected=f"{-(-size // block)} for blocks of {block}",
                got=f"{count}: {e.describe(scale)}",
            )
        blocks.append(block)
    return blocks


def spread_scale(e: Emitter, x: ir.Value, scale: ir.Value, blocks: Sequence[int]) -> tuple[ir.Value, dict[str, Any]]:
    """Repeat the scale along all blocked axes but the last, because ONNX has blocks along one axis only."""
    blocked = [axis for axis, block in enumerate(blocks) if block > 1] or [e.rank(x) - 1]
    for axis in blocked[:-1]:
        size, block = e.dims(x)[axis], blocks[axis]
        if size is not None:
            owner = e.ints([element // block for element in range(size)], "owners")
        else:
            count = e.to_scalar(e.dim(x, axis), "size")
            element = e.op("Range", e.scalar(0, "zero"), count, e.scalar(1, "one"))
            owner = e.op("Div", element, e.scalar(block, "block"))
        scale = e.op("Gather", scale, owner, axis=axis)
    return scale, {"axis": blocked[-1], "block_size": blocks[blocked[-1]]}


class IQuantizeLayer(_ScaledLayer):
    """Divides by a scale and rounds to a narrow type."""

    __slots__ = ()

    _layer_type = LayerType.QUANTIZE
    _kind = "Quantize"

    to_type = Property(data_type(*_NARROW), "The narrow type.")

    def __init__(self, network: NetworkCore, tensors: Sequence[ITensor], output_type: Any) -> None:
        super().__init__(network, tensors)
        self.to_type = output_type

    def _emit(self, e: Emitter) -> Sequence[ir.Value]:
        x = e.input(0)
        if e.data_type(x) not in _WIDE:
            raise e.error("only floating-point tensors are quantized", got=e.dtype(x).name)
        scale, attributes = self._arrange(e, x, e.input(1))
        zero = self._zero_point(e, scale)
        dtype = ir_type_from_data_type(self.to_type)
        if zero is not None:
            e.require_type(zero, [dtype], "zero_point")
        return [e.op("QuantizeLinear", x, scale, zero, output_dtype=None if zero else dtype.value, **attributes)]


class IDequantizeLayer(_ScaledLayer):
    """Multiplies a narrow type by a scale."""

    __slots__ = ()

    _layer_type = LayerType.DEQUANTIZE
    _kind = "Dequantize"

    to_type = Property(data_type(*_WIDE), "The type of the result.")

    def __init__(self, network: NetworkCore, tensors: Sequence[ITensor], output_type: Any) -> None:
        super().__init__(network, tensors)
        self.to_type = output_type

    def _emit(self, e: Emitter) -> Sequence[ir.Value]:
        x = e.input(0)
        if e.data_type(x) not in (*_NARROW, DataType.INT32):
            raise e.error("only narrow types are dequantized", got=e.dtype(x).name)
        scale, attributes = self._arrange(e, x, e.input(1))
        zero = self._zero_point(e, scale)
        dtype = ir_type_from_data_type(self.to_type)
        output = None if scale.dtype == dtype else dtype.value
        return [e.op("DequantizeLinear", x, scale, zero, output_dtype=output, **attributes)]


class IDynamicQuantizeLayer(ILayer):
    """Finds the scale of each block from its largest element, and quantizes with it.

    The outputs are the quantized tensor and the scales. Input 1 is a scale for the scales, used when they are FP8.
    """

    __slots__ = ()

    _layer_type = LayerType.DYNAMIC_QUANTIZE
    _kind = "DynamicQuantize"
    _input_names = ("input", "double_quantization_scale")

    axis = Property(integer(), "The axis that is cut into blocks, when there is no block shape.")
    block_size = Property(integer(minimum=0), "How long a block is along the axis, when there is no block shape.")
    block_shape = Property(optional(dims(minimum=-1)), "The elements of a block in each dimension; -1 is all.")
    to_type = Property(data_type(*_LARGEST), "The narrow type.")
    scale_type = Property(data_type(*_WIDE, DataType.FP8, DataType.E8M0), "The type of the scales.")

    def __init__(self, network: NetworkCore, tensor: ITensor, output_type: Any, scale_type: Any) -> None:
        super().__init__(network, [tensor], num_outputs=2)
        self.axis, self.block_size, self.block_shape = -1, 0, None
        self.to_type, self.scale_type = output_type, scale_type

    def _emit(self, e: Emitter) -> Sequence[ir.Value]:
        x = e.input(0)
        if e.data_type(x) not in _WIDE:
            raise e.error("only floating-point tensors are quantized", got=e.dtype(x).name)
        blocks = self._blocks(e, x)
        largest = e.scalar(_LARGEST[self.to_type], "largest", e.dtype(x))
        stored, scale = self._store(e, e.op("Div", _block_maximum(e, x, blocks), largest))
        zero, one = e.scalar(0.0, "zero_scale", e.dtype(scale)), e.scalar(1.0, "unit_scale", e.dtype(scale))
        safe = e.op("Where", e.op("Equal", scale, zero), one, scale)  # a block of zeros has no scale
        spread, attributes = spread_scale(e, x, safe, blocks)
        dtype = ir_type_from_data_type(self.to_type).value
        return [e.op("QuantizeLinear", x, spread, output_dtype=dtype, **attributes), stored]

    def _blocks(self, e: Emitter, x: ir.Value) -> list[int]:
        rank, sizes = e.rank(x), e.dims(x)
        if self.block_shape is None:
            axis = e.axis(self.axis, rank)
            shape = [self.block_size if index == axis else 1 for index in range(rank)]
        else:
            shape = list(self.block_shape)
            e.require_length(shape, rank, "block_shape")
        for axis, block in enumerate(shape):
            size = sizes[axis]
            if block == -1 and size is not None:
                shape[axis] = block = size
            if block < 1 or (block > 1 and (size is None or size % block)):
                raise e.error(
                    f"blocks of {block} do not fit axis {axis}",
                    expected="a constant dimension that is a multiple of the block",
                    got=e.describe(x),
                )
        return shape

    def _store(self, e: Emitter, scale: ir.Value) -> tuple[ir.Value, ir.Value]:
        """The scales as they are kept, and what they are worth after that rounding."""
        dtype, wide = ir_type_from_data_type(self.scale_type), e.dtype(scale)
        if self.scale_type == DataType.E8M0:
            stored = e.op("Cast", e.cast(scale, ir.DataType.FLOAT), to=dtype.value, round_mode="up")
            return stored, e.op("Cast", stored, to=wide.value)
        if self.scale_type != DataType.FP8:
            stored = e.cast(scale, dtype)
            return stored, e.cast(stored, wide)
        given = e.optional_input(1)
        factor = e.scalar(1.0, "factor", wide) if given is None else e.cast(e.to_scalar(given, "scale"), wide)
        stored = e.op("QuantizeLinear", scale, factor, output_dtype=dtype.value)
        return stored, e.op("DequantizeLinear", stored, factor)


def _block_maximum(e: Emitter, x: ir.Value, blocks: Sequence[int]) -> ir.Value:
    """The largest magnitude of each block: split every blocked axis in two and reduce the inner one."""
    parts: list[ir.Value] = []
    inner: list[int] = []
    for axis, block in enumerate(blocks):
        size = e.dims(x)[axis]
        if block == 1 or size is None:
            parts.append(e.dim(x, axis))
        else:
            parts.append(e.ints([size // block, block], "split"))
        if block > 1:
            inner.append(axis + len(inner) + 1)
    magnitude = e.op("Abs", x)
    if not inner:
        return magnitude
    split = e.reshape(magnitude, e.op("Concat", *parts, axis=0))
    return e.op("ReduceMax", split, e.ints(inner, "inner"), keepdims=0)


class QuantizeLayers(NetworkCore):
    """The methods that add quantization."""

    __slots__ = ()

    def add_quantize(
        self,
        input: ITensor,
        scale: ITensor,
        output_type: DataType = DataType.INT8,
    ) -> IQuantizeLayer:
        """Add a rounding to a narrow type."""
        tensors = self._check_named("add_quantize", input=input, scale=scale)
        return self._add_layer(IQuantizeLayer(self, tensors, output_type))

    def add_dequantize(
        self,
        input: ITensor,
        scale: ITensor,
        output_type: DataType = DataType.FLOAT,
    ) -> IDequantizeLayer:
        """Add the way back from a narrow type."""
        tensors = self._check_named("add_dequantize", input=input, scale=scale)
        return self._add_layer(IDequantizeLayer(self, tensors, output_type))

    def add_dynamic_quantize(
        self,
        input: ITensor,
        axis: int,
        block_size: int,
        output_type: DataType,
        scale_type: DataType,
    ) -> IDynamicQuantizeLayer:
        """Add a quantization of blocks along one axis, with scales found while running."""
        tensor = self._check_tensor(input, where="add_dynamic_quantize", argument="input")
        layer = IDynamicQuantizeLayer(self, tensor, output_type, scale_type)
        layer.axis, layer.block_size = axis, block_size
        return self._add_layer(layer)

    def add_dynamic_quantize_v2(
        self,
        input: ITensor,
        block_shape: Iterable[int],
        output_type: DataType,
        scale_type: DataType,
    ) -> IDynamicQuantizeLayer:
        """Add a quantization of blocks of any shape, with scales found while running."""
        tensor = self._check_tensor(input, where="add_dynamic_quantize_v2", argument="input")
        layer = IDynamicQuantizeLayer(self, tensor, output_type, scale_type)
        layer.block_shape = block_shape
        return self._add_layer(layer)
