"""Fills the slots of the native library, so that ONNX Runtime's calls come here; undone when the interpreter ends."""

from __future__ import annotations

import atexit
import ctypes
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any, Final

from onnxruntime_ep_dovetail.abi import NativeObject, disarm_all, negotiate, write_pointer, write_size
from onnxruntime_ep_dovetail.library import compute

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
_MAX_HOLD_MS: Final = 1000
"""Limit for the exit handlers that run after this one: one of them may be waiting for a thread whose run is held."""
_MAX_WAIT_S: Final = 0.25
"""Longest delay of the end of the process. Threads return within milliseconds, unless they run a session of another
execution provider, which cannot be held."""
_POLL_S: Final = 0.001

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
    """Keep ONNX Runtime out of Python from now on: sessions may end after the interpreter does."""
    compute.start_closing(_MAX_HOLD_MS)
    no_op = ctypes.cast(library.dovetail_ep_noop, ctypes.c_void_p).value or 0
    disarm_all(no_op)
    ctypes.c_void_p.in_dll(library, "dovetail_ep_release").value = no_op
    _wait_for_returns()


def _wait_for_returns() -> None:
    """Wait until every other thread that is in ONNX Runtime is held in a run or has returned to Python.

    A thread that returns from ONNX Runtime acquires the GIL in a destructor of pybind11, which ends the process if the
    interpreter finalizes meanwhile.
    """
    limit = time.monotonic() + _MAX_WAIT_S
    while _has_returning_threads() and time.monotonic() < limit:
        time.sleep(_POLL_S)


def _has_returning_threads() -> bool:
    safe = {threading.get_ident(), *compute.running_threads()}
    return any(_is_in_onnxruntime(frame) for thread, frame in sys._current_frames().items() if thread not in safe)


def _is_in_onnxruntime(frame: FrameType | None) -> bool:
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).startswith("onnxruntime."):
            return True
        frame = frame.f_back
    return False


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
