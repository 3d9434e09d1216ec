"""What a plugin library may ask of Dovetail: to log, to share resources, and what an execution context offers.

There is one table of these functions in a process and it is never freed, because a library keeps its address.
"""

from __future__ import annotations

import ctypes
import weakref
from typing import Final

from dovetail.errors import PluginError
from dovetail.loggers import ErrorCode, ILogger, Severity
from dovetail.plugin.native.context import find_context
from dovetail.plugin.native.image import NativeImage
from dovetail.plugin.native.layout import (
    ABI_VERSION,
    AcquireFunction,
    AllocateFunction,
    DeallocateFunction,
    LogFunction,
    NativeHost,
    ReleaseFunction,
    ReportFunction,
)
from dovetail.plugin.native.resource import NativeResource
from dovetail.plugin.registry import PluginRegistry, get_plugin_registry

__all__ = ["attach_host"]

_images: Final[weakref.WeakValueDictionary[int, NativeImage]] = weakref.WeakValueDictionary()


def attach_host(image: NativeImage, registry: PluginRegistry) -> None:
    """Give a library these functions; it logs to the logger of the registry that loaded it last."""
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


def _log(context: int, severity: int, text: bytes | None) -> None:
    level = Severity(severity) if severity in set(Severity) else Severity.ERROR
    _logger(context).log(level, (text or b"").decode(errors="replace"))


def _acquire_resource(context: int, key: bytes, address: int) -> int | None:
    try:
        return _share(context, key.decode(), address)
    except Exception as error:  # noqa: BLE001 - nothing may be raised into the library
        _logger(context).log(Severity.ERROR, f"acquirePluginResource: {error}")
        return None


def _share(context: int, key: str, address: int) -> int:
    resource = get_plugin_registry().acquire_plugin_resource(
        key, NativeResource(_images[context], address, owned=False)
    )
    if not isinstance(resource, NativeResource):
        get_plugin_registry().release_plugin_resource(key)
        raise PluginError(f"resource '{key}' is a Python object, which C++ cannot use", got=type(resource).__name__)
    return resource.address


def _release_resource(context: int, key: bytes) -> int:
    try:
        get_plugin_registry().release_plugin_resource(key.decode())
    except Exception as error:  # noqa: BLE001 - nothing may be raised into the library
        _logger(context).log(Severity.ERROR, f"releasePluginResource: {error}")
        return -1
    return 0


def _allocate(token: int, size: int, alignment: int, flags: int) -> int | None:
    try:
        allocator = find_context(token).gpu_allocator
        return None if allocator is None else allocator.allocate(size, alignment, flags) or None
    except Exception as error:  # noqa: BLE001 - nothing may be raised into the library
        get_plugin_registry().logger.log(Severity.ERROR, f"IGpuAllocator::allocate: {error}")
        return None


def _deallocate(token: int, memory: int | None) -> int:
    try:
        allocator = find_context(token).gpu_allocator
        return int(allocator is not None and bool(allocator.deallocate(memory or 0)))
    except Exception as error:  # noqa: BLE001 - nothing may be raised into the library
        get_plugin_registry().logger.log(Severity.ERROR, f"IGpuAllocator::deallocate: {error}")
        return 0


def _report_error(token: int, code: int, text: bytes) -> int:
    try:
        recorder = find_context(token).error_recorder
        return int(recorder is not None and bool(recorder.report_error(ErrorCode(code), text.decode(errors="replace"))))
    except Exception as error:  # noqa: BLE001 - nothing may be raised into the library
        get_plugin_registry().logger.log(Severity.ERROR, f"IErrorRecorder::reportError: {error}")
        return 0


_HOST: Final = NativeHost(
    ABI_VERSION,
    ctypes.sizeof(NativeHost),
    LogFunction(_log),
    AcquireFunction(_acquire_resource),
    ReleaseFunction(_release_resource),
    AllocateFunction(_allocate),
    DeallocateFunction(_deallocate),
    ReportFunction(_report_error),
)
