"""Types and shapes of a network under construction: what a tensor depends on is written when it is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from dovetail.errors import ModelError
from dovetail.network.api.emission import Emitter
from dovetail.network.api.layers.base import ILayer
from dovetail.network.api.tensor import ITensor

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail.network.api.core import NetworkCore

__all__ = ["TypeTrace", "find_shape_tensors"]


class TypeTrace:
    """The layers written so far, each once; good until one of them changes."""

    def __init__(self, network: NetworkCore) -> None:
        self._emitter = Emitter(network)
        self._written: set[ILayer] = set()

    def __contains__(self, layer: ILayer) -> bool:
        return layer in self._written

    def value_of(self, tensor: ITensor, inputs: Sequence[ITensor]) -> ir.Value:
        """The value of a tensor; the layers it depends on are written if need be."""
        for known in inputs:
            if known not in self._emitter.values:
                self._emitter.add_input(known)
        if tensor._layer is not None:
            self._write(tensor._layer)
        return self._emitter[tensor]

    def _write(self, target: ILayer) -> None:
        """Write a layer after all it depends on; a stack, because networks are deeper than Python's own."""
        stack, waiting = [target], set[ILayer]()
        while stack:
            layer = stack[-1]
            missing = [] if layer in self._written else self._missing(layer)
            if missing:
                waiting.add(layer)
                _refuse_circle(layer, waiting, missing)
                stack.extend(reversed(missing))
                continue
            if layer not in self._written:
                self._emitter.emit_layer(layer)
                self._written.add(layer)
            waiting.discard(stack.pop())

    def _missing(self, layer: ILayer) -> list[ILayer]:
        makers = (tensor._layer for tensor in layer._dependencies())
        return [maker for maker in makers if maker is not None and maker not in self._written]


def _refuse_circle(layer: ILayer, waiting: set[ILayer], missing: Iterable[ILayer]) -> None:
    if any(other in waiting for other in missing):
        raise ModelError(
            "the layer depends on itself",
            where=layer._where,
            fix="use add_loop and a recurrence for a value that feeds back",
        )


def find_shape_tensors(layers: Sequence[ILayer], marked: Iterable[ITensor]) -> frozenset[ITensor]:
    """The tensors whose values decide a shape: what layers take as shapes, and all those are computed from."""
    found: set[ITensor] = set()
    work = list(marked)
    work += [
        tensor
        for layer in layers
        for index, tensor in enumerate(layer._inputs)
        if tensor is not None and index in layer._shape_inputs
    ]
    while work:
        tensor = work.pop()
        if tensor in found:
            continue
        found.add(tensor)
        if tensor._layer is not None and not tensor._layer._reads_only_shapes:
            work += tensor._layer._dependencies()
    return frozenset(found)
