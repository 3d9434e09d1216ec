"""A C++ plugin as an ``IPluginV3`` of the contract."""

from __future__ import annotations

from ctypes import byref, c_void_p
from typing import Any, Final

from dovetail.errors import PluginError
from dovetail.finalizers import finalize, has_running_threads
from dovetail.plugin.creators import CreatorKey
from dovetail.plugin.interfaces import (
    APILanguage,
    IPluginCapability,
    IPluginResourceContext,
    IPluginV3,
    PluginCapabilityType,
)
from dovetail.plugin.native.capabilities import NativeBuild, NativeCore, NativeRuntime
from dovetail.plugin.native.image import NativeImage
from dovetail.plugin.native.layout import NativeCapability
from dovetail.plugin.native.object import NativeObject
from dovetail.plugin.native.quick_build import QUICK_MAJOR, NativeQuickBuild
from dovetail.plugin.native.resource import NativeContext

__all__ = ["NativePlugin", "adopt_plugin"]

_Capability = type[NativeCore] | type[NativeBuild] | type[NativeRuntime]
_CAPABILITIES: Final[dict[PluginCapabilityType, tuple[bytes, _Capability]]] = {
    PluginCapabilityType.CORE: (b"PLUGIN_V3ONE_CORE", NativeCore),
    PluginCapabilityType.BUILD: (b"PLUGIN_V3ONE_BUILD", NativeBuild),
    PluginCapabilityType.RUNTIME: (b"PLUGIN_V3ONE_RUNTIME", NativeRuntime),
}


class NativePlugin(IPluginV3):
    """One C++ object, deleted by ``destroy`` or with this one.

    Args:
        image: The library that made it.
        address: The object.
        name: What messages call it: the name of its creator's plugin.
    """

    api_language = APILanguage.CPP

    def __init__(self, image: NativeImage, address: int, name: str) -> None:
        self.image: Final = image
        self._address: Final = address
        self._name: Final = name
        self._capabilities: dict[tuple[PluginCapabilityType, int], IPluginCapability] = {}
        self.adapted_name: Final = f"'{name}' of {image.path}"
        self.creator_key: CreatorKey | None = None
        """Identity of the creator that made it, or made the object that it is a clone of."""
        self.object: Final = NativeObject(image, address, name)
        self._release = finalize(self, _release_unreferenced, self.object)
        image.plugins[address] = self

    @property
    def requires_device(self) -> bool:
        """Whether the library contains CUDA code."""
        return self.image.uses_cuda

    @property
    def where(self) -> str:
        """How messages name this plugin."""
        return f"C++ plugin {self.adapted_name}"

    def call(self, function: str, callback: str, *arguments: Any) -> None:
        """Call a function of the library for this plugin, unless it is deleted."""
        self.object.begin_call(callback)
        try:
            self.image.call(function, callback, *arguments, owner=self._name)
        finally:
            self.object.end_call()

    def describe_exception(self, callback: str) -> PluginError:
        """Return the error for the last exception of a callback of this plugin on this thread."""
        return self.image.describe_exception(callback, owner=self._name)

    def get_capability_interface(self, type: PluginCapabilityType) -> IPluginCapability | None:  # noqa: A002
        """The capability, the same object each time, or None where the plugin returns null for it."""
        kind = PluginCapabilityType(type)
        found = self._find_capability(kind)
        if not found.object:
            return None
        if (kind, found.object) not in self._capabilities:
            is_quick = kind is PluginCapabilityType.BUILD and found.major == QUICK_MAJOR
            made = NativeQuickBuild if is_quick else _CAPABILITIES[kind][1]
            self._capabilities[kind, found.object] = made(self, found.object)
        return self._capabilities[kind, found.object]

    def _find_capability(self, kind: PluginCapabilityType) -> NativeCapability:
        found, callback = NativeCapability(), f"getCapabilityInterface({kind.name})"
        self.call("plugin_capability", callback, self._address, int(kind), byref(found))
        expected = _CAPABILITIES[kind][0]
        if found.object and found.kind != expected:
            raise PluginError(
                f"{callback} returned another interface", where=self.where, expected=expected.decode(), got=found.kind
            )
        return found

    def clone(self) -> NativePlugin:
        """``clone``."""
        twin = c_void_p()
        self.call("plugin_clone", "clone", self._address, byref(twin))
        return self._adopt(twin.value, "clone")

    def attach(self, runtime: int, resource_context: IPluginResourceContext) -> NativePlugin:
        """``attachToContext`` of the runtime capability at an address; what it returns keeps the context."""
        context, twin = NativeContext(self.image, resource_context), c_void_p()
        try:
            self.call("runtime_attach", "attachToContext", runtime, context.address, byref(twin))
            attached = self._adopt(twin.value, "attachToContext")
        except BaseException:
            context.close()
            raise
        attached.object.contexts.append(context)
        return attached

    def _adopt(self, address: int | None, callback: str) -> NativePlugin:
        if not address:
            raise PluginError(f"{callback} returned null", where=self.where, fix="return a new plugin")
        twin = adopt_plugin(self.image, address, self._name)
        twin.creator_key = self.creator_key
        return twin

    def destroy(self) -> None:
        """Delete the C++ object, once; where a call of it runs in another thread, after that call.

        Raises:
            PluginError: A V2 plugin's ``detachFromContext``, ``terminate`` or ``destroy`` threw an exception.
        """
        if self._release.detach() is not None:
            del self.image.plugins[self._address]  # another may be at this address next
            if not has_running_threads():
                self.object.release()


def adopt_plugin(image: NativeImage, address: int, name: str) -> NativePlugin:
    """What a callback returned as a plugin of its own; the one that is known where it returned that."""
    known: NativePlugin | None = image.plugins.get(address)
    return NativePlugin(image, address, name) if known is None else known


def _release_unreferenced(plugin: NativeObject) -> None:
    """Release a plugin that the garbage collector found, which has no caller to raise an error to."""
    try:
        plugin.release()
    except PluginError as error:
        plugin.image.log_error(error)
