"""Stands in for ``libcudart.so`` of scripts that open it with ctypes: functions in C's form, pointers for results.

Each function is a real C function over the stand-in for the runtime, so that whatever a script sets as ``argtypes`` and
passes (``byref``, ``c_void_p``, numbers) arrives as it does in the library.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from functools import cache
from pathlib import PurePath
from typing import Any, Final

from dovetail_tensorrt.cudart import runtime
from dovetail_tensorrt.cudart.handles import cudaEvent_t

__all__ = ["answer_for_library"]

_NAME: Final = re.compile(r"(lib)?cudart(64_\d+)?\.(so(\.\d+)*|dll)")
_POINTER: Final = ctypes.c_void_p
_SIZE: Final = ctypes.c_size_t
_INT: Final = ctypes.c_int


class _LibraryHandle(int):
    """The handle of the stand-in among handles of libraries; it is that of the running process."""


def answer_for_library() -> Callable[[], None]:
    """Let ``ctypes`` open the stand-in by the names of the library; what undoes it comes back."""
    open_library = ctypes._dlopen  # type: ignore[attr-defined]
    find_function = ctypes.CDLL.__getitem__

    def open_or_answer(name: Any, *arguments: Any) -> Any:
        if name is not None and _NAME.fullmatch(PurePath(str(name)).name):
            return _LibraryHandle(open_library(None, *arguments))
        return open_library(name, *arguments)

    def find_or_answer(library: ctypes.CDLL, name: str) -> Any:
        return _find(name) if isinstance(library._handle, _LibraryHandle) else find_function(library, name)

    def undo() -> None:
        ctypes._dlopen = open_library  # type: ignore[attr-defined]
        ctypes.CDLL.__getitem__ = find_function  # type: ignore[method-assign]

    ctypes._dlopen = open_or_answer  # type: ignore[attr-defined]
    ctypes.CDLL.__getitem__ = find_or_answer  # type: ignore[method-assign]
    return undo


@cache
def _find(name: str) -> Any:
    """A function of the library."""
    if name == "cudaGetErrorString":
        return ctypes.CFUNCTYPE(ctypes.c_void_p, _INT)(_describe)
    if name not in _FUNCTIONS:
        return getattr(runtime, name)  # refuses, and says what is stood in for
    function, *arguments = _FUNCTIONS[name]
    return ctypes.CFUNCTYPE(_INT, *arguments)(function)


def _put(call: Callable[..., tuple[Any, ...]], *kinds: Any) -> Callable[..., int]:
    """A call in C's form: what it gives is written to the addresses that come first."""

    def write(*arguments: Any) -> int:
        targets, rest = arguments[: len(kinds)], arguments[len(kinds) :]
        code, *results = call(*rest)
        if not all(targets):
            return int(runtime.cudaError_t.cudaErrorInvalidValue)
        for kind, target, result in zip(kinds, targets, results, strict=True):
            kind.from_address(target).value = result if kind is ctypes.c_float else int(result)
        return int(code)

    return write


def _only(call: Callable[..., tuple[Any, ...]]) -> Callable[..., int]:
    """A call that gives nothing but its code; a null pointer is the address 0."""

    def answer(*arguments: Any) -> int:
        return int(call(*(0 if argument is None else argument for argument in arguments))[0])

    return answer


_EVENTS: Final[dict[int, cudaEvent_t]] = {}
_MESSAGES: Final[dict[int, ctypes.Array[ctypes.c_char]]] = {}
"""Texts that were handed out as addresses: they live as long as the process, as those of the library do."""


def _create_event(*flags: int) -> tuple[Any, int]:
    number = len(_EVENTS) + 1
    _EVENTS[number] = cudaEvent_t(number)
    return runtime.cudaError_t.cudaSuccess, number


def _with_events(call: Callable[..., tuple[Any, ...]], count: int) -> Callable[..., tuple[Any, ...]]:
    """A call whose first arguments are numbers of events."""

    def find(*arguments: Any) -> tuple[Any, ...]:
        events = [_EVENTS.get(argument or 0) for argument in arguments[:count]]
        if None in events:
            return (runtime.cudaError_t.cudaErrorInvalidResourceHandle, 0.0)
        return call(*events, *arguments[count:])

    return find


def _describe(code: int) -> int:
    known = code in list(runtime.cudaError_t)
    text = runtime.cudaGetErrorString(runtime.cudaError_t(code))[1] if known else b"unrecognized error code"
    return ctypes.addressof(_MESSAGES.setdefault(code, ctypes.create_string_buffer(text)))


_FUNCTIONS: Final[dict[str, tuple[Any, ...]]] = {
    "cudaDeviceSynchronize": (_only(runtime.cudaDeviceSynchronize),),
    "cudaEventCreate": (_put(_create_event, _POINTER), _POINTER),
    "cudaEventCreateWithFlags": (_put(_create_event, _POINTER), _POINTER, _INT),
    "cudaEventDestroy": (_only(_with_events(runtime.cudaEventDestroy, 1)), _POINTER),
    "cudaEventElapsedTime": (
        _put(_with_events(runtime.cudaEventElapsedTime, 2), ctypes.c_float),
        _POINTER,
        _POINTER,
        _POINTER,
    ),
    "cudaEventRecord": (_only(_with_events(runtime.cudaEventRecord, 1)), _POINTER, _POINTER),
    "cudaEventSynchronize": (_only(_with_events(runtime.cudaEventSynchronize, 1)), _POINTER),
    "cudaFree": (_only(runtime.cudaFree), _POINTER),
    "cudaFreeAsync": (_only(runtime.cudaFreeAsync), _POINTER, _POINTER),
    "cudaFreeHost": (_only(runtime.cudaFreeHost), _POINTER),
    "cudaGetDevice": (_put(runtime.cudaGetDevice, _INT), _POINTER),
    "cudaGetDeviceCount": (_put(runtime.cudaGetDeviceCount, _INT), _POINTER),
    "cudaGetLastError": (_only(runtime.cudaGetLastError),),
    "cudaHostAlloc": (_put(runtime.cudaHostAlloc, _POINTER), _POINTER, _SIZE, _INT),
    "cudaMalloc": (_put(runtime.cudaMalloc, _POINTER), _POINTER, _SIZE),
    "cudaMallocAsync": (_put(runtime.cudaMallocAsync, _POINTER), _POINTER, _SIZE, _POINTER),
    "cudaMallocHost": (_put(runtime.cudaMallocHost, _POINTER), _POINTER, _SIZE),
    "cudaMallocManaged": (_put(runtime.cudaMallocManaged, _POINTER), _POINTER, _SIZE, _INT),
    "cudaMemGetInfo": (_put(runtime.cudaMemGetInfo, _SIZE, _SIZE), _POINTER, _POINTER),
    "cudaMemcpy": (_only(runtime.cudaMemcpy), _POINTER, _POINTER, _SIZE, _INT),
    "cudaMemcpyAsync": (_only(runtime.cudaMemcpyAsync), _POINTER, _POINTER, _SIZE, _INT, _POINTER),
    "cudaMemset": (_only(runtime.cudaMemset), _POINTER, _INT, _SIZE),
    "cudaMemsetAsync": (_only(runtime.cudaMemsetAsync), _POINTER, _INT, _SIZE, _POINTER),
    "cudaRuntimeGetVersion": (_put(runtime.cudaRuntimeGetVersion, _INT), _POINTER),
    "cudaSetDevice": (_only(runtime.cudaSetDevice), _INT),
    "cudaStreamCreate": (_put(runtime.cudaStreamCreate, _POINTER), _POINTER),
    "cudaStreamCreateWithFlags": (_put(runtime.cudaStreamCreateWithFlags, _POINTER), _POINTER, _INT),
    "cudaStreamDestroy": (_only(runtime.cudaStreamDestroy), _POINTER),
    "cudaStreamSynchronize": (_only(runtime.cudaStreamSynchronize), _POINTER),
}
"""Functions of the library: what answers, then the types of its arguments."""
