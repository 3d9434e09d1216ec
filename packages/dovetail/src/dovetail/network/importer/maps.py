"""Maps between ONNX messages and onnx-ir, which has no type for them and fails on a message or a model that has one.

So the types of maps are taken out before onnx-ir looks, and put back on its other side. Only the inputs and outputs of
a model have to say that they are maps; what other values are follows from their nodes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import onnx
import onnx_ir as ir

from dovetail.network.value_types import MapType, has_map

__all__ = ["ELEMENT_TYPES", "KEY_TYPES", "find_map", "model_from_proto", "model_to_proto", "save_model"]

KEY_TYPES: Final = frozenset((onnx.TensorProto.INT64, onnx.TensorProto.STRING))
"""What the keys of a map can be."""
ELEMENT_TYPES: Final = frozenset(
    (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE, onnx.TensorProto.INT64, onnx.TensorProto.STRING)
)
"""What they can lead to."""


def find_map(kind: onnx.TypeProto) -> onnx.TypeProto.Map | None:
    """The map that a type is, or is a sequence of."""
    inner = kind.sequence_type.elem_type if kind.HasField("sequence_type") else kind
    return inner.map_type if inner.HasField("map_type") else None


# reading


def model_from_proto(proto: onnx.ModelProto) -> ir.Model:
    """A message as a model; the message is left as it is."""
    if not any(find_map(info.type) is not None for infos in _info_lists(proto) for info in infos):
        return ir.from_proto(proto)
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    for infos in _info_lists(copy):
        for info in infos:
            if find_map(info.type) is not None:
                info.ClearField("type")
    model = ir.from_proto(copy)
    given = {info.name: info.type for info in (*proto.graph.input, *proto.graph.output)}
    for value in (*model.graph.inputs, *model.graph.outputs):
        kind = given.get(value.name or "")
        if kind is not None and find_map(kind) is not None:
            value.type = _read_type(kind)
    return model


def _read_type(kind: onnx.TypeProto) -> ir.TypeProtocol:
    if kind.HasField("sequence_type"):
        return ir.SequenceType(_read_type(kind.sequence_type.elem_type))
    given = kind.map_type
    return MapType(ir.DataType(given.key_type), ir.DataType(given.value_type.tensor_type.elem_type))


def _info_lists(proto: onnx.ModelProto) -> Iterator[Any]:
    """Every list in a message that says what values are, those of bodies and functions too."""
    graphs, nodes = [proto.graph], [*proto.graph.node]
    for function in proto.functions:
        yield function.value_info
        nodes += function.node
    while nodes:
        for attribute in nodes.pop().attribute:
            bodies = [attribute.g, *attribute.graphs] if attribute.HasField("g") else attribute.graphs
            graphs += bodies
            nodes += [node for body in bodies for node in body.node]
    for graph in graphs:
        yield from (graph.input, graph.output, graph.value_info)


# writing


def model_to_proto(model: ir.Model) -> onnx.ModelProto:
    """A model as a message."""
    with _without_maps(model) as maps:
        proto = ir.to_proto(model)
    _declare(proto, maps)
    return proto


def save_model(model: ir.Model, path: str | os.PathLike[str], **options: Any) -> None:
    """Write a model to a file.

    Args:
        model: The model, which is left as it is.
        path: The file.
        options: As ``onnx_ir.save`` takes them.
    """
    with _without_maps(model) as maps:
        ir.save(model, path, **options)
    if maps:
        proto = onnx.load(path, load_external_data=False)
        _declare(proto, maps)
        onnx.save(proto, path)


@contextmanager
def _without_maps(model: ir.Model) -> Iterator[dict[str, ir.TypeProtocol]]:
    """A model whose maps have no type for a while; the types of its inputs and outputs among them, by name."""
    values = [*model.graph.inputs, *(value for node in model.graph.all_nodes() for value in node.outputs)]
    values += [value for body in model.graph.subgraphs() for value in body.inputs]
    kinds = {value: value.type for value in values if value.type is not None and has_map(value.type)}
    for value in kinds:
        value.type = None
    ports = [*model.graph.inputs, *model.graph.outputs]
    try:
        yield {value.name or "": kinds[value] for value in ports if value in kinds}
    finally:
        for value, kind in kinds.items():
            value.type = kind


def _declare(proto: onnx.ModelProto, maps: dict[str, ir.TypeProtocol]) -> None:
    for info in (*proto.graph.input, *proto.graph.output):
        if info.name in maps:
            _write_type(info.type, maps[info.name])


def _write_type(target: onnx.TypeProto, kind: ir.TypeProtocol) -> None:
    if isinstance(kind, ir.SequenceType):
        _write_type(target.sequence_type.elem_type, kind.elem_type)
    elif isinstance(kind, MapType):
        target.map_type.key_type = int(kind.key_type)
        target.map_type.value_type.tensor_type.elem_type = int(kind.dtype)
