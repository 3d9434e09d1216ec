"""The safe registry: creators that say they are safe and that the contract checker's strict set agrees with.

Safe means that runs allocate nothing and keep no state. The safe registry has no parent, so that a search in it never
ends in a creator that nobody checked.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

from dovetail.errors import PluginError
from dovetail.plugin._user_code import describe
from dovetail.plugin.registry import PluginRegistry, ProcessRegistry, instantiate, register_statically

__all__ = ["SafePluginRegistry", "get_safe_plugin_registry", "register_safe_plugin"]

C = TypeVar("C", bound=type)


class SafePluginRegistry(PluginRegistry):
    """A registry that accepts only creators with ``safe = True`` that pass the checker's strict set."""

    def __init__(self) -> None:
        super().__init__(parent=None)

    def _admit(self, creator: Any) -> None:
        if getattr(creator, "safe", False) is not True:
            raise PluginError(
                "the creator does not declare that it is safe",
                where=describe(creator),
                fix="set safe = True on the creator when its plugins neither allocate nor keep state between runs, "
                "or use get_plugin_registry()",
            )
        from dovetail.plugin.check import check_creator  # the checker is large, and only this registry needs it

        report = check_creator(creator, strict=True)
        if not report.ok:
            failures = "\n".join(f"  {f.rule.id} {f.rule.title}: {f.message}" for f in report.failures)
            raise PluginError(
                f"the creator declares that it is safe, but the checker found otherwise:\n{failures}",
                where=describe(creator),
                fix="mend what is listed; `dovetail check` shows the whole report",
            )


class _SafeProcessRegistry(ProcessRegistry, SafePluginRegistry):
    """The safe registry of the process, which C++ libraries see as ``getSafePluginRegistry()``."""

    _is_safe = True


_SAFE: Final = _SafeProcessRegistry()


def get_safe_plugin_registry() -> SafePluginRegistry:
    """Return the safe registry of the process, which is separate from the plugin registry."""
    return _SAFE


def register_safe_plugin(creator_class: C) -> C:
    """Decorate a creator class to have one instance of it checked and registered in the safe registry.

    In a plugin library that ``load_library`` imports, the instance goes to the registry that loads it.
    """
    register_statically(instantiate(creator_class), registry=_SAFE)
    return creator_class
