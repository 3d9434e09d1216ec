"""The plan container: a safetensors file whose blobs are aligned, so that a mapped plan is used where it lies.

``write_plan`` and ``plan_bytes`` make one, ``PlanFile`` opens one and checks every rule of the format. The manifest
is text that this module carries and does not read; the digest of each blob stands in it, so checking a blob is one
call that the reader of the manifest makes. The format is described in ``docs/plan-format.md``.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import mmap
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, BinaryIO, Final, Self

import xxhash

from dovetail.errors import PlanCorruptError, PlanError, ResourceError, UsageError
from dovetail.file_kinds import START_BYTES, describe_start, looks_like_model, looks_like_plan
from dovetail.files import NotRegularError, is_out_of_space, open_regular, replacing
from dovetail.finalizers import finalize
from dovetail.plan._header import LENGTH_BYTES, BlobInfo, Header, corrupt, data_start, parse_header, show
from dovetail.plan._layout import Blob, bytes_view, plan_chunks

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = [
    "Blob",
    "BlobInfo",
    "PlanFile",
    "digest_blob",
    "plan_bytes",
    "verify_blob",
    "write_plan",
]

_DIGESTS: Final[Mapping[str, Callable[[memoryview], str]]] = {
    "sha256": lambda view: hashlib.sha256(view).hexdigest(),
    "xxh3": xxhash.xxh3_128_hexdigest,
}
Identity = tuple[int, int, int, int, int]

_READ_BYTES: Final = 1 << 18


def plan_bytes(manifest: bytes, blobs: Sequence[Blob]) -> bytes:
    r"""Return a whole plan file.

    >>> plan = plan_bytes(b"{}", [Blob(name="w", dtype="U8", shape=(2,), data=b"\1\2")])
    >>> with PlanFile.from_bytes(plan) as file:
    ...     file.manifest, file.blobs["w"].shape, bytes(file.blob("w"))
    (b'{}', (2,), b'\x01\x02')
    """
    return b"".join(plan_chunks(manifest, blobs))


def write_plan(target: str | os.PathLike[str] | BinaryIO, manifest: bytes, blobs: Sequence[Blob]) -> None:
    """Write a plan file to a path or to a binary stream.

    A path is written whole or not at all: whoever has the old file open or mapped keeps it, and a failure leaves
    neither half a plan nor a temporary file.

    Raises:
        UsageError: A blob, the manifest or the path cannot be right.
        ResourceError: The disk is full.
        PlanError: The file cannot be written for another reason.
    """
    chunks = plan_chunks(manifest, blobs)
    if not isinstance(target, str | os.PathLike):
        _write_chunks(target, chunks)
        return
    if "\0" in (text := os.fspath(target)):
        raise UsageError("path has a NUL character", where=show(text), fix="check the path")
    # A link that the user gave is followed, so that it still points at the plan when the plan is replaced.
    path = Path(os.path.realpath(text))
    try:
        with replacing(path) as file:
            _write_chunks(file, chunks)
    except NotRegularError as error:
        raise UsageError("target is not a regular file", where=str(path), fix="give the path of a file") from error
    except OSError as error:
        kind = ResourceError if is_out_of_space(error) else PlanError
        fix = "make room, or choose a folder that you can write to"
        raise kind("plan cannot be written", where=str(path), got=error.strerror or error, fix=fix) from error


def _write_chunks(stream: BinaryIO, chunks: Sequence[Buffer]) -> None:
    for chunk in chunks:
        rest = memoryview(chunk)
        while rest.nbytes:
            # An unbuffered stream may take less than it is given, and a non-blocking one nothing.
            written = stream.write(rest)
            if not written:
                raise UsageError("stream takes no bytes", fix="write to a blocking stream, or to a path")
            rest = rest[written:]


def digest_blob(data: Buffer, algorithm: str) -> str:
    """Return the hex digest of a buffer, read where it lies.

    ``sha256`` is for what can be executed; ``xxh3`` (128 bits) is for weights: many times faster, and it finds
    accidents only.

    >>> digest_blob(b"", "xxh3")
    '99aa06d3014798d86001c324468d497f'
    """
    if algorithm not in _DIGESTS:
        raise UsageError("digest algorithm is unknown", expected=" or ".join(_DIGESTS), got=show(algorithm))
    return _DIGESTS[algorithm](bytes_view(data))


def verify_blob(name: str, view: Buffer, algorithm: str, hexdigest: str) -> None:
    """Check a blob against the digest that the manifest has for it.

    Raises:
        PlanCorruptError: The digest differs, or names an algorithm that no plan uses.
    """
    if algorithm not in _DIGESTS:
        where = f"blob {show(name)}"
        raise corrupt("digest algorithm is unknown", where, expected=" or ".join(_DIGESTS), got=show(algorithm))
    _require_digest(name, algorithm, hexdigest, digest_blob(view, algorithm))


def _require_digest(name: str, algorithm: str, expected: str, got: str) -> None:
    if got != expected:
        where = f"blob {show(name)}"
        raise corrupt(f"blob does not match its {algorithm} digest", where, expected=show(expected), got=got)


class PlanFile:
    """An open plan: its manifest, and its blobs where they lie in a mapped file or in the caller's buffer.

    Views and arrays made over a blob keep the map alive, after ``close`` too. A mapped file must not be cut short
    while it is in use; ``write_plan`` never does that.
    """

    def __init__(
        self,
        buffer: mmap.mmap | memoryview,
        header: Header,
        where: str,
        *,
        origin: tuple[str, Identity] | None = None,
        reader: io.FileIO | None = None,
    ) -> None:
        """Take a buffer and its checked header; ``open`` and ``from_bytes`` are the ways to make one."""
        self._origin = origin
        self._reader = reader
        self._close_reader = finalize(self, reader.close) if reader is not None else None
        self._buffer: mmap.mmap | memoryview | None = buffer
        self._view = memoryview(buffer).toreadonly()
        self._where = where
        self._pads = header.pads
        self.manifest: bytes = header.manifest
        self.blobs: Mapping[str, BlobInfo] = MappingProxyType(header.blobs)
        self.size_bytes: int = self._view.nbytes

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Self:
        """Map a plan file and check it.

        Raises:
            PlanCorruptError: A rule of the container does not hold.
            PlanVersionError: The container has another version.
            PlanError: There is no such file, or it cannot be read.
        """
        where = os.fspath(path)
        try:
            with open_regular(where, follow=True) as file:
                header, size_bytes = _read_header(file, where)
                # What was opened, not what the path names by now; and where it lies, not a link to it.
                origin = (os.path.realpath(where), _identify(os.fstat(file.fileno())))
                buffer = _map(file, size_bytes, where)
                return cls(buffer, header, where, origin=origin, reader=io.FileIO(os.dup(file.fileno())))
        except NotRegularError as error:
            raise corrupt(
                str(error.strerror), show(where), expected="a file", fix="give the path of a plan file"
            ) from error
        except OSError as error:
            fix = "check the path and who may read it"
            raise PlanError("plan cannot be read", where=where, got=error.strerror or error, fix=fix) from error

    @classmethod
    def from_bytes(cls, buffer: Buffer) -> Self:
        """Check a plan that is in memory; its blobs are views of the buffer, which must not change meanwhile.

        Raises:
            PlanCorruptError: A rule of the container does not hold.
            PlanVersionError: The container has another version.
        """
        view, where = bytes_view(buffer), "plan bytes"
        _refuse_others(bytes(view[:START_BYTES]), where)
        start = data_start(view[:LENGTH_BYTES], view.nbytes, where)
        return cls(view, parse_header(bytes(view[LENGTH_BYTES:start]), view.nbytes, where), where)

    def blob(self, name: str) -> memoryview:
        """Return the bytes of a blob: read-only, not copied, and not yet checked against a digest."""
        self._check_usable()
        info = self.blobs.get(name)
        if info is None:
            raise corrupt("plan has no such blob", self._where, expected=show(name), got=f"{len(self.blobs)} others")
        return self._view[info.begin : info.end]

    def verify_in_file(self, name: str, algorithm: str, hexdigest: str) -> None:
        """Check a blob that somebody else will map: it is read, and none of it stays in memory.

        Whoever writes into the file meanwhile is found by the digest. A map would end the process with a signal
        where the file is cut short, if only for a moment.

        Raises:
            PlanCorruptError: The digest differs, or the file became shorter.
        """
        if algorithm != "xxh3" or self._reader is None:
            verify_blob(name, self.blob(name), algorithm, hexdigest)
            return
        hasher = xxhash.xxh3_128()
        for part in self._read_parts(self._reader, self.blobs[name]):
            hasher.update(part)
        _require_digest(name, algorithm, hexdigest, hasher.hexdigest())

    def _read_parts(self, reader: io.FileIO, info: BlobInfo) -> Iterator[memoryview]:
        room, begin = memoryview(bytearray(min(_READ_BYTES, info.end - info.begin))), info.begin
        reader.seek(begin)
        while begin < info.end:
            count = reader.readinto(room[: info.end - begin])
            if not count:
                raise _shrunken(self._where, self.size_bytes, begin)
            begin += count
            yield room[:count]

    @property
    def path(self) -> str | None:
        """Where the file lies, without links; None for a plan in memory, and when the path does not lead to it now."""
        if self._origin is None:
            return None
        path, identity = self._origin
        try:
            return path if _identify(Path(path).stat()) == identity else None
        except OSError:
            return None

    def verify_padding(self) -> None:
        """Check that the bytes between blobs, which no digest covers, are all zero."""
        self._check_usable()
        for pad in self._pads:
            if bytes(self._view[pad.begin : pad.end]).strip(b"\0"):
                raise corrupt("pad is not all zero", f"{self._where}, tensor {show(pad.name)}")

    def close(self) -> None:
        """Let go of the map: it goes away now, or with the last array made over it."""
        self._view.release()
        if self._close_reader is not None:
            self._close_reader()
        if isinstance(self._buffer, mmap.mmap):
            # Python refuses to close a map that is still viewed; the last view then closes it.
            with contextlib.suppress(BufferError):
                self._buffer.close()
        self._buffer = None

    def _check_usable(self) -> None:
        if self._buffer is None:
            raise UsageError("plan file is closed", where=self._where, fix="take what you need before close()")
        # Touching a page beyond the end of a file that was cut short ends the process with a signal.
        if isinstance(self._buffer, mmap.mmap) and self._buffer.size() < self.size_bytes:
            raise _shrunken(self._where, self.size_bytes, self._buffer.size())

    def __enter__(self) -> Self:
        """Return the file itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the file."""
        self.close()


def _identify(status: os.stat_result) -> Identity:
    """What tells a file from one that was put in its place, and from itself after it was moved away and back."""
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _read_header(file: BinaryIO, where: str) -> tuple[Header, int]:
    # Read, not mapped: a file that is cut short meanwhile gives a short read, where a map would give a signal.
    size_bytes = os.fstat(file.fileno()).st_size
    _refuse_others(file.read(START_BYTES), where)
    file.seek(0)
    start = data_start(file.read(LENGTH_BYTES), size_bytes, where)
    raw = file.read(start - LENGTH_BYTES)
    if LENGTH_BYTES + len(raw) != start:
        raise _shrunken(where, size_bytes, LENGTH_BYTES + len(raw))
    return parse_header(raw, size_bytes, where), size_bytes


def _refuse_others(start: bytes, where: str) -> None:
    if looks_like_model(start):
        raise corrupt("this is an ONNX model and not a plan", where, fix="build it with dovetail.compile(path)")
    if not looks_like_plan(start) and (kind := describe_start(start)):
        raise corrupt(f"this is {kind} and not one of Dovetail", where, fix="build a plan from the model")


def _map(file: BinaryIO, size_bytes: int, where: str) -> mmap.mmap:
    try:
        return mmap.mmap(file.fileno(), size_bytes, access=mmap.ACCESS_READ)
    except ValueError:
        raise _shrunken(where, size_bytes, os.fstat(file.fileno()).st_size) from None


def _shrunken(where: str, expected: int, got: int) -> PlanCorruptError:
    fix = "replace a plan with write_plan, never write into it"
    return corrupt("file became shorter while open", where, expected=f"{expected} bytes", got=got, fix=fix)
