"""The writer's side of the plan container: where each blob goes, and the bytes of the file in order."""

from __future__ import annotations

import hashlib
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from dovetail.errors import UsageError
from dovetail.plan import _header as rules

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["Blob", "bytes_view", "plan_chunks"]

_PADDING = memoryview(bytes(rules.LARGE_ALIGNMENT))


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Blob:
    """One tensor to be written: its name, its type as the format spells it, its shape, and its bytes.

    A type that the format lacks (4-bit integers and floats, compiled code) is written as ``U8`` bytes, and the
    manifest knows better. ``data`` is any C-contiguous buffer in little-endian order, NumPy arrays of the
    ``ml_dtypes`` types included; it is not copied, so it must not change until the plan is written.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    data: Buffer = field(repr=False)


def bytes_view(data: Buffer) -> memoryview:
    """View any C-contiguous buffer as bytes, without a copy.

    Raises:
        UsageError: The data is no such buffer.
    """
    try:
        view = memoryview(_array_bytes(data))
        if view.format.startswith((">", "!")):
            raise ValueError("values are big-endian")
        # A cast refuses an empty view.
        return view.cast("B") if view.nbytes else memoryview(b"")
    except (BufferError, TypeError, ValueError) as error:
        fix = "pass bytes, or a C-contiguous array of a native numeric type"
        raise UsageError("data cannot be viewed as bytes", got=rules.show(str(error)), fix=fix) from error


def _array_bytes(data: Buffer) -> Buffer:
    """Let NumPy view its own arrays as bytes, since those of the ``ml_dtypes`` types do not offer a buffer."""
    # Looked up and not imported: an array can only come from a caller that has imported NumPy.
    numpy = sys.modules.get("numpy")
    if numpy is None or not isinstance(data, numpy.ndarray):
        return data
    if not data.flags.c_contiguous:
        raise ValueError("array is not C-contiguous")
    if not data.dtype.isnative:
        raise ValueError("array is not in native byte order")
    view: Buffer = data.reshape(-1).view(numpy.uint8)
    return view


def plan_chunks(manifest: bytes, blobs: Sequence[Blob]) -> list[Buffer]:
    """Return the buffers that make up a plan file when they are written one after the other.

    Raises:
        UsageError: The manifest is not UTF-8, or a blob cannot be in a plan.
    """
    views = [_check_blob(blob) for blob in blobs]
    tensors: dict[str, object] = {rules.METADATA: _metadata(manifest)}
    chunks: list[Buffer] = []
    cursor = pads = 0
    for blob, view in zip(blobs, views, strict=True):
        if blob.name in tensors:
            raise _refuse(blob, "two blobs have one name", fix="give each blob a name of its own")
        if gap := -cursor % rules.alignment_bytes(view.nbytes):
            tensors[f"{rules.PAD_PREFIX}{pads}"] = _entry("U8", (gap,), cursor)
            chunks.append(_PADDING[:gap])
            pads += 1
            cursor += gap
        tensors[blob.name] = _entry(blob.dtype, blob.shape, cursor)
        chunks.append(view)
        cursor += view.nbytes
    largest = max((view.nbytes for view in views), default=0)
    return [_encode_header(tensors, rules.alignment_bytes(largest)), *chunks]


def _metadata(manifest: bytes) -> dict[str, str]:
    try:
        text = manifest.decode()
    except UnicodeDecodeError as error:
        raise UsageError("manifest is not UTF-8", got=error.reason, fix="pass the encoded JSON text") from None
    digest = hashlib.sha256(manifest).hexdigest()
    return {
        rules.VERSION_KEY: rules.CONTAINER_VERSION,
        rules.MANIFEST_DIGEST_KEY: digest,
        rules.MANIFEST_KEY: text,
    }


def _entry(dtype: str, shape: tuple[int, ...], begin: int) -> dict[str, object]:
    end = begin + math.prod(shape) * rules.DTYPE_BYTES[dtype]
    return {"dtype": dtype, "shape": shape, "data_offsets": (begin, end)}


def _encode_header(tensors: dict[str, object], alignment: int) -> bytes:
    if len(tensors) - 1 > rules.MAX_TENSORS:
        raise UsageError("too many tensors for one plan", expected=f"<= {rules.MAX_TENSORS}", got=len(tensors) - 1)
    try:
        text = msgspec.json.encode(tensors)
    except UnicodeEncodeError as error:
        raise UsageError("a blob name is not Unicode text", got=rules.show(error.object)) from None
    header_bytes = len(text) + -(rules.LENGTH_BYTES + len(text)) % alignment
    if header_bytes > rules.MAX_HEADER_BYTES:
        limit = f"<= {rules.MAX_HEADER_BYTES} bytes"
        raise UsageError("manifest is too long for one plan", expected=limit, got=header_bytes, fix="cut the network")
    return header_bytes.to_bytes(rules.LENGTH_BYTES, "little") + text.ljust(header_bytes)


def _check_blob(blob: Blob) -> memoryview:
    """Return the bytes of a blob that keeps the rules its reader will check."""
    name_problem = rules.name_problem(blob.name)
    if not name_problem and (blob.name == rules.METADATA or blob.name.startswith(rules.PAD_PREFIX)):
        name_problem = "a name that the container uses itself"
    if name_problem:
        raise _refuse(blob, "blob name is not allowed", got=name_problem)
    if blob.dtype not in rules.DTYPE_BYTES:
        raise _refuse(blob, "blob type is unknown", expected=" ".join(rules.DTYPE_BYTES), got=blob.dtype)
    if any(type(size) is not int or size < 0 for size in blob.shape):
        raise _refuse(blob, "blob shape is not made of sizes", expected="int >= 0", got=rules.show(blob.shape))
    if problem := rules.shape_problem(blob.shape):
        raise _refuse(blob, "blob shape is not allowed", got=problem)
    view = bytes_view(blob.data)
    size_bytes = math.prod(blob.shape) * rules.DTYPE_BYTES[blob.dtype]
    if view.nbytes != size_bytes:
        raise _refuse(
            blob, "blob data does not fill its type and shape", expected=f"{size_bytes} bytes", got=view.nbytes
        )
    return view


def _refuse(
    blob: Blob, what: str, *, expected: object = None, got: object = None, fix: str | None = None
) -> UsageError:
    return UsageError(what, where=f"blob {rules.show(blob.name)}", expected=expected, got=got, fix=fix)
