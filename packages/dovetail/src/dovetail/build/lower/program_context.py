"""What all programs of one profile share: symbols, ranges, scales, chosen plugins, and where values lie in memory."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np
import onnx_ir as ir

from dovetail.build.assign.assigner import Assigner
from dovetail.build.built_records import BuiltStore
from dovetail.build.formats.io_formats import io_format
from dovetail.build.lower.blobs import BlobTable
from dovetail.build.shapes import Ranges, StaticSymbol, dims_of, substitute_dims
from dovetail.build.tune.combinations import Combination
from dovetail.errors import InternalError
from dovetail.expr import Dim, Expr, SizeTensor, symbols_of
from dovetail.formats import packed_shape, stored_size_bytes
from dovetail.network.value_types import object_type
from dovetail.plan.manifest import PluginRecord, ValueRecord
from dovetail.plugin.handle import PluginHandle
from dovetail.provider.calls import call
from dovetail.provider.interfaces import BuiltKernel, Provider, TensorSpec

__all__ = ["ChosenPlugin", "ProgramContext", "network_place"]


def network_place(value: ir.Value, scale: float = -1.0) -> TensorSpec:
    """How a value lies when nobody asked for anything else: row by row in its own type, on the host."""
    if value.dtype is None:
        raise InternalError("a value has no type", where=f"value '{value.name}'")
    dtype = value.dtype.numpy().name
    return TensorSpec(dtype=dtype, scale=scale if dtype == "int8" else -1.0, type=object_type(value))


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
    kernel: BuiltKernel | None = None
    """The kernel that it is, where the plan is to have it."""


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
    aliases: Mapping[str, str] = field(default_factory=dict)
    """Output of the network -> the input whose memory callers want it in."""

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

    def place(self, value: ir.Value) -> TensorSpec:
        """How a value lies by the network's own account; like every place, it says nothing of the shape."""
        return network_place(value, self.scales.get(value, -1.0))

    def io_place(self, value: ir.Value) -> TensorSpec:
        """How and where a caller binds an input or output."""
        memory = self.io_memory.get(value.name or "", "")
        return msgspec.structs.replace(self.place(value), format=io_format(value).name, memory=memory)

    def can_reformat(
        self, dims: Sequence[Dim] | None, source: TensorSpec, target: TensorSpec, provider: Provider
    ) -> bool:
        """Whether a device can bring a tensor from one format or type to another in its memory."""
        known = {"dims": None if dims is None else tuple(dims), "memory": provider.memory_name}
        specs = [msgspec.structs.replace(place, **known) for place in (source, target)]
        return call(provider.id, "can_reformat", provider.can_reformat, *specs)

    def make_value(
        self, name: str, place: TensorSpec, kind: str, *, dims: tuple[Dim, ...] | None = None, blob: str | None = None
    ) -> ValueRecord:
        """A value of a program in a place."""
        return ValueRecord(
            name=name,
            kind=kind,
            dtype=place.dtype,
            dims=dims,
            format=place.format,
            scale=place.scale,
            memory=place.memory,
            type=place.type,
            blob=blob,
        )

    def plan_value(
        self, name: str, place: TensorSpec, dims: Sequence[Dim] | None, *, can_plan: bool = True
    ) -> ValueRecord:
        """A value that a step makes: planned when its size is known before the run, else dynamic."""
        if place.type:
            return self.make_value(name, place, "object")
        if dims is None or not can_plan or not self.is_static(dims):
            return self.make_value(name, place, "dynamic")
        bound = self.ranges.bound(dims)
        if bound is None and not self.is_open:
            return self.make_value(name, place, "dynamic")
        size_bytes = None if bound is None else _size_bytes(place, bound)
        return msgspec.structs.replace(self.make_value(name, place, "planned", dims=tuple(dims)), size_bytes=size_bytes)


def _size_bytes(place: TensorSpec, shape: Sequence[int]) -> int:
    physical = packed_shape(shape, place.tensor_format)
    if place.memory:  # two four-bit elements share a byte there
        return stored_size_bytes(place.dtype, physical)
    return math.prod(physical) * np.dtype(place.dtype).itemsize
