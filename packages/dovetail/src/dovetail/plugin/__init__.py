"""What a custom layer signs: interfaces, fields, creators, registry, resources, libraries and the contract checker.

Each public name is loaded when it is first used.
"""

from __future__ import annotations

import importlib
from typing import Any, Final

_MODULES: Final[dict[str, str]] = {
    "arrays": "address_of as_array read_scalar write_scalar",
    "fields": "PluginField PluginFieldCollection PluginFieldType",
    "interfaces": """APILanguage IPluginCapability IPluginCreatorInterface IPluginCreatorV3One IPluginResource
        IPluginResourceContext IPluginV3 IPluginV3OneBuild IPluginV3OneBuildV2 IPluginV3OneCore IPluginV3OneRuntime
        IVersionedInterface InterfaceInfo PluginCapabilityType""",
    "libraries": "PluginLibrary load_packed_library load_python_library pack_library",
    "quick": "QuickLayer layer",
    "registry": """IPluginRegistry PluginRegistry get_builder_plugin_registry get_plugin_registry register_plugin""",
    "safe": "SafePluginRegistry get_safe_plugin_registry register_safe_plugin",
    "symbolic": "SymbolicDim ceil_div dim_max dim_min",
}
_EXPORTS: Final = {name: f"{__name__}.{module}" for module, names in _MODULES.items() for name in names.split()}

__all__ = sorted(_EXPORTS)  # noqa: PLE0605 - a list, as it must be


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_EXPORTS[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
