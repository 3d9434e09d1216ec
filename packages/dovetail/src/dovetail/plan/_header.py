"""The rules of the plan container: its constants, and the reader's side, which checks each before it trusts a byte.

A header is checked in one order: length, text, metadata, version, entries, manifest, then how the tensors lie
together. The first rule that does not hold is the error; nothing is allocated by a size that a file only claims.
"""

from __future__ import annotations

import hashlib
import math
from operator import attrgetter
from typing import Annotated, Final, NamedTuple, TypeVar

import msgspec

from dovetail.decoding import NESTED, decode, walk_json
from dovetail.errors import PlanCorruptError, PlanVersionError

__all__ = [
    "CONTAINER_VERSION",
    "DTYPE_BYTES",
    "LARGE_ALIGNMENT",
    "LENGTH_BYTES",
    "MANIFEST_DIGEST_KEY",
    "MANIFEST_KEY",
    "MAX_HEADER_BYTES",
    "MAX_TENSORS",
    "METADATA",
    "PAD_PREFIX",
    "VERSION_KEY",
    "BlobInfo",
    "Header",
    "alignment_bytes",
    "corrupt",
    "data_start",
    "name_problem",
    "parse_header",
    "shape_problem",
    "show",
]

CONTAINER_VERSION: Final = "1"
LENGTH_BYTES: Final = 8
MAX_HEADER_BYTES: Final = 100_000_000
MAX_TENSORS: Final = 262_144
MAX_NAME_CHARS: Final = 4096
MAX_RANK: Final = 64
MAX_ELEMENTS: Final = 2**63 - 1
SMALL_ALIGNMENT: Final = 64
LARGE_ALIGNMENT: Final = 4096
LARGE_BYTES: Final = 1 << 20

PAD_PREFIX: Final = "_pad."
METADATA: Final = "__metadata__"
VERSION_KEY: Final = "dovetail.container"
MANIFEST_KEY: Final = "dovetail.manifest"
MANIFEST_DIGEST_KEY: Final = "dovetail.manifest.sha256"
METADATA_KEYS: Final = frozenset({VERSION_KEY, MANIFEST_KEY, MANIFEST_DIGEST_KEY})

DTYPE_BYTES: Final = {
    "BOOL": 1,
    "U8": 1,
    "I8": 1,
    "F8_E4M3": 1,
    "F8_E5M2": 1,
    "U16": 2,
    "I16": 2,
    "F16": 2,
    "BF16": 2,
    "U32": 4,
    "I32": 4,
    "F32": 4,
    "U64": 8,
    "I64": 8,
    "F64": 8,
    "C64": 8,
}

T = TypeVar("T")
_Size = Annotated[int, msgspec.Meta(ge=0, le=MAX_ELEMENTS)]

_FIX_COPY = "the file is damaged: copy it again, or build the plan again"
_FIX_WRITER = "only Dovetail writes plans: build the plan again"


class BlobInfo(msgspec.Struct, frozen=True, gc=False):
    """What one blob is and where it lies; ``begin`` and ``end`` count bytes from the start of the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int

    @property
    def size_bytes(self) -> int:
        """How many bytes the blob has."""
        return self.end - self.begin


class Header(NamedTuple):
    """All that a header says, once every rule holds."""

    manifest: bytes
    blobs: dict[str, BlobInfo]
    pads: tuple[BlobInfo, ...]


class _HeaderEntry(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A tensor as the header spells it; offsets count from the start of the data."""

    dtype: str
    shape: tuple[_Size, ...]
    data_offsets: tuple[_Size, _Size]


_TABLE = msgspec.json.Decoder(dict[str, msgspec.Raw])
_STRINGS = msgspec.json.Decoder(dict[str, str])
_ENTRY = msgspec.json.Decoder(_HeaderEntry)


def alignment_bytes(size_bytes: int) -> int:
    """Return the boundary that a blob of this size starts on.

    >>> alignment_bytes(1 << 20), alignment_bytes((1 << 20) + 1)
    (64, 4096)
    """
    return LARGE_ALIGNMENT if size_bytes > LARGE_BYTES else SMALL_ALIGNMENT


def name_problem(name: str) -> str | None:
    """Say what is wrong with the name of a tensor, or nothing."""
    if not name:
        return "an empty name"
    if len(name) > MAX_NAME_CHARS:
        return f"{len(name)} characters, over {MAX_NAME_CHARS}"
    return "a NUL character" if "\0" in name else None


def shape_problem(shape: tuple[int, ...]) -> str | None:
    """Say what is wrong with a shape of sizes, or nothing; a size of zero hides no overflow."""
    if len(shape) > MAX_RANK:
        return f"rank {len(shape)}, over {MAX_RANK}"
    return f"over {MAX_ELEMENTS} elements" if math.prod(filter(None, shape)) > MAX_ELEMENTS else None


def show(value: object) -> str:
    """Quote something that a file says: short, and with every control character escaped."""
    text = ascii(value)
    return text if len(text) <= 120 else f"{text[:116]}..."


def corrupt(
    what: str, where: str, *, expected: object = None, got: object = None, fix: str = _FIX_COPY
) -> PlanCorruptError:
    """Make the error for one rule of the container that does not hold."""
    return PlanCorruptError(what, where=where, expected=expected, got=got, fix=fix)


def _corrupt_tensor(
    what: str, where: str, name: str, *, expected: object = None, got: object = None, fix: str = _FIX_COPY
) -> PlanCorruptError:
    return corrupt(what, f"{where}, tensor {show(name)}", expected=expected, got=got, fix=fix)


def data_start(prefix: bytes | memoryview, file_bytes: int, where: str) -> int:
    """Check the length field of a file and return where its header ends and its data starts."""
    if len(prefix) < LENGTH_BYTES:
        raise corrupt("file is too short to be a plan", where, expected=f">= {LENGTH_BYTES} bytes", got=len(prefix))
    header_bytes = int.from_bytes(prefix, "little")
    if header_bytes > MAX_HEADER_BYTES:
        raise corrupt("header is over its size limit", where, expected=f"<= {MAX_HEADER_BYTES} bytes", got=header_bytes)
    if LENGTH_BYTES + header_bytes > file_bytes:
        room = f"<= {file_bytes - LENGTH_BYTES} bytes"
        raise corrupt("header is longer than the file", where, expected=room, got=header_bytes)
    return LENGTH_BYTES + header_bytes


def parse_header(raw: bytes, file_bytes: int, where: str) -> Header:
    """Check every rule of a header, given its bytes and the size of the file that it describes."""
    text = _check_text(raw, where)
    table = _decode(_TABLE, text, "header is not a JSON object", where)
    metadata = _check_metadata(table.pop(METADATA, None), f"{where}, metadata")
    if len(table) > MAX_TENSORS:
        raise corrupt("header has too many tensors", where, expected=f"<= {MAX_TENSORS}", got=len(table))
    entries = {name: _check_entry(name, entry, where) for name, entry in table.items()}
    _check_unique(text, metadata, entries, where)
    manifest = _check_manifest(metadata, f"{where}, metadata")
    start = LENGTH_BYTES + len(raw)
    infos = [_check_tensor(name, entry, start, where) for name, entry in entries.items()]
    infos.sort(key=attrgetter("begin", "end"))
    _check_coverage(infos, start, file_bytes, where)
    pads = tuple(_check_pad(info, where) for info in infos if info.name.startswith(PAD_PREFIX))
    blobs = {info.name: _check_alignment(info, where) for info in infos if not info.name.startswith(PAD_PREFIX)}
    return Header(manifest, blobs, pads)


def _check_text(raw: bytes, where: str) -> bytes:
    text = raw.rstrip(b" ")
    if not text.startswith(b"{") or not text.endswith(b"}"):
        got = f"{show(text[:8])} ... {show(text[-8:])}"
        raise corrupt("header is not one object padded with spaces", where, expected="'{' ... '}'", got=got)
    try:
        text.decode()
    except UnicodeDecodeError as error:
        raise corrupt("header is not UTF-8", where, got=f"{error.reason} at byte {error.start}") from None
    return text


def _decode(decoder: msgspec.json.Decoder[T], text: bytes | msgspec.Raw, what: str, where: str) -> T:
    def fail(reason: str) -> PlanCorruptError:
        if reason == NESTED:
            return corrupt("header is nested too deeply", where, expected="at most 3 levels")
        return corrupt(what, where, got=show(reason))

    return decode(decoder, text, fail)


def _check_metadata(text: msgspec.Raw | None, where: str) -> dict[str, str]:
    """Return the metadata once its version says that it is read as this module reads it."""
    if text is None:
        raise corrupt("file has no metadata, so it is not a plan", where, expected=VERSION_KEY, fix=_FIX_WRITER)
    metadata = _decode(_STRINGS, text, "metadata is not strings by name", where)
    version = metadata.get(VERSION_KEY)
    if version is None:
        raise corrupt("file names no container version, so it is not a plan", where, got="none", fix=_FIX_WRITER)
    if version != CONTAINER_VERSION:
        fix = "build the plan again with this version, or load it with the version that wrote it"
        what = "plan has another container version"
        raise PlanVersionError(what, where=where, expected=CONTAINER_VERSION, got=show(version), fix=fix)
    if metadata.keys() != METADATA_KEYS:
        expected, got = " ".join(sorted(METADATA_KEYS)), show(sorted(metadata))
        raise corrupt("metadata has a key missing or unknown", where, expected=expected, got=got)
    return metadata


def _check_manifest(metadata: dict[str, str], where: str) -> bytes:
    manifest = metadata[MANIFEST_KEY].encode()
    expected, got = metadata[MANIFEST_DIGEST_KEY], hashlib.sha256(manifest).hexdigest()
    if got != expected:
        raise corrupt("manifest does not match its sha256", where, expected=show(expected), got=got)
    return manifest


def _check_entry(name: str, text: msgspec.Raw, where: str) -> _HeaderEntry:
    expected = "dtype: str, shape: [int >= 0, ...], data_offsets: [int >= 0, int >= 0]"
    return decode(
        _ENTRY,
        text,
        lambda reason: _corrupt_tensor("entry is malformed", where, name, expected=expected, got=show(reason)),
    )


def _check_unique(text: bytes, metadata: dict[str, str], entries: dict[str, _HeaderEntry], where: str) -> None:
    """Check that no object in the header has a key twice, where the last would silently win."""
    # Text that is just what these dicts encode to has no second key; only a header of another writer is searched.
    if msgspec.json.encode({METADATA: metadata, **entries}) != text:
        walk_json(
            text,
            lambda pairs: _refuse_duplicates(pairs, where),
            lambda reason: corrupt("header is not a JSON object", where, got=show(reason)),
        )


def _refuse_duplicates(pairs: list[tuple[str, object]], where: str) -> None:
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            raise corrupt("header has a key twice in one object", where, got=show(key))
        seen.add(key)


def _check_tensor(name: str, entry: _HeaderEntry, start: int, where: str) -> BlobInfo:
    if problem := name_problem(name):
        raise _corrupt_tensor("tensor name is not allowed", where, name, got=problem)
    dtype, shape, (begin, end) = entry.dtype, entry.shape, entry.data_offsets
    if dtype not in DTYPE_BYTES:
        raise _corrupt_tensor("tensor type is unknown", where, name, expected=" ".join(DTYPE_BYTES), got=show(dtype))
    if problem := shape_problem(shape):
        raise _corrupt_tensor("tensor shape is not allowed", where, name, got=problem)
    if begin > end:
        raise _corrupt_tensor("tensor ends before it begins", where, name, expected=f"end >= {begin}", got=end)
    size_bytes = math.prod(shape) * DTYPE_BYTES[dtype]
    if size_bytes != end - begin:
        what = "tensor type and shape do not fill its offsets"
        raise _corrupt_tensor(what, where, name, expected=f"{size_bytes} bytes", got=end - begin)
    return BlobInfo(name, dtype, shape, start + begin, start + end)


def _check_coverage(infos: list[BlobInfo], start: int, file_bytes: int, where: str) -> None:
    """Check that tensors, sorted by offsets, fill the data from its start to the end of the file, each byte once."""
    cursor = start
    for info in infos:
        name, begin, end = info.name, info.begin, info.end
        if begin < cursor:
            raise _corrupt_tensor("tensor overlaps another", where, name, expected=f"begin {cursor}", got=begin)
        if begin > cursor:
            raise _corrupt_tensor("tensor has a hole before it", where, name, expected=f"begin {cursor}", got=begin)
        if end > file_bytes:
            raise _corrupt_tensor("tensor ends after the file", where, name, expected=f"end <= {file_bytes}", got=end)
        cursor = end
    if cursor != file_bytes:
        raise corrupt("file has bytes after its last tensor", where, expected=f"{cursor} bytes", got=file_bytes)


def _check_pad(info: BlobInfo, where: str) -> BlobInfo:
    index = info.name.removeprefix(PAD_PREFIX)
    is_row_of_bytes = index.isascii() and index.isdigit() and info.dtype == "U8" and len(info.shape) == 1
    if not is_row_of_bytes or not 0 < info.size_bytes < LARGE_ALIGNMENT:
        expected, got = "'_pad.N', U8, 1 to 4095 bytes in one dimension", f"{info.dtype} {info.shape}"
        raise _corrupt_tensor("pad is not a short row of bytes", where, info.name, expected=expected, got=got)
    return info


def _check_alignment(info: BlobInfo, where: str) -> BlobInfo:
    alignment = alignment_bytes(info.size_bytes)
    if info.begin % alignment:
        expected, got = f"a multiple of {alignment}", info.begin
        what = "blob is not aligned in the file"
        raise _corrupt_tensor(what, where, info.name, expected=expected, got=got, fix=_FIX_WRITER)
    return info
