"""The constants of a plan, each stored once, with its digest."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import xxhash

from dovetail.plan.container import Blob
from dovetail.plan.manifest import BlobRecord
from dovetail.plan.strings import pack_strings, unpack_strings
from dovetail.runtime.save import make_blob, record_blob

__all__ = ["BlobTable", "array_from_tensor"]

Array = npt.NDArray[Any]


def array_from_tensor(tensor: ir.TensorProtocol) -> Array:
    """The array of a constant, without a copy where onnx-ir has it in memory; strings as ``str``."""
    if tensor.dtype != ir.DataType.STRING:
        return np.asarray(tensor.numpy())
    array: Array = np.empty(tensor.size, dtype=object)
    array[:] = [bytes(text).decode() for text in tensor.string_data()]  # type: ignore[attr-defined]
    return array.reshape(tensor.shape.numpy())


class BlobTable:
    """Names, arrays and records of everything a plan carries."""

    def __init__(self) -> None:
        self.arrays: dict[str, Array] = {}
        self._kinds: dict[str, str] = {}
        self._by_id: dict[int, tuple[ir.TensorProtocol, str]] = {}
        """Stored constants; the tensors are kept alive, so that no other one gets their identity."""
        self._by_contents: dict[tuple[object, ...], str] = {}

    def add_constant(self, name: str, tensor: ir.TensorProtocol) -> str:
        """Store a constant once and return the name of its blob."""
        if id(tensor) not in self._by_id:
            array = array_from_tensor(tensor)
            is_text = tensor.dtype == ir.DataType.STRING
            stored = (
                self.add_array(name, pack_strings(array), kind="strings") if is_text else self.add_array(name, array)
            )
            self._by_id[id(tensor)] = (tensor, stored)
        return self._by_id[id(tensor)][1]

    def array(self, name: str) -> Array:
        """A constant as steps take it."""
        array = self.arrays[name]
        return unpack_strings(array.data, f"blob '{name}'") if self._kinds[name] == "strings" else array

    def add_array(self, name: str, array: Array, *, kind: str = "weights") -> str:
        """Store an array under a free name."""
        unique, count = name or "constant", 1
        while unique in self.arrays or unique.startswith("_pad.") or unique == "__metadata__":
            unique, count = f"{name or 'constant'}.{count}", count + 1
        self.arrays[unique] = array
        self._kinds[unique] = kind
        return unique

    def add_weight(self, name: str, array: Array) -> str:
        """Store a weight of a compiled partition; one with the same contents, whoever made it, is stored once."""
        key = (array.dtype.name, array.shape, _digest(array))
        if key not in self._by_contents:
            self._by_contents[key] = self.add_array(name, array)
        return self._by_contents[key]

    def add_packed(self, name: str, array: Array, recipe: object) -> str:
        """Store a packed weight once for everyone who packs it from the same sources by the same recipe."""
        key = ("packed", array.dtype.name, array.shape, _digest(array), recipe)
        if key not in self._by_contents:
            self._by_contents[key] = self.add_array(name, array)
        return self._by_contents[key]

    def add_payload(self, name: str, payload: bytes) -> str:
        """Store what a provider built, once for all programs."""
        return self._add_bytes(name, payload, "payload")

    def add_code(self, name: str, code: bytes) -> str:
        """Store device code, once for all steps."""
        return self._add_bytes(name, code, "kernel")

    def _add_bytes(self, name: str, payload: bytes, kind: str) -> str:
        key = (kind, xxhash.xxh3_128_hexdigest(payload))
        if key not in self._by_contents:
            self._by_contents[key] = self.add_array(name, np.frombuffer(payload, np.uint8), kind=kind)
        return self._by_contents[key]

    def finish(self, *, strip: frozenset[str] = frozenset()) -> tuple[list[Blob], dict[str, BlobRecord]]:
        """The container's blobs and the manifest's records; stripped ones have a record only."""
        blobs, records = [], {}
        # By name, as manifests are: a plan that is loaded and saved again is the same file.
        for name, array in sorted(self.arrays.items(), key=itemgetter(0)):
            blob = make_blob(name, array)
            record = record_blob(blob, array, kind=self._kinds[name])
            if name in strip:
                record = BlobRecord(
                    kind=record.kind,
                    dtype=record.dtype,
                    shape=record.shape,
                    algorithm=record.algorithm,
                    digest="",
                    stripped=True,
                )
            else:
                blobs.append(blob)
            records[name] = record
        return blobs, records


def _digest(array: Array) -> str:
    # As bytes: types that NumPy itself lacks have no buffer of their own.
    return xxhash.xxh3_128_hexdigest(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
