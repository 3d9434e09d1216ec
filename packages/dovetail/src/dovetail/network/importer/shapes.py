"""Types and shapes of an imported model, found again from its inputs.

What a file says about values between inputs and outputs is a hint that is often stale; where inference knows, it wins.
"""

from __future__ import annotations

import onnx_ir as ir

from dovetail.errors import DovetailError
from dovetail.loggers import ILogger, Severity
from dovetail.network.importer.problems import Problems, describe_node, quote
from dovetail.network.importer.tensors import make_strings, walk_graphs
from dovetail.network.inference.dim_exprs import describe_shape
from dovetail.network.inference.shapes import ShapeInference
from dovetail.network.onnx_schema import SchemaCheck, opset_of
from dovetail.network.value_types import describe_type, forget_object_shapes, has_no_shape

__all__ = ["infer_shapes"]

_Declared = dict[ir.Value, tuple[ir.TypeProtocol | None, ir.Shape | None]]


def infer_shapes(model: ir.Model, logger: ILogger, problems: Problems) -> None:
    """Type the whole model; what contradicts itself is noted."""
    _settle_strings(model)
    declared = _forget(model)
    inference = ShapeInference(model.opset_imports)
    check = SchemaCheck(model.opset_imports, problems)
    for value in model.graph.inputs:
        inference.add_input(value)
    for node in model.graph:
        try:
            inference.infer_node(node)
        except DovetailError as error:
            problems.add_error(
                error, where=error.where or describe_node(node, opset_of(model.opset_imports, node.domain))
            )
        for value in node.outputs:
            _restore(value, declared)
    for node in model.graph.all_nodes():
        check.check_types(node)
    _compare_outputs(model.graph, declared, logger, problems)


def _forget(model: ir.Model) -> _Declared:
    """Take away what the file says of everything that nodes make, and remember it."""
    declared: _Declared = {}
    for graph in walk_graphs(model.graph):
        forget_object_shapes(graph.inputs)
        for node in graph:
            for value in node.outputs:
                declared[value] = (value.type, value.shape)
                value.type = value.shape = None
    return declared


def _restore(value: ir.Value, declared: _Declared) -> None:
    """Where inference knows nothing, take the file's word, but not its names for dimensions."""
    given_type, given_shape = declared[value]
    if value.type is None:
        value.type = given_type
    if value.shape is None and given_shape is not None and not _has_inner_shape(value):
        value.shape = ir.Shape([dim if isinstance(dim, int) and dim >= 0 else None for dim in given_shape])


def _has_inner_shape(value: ir.Value) -> bool:
    """Whether a shape is that of something inside an object, or comes out of one: only the run tells it."""
    producer = value.producer()
    inputs = () if producer is None else producer.inputs
    return has_no_shape(value) or any(source is not None and has_no_shape(source) for source in inputs)


def _settle_strings(model: ir.Model) -> None:
    """Give constants that are strings a tensor, as other constants have."""
    for node in model.graph.all_nodes():
        for name in ("value_string", "value_strings") if node.op_type == "Constant" and not node.domain else ():
            attribute = node.attributes.pop(name, None)
            if attribute is not None:
                texts = [attribute.as_string()] if name == "value_string" else list(attribute.as_strings())
                dims = () if name == "value_string" else (len(texts),)
                tensor = make_strings([text.encode() for text in texts], dims, node.outputs[0].name)
                node.attributes.add(ir.AttrTensor("value", tensor))


def _compare_outputs(graph: ir.Graph, declared: _Declared, logger: ILogger, problems: Problems) -> None:
    for value in graph.outputs:
        given_type, given_shape = declared.get(value, (None, None))
        where = f"output {quote(value.name)}"
        if given_type is not None and value.type is not None and given_type != value.type:
            types = [
                kind.dtype.name if isinstance(kind, ir.TensorType) else describe_type(kind)
                for kind in (given_type, value.type)
            ]
            problems.add(f"it is declared {types[0]} and computed as {types[1]}", where=where)
        if given_shape is not None and value.shape is not None and not _may_be_equal(given_shape, value.shape):
            logger.log(
                Severity.WARNING, f"{where}: it is declared {given_shape} and computed as {describe_shape(value.shape)}"
            )


def _may_be_equal(first: ir.Shape, second: ir.Shape) -> bool:
    if len(first) != len(second):
        return False
    pairs = zip(first, second, strict=True)
    return all(not (isinstance(a, int) and isinstance(b, int)) or a == b for a, b in pairs)
