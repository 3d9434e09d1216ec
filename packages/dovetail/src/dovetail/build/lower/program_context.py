"""What all programs of one profile share: symbols, ranges, scales, chosen plugins, and where values lie in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import onnx_ir as ir

from dovetail.build.assign.assigner import Assigner
from dovetail.build.formats.io_formats import io_format
from dovetail.build.lower.blobs import BlobTable
from dovetail.build.lower.built_records import BuiltStore
from dovetail.build.shapes import Ranges, StaticSymbol, dims_of, substitute_dims
from dovetail.build.tune.combinations import Combination, Layout
from dovetail.errors import InternalError
from dovetail.expr import Constant, Expr, SizeTensor, symbols_of
from dovetail.network.value_types import object_type
from dovetail.plan.manifest import PluginRecord
from dovetail.plugin.handle import PluginHandle
from dovetail.provider.calls import call
from dovetail.provider.interfaces import Provider, TensorSpec
from dovetail.types import TensorFormat

__all__ = ["ChosenPlugin", "Place", "ProgramContext", "network_place", "place_of"]


@dataclass(frozen=True)
class Place:
    """How a value lies in memory; the scale is not part of its identity, for each tensor has only one."""

    dtype: str
    format: TensorFormat = TensorFormat.LINEAR
    scale: float = field(default=-1.0, compare=False)
    type: str = ""
    """What an object is, as ONNX writes types; empty for numbers."""
    memory: str = ""
    """The provider in whose memory it is; empty for the host's."""


def place_of(layout: Layout) -> Place:
    """The place of a plugin port in a layout."""
    return Place(layout.dtype.numpy.name, layout.format, layout.scale)


def network_place(value: ir.Value, scale: float = -1.0) -> Place:
    """Where a value lies when nobody asked for anything else: row by row in its own type."""
    if value.dtype is None:
        raise InternalError("a value has no type", where=f"value '{value.name}'")
    return Place(value.dtype.numpy().name, TensorFormat.LINEAR, scale, object_type(value))


@dataclass(frozen=True, kw_only=True)
class ChosenPlugin:
    """What was decided for a plugin layer, and the object it was decided with."""

    handle: PluginHandle
    combination: Combination
    tactic: int
    workspace_bytes: int
    asks_workspace: bool
    record: PluginRecord
    aliases: tuple[int, ...]


@dataclass(kw_only=True)
class ProgramContext:
    """What all programs of one profile share."""

    model: ir.Model
    assigner: Assigner
    blobs: BlobTable
    store: BuiltStore
    static: Mapping[str, StaticSymbol]
    ranges: Ranges
    chosen: dict[ir.Node, ChosenPlugin]
    scales: Mapping[ir.Value, float]
    is_open: bool
    plugin_dims: dict[ir.Value, list[Expr]] = field(default_factory=dict)
    """Exact shapes of plugin outputs, which onnx-ir's dims cannot always carry."""
    io_memory: Mapping[str, str] = field(default_factory=dict)
    """The provider in whose memory inputs and outputs lie, by name, for those that do not lie on the host."""
    known: Mapping[str, Expr] = field(default_factory=dict)
    """Open dims that are known because the profile bounds what callers pass as sizes."""
    profile: int = 0

    @property
    def provider(self) -> Provider:
        """The host's provider: plugins, control flow, reformats and copies."""
        return self.assigner.host

    def dims(self, value: ir.Value) -> list[Expr | None] | None:
        """The shape of a value as expressions."""
        exact = self.plugin_dims.get(value)
        dims = dims_of(value) if exact is None else exact
        return None if dims is None else substitute_dims(dims, self.known)

    def is_static(self, dims: Sequence[Expr | None] | None) -> bool:
        """Whether inputs alone decide a shape."""
        return dims is not None and all(
            dim is not None and not isinstance(dim, SizeTensor) and symbols_of(dim) <= self.static.keys()
            for dim in dims
        )

    def place(self, value: ir.Value) -> Place:
        """The network's own place of a value."""
        return network_place(value, self.scales.get(value, -1.0))

    def can_reformat(self, value: ir.Value, source: Place, target: Place, provider: Provider) -> bool:
        """Whether a device can bring a value from one format or type to another in its memory."""
        specs = [self._spec(value, replace(place, memory=provider.memory_name)) for place in (source, target)]
        return call(provider.id, "can_reformat", provider.can_reformat, *specs)

    def _spec(self, value: ir.Value, place: Place) -> TensorSpec:
        dims = self.dims(value)
        return TensorSpec(
            dtype=place.dtype,
            dims=None if dims is None else tuple(dim.value if isinstance(dim, Constant) else None for dim in dims),
            format=place.format.name,
            scale=place.scale if place.dtype == "int8" else -1.0,
            memory=place.memory,
        )

    def io_place(self, value: ir.Value) -> Place:
        """Where a caller binds an input or output."""
        place = self.place(value)
        memory = self.io_memory.get(value.name or "", "")
        return Place(place.dtype, io_format(value), place.scale, place.type, memory)
