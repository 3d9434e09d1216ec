"""Weights of matrix products in blocks of few bits: each product becomes one node that unpacks as it multiplies.

The node is MatMulNBits of com.microsoft, which the providers here have kernels for. A block is a run of weights of one
column that shares a scale and a zero point.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from dovetail.build.precision.decide import find_kept
from dovetail.build.precision.options import PrecisionOptions
from dovetail.build.precision.ports import is_float
from dovetail.passes.editing import add_initializer, int_attribute, is_onnx, names_in

__all__ = ["DOMAIN", "PackedWeights", "pack_weights", "plan_weights", "write_weights"]

Array = npt.NDArray[Any]

DOMAIN: Final = "com.microsoft"
_BITS: Final = {"int4": 4, "int8": 8}
_LEAST: Final = float(np.finfo(np.float32).tiny)
_OTHER: Final = "weights alone are quantized for matrix products only"

Refuse = Callable[[ir.Node, ir.Node], str]
"""Why the provider of a node does not take another in its place; empty where it does."""


@dataclass(frozen=True)
class PackedWeights:
    """A matrix as the kernel takes it: numbers, scales and zero points of each column."""

    numbers: Array
    scales: Array
    zeros: Array


def pack_weights(weights: Array, bits: int, block: int) -> PackedWeights:
    """Quantize a matrix of rows x columns in blocks down its columns, padded with zeros to whole blocks."""
    rows, columns = weights.shape
    blocks = -(-rows // block)
    padded = np.zeros((columns, blocks * block), np.float32)
    padded[:, :rows] = weights.T
    parts = padded.reshape(columns, blocks, block)
    low, high = np.minimum(parts.min(axis=2), 0.0), np.maximum(parts.max(axis=2), 0.0)
    most = 2**bits - 1
    scales = np.where(high > low, np.maximum((high - low) / most, _LEAST), 1.0).astype(np.float32)
    zeros = np.clip(np.rint(-low / scales), 0, most).astype(np.uint8)
    numbers = np.clip(np.rint(parts / scales[..., None]) + zeros[..., None], 0, most).astype(np.uint8)
    return PackedWeights(_pack_bits(numbers, bits), scales, _pack_bits(zeros, bits))


def _pack_bits(numbers: Array, bits: int) -> Array:
    """Two numbers of four bits to a byte along the last axis, the first in the lower half."""
    if bits == 8:
        return numbers
    if numbers.shape[-1] % 2:
        numbers = np.concatenate([numbers, np.zeros((*numbers.shape[:-1], 1), np.uint8)], axis=-1)
    return np.asarray(numbers[..., 0::2] | (numbers[..., 1::2] << 4))


def plan_weights(
    graph: ir.Graph, options: PrecisionOptions, refuse: Refuse, keep: frozenset[str] = frozenset()
) -> dict[ir.Node, str]:
    """Layer with FP32 tensors -> why its weights stay; empty for those that are packed."""
    found: dict[ir.Node, str] = {}
    for node in graph:
        if any(is_float(value) for value in (*node.inputs, *node.outputs)):
            found[node] = find_kept(node, options) or _explain(node, keep) or refuse(node, _probe(node, options))
    return found


def _explain(node: ir.Node, keep: frozenset[str]) -> str:
    if not is_onnx(node, "MatMul", "Gemm"):
        return _OTHER
    value = node.inputs[1]
    if value is None or ir.convenience.get_const_tensor(value) is None or not is_float(value):
        return "its weights are computed"
    if value.name in keep:
        return "its weights may be refitted"
    if value.shape is None or len(value.shape) != 2:
        return "its weights are no matrix"
    is_scaled = any(name in node.attributes and node.attributes[name].as_float() != 1.0 for name in ("alpha", "beta"))
    return "it scales or transposes its input" if is_scaled or int_attribute(node, "transA", 0) else ""


def _matrix(node: ir.Node) -> Array:
    """The weights as rows x columns."""
    tensor = ir.convenience.get_const_tensor(_given(node, 1))
    array = np.asarray(tensor.numpy() if tensor is not None else (), np.float32)
    return array.T if is_onnx(node, "Gemm") and int_attribute(node, "transB", 0) else array


def _given(node: ir.Node, position: int) -> ir.Value:
    value = node.inputs[position]
    assert value is not None  # noqa: S101 - it was looked at when the node was planned
    return value


def _attributes(rows: int, columns: int, bits: int, block: int) -> list[ir.Attr]:
    numbers = {"K": rows, "N": columns, "bits": bits, "block_size": block}
    return [ir.AttrInt64(name, number) for name, number in numbers.items()]


def _probe(node: ir.Node, options: PrecisionOptions) -> ir.Node:
    """The node that a product would become, in no graph and without contents, to ask providers about."""
    bits, block = _BITS[options.weights or "int4"], options.block
    shape = _given(node, 1).shape
    sizes = [int(dim) for dim in (shape.numpy() if shape is not None else (1, 1))]
    rows, columns = reversed(sizes) if is_onnx(node, "Gemm") and int_attribute(node, "transB", 0) else sizes
    blocks = -(-rows // block)
    source = _given(node, 0)
    inputs = [
        ir.Value(name="a", type=source.type, shape=source.shape),
        _constant("b", np.zeros((columns, blocks, block * bits // 8), np.uint8), ir.DataType.UINT8),
        _constant("s", np.zeros(columns * blocks, np.float32), ir.DataType.FLOAT),
        _constant("z", np.zeros(columns * -(-blocks * bits // 8), np.uint8), ir.DataType.UINT8),
    ]
    probe = ir.Node(DOMAIN, "MatMulNBits", inputs, _attributes(rows, columns, bits, block), num_outputs=1)
    probe.outputs[0].type, probe.outputs[0].shape = node.outputs[0].type, node.outputs[0].shape
    return probe


def _constant(name: str, array: Array, dtype: ir.DataType) -> ir.Value:
    tensor = ir.Tensor(array, dtype=dtype, name=name)
    return ir.Value(name=name, type=ir.TensorType(dtype), shape=ir.Shape(array.shape), const_value=tensor)


def write_weights(model: ir.Model, nodes: list[ir.Node], options: PrecisionOptions) -> list[ir.Node]:
    """Replace products in place; the new nodes come back in the same order."""
    model.opset_imports.setdefault(DOMAIN, 1)
    taken = names_in(model)
    return [_replace(model.graph, node, options, taken) for node in nodes]


def _replace(graph: ir.Graph, node: ir.Node, options: PrecisionOptions, taken: set[str]) -> ir.Node:
    matrix, name = _matrix(node), _given(node, 1).name
    bits, block = _BITS[options.weights or "int4"], options.block
    packed = pack_weights(matrix, bits, block)
    inputs = [
        _given(node, 0),
        add_initializer(graph, f"{name}.packed", packed.numbers, ir.DataType.UINT8, taken),
        add_initializer(graph, f"{name}.scale", packed.scales.reshape(-1), ir.DataType.FLOAT, taken),
        add_initializer(graph, f"{name}.zero", packed.zeros.reshape(-1), ir.DataType.UINT8, taken),
    ]
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    rows, columns = matrix.shape
    product = ir.Node(
        DOMAIN, "MatMulNBits", inputs, _attributes(rows, columns, bits, block), num_outputs=1, name=node.name
    )
    product.metadata_props.update(node.metadata_props)
    made = [product]
    if bias is not None:
        made.append(ir.Node("", "Add", [product.outputs[0], bias], num_outputs=1, name=f"{node.name}.bias"))
        product.outputs[0].name = f"{node.outputs[0].name}.product"
        product.outputs[0].type, product.outputs[0].shape = node.outputs[0].type, node.outputs[0].shape
    graph.insert_before(node, made)
    old, new = node.outputs[0], made[-1].outputs[0]
    new.name, new.type, new.shape = old.name, old.type, old.shape
    new.metadata_props.update(old.metadata_props)
    ir.convenience.replace_all_uses_with(old, new, replace_graph_outputs=True)
    graph.remove(node, safe=True)
    return product
