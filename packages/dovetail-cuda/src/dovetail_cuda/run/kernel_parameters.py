"""Verification of kernel parameters: the driver and the cubin report them, and a plan must pass the same.

A launch passes 8 bytes for each parameter. A plan with too few, too many or exchanged parameters would have the kernel
read memory behind them, or use a number as an address, so both are compared before anything is launched.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dovetail.errors import PlanCorruptError, ProviderError

if TYPE_CHECKING:
    from dovetail_cuda.run.driver import Driver
    from dovetail_cuda.run.payload import KernelRecord

__all__ = [
    "ADDRESS_BYTES",
    "INT32_BYTES",
    "NUM_SCRATCH",
    "KernelParameter",
    "check_parameters",
    "check_threads",
    "describe_parameters",
    "find_parameters",
    "read_block_threads",
    "read_cubin",
]

ADDRESS_BYTES: Final = 8
INT32_BYTES: Final = 4
NUM_SCRATCH: Final = 2
"""Addresses that Triton appends to the parameters of each kernel: global and profiler scratch memory."""

_ELF: Final = b"\x7fELF"
_SECTION: Final = struct.Struct("<IIQQQQIIQQ")
_PARAMETER: Final = struct.Struct("<IHHI")
_FORMAT_SIZED: Final = 4
"""Format of the attributes of ``.nv.info`` that have a length; all others are 4 bytes."""
_REQUIRED_THREADS: Final = 0x10
"""EIATTR_REQNTID: the three dimensions of a block."""
_BLOCK_BYTES: Final = 12
_PARAMETER_INFO: Final = 0x17
"""EIATTR_KPARAM_INFO: index, ordinal, offset, and a word with the memory space in bits 8 to 11 and the size from bit
18 on, as ``cuobjdump --dump-elf`` prints them. The space is 0 for numbers, and for the pointers of compilers that do
not write it."""


@dataclass(frozen=True)
class KernelParameter:
    """One parameter of a kernel."""

    size_bytes: int
    is_address: bool | None = None
    """Whether it is an address; None where that is not known."""


def read_cubin(code: bytes, name: str) -> list[KernelParameter] | None:
    """Return the parameters of a kernel of a cubin; None if the code is not a cubin, or does not describe them."""
    found = dict(_list_parameters(_list_attributes(code, name)))
    if sorted(found) != list(range(len(found))) or not found:
        return None
    has_spaces = any(space for _, space in found.values())
    ordered = [found[number] for number in range(len(found))]
    return [KernelParameter(size, bool(space) if has_spaces else None) for size, space in ordered]


def read_block_threads(code: bytes, name: str) -> int | None:
    """Return the threads that each block of a kernel of a cubin must have; None if the code does not require any."""
    found = [value for attribute, value in _list_attributes(code, name) if attribute == _REQUIRED_THREADS]
    return math.prod(struct.unpack("<3I", found[0])) if found and len(found[0]) == _BLOCK_BYTES else None


def _list_attributes(code: bytes, name: str) -> list[tuple[int, bytes]]:
    """Return the attributes of a kernel of a cubin that have a value; none if the code is damaged or not a cubin."""
    if not code.startswith(_ELF):
        return []
    try:
        info = _find_section(code, f".nv.info.{name}")
        return [] if info is None else list(_walk(info))
    except (struct.error, ValueError, IndexError):
        return []


def _find_section(code: bytes, name: str) -> memoryview | None:
    start = struct.unpack_from("<Q", code, 40)[0]
    count, names_at = struct.unpack_from("<HH", code, 60)
    sections = [_SECTION.unpack_from(code, start + _SECTION.size * number) for number in range(count)]
    names, wanted = sections[names_at][4], name.encode() + b"\0"
    for section in sections:
        if code.startswith(wanted, names + section[0]):
            return memoryview(code)[section[4] : section[4] + section[5]]
    return None


def _walk(info: memoryview) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + 4 <= len(info):
        kind, attribute, length = struct.unpack_from("<BBH", info, at)
        at += 4
        if kind == _FORMAT_SIZED:
            yield attribute, bytes(info[at : at + length])
            at += length


def _list_parameters(attributes: Sequence[tuple[int, bytes]]) -> Iterator[tuple[int, tuple[int, int]]]:
    """Yield number, size in bytes and memory space of each parameter."""
    for attribute, value in attributes:
        if attribute == _PARAMETER_INFO and len(value) == _PARAMETER.size:
            _, ordinal, _, word = _PARAMETER.unpack(value)
            yield ordinal, (word >> 18, word >> 8 & 0xF)


def find_parameters(driver: Driver, function: int, code: bytes, name: str) -> list[KernelParameter]:
    """Return the parameters of a loaded kernel.

    Args:
        driver: Driver that has loaded it.
        function: Handle of the kernel.
        code: Code that it is in.
        name: Name of the kernel.

    Returns:
        Sizes from the driver, and from the cubin which of them are addresses.

    Raises:
        ProviderError: Neither of them reports the parameters, or they differ.
    """
    reported, described = driver.list_parameters(function), read_cubin(code, name)
    where = f"kernel {name[:200]!a}"
    if reported is None and described is None:
        raise ProviderError(
            "its parameters cannot be verified",
            where=where,
            expected="a cubin, or a driver of CUDA 12.4 or newer",
            fix="update the NVIDIA driver",
        )
    if described is None or reported is None:
        return reported or described or []
    if [each.size_bytes for each in reported] != [each.size_bytes for each in described]:
        raise ProviderError(
            "the driver and the code of a kernel report different parameters",
            where=where,
            expected=describe_parameters(described),
            got=describe_parameters(reported),
            fix="build the plan again",
        )
    return described


def check_parameters(kernel: KernelRecord, found: Sequence[KernelParameter]) -> None:
    """Compare the parameters that a plan passes to a kernel with its own.

    Raises:
        PlanCorruptError: They differ.
    """
    own, scratch = found[: kernel.num_parameters], found[kernel.num_parameters :]
    is_right = len(own) == kernel.num_parameters and [each.size_bytes for each in scratch] == [8] * NUM_SCRATCH
    for number, each in enumerate(own):
        is_address = number < kernel.num_addresses
        sizes = (ADDRESS_BYTES,) if is_address else (INT32_BYTES, ADDRESS_BYTES)
        is_right = is_right and each.size_bytes in sizes and each.is_address in (None, is_address)
    if not is_right:
        raise PlanCorruptError(
            "a kernel has other parameters than the plan passes",
            where=f"kernel {kernel.name[:200]!a}",
            expected=describe_parameters(own) + f", then {NUM_SCRATCH} addresses" if own else "none",
            got=f"{kernel.num_addresses} addresses and {kernel.num_parameters - kernel.num_addresses} numbers",
            fix="build the plan again",
        )


def check_threads(driver: Driver, kernel: KernelRecord, function: int, code: bytes) -> None:
    """Compare the block of a plan with the one that a kernel was compiled for.

    Args:
        driver: Driver that has loaded the kernel.
        kernel: Kernel of the plan.
        function: Handle of the kernel.
        code: Code that it is in.

    Raises:
        PlanCorruptError: They differ.
    """
    threads, required = 32 * kernel.num_warps, read_block_threads(code, kernel.name)
    most = driver.find_max_threads(function)
    if threads > most or required not in (None, threads):
        raise PlanCorruptError(
            "a kernel has other blocks than the plan launches",
            where=f"kernel {kernel.name[:200]!a}",
            expected=f"{required or most} threads",
            got=threads,
            fix="build the plan again",
        )


def describe_parameters(parameters: Sequence[KernelParameter]) -> str:
    """Return the parameters of a kernel as text for a message."""
    names = {True: "address of ", False: "number of ", None: ""}
    return ", ".join(f"{names[each.is_address]}{each.size_bytes} bytes" for each in parameters[:32]) or "none"
