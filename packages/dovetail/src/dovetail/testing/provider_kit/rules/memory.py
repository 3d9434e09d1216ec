"""Rules about memory: P50 to P56."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from dovetail.host_arrays import array_at
from dovetail.provider.interfaces import HOST_MEMORY, DeviceArray, MemoryInfo, Provider, TensorSpec
from dovetail.rules import Broken, NotOffered
from dovetail.testing.provider_kit.device_arrays import DeviceArrays
from dovetail.testing.provider_kit.rules.catalogue import rule
from dovetail.testing.provider_kit.subject import CheckedProvider, overrides

__all__: list[str] = []

_SIZES: Final = (1, 3, 256, 1000, 70_000)
_ARRAYS: Final = (
    np.arange(24, dtype=np.float32).reshape(2, 3, 4),
    np.array(7, np.int64),
    np.zeros((0, 4), np.float32),
    np.array([True, False, True]),
    np.arange(9, dtype=np.uint8),
    np.linspace(-1, 1, 10).astype(np.float16),
)


@rule(
    "P50",
    "allocate gives aligned memory that is nobody else's, and deallocate takes it back",
    why="Values of an arena are placed at multiples of the alignment; two owners of a byte overwrite each other.",
    fix="align as asked, at least to MemoryInfo.alignment_bytes, and return False for an address that is not yours",
)
def judge_allocator(subject: CheckedProvider) -> str:
    """Take blocks of several sizes, and give them back."""
    provider = subject.provider
    allocator, alignment = provider.allocator, provider.memory.alignment_bytes
    blocks = [(allocator.allocate(size, alignment, 0), size) for size in _SIZES * 3]
    try:
        _check_blocks(blocks, alignment)
    finally:
        returned = [allocator.deallocate(address) for address, _ in blocks if address]
    if not all(returned):
        raise Broken("deallocate gave False for memory that allocate gave")
    if allocator.deallocate(blocks[0][0]):
        raise Broken("deallocate took the same memory back twice")
    return f"aligned to {alignment} bytes"


def _check_blocks(blocks: list[tuple[int, int]], alignment: int) -> None:
    for address, size in blocks:
        if not address:
            raise Broken(f"allocate gave no memory for {size} bytes")
        if address % alignment:
            raise Broken(f"allocate gave {address:#x}, which is not a multiple of {alignment}")
    ordered = sorted(blocks)
    for (address, size), (following, _) in pairwise(ordered):
        if address + size > following:
            raise Broken("two blocks overlap")


@rule(
    "P51",
    "array_at is a view of memory, with the shape, type and address that were asked for",
    why="Everything that runs gets its arrays from there.",
    fix="return an object with shape, dtype and address (a DeviceArray), a NumPy array where the memory is the host's",
)
def judge_array_at(subject: CheckedProvider) -> None:
    """Open memory in several ways."""
    provider = subject.provider
    with DeviceArrays(provider) as arrays:
        for wanted in _ARRAYS:
            array = arrays.make(wanted.shape, wanted.dtype)
            if tuple(array.shape) != wanted.shape or np.dtype(array.dtype) != wanted.dtype:
                raise Broken(f"array_at gave {array.dtype} {array.shape}, expected {wanted.dtype} {wanted.shape}")
            if provider.memory.is_host and not isinstance(array, np.ndarray):
                raise Broken(f"array_at gave {type(array).__name__} in memory of the host, expected a NumPy array")
            if not provider.memory.is_host and not isinstance(array, DeviceArray):
                raise Broken(f"array_at gave {type(array).__name__}, which has no shape, dtype and address")
        _check_offset(provider, arrays)


def _check_offset(provider: Provider, arrays: DeviceArrays) -> None:
    """A view that starts in the middle of a block sees the middle."""
    numbers = np.arange(128, dtype=np.float32)
    whole = arrays.upload(numbers)
    half = provider.array_at(_address(whole) + 256, (64,), np.dtype(np.float32))
    if not np.array_equal(arrays.download(half), numbers[64:]):
        raise Broken("array_at of an address inside a block does not see what lies there")


def _address(array: Any) -> int:
    return int(array.ctypes.data if isinstance(array, np.ndarray) else array.address)


@rule(
    "P52",
    "Copies to the device, inside it and back keep every byte",
    why="The runtime moves values between memories with them.",
    fix="copy the bytes of any type and shape, those without elements too, in the order of the stream",
)
def judge_copies(subject: CheckedProvider) -> None:
    """There, along, and back."""
    provider = subject.provider
    for source, target in ((HOST_MEMORY, provider.memory), (provider.memory, HOST_MEMORY), (provider.memory,) * 2):
        if not provider.can_copy(source, target):
            raise Broken(f"can_copy says that it cannot copy from {source.name} to {target.name}")
    with DeviceArrays(provider) as arrays:
        for wanted in _ARRAYS:
            first, second = arrays.upload(wanted), arrays.make(wanted.shape, wanted.dtype)
            provider.copy(first, second, None)
            if not np.array_equal(arrays.download(second), wanted):
                raise Broken(f"{wanted.dtype} {wanted.shape} came back changed")


@rule(
    "P53",
    "can_copy says no for memory that it does not know",
    why="The planner then goes by way of the host.",
    fix="say yes only for your own memory, the host's, and peers that copy() really reaches",
)
def judge_can_copy(subject: CheckedProvider) -> None:
    """Ask for a memory that does not exist."""
    stranger = MemoryInfo(name="memory of the kit")
    provider = subject.provider
    if provider.can_copy(stranger, provider.memory) or provider.can_copy(provider.memory, stranger):
        raise Broken("can_copy says yes for a memory that does not exist")


@rule(
    "P54",
    "import_array takes its own arrays without a copy, and nothing else",
    why="An array that is taken by mistake is read as if it lay on the device.",
    fix="return None for everything that does not lie in this memory",
)
def judge_import(subject: CheckedProvider) -> None:
    """Offer its own array, one of the host, and something that is none."""
    provider = subject.provider
    if not provider.memory.is_host:
        for stranger in (np.zeros(4, np.float32), object(), None, 3):
            if provider.import_array(stranger) is not None:
                raise Broken(f"import_array took {type(stranger).__name__}")
    if not overrides(provider, "import_array"):
        raise NotOffered("callers' arrays are copied")
    with DeviceArrays(provider) as arrays:
        own = arrays.upload(np.arange(4, dtype=np.float32))
        taken = provider.import_array(own)
        if taken is None:
            raise Broken("import_array does not take what array_at gives")
        if _address(taken) != _address(own) or tuple(taken.shape) != (4,):
            raise Broken("import_array gave an array at another place, or of another shape")


@rule(
    "P55",
    "pinned_allocator gives memory that the host can read and write",
    why="The runtime stages uploads and results there.",
    fix="return an allocator of memory of the host",
)
def judge_pinned(subject: CheckedProvider) -> None:
    """Write there, copy to the device and back."""
    provider = subject.provider
    allocator = provider.pinned_allocator
    address = allocator.allocate(4096, 256, 0)
    if not address or address % 256:
        raise Broken(f"pinned_allocator gave {address:#x} for 4096 bytes aligned to 256")
    try:
        staged: npt.NDArray[Any] = array_at(address, (1024,), np.dtype(np.float32))
        staged[...] = np.arange(1024)
        with DeviceArrays(provider) as arrays:
            if not np.array_equal(arrays.download(arrays.upload(staged)), np.arange(1024)):
                raise Broken("what was written to pinned memory did not arrive")
    finally:
        allocator.deallocate(address)


@rule(
    "P56",
    "Layouts that it says it changes, it changes",
    why="A value would otherwise be read in another order than it was written.",
    fix="have load_reformat give a kernel for every pair that can_reformat says yes to",
)
def judge_reformat(subject: CheckedProvider) -> str:
    """Change types of one tensor, for every pair it claims."""
    provider = subject.provider
    if not overrides(provider, "can_reformat"):
        raise NotOffered("the host changes layouts")
    names = ("float32", "float16", "int32")
    pairs = [(TensorSpec.of(a, (4, 8)), TensorSpec.of(b, (4, 8))) for a in names for b in names]
    taken = [(source, target) for source, target in pairs if provider.can_reformat(source, target)]
    numbers = np.arange(32).reshape(4, 8)
    for source, target in taken:
        with DeviceArrays(provider) as arrays:
            result = provider.load_reformat(source, target)(arrays.upload(numbers.astype(source.dtype)))
            if not np.array_equal(arrays.download(result), numbers.astype(target.dtype)):
                raise Broken(f"{source.dtype} to {target.dtype} gives other numbers")
    if not taken:
        raise NotOffered("it changes no type of a linear tensor")
    return f"{len(taken)} pairs"
