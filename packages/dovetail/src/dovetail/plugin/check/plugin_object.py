"""One plugin object under the checker, with its capabilities asked for once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from dovetail.plugin.check.host.calls import call
from dovetail.plugin.interfaces import (
    IPluginV3,
    IPluginV3OneBuild,
    IPluginV3OneBuildV2,
    IPluginV3OneCore,
    IPluginV3OneRuntime,
    PluginCapabilityType,
)
from dovetail.rules import Broken
from dovetail.types import TensorRTPhase

__all__ = ["NotAPlugin", "Specimen", "examine"]

_INTERFACES: Final[dict[PluginCapabilityType, type]] = {
    PluginCapabilityType.CORE: IPluginV3OneCore,
    PluginCapabilityType.BUILD: IPluginV3OneBuild,
    PluginCapabilityType.RUNTIME: IPluginV3OneRuntime,
}
_REQUIRED: Final[dict[PluginCapabilityType, tuple[str, ...]]] = {
    PluginCapabilityType.CORE: (),
    PluginCapabilityType.BUILD: (
        "get_output_data_types",
        "get_output_shapes",
        "configure_plugin",
        "supports_format_combination",
    ),
    PluginCapabilityType.RUNTIME: (
        "on_shape_change",
        "set_tactic",
        "enqueue",
        "attach_to_context",
        "get_fields_to_serialize",
    ),
}
_BASES: Final = (IPluginV3, IPluginV3OneBuild, IPluginV3OneBuildV2, IPluginV3OneRuntime)
_DEFAULTS: Final[dict[str, tuple[Any, ...]]] = {
    name: tuple(getattr(base, name) for base in _BASES if hasattr(base, name))
    for name in ("clone", *(name for names in _REQUIRED.values() for name in names))
}


class NotAPlugin(Broken):
    """What a callback returned is no plugin object at all."""


@dataclass(eq=False)
class Specimen:
    """A plugin object and its capabilities; ``build`` is None for a runtime-phase object."""

    plugin: Any
    core: Any
    build: Any
    runtime: Any
    is_destroyed: bool = False

    def parts(self) -> list[Any]:
        """The object and its capabilities, which may all be the same."""
        return [part for part in (self.plugin, self.core, self.build, self.runtime) if part is not None]


def examine(plugin: Any, phase: TensorRTPhase, *, made_by: str) -> Specimen:
    """Ask an object for what its phase needs.

    Raises:
        Broken: A capability is missing, of the wrong kind, or lacks a required method.
        CallbackRaised: ``get_capability_interface`` raised.
    """
    if not isinstance(plugin, IPluginV3):
        raise NotAPlugin(f"{made_by} returned {_describe(plugin)}, expected an object derived from IPluginV3")
    if not _overrides(plugin, "clone"):
        raise Broken(f"{type(plugin).__name__} does not implement clone()")
    kinds = [PluginCapabilityType.CORE, PluginCapabilityType.RUNTIME]
    if phase is TensorRTPhase.BUILD:
        kinds.insert(1, PluginCapabilityType.BUILD)
    found = {kind: _capability(plugin, kind, phase) for kind in kinds}
    return Specimen(
        plugin,
        found[PluginCapabilityType.CORE],
        found.get(PluginCapabilityType.BUILD),
        found[PluginCapabilityType.RUNTIME],
    )


def _capability(plugin: Any, kind: PluginCapabilityType, phase: TensorRTPhase) -> Any:
    where = f"get_capability_interface({kind.name}) of a {phase.name} object"
    capability = call(plugin, "get_capability_interface", kind)
    expected = _INTERFACES[kind]
    if not isinstance(capability, expected):
        raise Broken(f"{where} returned {_describe(capability)}, expected an {expected.__name__}")
    if call(plugin, "get_capability_interface", kind) is not capability:
        raise Broken(f"{where} gave another object the second time: what is set on the first is lost")
    missing = [name for name in _REQUIRED[kind] if not _overrides(capability, name)]
    if missing:
        raise Broken(f"{where} lacks required methods: {', '.join(missing)}")
    return capability


def _overrides(capability: Any, name: str) -> bool:
    method = getattr(capability, name, None)
    function = getattr(method, "__func__", method)
    return callable(method) and not any(function is default for default in _DEFAULTS[name])


def _describe(value: Any) -> str:
    return "None" if value is None else f"an object of class {type(value).__name__}"
