"""Outputs in the memory of an input: a region writes what changes, and the rest is there already."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from dovetail_cuda.graph.regions import ElementRegion, Stored
from dovetail_cuda.graph.values import name_of
from dovetail_cuda.lower.index import Index, flatten, unflatten
from dovetail_cuda.lower.tensors import Tensor, Update

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["find_update", "make_update_region"]


def find_update(value: ir.Value, made: Tensor, wanted: Mapping[str, str]) -> Update | None:
    """How an output is made in the memory of the input that it is to have; None where it cannot be.

    Args:
        value: The output.
        made: What it is.
        wanted: Output -> input.
    """
    source = wanted.get(name_of(value)) if value.is_graph_output() else None
    update = made.update
    if source is None or update is None or update.base.buffer != source or value.graph is None:
        return None
    (given,) = (each for each in value.graph.inputs if name_of(each) == source)
    is_free = len(given.uses()) == 1 and not given.is_graph_output()
    return update if is_free else None


def make_update_region(name: str, update: Update, layers: tuple[str, ...], ops: tuple[str, ...]) -> ElementRegion:
    """The region that writes the elements which change, each to its place in the memory of the whole."""
    source = update.source
    at = unflatten(Index.variable("i", source.count), source.shape)
    place = flatten(update.place(at), update.base.shape)
    stored = Stored(buffer=name, dtype=source.dtype, value=source.at(at), place=place)
    return ElementRegion(stored=(stored,), count=source.count, layers=layers, ops=ops)
