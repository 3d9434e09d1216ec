"""Reading and writing through addresses that ONNX Runtime gives."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

__all__ = [
    "CString",
    "read_pointers",
    "read_text",
    "read_texts",
    "write_bool",
    "write_int",
    "write_pointer",
    "write_size",
]

_POINTER = ctypes.POINTER(ctypes.c_void_p)


class CString:
    """Text that ONNX Runtime may read as long as this object lives."""

    def __init__(self, text: str) -> None:
        self._buffer = ctypes.create_string_buffer(text.encode())
        self.address = ctypes.addressof(self._buffer)


def read_text(address: int | None) -> str:
    """The text at an address; empty for none."""
    return ctypes.string_at(address).decode(errors="replace") if address else ""


def read_texts(address: int | None, count: int) -> list[str]:
    """The texts of an array of addresses; the array's own may be none where there are none."""
    return [read_text(one) for one in (ctypes.c_void_p * count).from_address(address or 0)] if count else []


def write_pointer(target: int, value: int | None) -> None:
    """Write a pointer to where ``target`` points."""
    ctypes.cast(target, _POINTER)[0] = value


def write_size(target: int, value: int) -> None:
    """Write a ``size_t``."""
    ctypes.c_size_t.from_address(target).value = value


def write_int(target: int, value: int) -> None:
    """Write an ``int`` or an enum."""
    ctypes.c_int.from_address(target).value = value


def write_bool(target: int, value: bool) -> None:
    """Write a ``bool``."""
    ctypes.c_bool.from_address(target).value = value


def read_pointers(count: Callable[..., Any], fill: Callable[..., Any], owner: int) -> list[int | None]:
    """The usual pair of calls: how many there are, then all of them into an array."""
    number = ctypes.c_size_t()
    count(owner, ctypes.addressof(number))
    array = (ctypes.c_void_p * number.value)()
    if number.value:
        fill(owner, ctypes.addressof(array), number.value)
    return list(array)
