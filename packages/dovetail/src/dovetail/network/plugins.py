"""Plugin layers as nodes of the network: their domain, and what a node is tied to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import onnx_ir as ir

from dovetail.plugin.creators import CreatorKey
from dovetail.plugin.handle import PluginHandle

__all__ = ["PLUGIN_DOMAIN", "PLUGIN_OP", "PluginEntry", "entry_of", "make_plugin_node", "operator_of"]

PLUGIN_DOMAIN: Final = "dovetail.plugin"
PLUGIN_OP: Final = "PluginV3"
_META_KEY: Final = "dovetail.plugin"


@dataclass(frozen=True, kw_only=True)
class PluginEntry:
    """The network's own clone of a plugin and how the node's inputs split."""

    handle: PluginHandle
    num_inputs: int
    num_shape_inputs: int
    creator: CreatorKey | None = None
    """Identity of the creator, where it is known."""


def make_plugin_node(entry: PluginEntry, index: int, inputs: list[ir.Value], *, name: str) -> ir.Node:
    """A node for a plugin layer; ``inputs`` are the device inputs, then the shape inputs."""
    node = ir.Node(
        PLUGIN_DOMAIN,
        PLUGIN_OP,
        inputs,
        [ir.AttrInt64("plugin", index)],
        num_outputs=entry.handle.num_outputs,
        name=name,
    )
    node.meta[_META_KEY] = entry
    return node


def entry_of(node: ir.Node) -> PluginEntry | None:
    """The plugin a node stands for, or None when it is not a plugin node."""
    entry = node.meta.get(_META_KEY)
    return entry if isinstance(entry, PluginEntry) else None


def operator_of(node: ir.Node) -> str:
    """What people call the operator of a node: of a plugin layer, the name of its plugin."""
    entry = entry_of(node)
    return node.op_type if entry is None else entry.handle.name
