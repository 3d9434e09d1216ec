"""Loading a C++ plugin library: opening it, telling it where to log, and finding its creators."""

from __future__ import annotations

from ctypes import POINTER, byref, c_int32, c_void_p
from pathlib import Path
from typing import Final

from dovetail.errors import PluginError
from dovetail.loggers import Severity
from dovetail.plugin.creators import bind_creator
from dovetail.plugin.native.creator import NativeCreator
from dovetail.plugin.native.host import attach_host
from dovetail.plugin.native.image import NativeImage, open_image
from dovetail.plugin.native.layout import NativeRegistration
from dovetail.plugin.registry import PluginRegistry

__all__ = ["gather_native_creators", "load_native_creators"]

_ENTRY: Final = "getCreators"
_OLD_ENTRY: Final = "getPluginCreators"
_MAX_CREATORS: Final = 1 << 16
"""A larger count is a mistake, and reading so many would leave the library's memory."""


def load_native_creators(path: Path, registry: PluginRegistry) -> tuple[NativeCreator, ...]:
    """Open a library and return its creators: those of ``getCreators``, then those that it registered by itself."""
    return gather_native_creators(open_image(path), registry)


def gather_native_creators(image: NativeImage, registry: PluginRegistry) -> tuple[NativeCreator, ...]:
    """The same for a library that is open."""
    attach_host(image, registry)
    _call_entry_points(image)
    declared = _declared_creators(image, registry)
    known = {bind_creator(creator) for creator in declared}
    creators = (*declared, *(one for one in _registered_creators(image) if bind_creator(one) not in known))
    if not creators:
        raise PluginError(
            "the library brings no creators",
            where=image.path,
            expected=f"REGISTER_TENSORRT_PLUGIN(MyCreator), or a function {_ENTRY}",
            fix=f'with -fvisibility=hidden, export it: extern "C" TENSORRTAPI ... {_ENTRY}(int32_t& count)',
        )
    return creators


def _call_entry_points(image: NativeImage) -> None:
    set_finder = image.find_entry("setLoggerFinder")
    if set_finder is not None:
        image.call("call_set_logger_finder", "setLoggerFinder", set_finder)
    initialise, succeeded = image.find_entry("initLibNvInferPlugins"), c_int32()
    if initialise is not None:
        image.call("call_initialise", "initLibNvInferPlugins", initialise, byref(succeeded))
        if not succeeded.value:
            raise PluginError("initLibNvInferPlugins returned false", where=image.path)


def _declared_creators(image: NativeImage, registry: PluginRegistry) -> list[NativeCreator]:
    name, entry = _ENTRY, image.find_entry(_ENTRY)
    if entry is None:
        name, entry = _OLD_ENTRY, image.find_entry(_OLD_ENTRY)
        if entry is None:
            return []
        registry.logger.log(Severity.WARNING, f"{image.path}: {_OLD_ENTRY} is an old name, use {_ENTRY}")
    listed, count = POINTER(c_void_p)(), c_int32()
    image.call("call_get_creators", name, entry, byref(listed), byref(count))
    is_count = 0 <= count.value <= _MAX_CREATORS and (bool(listed) or not count.value)
    if not is_count or not all(listed[: count.value]):
        raise PluginError(f"{name} returned a null creator or a wrong count", where=image.path, got=count.value)
    return [NativeCreator(image, address) for address in listed[: count.value] if address]


def _registered_creators(image: NativeImage) -> list[NativeCreator]:
    entries, count = POINTER(NativeRegistration)(), c_int32()
    image.call("registrations", "REGISTER_TENSORRT_PLUGIN", byref(entries), byref(count))
    return [
        NativeCreator(image, entry.creator, (entry.namespace or b"").decode(errors="replace"), safe=bool(entry.is_safe))
        for entry in entries[: count.value]
    ]
