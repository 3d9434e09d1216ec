"""What a hostile host hands to a plugin: guarded memory, descriptors and expressions that notice misuse.

Nothing here judges. Each object only remembers what the plugin did with it, and a rule reads that afterwards.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, SupportsIndex

import numpy as np
import numpy.typing as npt

from dovetail.allocators import HostAllocator, IGpuAllocator
from dovetail.expr import DimensionOperation, Expr, IExprBuilder, SizeTensor
from dovetail.loggers import ErrorRecorder, IErrorRecorder
from dovetail.plugin.arrays import address_of
from dovetail.plugin.check.host.device_memory import CheckedDevice
from dovetail.plugin.interfaces import IPluginResourceContext
from dovetail.types import Dims, DynamicPluginTensorDesc, PluginTensorDesc

__all__ = [
    "FILL_A",
    "FILL_B",
    "FILL_NAN",
    "LATER_FILLS",
    "MORE_FILLS",
    "Fill",
    "ForbiddenDesc",
    "GuardedBuffer",
    "HostContext",
    "HostExprBuilder",
]

Bytes = npt.NDArray[np.uint8]

_GUARD_BYTES: Final = 64 << 10
_LARGEST_GUARD_BYTES: Final = 1 << 20
_ALIGNMENT: Final = 256


@dataclass(frozen=True)
class Fill:
    """What outputs and workspace hold before a run, and which of two kinds of numbers lies around the inputs."""

    outputs: int
    workspace: int
    guards: int


# The two patterns differ in every bit, and neither is a NaN in a floating-point type that has one. Read as a number of
# any floating-point type, each is neither close to zero nor huge: a sum that starts from it differs visibly.
FILL_A: Final = Fill(0xC1, 0xBF, 0)
FILL_B: Final = Fill(0x3E, 0x40, 1)
# NaN in every floating-point type that has one: what survives a multiplication by zero.
FILL_NAN: Final = Fill(0xFF, 0xFF, 0)
LATER_FILLS: Final = (FILL_NAN, FILL_B)
"""Contents of outputs and workspace before the second and later runs of an object."""
MORE_FILLS: Final = tuple(Fill(byte, byte, 0) for byte in (0x00, 0x01, 0x7F, 0x80))
"""Further contents for the main run: zeros, small integers, and values with one bit set in each byte."""


class GuardedBuffer:
    """Memory with guard bytes on both sides that show a write outside it.

    The guards are as large as the memory itself (64 KiB to 1 MiB), so that a run with a wrong shape is caught and does
    not reach the memory of somebody else. ``guard`` are the bytes that they repeat, without one bytes that differ from
    place to place. On a device the plugin gets a copy of all this, made by ``send``; ``fetch`` brings it back.

    >>> buffer = GuardedBuffer("output 0", 16, fill=0)
    >>> buffer.damage() is None
    True
    """

    def __init__(
        self, name: str, nbytes: int, *, fill: int, guard: bytes = b"", device: CheckedDevice | None = None
    ) -> None:
        guard_bytes = -(-min(max(_GUARD_BYTES, nbytes), _LARGEST_GUARD_BYTES) // 64) * 64
        pattern = _guard_pattern(guard_bytes, guard)
        block = np.empty(nbytes + 2 * guard_bytes + _ALIGNMENT, np.uint8)
        start = guard_bytes + -(address_of(block) + guard_bytes) % _ALIGNMENT
        self.name, self.nbytes = name, block.nbytes
        self.body: Bytes = block[start : start + nbytes]
        self._before: Bytes = block[start - guard_bytes : start]
        self._after: Bytes = block[start + nbytes : start + nbytes + guard_bytes]
        self._expected = pattern
        self.body[...] = fill
        self._before[...] = self._expected
        self._after[...] = self._expected
        self._whole: Bytes = block[start - guard_bytes : start + nbytes + guard_bytes]
        self._there = None if device is None else _DeviceTwin(device, self._whole.size, guard_bytes)

    @property
    def address(self) -> int:
        """Where the memory starts, as the plugin sees it; never 0, even without any bytes."""
        return address_of(self._after) - self.body.size if self._there is None else self._there.address

    def send(self) -> None:
        """Put what it holds where the plugin sees it."""
        if self._there is not None:
            self._there.write(self._whole)

    def fetch(self) -> None:
        """Have what the plugin sees, when the work that was put on the stream is done."""
        if self._there is not None:
            self._there.read(self._whole)

    @contextmanager
    def read_only(self) -> Iterator[None]:
        """Have the system refuse writes to the memory meanwhile: one ends the process.

        Whole pages are protected. They end inside the guards, which are larger than a page.
        """
        start = self.address // mmap.PAGESIZE * mmap.PAGESIZE
        length = self.address + max(self.body.size, 1) - start
        _protect(start, length, mmap.PROT_READ)
        try:
            yield
        finally:
            _protect(start, length, mmap.PROT_READ | mmap.PROT_WRITE)

    def damage(self) -> str | None:
        """What was written outside, or None."""
        after = np.flatnonzero(self._after != self._expected)
        if after.size:
            return f"{after.size} bytes after the end of {self.name}, the first at byte {self.body.size + after[0]}"
        before = np.flatnonzero(self._before != self._expected)
        if before.size:
            first = self._before.size - before[-1]
            return f"{before.size} bytes before the start of {self.name}, the nearest at byte -{first}"
        return None


class _DeviceTwin:
    """The memory on a device that a guarded buffer is copied to, its body at an aligned address."""

    def __init__(self, device: CheckedDevice, nbytes: int, guard_bytes: int) -> None:
        self._block = device.allocate(nbytes + _ALIGNMENT)
        self._offset = -(self._block.address + guard_bytes) % _ALIGNMENT
        self.address = self._block.address + self._offset + guard_bytes

    def write(self, whole: Bytes) -> None:
        """Copy everything there."""
        self._block.write(whole, self._offset)

    def read(self, whole: Bytes) -> None:
        """Copy everything back."""
        self._block.read(whole, self._offset)


def _protect(start: int, length: int, access: int) -> None:
    mprotect = ctypes.CDLL(None, use_errno=True).mprotect
    if mprotect(ctypes.c_void_p(start), ctypes.c_size_t(length), access):
        raise OSError(ctypes.get_errno(), "mprotect")


@lru_cache(maxsize=256)
def _guard_pattern(count: int, unit: bytes) -> Bytes:
    if unit:
        return np.frombuffer(unit * (count // len(unit)), np.uint8)
    # Not one repeated value: a plugin that runs over the end with a constant must not write the guard's own bytes.
    return ((np.arange(count) * 37 + 11) % 251 + 3).astype(np.uint8)


class ForbiddenDesc(DynamicPluginTensorDesc):
    """The descriptor of a position above ``pos``: it holds the invalid values of the contract and notes every read."""

    __slots__ = ("_position", "_reads")

    def __init__(self, position: int, reads: list[str]) -> None:
        self._position, self._reads = position, reads
        self._min = self._opt = self._max = Dims.invalid()

    def _note(self, attribute: str) -> None:
        self._reads.append(f"in_out[{self._position}].{attribute}")

    @property
    def desc(self) -> PluginTensorDesc:
        """Nothing valid; the read is noted."""
        self._note("desc")
        return PluginTensorDesc(Dims.invalid(), None, None)

    @desc.setter
    def desc(self, value: PluginTensorDesc) -> None:
        self._note("desc")

    @property
    def min(self) -> Dims:
        """Nothing valid; the read is noted."""
        return self._invalid("min")

    @min.setter
    def min(self, value: Dims | Iterable[SupportsIndex]) -> None:
        self._note("min")

    @property
    def opt(self) -> Dims:
        """Nothing valid; the read is noted."""
        return self._invalid("opt")

    @opt.setter
    def opt(self, value: Dims | Iterable[SupportsIndex]) -> None:
        self._note("opt")

    @property
    def max(self) -> Dims:
        """Nothing valid; the read is noted."""
        return self._invalid("max")

    @max.setter
    def max(self, value: Dims | Iterable[SupportsIndex]) -> None:
        self._note("max")

    def _invalid(self, attribute: str) -> Dims:
        self._note(attribute)
        return Dims.invalid()

    def __repr__(self) -> str:
        return f"DynamicPluginTensorDesc(position {self._position}: not part of the proposal)"


class HostExprBuilder(IExprBuilder):
    """An expression builder that notes arithmetic on size tensors and goes on with their upper bound."""

    __slots__ = ("misuse",)

    def __init__(self) -> None:
        self.misuse: list[str] = []

    def operation(self, op: DimensionOperation, first: Expr, second: Expr) -> Expr | None:
        """Join two expressions, size tensors too."""
        if isinstance(first, SizeTensor) or isinstance(second, SizeTensor):
            self.misuse.append(f"exprBuilder.operation({getattr(op, 'name', op)}, {first}, {second})")
        return super().operation(op, _without_size_tensor(first), _without_size_tensor(second))

    def declare_size_tensor(self, output_index: int, opt: Expr, upper: Expr) -> Expr:
        """Declare a size tensor; one that depends on another is noted."""
        if isinstance(opt, SizeTensor) or isinstance(upper, SizeTensor):
            self.misuse.append(f"exprBuilder.declare_size_tensor({output_index}, {opt}, {upper})")
        return super().declare_size_tensor(output_index, _without_size_tensor(opt), _without_size_tensor(upper))


def _without_size_tensor(expr: Any) -> Any:
    return expr.upper if isinstance(expr, SizeTensor) else expr


class HostContext(IPluginResourceContext):
    """The resources of one execution context; every use is noted in ``uses``, a list that contexts may share."""

    def __init__(self, name: str = "context", uses: list[str] | None = None) -> None:
        self.name = name
        self.uses: list[str] = [] if uses is None else uses
        self._allocator = _NotingAllocator(self)
        self._recorder = ErrorRecorder()

    @property
    def gpu_allocator(self) -> IGpuAllocator | None:
        """An allocator over host memory."""
        self.uses.append(self.name)
        return self._allocator

    @property
    def error_recorder(self) -> IErrorRecorder | None:
        """A recorder of its own."""
        self.uses.append(self.name)
        return self._recorder


class _NotingAllocator(HostAllocator):
    def __init__(self, context: HostContext) -> None:
        super().__init__()
        self._context = context

    def allocate(self, size: int, alignment: int, flags: int) -> int:
        self._context.uses.append(self._context.name)
        return super().allocate(size, alignment, flags)

    def deallocate(self, memory: int) -> bool:
        self._context.uses.append(self._context.name)
        return super().deallocate(memory)
