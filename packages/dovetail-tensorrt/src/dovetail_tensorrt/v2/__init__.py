"""V2 plugins: their interfaces, and what runs them under the ``IPluginV3`` contract."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dovetail_tensorrt.v2.adapter import AdaptedPlugin, adapt_plugin
from dovetail_tensorrt.v2.creator import AdaptedCreator, adapt_creator
from dovetail_tensorrt.v2.interfaces import (
    IPluginCreator,
    IPluginV2,
    IPluginV2DynamicExt,
    IPluginV2DynamicExtBase,
    IPluginV2Ext,
    IPluginV2IOExt,
    PluginCreatorVersion,
)

if TYPE_CHECKING:
    from dovetail import IPluginV2Layer

__all__ = [
    "AdaptedCreator",
    "AdaptedPlugin",
    "IPluginCreator",
    "IPluginV2",
    "IPluginV2DynamicExt",
    "IPluginV2DynamicExtBase",
    "IPluginV2Ext",
    "IPluginV2IOExt",
    "IPluginV2Layer",
    "PluginCreatorVersion",
    "adapt_creator",
    "adapt_plugin",
]


def __getattr__(name: str) -> Any:
    # A layer belongs to a network, and networks need packages that running a plan does not.
    if name == "IPluginV2Layer":
        from dovetail import IPluginV2Layer

        return IPluginV2Layer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
