"""What a notebook shows of a network: its inputs and outputs, and its layers behind a click."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dovetail import markup
from dovetail.errors import DovetailError

if TYPE_CHECKING:
    from dovetail.network.api.core import NetworkCore
    from dovetail.network.api.layers.base import ILayer
    from dovetail.network.api.tensor import ITensor

__all__ = ["show_network"]


def show_network(network: NetworkCore) -> str:
    """A network as HTML; also one that is not complete, in which types and shapes are not known yet."""
    inputs = [network.get_input(index) for index in range(network.num_inputs)]
    outputs = [network.get_output(index) for index in range(network.num_outputs)]
    rows = [("input", *_describe(t)) for t in inputs] + [("output", *_describe(t)) for t in outputs]
    title = f"Network '{network.name}'" if network.name else "Network"
    tensors = markup.table(("", "name", "type", "shape"), rows)
    layers = [(index, *_describe_layer(layer)) for index, layer in enumerate(network)]
    table = markup.table(("", "layer", "kind", "inputs", "outputs"), layers, right=(0,))
    return markup.join(
        [markup.heading(title, f"{len(layers)} layer(s)"), tensors, markup.fold(f"Layers ({len(layers)})", table)]
    )


def _describe(tensor: ITensor) -> tuple[str, str, str]:
    try:
        kind, shape = tensor.dtype.name, tensor.shape
        return tensor.name, kind, "x".join("?" if size < 0 else str(size) for size in shape) or "scalar"
    except (DovetailError, ValueError):  # not known before the network is complete, or not at all
        return tensor.name, "?", "?"


def _describe_layer(layer: ILayer) -> tuple[str, str, str, str]:
    inputs = [layer.get_input(index) for index in range(layer.num_inputs)]
    outputs = [layer.get_output(index) for index in range(layer.num_outputs)]
    return layer.name, layer.type.name, _names([t for t in inputs if t is not None]), _names(outputs)


def _names(tensors: Sequence[ITensor]) -> str:
    return ", ".join(tensor.name for tensor in tensors)
