"""Raises the opset of a model, where every operator in it means the same afterwards.

A fused operator may be newer than the model. All nodes of a domain are of one version, so the whole model moves, and
only if it can: between two versions of an operator either nothing but the list of types changed, which the schemas
themselves tell, or the change is in a table here, or the node is rewritten. Otherwise the model stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np
import onnx
import onnx_ir as ir

from dovetail.passes._graph import add_initializer, is_onnx, names_in
from dovetail.passes._match import int_attribute, normalize_axis, rank_of

__all__ = ["explain_opset", "model_opset", "raise_opset"]

Serves = Callable[[ir.Node, int], bool]

_HARMLESS: Final[dict[str, tuple[int, ...]]] = {
    "Abs": (13,),
    "Add": (14,),
    "ArgMax": (12, 13),
    "ArgMin": (12, 13),
    "BatchNormalization": (15,),
    "Cast": (13, 19),
    "CastLike": (19,),
    "Ceil": (13,),
    "Clip": (13,),
    "Constant": (12,),
    "DepthToSpace": (13,),
    "DequantizeLinear": (13, 19, 21, 23),
    "Div": (14,),
    "Erf": (13,),
    "Floor": (13,),
    "GRU": (14,),
    "Gather": (13,),
    "GatherElements": (13,),
    "GatherND": (12, 13),
    "Gemm": (13,),
    "Identity": (14,),
    "LRN": (13,),
    "LSTM": (14,),
    "Loop": (13, 16),
    "MaxPool": (12,),
    "MeanVarianceNormalization": (13,),
    "Mul": (14,),
    "Pad": (13, 18, 19),
    "Pow": (12,),
    "QLinearMatMul": (21,),
    "QuantizeLinear": (13, 19, 21, 23),
    "RNN": (14,),
    "ReduceL1": (13,),
    "ReduceL2": (13,),
    "ReduceLogSum": (13,),
    "ReduceLogSumExp": (13,),
    "ReduceMax": (12, 13, 20),
    "ReduceMean": (13,),
    "ReduceMin": (12, 13, 20),
    "ReduceProd": (13,),
    "ReduceSumSquare": (13,),
    "Reshape": (14,),
    "ScatterElements": (16, 18),
    "ScatterND": (16, 18),
    "Shape": (15,),
    "Slice": (13,),
    "Sub": (14,),
}
"""Operators and the version in which their text or signature changed, but not what a node of the version before does:
a new optional input or attribute whose absence is the old behaviour, a new mode, new names for the types."""

_REDUCTIONS: Final = tuple(
    f"Reduce{name}" for name in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "SumSquare")
)


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
    for node, step in _list_rewrites(model, version):
        taken = names_in(model) if taken is None else taken
        _REWRITES[step].write(node, taken)
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
        step = next((step for step in _changes(node.op_type, current, version) if not _can_rewrite(node, step)), None)
        if step is not None:
            return f"'{node.op_type}' of node '{node.name}' is another operator from opset {step[1]}"
        if not serves(node, version):
            return f"node '{node.name}' ({node.op_type}) has no kernel for opset {version}"
    return None


Step = tuple[str, int]


def _list_rewrites(model: ir.Model, version: int) -> list[tuple[ir.Node, Step]]:
    current = model_opset(model)
    nodes = [node for node in model.graph.all_nodes() if is_onnx(node, node.op_type)]
    return [(node, step) for node in nodes for step in _changes(node.op_type, current, version)]


@cache
def _changes(op: str, current: int, version: int) -> tuple[Step, ...]:
    """The versions between two at which nodes of an operator cannot be left as they are."""
    steps = reversed(list(_steps(op, current, version)))  # the oldest first: each starts from what the last wrote
    return tuple(
        (op, new.since_version)
        for old, new in steps
        if new.since_version not in _HARMLESS.get(op, ()) and not _only_adds_types(old, new)
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


@dataclass(frozen=True)
class _OpsetRewrite:
    """How a node is written from a version on, and for which nodes that is known to be the same."""

    write: Callable[[ir.Node, set[str]], None]
    fits: Callable[[ir.Node], bool]


def _can_rewrite(node: ir.Node, step: Step) -> bool:
    return step in _REWRITES and _REWRITES[step].fits(node)


def _move_attribute(name: str) -> Callable[[ir.Node, set[str]], None]:
    """An attribute that became the second input."""

    def write(node: ir.Node, taken: set[str]) -> None:
        numbers = node.attributes.pop(name, None)
        if numbers is None or not isinstance(node.graph, ir.Graph):
            return
        array = np.asarray(numbers.as_ints(), dtype=np.int64)
        value = add_initializer(node.graph, f"{node.name or node.op_type}_{name}", array, ir.DataType.INT64, taken)
        node.resize_inputs(2)
        node.replace_input_with(1, value)

    return write


def _count_parts(node: ir.Node, _taken: set[str]) -> None:
    if len(node.inputs) < 2 or node.inputs[1] is None:
        node.attributes["num_outputs"] = ir.AttrInt64("num_outputs", len(node.outputs))


def _name_last_axis(node: ir.Node, _taken: set[str]) -> None:
    node.attributes["axis"] = ir.AttrInt64("axis", -1)


def _leave(_node: ir.Node, _taken: set[str]) -> None:
    """The node is the same."""


def _is_any(_node: ir.Node) -> bool:
    return True


def _is_over_last_axis(node: ir.Node) -> bool:
    """Before opset 13 all axes from one on were taken as one; that is the same for the last."""
    rank = rank_of(node.inputs[0])
    return rank is not None and rank > 0 and normalize_axis(int_attribute(node, "axis", 1), rank) == rank - 1


def _rounds_down(node: ir.Node) -> bool:
    """What changed in pools is how the last window is counted when sizes are rounded up."""
    return not int_attribute(node, "ceil_mode", 0)


def _is_inference(node: ir.Node) -> bool:
    return len(node.outputs) == 1


_REWRITES: Final[dict[Step, _OpsetRewrite]] = {
    **{(op, 18): _OpsetRewrite(_move_attribute("axes"), _is_any) for op in _REDUCTIONS},
    **{(op, 13): _OpsetRewrite(_move_attribute("axes"), _is_any) for op in ("ReduceSum", "Squeeze", "Unsqueeze")},
    **{(op, 13): _OpsetRewrite(_name_last_axis, _is_over_last_axis) for op in ("Hardmax", "LogSoftmax", "Softmax")},
    ("Split", 13): _OpsetRewrite(_move_attribute("split"), _is_any),
    ("Split", 18): _OpsetRewrite(_count_parts, _is_any),
    ("AveragePool", 19): _OpsetRewrite(_leave, _rounds_down),
    ("AveragePool", 22): _OpsetRewrite(_leave, _rounds_down),
    ("MaxPool", 22): _OpsetRewrite(_leave, _rounds_down),
    ("BatchNormalization", 14): _OpsetRewrite(_leave, _is_inference),
}
