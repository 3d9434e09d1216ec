"""One launch of a kernel as a record: what a plugin plans, and what a device or an interpreter carries out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, Final

from dovetail.types import DataType, TensorFormat

if TYPE_CHECKING:
    from dovetail_cuda.compile.request import KernelRequest

__all__ = [
    "Argument",
    "BufferSize",
    "DeviceBuffer",
    "DeviceTensor",
    "HostConstant",
    "KernelLaunch",
    "ceil_div",
    "element_grid",
    "make_request",
    "measure_buffers",
    "place_buffers",
]

_KERNELS: Final = "dovetail_tensorrt.builtin.kernels"
_ALIGNMENT_BYTES: Final = 256
_POINTERS: Final[Mapping[DataType, str]] = {
    DataType.FLOAT: "*fp32",
    DataType.HALF: "*fp16",
    DataType.BF16: "*bf16",
    DataType.INT8: "*i8",
    DataType.INT32: "*i32",
    DataType.INT64: "*i64",
}


@dataclass(frozen=True)
class DeviceBuffer:
    """Memory of a device: where it starts, and what its elements are."""

    address: int
    type: DataType

    @property
    def kind(self) -> str:
        """The type of the pointer in Triton's words."""
        return _POINTERS[self.type]


@dataclass(frozen=True)
class DeviceTensor:
    """A tensor in memory of a device."""

    buffer: DeviceBuffer
    shape: tuple[int, ...]
    format: TensorFormat
    scale: float

    @property
    def size(self) -> int:
        """How many elements it has."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class HostConstant:
    """FP32 numbers of the host that a kernel reads; a device brings them into its memory once."""

    data: bytes

    @property
    def kind(self) -> str:
        """The type of the pointer in Triton's words."""
        return _POINTERS[DataType.FLOAT]


Argument = DeviceBuffer | HostConstant | int | float
BufferSize = tuple[int, DataType]
"""The number and the type of the elements of a buffer in the workspace."""


@dataclass(frozen=True, kw_only=True)
class KernelLaunch:
    """A kernel with its arguments.

    Attributes:
        module: The module of ``kernels`` that has it.
        function: Its name.
        arguments: What it gets at each run, in the order of its parameters.
        constants: What it is compiled with; these are the parameters after the arguments.
        grid: How many programs there are.
        num_warps: How many warps each of them has.
    """

    module: str
    function: str
    arguments: Mapping[str, Argument]
    constants: Mapping[str, Any] = field(default_factory=dict)
    grid: tuple[int, int, int]
    num_warps: int = 4

    @property
    def variant(self) -> tuple[object, ...]:
        """What decides the code: launches that agree in it run the same one."""
        kinds = (*self.arguments, *map(_kind_of, self.arguments.values()))
        return self.module, self.function, self.num_warps, kinds, tuple(self.constants.items())


def make_request(launch: KernelLaunch, capability: int) -> KernelRequest:
    """What has to be compiled for a launch on a device of this compute capability."""
    from dovetail_cuda.compile.request import KernelRequest

    signature = {name: _kind_of(value) for name, value in launch.arguments.items()}
    return KernelRequest(
        function=launch.function,
        text=_read_text(launch.module),
        signature=signature | dict.fromkeys(launch.constants, "constexpr"),
        constants=dict(launch.constants),
        num_warps=launch.num_warps,
        capability=capability,
    )


@cache
def _read_text(module: str) -> str:
    return resources.files(_KERNELS).joinpath(f"{module}.py").read_text(encoding="utf-8")


def _kind_of(value: Argument) -> str:
    if isinstance(value, DeviceBuffer | HostConstant):
        return value.kind
    if isinstance(value, float):
        return "fp32"
    return "i32" if -(2**31) <= value < 2**31 else "i64"


def ceil_div(count: int, size: int) -> int:
    """How many blocks of a size hold so many elements.

    >>> ceil_div(0, 4), ceil_div(5, 4)
    (0, 2)
    """
    return -(-count // size)


def element_grid(count: int, block: int) -> tuple[int, int, int]:
    """A program for each block of elements."""
    return ceil_div(count, block), 1, 1


def measure_buffers(sizes: Iterable[BufferSize]) -> int:
    """The bytes of a workspace with these buffers.

    >>> measure_buffers([(1, DataType.INT32), (64, DataType.FLOAT)])
    512
    """
    return sum(_align_bytes(count * dtype.bits // 8) for count, dtype in sizes)


def place_buffers(workspace: int, sizes: Iterable[BufferSize]) -> list[DeviceBuffer]:
    """The buffers of a workspace."""
    found, address = [], workspace
    for count, dtype in sizes:
        found.append(DeviceBuffer(address, dtype))
        address += _align_bytes(count * dtype.bits // 8)
    return found


def _align_bytes(size_bytes: int) -> int:
    return ceil_div(size_bytes, _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES
