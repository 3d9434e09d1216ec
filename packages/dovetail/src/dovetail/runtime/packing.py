"""Packing weights again after a refit: the providers that packed them make them from the new sources."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dovetail.errors import ProviderError
from dovetail.plan.manifest import BlobRecord, PackedRecord
from dovetail.provider.calls import call
from dovetail.runtime.engine import Engine
from dovetail.runtime.steps.base import Array

__all__ = ["pack_again"]


def pack_again(engine: Engine, replaced: Mapping[str, Array]) -> dict[str, Array]:
    """The packed blobs that are made of replaced ones, new; the engine is as it was.

    Args:
        engine: Whose packed weights they are.
        replaced: New arrays by blob.
    """
    return {
        blob: _pack(engine, blob, record, replaced)
        for blob, record in engine.manifest.packed.items()
        if not replaced.keys().isdisjoint(record.sources.values())
    }


def _pack(engine: Engine, blob: str, record: PackedRecord, replaced: Mapping[str, Array]) -> Array:
    provider = engine.providers[record.provider]
    sources = {name: replaced.get(b, engine.blobs.array(b)) for name, b in record.sources.items()}
    packed = call(provider.name, "pack_weight", provider.pack_weight, record.recipe, sources)
    _check(packed, engine.manifest.blobs[blob], f"provider '{provider.name}', weight(s) {', '.join(sources)}")
    return np.array(packed)  # what a provider gives may be a view of what it was given


def _check(packed: Array, record: BlobRecord, where: str) -> None:
    is_array = isinstance(packed, np.ndarray)
    if not is_array or (packed.dtype.name, list(packed.shape)) != (record.dtype, record.shape):
        raise ProviderError(
            "pack_weight gave another type or shape than the build",
            where=where,
            expected=f"{record.dtype} {tuple(record.shape)}",
            got=f"{packed.dtype.name} {packed.shape}" if is_array else type(packed).__name__,
        )
