"""Checking a manifest before anything is made from it: every number in range, every name resolved.

The types are msgspec's work; here is what types cannot say. Nothing is allocated and no code is touched.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np

from dovetail.errors import PlanCorruptError, PlanDeviceMismatchError, UsageError
from dovetail.expr import decode_expr, symbols_of
from dovetail.plan.blob_types import STORED_TYPES, stored_size_bytes
from dovetail.plan.container import BlobInfo, PlanFile
from dovetail.plan.manifest import BlobRecord, Manifest, ProgramRecord, StepRecord, TensorRecord, ValueRecord
from dovetail.provider.loader import provider_names
from dovetail.types import TensorFormat

__all__ = ["dtype_from_name", "verify_manifest"]

_VALUE_KINDS: Final = frozenset(("input", "output", "constant", "planned", "dynamic", "object"))
_STEP_KINDS: Final = frozenset(("kernel", "plugin", "reformat", "control"))
_BLOB_KINDS: Final = frozenset(("weights", "library", "kernel"))
_MAX_DEPTH: Final = 32
_MAX_BYTES: Final = 2**48


def dtype_from_name(name: str) -> np.dtype[Any]:
    """The NumPy type of a name in a manifest; anything else than a plain number type is refused."""
    try:
        dtype = np.dtype(name)
    except TypeError:
        dtype = np.dtype(object)
    if dtype.name != name or dtype.hasobject or dtype.itemsize > 8 or dtype.fields is not None:
        raise PlanCorruptError("unknown element type", got=repr(name)[:40])
    return dtype


def verify_manifest(manifest: Manifest, file: PlanFile) -> None:
    """Raise PlanCorruptError at the first rule that does not hold."""
    _verify_tensors(manifest)
    _verify_blobs(manifest, file)
    _verify_profiles(manifest)
    _require(bool(manifest.devices), "devices", "the plan names no device")
    for index, program in enumerate(manifest.programs):
        where = f"program {index}"
        _require(len(program.inputs) == len(manifest.inputs), where, "has another number of inputs than the plan")
        _require(len(program.outputs) == len(manifest.outputs), where, "has another number of outputs than the plan")
        _verify_program(program, manifest, where, 0)
    _verify_devices(manifest)  # last: a plan for a provider that is not here is whole all the same


def _require(condition: bool, where: str, what: str, got: object = None) -> None:
    if not condition:
        raise PlanCorruptError(what, where=where, got=got, fix="build the plan again")


def _verify_tensors(manifest: Manifest) -> None:
    names = [tensor.name for tensor in (*manifest.inputs, *manifest.outputs)]
    _require(len(set(names)) == len(names), "tensors", "two tensors have the same name")
    inputs = {tensor.name for tensor in manifest.inputs}
    for tensor in (*manifest.inputs, *manifest.outputs):
        _verify_tensor(tensor)
        _require(tensor.alias is None or tensor.alias in inputs, f"tensor '{tensor.name}'", "aliases no input")


def _verify_tensor(tensor: TensorRecord) -> None:
    where = f"tensor '{tensor.name}'"
    dtype_from_name(tensor.dtype)
    _require(tensor.format in TensorFormat.__members__, where, "unknown format", tensor.format)
    _require(tensor.location in ("DEVICE", "HOST"), where, "unknown location", tensor.location)
    _require(len(tensor.dims) <= 32, where, "too many dimensions", len(tensor.dims))
    _verify_dims([*tensor.dims, *(tensor.max_dims or ())], where)


def _verify_dims(dims: Sequence[Any], where: str) -> frozenset[str]:
    names: frozenset[str] = frozenset()
    for dim in dims:
        if dim is None:
            continue
        if isinstance(dim, int):
            _require(0 <= dim < 2**31, where, "a dimension is out of range", dim)
        try:
            names |= symbols_of(decode_expr(dim))
        except (UsageError, RecursionError) as error:
            raise PlanCorruptError(f"a dimension is malformed: {error}", where=where) from error
    return names


def _verify_blobs(manifest: Manifest, file: PlanFile) -> None:
    for name, record in manifest.blobs.items():
        where = f"blob '{name}'"
        dtype_from_name(record.dtype)
        _require(record.kind in _BLOB_KINDS, where, "unknown kind", record.kind)
        _require(record.algorithm in ("xxh3", "sha256"), where, "unknown digest algorithm", record.algorithm)
        _require(record.kind == "weights" or record.algorithm == "sha256", where, "code without a sha256 digest")
        _require(record.stripped or name in file.blobs, where, "is not in the file")
        _require(not record.stripped or record.kind == "weights", where, "only weights can be stripped")
        _require(all(0 <= n < 2**40 for n in record.shape), where, "has a dimension out of range", record.shape)
        if not record.stripped:
            _verify_stored(record, file.blobs[name], where)
    extra = set(file.blobs) - set(manifest.blobs)
    _require(not extra, "blobs", "the file has blobs that the manifest does not name", sorted(extra)[:3])


def _verify_stored(record: BlobRecord, info: BlobInfo, where: str) -> None:
    """What the container says of a blob must be what the manifest says: neither has a digest over the other."""
    size = stored_size_bytes(record.dtype, record.shape)
    _require(info.size_bytes == size, where, "has another size than its type and shape say", info.size_bytes)
    stored = STORED_TYPES.get(record.dtype, "U8")
    _require(info.dtype == stored, where, "is stored as another type than the manifest says", info.dtype)
    if record.dtype in STORED_TYPES:
        _require(list(info.shape) == record.shape, where, "is stored with another shape", info.shape)


def _verify_profiles(manifest: Manifest) -> None:
    expected = 1 if manifest.open else max(len(manifest.profiles), 1)
    _require(len(manifest.programs) == expected, "programs", "there must be one a profile", len(manifest.programs))
    ranks = {tensor.name: len(tensor.dims) for tensor in manifest.inputs}
    for index, profile in enumerate(manifest.profiles):
        where = f"profile {index}"
        for name, bounds in profile.shapes.items():
            _require(name in ranks, where, f"names the unknown input '{name}'")
            _require(all(len(b) == ranks[name] for b in bounds), where, f"has the wrong rank for '{name}'")
            _require(
                all(lo <= hi for lo, hi in zip(bounds[0], bounds[2], strict=True)), where, f"min > max of '{name}'"
            )


def _verify_devices(manifest: Manifest) -> None:
    for device in manifest.devices:
        if device.provider not in provider_names():
            raise PlanDeviceMismatchError(
                f"the plan needs the provider '{device.provider}', which is not installed",
                expected=", ".join(provider_names()),
            )


def _verify_program(program: ProgramRecord, manifest: Manifest, where: str, depth: int) -> None:
    _require(depth < _MAX_DEPTH, where, "bodies are nested too deep")
    count = len(program.values)
    _require(0 <= program.arena_bytes < _MAX_BYTES, where, "arena size out of range", program.arena_bytes)
    _require(0 <= program.workspace_bytes < _MAX_BYTES, where, "workspace out of range", program.workspace_bytes)
    _verify_indices((*program.inputs, *program.outputs), count, where)
    known = {symbol.name for symbol in program.symbols}
    for symbol in program.symbols:
        _verify_indices((symbol.value,), count, where)
        _require(
            symbol.source in ("dim", "element") and 0 <= symbol.index < 2**31, where, "malformed symbol", symbol.name
        )
    for index, value in enumerate(program.values):
        _verify_value(value, program, manifest, f"{where}, value {index}", known)
    for step in program.steps:
        _verify_step(step, program, manifest, f"{where}, step '{step.name}'", known, depth)


def _verify_indices(indices: Iterable[int], count: int, where: str, *, absent: bool = False) -> None:
    lowest = -1 if absent else 0
    for index in indices:
        _require(lowest <= index < count, where, "refers to a value that does not exist", index)


def _verify_value(value: ValueRecord, program: ProgramRecord, manifest: Manifest, where: str, known: set[str]) -> None:
    _require(value.kind in _VALUE_KINDS, where, "unknown kind", value.kind)
    _require(value.format in TensorFormat.__members__, where, "unknown format", value.format)
    if value.kind != "object":
        dtype_from_name(value.dtype)
    if value.dims is not None:
        unknown = _verify_dims(value.dims, where) - known
        _require(not unknown, where, "uses symbols that are not defined", sorted(unknown)[:3])
    _require((value.kind == "constant") == (value.blob is not None), where, "constants, and only they, have a blob")
    if value.blob is not None:
        record = manifest.blobs.get(value.blob)
        _require(record is not None and record.kind == "weights", where, "names a blob that is not weights", value.blob)
    if value.alias is not None:
        _verify_indices((value.alias,), len(program.values), where)
    _verify_placement(value, program, manifest, where)


def _verify_placement(value: ValueRecord, program: ProgramRecord, manifest: Manifest, where: str) -> None:
    if value.offset is None:
        needs_place = value.kind == "planned" and not manifest.open and value.alias is None
        _require(not needs_place, where, "is planned but has no place in the arena")
        return
    size = value.size_bytes or 0
    fits = value.offset >= 0 and size >= 0 and value.offset + size <= program.arena_bytes
    _require(fits, where, "lies outside the arena", (value.offset, size, program.arena_bytes))


def _verify_step(
    step: StepRecord, program: ProgramRecord, manifest: Manifest, where: str, known: set[str], depth: int
) -> None:
    count = len(program.values)
    _require(step.kind in _STEP_KINDS, where, "unknown kind", step.kind)
    _require(step.provider in {d.provider for d in manifest.devices}, where, "names another provider", step.provider)
    _verify_indices(step.inputs, count, where, absent=True)
    _verify_indices(step.outputs, count, where, absent=True)
    _require(0 <= step.workspace_bytes <= program.workspace_bytes, where, "needs more workspace than there is")
    _require((step.kind == "plugin") == (step.plugin is not None), where, "plugin steps, and only they, name a plugin")
    if step.kind == "plugin":
        _require(min((*step.inputs, *step.outputs), default=0) >= 0, where, "a plugin has no absent inputs or outputs")
    if step.kind == "reformat":
        _require(len(step.inputs) == len(step.outputs) == 1, where, "a reformat has one input and one output")
    for name, upper in step.sizes.items():
        _require(name in known, where, "bounds a symbol that is not defined", name)
        _verify_dims([upper], where)
    _require((step.kind == "control") == bool(step.bodies), where, "control flow, and only it, has bodies")
    for body in step.bodies:
        _verify_indices((outside for outside, _ in body.captures), count, where)
        _verify_indices((inside for _, inside in body.captures), len(body.values), where)
        _verify_program(body, manifest, f"{where}, body", depth + 1)
