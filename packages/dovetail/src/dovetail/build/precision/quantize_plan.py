"""Which layers are quantized with calibrated ranges, and which of their tensors carry Q/DQ. Pure planning.

Convolutions and matrix products are what 8 bits are for. Between convolutions, layers that only pass images on (sums,
concatenations, pools) are quantized too, so that nothing is widened on the way. A convolution's result is quantized
behind its activation; the result of a matrix product only where the next product reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import onnx_ir as ir

from dovetail.build.assign.layers import is_constant_node
from dovetail.build.calibrate.calibration_cache import Range
from dovetail.build.precision.decide import find_kept
from dovetail.build.precision.options import PrecisionOptions
from dovetail.build.precision.ports import is_float
from dovetail.passes.editing import int_attribute, is_onnx

__all__ = ["QuantizationPlan", "find_averaged", "find_candidates", "plan_quantization", "weight_of"]

_CONVOLUTIONS: Final = ("Conv", "ConvTranspose")
_PRODUCTS: Final = ("MatMul", "Gemm")
_PASSING: Final = ("Add", "Concat", "MaxPool", "AveragePool", "GlobalAveragePool")
_ACTIVATIONS: Final = ("Relu", "Clip")
_OTHER: Final = "8 bits are for convolutions, matrix products and what passes images on between convolutions"

Refuse = Callable[[ir.Node], str]
"""Why the provider of a node does not take Q/DQ around it; empty where it does."""


@dataclass(kw_only=True)
class QuantizationPlan:
    """What is to be quantized."""

    layers: dict[ir.Node, str] = field(default_factory=dict)
    """Layer with FP32 tensors -> why it stays; empty for one that is quantized."""
    tensors: dict[ir.Value, Range] = field(default_factory=dict)
    """Tensor that a run computes -> the range to quantize it with."""

    def is_quantized(self, node: ir.Node | None) -> bool:
        """Whether a node was decided on and is quantized."""
        return node is not None and self.layers.get(node) == ""


def find_candidates(graph: ir.Graph) -> frozenset[str]:
    """The names of tensors that may be quantized: others need no range that is worth a search."""
    nodes = [node for node in graph if is_onnx(node, *_CONVOLUTIONS, *_PRODUCTS, *_PASSING, *_ACTIVATIONS)]
    return frozenset(v.name for node in nodes for v in (*node.inputs, *node.outputs) if v is not None and v.name)


def find_averaged(graph: ir.Graph) -> frozenset[str]:
    """The names of tensors whose mean corrects a bias: what convolutions and products with a bias read."""
    values = [node.inputs[0] for node in graph if is_onnx(node, "Conv", "Gemm")]
    return frozenset(v.name for v in values if v is not None and v.name and v.shape is not None and len(v.shape) > 1)


def weight_of(node: ir.Node, keep: frozenset[str] = frozenset()) -> int | None:
    """The position of the constant that a convolution or product multiplies with; None when both change."""
    for position in (1, 0):
        value = node.inputs[position] if position < len(node.inputs) else None
        if value is not None and value.name not in keep and ir.convenience.get_const_tensor(value) is not None:
            return position
    return None


def plan_quantization(
    graph: ir.Graph,
    options: PrecisionOptions,
    ranges: Mapping[str, Range | None],
    refuse: Refuse,
    keep: frozenset[str] = frozenset(),
    kept: Mapping[ir.Node, str] | None = None,
) -> QuantizationPlan:
    """Decide for every layer of a graph.

    Args:
        graph: The network, with types.
        options: What was asked for.
        ranges: Tensor -> its range by calibration.
        refuse: Asks the provider of a node.
        keep: Names of weights that may be refitted.
        kept: Layers that stay, and why.
    """
    planner = _LayerVisitor(options, ranges, refuse, keep, kept or {})
    for node in graph:
        if not is_constant_node(node) and any(is_float(value) for value in (*node.inputs, *node.outputs)):
            planner.visit(node)
    return planner.plan


class _LayerVisitor:
    def __init__(
        self,
        options: PrecisionOptions,
        ranges: Mapping[str, Range | None],
        refuse: Refuse,
        keep: frozenset[str],
        kept: Mapping[ir.Node, str],
    ) -> None:
        self.plan = QuantizationPlan()
        self._kept = kept
        self._options, self._ranges, self._refuse, self._keep = options, ranges, refuse, keep
        self._images: set[ir.Value] = set()
        """What a quantized convolution made, also behind its activation."""

    def visit(self, node: ir.Node) -> None:
        """Decide for one node; its inputs are decided already."""
        if is_onnx(node, *_CONVOLUTIONS, *_PRODUCTS):
            self._visit_product(node)
        elif is_onnx(node, *_ACTIVATIONS) and self._is_behind_convolution(node):
            self._visit_activation(node)
        elif is_onnx(node, *_PASSING) and all(value in self._images for value in _data_inputs(node)):
            self._visit_passing(node)
        else:
            self.plan.layers[node] = self._find_kept(node) or _OTHER

    def _find_kept(self, node: ir.Node) -> str:
        return find_kept(node, self._options) or self._kept.get(node, "")

    def _visit_product(self, node: ir.Node) -> None:
        reason = self._find_kept(node) or self._explain_product(node) or self._refuse(node)
        self.plan.layers[node] = reason
        if reason:
            return
        weight = weight_of(node, self._keep)
        for position, value in enumerate(node.inputs[:2]):
            if value is not None and position != weight:
                self._quantize(value)
        if is_onnx(node, *_CONVOLUTIONS):
            self._images.add(node.outputs[0])
            if not _has_activation(node) and not node.outputs[0].is_graph_output():
                self._quantize(node.outputs[0])

    def _explain_product(self, node: ir.Node) -> str:
        """Why a product cannot be quantized."""
        if is_onnx(node, "Gemm") and (_float_attribute(node, "alpha") != 1.0 or _float_attribute(node, "beta") != 1.0):
            return "it scales its product"
        if is_onnx(node, "Gemm") and int_attribute(node, "transA", 0):
            return "it transposes its input"
        factors = node.inputs[:2]
        if any(value is not None and value.name in self._keep for value in factors):
            return "its weights may be refitted"
        weight = weight_of(node)
        if not all(is_float(value) for value in factors) or (is_onnx(node, *_CONVOLUTIONS) and weight != 1):
            return "its weights are computed" if all(is_float(value) for value in factors) else "its type is not fp32"
        if weight is None:
            return "both of its factors are computed, as in attention, whose scores do not stand 8 bits"
        bare = [v.name for i, v in enumerate(factors) if v is not None and i != weight and not self._range_of(v)]
        return f"calibration found no range of '{bare[0]}': it was zero or not computed" if bare else ""

    def _is_behind_convolution(self, node: ir.Node) -> bool:
        source = node.inputs[0]
        maker = None if source is None else source.producer()
        is_one = maker is not None and is_onnx(maker, *_CONVOLUTIONS, "Add") and self.plan.is_quantized(maker)
        return is_one and maker is not None and _has_activation(maker)

    def _visit_activation(self, node: ir.Node) -> None:
        reason = self._find_kept(node)
        self.plan.layers[node] = reason
        self._images.add(node.outputs[0])
        if not reason and not node.outputs[0].is_graph_output():
            self._quantize(node.outputs[0])

    def _visit_passing(self, node: ir.Node) -> None:
        reason = self._find_kept(node) or self._refuse(node)
        values = [*_data_inputs(node), node.outputs[0]]
        bare = [value.name for value in values if not self._range_of(value)]
        if bare and not reason:
            reason = f"calibration found no range of '{bare[0]}': it was zero or not computed"
        self.plan.layers[node] = reason
        if reason:
            return
        for value in _data_inputs(node):
            self._quantize(value)
        self._images.add(node.outputs[0])
        if is_onnx(node, "MaxPool"):  # it chooses elements, so their steps stay the same
            self.plan.tensors.setdefault(node.outputs[0], self.plan.tensors[_data_inputs(node)[0]])
        elif not _has_activation(node) and not node.outputs[0].is_graph_output():
            self._quantize(node.outputs[0])

    def _range_of(self, value: ir.Value) -> Range | None:
        return self._ranges.get(value.name or "")

    def _quantize(self, value: ir.Value) -> None:
        found = self._range_of(value)
        if found is not None:
            self.plan.tensors.setdefault(value, found)


def _data_inputs(node: ir.Node) -> list[ir.Value]:
    """The FP32 inputs of a layer that passes images on."""
    return [value for value in node.inputs if value is not None and is_float(value)]


def _has_activation(node: ir.Node) -> bool:
    """Whether the only reader of a result is an activation that ends with the range of its results."""
    uses = node.outputs[0].uses()
    is_lone = len(uses) == 1 and not node.outputs[0].is_graph_output()
    return is_lone and all(is_onnx(user, *_ACTIVATIONS) and position == 0 for user, position in uses)


def _float_attribute(node: ir.Node, name: str) -> float:
    attribute = node.attributes.get(name)
    return 1.0 if attribute is None else float(attribute.as_float())
