"""Past one machine: Ray places, restarts and scales what runs, and is not in the path of a request.

``shards`` runs the shards of ``dovetail batch`` on Ray Data, ``replicas`` and ``controller`` run servers as actors, and
``deploy`` starts those. Ray is imported when something of this is used.
"""

from __future__ import annotations

from typing import Any

__all__ = ["Deployment", "RayOptions", "connecting", "deploy"]

_HOMES = {"Deployment": "deployment", "RayOptions": "options", "connecting": "cluster", "deploy": "deployment"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
