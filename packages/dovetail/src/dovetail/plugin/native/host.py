"""The functions that Dovetail offers to plugin libraries: logging, shared resources, and execution contexts.

There is one table of these functions in a process. Libraries copy it, and stop calling it when the interpreter
finalizes. It is never freed, because a thread of a library may be inside one of the functions at that time.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import time
import weakref
from collections.abc import Callable
from typing import Any, Final

from dovetail.errors import DovetailError, PluginError
from dovetail.loggers import ErrorCode, ILogger, Logger, Severity
from dovetail.plugin.native.image import NativeImage
from dovetail.plugin.native.layout import (
    ABI_VERSION,
    AcquireFunction,
    AllocateFunction,
    DeallocateFunction,
    HasCreatorFunction,
    IsRunningFunction,
    LogFunction,
    NativeHost,
    ReleaseFunction,
    ReportFunction,
)
from dovetail.plugin.native.resource import NativeResource, find_context
from dovetail.plugin.registry import PluginRegistry, get_plugin_registry

__all__ = ["attach_host"]

_images: Final[weakref.WeakValueDictionary[int, NativeImage]] = weakref.WeakValueDictionary()


def attach_host(image: NativeImage, registry: PluginRegistry, *, again: bool = True) -> None:
    """Connect a library to these functions.

    Args:
        image: The library.
        registry: The registry whose logger the library uses, while the registry exists.
        again: Whether this registry replaces one that attached the library before.
    """
    if id(image) in _images and not again:
        return
    registered = weakref.ref(registry)

    def find_logger() -> ILogger | None:
        found = registered()
        return None if found is None else found.logger

    image.logger_of = find_logger
    _images[id(image)] = image
    image.call("attach", "loading the library", ctypes.byref(_HOST), id(image))


def _logger(context: int) -> ILogger:
    image = _images.get(context)
    found = None if image is None else image.logger_of()
    return found or get_plugin_registry().logger


def _contained(
    method: str, failure: Any, find_logger: Callable[[int], ILogger]
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorate a function that libraries call: an exception is logged, and the library gets `failure`.

    ctypes cannot raise into a library: it would print the exception and return a number without a meaning.

    Args:
        method: The method of the contract that the function stands for.
        failure: The value that reports a failure to the library.
        find_logger: Finds the logger from the function's first argument.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def contained(*arguments: Any) -> Any:
            try:
                return function(*arguments)
            except Exception as error:  # noqa: BLE001 - any exception of a logger, an allocator or a resource
                text = str(error) if isinstance(error, DovetailError) else _describe(error)
                _report(lambda: find_logger(arguments[0]), f"{method}: {text}")
                return failure

        return contained

    return decorate


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _report(find_logger: Callable[[], ILogger], text: str) -> None:
    try:
        find_logger().log(Severity.ERROR, text)
    except Exception as error:  # noqa: BLE001 - the logger is the user's and may raise
        Logger().log(Severity.ERROR, f"{text}\n  the logger raised {_describe(error)}")


def _process_logger(_: int) -> ILogger:
    return get_plugin_registry().logger


@_contained("ILogger::log", None, lambda _: Logger())
def _log(context: int, severity: int, text: bytes | None) -> None:
    level = Severity(severity) if severity in set(Severity) else Severity.ERROR
    _logger(context).log(level, (text or b"").decode(errors="replace"))


@_contained("acquirePluginResource", None, _logger)
def _acquire_resource(context: int, key: bytes, address: int) -> int | None:
    name, registry = key.decode(errors="replace"), get_plugin_registry()
    resource = registry.acquire_plugin_resource(name, NativeResource(_images[context], address, owned=False))
    if not isinstance(resource, NativeResource):
        registry.release_plugin_resource(name)
        raise PluginError(f"resource '{name}' is a Python object, which C++ cannot use", got=type(resource).__name__)
    return resource.address


@_contained("releasePluginResource", -1, _logger)
def _release_resource(context: int, key: bytes) -> int:
    get_plugin_registry().release_plugin_resource(key.decode(errors="replace"))
    return 0


@_contained("IGpuAllocator::allocate", None, _process_logger)
def _allocate(token: int, size: int, alignment: int, flags: int) -> int | None:
    allocator = find_context(token).gpu_allocator
    return None if allocator is None else allocator.allocate(size, alignment, flags) or None


@_contained("IGpuAllocator::deallocate", 0, _process_logger)
def _deallocate(token: int, memory: int | None) -> int:
    allocator = find_context(token).gpu_allocator
    return int(allocator is not None and bool(allocator.deallocate(memory or 0)))


@_contained("IErrorRecorder::reportError", 0, _process_logger)
def _report_error(token: int, code: int, text: bytes | None) -> int:
    recorder = find_context(token).error_recorder
    reported = ErrorCode(code), (text or b"").decode(errors="replace")
    return int(recorder is not None and bool(recorder.report_error(*reported)))


@_contained("registerCreator", 0, _process_logger)
def _has_creator(name: bytes, version: bytes, namespace: bytes, is_safe: int) -> int:
    from dovetail.plugin.safe import get_safe_plugin_registry

    registry = get_safe_plugin_registry() if is_safe else get_plugin_registry()
    key = [text.decode(errors="replace") for text in (name, version, namespace)]
    return int(registry.find_creator(*key) is not None)


_HOST: Final = NativeHost(
    ABI_VERSION,
    ctypes.sizeof(NativeHost),
    LogFunction(_log),
    AcquireFunction(_acquire_resource),
    ReleaseFunction(_release_resource),
    AllocateFunction(_allocate),
    DeallocateFunction(_deallocate),
    ReportFunction(_report_error),
    HasCreatorFunction(_has_creator),
    IsRunningFunction(ctypes.cast(ctypes.pythonapi.Py_IsInitialized, ctypes.c_void_p).value or 0),
)
ctypes.pythonapi.Py_IncRef(ctypes.py_object(_HOST))


_MAX_WAIT_MS: Final = 1000
"""Longer than a thread waits before it notices that the interpreter finalizes, which is 5 ms by default."""


class _HostCalls:
    """Waits, when the interpreter finalizes, for calls of the host that began before.

    Each of them ends within milliseconds, because its thread cannot enter the interpreter any more.
    """

    def __init__(self, images: list[NativeImage]) -> None:
        self._counters = [image.table.host_calls for image in images]
        self._images = images
        self._sleep = time.sleep
        self._max_wait_ms = _MAX_WAIT_MS

    def __del__(self) -> None:
        for _ in range(self._max_wait_ms):
            if not any(count() for count in self._counters):
                break
            self._sleep(0.001)


_at_end: Final[list[_HostCalls]] = []


@atexit.register
def _keep_for_end() -> None:
    """Have this module, which is cleared after the interpreter began to finalize, wait for calls of the host."""
    _at_end.append(_HostCalls(list(_images.values())))
