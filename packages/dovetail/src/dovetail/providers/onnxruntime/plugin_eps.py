"""Execution providers that others plug into ONNX Runtime: which kernels they register there.

ONNX Runtime loads them from libraries. A package that has one is named ``onnxruntime-ep-...`` by convention, and its
module says where the library is (``get_library_path``) and what it is called (``get_ep_names``).
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator
from importlib import metadata
from types import ModuleType
from typing import Any, Final

from dovetail.errors import ProviderError
from dovetail.provider.calls import first_line
from dovetail.providers.onnxruntime.kernel_defs import KernelDef, read_definition
from dovetail.providers.onnxruntime.sessions import import_onnxruntime

__all__ = ["read_ep_kernels"]

_PACKAGES: Final = "onnxruntime_ep_"
_LIST_KERNELS: Final = "get_registered_ep_kernel_defs"


def read_ep_kernels(name: str) -> list[KernelDef]:
    """The kernels of an execution provider by its name in ONNX Runtime.

    One that is not registered there yet is registered, when an installed package has it.
    """
    onnxruntime = import_onnxruntime()
    state = onnxruntime.capi.onnxruntime_pybind11_state
    if not hasattr(state, _LIST_KERNELS):
        raise ProviderError(
            f"ONNX Runtime {onnxruntime.__version__} does not list kernels of execution providers",
            where=f"execution provider '{name}'",
            fix="pip install --upgrade onnxruntime",
        )
    if name not in _registered(onnxruntime):
        _register(onnxruntime, name)
    return [read_definition(found) for found in getattr(state, _LIST_KERNELS)(name)]


def _registered(onnxruntime: Any) -> set[str]:
    return {device.ep_name for device in onnxruntime.get_ep_devices()}


def _register(onnxruntime: Any, name: str) -> None:
    packages = {package.__name__: list(package.get_ep_names()) for package in _find_packages()}
    owner = next((module for module, names in packages.items() if name in names), None)
    if owner is None:
        known = sorted({*_registered(onnxruntime), *(one for names in packages.values() for one in names)})
        raise ProviderError(
            "there is no such execution provider",
            where=f"execution provider '{name}'",
            expected=", ".join(known),
            fix="install the package onnxruntime-ep-... that has it, or register its library before",
        )
    library = importlib.import_module(owner).get_library_path()
    try:
        onnxruntime.register_execution_provider_library(name, library)
    except Exception as error:  # its error classes have no common base but Exception
        raise ProviderError(
            f"ONNX Runtime does not load it: {first_line(error)}", where=f"execution provider '{name}'"
        ) from error


def _find_packages() -> Iterator[ModuleType]:
    """The modules of installed packages that keep to the convention."""
    by_name = {dist.name.lower().replace("-", "_") for dist in metadata.distributions() if dist.name}
    for module in sorted({*by_name, *metadata.packages_distributions()}):
        if module.startswith(_PACKAGES) and importlib.util.find_spec(module) is not None:
            found = importlib.import_module(module)
            if hasattr(found, "get_ep_names") and hasattr(found, "get_library_path"):
                yield found
