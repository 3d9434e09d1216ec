"""A C++ resource as the registry's table of shared resources sees it."""

from __future__ import annotations

import ctypes
from typing import Final

from dovetail.errors import PluginError
from dovetail.finalizers import finalize
from dovetail.plugin.interfaces import APILanguage, IPluginResource
from dovetail.plugin.native.image import NativeImage

__all__ = ["NativeResource"]


class NativeResource(IPluginResource):
    """One C++ object; a clone that was made here is deleted with it.

    Args:
        image: The library that the object comes from.
        address: The object.
        owned: Whether to delete it.
    """

    api_language = APILanguage.CPP

    def __init__(self, image: NativeImage, address: int, *, owned: bool) -> None:
        self.image: Final = image
        self.address: Final = address
        if owned:
            finalize(self, _delete, image, address)

    def clone(self) -> NativeResource:
        """A clone, owned."""
        twin = ctypes.c_void_p()
        self.image.call("resource_clone", "IPluginResource::clone", self.address, ctypes.byref(twin))
        if not twin.value:
            raise PluginError("IPluginResource::clone returned null", where=self.image.path)
        return NativeResource(self.image, twin.value, owned=True)

    def release(self) -> int:
        """The status that the object returns."""
        status = ctypes.c_int32()
        self.image.call("resource_release", "IPluginResource::release", self.address, ctypes.byref(status))
        return status.value


def _delete(image: NativeImage, address: int) -> None:
    """Delete a resource; its destructor has no caller to raise an error to."""
    try:
        image.call("resource_delete", "the destructor of an IPluginResource", address)
    except PluginError as error:
        image.log_error(error)
