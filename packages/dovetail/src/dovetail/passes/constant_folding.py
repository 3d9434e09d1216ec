"""Computes at build time what does not depend on inputs, with the reference kernels.

Left alone are: random operators, control flow, plugins, what depends on weights that must stay refittable, what would
make the plan much larger, graph outputs, and dequantization, whose constant input is the compact form of a weight. Each
node has a limit, and all of them together have one budget: many small steps make a large plan as well.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Final

import numpy as np
import onnx_ir as ir

from dovetail.growth import DEFAULT_GROWTH, ByteBudget
from dovetail.passes._graph import (
    Array,
    attribute_values,
    constant_array,
    is_onnx,
    layer_name,
    make_constant,
    opset_of,
    subgraphs_of,
    walk_graphs,
)
from dovetail.passes.base import Pass, PassResult
from dovetail.provider.interfaces import Provider, StoredKernel, TensorSpec
from dovetail.provider.loader import get_provider

__all__ = ["RANDOM", "ConstantFolding", "weight_bytes"]

RANDOM: Final = frozenset(
    ("Bernoulli", "Dropout", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
)
"""Operators that give other results every time."""
_COMPACT: Final = frozenset(("DequantizeLinear",))
_SHAPE_ONLY: Final = ("Shape", "Size")
"""Operators that read the shape of their input and not its contents."""

_MAX_GROWTH_BYTES: Final = 16 << 20
_SMALL_ELEMENTS: Final = 4096
"""Where the size of a result cannot be told before, only inputs up to this size are tried."""
_GROWING: Final = ("CenterCropPad", "MelWeightMatrix", "OneHot", "Pad", "Range", "Resize", "Upsample")
"""Operators whose result can be of any size, whatever the size of their inputs."""


class ConstantFolding(Pass):
    """Replaces nodes by their results.

    Args:
        keep: Names of initializers that stay as they are, because they may be refitted.
        max_growth_bytes: How much larger a result may be than what it is computed from.
        budget: How much all results may take, besides as much as the model has; passes of one build share it.
    """

    name: ClassVar[str] = "constant_folding"

    def __init__(
        self,
        *,
        keep: frozenset[str] = frozenset(),
        max_growth_bytes: int = _MAX_GROWTH_BYTES,
        budget: ByteBudget | None = None,
    ) -> None:
        self._keep = keep
        self._max_growth_bytes = max_growth_bytes
        self._budget = budget or ByteBudget(DEFAULT_GROWTH.bytes)

    def call(self, model: ir.Model) -> PassResult:
        """Fold nodes in order, so that chains fold as a whole."""
        self._budget.open(weight_bytes(model))
        folding = _Folding(model, get_provider("cpu"), self._keep, self._max_growth_bytes, self._budget)
        folding.fold_graph(model.graph)
        return PassResult(model=model, changed=folding.changed)


class _Folding:
    """One run over one model."""

    def __init__(
        self,
        model: ir.Model,
        provider: Provider,
        keep: frozenset[str],
        max_growth_bytes: int,
        budget: ByteBudget,
    ) -> None:
        self.changed: list[str] = []
        self._model = model
        self._provider = provider
        self._keep = keep
        self._max_growth_bytes = max_growth_bytes
        self._budget = budget
        self._kept: set[ir.Value] = set()
        """Values whose contents depend on weights to keep."""
        self._made: set[ir.Value] = set()
        """Constants that were worked out here; those that nobody reads any more are let go at once."""
        self._freed: set[ir.Value] = set()
        """Constants of the model that nobody reads any more."""

    def fold_graph(self, graph: ir.Graph) -> None:
        self._kept.update(value for name, value in graph.initializers.items() if name in self._keep)
        for node in graph:
            self._mark_kept(node)
            arrays = self._evaluate(node)
            if arrays is None:
                for body in subgraphs_of(node):
                    self.fold_graph(body)
            else:
                self._replace(graph, node, arrays)

    def _mark_kept(self, node: ir.Node) -> None:
        if is_onnx(node, *_SHAPE_ONLY):
            return
        reads = [*node.inputs]
        for body in subgraphs_of(node):
            reads += [value for inner in body.all_nodes() for value in inner.inputs]
            reads += [value for name, value in body.initializers.items() if name in self._keep]
        if any(value in self._kept for value in reads if value is not None):
            self._kept.update(node.outputs)

    def _evaluate(self, node: ir.Node) -> list[Array] | None:
        """The results of a node, or None when it stays."""
        if not self._may_fold(node):
            return None
        known = [value.const_value for value in node.outputs]
        if all(tensor is not None for tensor in known):
            return [np.asarray(tensor.numpy()) for tensor in known if tensor is not None]
        arrays = [constant_array(value) for value in node.inputs]
        if any(array is None and value is not None for array, value in zip(arrays, node.inputs, strict=True)):
            return None
        return self._run(node, arrays)

    def _may_fold(self, node: ir.Node) -> bool:
        if not node.outputs:  # it is there to check something when it runs
            return False
        if is_onnx(node, *RANDOM, *_COMPACT) or any(True for _ in subgraphs_of(node)):
            return False
        if any(value in self._kept or value.is_graph_output() for value in node.outputs):
            return False
        return all(value.type is None or isinstance(value.type, ir.TensorType) for value in node.outputs)

    def _run(self, node: ir.Node, arrays: Sequence[Array | None]) -> list[Array] | None:
        attributes = attribute_values(node)
        opset = opset_of(self._model, node)
        kernel = self._provider.kernels.find(node.op_type, node.domain, opset)
        if attributes is None or kernel is None or not attributes.keys() <= kernel.attributes:
            return None
        distinct = {id(value): array for value, array in zip(node.inputs, arrays, strict=True)}
        before = _sum_bytes([*distinct.values(), *attributes.values()])
        if not self._fits(before, _predict_bytes(node, arrays)):
            return None
        results = self._call(node, opset, attributes, arrays)
        if results is None or not all(map(_is_declared, node.outputs, results)):
            return None
        return results if self._fits(before, _sum_bytes(results)) else None

    def _call(
        self, node: ir.Node, opset: int, attributes: dict[str, Any], arrays: Sequence[Array | None]
    ) -> list[Array] | None:
        stored = StoredKernel(
            op=node.op_type,
            domain=node.domain,
            opset=opset,
            attributes=attributes,
            inputs=[None if array is None else TensorSpec(dtype=array.dtype.name) for array in arrays],
            num_outputs=len(node.outputs),
        )
        step = self._provider.load_kernel(stored)
        try:
            with np.errstate(all="ignore"):
                outputs = step(*arrays)
        except Exception:  # noqa: BLE001 - a step that fails must fail when it runs: it may lie in a branch never taken
            return None
        results = list(outputs) if isinstance(outputs, tuple) else [outputs]
        if len(results) < len(node.outputs) or not all(isinstance(array, np.ndarray | np.generic) for array in results):
            return None
        return [np.asarray(array) for array in results[: len(node.outputs)]]

    def _fits(self, before: int, after: int | None) -> bool:
        return after is not None and after - before <= self._max_growth_bytes and self._budget.has(after)

    def _replace(self, graph: ir.Graph, node: ir.Node, arrays: list[Array]) -> None:
        self.changed.append(f"folded '{layer_name(node)}' ({node.op_type})")
        inputs = [value for value in dict.fromkeys(node.inputs) if value is not None]
        for value, array in zip(node.outputs, arrays, strict=True):
            if value.uses():
                constant = make_constant(value, array)
                ir.convenience.replace_all_uses_with(value, constant)
                graph.register_initializer(constant)
                self._made.add(constant)
                self._budget.take(array.nbytes)
        graph.remove(node, safe=True)
        for value in inputs:
            self._let_go(value)

    def _let_go(self, value: ir.Value) -> None:
        """Count a constant that nobody reads any more as gone."""
        if value.uses() or value.is_graph_output() or value.const_value is None or value in self._freed:
            return
        self._budget.give_back(value.const_value.nbytes)
        if value in self._made and value.graph is not None and value.name is not None:
            self._made.remove(value)
            del value.graph.initializers[value.name]
        else:
            self._freed.add(value)


def weight_bytes(model: ir.Model) -> int:
    """How many bytes the weights of a model take; one that several names share counts once."""
    values = [value for graph in walk_graphs(model.graph) for value in graph.initializers.values()]
    tensors = {id(value.const_value): value.const_value for value in values if value.const_value is not None}
    return sum(tensor.nbytes for tensor in tensors.values())


def _is_declared(value: ir.Value, array: Array) -> bool:
    """Whether a result has the type that was inferred; where none was, whether a tensor can have its type."""
    return not array.dtype.hasobject and (value.dtype is None or value.dtype.numpy() == array.dtype)


def _sum_bytes(values: Sequence[Any]) -> int:
    return sum(value.nbytes for value in values if isinstance(value, np.ndarray))


def _predict_bytes(node: ir.Node, arrays: Sequence[Array | None]) -> int | None:
    """The bytes a node will make, before it makes them; None when that cannot be told."""
    if is_onnx(node, "Constant"):
        return 0  # it has been made already
    total = 0
    for value in node.outputs:
        count = _count_from_shape(value)
        if count is None:
            count = _count_from_inputs(node, [array for array in arrays if array is not None])
        if count is None:
            return None
        total += count * (8 if value.dtype is None else value.dtype.numpy().itemsize)
    return total


def _count_from_shape(value: ir.Value) -> int | None:
    if value.shape is None:
        return None
    dims = [dim for dim in value.shape if isinstance(dim, int)]
    return math.prod(dims) if len(dims) == len(value.shape) else None


def _count_from_inputs(node: ir.Node, arrays: list[Array]) -> int | None:
    """Where shape inference knew less than the contents now say; elsewhere only small inputs are tried."""
    if is_onnx(node, "ConstantOfShape"):
        return _product(arrays[0])
    if is_onnx(node, "Expand", "Tile"):
        return arrays[0].size * _product(arrays[1])
    elements = sum(array.size for array in arrays)
    if elements > _SMALL_ELEMENTS or is_onnx(node, *_GROWING):
        return None
    return math.prod(max(array.size, 1) for array in arrays)  # no operator that is left makes more


def _product(sizes: Array) -> int:
    return math.prod(max(int(size), 0) for size in sizes.reshape(-1))
