"""Bindings by address: the inputs and outputs of an engine in a context, with views of the memory the caller gives.

A caller whose buffers change from run to run gives few addresses again and again. The views over them are kept as long
as the shape stays, so that moving a binding makes nothing new. A view owns nothing: for whatever lies at its address by
then it is as good as a new one.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import numpy as np

from dovetail.errors import InternalError
from dovetail.plan.manifest import Manifest, ProgramRecord, TensorRecord
from dovetail.runtime.arrays import PackedMemory, array_at
from dovetail.runtime.steps import Array
from dovetail.types import DataType

__all__ = ["Binding", "Bindings"]

_MAX_VIEWS: Final = 8
"""Addresses that a binding remembers; a caller with ever new ones must not make it grow."""
_PACKED: Final = frozenset(kind.numpy for kind in DataType if kind.bits < 8)


class Binding:
    """One input or output: where it lies, as an array."""

    __slots__ = ("_dtype", "_packed", "_views", "index", "is_direct", "is_packed", "name", "shape", "tensor")

    def __init__(self, tensor: TensorRecord, index: int) -> None:
        self.tensor = tensor
        self.name = tensor.name
        self.index = index
        """The value of the tensor in the program."""
        self._dtype = np.dtype(tensor.dtype)
        self.is_packed = not tensor.type and self._dtype in _PACKED
        """Whether two elements share a byte of the caller's memory."""
        self.is_direct = False
        """Whether its array lies at the address itself: it is neither packed nor empty."""
        self._packed: PackedMemory | None = None
        self.shape: tuple[int, ...] | None = None
        """The physical shape it is bound with; None where nothing is bound, as for shapes that only the run tells."""
        self._views: dict[int, Array] = {}

    def bind(self, address: int, shape: tuple[int, ...]) -> Array:
        """The array over memory at an address, which has this shape from now on."""
        if shape != self.shape:
            self.shape = shape
            self.is_direct = not self.is_packed and 0 not in shape
            self._views.clear()
        return self.move(address)

    def move(self, address: int) -> Array:
        """The array over memory at another address, in the shape that the binding has."""
        view = self._views.get(address)
        return self._make_view(address) if view is None else view

    def _make_view(self, address: int) -> Array:
        if self.shape is None:
            raise InternalError("a binding without a shape was moved", where=f"tensor '{self.name}'")
        if self.is_packed:
            self._packed = PackedMemory(address, self.shape, self._dtype)
            return self._packed.array
        view = array_at(address, self.shape, self._dtype)
        if len(self._views) >= _MAX_VIEWS:
            self._views.clear()
        self._views[address] = view
        return view

    def unpack(self) -> None:
        """Bring elements that share bytes from the caller's memory into the array, before a run."""
        if self._packed is not None:
            self._packed.read()

    def pack(self) -> None:
        """Bring them from the array into the caller's memory, after a run."""
        if self._packed is not None:
            self._packed.write()


class Bindings:
    """All inputs and outputs of a context, for the program of one profile."""

    def __init__(self, manifest: Manifest, program: ProgramRecord) -> None:
        self.inputs = [Binding(t, i) for t, i in zip(manifest.inputs, program.inputs, strict=True)]
        self.outputs = [Binding(t, i) for t, i in zip(manifest.outputs, program.outputs, strict=True)]
        self.packed_inputs = [binding for binding in self.inputs if binding.is_packed]
        self.aliased = [binding for binding in self.outputs if binding.tensor.alias is not None]
        names = Counter(binding.name for binding in (*self.inputs, *self.outputs))
        self.movable = {b.name: b for b in (*self.inputs, *self.outputs) if names[b.name] == 1}
        """Those for which an address by name says all, by name."""
