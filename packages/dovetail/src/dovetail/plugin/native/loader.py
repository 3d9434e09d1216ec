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
from dovetail.plugin.native.registrations import RegistrationScope, as_loading, read_registrations
from dovetail.plugin.registry import PluginRegistry

__all__ = ["gather_native_creators", "load_native_creators"]

_ENTRY: Final = "getCreators"
_OLD_ENTRY: Final = "getPluginCreators"
_MAX_CREATORS: Final = 1 << 16
"""A larger count is a mistake, and reading such an array would leave the memory of the library."""


def load_native_creators(path: Path, registry: PluginRegistry) -> tuple[NativeCreator, ...]:
    """Open a library and return its creators: those of ``getCreators``, then those that it registered by itself."""
    return gather_native_creators(open_image(path), registry)


def gather_native_creators(image: NativeImage, registry: PluginRegistry) -> tuple[NativeCreator, ...]:
    """The same for a library that is open."""
    attach_host(image, registry)
    with as_loading(image):
        _call_entry_points(image)
    image.call("registration_problem", "REGISTER_TENSORRT_PLUGIN")
    declared, registered = _declared_creators(image, registry), _registered_creators(image)
    # A creator that is registered for the process already stands for one of the same key.
    of_process = {bind_creator(creator): creator for scope, creator in registered if scope is RegistrationScope.PROCESS}
    creators = [of_process.get(bind_creator(creator), creator) for creator in declared]
    known = {bind_creator(creator) for creator in creators}
    for _, creator in registered:
        key = bind_creator(creator)
        if key not in known:
            known.add(key)
            creators.append(of_process.get(key, creator))
    if not creators:
        raise PluginError(
            "the library brings no creators",
            where=image.path,
            expected=f"REGISTER_TENSORRT_PLUGIN(MyCreator), or a function {_ENTRY}",
            fix=f'with -fvisibility=hidden, export it: extern "C" TENSORRTAPI ... {_ENTRY}(int32_t& count)',
        )
    return tuple(creators)


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


def _registered_creators(image: NativeImage) -> list[tuple[RegistrationScope, NativeCreator]]:
    return [
        (entry.scope, NativeCreator(image, entry.address, entry.namespace, safe=entry.is_safe))
        for entry in read_registrations(image)
    ]
