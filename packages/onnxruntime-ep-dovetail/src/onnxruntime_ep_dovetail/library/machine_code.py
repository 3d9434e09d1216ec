"""The few instructions of the written library, for the processors that it can be written for.

Every piece of code has a fixed length and reaches what it needs relative to its own address, so it can be laid out
before the addresses are known and needs no relocations.
"""

from __future__ import annotations

import platform
import struct
from collections.abc import Callable
from dataclasses import dataclass

from dovetail.errors import ResourceError

__all__ = ["PROCESSORS", "Processor", "find_processor"]

ORT_FAIL = 1


@dataclass(frozen=True, kw_only=True)
class Processor:
    """How one kind of processor is named in an ELF file and does the few things that the library does."""

    elf_machine: int
    jump_through: Callable[[int, int], bytes]
    """(own address, address of a slot): jump to where the slot points, or run into what follows if it is empty."""
    report_none: bytes
    """Write 0 to where the sixth argument points: as CreateEpFactories, report no factories."""
    return_status: Callable[[int, int], bytes]
    """(own address, address of a text): return a status with the text.

    It calls ``GetApi(1)`` of the OrtApiBase, the second argument; the first function of what that returns is
    ``CreateStatus``.
    """
    return_null: bytes


# x86-64: arguments in rdi, rsi, rdx, rcx, r8, r9; the result in rax; the stack aligned to 16 bytes at a call.


def _jump_through_x86_64(at: int, slot: int) -> bytes:
    load = b"\x48\x8b\x05" + struct.pack("<i", slot - (at + 7))  # mov rax, [rip + distance]
    return load + (
        b"\x48\x85\xc0"  # test rax, rax
        b"\x74\x02"  # jz over the jump
        b"\xff\xe0"  # jmp rax
    )


def _return_status_x86_64(at: int, text: int) -> bytes:
    one = struct.pack("<Bi", 0xBF, 1)  # mov edi, 1
    call = (
        b"\x48\x83\xec\x08"  # sub rsp, 8
        + one
        + b"\xff\x16"  # call [rsi]
        b"\x48\x83\xc4\x08"  # add rsp, 8
        b"\x48\x85\xc0"  # test rax, rax
        b"\x75\x01"  # jnz over the return
        b"\xc3"  # ret
    )
    end = at + len(call) + 7
    message = b"\x48\x8d\x35" + struct.pack("<i", text - end)  # lea rsi, [rip + distance]
    return call + message + struct.pack("<Bi", 0xBF, ORT_FAIL) + b"\xff\x20"  # mov edi, ORT_FAIL; jmp [rax]


_REPORT_NONE_X86_64 = b"\x49\xc7\x01\x00\x00\x00\x00"  # mov qword [r9], 0
_RETURN_NULL_X86_64 = b"\x31\xc0\xc3"  # xor eax, eax; ret

# aarch64: arguments and result from x0 on; x16 is free for such jumps; x30 is the return address.

_BRANCH_TO_X16 = 0xD61F0200
_CALL_X16 = 0xD63F0200
_MOVE_0_TO_X0 = 0xD2800000
_MOVE_1_TO_W0 = 0x52800020
_RETURN = 0xD65F03C0
_STORE_0_AT_X5 = 0xF90000BF
_PUSH_X29_X30 = 0xA9BF7BFD
_POP_X29_X30 = 0xA8C17BFD
_LOAD_X16_FROM_X1 = 0xF9400030
_LOAD_X16_FROM_X0 = 0xF9400010


def _words(*instructions: int) -> bytes:
    return struct.pack(f"<{len(instructions)}I", *instructions)


def _adr(register: int, distance: int, *, in_pages: bool) -> int:
    """Encode adr, or adrp: the address of this instruction, or of its page, plus a distance in bytes, or pages."""
    low, high = distance & 3, (distance >> 2) & 0x7FFFF
    return (0x90000000 if in_pages else 0x10000000) | low << 29 | high << 5 | register


def _skip_if_zero(register: int, num_instructions: int) -> int:
    """Encode cbz: jump over that many instructions if the register is 0."""
    return 0xB4000000 | (num_instructions + 1) << 5 | register


def _jump_through_aarch64(at: int, slot: int) -> bytes:
    page = _adr(16, (slot >> 12) - (at >> 12), in_pages=True)
    load = 0xF9400000 | (slot & 0xFFF) >> 3 << 10 | 16 << 5 | 16  # ldr x16, [x16, offset]
    return _words(page, load, _skip_if_zero(16, 1), _BRANCH_TO_X16)


def _return_status_aarch64(at: int, text: int) -> bytes:
    before = [
        _PUSH_X29_X30,
        _LOAD_X16_FROM_X1,
        _MOVE_1_TO_W0,
        _CALL_X16,
        _POP_X29_X30,
        _skip_if_zero(0, 4),
        _LOAD_X16_FROM_X0,
        _MOVE_1_TO_W0,  # ORT_FAIL
    ]
    message = _adr(1, text - (at + 4 * len(before)), in_pages=False)
    return _words(*before, message, _BRANCH_TO_X16, _RETURN)


PROCESSORS = {
    "x86_64": Processor(
        elf_machine=62,
        jump_through=_jump_through_x86_64,
        report_none=_REPORT_NONE_X86_64,
        return_status=_return_status_x86_64,
        return_null=_RETURN_NULL_X86_64,
    ),
    "aarch64": Processor(
        elf_machine=183,
        jump_through=_jump_through_aarch64,
        report_none=_words(_STORE_0_AT_X5),
        return_status=_return_status_aarch64,
        return_null=_words(_MOVE_0_TO_X0, _RETURN),
    ),
}
"""By the name that ``platform.machine`` gives on Linux."""


def find_processor(machine: str | None = None) -> Processor:
    """Return the processor of a name, or the one of this machine."""
    name = machine or platform.machine()
    if name not in PROCESSORS or (machine is None and platform.system() != "Linux"):
        raise ResourceError(
            "the library that ONNX Runtime loads cannot be written for this system",
            expected=f"Linux on {' or '.join(PROCESSORS)}",
            got=f"{platform.system()} on {name}",
            fix="install onnxruntime-ep-dovetail where there is a C compiler",
        )
    return PROCESSORS[name]
