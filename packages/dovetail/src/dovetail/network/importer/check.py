"""Is an ONNX file well formed? Names, order, types and sizes, checked on the message before anything is made from it.

Everything wrong is noted, with its place. What the file asks for may still be unsupported; operators are looked at
later, when functions have been inlined.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import onnx
import onnx_ir as ir

from dovetail.errors import UnsupportedOpError
from dovetail.network.importer.maps import ELEMENT_TYPES, KEY_TYPES, find_map
from dovetail.network.importer.problems import Problems, quote

__all__ = ["EXTERNAL_KEYS", "check_proto", "find_tensor_problem"]

EXTERNAL_KEYS: Final = frozenset(("location", "offset", "length", "checksum"))
_MAX_DEPTH: Final = 64
_TYPES: Final = frozenset(int(dtype) for dtype in ir.DataType) - {int(ir.DataType.UNDEFINED)}
_ATTRIBUTE_TYPES: Final = frozenset(int(kind) for kind in ir.AttributeType)
_SPARSE: Final = (onnx.AttributeProto.SPARSE_TENSOR, onnx.AttributeProto.SPARSE_TENSORS)
_ONNX_DOMAINS: Final = ("", "ai.onnx")

_FIELDS: Final[Mapping[int, str]] = {
    **dict.fromkeys((onnx.TensorProto.FLOAT, onnx.TensorProto.COMPLEX64), "float_data"),
    **dict.fromkeys((onnx.TensorProto.DOUBLE, onnx.TensorProto.COMPLEX128), "double_data"),
    **dict.fromkeys((onnx.TensorProto.UINT32, onnx.TensorProto.UINT64), "uint64_data"),
    onnx.TensorProto.INT64: "int64_data",
    onnx.TensorProto.STRING: "string_data",
}
"""Where a tensor that has no raw bytes keeps its numbers; every other type uses ``int32_data``."""


SizeOf = Callable[[onnx.TensorProto], int]
"""How many raw bytes a tensor has, which may lie elsewhere than in the message."""


def _raw_size(tensor: onnx.TensorProto) -> int:
    return len(tensor.raw_data)


def check_proto(model: onnx.ModelProto, problems: Problems, size_of: SizeOf = _raw_size) -> list[onnx.TensorProto]:
    """Note everything that is wrong with the form of a model; the tensors that lie in other files come back."""
    if not _is_text(model):
        problems.add("a name in it is not UTF-8", where="model", fix="check that the file is complete")
        return []
    if not model.HasField("graph"):
        problems.add("there is no graph in it", where="model", fix="check that the file is a complete ONNX model")
        return []
    if model.ir_version < 1:
        problems.add("it does not say which version of the format it has", where="model")
    if not model.graph.output:
        problems.add("it has no outputs", where="model")
    _check_opsets(model.opset_import, model.ir_version, problems, "model")
    check = _GraphCheck(problems, size_of)
    check.check_graph(model.graph, "graph")
    known = set()
    for function in model.functions:
        where = f"function {quote(function.name)}"
        identity = (function.domain, function.name, function.overload)
        if identity in known:
            problems.add("it is defined twice", where=where)
        known.add(identity)
        check.check_function(function, where)
    return check.external


def _check_opsets(opsets: Iterable[onnx.OperatorSetIdProto], ir_version: int, problems: Problems, where: str) -> None:
    versions: dict[str, int] = {}
    for opset in opsets:
        domain = "" if opset.domain in _ONNX_DOMAINS else opset.domain
        if versions.setdefault(domain, opset.version) != opset.version:
            problems.add(f"it imports two versions of operator set {quote(domain)}", where=where)
    if not versions and ir_version >= 3:
        problems.add("it imports no operator set", where=where)
    newest, version = onnx.defs.onnx_opset_version(), versions.get("")
    if version is not None and not 1 <= version <= newest:
        problems.add(
            f"operator set version {version} is not known; expected 1 to {newest}",
            where=where,
            fix="convert the model, or install a newer onnx",
        )


class _GraphCheck:
    """Walks graphs with the names that each scope can see."""

    def __init__(self, problems: Problems, size_of: SizeOf) -> None:
        self._problems = problems
        self._size_of = size_of
        self._scopes: list[set[str]] = []
        self.external: list[onnx.TensorProto] = []

    def check_function(self, function: onnx.FunctionProto, where: str) -> None:
        """A function sees nothing but its inputs."""
        names: set[str] = set()
        for name in function.input:
            self._define(names, name, "input", where)
        self._check_nodes(function.node, names, where)
        for name in function.output:
            if name not in names:
                self._problems.add(f"output {quote(name)} is made by no node", where=where)

    def check_graph(self, graph: onnx.GraphProto, where: str) -> None:
        """A graph or a body of control flow."""
        if len(self._scopes) > _MAX_DEPTH:
            self._problems.add(f"graphs are nested more than {_MAX_DEPTH} deep", where=where)
            return
        names: set[str] = set()
        for info in graph.input:
            self._define(names, info.name, "input", where)
            self._check_type(info, f"{where}, input {quote(info.name)}")
        self._check_initializers(graph, names, where)
        for info in graph.value_info:
            self._check_type(info, f"{where}, value {quote(info.name)}")
        self._check_nodes(graph.node, names, where)
        self._check_outputs(graph, names, where)

    def _check_initializers(self, graph: onnx.GraphProto, names: set[str], where: str) -> None:
        seen: set[str] = set()
        for tensor in graph.initializer:
            place = f"{where}, initializer {quote(tensor.name)}"
            if not tensor.name or tensor.name in seen:
                self._problems.add("it has no name" if not tensor.name else "its name is used twice", where=place)
            seen.add(tensor.name)
            self._check_tensor(tensor, place)
        for sparse in graph.sparse_initializer:
            place = f"{where}, initializer {quote(sparse.values.name)}"
            self._unsupported("sparse initializers are not supported", place, "save the weights as dense tensors")
            seen.add(sparse.values.name)
        names |= seen - {""}

    def _check_nodes(self, nodes: Iterable[onnx.NodeProto], names: set[str], where: str) -> None:
        later = {name for node in nodes for name in node.output}
        self._scopes.append(names)
        for index, node in enumerate(nodes):
            place = f"{where}, node {quote(node.name or index)} ({quote(node.op_type)[1:-1]})"
            if not node.op_type:
                self._problems.add("it has no operator", where=place)
            for name in node.input:
                self._check_use(name, later, place)
            self._check_attributes(node, place)
            for name in node.output:
                if name:
                    self._define(names, name, "output", place)
        self._scopes.pop()

    def _check_use(self, name: str, later: set[str], where: str) -> None:
        if not name or name in self._scopes[-1]:
            return
        if name in later:  # even where a value of that name is outside: the body itself would make it
            what = f"input {quote(name)} is used before it is made, as the nodes go round in a circle"
            self._problems.add(what, where=where, fix="take one node out of the circle")
        elif not any(name in scope for scope in self._scopes):
            self._problems.add(f"input {quote(name)} is made by nothing", where=where)

    def _check_outputs(self, graph: onnx.GraphProto, names: set[str], where: str) -> None:
        seen: set[str] = set()
        for info in graph.output:
            place = f"{where}, output {quote(info.name)}"
            if info.name in seen:
                self._problems.add("it is listed twice", where=place, fix="give one of them an Identity")
            elif info.name not in names:
                outer = any(info.name in scope for scope in self._scopes)
                fix = "return Identity of the outer value" if outer else None
                self._problems.add("nothing in the graph makes it", where=place, fix=fix)
            seen.add(info.name)
            self._check_type(info, place)

    def _define(self, names: set[str], name: str, what: str, where: str) -> None:
        if not name:
            self._problems.add(f"an {what} has no name", where=where)
        elif name in names:
            self._problems.add(f"{what} {quote(name)} has a name that is taken", where=where)
        names.add(name)

    def _check_attributes(self, node: onnx.NodeProto, where: str) -> None:
        seen: set[str] = set()
        for attribute in node.attribute:
            place = f"{where}, attribute {quote(attribute.name)}"
            if not attribute.name or attribute.name in seen:
                self._problems.add("it has no name" if not attribute.name else "it is given twice", where=place)
            seen.add(attribute.name)
            self._check_attribute(attribute, place)

    def _check_attribute(self, attribute: onnx.AttributeProto, where: str) -> None:
        if attribute.ref_attr_name:
            return
        if attribute.type == onnx.AttributeProto.UNDEFINED or attribute.type not in _ATTRIBUTE_TYPES:
            self._problems.add("it has no type", where=where)
        elif attribute.type in _SPARSE:
            self._unsupported("sparse tensors are not supported", where, "save them as dense tensors")
        elif attribute.type == onnx.AttributeProto.STRINGS:
            if not all(_is_utf8(item) for item in attribute.strings):
                self._problems.add("a string in it is not UTF-8", where=where)
        elif attribute.type == onnx.AttributeProto.TENSOR:
            self._check_tensor(attribute.t, where)
        elif attribute.type == onnx.AttributeProto.TYPE_PROTO:
            self._check_kind(attribute.tp, where)
        for tensor in attribute.tensors:
            self._check_tensor(tensor, where)
        if attribute.type == onnx.AttributeProto.GRAPH:
            self.check_graph(attribute.g, f"{where}, body")
        for graph in attribute.graphs:
            self.check_graph(graph, f"{where}, body")

    def _check_tensor(self, tensor: onnx.TensorProto, where: str) -> None:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            self.external.append(tensor)
        problem = find_tensor_problem(tensor, self._size_of)
        if problem is not None:
            self._problems.add(problem, where=where)

    def _check_type(self, info: onnx.ValueInfoProto, where: str) -> None:
        self._check_kind(info.type, where)

    def _check_kind(self, kind: onnx.TypeProto, where: str) -> None:
        """A tensor, a sequence of tensors, or one of both that may be absent; a map, or a sequence of maps."""
        found = find_map(kind)
        if found is not None:
            self._check_map(found, where)
            return
        name, outer, known = kind.WhichOneof("value"), [], _TYPES | {0}
        while name in ("optional_type", "sequence_type") and name not in outer:
            outer.append(name)
            kind = getattr(kind, name).elem_type
            name, known = kind.WhichOneof("value"), _TYPES  # what is inside must say what it is
        is_known = name == "tensor_type" or (name is None and not outer)
        if not is_known or outer == ["sequence_type", "optional_type"]:
            what = " of ".join(str(part) for part in (*outer, name))
            self._unsupported(
                f"values of kind {quote(what)} are not supported", where, "use tensors, sequences or maps"
            )
        elif name is not None and kind.tensor_type.elem_type not in known:
            self._problems.add(f"there is no element type {kind.tensor_type.elem_type}", where=where)

    def _check_map(self, given: onnx.TypeProto.Map, where: str) -> None:
        """From integers or strings to single numbers or strings, which is what operators take and give."""
        inner = given.value_type
        has_elements = inner.WhichOneof("value") == "tensor_type" and inner.tensor_type.elem_type in ELEMENT_TYPES
        if given.key_type not in KEY_TYPES or not has_elements:
            fix = "use int64 or string for keys; float, double, int64 or string for what they lead to"
            self._unsupported("maps of these types are not supported", where, fix)

    def _unsupported(self, what: str, where: str, fix: str) -> None:
        self._problems.add(what, where=where, kind=UnsupportedOpError, fix=fix)


def find_tensor_problem(tensor: onnx.TensorProto, size_of: SizeOf = _raw_size) -> str | None:
    """What is wrong with a stored tensor, or None: its type, its dims, or a count of data that does not fit them."""
    if tensor.data_type not in _TYPES:
        return f"there is no element type {tensor.data_type}"
    if any(dim < 0 for dim in tensor.dims):
        return f"it has a negative dimension: {list(tensor.dims)}"
    if tensor.HasField("segment"):
        return "it is stored in segments, which is not supported"
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        return _find_external_problem(tensor)
    expected, got, unit = _count_data(tensor, size_of)
    if tensor.data_type == onnx.TensorProto.STRING and not all(_is_utf8(text) for text in tensor.string_data):
        return "a string in it is not UTF-8"
    if expected != got:
        return f"its data does not fit its shape {list(tensor.dims)[:8]}; expected {expected} {unit}, got {got}"
    return None


def _count_data(tensor: onnx.TensorProto, size_of: SizeOf) -> tuple[int, int, str]:
    count = math.prod(tensor.dims)
    dtype = ir.DataType(tensor.data_type)
    if tensor.HasField("raw_data") and dtype != ir.DataType.STRING:
        return -(-count * dtype.bitwidth // 8), size_of(tensor), "bytes"
    field = _FIELDS.get(tensor.data_type, "int32_data")
    if dtype in (ir.DataType.COMPLEX64, ir.DataType.COMPLEX128):
        count *= 2
    elif dtype != ir.DataType.STRING and dtype.bitwidth in (2, 4):
        count = -(-count * dtype.bitwidth // 8)
    return count, len(getattr(tensor, field)), f"entries of {field}"


def _find_external_problem(tensor: onnx.TensorProto) -> str | None:
    if tensor.data_type == onnx.TensorProto.STRING:
        return "strings cannot lie in another file"
    entries: dict[str, str] = {}
    for entry in tensor.external_data:
        if entry.key in EXTERNAL_KEYS and entry.key in entries:
            return f"its external data gives {quote(entry.key)} twice"
        entries[entry.key] = entry.value
    if not entries.get("location"):
        return "its external data names no file"
    for key in ("offset", "length"):
        text = entries.get(key, "0")
        if not (text.isascii() and text.isdigit() and len(text) <= 20):
            return f"its external data has a {key} that is not a byte count: {quote(text)}"
    return None


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _is_text(message: Any) -> bool:
    """Whether every string of a message is one; the parser hands out bytes where a string is not UTF-8."""
    stack = [message]
    while stack:
        current = stack.pop()
        if isinstance(current, str | bytes):
            if isinstance(current, bytes):
                return False
        elif isinstance(current, onnx.TensorProto):  # its other fields are data, which must not be copied to look at
            stack += [current.name, current.doc_string, *current.external_data, *current.metadata_props]
        else:
            for field, value in current.ListFields():
                if field.type == field.TYPE_STRING or field.type == field.TYPE_MESSAGE:
                    stack += [value] if isinstance(value, str | bytes) or hasattr(value, "ListFields") else value
    return True
