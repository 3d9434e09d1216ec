"""A model at another opset, by ONNX's own converter.

The converter loses what it does not know: functions, notes, operators that ONNX lacks, and weights twice over in
memory. So it gets a model without them. Foreign nodes stand in it under a domain that it passes over, weights stand in
it as inputs, and both come back by their names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import onnx
import onnx_ir as ir
from onnx import version_converter

from dovetail.errors import UnsupportedOpError
from dovetail.network.importer.maps import model_from_proto, model_to_proto
from dovetail.network.importer.problems import quote
from dovetail.network.importer.tensors import walk_graphs
from dovetail.network.opsets.versions import changes_in_silence

__all__ = ["convert_opset"]

_GUARD: Final = "dovetail.guarded"
_SMALL: Final = 4096
"""Bytes up to which a weight goes along, because the converter reads it when it becomes an attribute or an input."""


def convert_opset(model: ir.Model, target: int, is_foreign: Callable[[ir.Node], bool]) -> ir.Model:
    """A model with the same names at another version of the ONNX operator set.

    Args:
        model: Without functions, and with a name for each node. It is left as it is.
        target: The version to convert to.
        is_foreign: Says which nodes the converter must not touch.

    Raises:
        UnsupportedOpError: The converter has no way from here to there.
    """
    _refuse_silent_changes(model, target, is_foreign)
    skeleton = _Skeleton(model, is_foreign)
    proto = skeleton.make_proto()
    try:
        converted = version_converter.convert_version(proto, target)
        result = model_from_proto(converted)
    except Exception as error:  # the converter fails in many ways, as RuntimeError or worse
        opset = model.opset_imports[""]
        raise UnsupportedOpError(
            f"ONNX's converter cannot take the model from opset {opset} to {target}: {_reason(error)}",
            where="model",
            fix="export the model at a newer opset",
        ) from error
    skeleton.restore(result)
    return result


def _refuse_silent_changes(model: ir.Model, target: int, is_foreign: Callable[[ir.Node], bool]) -> None:
    opset = model.opset_imports[""]
    for node in model.graph.all_nodes():
        if not is_foreign(node) and changes_in_silence(node.op_type, opset, target):
            raise UnsupportedOpError(
                f"{node.op_type} means something else at opset {target} than at {opset}",
                where=f"node {quote(node.name or '')}",
                fix=f"export the model at opset {target}",
            )


def _reason(error: Exception) -> str:
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    return quote(text.rpartition("failed: ")[2], 200)[1:-1]


class _Skeleton:
    """A model without what the converter must not see, and the way back."""

    def __init__(self, model: ir.Model, is_foreign: Callable[[ir.Node], bool]) -> None:
        self._model = model
        self._nodes = {node.name or "": node for node in model.graph.all_nodes()}
        self._foreign = {name for name, node in self._nodes.items() if is_foreign(node)}
        self._weights = {
            name: value
            for name, value in model.graph.initializers.items()
            if value.const_value is not None and value.const_value.nbytes > _SMALL
        }

    def make_proto(self) -> onnx.ModelProto:
        """The model as the converter gets it."""
        copy = self._model.clone()
        for node in copy.graph.all_nodes():
            if node.name in self._foreign:
                self._guard(node)
        for name in self._weights:
            value = copy.graph.initializers.pop(name)
            value.const_value = None
            copy.graph.inputs.append(value)
        if self._foreign:
            copy.opset_imports[_GUARD] = 1
        copy.ir_version = max(copy.ir_version, 8)
        return model_to_proto(copy)

    def _guard(self, node: ir.Node) -> None:
        node.domain, node.overload = _GUARD, ""
        for name, attribute in list(node.attributes.items()):
            if attribute.type not in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS):
                del node.attributes[name]

    def restore(self, result: ir.Model) -> None:
        """Give a converted model back what was kept from the converter."""
        for value in [value for value in result.graph.inputs if value.name in self._weights]:
            old = self._weights[value.name or ""]
            result.graph.inputs.remove(value)
            value.const_value, value.type, value.shape = old.const_value, old.type, old.shape
            result.graph.register_initializer(value)
        for graph in walk_graphs(result.graph):
            for node in graph:
                self._restore_node(node)
        self._restore_values(result.graph)
        result.opset_imports.pop(_GUARD, None)
        result.metadata_props.update(self._model.metadata_props)

    def _restore_node(self, node: ir.Node) -> None:
        old = self._nodes.get(node.name or "")
        if old is None:
            return
        node.metadata_props.update(old.metadata_props)
        node.meta.update(old.meta)
        if node.name in self._foreign:
            node.domain, node.overload = old.domain, old.overload
            for name, attribute in old.attributes.items():
                node.attributes.setdefault(name, attribute)

    def _restore_values(self, graph: ir.Graph) -> None:
        """Types of inputs and outputs, of which the converter drops those that are no tensors."""
        old = {value.name: value for value in [*self._model.graph.inputs, *self._model.graph.outputs]}
        for value in [*graph.inputs, *graph.outputs]:
            if value.name in old:
                value.type, value.shape = old[value.name].type, old[value.name].shape
                value.metadata_props.update(old[value.name].metadata_props)
