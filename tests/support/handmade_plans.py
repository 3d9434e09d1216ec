"""Plans written by hand, for what reads plans: no builder is needed, and every record can be what a test wants."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np

from dovetail._version import __version__
from dovetail.plan.container import write_plan
from dovetail.plan.manifest import (
    FORMAT_VERSION,
    BlobRecord,
    CandidateRecord,
    DeviceRecord,
    LayerRecord,
    Manifest,
    PluginRecord,
    ProfileRecord,
    ProgramRecord,
    StepRecord,
    SymbolRecord,
    TensorRecord,
    ValueRecord,
    encode_manifest,
)
from dovetail.provider.loader import get_factory
from dovetail.runtime.save import make_blob, record_blob
from tests.support.dims import read_dims

__all__ = ["library_record", "make_manifest", "replace", "write_handmade"]

R = TypeVar("R", bound=msgspec.Struct)

WEIGHT = np.arange(3, dtype=np.float32)
LIBRARY = np.frombuffer(b"not a library that loads", np.uint8)


def make_manifest(**changes: Any) -> Manifest:
    """Add with a weight, then a plugin: two steps over one dynamic input."""
    device = get_factory("cpu").devices()[0]
    values = [
        ValueRecord(name="x", dtype="float32", kind="input", dims=read_dims(["n", 3])),
        ValueRecord(name="w", dtype="float32", kind="constant", dims=read_dims([3]), blob="w"),
        ValueRecord(name="t", dtype="float32", kind="planned", dims=read_dims(["n", 3]), offset=0, size_bytes=96),
        ValueRecord(name="y", dtype="float32", kind="output", dims=read_dims([["prod", "n", 2], 3])),
    ]
    steps = [
        StepRecord(name="add", kind="kernel", provider="cpu", op="Add", opset=14, inputs=[0, 1], outputs=[2]),
        StepRecord(
            name="twice",
            kind="plugin",
            provider="cpu",
            op="Twice",
            inputs=[2],
            outputs=[3],
            tactic=2,
            plugin=PluginRecord(name="Twice", version="1", namespace="acme", fields=[], metadata="made by hand"),
        ),
    ]
    program = ProgramRecord(
        inputs=[0],
        outputs=[3],
        values=values,
        steps=steps,
        symbols=[SymbolRecord(name="n", source="dim", value=0, index=0)],
        arena_bytes=96,
    )
    candidates = [
        CandidateRecord(formats=["FLOAT LINEAR", "FLOAT LINEAR"], tactic=1, time_us=9.5),
        CandidateRecord(formats=["FLOAT LINEAR", "FLOAT LINEAR"], tactic=2, time_us=3.25, chosen=True),
        CandidateRecord(formats=["FLOAT LINEAR", "FLOAT LINEAR"], tactic=3, status="failed", reason="ValueError: no"),
    ]
    facts: dict[str, Any] = {
        "format_version": FORMAT_VERSION,
        "producer": f"dovetail {__version__}",
        "name": "handmade",
        "open": False,
        "inputs": [TensorRecord(name="x", dtype="float32", dims=read_dims(["n", 3]))],
        "outputs": [TensorRecord(name="y", dtype="float32", dims=read_dims([["prod", "n", 2], 3]))],
        "profiles": [ProfileRecord(shapes={"x": ([1, 3], [4, 3], [8, 3])})],
        "programs": [program],
        "blobs": {"w": record_blob(make_blob("w", WEIGHT), WEIGHT)},
        "devices": [
            DeviceRecord(
                provider="cpu", name=device.name, fingerprint=device.fingerprint, version=get_factory("cpu").version
            )
        ],
        "tuning": [LayerRecord(name="twice", profile=0, candidates=candidates)],
        "build": {"profiling_verbosity": "DETAILED"},
    }
    return Manifest(**(facts | changes))


def write_handmade(path: Path, manifest: Manifest | None = None) -> Path:
    """Write a plan file of a manifest with the blobs that it names."""
    made = manifest or make_manifest()
    arrays = {"w": WEIGHT, "library": LIBRARY}
    blobs = [make_blob(name, arrays[name]) for name, record in made.blobs.items() if not record.stripped]
    write_plan(path, encode_manifest(made), blobs)
    return path


def library_record() -> BlobRecord:
    """The record of a carried library, to go under the name ``library``."""
    return record_blob(make_blob("library", LIBRARY), LIBRARY, kind="library")


def replace(record: R, **changes: Any) -> R:
    """A record with other fields."""
    return msgspec.structs.replace(record, **changes)
