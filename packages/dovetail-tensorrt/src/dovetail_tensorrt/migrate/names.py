"""How the source calls the names of the API: by a module (``trt.IPluginV3``) or by themselves."""

from __future__ import annotations

from typing import Final

import libcst as cst

__all__ = ["CREATOR", "INTERFACES", "PLUGIN_BASES", "ApiNames", "code_of", "find_interface"]

CREATOR: Final = "IPluginCreator"
INTERFACES: Final = (
    "IPluginV2DynamicExt",
    "IPluginV2DynamicExtBase",
    "IPluginV2IOExt",
    "IPluginV2Ext",
    "IPluginV2",
)
PLUGIN_BASES: Final = ("IPluginV3", "IPluginV3OneCore", "IPluginV3OneBuild", "IPluginV3OneRuntime")


class ApiNames:
    """Writes names of the API as the source does, and remembers which were written."""

    def __init__(self, prefix: str) -> None:
        self.prefix: Final = prefix
        """``trt.`` for names of a module, empty for names that are imported one by one."""
        self.used: set[str] = set()

    def __call__(self, name: str) -> str:
        """The name as an expression."""
        self.used.add(name)
        return f"{self.prefix}{name}"


def find_interface(node: cst.ClassDef) -> tuple[str, str] | None:
    """The V2 interface or creator that a class derives from, with what stands before its name; None for others."""
    for base in node.bases:
        text = code_of(base.value)
        prefix, dot, name = text.rpartition(".")
        if name in (*INTERFACES, CREATOR):
            return name, prefix + dot
    return None


def code_of(node: cst.CSTNode) -> str:
    """The text of an expression or statement."""
    return cst.Module([]).code_for_node(node)
