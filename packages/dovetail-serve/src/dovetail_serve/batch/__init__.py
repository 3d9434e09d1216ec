"""A plan over folders of files: ``dovetail batch model.plan in/ out/``.

``plan`` divides the files into shards, ``tables`` reads their rows, ``shard_run`` takes one shard through the engine
and writes its results, ``journal`` remembers which shards are done, and ``job`` brings these together: in this process,
in worker processes (``workers``) or on Ray (``dovetail_serve.ray.shards``).
"""

from __future__ import annotations

from typing import Any

__all__ = ["BatchJob", "BatchOptions", "BatchResult", "PlanSource", "run_batch"]

_HOMES = {
    "BatchJob": "options",
    "BatchOptions": "options",
    "BatchResult": "job",
    "PlanSource": "options",
    "run_batch": "job",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
