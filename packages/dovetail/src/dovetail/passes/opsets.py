"""Raises the opset of a model, where every operator in it means the same afterwards.

A fused operator may be newer than the model. All nodes of a domain are of one version, so the whole model moves, and
only if it can: between two versions of an operator either nothing but the list of types changed, which the schemas
themselves tell, or the change is in a table here, or the node is rewritten. Otherwise the model stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Final

import numpy as np
import onnx
import onnx_ir as ir

from dovetail.passes._graph import add_initializer, is_onnx, names_in

__all__ = ["explain_opset", "model_opset", "raise_opset"]

Serves = Callable[[ir.Node, int], bool]

_HARMLESS: Final = frozenset(
    {
        ("Add", 14),
        ("BatchNormalization", 15),
        ("Cast", 19),
        ("CastLike", 19),
        ("DequantizeLinear", 19),
        ("DequantizeLinear", 21),
        ("DequantizeLinear", 23),
        ("Div", 14),
        ("GRU", 14),
        ("Identity", 14),
        ("LSTM", 14),
        ("Loop", 16),
        ("Mul", 14),
        ("Pad", 18),
        ("Pad", 19),
        ("QLinearMatMul", 21),
        ("QuantizeLinear", 19),
        ("QuantizeLinear", 21),
        ("QuantizeLinear", 23),
        ("RNN", 14),
        ("ReduceMax", 20),
        ("ReduceMin", 20),
        ("Reshape", 14),
        ("ScatterElements", 16),
        ("ScatterElements", 18),
        ("ScatterND", 16),
        ("ScatterND", 18),
        ("Shape", 15),
        ("Sub", 14),
    }
)
"""Operators and the version in which their text or signature changed, but not what a node of the version before does:
a new optional input or attribute whose absence is the old behaviour, a new mode, new names for the types."""

_REDUCTIONS: Final = tuple(
    f"Reduce{name}" for name in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "SumSquare")
)
_AXES_BECAME_INPUT: Final = 18
_SPLIT_NEEDS_COUNT: Final = 18


def model_opset(model: ir.Model) -> int:
    """The version of ONNX's own operators in a model."""
    return model.opset_imports.get("", model.opset_imports.get("ai.onnx", 1))


def raise_opset(model: ir.Model, version: int, *, serves: Serves = lambda _node, _version: True) -> bool:
    """Move a model to a higher opset; it stays as it is when that would change what a node means.

    Args:
        model: Changed in place, and not at all when the answer is no.
        version: The opset to reach. A model that is there already is left alone.
        serves: Whether whoever has a node could still run it at an opset.

    Returns:
        Whether the model is at least of that version now.
    """
    if model_opset(model) >= version:
        return True
    if explain_opset(model, version, serves=serves) is not None:
        return False
    taken: set[str] | None = None
    for node, step in _rewritten(model, version):
        taken = names_in(model) if taken is None else taken
        _REWRITES[step](node, taken)
    model.opset_imports.pop("ai.onnx", None)
    model.opset_imports[""] = version
    return True


def explain_opset(model: ir.Model, version: int, *, serves: Serves = lambda _node, _version: True) -> str | None:
    """Why a model cannot be raised to an opset; None when it can."""
    current = model_opset(model)
    if version > onnx.defs.onnx_opset_version():
        return f"opset {version} is unknown to the installed onnx"
    for node in model.graph.all_nodes():
        if not is_onnx(node, node.op_type):
            continue
        step = next((step for step in _changes(node.op_type, current, version) if step not in _REWRITES), None)
        if step is not None:
            return f"'{node.op_type}' of node '{node.name}' is another operator from opset {step[1]}"
        if not serves(node, version):
            return f"node '{node.name}' ({node.op_type}) has no kernel for opset {version}"
    return None


Step = tuple[str, int]


def _rewritten(model: ir.Model, version: int) -> list[tuple[ir.Node, Step]]:
    current = model_opset(model)
    nodes = [node for node in model.graph.all_nodes() if is_onnx(node, node.op_type)]
    return [(node, step) for node in nodes for step in _changes(node.op_type, current, version)]


@cache
def _changes(op: str, current: int, version: int) -> tuple[Step, ...]:
    """The versions between two at which nodes of an operator cannot be left as they are."""
    return tuple(
        (op, new.since_version)
        for old, new in _steps(op, current, version)
        if (op, new.since_version) not in _HARMLESS and not _only_adds_types(old, new)
    )


def _steps(op: str, current: int, version: int) -> Iterator[tuple[onnx.defs.OpSchema, onnx.defs.OpSchema]]:
    while version > current:
        try:
            new = onnx.defs.get_schema(op, version, "")
            if new.since_version <= current:
                return
            version = new.since_version - 1
            old = onnx.defs.get_schema(op, version, "")
        except onnx.defs.SchemaError:  # the operator is not there at all before: only a fused node can be
            return
        yield old, new


def _only_adds_types(old: onnx.defs.OpSchema, new: onnx.defs.OpSchema) -> bool:
    if new.deprecated or (old.doc or "").split() != (new.doc or "").split() or _signature(old) != _signature(new):
        return False
    before = {each.type_param_str: set(each.allowed_type_strs) for each in old.type_constraints}
    after = {each.type_param_str: set(each.allowed_type_strs) for each in new.type_constraints}
    return before.keys() == after.keys() and all(before[name] <= after[name] for name in before)


def _signature(schema: onnx.defs.OpSchema) -> tuple[object, ...]:
    ports = [(each.name, each.option, each.type_str, each.min_arity) for each in [*schema.inputs, *schema.outputs]]
    attributes = sorted(
        (name, str(each.type), each.required, str(each.default_value)) for name, each in schema.attributes.items()
    )
    return (len(schema.inputs), tuple(ports), tuple(attributes))


# nodes that are written in another way from a version on


def _move_axes(node: ir.Node, taken: set[str]) -> None:
    axes = node.attributes.pop("axes", None)
    graph = node.graph
    if axes is None or not isinstance(graph, ir.Graph):
        return
    array = np.asarray(axes.as_ints(), dtype=np.int64)
    value = add_initializer(graph, f"{node.name or node.op_type}_axes", array, ir.DataType.INT64, taken)
    node.resize_inputs(2)
    node.replace_input_with(1, value)


def _count_parts(node: ir.Node, _taken: set[str]) -> None:
    if len(node.inputs) < 2 or node.inputs[1] is None:
        node.attributes["num_outputs"] = ir.AttrInt64("num_outputs", len(node.outputs))


_REWRITES: Final[dict[Step, Callable[[ir.Node, set[str]], None]]] = {
    **{(op, _AXES_BECAME_INPUT): _move_axes for op in _REDUCTIONS},
    ("Split", _SPLIT_NEEDS_COUNT): _count_parts,
}
