"""The parts of this package that are imported only when a script needs them."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Final

import dovetail

__all__ = ["import_part"]

_PARTS: Final = {
    "v2": ("dovetail_tensorrt.v2", "V2 plugins"),
    "builtin": ("dovetail_tensorrt.builtin", "the built-in plugins"),
    "plugin": ("dovetail_tensorrt.trt.plugin", "decorator plugins"),
}


def import_part(name: str) -> ModuleType:
    """A part by name.

    Raises:
        InternalError: The package was installed without it.
    """
    module, what = _PARTS[name]
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not module.startswith(error.name):
            raise
        raise dovetail.InternalError(
            f"this build of dovetail-tensorrt has no part for {what}", where=module, fix="install a complete one"
        ) from error
