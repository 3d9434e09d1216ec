"""What a plan says of its inputs and outputs: types, shapes as expressions, formats, bounds and aliases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

import msgspec
import onnx_ir as ir

from dovetail.build.formats.io_formats import io_format
from dovetail.build.lower.count_bounds import find_count_bounds
from dovetail.build.lower.memory.io_memory import is_host_requested
from dovetail.build.shapes import StaticSymbol, substitute_dims
from dovetail.errors import BuildError, ModelError
from dovetail.expr import (
    Dim,
    Expr,
    SizeTensor,
    substitute,
    symbols_of,
)
from dovetail.network.inference.shapes import ShapeInference, size_symbols
from dovetail.network.value_types import object_type
from dovetail.plan.manifest import ProgramRecord, TensorRecord, ValueRecord

__all__ = ["TensorPlaces", "find_io_aliases", "find_shape_inputs", "input_records", "output_records"]


@dataclass(frozen=True, kw_only=True)
class TensorPlaces:
    """Memory of the inputs and outputs of an engine."""

    memory: Mapping[str, str]
    """Provider by tensor; tensors in host memory are left out."""
    has_devices: bool
    """Whether a provider of the build has memory of its own; without one a location is the network's request."""

    def locate(self, value: ir.Value) -> str:
        """Return the name of the `TensorLocation` in which callers bind a tensor."""
        if self.memory.get(value.name or ""):
            return "DEVICE"
        return "HOST" if self.has_devices or is_host_requested(value) else "DEVICE"


def find_shape_inputs(
    graph: ir.Graph, inference: ShapeInference, static: Mapping[str, StaticSymbol], plugin_symbols: Set[str]
) -> frozenset[str]:
    """The inputs on whose contents the shape of anything depends.

    The exact shapes of plugin outputs depend on ``plugin_symbols``; onnx-ir's dims cannot always carry them.
    """
    used = _used_symbols(graph, inference) | plugin_symbols
    positions = {s.input_index for name, s in static.items() if s.source == "element" and name in used}
    return frozenset(graph.inputs[position].name or "" for position in positions)


def find_io_aliases(program: ProgramRecord) -> dict[str, str]:
    """The outputs that share memory with an input, which callers bind to the same memory: output -> input."""
    values = program.values
    made = [values[index] for index in program.outputs if values[index].kind == "output"]
    return {value.name: values[value.alias].name for value in made if value.alias is not None}


def input_records(
    graph: ir.Graph, inference: ShapeInference, shape_inputs: Set[str], places: TensorPlaces
) -> list[TensorRecord]:
    """One record an input."""
    return [
        TensorRecord(
            name=value.name or "",
            dtype=_dtype(value),
            dims=_known_dims(inference.exprs(value)),
            format=io_format(value).name,
            location=places.locate(value),
            is_shape=value.name in shape_inputs,
            type=object_type(value),
            memory=places.memory.get(value.name or "", ""),
        )
        for value in graph.inputs
    ]


def _used_symbols(graph: ir.Graph, inference: ShapeInference) -> set[str]:
    names: set[str] = set()
    for node in graph.all_nodes():
        for value in node.outputs:
            for dim in inference.exprs(value) or ():
                names |= frozenset() if dim is None else symbols_of(dim)
    return names.union(*(symbols_of(size) for size, _ in inference.assumed_dims.values()))


def output_records(
    graph: ir.Graph,
    inference: ShapeInference,
    static: Mapping[str, StaticSymbol],
    aliases: Mapping[str, str],
    known: Mapping[str, Expr],
    programs: Sequence[ProgramRecord],
    places: TensorPlaces,
) -> list[TensorRecord]:
    """One record an output: its shape as the programs have it or, where only the run tells it, its bound."""
    sizes = {size.name: size.upper for node in graph.all_nodes() for size in size_symbols(node)}
    sizes |= find_count_bounds(graph, inference)
    shapes = [inference.exprs(value) for value in graph.outputs]
    records = [
        _output_record(value, None if dims is None else substitute_dims(dims, known), static, sizes, aliases, places)
        for value, dims in zip(graph.outputs, shapes, strict=True)
    ]
    made = [[p.values[p.outputs[position]] for p in programs] for position in range(len(records))]
    return [_tell_written(record, values) for record, values in zip(records, made, strict=True)]


def _tell_written(record: TensorRecord, values: Sequence[ValueRecord]) -> TensorRecord:
    """The record with the dims that the steps write by: a plugin's own may have another form than inference gives."""
    written = [value.dims for value in values if value.kind == "output"]
    if not written:
        return record
    if any(dims != written[0] for dims in written):
        raise BuildError(
            "a plugin gives an output other shapes in one profile than in another",
            where=f"output '{record.name}'",
            got=written[:2],
            fix="let get_output_shapes depend on its arguments only",
        )
    return msgspec.structs.replace(record, dims=written[0], max_dims=None)


def _output_record(
    value: ir.Value,
    dims: Sequence[Expr | None] | None,
    static: Mapping[str, StaticSymbol],
    sizes: Mapping[str, Expr],
    aliases: Mapping[str, str],
    places: TensorPlaces,
) -> TensorRecord:
    known = [None if dim is None or not symbols_of(dim) <= static.keys() else dim for dim in dims or ()]
    upper = [None if dim is None else substitute(dim, sizes) for dim in dims or ()]
    has_bound = None in known and all(u is not None and symbols_of(u) <= static.keys() for u in upper)
    has_bound = has_bound and not object_type(value)
    return TensorRecord(
        name=value.name or "",
        dtype=_dtype(value),
        dims=None if dims is None else _known_dims(known),
        format=io_format(value).name,
        location=places.locate(value),
        max_dims=_known_dims(upper) if has_bound else None,
        alias=aliases.get(value.name or ""),
        type=object_type(value),
        memory=places.memory.get(value.name or "", ""),
    )


def _known_dims(dims: Sequence[Dim] | None) -> tuple[Dim, ...] | None:
    """Dims as callers are told them; a size that a plugin writes only the run tells."""
    if dims is None:
        return None
    return tuple(None if isinstance(dim, SizeTensor) else dim for dim in dims)


def _dtype(value: ir.Value) -> str:
    if value.dtype is None:
        raise ModelError("the type of a tensor is not known", where=f"tensor '{value.name}'")
    return value.dtype.numpy().name
