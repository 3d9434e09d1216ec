"""Which layers of the network a node was made of, and by which passes: notes on nodes that survive every rewrite."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["find_layers", "find_passes", "note_origins"]

_LAYERS_KEY: Final = "dovetail.fused"
_PASSES_KEY: Final = "dovetail.passes"


def note_origins(node: ir.Node, sources: Iterable[ir.Node], pass_name: str) -> None:
    """Write on a node what a pass made it of."""
    sources = list(sources)
    layers = dict.fromkeys(layer for source in sources for layer in find_layers(source))
    passes = dict.fromkeys(name for source in sources for name in find_passes(source))
    node.metadata_props[_LAYERS_KEY] = "\n".join(layers)
    node.metadata_props[_PASSES_KEY] = "\n".join({**passes, pass_name: None})


def find_layers(node: ir.Node) -> list[str]:
    """The layers of the network that a node was made of; its own name where no pass made it."""
    noted = node.metadata_props.get(_LAYERS_KEY)
    return noted.split("\n") if noted else [node.metadata_props.get("dovetail.layer") or node.name or node.op_type]


def find_passes(node: ir.Node) -> list[str]:
    """The passes that made a node; none for one that is as it was in the network."""
    noted = node.metadata_props.get(_PASSES_KEY)
    return noted.split("\n") if noted else []
