"""Computes once what a graph computes several times: equal operators with equal attributes on the same values.

Equal small constants are merged first, since exporters write one for each use. Left alone are random operators, those
with bodies, plugins, weights that may be refitted, and results that a caller reads or somebody left a note on.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import ClassVar, Final

import onnx_ir as ir

from dovetail.errors import InternalError
from dovetail.passes._graph import constant_array, layer_name, subgraphs_of, walk_graphs
from dovetail.passes.base import Pass, PassResult
from dovetail.passes.constant_folding import RANDOM

__all__ = ["CommonSubexpressions"]

_DOMAINS: Final = ("", "ai.onnx", "ai.onnx.ml")
_MAX_CONSTANT_BYTES: Final = 1024
"""Larger constants are weights: hashing them all costs more than a rare duplicate."""
_NOTE: Final = "dovetail."
_PRECISION: Final = "dovetail.precision"
_T = ir.AttributeType
_PLAIN: Final = (_T.INT, _T.INTS, _T.FLOAT, _T.FLOATS, _T.STRING, _T.STRINGS)


class CommonSubexpressions(Pass):
    """Merges equal constants and equal nodes of each graph.

    Args:
        keep: Names of weights that must stay as they are, because they may be refitted.
    """

    name: ClassVar[str] = "common_subexpressions"

    def __init__(self, *, keep: frozenset[str] = frozenset()) -> None:
        self._keep = keep

    def call(self, model: ir.Model) -> PassResult:
        """Merge in order, so that what reads merged values is equal too."""
        changed: list[str] = []
        for graph in walk_graphs(model.graph):
            changed += self._merge_constants(graph)
            changed += _merge_nodes(graph)
        return PassResult(model=model, changed=changed)

    def ensures(self, model: ir.Model) -> None:
        """No two nodes of a graph that may be merged are equal."""
        for graph in walk_graphs(model.graph):
            seen: set[Hashable] = set()
            for node in graph:
                key = _key_of(node)
                if key is not None and key in seen and _may_go(node):
                    raise InternalError(f"'{layer_name(node)}' is computed twice", where=f"pass '{self.name}'")
                seen.add(key)

    def _merge_constants(self, graph: ir.Graph) -> list[str]:
        first: dict[Hashable, ir.Value] = {}
        changed = []
        for value in list(graph.initializers.values()):
            key = self._constant_key(value)
            if key is None or first.setdefault(key, value) is value:
                continue
            ir.convenience.replace_all_uses_with(value, first[key])
            del graph.initializers[value.name or ""]
            changed.append(f"merged constant '{value.name}' into '{first[key].name}'")
        return changed

    def _constant_key(self, value: ir.Value) -> Hashable | None:
        if value.is_graph_output() or _is_noted(value) or not value.uses():
            return None
        tensor = value.const_value
        if tensor is None or tensor.dtype == ir.DataType.STRING or tensor.nbytes > _MAX_CONSTANT_BYTES:
            return None
        array = constant_array(value, self._keep)
        return None if array is None else (value.dtype, array.shape, array.tobytes())


def _merge_nodes(graph: ir.Graph) -> list[str]:
    first: dict[Hashable, ir.Node] = {}
    changed = []
    for node in list(graph):
        key = _key_of(node)
        if key is None or first.setdefault(key, node) is node or not _may_go(node):
            continue
        for old, new in zip(node.outputs, first[key].outputs, strict=True):
            ir.convenience.replace_all_uses_with(old, new)
        graph.remove(node, safe=True)
        changed.append(f"merged '{layer_name(node)}' ({node.op_type}) into '{layer_name(first[key])}'")
    return changed


def _key_of(node: ir.Node) -> Hashable | None:
    """Equal for nodes that compute the same; None for one that is like no other."""
    if (
        node.domain not in _DOMAINS
        or not node.outputs
        or node.op_type in RANDOM
        or any(True for _ in subgraphs_of(node))
    ):
        return None
    attributes = []
    for name, attribute in sorted(node.attributes.items()):
        value = _attribute_key(attribute)
        if value is None:
            return None
        attributes.append((name, attribute.type, value))
    precision = node.metadata_props.get(_PRECISION)
    inputs = tuple(None if value is None else id(value) for value in node.inputs)
    return (node.domain, node.op_type, node.overload, inputs, tuple(attributes), len(node.outputs), precision)


def _attribute_key(attribute: ir.Attr) -> Hashable | None:
    if attribute.is_ref():
        return None
    if attribute.type == ir.AttributeType.TENSOR:
        tensor = attribute.as_tensor()
        if tensor.dtype == ir.DataType.STRING or tensor.nbytes > _MAX_CONSTANT_BYTES:
            return None
        return (tensor.dtype, tuple(tensor.shape), tensor.numpy().tobytes())
    return repr(attribute.value) if attribute.type in _PLAIN else None


def _may_go(node: ir.Node) -> bool:
    """Whether nobody asked for the results of just this node."""
    return not any(value.is_graph_output() or _is_noted(value) for value in node.outputs)


def _is_noted(value: ir.Value) -> bool:
    return any(key.startswith(_NOTE) for key in value.metadata_props)
