"""A network whose quantized layers can be switched on and off while it runs, to see what each of them costs.

Every tensor, weight and bias that a quantized layer takes is there twice, as it was and by way of Q/DQ, and a ``Where``
before the layer takes one of them. The switches are inputs, so one build serves for every choice of layers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import onnx_ir as ir

from dovetail.build.precision.quantize import QuantizationForm, write_quantization
from dovetail.build.precision.quantize_plan import QuantizationPlan
from dovetail.passes.clone import clone_model
from dovetail.passes.editing import add_initializer, names_in

__all__ = ["SwitchedNetwork", "write_switches"]

_BOOL: Final = ir.TensorType(ir.DataType.BOOL)
Inputs = tuple[ir.Value | None, ...]


@dataclass(frozen=True)
class SwitchedNetwork:
    """A copy of a network, and the input that switches each quantized layer."""

    model: ir.Model
    switches: Mapping[ir.Node, str]
    """Layer of the original network -> the name of a BOOL input of the copy."""


def write_switches(
    model: ir.Model, plan: QuantizationPlan, form: QuantizationForm, means: Mapping[str, Any] | None = None
) -> SwitchedNetwork:
    """Copy a network, with a switch for each layer that a plan quantizes."""
    copied = clone_model(model)
    twins = dict(zip(model.graph, copied.graph, strict=True))
    before = {node: tuple(node.inputs) for node in copied.graph.all_nodes()}
    write_quantization(copied, _copy_plan(plan, model.graph, copied.graph, twins), form, means)
    writer = _SwitchWriter(copied, [twins[node] for node in plan.layers if plan.is_quantized(node)])
    for node, inputs in before.items():
        writer.switch_inputs(node, inputs)
    return SwitchedNetwork(copied, {node: writer.names[twins[node]] for node in twins if plan.is_quantized(node)})


def _copy_plan(
    plan: QuantizationPlan, graph: ir.Graph, copied: ir.Graph, twins: Mapping[ir.Node, ir.Node]
) -> QuantizationPlan:
    values = dict(zip(graph.inputs, copied.inputs, strict=True))
    for node, twin in twins.items():
        values |= dict(zip(node.outputs, twin.outputs, strict=True))
    return QuantizationPlan(
        layers={twins[node]: reason for node, reason in plan.layers.items()},
        tensors={values[value]: bounds for value, bounds in plan.tensors.items()},
    )


class _SwitchWriter:
    def __init__(self, model: ir.Model, layers: list[ir.Node]) -> None:
        self._graph = model.graph
        self._taken = names_in(model) | {node.name for node in model.graph.all_nodes() if node.name}
        self._switches = {layer: self._add_input(f"switch_{number}") for number, layer in enumerate(layers)}
        self._either: dict[tuple[ir.Value, ir.Value], ir.Value] = {}
        self._zero: ir.Value | None = None
        self.names = {layer: value.name or "" for layer, value in self._switches.items()}

    def _add_input(self, name: str) -> ir.Value:
        value = ir.Value(name=self._unique(name), type=_BOOL, shape=ir.Shape(()))
        self._graph.inputs.append(value)
        return value

    def switch_inputs(self, node: ir.Node, before: Inputs) -> None:
        """Let a node take each of its inputs as it was, or quantized; a bias that it got is zero where it had none."""
        for position, now in enumerate(node.inputs):
            was = before[position] if position < len(before) else None
            if now is None or now is was:
                continue
            condition = self._condition(node, None if was is None else was.producer())
            other = self._find_zero() if was is None else was
            chosen = self._add_node("Where", [condition, now, other], f"{now.name}.chosen", before=node)
            chosen.type, chosen.shape = now.type, now.shape
            node.replace_input_with(position, chosen)

    def _find_zero(self) -> ir.Value:
        if self._zero is None:
            self._zero = add_initializer(self._graph, "zero", np.asarray(0, np.float32), ir.DataType.FLOAT, self._taken)
        return self._zero

    def _condition(self, reader: ir.Node, maker: ir.Node | None) -> ir.Value:
        """A tensor is quantized for a quantized reader, and for all readers where a quantized layer makes it."""
        found = [self._switches[node] for node in (maker, reader) if node is not None and node in self._switches]
        if len(found) == 1:
            return found[0]
        pair = (found[0], found[1])
        if pair not in self._either:
            first = self._graph[0]
            self._either[pair] = self._add_node("Or", found, f"{found[0].name}_or_{found[1].name}", before=first)
            self._either[pair].type, self._either[pair].shape = _BOOL, ir.Shape(())
        return self._either[pair]

    def _add_node(self, op: str, inputs: list[ir.Value], name: str, *, before: ir.Node) -> ir.Value:
        node = ir.Node("", op, inputs, num_outputs=1, name=self._unique(name))
        node.outputs[0].name = node.name
        graph = before.graph
        assert graph is not None  # noqa: S101 - nodes of a network are in a graph
        graph.insert_before(before, node)
        return node.outputs[0]

    def _unique(self, name: str) -> str:
        unique, count = name, 2
        while unique in self._taken:
            unique, count = f"{name}_{count}", count + 1
        self._taken.add(unique)
        return unique
