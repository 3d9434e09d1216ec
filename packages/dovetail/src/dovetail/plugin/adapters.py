"""Objects of other plugin interfaces, which say themselves what they are under this contract.

A plugin of an older interface has ``as_plugin_v3()``, its creator ``as_creator_v3one()``; both return an adapter, which
has the object that it stands for in ``adapted``.
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "class_name",
    "is_adaptable_creator",
    "is_adaptable_plugin",
    "resolve_creator",
    "resolve_plugin",
    "stands_for",
]


def is_adaptable_plugin(thing: Any) -> bool:
    """Whether a plugin, or a class of plugins, brings an adapter."""
    return callable(getattr(thing, "as_plugin_v3", None))


def is_adaptable_creator(thing: Any) -> bool:
    """Whether a creator, or a class of creators, brings an adapter."""
    return callable(getattr(thing, "as_creator_v3one", None))


def resolve_plugin(plugin: Any) -> Any:
    """The plugin under this contract: its adapter where it brings one, else itself.

    >>> resolve_plugin(3)
    3
    """
    return plugin.as_plugin_v3() if is_adaptable_plugin(plugin) else plugin


def resolve_creator(creator: Any) -> Any:
    """The creator under this contract: its adapter where it brings one, else itself."""
    return creator.as_creator_v3one() if is_adaptable_creator(creator) else creator


def class_name(thing: Any) -> str:
    """The class that messages name: of an adapter, what it stands for.

    What an adapter stands for is ``adapted_name``, where that is no Python object, or the class of ``adapted``.

    >>> class_name(3)
    'int'
    """
    return getattr(thing, "adapted_name", None) or type(getattr(thing, "adapted", thing)).__name__


def stands_for(kept: Any, given: Any) -> bool:
    """Whether an object that was kept is the one that was given, or its adapter."""
    return kept is given or (given is not None and getattr(kept, "adapted", None) is given)
