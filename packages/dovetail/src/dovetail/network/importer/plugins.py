"""Nodes that no operator set knows become plugin layers (rule 1.9 of the contract).

The work has two halves. ``find`` looks every such node up and notes all that are missing, and runs no plugin code.
``convert`` lets the creators make the plugins and puts plugin nodes in the places of the old ones.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import onnx_ir as ir

from dovetail.errors import DovetailError, ModelError, PluginError, UnsupportedOpError, UsageError
from dovetail.loggers import ILogger, Severity
from dovetail.near_names import name_known, suggest
from dovetail.network.importer.fields import describe_attribute, field_from_attribute
from dovetail.network.importer.functions import PLUGIN_CALL
from dovetail.network.importer.kernels import Served
from dovetail.network.importer.problems import Problems, describe_node, quote
from dovetail.network.importer.unknown import UnknownNodes, describe_unknown, explain_unknown
from dovetail.network.inference.shapes import data_type_from_ir, ir_type_from_data_type
from dovetail.network.onnx_schema import opset_of
from dovetail.network.plugins import PluginEntry, entry_of, make_plugin_node
from dovetail.plugin.creators import CreatorKey
from dovetail.plugin.fields import PluginField, PluginFieldCollection
from dovetail.plugin.handle import PluginHandle, locate_error
from dovetail.plugin.quick import LayerCreator
from dovetail.plugin.registry import PluginRegistry
from dovetail.provider.schemas.contrib_schemas import ContribSchema
from dovetail.types import TensorRTPhase

__all__ = ["PluginImport", "PluginRequest", "check_override"]

_VERSION: Final = "plugin_version"
_NAMESPACE: Final = "plugin_namespace"
_SHAPE_INPUTS: Final = "tensorrt_plugin_shape_input_indices"
_CONTROL: Final = frozenset((_VERSION, _NAMESPACE, _SHAPE_INPUTS, "aot"))
"""Attributes that say which plugin and how; they are fields only when the creator asks for them."""


@dataclass(frozen=True, kw_only=True)
class PluginRequest:
    """A node that is to become a plugin layer, with the creator that will make the plugin."""

    node: ir.Node
    creator: Any
    shape_positions: frozenset[int]
    """Which inputs are shape inputs."""

    def split_inputs(self) -> tuple[list[ir.Value], list[ir.Value]]:
        """Device inputs and shape inputs, each in the node's order.

        Empty names at the end are inputs that are not there, unless a layer has a parameter for each. One in between
        stands for a tensor without elements, so that the inputs after it keep their places.
        """
        count = max((index for index, value in enumerate(self.node.inputs, 1) if value is not None), default=0)
        if isinstance(self.creator, LayerCreator):
            count = max(count, min(len(self.creator.layer.signature.inputs), len(self.node.inputs)))
        values = [
            _make_empty(self.node, index) if value is None else value
            for index, value in enumerate(self.node.inputs[:count])
        ]
        device = [value for index, value in enumerate(values) if index not in self.shape_positions]
        return device, [value for index, value in enumerate(values) if index in self.shape_positions]


class PluginImport:
    """Turns nodes of one model into plugin layers.

    Args:
        registry: Where creators are looked up.
        logger: Receives warnings about fields without an attribute.
        override: Operators that are plugins although ONNX or a function has them.
        problems: Where to note what does not work.
    """

    def __init__(
        self, registry: PluginRegistry, logger: ILogger, override: Collection[str], problems: Problems
    ) -> None:
        self._registry = registry
        self._logger = logger
        self._override = frozenset(override)
        self._problems = problems
        self._opsets: dict[str, int] = {}

    def is_requested(self, node: ir.Node) -> bool:
        """Whether the model or the caller says that a node is a plugin, whatever else has its name."""
        return _NAMESPACE in node.attributes or node.op_type in self._override or node.overload == PLUGIN_CALL

    def has_creator(self, node: ir.Node) -> bool:
        """Whether a plugin of a node's name, version and namespace is registered."""
        try:
            return any(self._registry.find_creator(*key) is not None for key in _identities(node))
        except ModelError:
            return False

    def takes(self, node: ir.Node, schema: Any | None, served: Served) -> bool:
        """Whether a node goes to a plugin, be it registered or not, by the contract's rule 1.9.

        What only ONNX Runtime has in ONNX's own domain is no operator of ONNX.
        """
        if schema is None or self.is_requested(node):
            return True
        is_contrib = isinstance(schema, ContribSchema)
        if is_contrib and not node.domain and self.has_creator(node):
            return True
        if served.has_kernel(node) or served.has_body(node):
            return False
        return is_contrib or self.has_creator(node)

    # finding

    def find(self, nodes: Iterable[ir.Node], opsets: dict[str, int]) -> list[PluginRequest]:
        """Look all nodes up; the ones that nothing can make are noted as problems, one for each creator they lack."""
        self._opsets = opsets
        requests, missing = [], dict[tuple[str, ...], UnknownNodes]()
        for node in nodes:
            where = self._where(node)
            try:
                creator = self._creator(node, where, missing)
                if creator is not None:
                    requests.append(PluginRequest(node=node, creator=creator, shape_positions=_shape_positions(node)))
            except DovetailError as error:
                self._problems.add_error(error, where=where)
        for group in missing.values():
            what, fix = describe_unknown(group)
            first, *others = [where for _, where in group.nodes]
            self._problems.add(what, where=first, kind=UnsupportedOpError, fix=fix, also=others)
        return requests

    def _creator(self, node: ir.Node, where: str, missing: dict[tuple[str, ...], UnknownNodes]) -> Any | None:
        keys = _identities(node)
        found = next((found for key in keys if (found := self._registry.find_creator(*key)) is not None), None)
        if found is not None:
            return found
        name, version, namespace = keys[0]
        try:
            return self._registry.get_creator(name, version, namespace)
        except PluginError as error:
            reason = (
                "a plugin is asked for"
                if self.is_requested(node)
                else explain_unknown(node, opset_of(self._opsets, node.domain))
            )
            group = UnknownNodes(name, version, namespace, reason, error, _CONTROL)
            missing.setdefault((name, version, namespace, reason), group).nodes.append((node, where))
            return None

    def _where(self, node: ir.Node) -> str:
        return describe_node(node, opset_of(self._opsets, node.domain))

    # converting

    def convert(self, requests: Iterable[PluginRequest], first_index: int) -> None:
        """Make the plugins, and plugin nodes in place of the old ones."""
        for index, request in enumerate(requests, first_index):
            where = self._where(request.node)
            try:
                self._convert(request, index, where)
            except DovetailError as error:
                self._problems.add_error(error, where=where)

    def _convert(self, request: PluginRequest, index: int, where: str) -> None:
        node = request.node
        handle = self._create(request, where)
        if len(node.outputs) > handle.num_outputs:
            raise ModelError(
                "the node has more outputs than the plugin", expected=handle.num_outputs, got=len(node.outputs)
            )
        inputs, shape_inputs = request.split_inputs()
        entry = PluginEntry(
            handle=handle,
            num_inputs=len(inputs),
            num_shape_inputs=len(shape_inputs),
            creator=_key_of(request.creator),
        )
        # Copies of the model share the entry, so the plugin's life ends with the last of them.
        weakref.finalize(entry, handle.destroy).atexit = False
        new = make_plugin_node(entry, index, [*inputs, *shape_inputs], name=node.name or "")
        _replace(node, new)

    def count_outputs(self, request: PluginRequest) -> int:
        """How many outputs the plugin has, by making one and letting it go."""
        handle = self._create(request, self._where(request.node))
        try:
            return handle.num_outputs
        finally:
            handle.destroy()

    def find_output_types(self, request: PluginRequest) -> list[ir.TypeProtocol]:
        """The types of what the plugin makes, by making one and letting it go."""
        handle = self._create(request, self._where(request.node))
        try:
            inputs = request.split_inputs()[0]
            types = [data_type_from_ir(value.dtype) for value in inputs]
            ranks = [None if value.shape is None else len(value.shape) for value in inputs]
            made = handle.get_output_data_types([dtype for dtype in types if dtype is not None], ranks)
        finally:
            handle.destroy()
        return [ir.TensorType(ir_type_from_data_type(dtype)) for dtype in made]

    def _create(self, request: PluginRequest, where: str) -> PluginHandle:
        """The network's own clone of a new plugin; the plugin itself is let go, as a caller of the API would do."""
        name = request.node.name or request.node.op_type
        fields = self._fields(request, where)
        try:
            plugin = request.creator.create_plugin(name, fields, TensorRTPhase.BUILD)
        except DovetailError:
            raise
        except Exception as error:
            raise PluginError(
                f"create_plugin raised {type(error).__name__}: {error}", where=locate_error(error)
            ) from error
        if plugin is None:
            raise PluginError("create_plugin returned None", fix="raise an error that says what is wrong instead")
        original = PluginHandle(plugin, phase=TensorRTPhase.BUILD, owned=True)
        try:
            return original.clone()
        finally:
            original.destroy()

    def _fields(self, request: PluginRequest, where: str) -> PluginFieldCollection:
        node, fields = request.node, PluginFieldCollection()
        wanted: dict[str, PluginField] = {field.name: field for field in request.creator.field_names}
        for name, declared in wanted.items():
            attribute = node.attributes.get(name)
            if attribute is None and not _has_default(request.creator, name):
                self._log(Severity.WARNING, where, f"field {quote(name)} has no attribute; the plugin gets none")
            elif attribute is not None:
                fields.append(field_from_attribute(attribute, declared.type))
        ignored = [quote(name) for name in node.attributes if name not in wanted and name not in _CONTROL]
        if ignored:
            known = f"; it has {', '.join(map(quote, wanted))}" if wanted else ""
            self._log(Severity.WARNING, where, f"the plugin has no field for attribute(s) {', '.join(ignored)}{known}")
        return fields

    def _log(self, severity: Severity, where: str, text: str) -> None:
        self._logger.log(severity, f"{where}: {text}")


def check_override(model: ir.Model, override: Collection[str]) -> None:
    """Check that every operator that is to be a plugin's is one of the model.

    Raises:
        UsageError: No node has it.
    """
    if not override:
        return
    graphs = [model.graph, *(function.graph for function in model.functions.values())]
    known = list(dict.fromkeys(node.op_type for graph in graphs for node in graph.all_nodes()))
    for op in override:
        if op not in known:
            raise UsageError(
                f"the model has no operator '{op}'",
                where="override",
                expected=f"one of {name_known(known)}",
                fix=suggest(op, known) or "name an operator of the model",
            )


def _key_of(creator: Any) -> CreatorKey:
    return CreatorKey(creator.name, creator.plugin_version, getattr(creator, "plugin_namespace", ""))


def _has_default(creator: Any, name: str) -> bool:
    """Whether a field may be left out: it has a default, or the creator says that nobody needs it."""
    return name in getattr(creator, "optional_fields", ()) or (
        isinstance(creator, LayerCreator) and creator.layer.signature.has_default(name)
    )


def _identities(node: ir.Node) -> list[tuple[str, str, str]]:
    """Name, version and namespace of the plugins that a node may ask for, the first of which is preferred.

    Without the attribute for it the namespace is the node's domain, or none, as plugins were before they had one.
    """
    name, version = node.op_type, _string(node, _VERSION, "1")
    if _NAMESPACE in node.attributes:
        return [(name, version, _string(node, _NAMESPACE, ""))]
    domain = "" if node.domain == "ai.onnx" else node.domain
    return [(name, version, namespace) for namespace in dict.fromkeys((domain, ""))]


def _string(node: ir.Node, name: str, default: str) -> str:
    attribute = node.attributes.get(name)
    if attribute is None:
        return default
    if attribute.is_ref() or attribute.type != ir.AttributeType.STRING or not isinstance(attribute.value, str):
        raise ModelError(f"attribute {quote(name)} must be a string", got=describe_attribute(attribute))
    return attribute.value


def _make_empty(node: ir.Node, index: int) -> ir.Value:
    """What a plugin gets for an optional input that is left out: no elements, of the type of the inputs around it."""
    known = [value.dtype for value in node.inputs if value is not None and value.dtype is not None]
    tensor = ir.Tensor(np.empty(0, (known or [ir.DataType.FLOAT])[0].numpy()), name=f"{node.name}/input_{index}")
    constant = ir.Node("", "Constant", [], [ir.AttrTensor("value", tensor)], num_outputs=1, name=tensor.name)
    constant.outputs[0].name = tensor.name
    if node.graph is None:
        raise ModelError("the node belongs to no graph")
    node.graph.insert_before(node, constant)
    return constant.outputs[0]


def _shape_positions(node: ir.Node) -> frozenset[int]:
    attribute = node.attributes.get(_SHAPE_INPUTS)
    if attribute is None:
        return frozenset()
    if attribute.is_ref() or attribute.type not in (ir.AttributeType.INTS, ir.AttributeType.INT):
        raise ModelError(f"attribute {quote(_SHAPE_INPUTS)} must be integers", got=describe_attribute(attribute))
    count = len(node.inputs)
    given = [attribute.as_int()] if attribute.type == ir.AttributeType.INT else list(attribute.as_ints())
    positions = frozenset(index + count if index < 0 else index for index in given)
    if len(positions) != len(given) or not all(0 <= index < count for index in positions):
        raise ModelError(
            f"attribute {quote(_SHAPE_INPUTS)} must name different inputs",
            expected=f"indices from {-count} to {count - 1}",
            got=given,
        )
    return positions


def _replace(old: ir.Node, new: ir.Node) -> None:
    """Put the plugin node where the old node was, with its names and notes."""
    graph = old.graph
    if graph is None or entry_of(new) is None:
        raise ModelError("the node belongs to no graph")
    new.metadata_props.update(old.metadata_props)
    new.doc_string = old.doc_string
    for value, given in zip(new.outputs, old.outputs, strict=False):
        value.metadata_props.update(given.metadata_props)
        given.name = given.name or None
    ir.convenience.replace_nodes_and_values(graph, old, [old], [new], old.outputs, new.outputs[: len(old.outputs)])
