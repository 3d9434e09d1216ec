"""Checking a manifest before anything is made from it: every number in range, every name resolved.

The types are msgspec's work; here is what types cannot say. Nothing is allocated and no code is touched. The rules for
the engine as a whole are in this module, those for programs and their memory in the modules it calls.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence, Set
from typing import Final

from dovetail.errors import PlanDeviceMismatchError
from dovetail.formats import stored_size_bytes
from dovetail.plan._header import show
from dovetail.plan.blob_types import STORED_TYPES
from dovetail.plan.container import BlobInfo, PlanFile
from dovetail.plan.manifest import BlobRecord, Manifest, ProfileRecord, TensorRecord
from dovetail.plan.verify.built import verify_code, verify_notes, verify_packed
from dovetail.plan.verify.programs import verify_program
from dovetail.plan.verify.rules import (
    MAX_BYTES,
    MAX_RANK,
    check_dims,
    check_format,
    check_name,
    check_value_type,
    dtype_from_name,
    require,
)
from dovetail.provider.loader import has_provider, provider_names

__all__ = ["dtype_from_name", "verify_manifest"]

_BLOB_KINDS: Final = frozenset(("weights", "strings", "library", "kernel", "payload"))
_DIGESTS: Final = {"xxh3": re.compile("[0-9a-f]{32}"), "sha256": re.compile("[0-9a-f]{64}")}


def verify_manifest(manifest: Manifest, file: PlanFile) -> None:
    """Raise PlanCorruptError at the first rule that does not hold."""
    _verify_tensors(manifest)
    _verify_blobs(manifest, file)
    _verify_libraries(manifest)
    verify_packed(manifest)
    _verify_refit(manifest)
    _verify_profiles(manifest)
    _verify_device_records(manifest)
    for index, program in enumerate(manifest.programs):
        verify_program(program, manifest, index)
    verify_code(manifest)
    verify_notes(manifest)
    _verify_tuning(manifest)
    _verify_providers(manifest)  # last: a plan for a provider that is not here is whole all the same


# tensors


def _verify_tensors(manifest: Manifest) -> None:
    names = [tensor.name for tensor in (*manifest.inputs, *manifest.outputs)]
    require(len(set(names)) == len(names), "tensors", "two tensors have the same name")
    require(bool(manifest.outputs), "tensors", "the plan has no outputs")
    inputs = {tensor.name for tensor in manifest.inputs}
    for tensor in (*manifest.inputs, *manifest.outputs):
        _verify_tensor(tensor)
        is_output = tensor.name not in inputs
        no_output = tensor.alias is None and tensor.max_dims is None
        require(is_output or no_output, f"tensor {show(tensor.name)}", "is an input and has what only outputs have")
        require(tensor.alias is None or tensor.alias in inputs, f"tensor {show(tensor.name)}", "aliases no input")


def _verify_tensor(tensor: TensorRecord) -> None:
    where = f"tensor {show(tensor.name)}"
    check_name(tensor.name, where)
    kind = check_value_type(tensor.type, tensor.dtype, where)
    require(tensor.location in ("DEVICE", "HOST"), where, "unknown location", tensor.location)
    is_far = bool(tensor.memory) and (tensor.is_shape or tensor.location == "HOST")
    require(not is_far, where, "lies on a device, and the host reads it", tensor.memory)
    check_dims(tensor.dims or (), where, nullable=True)
    check_format(tensor.format, tensor.rank, where)
    is_bare = tensor.shapes is None and tensor.scale == -1.0
    require(is_bare, where, "has what only a build or a value knows of a tensor", tensor.scale)
    if tensor.max_dims is not None:
        check_dims(tensor.max_dims, where)
        require(len(tensor.max_dims) == len(tensor.dims or ()), where, "has bounds of another rank", tensor.max_dims)
    if kind is not None:
        has_shape = kind.is_string_tensor or tensor.dims is None
        is_plain = (tensor.format, tensor.is_shape, tensor.alias) == ("LINEAR", False, None)
        require(has_shape and is_plain, where, "is an object and has what only numbers have", tensor.type)


# blobs


def _verify_blobs(manifest: Manifest, file: PlanFile) -> None:
    for name, record in manifest.blobs.items():
        where = f"blob {show(name)}"
        check_name(name, where)
        dtype_from_name(record.dtype)
        require(record.kind in _BLOB_KINDS, where, "unknown kind", record.kind)
        require(record.algorithm in _DIGESTS, where, "unknown digest algorithm", record.algorithm)
        require(record.kind == "weights" or record.algorithm == "sha256", where, "code without a sha256 digest")
        require(record.kind == "weights" or record.dtype == "uint8", where, "code is bytes", record.dtype)
        require(len(record.shape) <= MAX_RANK, where, "has too many dimensions", len(record.shape))
        require(all(0 <= n < MAX_BYTES for n in record.shape), where, "has a dimension out of range", record.shape[:8])
        require(math.prod(filter(None, record.shape)) < MAX_BYTES, where, "is larger than any memory", record.shape[:8])
        _verify_presence(name, record, file, where)
    extra = set(file.blobs) - set(manifest.blobs)
    require(not extra, "blobs", "the file has blobs that the manifest does not name", sorted(extra)[:3])


def _verify_presence(name: str, record: BlobRecord, file: PlanFile, where: str) -> None:
    if record.stripped:
        require(record.kind == "weights", where, "only weights can be stripped")
        require(not record.digest, where, "is stripped and has a digest", record.digest)
        require(name not in file.blobs, where, "is stripped and in the file")
        return
    require(name in file.blobs, where, "is not in the file")
    require(_DIGESTS[record.algorithm].fullmatch(record.digest) is not None, where, "malformed digest", record.digest)
    _verify_stored(record, file.blobs[name], where)


def _verify_stored(record: BlobRecord, info: BlobInfo, where: str) -> None:
    """What the container says of a blob must be what the manifest says: neither has a digest over the other."""
    size = stored_size_bytes(record.dtype, record.shape)
    require(info.size_bytes == size, where, "has another size than its type and shape say", info.size_bytes)
    stored = STORED_TYPES.get(record.dtype, "U8")
    require(info.dtype == stored, where, "is stored as another type than the manifest says", info.dtype)
    if record.dtype in STORED_TYPES:
        require(list(info.shape) == record.shape, where, "is stored with another shape", info.shape)


def _verify_libraries(manifest: Manifest) -> None:
    """Every blob that is host code belongs to one library, and every library to one such blob."""
    for library in manifest.libraries:
        where = f"library {show(library.name)}"
        check_name(library.name, where)
        record = manifest.blobs.get(library.blob)
        require(record is not None and record.kind == "library", where, "names a blob that is no library", library.blob)
    blobs = [library.blob for library in manifest.libraries]
    require(len(set(blobs)) == len(blobs), "libraries", "two libraries name the same blob")
    carried = {name for name, record in manifest.blobs.items() if record.kind == "library"}
    require(carried == set(blobs), "libraries", "a library is carried and not named", sorted(carried - set(blobs))[:3])


def _verify_refit(manifest: Manifest) -> None:
    weights = {} if manifest.refit is None else manifest.refit.weights
    for name, blob in weights.items():
        where = f"weight {show(name)}"
        check_name(name, where)
        record = manifest.blobs.get(blob)
        require(record is not None and record.kind == "weights", where, "names a blob that is not weights", blob)
    stripped = {name for name, record in manifest.blobs.items() if record.stripped}
    missing = stripped - set(weights.values()) - _repacked(manifest, stripped - set(weights.values()))
    require(not missing, "refit", "a weight is stripped and cannot be given back", sorted(missing)[:3])


def _repacked(manifest: Manifest, lost: Set[str]) -> set[str]:
    """The packed weights that come back by packing, because everything they are made of is here or is given back."""
    return {
        blob
        for blob, record in manifest.packed.items()
        if record.sources and all(source and source not in lost for source in record.sources.values())
    }


# profiles, devices, tables


def _verify_profiles(manifest: Manifest) -> None:
    require(not (manifest.open and manifest.profiles), "profiles", "the engine is open and has profiles")
    expected = max(len(manifest.profiles), 1)
    require(len(manifest.programs) == expected, "programs", "there must be one a profile", len(manifest.programs))
    for index, profile in enumerate(manifest.profiles):
        _verify_profile(profile, manifest, f"profile {index}")


def _verify_profile(profile: ProfileRecord, manifest: Manifest, where: str) -> None:
    inputs = {tensor.name: tensor for tensor in manifest.inputs}
    for name, bounds in (*profile.shapes.items(), *profile.values.items()):
        require(name in inputs, where, "names an unknown input", name)
        bounded = ("", "tensor(string)") if bounds is profile.shapes.get(name) else ("",)
        require(inputs[name].type in bounded, where, "bounds an input that is an object", name)
        require(len({len(part) for part in bounds}) == 1, where, "has min, opt and max of different lengths", name)
        ordered = all(low <= opt <= high for low, opt, high in zip(*bounds, strict=True))
        require(ordered, where, "min, opt and max are not in order", name)
        require(all(abs(n) < MAX_BYTES for part in bounds for n in part), where, "has a bound out of range", name)
    for name, bounds in profile.shapes.items():
        _verify_shape_bounds(inputs[name], bounds, f"{where}, input {show(name)}")


def _verify_shape_bounds(tensor: TensorRecord, bounds: Sequence[list[int]], where: str) -> None:
    sizes = (None,) * len(bounds[0]) if tensor.sizes is None else tensor.sizes
    require(len(bounds[0]) == len(sizes), where, "has bounds of another rank", len(bounds[0]))
    for size, low, high in zip(sizes, bounds[0], bounds[2], strict=True):
        require(low >= 0, where, "has a negative bound", low)
        fits = size is None or low == high == size
        require(fits, where, "has bounds for a dimension that is fixed", (size, low, high))


def _verify_device_records(manifest: Manifest) -> None:
    providers = [device.provider for device in manifest.devices]
    require(bool(providers), "devices", "the plan names no device")
    require(len(set(providers)) == len(providers), "devices", "two devices are of one provider")
    for name in providers:
        check_name(name, "devices")


def _verify_tuning(manifest: Manifest) -> None:
    for table in manifest.tuning:
        where = f"tuning of layer {show(table.name)}"
        check_name(table.name, where, may_be_empty=True)
        require(0 <= table.profile < len(manifest.programs), where, "belongs to no profile", table.profile)
        for candidate in table.candidates:
            check_name(candidate.name, where, may_be_empty=True)
            for time_us in (candidate.time_us, candidate.low_us, candidate.high_us):
                require(time_us is None or time_us >= 0, where, "has a negative time", time_us)
            require(candidate.rounds >= 0, where, "has a negative number of rounds", candidate.rounds)


def _verify_providers(manifest: Manifest) -> None:
    for device in manifest.devices:
        if not has_provider(device.provider):
            raise PlanDeviceMismatchError(
                f"the plan needs the provider {show(device.provider)}, which is not installed",
                expected=", ".join(provider_names()),
            )
