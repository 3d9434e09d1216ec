"""Writes Q/DQ into a network: weights with a scale a channel, activations with one scale, biases in 32 bits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import ml_dtypes
import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from dovetail.build.calibrate.calibration_cache import Range
from dovetail.build.precision.quantize_plan import QuantizationPlan, weight_of
from dovetail.passes.editing import add_initializer, int_attribute, is_onnx, names_in

__all__ = [
    "OPSETS",
    "Affine",
    "QuantizationForm",
    "affine_from_range",
    "make_probe",
    "scales_of_weights",
    "write_quantization",
]

Array = npt.NDArray[Any]

OPSETS: Final = {"int8": 13, "fp8": 19}
"""The opset from which on Q/DQ has a scale a channel, and the type."""
_IR_TYPES: Final = {"int8": ir.DataType.INT8, "fp8": ir.DataType.FLOAT8E4M3FN}
_FP8_MAX: Final = 448.0
_BIAS_MAX: Final = 0.9 * 2**31
_LEAST: Final = float(np.finfo(np.float32).tiny)


@dataclass(frozen=True)
class Affine:
    """How numbers are quantized: a number x becomes x / scale + zero."""

    scale: float
    zero: int = 0


@dataclass(frozen=True, kw_only=True)
class QuantizationForm:
    """How the quantized numbers of a network are spelt."""

    kind: str
    """``int8`` or ``fp8``."""
    weight_steps: int = 127
    """The largest number that an int8 weight may have."""
    is_unsigned: bool = False
    """Whether bytes that a run computes are unsigned, as kernels of x86 processors want them: ONNX Runtime makes signed
    ones so, but not where two layers read one of them, which then stay in floating point."""


def affine_from_range(bounds: Range, kind: str) -> Affine:
    """The scale and zero point that cover a range; zero is always hit exactly.

    >>> affine_from_range((0.0, 255.0), "int8")
    Affine(scale=1.0, zero=-128)
    """
    low, high = min(bounds[0], 0.0), max(bounds[1], 0.0)
    if kind == "fp8":
        return Affine(max(max(-low, high) / _FP8_MAX, _LEAST))
    scale = max((high - low) / 255.0, _LEAST)
    return Affine(scale, int(np.clip(round(-128 - low / scale), -128, 127)))


def scales_of_weights(weights: Array, axis: int | None, kind: str, steps: int = 127) -> Array:
    """The symmetric scale of each channel of weights, or one for all; a channel of zeros has 1."""
    axes = None if axis is None else tuple(each for each in range(weights.ndim) if each != axis)
    largest = np.abs(weights).max(axis=axes, initial=0.0)
    scales = np.asarray(largest / (_FP8_MAX if kind == "fp8" else steps), np.float32)
    return np.where(scales > 0, np.maximum(scales, _LEAST), np.float32(1.0)).astype(np.float32)


def make_probe(value: ir.Value, kind: str) -> list[ir.Node]:
    """A Q and a DQ node for a tensor that are in no graph, to ask providers about."""
    scale = ir.Value(name="scale", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape(()))
    zero = ir.Value(name="zero", type=ir.TensorType(_IR_TYPES[kind]), shape=ir.Shape(()))
    source = ir.Value(name="source", type=value.type, shape=value.shape)
    quantize = ir.Node("", "QuantizeLinear", [source, scale, zero], num_outputs=1)
    quantize.outputs[0].type, quantize.outputs[0].shape = ir.TensorType(_IR_TYPES[kind]), value.shape
    dequantize = ir.Node("", "DequantizeLinear", [quantize.outputs[0], scale, zero], num_outputs=1)
    dequantize.outputs[0].type, dequantize.outputs[0].shape = value.type, value.shape
    return [quantize, dequantize]


def write_quantization(
    model: ir.Model, plan: QuantizationPlan, form: QuantizationForm, means: Mapping[str, Array] | None = None
) -> None:
    """Change a model in place.

    Args:
        model: Its opset is at least that of ``OPSETS``.
        plan: What to quantize.
        form: How it is spelt.
        means: Tensor -> the mean of each channel (the second axis), where it is known. What rounding the weights of its
            reader adds to each result on average is then taken off the bias.
    """
    writer = _Writer(model, plan, form, means or {})
    for value, bounds in plan.tensors.items():
        writer.quantize_tensor(value, bounds)
    for node, reason in plan.layers.items():
        if not reason and is_onnx(node, "Conv", "ConvTranspose", "MatMul", "Gemm"):
            writer.quantize_weights(node)


class _Writer:
    def __init__(
        self, model: ir.Model, plan: QuantizationPlan, form: QuantizationForm, means: Mapping[str, Array]
    ) -> None:
        self._means = means
        self._graph = model.graph
        self._taken = names_in(model) | {node.name for node in model.graph.all_nodes() if node.name}
        self._plan, self._kind, self._steps = plan, form.kind, form.weight_steps
        self._is_unsigned = form.is_unsigned and form.kind == "int8"
        self._type = ir.DataType.UINT8 if self._is_unsigned else _IR_TYPES[form.kind]
        """The type of quantized tensors that a run computes."""
        self._scales: dict[ir.Value, float] = {}
        """Dequantized tensor -> its scale."""
        self._names: dict[ir.Value, str] = {}
        """Dequantized tensor -> what it was quantized from."""
        self._weights: dict[tuple[ir.Value, int | None], tuple[ir.Value, Array]] = {}

    # tensors that a run computes

    def quantize_tensor(self, value: ir.Value, bounds: Range) -> None:
        """Put a Q and a DQ behind a tensor, for quantized readers, or for all where a quantized layer makes it."""
        users = list(value.uses())
        affine = affine_from_range(bounds, self._kind)
        scale = self._constant(f"{value.name}.scale", np.float32(affine.scale), ir.DataType.FLOAT)
        zero = self._constant(f"{value.name}.zero", self._zero(affine.zero), self._type)
        quantize = self._node("QuantizeLinear", [value, scale, zero], f"{value.name}.quantize")
        quantize.outputs[0].type, quantize.outputs[0].shape = ir.TensorType(self._type), value.shape
        dequantize = self._node("DequantizeLinear", [quantize.outputs[0], scale, zero], f"{value.name}.dequantize")
        dequantize.outputs[0].type, dequantize.outputs[0].shape = ir.TensorType(ir.DataType.FLOAT), value.shape
        self._place([quantize, dequantize], value.producer())
        is_for_all = self._plan.is_quantized(value.producer())
        for user, position in users:
            if is_for_all or self._plan.is_quantized(user):
                user.replace_input_with(position, dequantize.outputs[0])
        self._scales[dequantize.outputs[0]] = affine.scale
        self._names[dequantize.outputs[0]] = value.name or ""

    def _zero(self, number: int) -> Array:
        if self._is_unsigned:
            return np.asarray(number + 128, np.uint8)
        return np.asarray(number, np.int8) if self._kind == "int8" else np.asarray(0, ml_dtypes.float8_e4m3fn)

    # weights

    def quantize_weights(self, node: ir.Node) -> None:
        """Give a product its weights, and a bias, by way of DQ nodes."""
        position = weight_of(node)
        if position is None:
            return
        value = node.inputs[position]
        weights = None if value is None else ir.convenience.get_const_tensor(value)
        if value is None or weights is None:
            return
        array = np.asarray(weights.numpy()).astype(np.float32)
        axis = _channel_axis(node, array) if position == 1 else None
        bias = self._bias_of(node)
        source = node.inputs[1 - position]
        scale = None if source is None else self._scales.get(source)
        scales = self._find_scales(value, array, axis, bias, scale)
        given = self._write_weights(value, array, axis, scales)
        node.replace_input_with(position, given)
        bias = self._correct_bias(node, lambda: array - self._approximate(array, axis, scales), bias)
        if bias is not None and scale is not None and self._kind == "int8":
            self._write_bias(node, bias, np.asarray(scales * np.float32(scale), np.float32))

    def _find_scales(
        self, value: ir.Value, array: Array, axis: int | None, bias: Array | None, source_scale: float | None
    ) -> Array:
        """The scales of weights; those of a channel with a large bias are widened until 32 bits hold the bias."""
        scales = scales_of_weights(array, axis, self._kind, self._steps)
        if bias is None or source_scale is None or scales.shape not in ((), bias.shape):
            return scales
        largest = np.abs(bias) if scales.shape else np.abs(bias).max(initial=0.0)
        return np.maximum(scales, np.asarray(largest / (source_scale * _BIAS_MAX), np.float32))

    def _write_weights(self, value: ir.Value, array: Array, axis: int | None, scales: Array) -> ir.Value:
        key = (value, axis)
        known = self._weights.get(key)
        if known is not None and np.array_equal(known[1], scales):
            return known[0]
        quantized = self._round(array / _spread(scales, axis, array.ndim))
        given = self._dequantize(f"{value.name}", quantized, scales, axis, _IR_TYPES[self._kind])
        self._weights[key] = (given, scales)
        return given

    def _round(self, steps: Array) -> Array:
        if self._kind == "fp8":
            return np.clip(steps, -_FP8_MAX, _FP8_MAX).astype(ml_dtypes.float8_e4m3fn)
        return np.clip(np.rint(steps), -self._steps, self._steps).astype(np.int8)

    def _approximate(self, array: Array, axis: int | None, scales: Array) -> Array:
        """Weights as they are after they were rounded."""
        spread = _spread(scales, axis, array.ndim)
        return np.asarray(self._round(array / spread).astype(np.float32) * spread)

    def _correct_bias(self, node: ir.Node, find_lost: Callable[[], Array], bias: Array | None) -> Array | None:
        """Add what the rounding of weights loses on average to the bias of a node; the new one, None without any."""
        source = node.inputs[0]
        means = None if source is None else self._means.get(self._names.get(source, ""))
        given = node.inputs[2] if len(node.inputs) > 2 else None
        if means is None or not is_onnx(node, "Conv", "Gemm") or (given is not None and bias is None):
            return bias
        shift = _mean_results(node, find_lost(), means)
        corrected = np.asarray(shift if bias is None else bias + shift, np.float32)
        if len(node.inputs) < 3:
            node.resize_inputs(3)
        name = f"{node.outputs[0].name}.bias" if given is None else f"{given.name}.corrected"
        node.replace_input_with(2, self._constant(name, corrected, ir.DataType.FLOAT))
        return corrected

    def _bias_of(self, node: ir.Node) -> Array | None:
        """The bias of a product where it is a constant row; None without one."""
        value = node.inputs[2] if len(node.inputs) > 2 else None
        tensor = None if value is None else ir.convenience.get_const_tensor(value)
        return None if tensor is None or len(tensor.shape) != 1 else np.asarray(tensor.numpy(), np.float32)

    def _write_bias(self, node: ir.Node, bias: Array, scales: Array) -> None:
        """A bias in 32 bits, in the steps that the products are summed in."""
        value = node.inputs[2]
        axis = 0 if scales.shape else None
        if value is None or (axis is not None and scales.shape != bias.shape):
            return
        quantized = np.clip(np.rint(bias.astype(np.float64) / scales), -(2**31), 2**31 - 1).astype(np.int32)
        given = self._dequantize(f"{value.name}", quantized, scales, axis, ir.DataType.INT32)
        node.replace_input_with(2, given)

    def _dequantize(self, name: str, array: Array, scales: Array, axis: int | None, dtype: ir.DataType) -> ir.Value:
        inputs = [
            self._constant(f"{name}.quantized", array, dtype),
            self._constant(f"{name}.scale", scales, ir.DataType.FLOAT),
            self._constant(f"{name}.zero", np.zeros(scales.shape, array.dtype), dtype),
        ]
        attributes = [] if axis is None else [ir.AttrInt64("axis", axis)]
        node = self._node("DequantizeLinear", inputs, f"{name}.dequantize", attributes)
        node.outputs[0].type, node.outputs[0].shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape(array.shape)
        self._place([node], None)
        return node.outputs[0]

    # nodes

    def _constant(self, name: str, array: Any, dtype: ir.DataType) -> ir.Value:
        return add_initializer(self._graph, name, np.asarray(array), dtype, self._taken)

    def _node(self, op: str, inputs: Sequence[ir.Value], name: str, attributes: Sequence[ir.Attr] = ()) -> ir.Node:
        unique, count = name, 2
        while unique in self._taken:
            unique, count = f"{name}_{count}", count + 1
        self._taken.add(unique)
        node = ir.Node("", op, list(inputs), list(attributes), num_outputs=1, name=unique)
        node.outputs[0].name = unique
        return node

    def _place(self, nodes: Sequence[ir.Node], maker: ir.Node | None) -> None:
        """Behind what makes their input, or at the beginning."""
        if maker is not None:
            self._graph.insert_after(maker, nodes)
        else:
            self._graph.insert_before(self._graph[0], nodes)


def _spread(scales: Array, axis: int | None, rank: int) -> Array:
    """Scales of channels in the shape that weights are divided by."""
    return scales if axis is None else scales.reshape([-1 if each == axis else 1 for each in range(rank)])


def _mean_results(node: ir.Node, weights: Array, means: Array) -> Array:
    """What a convolution or product with these weights makes of its mean input, away from borders."""
    if is_onnx(node, "Gemm"):
        return np.asarray((weights if int_attribute(node, "transB", 0) else weights.T) @ means)
    groups = int_attribute(node, "group", 1)
    summed = weights.sum(axis=tuple(range(2, weights.ndim))).reshape(groups, -1, weights.shape[1])
    return np.asarray((summed * means.reshape(groups, 1, -1)).sum(axis=2).reshape(-1))


def _channel_axis(node: ir.Node, weights: Array) -> int | None:
    """The axis of weights that tells the channels of the result apart; None where one scale is for all."""
    if is_onnx(node, "Conv"):
        return 0
    if is_onnx(node, "Gemm"):
        return 0 if int_attribute(node, "transB", 0) else 1
    return 1 if is_onnx(node, "MatMul") and weights.ndim == 2 else None
