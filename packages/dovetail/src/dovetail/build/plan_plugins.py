"""Creation of plugins from a plan while it is built, so that a plan is not written that cannot be loaded."""

from __future__ import annotations

from typing import Final

from dovetail.errors import PluginError
from dovetail.loggers import ILogger, Severity
from dovetail.plan.manifest import PluginRecord
from dovetail.plugin.creators import CreatorKey
from dovetail.plugin.handle import PluginHandle
from dovetail.plugin.interfaces import IPluginResourceContext
from dovetail.plugin.registry import PluginRegistry
from dovetail.plugin.required import broken_rule
from dovetail.runtime.bind.template import create_runtime_plugin

__all__ = ["check_copy", "check_creator_exists", "check_runtime_plugin"]

_COPY_RULES: Final = {"clone": "R25", "attach_to_context": "R30"}
"""Callback -> the rule that the object it returns is the same layer."""


def check_copy(original: PluginHandle, copy: PluginHandle, method: str) -> None:
    """Reject a copy that is another plugin: the plan would store a layer that the network does not have.

    Args:
        original: The plugin.
        copy: The object that the callback returned for it.
        method: Name of the callback, ``clone`` or ``attach_to_context``.

    Raises:
        PluginError: Name, version or namespace differ.
    """
    expected, got = (CreatorKey(each.name, each.version, each.namespace) for each in (original, copy))
    if got != expected:
        rule_id = _COPY_RULES[method]
        raise broken_rule(rule_id, f"{method} returned another plugin than {expected}", where=original.where, got=got)


def check_creator_exists(
    record: PluginRecord, handle: PluginHandle, registry: PluginRegistry, creator: CreatorKey | None
) -> bool:
    """Return whether a registered creator creates the plugin that a plan stores.

    A plugin whose creator is registered nowhere may still be loaded elsewhere; one whose creator is registered under
    other names never is, because its plan stores the names of the plugin.

    Args:
        record: Identity of the plugin, as the plan stores it.
        handle: The plugin.
        registry: The registry of the builder.
        creator: Identity of the creator that created the plugin, where it is known.

    Raises:
        PluginError: The creator has another name, version or namespace than the plugin.
    """
    key = CreatorKey(record.name, record.version, record.namespace)
    if registry.find_creator(*key) is not None:
        return True
    known = registry.creator_keys
    origin = creator or getattr(handle.plugin, "creator_key", None)
    near = [origin] if origin in known else [other for other in known if other.name == record.name]
    if near:
        raise broken_rule(
            "R04",
            f"the plugin reports {key}, and no creator is registered under it, so that its plan cannot be loaded",
            where=handle.where,
            got=f"a creator of {'; '.join(map(str, sorted(near)))}",
        )
    return False


def check_runtime_plugin(
    layer: str,
    record: PluginRecord,
    tactic: int,
    *,
    registry: PluginRegistry,
    context: IPluginResourceContext,
    logger: ILogger,
) -> None:
    """Create a plugin from its stored fields and attach it, as a loaded plan does.

    Args:
        layer: Name of the layer.
        record: Identity and fields of the plugin, as the plan stores them.
        tactic: The tactic that the plan stores.
        registry: Where the creator is found.
        context: The context to attach to.
        logger: Where a failure of ``destroy`` is logged.

    Raises:
        PluginError: The plan could be written and not be loaded.
    """
    try:
        created = create_runtime_plugin(layer, record, registry)
        try:
            created.set_tactic(tactic)
            created.attach_to_context(context).destroy(logger)
        finally:
            created.destroy(logger)
    except PluginError:
        logger.log(Severity.ERROR, f"layer '{layer}': its plan could not be loaded")
        raise
