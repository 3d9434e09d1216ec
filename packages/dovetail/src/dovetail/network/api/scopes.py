"""Which loop or conditional each layer belongs to, and how they nest; found from what depends on what.

A layer belongs to the innermost construct among its inputs. A construct lies inside another when something that enters
it, or that its body uses, comes from there. When a layer uses two constructs of which neither is known to be inside the
other, the one that was added later is the inner one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from dovetail.errors import ModelError
from dovetail.network.api.conditionals import IIfConditional, IIfConditionalBoundaryLayer, IIfConditionalInputLayer
from dovetail.network.api.layers.base import ILayer
from dovetail.network.api.loops import IIteratorLayer, ILoop, ILoopBoundaryLayer, IRecurrenceLayer
from dovetail.network.api.tensor import ITensor

if TYPE_CHECKING:
    from dovetail.network.api.core import NetworkCore

__all__ = ["BoundaryLayer", "Construct", "Scopes", "construct_of", "layers_within"]

Construct = ILoop | IIfConditional
BoundaryLayer = ILoopBoundaryLayer | IIfConditionalBoundaryLayer


def construct_of(layer: ILayer) -> Construct | None:
    """The construct that a boundary layer is part of; None for other layers."""
    if isinstance(layer, ILoopBoundaryLayer):
        return layer.loop
    if isinstance(layer, IIfConditionalBoundaryLayer):
        return layer.conditional
    return None


class Scopes:
    """The scopes of a network as it is now. None stands for the network itself."""

    def __init__(self, network: NetworkCore) -> None:
        self._order = {construct: index for index, construct in enumerate(network._constructs)}
        self._parents: dict[Construct, Construct | None] = dict.fromkeys(network._constructs)
        self._layers: dict[ILayer, Construct | None] = dict.fromkeys(network._layers)
        self._changed = bool(self._order)
        while self._changed:  # parents only move inwards, so this ends
            self._changed = False
            for layer in network._layers:
                self._place(layer)

    def parent(self, construct: Construct) -> Construct | None:
        """The scope that a construct lies in."""
        return self._parents[construct]

    def of_layer(self, layer: ILayer) -> Construct | None:
        """The scope of a layer; that of a boundary layer is where its outputs are."""
        construct = construct_of(layer)
        if construct is None:
            return self._layers[layer]
        is_inside = isinstance(layer, IRecurrenceLayer | IIteratorLayer | IIfConditionalInputLayer)
        return construct if is_inside else self._parents[construct]

    def of_tensor(self, tensor: ITensor) -> Construct | None:
        """The scope in which a tensor can be used."""
        return None if tensor._layer is None else self.of_layer(tensor._layer)

    def encloses(self, outer: Construct | None, inner: Construct | None) -> bool:
        """Whether ``inner`` is ``outer`` or lies somewhere in it."""
        return outer is None or outer in self._upwards(inner)

    def _upwards(self, construct: Construct | None) -> Iterator[Construct]:
        while construct is not None:
            yield construct
            construct = self._parents[construct]

    def _place(self, layer: ILayer) -> None:
        if isinstance(layer, ILoopBoundaryLayer | IIfConditionalBoundaryLayer):
            self._place_boundary(layer)
            return
        scope: Construct | None = None
        for tensor in layer._dependencies():
            scope = self._join(scope, self.of_tensor(tensor), layer)
        if scope is not self._layers[layer]:
            self._layers[layer] = scope
            self._changed = True

    def _place_boundary(self, layer: BoundaryLayer) -> None:
        construct = layer.loop if isinstance(layer, ILoopBoundaryLayer) else layer.conditional
        for tensor in layer._entering():
            scope = self.of_tensor(tensor)
            if scope is not None and self.encloses(construct, scope):
                raise ModelError(
                    f"tensor '{tensor.name}' is made inside '{construct.name}' and cannot enter it",
                    where=layer._where,
                    fix="use a tensor from outside",
                )
            self._nest(construct, scope, layer)
        for tensor in layer._inner():
            scope = self.of_tensor(tensor)
            if scope is not construct and scope is not None and self.encloses(construct, scope):
                raise ModelError(
                    f"tensor '{tensor.name}' is made inside '{scope.name}', which is inside '{construct.name}'",
                    where=layer._where,
                    fix="take it out with add_loop_output or add_output first",
                )
            self._nest(construct, scope, layer)

    def _join(self, first: Construct | None, second: Construct | None, layer: ILayer) -> Construct | None:
        if self.encloses(first, second):
            return second
        if self.encloses(second, first) or first is None or second is None:
            return first
        outer, inner = sorted((first, second), key=self._order.__getitem__)
        self._nest(inner, outer, layer)
        return inner

    def _nest(self, inner: Construct, outer: Construct | None, layer: ILayer) -> None:
        """Make ``inner`` lie inside ``outer``."""
        if outer is None or self.encloses(outer, inner):
            return
        if self.encloses(inner, outer):
            raise ModelError(
                f"'{inner.name}' and '{outer.name}' would each have to lie inside the other",
                where=layer._where,
                fix="take tensors out of a loop or conditional with add_loop_output or add_output",
            )
        above = self._parents[inner]
        if above is not None and not self.encloses(above, outer):
            first, second = sorted((above, outer), key=self._order.__getitem__)
            self._nest(second, first, layer)
        if not self.encloses(outer, inner):
            self._parents[inner] = outer
        self._changed = True


def layers_within(scopes: Scopes, construct: Construct, layers: Sequence[ILayer]) -> list[ILayer]:
    """Every layer of a construct and of those inside it, boundary layers included."""
    found = []
    for layer in layers:
        own = construct_of(layer)
        scope = scopes.of_layer(layer) if own is None else own
        if scope is not None and scopes.encloses(construct, scope):
            found.append(layer)
    return found
