"""The tensors of an imported model, each with an array.

Weights that lie in files beside the model are opened by the one safe opener. Large ones stay in their file, mapped and
read only, as do large ones inside the model's own file; small ones are copied, so that nothing hangs on their file.
"""

from __future__ import annotations

import bisect
import math
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, TypeGuard

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from dovetail.errors import ModelError, UnsupportedOpError
from dovetail.network.importer.files import check_range, map_file, open_under, read_range
from dovetail.network.importer.problems import Problems, quote
from dovetail.network.importer.wire import TensorStash

__all__ = ["NO_FOLDER", "byte_count", "load_tensors", "make_strings", "walk_graphs"]

_MAPPED: Final = 64 * 1024
"""Bytes from which on a tensor in another file is mapped."""

NO_FOLDER: Final = "the weights lie in another file, and a model from memory has no folder to look in"


def walk_graphs(graph: ir.Graph) -> Iterator[ir.Graph]:
    """A graph and every graph inside its nodes."""
    yield graph
    yield from graph.subgraphs()


def byte_count(dtype: ir.DataType, dims: tuple[int, ...]) -> int:
    """The bytes a tensor takes in a file, where small types are packed."""
    return -(-math.prod(dims) * dtype.bitwidth // 8)


def load_tensors(
    model: ir.Model, root: str | os.PathLike[str] | None, problems: Problems, stash: TensorStash | None = None
) -> None:
    """Give every tensor of a model an array.

    Args:
        model: Changed in place: initializers and tensor attributes, in functions too.
        root: The model's folder; None when the model has none, and then each tensor must know its own.
        problems: What could not be read.
        stash: Where the contents of large tensors are that the model only has marks for.
    """
    loader = _Loader(root, problems, stash)
    graphs = [*walk_graphs(model.graph)]
    for function in model.functions.values():
        graphs += walk_graphs(function.graph)
    for graph in graphs:
        for value in graph.initializers.values():
            loader.load_initializer(value)
        for node in graph:
            loader.load_attributes(node)


@dataclass
class _Loader:
    root: str | os.PathLike[str] | None
    problems: Problems
    stash: TensorStash | None = None
    _mapped: dict[tuple[str, str], npt.NDArray[np.uint8]] = field(default_factory=dict)
    """Each file is opened, checked and mapped once."""
    _read: dict[tuple[str, str, int, int], npt.NDArray[np.uint8]] = field(default_factory=dict)
    """Tensors that name the same range share it, as tied weights do."""
    _ranges: dict[tuple[str, str], list[tuple[int, int]]] = field(default_factory=dict)
    """The ranges read from each file, in order."""

    def load_initializer(self, value: ir.Value) -> None:
        """Load the tensor of an initializer; what the file says of type and shape gives way to what it has."""
        if value.const_value is None:
            self.problems.add("it has no data", where=f"initializer {quote(value.name)}")
            return
        tensor = self.load(value.const_value)
        value.const_value = tensor
        value.type, value.shape = ir.TensorType(tensor.dtype), ir.Shape(_dims(tensor))

    def load_attributes(self, node: ir.Node) -> None:
        """Load the tensors among a node's attributes."""
        for name, attribute in list(node.attributes.items()):
            if attribute.is_ref():
                continue
            if attribute.type == ir.AttributeType.TENSOR:
                node.attributes[name] = ir.AttrTensor(name, self.load(attribute.as_tensor()))
            elif attribute.type == ir.AttributeType.TENSORS:
                node.attributes[name] = ir.AttrTensors(name, [self.load(t) for t in attribute.as_tensors()])

    def load(self, tensor: ir.TensorProtocol) -> ir.TensorProtocol:
        """The tensor in memory; the same tensor when it could not be read, and then there is a problem."""
        if isinstance(tensor, ir.serde.TensorProtoTensor):
            raw = None if self.stash is None else self.stash.array_of(tensor.raw)
            return _copy(tensor) if raw is None else _tensor(raw, tensor)
        if not isinstance(tensor, ir.ExternalTensor):
            return make_strings(tensor.string_data(), _dims(tensor), tensor.name) if _is_text(tensor) else tensor
        where = f"tensor {quote(tensor.name or '')}"
        try:
            return self._load(tensor, where)
        except ModelError as error:
            self.problems.add_error(error, where=where)
            return tensor

    def _load(self, tensor: ir.ExternalTensor, where: str) -> ir.TensorProtocol:
        root = tensor.base_dir if self.root is None else self.root
        if not os.fspath(root):
            raise ModelError(
                NO_FOLDER, where=where, got=quote(tensor.location), fix="pass the path of the model instead"
            )
        dims = _dims(tensor)
        expected = byte_count(tensor.dtype, dims)
        length = expected if tensor.length is None else tensor.length
        if length != expected:
            raise ModelError(
                "the length in the file does not fit the tensor",
                where=where,
                expected=f"{expected} bytes for {tensor.dtype.name}{list(dims)}",
                got=length,
            )
        raw = self._bytes(os.fspath(root), os.fspath(tensor.location), tensor.offset or 0, length)
        return _tensor(raw, tensor)

    def _bytes(self, root: str, location: str, offset: int, length: int) -> npt.NDArray[np.uint8]:
        key = (root, location, offset, length)
        if key not in self._read:
            where = f"external data {quote(location)}"
            if (root, location) in self._mapped:
                self._claim(root, location, offset, length)
                self._read[key] = self._cut(root, location, offset, length, where)
            else:
                self._read[key] = self._open(root, location, offset, length, where)
        return self._read[key]

    def _open(self, root: str, location: str, offset: int, length: int, where: str) -> npt.NDArray[np.uint8]:
        with open_under(root, location) as file:
            self._claim(root, location, offset, length)
            if length < _MAPPED:
                return read_range(file, offset, length, where=where)
            self._mapped[root, location] = map_file(file, where=where)
            return self._cut(root, location, offset, length, where)

    def _cut(self, root: str, location: str, offset: int, length: int, where: str) -> npt.NDArray[np.uint8]:
        data = self._mapped[root, location]
        check_range(data.size, offset, length, where=where)
        part = data[offset : offset + length]
        return part if length >= _MAPPED else part.copy()

    def _claim(self, root: str, location: str, offset: int, length: int) -> None:
        """Refuse ranges that overlap in part: no writer makes them, and they let a small file fill the memory."""
        ranges = self._ranges.setdefault((root, os.path.normpath(location)), [])
        position = bisect.bisect(ranges, (offset, length))
        for start, count in ranges[max(position - 1, 0) : position + 1]:
            if offset < start + count and start < offset + length:
                raise ModelError(
                    "the range overlaps another tensor's",
                    where=f"external data {quote(location)}",
                    got=f"bytes {offset} to {offset + length} and {start} to {start + count}",
                )
        if length:
            ranges.insert(position, (offset, length))


def _dims(tensor: ir.TensorProtocol) -> tuple[int, ...]:
    return tuple(int(str(dim)) for dim in tensor.shape)


def _tensor(raw: npt.NDArray[np.uint8], tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    """A tensor like another one, on these bytes."""
    dims = _dims(tensor)
    return ir.Tensor(_array(raw, tensor.dtype, dims), dtype=tensor.dtype, shape=ir.Shape(dims), name=tensor.name)


def make_strings(texts: Iterable[bytes], dims: tuple[int, ...], name: str | None) -> ir.StringTensor:
    """A tensor of strings over an array of objects: onnx-ir's own array of bytes would drop NULs at their ends."""
    array: npt.NDArray[Any] = np.empty(math.prod(dims), dtype=object)
    array[:] = [bytes(text) for text in texts]
    return ir.StringTensor(array.reshape(dims), shape=ir.Shape(dims), name=name)


def _is_text(tensor: ir.TensorProtocol) -> TypeGuard[ir.StringTensor]:
    return isinstance(tensor, ir.StringTensor)


def _copy(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    array = np.asarray(tensor.numpy())
    if tensor.dtype == ir.DataType.BOOL:
        array = array.view(np.uint8) != 0  # any other byte in a bool array is undefined behaviour
    return ir.Tensor(array, dtype=tensor.dtype, shape=ir.Shape(_dims(tensor)), name=tensor.name)


def _array(raw: npt.NDArray[np.uint8], dtype: ir.DataType, dims: tuple[int, ...]) -> npt.NDArray[Any]:
    if dtype.bitwidth < 8:
        return _unpack(raw, dtype, dims)
    array: npt.NDArray[Any] = raw.view(dtype.numpy().newbyteorder("<")) if raw.size else np.empty(0, dtype.numpy())
    if dtype == ir.DataType.BOOL:
        array = raw != 0  # any other byte in a bool array is undefined behaviour
    return array.reshape(dims)


def _unpack(raw: npt.NDArray[np.uint8], dtype: ir.DataType, dims: tuple[int, ...]) -> npt.NDArray[Any]:
    """Packed small types, the low bits first, as one element a byte."""
    if dtype.bitwidth not in (2, 4):
        raise UnsupportedOpError(f"{dtype.name} in another file is not supported", where="external data")
    per_byte = 8 // dtype.bitwidth
    shifts = np.arange(per_byte, dtype=np.uint8) * dtype.bitwidth
    values = (raw[:, None] >> shifts) & (2**dtype.bitwidth - 1)
    flat: npt.NDArray[Any] = values.reshape(-1)[: math.prod(dims)].astype(np.uint8)
    return flat.view(dtype.numpy()).reshape(dims)
