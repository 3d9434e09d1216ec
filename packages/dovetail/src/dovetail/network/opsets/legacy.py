"""Models from before opset 9, rewritten to opset 9.

Kernels start where today's forms of the operators start. Old forms differ in small ways: attributes about memory that
mean nothing, parameters as attributes that are inputs now, and broadcasting along an axis that a node names. ONNX's own
converter lacks many of these steps, among them the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import onnx
import onnx_ir as ir

from dovetail.errors import DovetailError, UnsupportedOpError
from dovetail.network.importer.problems import Problems, describe_node, quote
from dovetail.network.inference.shapes import ShapeInference
from dovetail.network.opsets.versions import has_same_meaning

__all__ = ["LEGACY_TARGET", "modernise"]

LEGACY_TARGET: Final = 9
"""The opset that old models are rewritten to."""

Rewrite = Callable[[ir.Node], None]


def modernise(model: ir.Model, is_foreign: Callable[[ir.Node], bool], problems: Problems) -> None:
    """Rewrite a model of an opset before 9 to opset 9.

    Args:
        model: Changed in place, bodies included.
        is_foreign: Says which nodes are no ONNX operators, and stay as they are.
        problems: Nodes that have no form at opset 9; then the model is left half done.
    """
    opset = model.opset_imports[""]
    inference = ShapeInference({**model.opset_imports, "": LEGACY_TARGET})
    for value in model.graph.inputs:
        inference.add_input(value)
    _LegacyWalk(opset, is_foreign, inference, problems).visit(model.graph)
    model.opset_imports[""] = LEGACY_TARGET


class _LegacyWalk:
    """Rewrites node after node, in the order of the graph, so that the shapes of a node's inputs are known."""

    def __init__(
        self, opset: int, is_foreign: Callable[[ir.Node], bool], inference: ShapeInference, problems: Problems
    ) -> None:
        self._opset = opset
        self._is_foreign = is_foreign
        self._inference = inference
        self._problems = problems

    def visit(self, graph: ir.Graph) -> None:
        """Rewrite a graph and its bodies."""
        for node in list(graph):
            for attribute in node.attributes.values():
                if attribute.type == ir.AttributeType.GRAPH and not attribute.is_ref():
                    self.visit(attribute.as_graph())
            if not self._is_foreign(node):
                self._rewrite(node)

    def _rewrite(self, node: ir.Node) -> None:
        try:
            _drop(node, "consumed_inputs")
            for since, rule in _RULES.get(node.op_type, ()):
                if self._opset < since:
                    rule(node)
            if node.op_type not in _RULES and not has_same_meaning(node, self._opset, LEGACY_TARGET):
                reason = f"the operator has another meaning at opset {LEGACY_TARGET}"
                raise UnsupportedOpError(reason, fix="export the model at a newer opset")
        except DovetailError as error:
            self._problems.add_error(error, where=describe_node(node, self._opset))
            return
        try:
            self._inference.infer_node(node)
        except DovetailError:
            return  # the shapes are inferred again, and told about, when the whole model is there


# what rules use


def _drop(node: ir.Node, *names: str) -> None:
    for name in names:
        node.attributes.pop(name, None)


def _int(node: ir.Node, name: str, default: int) -> int:
    attribute = node.attributes.get(name)
    return default if attribute is None else int(attribute.value)


def _rank(value: ir.Value | None) -> int:
    if value is None or value.shape is None:
        name = "" if value is None else value.name
        raise UnsupportedOpError(
            f"input {quote(name)} must have a known rank, because the node broadcasts along an axis",
            fix="infer shapes before, or export the model at a newer opset",
        )
    return len(value.shape)


def _constant(value: ir.Value | None) -> Any:
    tensor = None if value is None else ir.convenience.get_const_tensor(value)
    if value is None or tensor is None:
        raise UnsupportedOpError(
            f"input {quote('' if value is None else value.name)} must be a constant to be an attribute",
            fix="export the model at a newer opset",
        )
    return tensor.numpy().reshape(-1)


def _new_name(node: ir.Node, what: str) -> str:
    return f"{node.name or node.op_type}/{what}"


def _insert(node: ir.Node, op: str, inputs: Sequence[ir.Value], attributes: Sequence[ir.Attr], what: str) -> ir.Value:
    """A new node before a node; its only output comes back."""
    new = ir.Node("", op, inputs, attributes, num_outputs=1, name=_new_name(node, what))
    new.outputs[0].name = _new_name(node, f"{what}_out")
    if node.graph is None:
        raise UnsupportedOpError("the node belongs to no graph")
    node.graph.insert_before(node, new)
    return new.outputs[0]


def _insert_constant(node: ir.Node, array: Any, what: str) -> ir.Value:
    tensor = ir.Tensor(np.asarray(array), name=_new_name(node, what))
    value = _insert(node, "Constant", [], [ir.AttrTensor("value", tensor)], what)
    value.type, value.shape = ir.TensorType(tensor.dtype), ir.Shape(tensor.shape.dims)
    value.const_value = tensor
    return value


def _append_axes(node: ir.Node, index: int, count: int) -> None:
    """Give an input dimensions of size 1 at its end."""
    value = node.inputs[index]
    if value is None or count <= 0:
        return
    rank = _rank(value)
    axes = list(range(rank, rank + count))
    wider = _insert(node, "Unsqueeze", [value], [ir.AttrInt64s("axes", axes)], f"input_{index}")
    wider.type = value.type
    wider.shape = ir.Shape([*(value.shape or ()), *[1] * count])
    node.replace_input_with(index, wider)


# the rules


def _modernise_binary(node: ir.Node) -> None:
    """Before opset 7 the second input was aligned with an axis, by default with the last dimensions."""
    axis = node.attributes.get("axis")
    if _int(node, "broadcast", 0) and axis is not None:
        first, second = _rank(node.inputs[0]), _rank(node.inputs[1])
        start = axis.as_int() + first if axis.as_int() < 0 else axis.as_int()
        _append_axes(node, 1, first - start - second)
    _drop(node, "axis", "broadcast")


def _modernise_prelu(node: ir.Node) -> None:
    """A vector of slopes belonged to the channels."""
    if _rank(node.inputs[1]) == 1:
        _append_axes(node, 1, _rank(node.inputs[0]) - 2)


def _modernise_norm(node: ir.Node) -> None:
    if not _int(node, "spatial", 1):
        raise UnsupportedOpError("spatial = 0 has no form at opset 9", fix="export the model at a newer opset")
    if "is_test" in node.attributes and not _int(node, "is_test", 0) and len(node.outputs) > 1:
        raise UnsupportedOpError("the node trains, as is_test = 0 says", fix="export the model for inference")
    _drop(node, "spatial", "is_test")


def _modernise_dropout(node: ir.Node) -> None:
    _drop(node, "is_test")


def _modernise_gemm(node: ir.Node) -> None:
    _drop(node, "broadcast")


def _modernise_cast(node: ir.Node) -> None:
    to = node.attributes.get("to")
    if to is None or to.type != ir.AttributeType.STRING:
        return
    try:
        code = onnx.TensorProto.DataType.Value(to.as_string().upper())
    except ValueError as error:
        raise UnsupportedOpError(f"there is no type {quote(to.as_string())}") from error
    node.attributes["to"] = ir.AttrInt64("to", code)


def _modernise_pad(node: ir.Node) -> None:
    pads = node.attributes.pop("paddings", None)
    if pads is not None:
        node.attributes["pads"] = ir.AttrInt64s("pads", pads.as_ints())


def _modernise_split(node: ir.Node) -> None:
    if len(node.inputs) > 1 and node.inputs[1] is not None:
        node.attributes["split"] = ir.AttrInt64s("split", [int(size) for size in _constant(node.inputs[1])])
    node.resize_inputs(1)


def _modernise_concat(node: ir.Node) -> None:
    node.attributes.setdefault("axis", ir.AttrInt64("axis", 1))


def _modernise_tile(node: ir.Node) -> None:
    tiles, axis = int(_constant(node.inputs[1])[0]), int(_constant(node.inputs[2])[0])
    repeats = np.ones(_rank(node.inputs[0]), np.int64)
    repeats[axis] = tiles
    node.resize_inputs(2)
    node.replace_input_with(1, _insert_constant(node, repeats, "repeats"))


def _modernise_reshape(node: ir.Node) -> None:
    shape = node.attributes.pop("shape", None)
    sizes = np.array([] if shape is None else shape.as_ints(), np.int64)
    node.resize_inputs(2)
    node.replace_input_with(1, _insert_constant(node, sizes, "shape"))


def _modernise_p(node: ir.Node) -> None:
    """The norm was a float; only whole ones have a form today."""
    p = node.attributes.pop("p", None)
    number = 2.0 if p is None else float(p.value)
    if number != int(number):
        raise UnsupportedOpError(f"a norm of p = {number} has no form at opset 9")
    node.attributes["p"] = ir.AttrInt64("p", int(number))


def _modernise_recurrent(node: ir.Node) -> None:
    _drop(node, "output_sequence")


def _modernise_upsample(node: ir.Node) -> None:
    """Scales were two numbers, then a list, and then an input."""
    scales = node.attributes.pop("scales", None)
    if scales is None:
        height, width = node.attributes.pop("height_scale"), node.attributes.pop("width_scale")
        numbers = [1.0, 1.0, float(height.value), float(width.value)]
    else:
        numbers = list(scales.as_floats())
    node.resize_inputs(2)
    node.replace_input_with(1, _insert_constant(node, np.array(numbers, np.float32), "scales"))


_BINARY: Final = ("Add", "And", "Div", "Equal", "Greater", "Less", "Mul", "Or", "Pow", "Sub", "Xor")
_ONLY_MEMORY: Final = (
    *("Abs", "Ceil", "Clip", "Elu", "Exp", "Floor", "HardSigmoid", "InstanceNormalization", "LeakyRelu", "Log"),
    *("Max", "Mean", "Min", "Neg", "Reciprocal", "Relu", "Selu", "Sigmoid", "Sqrt", "Sum", "Tanh"),
)
"""Operators whose old forms had ``consumed_inputs``, and no other difference."""


def _modernise_scan(node: ir.Node) -> None:
    """A scan over sequences becomes the body of one over batches."""
    lengths, *values = node.inputs
    if lengths is not None:
        raise UnsupportedOpError(
            "it has sequence lengths, which Scan lacks since opset 9", fix="export the model at a newer opset"
        )
    body, count = node.attributes["body"].as_graph(), _int(node, "num_scan_inputs", 0)
    backwards = node.attributes.get("directions")
    directions = [0] * count if backwards is None else list(backwards.as_ints())
    parts = [_without_batch(value, _new_name(node, f"in{i}")) for i, value in enumerate(values)]
    attributes = [ir.AttrInt64("num_scan_inputs", count), ir.AttrInt64s("scan_input_directions", directions)]
    results = [ir.Value(name=_new_name(node, f"out{i}")) for i in range(len(node.outputs))]
    node.attributes.clear()
    inner = ir.Node(
        "", "Scan", parts, [ir.AttrGraph("body", body), *attributes], outputs=results, name=_new_name(node, "batch")
    )
    outer = ir.Graph(parts, results, nodes=[inner], opset_imports=body.opset_imports, name=_new_name(node, "batches"))
    node.attributes["body"] = ir.AttrGraph("body", outer)
    node.attributes["num_scan_inputs"] = ir.AttrInt64("num_scan_inputs", len(values))
    node.resize_inputs(len(values))
    for position, value in enumerate(values):
        node.replace_input_with(position, value)


def _without_batch(value: ir.Value | None, name: str) -> ir.Value:
    if value is None:
        raise UnsupportedOpError("one of its inputs is absent")
    shape = None if value.shape is None or not len(value.shape) else ir.Shape(value.shape[1:])
    return ir.Value(name=name, type=value.type, shape=shape)


_RULES: Final[Mapping[str, Sequence[tuple[int, Rewrite]]]] = {
    **dict.fromkeys(_BINARY, ((7, _modernise_binary),)),
    **dict.fromkeys(_ONLY_MEMORY, ()),
    "BatchNormalization": ((9, _modernise_norm),),
    "Cast": ((6, _modernise_cast),),
    "Concat": ((4, _modernise_concat),),
    "Dropout": ((7, _modernise_dropout),),
    "GRU": ((7, _modernise_recurrent),),
    "Gemm": ((7, _modernise_gemm),),
    "GlobalLpPool": ((2, _modernise_p),),
    "LSTM": ((7, _modernise_recurrent),),
    "LpPool": ((2, _modernise_p),),
    "PRelu": ((7, _modernise_prelu),),
    "Pad": ((2, _modernise_pad),),
    "RNN": ((7, _modernise_recurrent),),
    "Reshape": ((5, _modernise_reshape),),
    "Scan": ((9, _modernise_scan),),
    "Split": ((2, _modernise_split),),
    "Tile": ((6, _modernise_tile),),
    "Upsample": ((9, _modernise_upsample),),
}
"""For each operator the rules, each with the opset from which on it is not needed."""
