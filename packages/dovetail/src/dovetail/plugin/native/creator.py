"""A C++ creator as an ``IPluginCreatorV3One`` of the contract."""

from __future__ import annotations

from ctypes import byref, c_char_p, c_void_p
from typing import Final

from dovetail.errors import PluginError
from dovetail.plugin.creators import CreatorKey
from dovetail.plugin.fields import PluginFieldCollection
from dovetail.plugin.interfaces import APILanguage, IPluginCreatorV3One
from dovetail.plugin.native.call_memory import new_call_memory
from dovetail.plugin.native.convert import PackedFields, read_fields, read_text
from dovetail.plugin.native.image import NativeImage
from dovetail.plugin.native.layout import NativeCapability, NativeIdentity
from dovetail.plugin.native.plugin import NativePlugin, adopt_plugin
from dovetail.plugin.native.registrations import RegistrationScope, set_scope
from dovetail.types import TensorRTPhase

__all__ = ["NativeCreator"]


class NativeCreator(IPluginCreatorV3One):
    """One C++ creator; the library owns it.

    Args:
        image: The library.
        address: The creator.
        namespace: The namespace under which the library registered it; None for the creator's own.
        safe: Whether the library registered it as safe.
    """

    api_language = APILanguage.CPP

    def __init__(self, image: NativeImage, address: int, namespace: str | None = None, *, safe: bool = False) -> None:
        self._image: Final = image
        self._handle: Final = address
        self._address: Final = _adapt(image, address)
        self.safe: Final = safe
        identity = NativeIdentity()
        image.call("creator_identity", "getPluginName", self._address, byref(identity), owner="a creator")
        self.name = self._text(identity.name, "getPluginName")
        self.plugin_version = self._text(identity.version, "getPluginVersion")
        self.plugin_namespace = self._text(identity.namespace, "getPluginNamespace") if namespace is None else namespace
        self.adapted_name: Final = f"creator of {image.path}"
        self.field_names = self._read_field_names()

    @property
    def requires_device(self) -> bool:
        """Whether the library contains CUDA code."""
        return self._image.uses_cuda

    def __repr__(self) -> str:
        return f"<C++ creator of '{self.name}' version '{self.plugin_version}' from {self._image.path}>"

    @property
    def registration(self) -> tuple[int, str]:
        """The C++ object and the namespace under which it is registered."""
        return self._handle, self.plugin_namespace

    def publish(self, *, listed: bool) -> None:
        """Add the creator to the registry of the process as C++ libraries see it, or remove it from there."""
        self._set_scope(RegistrationScope.PROCESS if listed else RegistrationScope.LOADER)

    def refuse(self) -> None:
        """Mark the registration as a duplicate of another in the registry of the process."""
        self._set_scope(RegistrationScope.DUPLICATE)

    def _set_scope(self, scope: RegistrationScope) -> None:
        set_scope(self._image, self._handle, self.plugin_namespace, scope, safe=self.safe)

    def _text(self, raw: bytes | None, method: str) -> str:
        text = read_text(raw)
        if text is None:
            raise PluginError(f"{method} of a creator returned null", where=self._image.path, expected="a text")
        return text

    def _read_field_names(self) -> PluginFieldCollection:
        fields = c_void_p()
        self._image.call("creator_fields", "getFieldNames", self._address, byref(fields), owner=self.name)
        return read_fields(fields.value, self._image.table.size_of_dims, "getFieldNames", repr(self))

    def create_plugin(self, name: str, field_collection: PluginFieldCollection, phase: TensorRTPhase) -> NativePlugin:
        """``createPlugin``, which must not return null."""
        plugin = c_void_p()
        with new_call_memory() as memory:
            fields = PackedFields(field_collection or (), self._image.table.size_of_dims, memory)
            self._image.call(
                "creator_create",
                "createPlugin",
                self._address,
                c_char_p(memory.copy(name.encode(), "the name of the layer")),
                fields.address,
                int(phase),
                byref(plugin),
                owner=self.name,
            )
        if not plugin.value:
            raise PluginError(
                "createPlugin returned null",
                where=repr(self),
                got="fields " + (", ".join(field.name for field in field_collection or ()) or "none"),
                fix="check the values of the fields",
            )
        made = adopt_plugin(self._image, plugin.value, self.name)
        made.creator_key = CreatorKey(self.name, self.plugin_version, self.plugin_namespace)
        return made


def _adapt(image: NativeImage, address: int) -> int:
    """The address of the creator under ``IPluginCreatorV3One``: its own, or that of the library's adapter."""
    adapted, found = c_void_p(), NativeCapability()
    image.call("creator_adapt", "loading a creator", address, byref(adapted))
    if not adapted.value:
        image.call("creator_interface", "getInterfaceInfo", address, byref(found), owner="a creator")
        raise PluginError(
            "the library has a creator of an interface that is not supported",
            where=image.path,
            expected="IPluginCreatorV3One, IPluginCreatorV3Quick, or IPluginCreator of a V2 plugin",
            got="null" if found.kind is None else repr(found.kind.decode(errors="replace")),
        )
    return adapted.value
