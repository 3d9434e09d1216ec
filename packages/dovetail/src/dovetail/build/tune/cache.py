"""Timings that outlive a build: in memory, as bytes, and in a file that several processes share.

Keys name what was timed and where (``keys``), so entries of different devices never stand for each other. The
header of a cache says which device and version it comes from, for those who want to refuse a foreign one outright.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import filelock
import msgspec

from dovetail._version import __version__
from dovetail.build.tune.codec import (
    FORMAT_VERSION,
    MAX_BYTES,
    TimingDocument,
    TimingValue,
    check_value,
    decode_document,
    decode_lines,
    encode_document,
    encode_line,
)
from dovetail.build.tune.keys import make_key, make_reformat_key
from dovetail.errors import TimingCacheError, UsageError
from dovetail.file_kinds import START_BYTES, describe_start, looks_like_model
from dovetail.files import append_bytes, read_bytes, replacing
from dovetail.strict_attributes import StrictAttributes

__all__ = ["ITimingCache", "TimingCache", "TimingCacheFile", "TimingValue", "make_key", "make_reformat_key"]

# Damage never moves the start: files are replaced as a whole, so what begins otherwise was never written by us.
_CACHE_START: Final = re.compile(rb'\s*\{\s*"format_version"')


class TimingCache(StrictAttributes):
    """Timings by key.

    >>> cache = TimingCache()
    >>> cache.update("k", TimingValue(time_us=1.5))
    >>> TimingCache(cache.serialize()).query("k").time_us
    1.5

    Args:
        data: Bytes of ``serialize``; none for an empty cache.

    Raises:
        TimingCacheError: The bytes are damaged; the message says how.
    """

    __slots__ = ("_device", "_entries", "_version")

    def __init__(self, data: bytes = b"") -> None:
        if data:
            document = decode_document(bytes(data))
        else:
            document = TimingDocument(format_version=FORMAT_VERSION, device="", version=__version__, entries={})
        self._device = document.device
        self._version = document.version
        self._entries = document.entries

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def device(self) -> str:
        """Fingerprint of the device the timings come from; empty until someone says."""
        return self._device

    @property
    def version(self) -> str:
        """The Dovetail version that made the cache."""
        return self._version

    def matches(self, device: str, version: str) -> str | None:
        """Why the timings do not hold for a device and version, or None when they do.

        A cache that names no device fits all: its keys name theirs.
        """
        if not self._device:
            return None
        if self._device != device:
            return f"the timing cache is from device '{self._device}', and this is '{device}'"
        if self._version != version:
            return f"the timing cache is from version {self._version}, and this is {version}"
        return None

    def bind(self, device: str, version: str) -> None:
        """Say where the timings come from, if no one has; a cache from elsewhere keeps its header."""
        if not self._device:
            self._device, self._version = device, version

    def query(self, key: str) -> TimingValue | None:
        """What is known under a key."""
        return self._entries.get(key)

    def update(self, key: str, value: TimingValue) -> None:
        """Keep a value, also in place of another."""
        self._entries[key] = _accept(key, value)

    def query_keys(self) -> list[str]:
        """All keys, sorted."""
        return sorted(self._entries)

    queryKeys = query_keys  # noqa: N815 - the contract's name

    def combine(self, other: TimingCache, ignore_mismatch: bool = False) -> None:
        """Take over the entries of another cache under keys that this one does not have.

        Raises:
            TimingCacheError: The other is from another device or version, and that is not to be ignored.
        """
        mismatch = other.matches(self._device, self._version) if self._device else None
        if mismatch and not ignore_mismatch:
            raise TimingCacheError(mismatch, fix="keep one cache for each device and version, or ignore the mismatch")
        self.bind(other.device, other.version)
        self._entries = other._entries | self._entries

    def reset(self) -> None:
        """Forget everything, and where it came from."""
        self._device, self._version, self._entries = "", __version__, {}

    def serialize(self) -> bytes:
        """The cache as bytes; equal caches give equal bytes."""
        return encode_document(
            TimingDocument(
                format_version=FORMAT_VERSION, device=self._device, version=self._version, entries=self._entries
            )
        )


ITimingCache = TimingCache
"""The contract's name."""


class TimingCacheFile:
    """A timing cache in a file that any number of processes read and write.

    The file is replaced as a whole, under a lock (``<path>.lock``), so nobody sees half of one and no writer loses
    what another wrote. Neither the file nor the journal may be a link, a pipe or a device: what is, is left alone, and
    that is an error. Single measurements go to a journal (``<path>.journal``) at once, and into the file with the
    next save, so a build that dies loses none of them.

    Args:
        path: The file; it need not exist.
        lock_timeout_s: How long to wait for another process.

    Attributes:
        problems: What was found wrong on the way, a sentence each; the caller reports them.
    """

    def __init__(self, path: str | os.PathLike[str], *, lock_timeout_s: float = 60.0) -> None:
        self.path: Final = _place_of(path)
        self.problems: list[str] = []
        self._journal: Final = self.path.with_name(self.path.name + ".journal")
        self._lock = filelock.FileLock(f"{self.path}.lock", timeout=lock_timeout_s, poll_interval=0.005)

    def load(self) -> TimingCache:
        """Everything in the file and the journal; a damaged cache is put aside and noted in ``problems``.

        Raises:
            TimingCacheError: The file does not begin like a timing cache, so it is somebody else's and left alone.
        """
        if not (os.path.lexists(self.path) or os.path.lexists(self._journal)):
            return TimingCache()
        if not os.access(self.path.parent, os.W_OK):
            # A cache that was shipped read-only has no writers among us, so it needs no lock; none could be made.
            with self._os_errors("read"):
                return self._read(writable=False)
        with self._locked():
            return self._read()

    def record(self, key: str, value: TimingValue) -> None:
        """Keep one measurement where a crash cannot lose it."""
        line = encode_line(key, _accept(key, value))
        with self._locked():
            append_bytes(self._journal, line)

    def merge_and_save(self, cache: TimingCache, *, ignore_mismatch: bool = False) -> TimingCache:
        """Put a cache, the journal and the file together into the file; what it then holds comes back.

        Where several know a key, the cache comes first, then the journal, then the file.

        Raises:
            TimingCacheError: The file is from another device or version, or cannot be written.
        """
        with self._locked():
            merged = TimingCache()
            merged.combine(cache)
            merged.combine(self._read(), ignore_mismatch)
            self._replace(merged.serialize())
            self._journal.unlink(missing_ok=True)
        return merged

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            with self._os_errors("written"), self._lock:
                yield
        except filelock.Timeout as error:
            raise TimingCacheError(
                f"another process has held the lock for {self._lock.timeout:g} s",
                where=self._lock.lock_file,
                fix="wait for the other build, or give this one a cache of its own",
            ) from error

    @contextmanager
    def _os_errors(self, verb: str) -> Iterator[None]:
        try:
            yield
        except filelock.Timeout:  # an OSError too
            raise
        except OSError as error:
            raise TimingCacheError(
                f"the timing cache cannot be {verb}: {error.strerror or error}",
                where=str(self.path),
                fix="choose a file in a folder that this user can read and write",
            ) from error

    def _read(self, *, writable: bool = True) -> TimingCache:
        journal, damaged = decode_lines(_read_if_there(self._journal))
        if damaged:
            self.problems.append(f"{self._journal}: {damaged} damaged line(s) left out")
        result = TimingCache()
        for key, value in journal.items():
            result.update(key, value)
        result.combine(self._read_file(writable=writable))
        return result

    def _read_file(self, *, writable: bool) -> TimingCache:
        data = _read_if_there(self.path)
        try:
            return TimingCache(data)
        except TimingCacheError as error:
            if not writable:
                raise TimingCacheError(error.what, where=str(self.path), fix=error.fix) from error
            if not _CACHE_START.match(data):
                raise _tell_foreign(self.path, data) from error
            aside = _free_name(self.path)
            self.path.replace(aside)
            self.problems.append(f"{self.path}: {error.what}; the file was put aside as {aside.name}")
            return TimingCache()

    def _replace(self, data: bytes) -> None:
        """Write beside the file and swap, so that readers find the old one or the new one; the lock is held."""
        with replacing(self.path, alone=True) as file:
            file.write(data)


def _tell_foreign(path: Path, data: bytes) -> TimingCacheError:
    """The error for a file that is no timing cache."""
    start = data[:START_BYTES]
    kind = "an ONNX model" if looks_like_model(start) else describe_start(start)
    return TimingCacheError(
        f"this is {kind or 'another kind of file'} and not a timing cache; it is left as it is",
        where=str(path),
        fix="give the timing cache a file of its own, or remove this one",
    )


def _place_of(path: str | os.PathLike[str]) -> Path:
    """The path without links in its folders; the file itself must not be one."""
    given = Path(path)
    return given.parent.resolve() / given.name


def _accept(key: str, value: TimingValue) -> TimingValue:
    """The value as it can be kept, or a UsageError; texts of foreign errors may hold what no file can."""
    fault = check_value(value) or (None if _is_text(key) else "a key that is no valid text")
    if fault:
        raise UsageError("the timing cannot be kept in a timing cache", where=ascii(key)[:200], got=fault)
    if value.reason is None or _is_text(value.reason):
        return value
    return msgspec.structs.replace(value, reason=value.reason.encode(errors="backslashreplace").decode())


def _is_text(text: str) -> bool:
    try:
        return bool(text.encode() or True)
    except UnicodeEncodeError:
        return False


def _read_if_there(path: Path) -> bytes:
    """The content, one byte over the limit at most; nothing when there is no file."""
    try:
        return read_bytes(path, MAX_BYTES)
    except FileNotFoundError:
        return b""


def _free_name(path: Path) -> Path:
    """``<path>.bad``, or with a number when that is taken: evidence is not overwritten either."""
    names = (path.with_name(f"{path.name}.bad{number or ''}") for number in range(1000))
    return next((name for name in names if not name.exists()), path.with_name(f"{path.name}.bad"))
