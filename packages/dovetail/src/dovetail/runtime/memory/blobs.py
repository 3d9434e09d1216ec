"""The blobs of a loaded plan as arrays: mapped, checked once, never copied."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from dovetail.errors import PlanCorruptError
from dovetail.formats import FOUR_BIT_TYPES, unpack_nibbles
from dovetail.plan.container import PlanFile, verify_blob
from dovetail.plan.manifest import BlobRecord
from dovetail.plan.strings import unpack_strings
from dovetail.runtime.steps.base import Array

__all__ = ["BlobStore"]


class BlobStore:
    """Blobs by name. A stripped blob has no array until a refit gives it one."""

    def __init__(
        self,
        records: Mapping[str, BlobRecord],
        file: PlanFile,
        *,
        mapped_by_others: frozenset[str] = frozenset(),
        unread: frozenset[str] = frozenset(),
    ) -> None:
        """Check every blob that is there.

        Args:
            records: What the manifest says of them.
            file: Has them.
            mapped_by_others: Those that providers map themselves: ``verify_others`` checks these.
            unread: Those that no step reads: each is checked when it is first asked for.
        """
        self._records = records
        self._others = mapped_by_others
        self._unread = set(unread)
        self._file = file
        self._arrays: dict[str, Array] = {}
        self._replaced: set[str] = set()
        for name, record in records.items():
            if not record.stripped and name not in mapped_by_others and name not in unread:
                self._verify(name)
        self.missing = {name for name, record in records.items() if record.stripped}

    def verify_others(self) -> None:
        """Check the blobs that providers map themselves; they hold numbers and no code, so it may run meanwhile."""
        for name in self._others:
            record = self._records[name]
            if not record.stripped:
                self._view(name).release()
                self._file.verify_in_file(name, record.algorithm, record.digest)

    def _verify(self, name: str) -> None:
        record = self._records[name]
        verify_blob(name, self._find(name), record.algorithm, record.digest)
        self._unread.discard(name)

    def _view(self, name: str) -> memoryview:
        if name in self._unread:
            self._verify(name)
        return self._find(name)

    def _find(self, name: str) -> memoryview:
        if name not in self._file.blobs:
            raise PlanCorruptError("a blob that the manifest names is not in the file", where=f"blob '{name}'")
        return self._file.blob(name)

    def bytes_of(self, name: str) -> memoryview:
        """The raw bytes, for libraries and kernels."""
        return self._view(name)

    def array(self, name: str) -> Array:
        """The array; an empty placeholder while a stripped blob has no weights."""
        if name not in self._arrays:
            self._arrays[name] = self._load(name)
        return self._arrays[name]

    def _load(self, name: str) -> Array:
        if name not in self._records:
            raise PlanCorruptError("a blob is used but not described", where=f"blob '{name}'")
        record = self._records[name]
        if record.kind == "strings":
            return unpack_strings(self._view(name), f"blob '{name}'")
        dtype = np.dtype(record.dtype)
        if record.stripped:
            # One element seen many times: the shape of a weight that is not here takes no memory.
            return np.broadcast_to(np.zeros((), dtype), record.shape)
        return _as_array(name, self._view(name), dtype, record.shape)

    @property
    def path(self) -> str | None:
        """The plan file; None for a plan in memory."""
        return self._file.path

    def find_places(self, blobs: Mapping[str, str]) -> dict[str, int]:
        """For each key whose blob is in the file as it is, where it begins."""
        in_file = {key: blob for key, blob in blobs.items() if blob not in self._replaced and blob in self._file.blobs}
        return {key: self._file.blobs[blob].begin for key, blob in in_file.items()}

    def replace(self, name: str, array: Array) -> None:
        """Give a blob new contents."""
        self._arrays[name] = array
        self._replaced.add(name)
        self.missing.discard(name)


def _as_array(name: str, view: memoryview, dtype: np.dtype[Any], shape: list[int]) -> Array:
    count = math.prod(shape)
    # NumPy's own types have no four bits; to ask one for its name takes longer than to make the array.
    if dtype.isbuiltin != 1 and dtype.name in FOUR_BIT_TYPES:
        return unpack_nibbles(np.frombuffer(view, np.uint8), dtype, count).reshape(shape)
    if count * dtype.itemsize != view.nbytes:
        raise PlanCorruptError(
            "a blob has another size than its shape says",
            where=f"blob '{name}'",
            expected=count * dtype.itemsize,
            got=view.nbytes,
        )
    return np.frombuffer(view, dtype).reshape(shape)
