"""Which layers of a network compute in a narrow float type, and why each of the others does not. Pure planning."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Final

import numpy as np
import onnx_ir as ir

from dovetail.build.assign.layers import is_constant_node, layer_name
from dovetail.build.calibrate.calibration_cache import Range
from dovetail.build.precision.options import PrecisionOptions
from dovetail.build.precision.ports import Ports, find_ports, is_float
from dovetail.build.precision.rules import JOINING, MOVING, SENSITIVE
from dovetail.network.plugins import operator_of
from dovetail.passes.editing import is_onnx

__all__ = ["FLOAT_IR_TYPES", "FloatDecision", "TypeEvidence", "decide_float_types", "find_kept"]

FLOAT_IR_TYPES: Final = {
    "fp32": ir.DataType.FLOAT,
    "fp16": ir.DataType.FLOAT16,
    "bf16": ir.DataType.BFLOAT16,
}
_HALF_MAX: Final = float(np.finfo(np.float16).max)
_HALF_NORMAL: Final = float(np.finfo(np.float16).tiny)
_HALF_LEAST: Final = float(np.finfo(np.float16).smallest_subnormal)


@dataclass(frozen=True, kw_only=True)
class TypeEvidence:
    """What is known besides the network itself."""

    ranges: Mapping[str, Range | None] = field(default_factory=dict)
    """Tensor -> the smallest and the largest value that a run showed."""
    refused: Mapping[int, str] = field(default_factory=dict)
    """Node, by its place in the graph -> why its provider or its plugin does not take the type."""
    held: Mapping[int, str] = field(default_factory=dict)
    """Node, by its place in the graph -> why its type was decided before."""
    plugins: Mapping[int, Ports] = field(default_factory=dict)
    """Plugin layer, by its place in the graph -> what it said of the type."""


@dataclass(frozen=True, kw_only=True)
class FloatDecision:
    """The type of one layer."""

    node: ir.Node
    ports: Ports
    reason: str = ""
    """Why it stays in FP32; empty for a layer that becomes narrow."""
    is_sensitive: bool = False
    """Whether it stays for its own sake, so that what works on its results stays too."""

    @property
    def is_narrow(self) -> bool:
        """Whether the layer computes in the narrow type."""
        return not self.reason


def find_kept(node: ir.Node, options: PrecisionOptions) -> str:
    """Why a layer stays as it is by the user's word; empty where it does not."""
    name = layer_name(node)
    pattern = next((pattern for pattern in options.keep if fnmatchcase(name, pattern)), None)
    if pattern is not None:
        return f"kept by '{pattern}'"
    op = operator_of(node)
    return f"operator {op} is kept" if op in options.keep_ops else ""


def decide_float_types(model: ir.Model, options: PrecisionOptions, evidence: TypeEvidence) -> dict[int, FloatDecision]:
    """For each node with FP32 tensors, by its place in the graph, whether it becomes narrow."""
    dtype = FLOAT_IR_TYPES[options.float_type or "fp16"]
    judge = _Judge(dtype, options, evidence)
    decisions: dict[int, FloatDecision] = {}
    makers: dict[ir.Value, FloatDecision] = {}
    for index, node in enumerate(model.graph):
        ports = evidence.plugins.get(index) or find_ports(node, model.opset_imports, dtype)
        if is_constant_node(node) or ports.is_empty:
            continue
        decisions[index] = judge.decide(index, node, ports, makers)
        makers.update(dict.fromkeys(node.outputs, decisions[index]))
    return _settle_moves(decisions)


class _Judge:
    """The questions to one node, in the order in which their answers are told."""

    def __init__(self, dtype: ir.DataType, options: PrecisionOptions, evidence: TypeEvidence) -> None:
        self._dtype, self._options, self._evidence = dtype, options, evidence
        self._questions: Sequence[Callable[[ir.Node, Ports], str]] = (
            lambda node, _: find_kept(node, options),
            lambda _, ports: ports.refusal,
            _find_own_cast,
            self._find_constant,
            self._find_overflow,
        )

    def decide(
        self, index: int, node: ir.Node, ports: Ports, makers: Mapping[ir.Value, FloatDecision]
    ) -> FloatDecision:
        """The answer for a node whose inputs are decided."""
        if index in self._evidence.held:
            return FloatDecision(node=node, ports=ports, reason=self._evidence.held[index])
        answers = (question(node, ports) for question in self._questions)
        reason = next(filter(None, answers), "")
        if reason:
            return FloatDecision(node=node, ports=ports, reason=reason)
        if is_onnx(node, *SENSITIVE):
            return FloatDecision(node=node, ports=ports, reason=SENSITIVE[node.op_type], is_sensitive=True)
        reason = self._evidence.refused.get(index, "")
        return FloatDecision(node=node, ports=ports, reason=reason) if reason else _follow(node, ports, makers)

    def _find_constant(self, node: ir.Node, ports: Ports) -> str:
        """A constant that the type cannot hold; bfloat16 has the range of FP32."""
        if self._dtype != ir.DataType.FLOAT16:
            return ""
        for position in sorted(ports.inputs):
            value = node.inputs[position]
            tensor = None if value is None else ir.convenience.get_const_tensor(value)
            reason = "" if tensor is None else _judge_constant(np.asarray(tensor.numpy()))
            if reason:
                return f"constant '{value.name if value is not None else ''}' {reason}"
        return ""

    def _find_overflow(self, node: ir.Node, ports: Ports) -> str:
        if self._dtype != ir.DataType.FLOAT16:
            return ""
        inputs = [node.inputs[position] for position in sorted(ports.inputs)]
        outputs = [node.outputs[position] for position in sorted(ports.outputs)]
        for value in (*inputs, *outputs):
            bounds = None if value is None or value.name is None else self._evidence.ranges.get(value.name)
            if bounds is not None and value is not None and max(map(abs, bounds)) > _HALF_MAX:
                return f"'{value.name}' reaches {max(map(abs, bounds)):.3g}, and fp16 ends at {_HALF_MAX:.0f}"
        return ""


def _judge_constant(array: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> str:
    """What fp16 would lose of a constant; empty when nothing that matters."""
    sizes = np.abs(array[np.isfinite(array)])
    largest = float(sizes.max()) if sizes.size else 0.0
    if largest > _HALF_MAX:
        return f"has {largest:.3g}, and fp16 ends at {_HALF_MAX:.0f}"
    least = _HALF_LEAST if array.size == 1 else _HALF_NORMAL
    if 0.0 < largest < least:
        return f"is at most {largest:.3g}, which is too small for fp16"
    return ""


def _find_own_cast(node: ir.Node, ports: Ports) -> str:
    """A cast from one float type to FP32 that the author of the model wrote."""
    source = node.inputs[0] if node.inputs else None
    is_own = is_onnx(node, "Cast") and source is not None and source.dtype is not None and not is_float(source)
    is_own = is_own and source is not None and source.dtype is not None and source.dtype.is_floating_point()
    return "the model itself casts to fp32 here" if is_own else ""


def _follow(node: ir.Node, ports: Ports, makers: Mapping[ir.Value, FloatDecision]) -> FloatDecision:
    """A layer with nothing against it: narrow, unless it only goes on with what others made in FP32."""
    values = [node.inputs[position] for position in sorted(ports.inputs)]
    sources = [value for value in values if value is not None and ir.convenience.get_const_tensor(value) is None]
    wide = [makers[value] for value in sources if value in makers and not makers[value].is_narrow]
    sensitive = [maker for maker in wide if maker.is_sensitive]
    if sensitive and is_onnx(node, *JOINING, *MOVING):
        reason = f"it goes on with what '{layer_name(sensitive[0].node)}' makes in fp32"
        return FloatDecision(node=node, ports=ports, reason=reason, is_sensitive=True)
    if wide and len(wide) == len(sources) and is_onnx(node, *MOVING):
        return FloatDecision(node=node, ports=ports, reason=f"it moves what '{layer_name(wide[0].node)}' makes in fp32")
    return FloatDecision(node=node, ports=ports)


def _settle_moves(decisions: dict[int, FloatDecision]) -> dict[int, FloatDecision]:
    """Leave moves in FP32 whose elements come in FP32 and are read in FP32: narrow, they would only lose digits."""
    of_node = {decision.node: index for index, decision in decisions.items()}
    for index in sorted(decisions, reverse=True):
        decision = decisions[index]
        if decision.is_narrow and is_onnx(decision.node, *MOVING) and _is_between_wide(decision, decisions, of_node):
            reason = "it moves elements between layers in fp32"
            decisions[index] = FloatDecision(node=decision.node, ports=decision.ports, reason=reason)
    return decisions


def _is_between_wide(
    decision: FloatDecision, decisions: Mapping[int, FloatDecision], of_node: Mapping[ir.Node, int]
) -> bool:
    def is_wide(node: ir.Node | None) -> bool:
        return node is None or node not in of_node or not decisions[of_node[node]].is_narrow

    inputs = [decision.node.inputs[position] for position in decision.ports.inputs]
    users = [user for position in decision.ports.outputs for user, _ in decision.node.outputs[position].uses()]
    return all(is_wide(user) for user in users) and all(is_wide(v.producer()) for v in inputs if v is not None)
