"""Smaller models out of a model: some of its nodes, with what they read of the others as inputs or as constants.

Everything here makes a new model and leaves the old one as it is. What a cut tensor held in a run of the whole model
is asked for by name; where nobody knows, its declared type has to do.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any

import numpy as np
import onnx_ir as ir

from dovetail.build.assign.borders import Border, extract_model, find_border

__all__ = ["CutKind", "Record", "cut_model", "keep_outputs", "resize"]

Record = Callable[[Collection[str]], Mapping[str, Any]]
"""Gives what tensors of the whole model held in a run, as far as that is known."""


class CutKind(Enum):
    """What becomes of a tensor whose maker is left out."""

    STATIC_INPUT = "inputs of the shapes they had"
    CONSTANT = "constants"
    DECLARED_INPUT = "inputs of the shapes they are declared with"


def cut_model(model: ir.Model, nodes: Sequence[ir.Node], cut: CutKind, record: Record) -> ir.Model | None:
    """These nodes of a model's main graph as a model; None when a tensor on the border has no known type.

    Its outputs are those of the model, and what the nodes that are left out read.
    """
    border = find_border(nodes)
    if not border.outputs:
        return None
    part = _extract(model, nodes, border)
    own = {value.name for value in model.graph.inputs}
    return part if _settle_inputs(part, own, cut, record) else None


def keep_outputs(model: ir.Model, names: Collection[str]) -> ir.Model:
    """A copy of a model with some of its outputs, and the nodes that these need."""
    outputs = [value for value in model.graph.outputs if value.name in names]
    nodes = _ancestors(model.graph, outputs)
    border = find_border(nodes)
    inputs = [value for value in model.graph.inputs if value in set(border.inputs)]
    # An output may be an input or a weight itself.
    through = [value for value in outputs if value.producer() is None]
    weights = [value for value in through if value.const_value is not None]
    return _extract(
        model,
        nodes,
        Border(
            inputs=[*inputs, *(v for v in through if v.const_value is None and v not in inputs)],
            outputs=outputs,
            constants=[*border.constants, *(v for v in weights if v not in border.constants)],
        ),
    )


def _ancestors(graph: ir.Graph, outputs: Iterable[ir.Value]) -> list[ir.Node]:
    wanted: set[ir.Node] = set()
    todo = [node for value in outputs if (node := value.producer()) is not None]
    while todo:
        node = todo.pop()
        if node not in wanted:
            wanted.add(node)
            border = find_border([node])
            todo += [maker for value in border.inputs if (maker := value.producer()) is not None]
    return [node for node in graph if node in wanted and node.op_type != "Constant"]


def _extract(model: ir.Model, nodes: Sequence[ir.Node], border: Border) -> ir.Model:
    part = extract_model(model, nodes, border, name=model.graph.name or "reduced")
    for identifier in _called_functions(model, nodes):
        part.functions[identifier] = model.functions[identifier]
    return part


def _called_functions(model: ir.Model, nodes: Iterable[ir.Node]) -> list[ir.OperatorIdentifier]:
    """The functions that nodes call, and those that these call."""
    found: dict[ir.OperatorIdentifier, None] = {}
    todo = list(nodes)
    while todo:
        node = todo.pop()
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH and not attribute.is_ref():
                todo += attribute.as_graph()
        identifier = node.op_identifier()
        if identifier in model.functions and identifier not in found:
            found[identifier] = None
            todo += model.functions[identifier]
    return list(found)


# borders


def _settle_inputs(part: ir.Model, own: Collection[str | None], cut: CutKind, record: Record) -> bool:
    """Give new inputs a type, a shape or a value; False when one has no type that anybody knows."""
    new = [value for value in part.graph.inputs if value.name not in own]
    known = record([value.name or "" for value in new])
    for value in new:
        held = known.get(value.name or "")
        if cut is CutKind.CONSTANT and isinstance(held, np.ndarray):
            _make_constant(part, value, held)
        elif isinstance(held, np.ndarray):
            _give_type(value, held, is_static=cut is not CutKind.DECLARED_INPUT)
        if value.type is None:
            return False
    return True


def _make_constant(part: ir.Model, value: ir.Value, held: Any) -> None:
    position = part.graph.inputs.index(value)
    del part.graph.inputs[position]
    value.const_value = _as_tensor(held, value.name or "")
    value.type = ir.TensorType(value.const_value.dtype)
    value.shape = ir.Shape(held.shape)
    part.graph.register_initializer(value)


def _as_tensor(held: Any, name: str) -> ir.TensorProtocol:
    if held.dtype == object or held.dtype.kind in "SU":
        words = [word.encode() if isinstance(word, str) else word for word in held.ravel().tolist()]
        return ir.StringTensor(words, shape=ir.Shape(held.shape), name=name)
    return ir.tensor(held, name=name)


def _give_type(value: ir.Value, held: Any, *, is_static: bool) -> None:
    value.type = ir.TensorType(_as_tensor(held, "").dtype)
    if is_static or value.shape is None or len(value.shape) != held.ndim:
        value.shape = ir.Shape(held.shape)


# sizes


def resize(model: ir.Model, sizes: Mapping[tuple[str, int], int]) -> ir.Model:
    """A copy in which axes of inputs and weights, by name and number, are cut to a smaller size.

    Of the shapes that results were known to have only the ranks are kept: sizes follow from the inputs.
    """
    copy = model.clone()
    for value in (*copy.graph.inputs, *copy.graph.initializers.values()):
        new = {axis: size for (name, axis), size in sizes.items() if name == value.name}
        if new and value.shape is not None:
            _resize_value(value, new)
    for node in copy.graph.all_nodes():
        for output in node.outputs:
            output.shape = None if output.shape is None else ir.Shape([None] * len(output.shape))
    return copy


def _resize_value(value: ir.Value, new: Mapping[int, int]) -> None:
    shape = value.shape
    if shape is None:
        return
    if value.const_value is not None:
        array = value.const_value.numpy()
        array = array[tuple(slice(0, new.get(axis)) for axis in range(array.ndim))]
        value.const_value = ir.tensor(np.ascontiguousarray(array).reshape(array.shape), name=value.name)
    value.shape = ir.Shape([new.get(axis, dim) for axis, dim in enumerate(shape)])
