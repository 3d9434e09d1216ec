"""Bytes that the engine hands out: a plan, as the contract's ``IHostMemory``."""

from __future__ import annotations

from dovetail._no_op_context import NoOpContext
from dovetail.types import DataType

__all__ = ["HostMemory", "IHostMemory"]


class HostMemory(bytes, NoOpContext):
    """The bytes of a plan.

    >>> memory = HostMemory(b"plan"); memory.nbytes, memory.dtype.name
    (4, 'INT8')
    """

    __slots__ = ()

    def __del__(self) -> None:
        """Nothing: the contract has the name, and scripts call it."""

    @property
    def nbytes(self) -> int:
        """How many bytes there are."""
        return len(self)

    @property
    def dtype(self) -> DataType:
        """What the memory holds: bytes."""
        return DataType.INT8


IHostMemory = HostMemory
"""The contract's name."""
