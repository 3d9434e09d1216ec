"""The capabilities of plugins as scripts derive from them: their kernels expect addresses of a device, in each run."""

from __future__ import annotations

import dovetail as dt

__all__ = ["IPluginV3OneBuild", "IPluginV3OneBuildV2", "IPluginV3OneRuntime"]


class IPluginV3OneBuild(dt.IPluginV3OneBuild):
    """The build capability, with addresses of a device where there is one."""

    preferred_memory: str = "device"


class IPluginV3OneBuildV2(dt.IPluginV3OneBuildV2, IPluginV3OneBuild):
    """The build capability with aliased inputs and outputs, with addresses of a device where there is one."""


class IPluginV3OneRuntime(dt.IPluginV3OneRuntime):
    """The runtime capability, with a call of ``enqueue`` in each run: scripts count on it, and use other streams."""

    can_capture: bool = False
