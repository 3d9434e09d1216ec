"""At which opset a network is written that has nodes of an imported model and layers of this API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import onnx_ir as ir

from dovetail.network.api.emission import OPSETS
from dovetail.network.api.layers.base import ILayer
from dovetail.network.api.layers.basic import IConstantLayer
from dovetail.network.api.layers.onnx_node import IOnnxNodeLayer
from dovetail.network.api.layers.plugin import IPluginV3Layer
from dovetail.network.opsets.versions import has_same_meaning

__all__ = ["choose_opsets"]


def choose_opsets(layers: Sequence[ILayer], imported: Mapping[str, int]) -> dict[str, int]:
    """The version of each operator set.

    A model alone keeps its own. With layers of the API beside it, theirs is taken where all nodes of the model mean the
    same there; else the model's stays, and each layer is checked when it is written.
    """
    opset = imported.get("", OPSETS[""])
    nodes = [layer._node for layer in layers if isinstance(layer, IOnnxNodeLayer)]
    if opset != OPSETS[""] and any(map(_is_of_this_api, layers)):
        every = [inner for node in nodes for inner in (node, *_inner_nodes(node))]
        if all(node.domain or has_same_meaning(node, opset, OPSETS[""]) for node in every):
            opset = OPSETS[""]
    return {**OPSETS, **imported, "": opset}


def _is_of_this_api(layer: ILayer) -> bool:
    return not isinstance(layer, IOnnxNodeLayer | IConstantLayer | IPluginV3Layer)


def _inner_nodes(node: ir.Node) -> Iterator[ir.Node]:
    for attribute in node.attributes.values():
        if attribute.type == ir.AttributeType.GRAPH:
            yield from attribute.as_graph().all_nodes()
