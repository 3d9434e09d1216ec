"""Fills the slots of the native library, so that ONNX Runtime's calls come here; undone when the interpreter ends."""

from __future__ import annotations

import atexit
import ctypes
from pathlib import Path
from typing import Any

from onnxruntime_ep_dovetail.abi import NativeObject, disarm_all, negotiate, write_pointer, write_size

__all__ = ["install"]

_CREATE = ctypes.CFUNCTYPE(
    ctypes.c_void_p,
    ctypes.c_char_p,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_void_p,
)
_RELEASE = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
_CUSTOM_OPS = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
_FAIL = 1

_installed: dict[str, Any] = {}
"""The libraries by path, opened here too, so that their code stays when ONNX Runtime closes them."""


def install(path: str | Path) -> None:
    """Have the library at a path call this package."""
    key = str(path)
    if key in _installed:
        return
    library = _installed[key] = ctypes.CDLL(key)
    for slot, callback in _callbacks.items():
        ctypes.c_void_p.in_dll(library, slot).value = ctypes.cast(callback, ctypes.c_void_p).value
    atexit.register(_disarm, library)


def _disarm(library: Any) -> None:
    """From here on nothing that ends enters Python: sessions may end after the interpreter does."""
    no_op = ctypes.cast(library.dovetail_ep_noop, ctypes.c_void_p).value or 0
    disarm_all(no_op)
    ctypes.c_void_p.in_dll(library, "dovetail_ep_release").value = no_op


def _make_factories(base: int, logger: int, factories: int, count: int) -> None:
    from onnxruntime_ep_dovetail.factory import EpFactory

    write_pointer(factories, EpFactory(negotiate(base, logger or 0)).address)
    write_size(count, 1)


def _create(_name: bytes, base: int, logger: int, factories: int, _room: int, count: int) -> int | None:
    try:
        _make_factories(base, logger, factories, count)
    except BaseException as error:  # noqa: BLE001 - an exception that left a callback would look like success
        return _fail(base, str(error) or type(error).__name__)
    return None


def _release(factory: int) -> int | None:
    NativeObject.at(factory).release()
    return None


def _add_custom_ops(session_options: int, base: int) -> int | None:
    from onnxruntime_ep_dovetail.domains import CustomOps

    try:
        CustomOps.of(negotiate(base)).add_to(session_options)
    except BaseException as error:  # noqa: BLE001 - an exception that left a callback would look like success
        return _fail(base, str(error) or type(error).__name__)
    return None


def _fail(base: int, text: str) -> int | None:
    """A status through whatever interface there is: the first function of every one makes a status."""
    get_api = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32)(ctypes.c_void_p.from_address(base).value or 0)
    table = get_api(1)
    make = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)
    status: int | None = make(ctypes.c_void_p.from_address(table).value or 0)(_FAIL, text.encode())
    return status


_callbacks: dict[str, Any] = {
    "dovetail_ep_release": _RELEASE(_release),
    "dovetail_ep_custom_ops": _CUSTOM_OPS(_add_custom_ops),
    "dovetail_ep_create": _CREATE(_create),
}
"""What goes into each slot of the library, in this order: when the last is filled, the library takes all for filled."""
