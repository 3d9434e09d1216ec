"""The build capabilities of plugins as scripts derive from them: their kernels expect addresses of a device."""

from __future__ import annotations

import dovetail as dt
from dovetail.plugin.interfaces import PREFERS_DEVICE

__all__ = ["IPluginV3OneBuild", "IPluginV3OneBuildV2"]


class IPluginV3OneBuild(dt.IPluginV3OneBuild):
    """The build capability, with addresses of a device where there is one."""

    preferred_memory: str = PREFERS_DEVICE


class IPluginV3OneBuildV2(dt.IPluginV3OneBuildV2, IPluginV3OneBuild):
    """The build capability with aliased inputs and outputs, with addresses of a device where there is one."""
