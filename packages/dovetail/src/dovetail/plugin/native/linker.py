"""The dynamic linker's list of the objects that the process has loaded."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_uint16, c_uint64, c_void_p
from functools import cache
from typing import Any, Final

__all__ = ["close_object", "count_loads", "find_file", "find_object", "hold_object", "list_objects"]


class _ObjectInfo(ctypes.Structure):
    """``dl_phdr_info`` of the C library."""

    _fields_ = (
        ("address", c_uint64),
        ("name", c_char_p),
        ("headers", c_void_p),
        ("num_headers", c_uint16),
        ("num_loads", c_uint64),
        ("num_unloads", c_uint64),
    )


class _SymbolInfo(ctypes.Structure):
    """``Dl_info`` of the C library."""

    _fields_ = (("file", c_char_p), ("base", c_void_p), ("symbol", c_char_p), ("address", c_void_p))


# The visitor runs under a lock of the linker. It must not wait for the interpreter's lock there, which is therefore
# kept. The other functions release it: they wait for a lock that a thread holds while it runs static initializers.
_VISITOR: Final = ctypes.PYFUNCTYPE(c_int, POINTER(_ObjectInfo), c_size_t, c_void_p)


@cache
def _function(name: str, result: Any, *arguments: Any) -> Any:
    """A function of the C library; None where it has none of this name."""
    function = getattr(ctypes.CDLL(None), name, None)
    if function is not None:
        function.argtypes, function.restype = arguments, result
    return function


@cache
def _walker() -> Any:
    return getattr(ctypes.PyDLL(None), "dl_iterate_phdr", None)


_counts: Final = [(0, 0)]


def _read_counts(info: Any, _size: int, _data: int | None) -> int:
    first = info.contents
    _counts[0] = first.num_loads, first.num_unloads
    return 1


_COUNT_READER: Final = _VISITOR(_read_counts)


def count_loads() -> tuple[int, int] | None:
    """Return how many objects were loaded and unloaded so far; None where the system does not count them."""
    if _walker() is None:
        return None
    _walker()(_COUNT_READER, None)
    return _counts[0]


def list_objects() -> list[str]:
    """Return the files of the loaded objects, in the order in which they were loaded; empty for the program itself."""
    names: list[str] = []

    def visit(info: Any, _size: int, _data: int | None) -> int:
        names.append(os.fsdecode(info.contents.name or b""))
        return 0

    _walker()(_VISITOR(visit), None)
    return names


def find_object(file: str) -> int | None:
    """Return a handle of an object if it is loaded; ``close_object`` releases it."""
    open_object = _function("dlopen", c_void_p, c_char_p, c_int)
    if open_object is None or not hasattr(os, "RTLD_NOLOAD"):
        return None
    handle: int | None = open_object(os.fsencode(file) or None, os.RTLD_NOLOAD | os.RTLD_LAZY)
    return handle


def close_object(handle: int) -> None:
    """Release a handle."""
    _function("dlclose", c_int, c_void_p)(handle)


@contextmanager
def hold_object(file: str) -> Iterator[Callable[[bytes], int | None]]:
    """Keep an object loaded meanwhile; yields a function that finds symbols in it and in its dependencies."""
    handle = find_object(file)
    find = _function("dlsym", c_void_p, c_void_p, c_char_p)
    try:
        yield lambda symbol: None if handle is None else find(handle, symbol)
    finally:
        if handle is not None:
            close_object(handle)


def find_file(address: int) -> str:
    """Return the file of the object that has an address; empty where there is none."""
    info = _SymbolInfo()
    found = _function("dladdr", c_int, c_void_p, c_void_p)(address, byref(info))
    return os.fsdecode(info.file or b"") if found else ""
