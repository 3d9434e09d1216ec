"""Compiling a partition: ONNX Runtime optimises it at build time as far as no CPU matters, and the result is stored.

Everything large goes through files in a temporary folder and is mapped, so that a build holds no copy of the weights.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import onnx_ir as ir
from onnx.external_data_helper import load_external_data_for_tensor

from dovetail.errors import ProviderError
from dovetail.formats import FOUR_BIT_TYPES, stored_size_bytes, unpack_nibbles
from dovetail.provider.interfaces import BuiltPartition, ShapeRange
from dovetail.providers.onnxruntime.kernel_defs import max_opset, supported_opset
from dovetail.providers.onnxruntime.origins import read_nodes
from dovetail.providers.onnxruntime.reports import describe_partition, read_facts
from dovetail.providers.onnxruntime.sessions import (
    NO_QUANTIZATION,
    Level,
    SessionSettings,
    Use,
    create_session,
    folding_entries,
)
from dovetail.providers.onnxruntime.wire import INLINE_BYTES, NO_QUANTIZATION_MARK

__all__ = ["build_partition"]

_IR_VERSION: Final = 10
_EXTERNAL: Final = onnx.TensorProto.EXTERNAL


def build_partition(
    model: ir.Model,
    *,
    settings: SessionSettings,
    version: str,
    keep: frozenset[str],
    shapes: Mapping[str, ShapeRange] | None = None,
) -> BuiltPartition:
    """Compile a partition and tell what became of it.

    Args:
        model: The partition, which is changed.
        settings: How sessions are made.
        version: The version of ONNX Runtime.
        keep: Weights that may be replaced: with one of them the partition is stored as it is, and optimised whenever it
            is loaded.
        shapes: By name, those of its inputs, for what is told of its work.
    """
    facts = read_facts(model, shapes or {})
    built = _compile(model, settings=settings, version=version, keep=keep)
    return replace(built, report=describe_partition(facts, read_nodes(built.payload)))


def _compile(model: ir.Model, *, settings: SessionSettings, version: str, keep: frozenset[str]) -> BuiltPartition:
    stamp_opsets(model)
    for graph in (model.graph, *model.graph.subgraphs()):
        _drop_identities(graph)
        _forget_maps(graph)
    model.ir_version = _IR_VERSION
    kept = keep & set(model.graph.initializers)
    with tempfile.TemporaryDirectory(prefix="dovetail-") as folder:
        source = Path(folder) / "partition.onnx"
        ir.save(model, source, external_data="partition.data", size_threshold_bytes=0 if kept else INLINE_BYTES)
        if kept:
            return _split(source, version="", mark=_is_risky(model))
        target = Path(folder) / "optimised.onnx"
        is_marked = _optimise_somehow(model, source, target, settings)
        if _has_bodies(model) and not _can_be_read(target, settings, where=f"partition '{model.graph.name}'"):
            return _split(source, version="", mark=is_marked)
        return _split(target, version=version, mark=is_marked)


def _optimise_somehow(model: ir.Model, source: Path, target: Path, settings: SessionSettings) -> bool:
    """Optimise with or without the passes over Q and DQ, and say whether it had to be without.

    From opset 21 on these passes write nodes that ONNX Runtime then refuses (int8 made uint8, the attribute of the type
    left as it was), and with bodies that read what they move they end the process.
    """
    where, entries = f"partition '{model.graph.name}'", _limit_folding(model)
    if not _is_risky(model):
        try:
            _optimise(source, target, settings, where=where, entries=entries)
            return False
        except ProviderError:
            if not _is_quantized(model):
                raise
    _optimise(source, target, settings, where=where, entries={**entries, **NO_QUANTIZATION})
    return True


def _limit_folding(model: ir.Model) -> dict[str, str]:
    """Entries for a graph with nodes that read constants only: what the build left alone is left alone here too."""
    known: set[ir.Value] = set()
    count = 0
    for node in model.graph:
        if all(value is None or value.const_value is not None or value in known for value in node.inputs):
            known.update(node.outputs)
            count += 1
    tensors = [value.const_value for value in model.graph.initializers.values()]
    weights_bytes = sum(tensor.nbytes for tensor in tensors if tensor is not None)
    return folding_entries(count, weights_bytes) if count else {}


def _is_risky(model: ir.Model) -> bool:
    return _is_quantized(model) and _has_bodies(model)


def _has_bodies(model: ir.Model) -> bool:
    return next(iter(model.graph.subgraphs()), None) is not None


def _is_quantized(model: ir.Model) -> bool:
    return any(node.op_type in ("QuantizeLinear", "DequantizeLinear") for node in model.graph.all_nodes())


def stamp_opsets(model: ir.Model) -> None:
    """Write the newest opsets that ONNX Runtime accepts and at which every op is what it is in the model."""
    used: dict[str, set[str]] = {}
    for node in model.graph.all_nodes():
        used.setdefault("" if node.domain == "ai.onnx" else node.domain, set()).add(node.op_type)
    opsets = {domain: model.opset_imports.get(domain, 1) for domain in (*used, "")}
    for domain, opset in opsets.items():
        if opset > max_opset(domain):
            choice = supported_opset([(op, opset) for op in sorted(used.get(domain, ()))], domain)
            if choice.opset is None:
                raise ProviderError(f"ops changed after the newest opset it knows: {', '.join(choice.changed)}")
            opsets[domain] = choice.opset
    model.opset_imports.clear()
    model.opset_imports.update(opsets)


def _drop_identities(graph: ir.Graph) -> None:
    """Have nodes make outputs themselves that were an Identity of what they make.

    ONNX Runtime does the same, but then loses the value for a Cast that reads it too and is followed by Shape.
    """
    for output in list(graph.outputs):
        node = output.producer()
        source = node.inputs[0] if node is not None and (node.domain, node.op_type) == ("", "Identity") else None
        maker = None if source is None else source.producer()
        if node is None or source is None or maker is None or maker.graph is not graph or source.is_graph_output():
            continue
        output.replace_all_uses_with(source, replace_graph_outputs=True)
        graph.remove(node, safe=True)
        source.name, source.type, source.shape = output.name, output.type, output.shape


def _forget_maps(graph: ir.Graph) -> None:
    """Take away the types of maps, which onnx-ir cannot write; ONNX Runtime finds them again from the nodes."""
    for value in (value for node in graph for value in node.outputs):
        inner = value.type
        while isinstance(inner, ir.SequenceType | ir.OptionalType):
            inner = inner.elem_type
        if inner is not None and not isinstance(inner, ir.TensorType):
            value.type = None


def _optimise(source: Path, target: Path, settings: SessionSettings, *, where: str, entries: Mapping[str, str]) -> None:
    entries = {
        **entries,
        "session.optimized_model_external_initializers_file_name": f"{target.stem}.data",
        "session.optimized_model_external_initializers_min_size_in_bytes": str(INLINE_BYTES),
        "session.disable_prepacking": "1",
    }

    def write_to_target(options: Any) -> None:
        options.optimized_model_filepath = str(target)

    use = Use.OPTIMISE
    create_session(str(source), Level.EXTENDED, settings, use, where=where, entries=entries, configure=write_to_target)


def _can_be_read(path: Path, settings: SessionSettings, *, where: str) -> bool:
    """Whether ONNX Runtime reads the graph that it wrote.

    Not always where there are bodies: what its optimiser inserts has the same name in a body as beside it, as the casts
    of half precision do; a constant of a body in a body is written twice; nodes of bodies come in another order.
    """
    try:
        create_session(str(path), Level.NONE, settings, Use.OPTIMISE, where=where)
    except ProviderError:
        return False
    return True


def _split(path: Path, *, version: str, mark: bool) -> BuiltPartition:
    """The graph without the weights that lie in a file, and those weights, mapped; those of bodies stay in it."""
    model = onnx.load(path, load_external_data=False)
    if mark:
        model.metadata_props.add(key=NO_QUANTIZATION_MARK, value="1")
    for graph in _bodies(model.graph):
        for tensor in graph.initializer:
            if tensor.data_location == _EXTERNAL:
                load_external_data_for_tensor(tensor, str(path.parent))
                tensor.ClearField("data_location")
                del tensor.external_data[:]
    inside: list[onnx.TensorProto] = []
    outside: list[onnx.TensorProto] = []
    for tensor in model.graph.initializer:
        (outside if tensor.data_location == _EXTERNAL else inside).append(tensor)
    weights = {tensor.name: _map_tensor(tensor, path.parent) for tensor in outside}
    del model.graph.initializer[:]
    model.graph.initializer.extend(inside)
    return BuiltPartition(payload=model.SerializeToString(deterministic=True), weights=weights, version=version)


def _bodies(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    for node in graph.node:
        for attribute in node.attribute:
            for body in (attribute.g, *attribute.graphs) if attribute.HasField("g") else attribute.graphs:
                yield body
                yield from _bodies(body)


def _map_tensor(tensor: onnx.TensorProto, folder: Path) -> Any:
    place: Mapping[str, str] = {entry.key: entry.value for entry in tensor.external_data}
    dtype = ir.DataType(tensor.data_type).numpy()
    shape = tuple(tensor.dims)
    if 0 in shape:
        return np.empty(shape, dtype)
    # The mapping outlives the folder: the file is gone from it, and its pages stay until the last array is.
    path, offset = folder / place["location"], int(place.get("offset", 0))
    if dtype.name in FOUR_BIT_TYPES:
        packed = np.memmap(path, np.uint8, "r", offset, (stored_size_bytes(dtype.name, shape),))
        return unpack_nibbles(packed, dtype, math.prod(shape)).reshape(shape)
    return np.memmap(path, dtype, "r", offset, shape)
