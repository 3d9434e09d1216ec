"""ONNX files, bytes and messages into onnx-ir models, with their tensors, whoever wrote them.

No code from a file is run, and no file outside the model's folder is read. A file is mapped, and its large tensors stay
in the map; the rest is checked as a message before a model is made from it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import onnx
import onnx_ir as ir

from dovetail.errors import DovetailError, ModelError, UsageError
from dovetail.file_kinds import START_BYTES, describe_start, looks_like_plan
from dovetail.files import open_regular
from dovetail.network.importer.check import EXTERNAL_KEYS, check_proto
from dovetail.network.importer.files import map_file
from dovetail.network.importer.maps import model_from_proto, model_to_proto
from dovetail.network.importer.order import sort_nodes
from dovetail.network.importer.problems import Problems, mark_place, quote
from dovetail.network.importer.tensors import NO_FOLDER, load_tensors
from dovetail.network.importer.wire import TensorStash

__all__ = ["Source", "loose_model", "read_model"]

Source = str | os.PathLike[str] | bytes | onnx.ModelProto | ir.Model
"""What a model can be read from."""


def read_model(source: Source, problems: Problems, on_damage: Callable[[onnx.ModelProto], None]) -> ir.Model:
    """The model that a source holds, with all tensors; a model in memory is left as it is.

    Args:
        source: A path, bytes, a message or a model.
        problems: What is wrong with tensors. What is wrong with the form of the model is raised, with all of these.
        on_damage: Called with a message whose form is wrong, before that is raised, to note what else is wrong with it.
    """
    if isinstance(source, ir.Model):
        try:
            model = source.clone()
        except Exception:  # noqa: BLE001 - a graph that is not closed or not sorted fails somewhere inside
            return _read_proto(_message_of(source), None, None, problems, on_damage)
        load_tensors(model, None, problems)
        return model
    if isinstance(source, onnx.ModelProto):
        return _read_proto(source, None, None, problems, on_damage)
    if isinstance(source, bytes | bytearray | memoryview):
        stash = TensorStash(bytes(source))
        return _read_proto(_parse(stash), None, stash, problems, on_damage)
    if isinstance(source, str | os.PathLike):
        stash = TensorStash(_read_file(Path(source)))
        return _read_proto(_parse(stash), Path(source).parent, stash, problems, on_damage)
    raise UsageError(
        "this is no model",
        where="import_model",
        expected="a path, bytes, an onnx.ModelProto or an onnx_ir.Model",
        got=type(source).__name__,
    )


def _read_file(path: Path) -> bytes | memoryview:
    where = f"model {quote(path, 200)}"
    try:
        with open_regular(path, follow=True) as file:
            return map_file(file, where=where).data
    except OSError as error:
        raise ModelError(f"the file cannot be read: {error.strerror or error}", where=where) from error


def _parse(stash: TensorStash) -> onnx.ModelProto:
    model, data = onnx.ModelProto(), stash.thin()
    try:
        model.ParseFromString(data)
    except Exception as error:  # the parser has error classes of its own
        raise _describe_foreign(bytes(data[:START_BYTES]), len(data)) from error
    return model


def _describe_foreign(start: bytes, size_bytes: int) -> ModelError:
    """What bytes are that are no model, as far as that shows."""
    if looks_like_plan(start):
        fix = "load it with dovetail.load(path), or give the model that it was built from"
        return ModelError("this is a plan, which is built already, and not an ONNX model", where="model", fix=fix)
    kind = describe_start(start)
    if kind is not None:
        fix = "export the model to ONNX, and give that file"
        return ModelError(f"this is {kind}, and not an ONNX model", where="model", fix=fix)
    fix = "check that the file is complete"
    return ModelError("the bytes are not an ONNX model", where="model", got=f"{size_bytes} bytes", fix=fix)


def _read_proto(
    proto: onnx.ModelProto,
    root: os.PathLike[str] | None,
    stash: TensorStash | None,
    problems: Problems,
    on_damage: Callable[[onnx.ModelProto], None],
) -> ir.Model:
    try:
        proto = sort_nodes(proto)
        external = check_proto(proto, problems) if stash is None else check_proto(proto, problems, stash.size_of)
        _settle_external(external, problems, root)
        if len(problems):
            on_damage(proto)
            problems.raise_if_any()
        model = model_from_proto(proto)
    except DovetailError:
        raise
    except Exception as error:  # the reader fails in many ways on bytes that only look like a model
        raise ModelError(f"the model cannot be read: {_root_cause(error)}", where="model") from error
    if not model.opset_imports:
        model.opset_imports[""] = 1  # what files meant before they had to say it
    load_tensors(model, root, problems, stash)
    return model


def _settle_external(tensors: list[onnx.TensorProto], problems: Problems, root: os.PathLike[str] | None) -> None:
    """Refuse weights in other files when there is no folder; otherwise keep only the keys that the format defines."""
    for tensor in tensors:
        if root is None:
            problems.add(
                NO_FOLDER,
                where=f"tensor {quote(tensor.name)}",
                fix="pass the path of the model, or save it with its weights inside",
            )
        else:
            known = {entry.key: entry.value for entry in tensor.external_data if entry.key in EXTERNAL_KEYS}
            del tensor.external_data[:]
            for key, value in known.items():
                tensor.external_data.add(key=key, value=value)


def _message_of(model: ir.Model) -> onnx.ModelProto:
    try:
        return model_to_proto(model)
    except Exception as error:  # whatever is wrong with the model
        raise ModelError(f"the model is not well formed: {_root_cause(error)}", where="model") from error


def _root_cause(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    text = str(error).splitlines()
    return f"{type(error).__name__}: {text[0][:200] if text else ''}"


# what is left of a model whose form is wrong


def loose_model(proto: onnx.ModelProto) -> ir.Model:
    """The nodes of a message one by one, in a graph that connects nothing: enough to look at each of them.

    Calls of functions are left out, and bodies of control flow are empty; the nodes in them are in the graph too.
    """
    functions = {(function.domain, function.name, function.overload) for function in proto.functions}
    opsets = {opset.domain: opset.version for opset in proto.opset_import} or {"": 1}
    nodes = []
    for given, place in _loose_nodes(proto):
        if (given.domain, given.op_type, given.overload) in functions:
            continue
        try:
            node = _loose_node(given)
        except Exception:  # noqa: BLE001, S112 - what is wrong with it is noted already
            continue
        if place:
            mark_place(node, place)
        nodes.append(node)
    return ir.Model(ir.Graph([], [], nodes=nodes, opset_imports=opsets), ir_version=max(proto.ir_version, 1))


def _loose_nodes(proto: onnx.ModelProto) -> Iterator[tuple[onnx.NodeProto, str]]:
    todo = [(node, "") for node in proto.graph.node]
    for function in proto.functions:
        todo += [(node, f"function {quote(function.name)}") for node in function.node]
    while todo:
        node, place = todo.pop()
        yield node, place
        for attribute in node.attribute:
            if attribute.HasField("g"):
                inner = f"{quote(attribute.name)[1:-1]} of node {quote(node.name or node.op_type)}"
                todo += [(item, f"{inner}, {place}" if place else inner) for item in attribute.g.node]


def _loose_node(node: onnx.NodeProto) -> ir.Node:
    return ir.Node(
        node.domain,
        node.op_type,
        [ir.Value(name=name) if name else None for name in node.input],
        [_loose_attribute(attribute) for attribute in node.attribute],
        overload=node.overload,
        num_outputs=len(node.output),
        name=node.name,
    )


def _loose_attribute(attribute: onnx.AttributeProto) -> ir.Attr:
    if attribute.type == onnx.AttributeProto.GRAPH and not attribute.ref_attr_name:
        return ir.AttrGraph(attribute.name, ir.Graph([], [], nodes=[]))
    if attribute.type == onnx.AttributeProto.GRAPHS and not attribute.ref_attr_name:
        return ir.AttrGraphs(attribute.name, [])
    return ir.serde.deserialize_attribute(attribute)
