"""Writing a loaded engine back to a plan, with the weights it has now."""

from __future__ import annotations

import os
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from dovetail.formats import FOUR_BIT_TYPES, pack_nibbles
from dovetail.plan.blob_types import STORED_TYPES
from dovetail.plan.container import Blob, digest_blob, plan_bytes, write_plan
from dovetail.plan.manifest import BlobRecord, Manifest, encode_manifest, find_stripped

if TYPE_CHECKING:
    from dovetail.runtime.engine import Engine

__all__ = ["make_blob", "record_blob", "save_engine", "serialize_engine"]


def make_blob(name: str, array: np.ndarray[Any, Any]) -> Blob:
    """The container's form of an array, without a copy where its type allows."""
    if array.dtype.name in FOUR_BIT_TYPES:
        packed = pack_nibbles(array)
        return Blob(name=name, dtype="U8", shape=packed.shape, data=packed.data)
    contiguous = np.ascontiguousarray(array).reshape(array.shape)
    stored = STORED_TYPES.get(array.dtype.name)
    flat = contiguous.reshape(-1).view(np.uint8)
    if stored is None:
        return Blob(name=name, dtype="U8", shape=flat.shape, data=flat.data)
    return Blob(name=name, dtype=stored, shape=contiguous.shape, data=flat.data)


def record_blob(blob: Blob, array: np.ndarray[Any, Any], *, kind: str = "weights") -> BlobRecord:
    """What the manifest says of a blob: a fast digest for weights, sha256 for what can be executed."""
    algorithm = "xxh3" if kind == "weights" else "sha256"
    return BlobRecord(
        kind=kind,
        dtype=array.dtype.name,
        shape=list(array.shape),
        algorithm=algorithm,
        digest=digest_blob(blob.data, algorithm),
    )


def _current(engine: Engine, *, exclude_weights: bool = False) -> tuple[Manifest, list[Blob]]:
    blobs, records = [], {}
    refit = engine.manifest.refit
    excluded = find_stripped(refit, engine.manifest.packed) if exclude_weights and refit is not None else frozenset()
    for name, record in sorted(engine.manifest.blobs.items(), key=itemgetter(0)):
        if name in engine.blobs.missing or name in excluded:
            records[name] = msgspec.structs.replace(record, digest="", stripped=True)
            continue
        array = _contents(engine, name, record)
        blob = make_blob(name, array)
        blobs.append(blob)
        records[name] = record_blob(blob, array, kind=record.kind)
    return msgspec.structs.replace(engine.manifest, blobs=records), blobs


def _contents(engine: Engine, name: str, record: BlobRecord) -> np.ndarray[Any, Any]:
    if record.kind == "weights":
        return engine.blobs.array(name)
    return np.frombuffer(engine.blobs.bytes_of(name), np.uint8)


def save_engine(engine: Engine, path: str | os.PathLike[str]) -> None:
    """Write the plan to a file, atomically."""
    manifest, blobs = _current(engine)
    write_plan(path, encode_manifest(manifest), blobs)


def serialize_engine(engine: Engine, *, exclude_weights: bool = False) -> bytes:
    """The plan as bytes, with or without the weights that can be replaced."""
    manifest, blobs = _current(engine, exclude_weights=exclude_weights)
    return plan_bytes(encode_manifest(manifest), blobs)
