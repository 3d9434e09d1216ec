"""The constants of a plan, each stored once, with its digest."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from dovetail.plan.container import Blob
from dovetail.plan.manifest import BlobRecord
from dovetail.runtime.save import make_blob, record_blob

__all__ = ["BlobTable", "array_from_tensor"]

Array = npt.NDArray[Any]


def array_from_tensor(tensor: ir.TensorProtocol) -> Array:
    """The array of a constant, without a copy where onnx-ir has it in memory."""
    return np.asarray(tensor.numpy())


class BlobTable:
    """Names, arrays and records of everything a plan carries."""

    def __init__(self) -> None:
        self.arrays: dict[str, Array] = {}
        self._kinds: dict[str, str] = {}
        self._by_id: dict[int, str] = {}

    def add_constant(self, name: str, tensor: ir.TensorProtocol) -> str:
        """Store a constant once; the blob's name comes back."""
        if id(tensor) not in self._by_id:
            self._by_id[id(tensor)] = self.add_array(name, array_from_tensor(tensor))
        return self._by_id[id(tensor)]

    def add_array(self, name: str, array: Array, *, kind: str = "weights") -> str:
        """Store an array under a free name."""
        unique, count = name or "constant", 1
        while unique in self.arrays or unique.startswith("_pad.") or unique == "__metadata__":
            unique, count = f"{name or 'constant'}.{count}", count + 1
        self.arrays[unique] = array
        self._kinds[unique] = kind
        return unique

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
