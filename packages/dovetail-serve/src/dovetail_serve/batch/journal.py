"""What is done, in ``batch.jsonl`` of the target folder: the first line names the job, each other one a shard.

A line is added after the result file of its shard is in place, so a crash at any moment costs shards that were under
way and nothing else. A line that a crash cut off is left out, and its shard is run again.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from dovetail.errors import InputError, ResourceError, UsageError
from dovetail.files import open_for_update, replacing
from dovetail_serve.batch.shards import RowFailure, Shard, ShardRecord

__all__ = ["ERRORS", "JOURNAL", "JobIdentity", "Journal", "open_journal", "write_errors"]

JOURNAL: Final = "batch.jsonl"
ERRORS: Final = "errors.jsonl"
_VERSION: Final = 1
_RECORDS: Final = msgspec.json.Decoder(ShardRecord)
_ENCODER: Final = msgspec.json.Encoder()


@dataclass(frozen=True, kw_only=True)
class JobIdentity:
    """What decides results besides the rows; a folder holds results of one of these."""

    plan: str
    """The digest of the plan."""
    settings: str
    """The options that results depend on."""
    version: int = _VERSION


@dataclass
class Journal:
    """The shards that are done; ``add`` writes one down for good."""

    file: BinaryIO
    records: dict[str, ShardRecord] = field(default_factory=dict)

    def add(self, record: ShardRecord) -> None:
        """Write down a shard whose result file is in place."""
        _write_line(self.file, record)
        self.records[record.name] = record

    def forget_failed(self) -> None:
        """Have shards with rows that failed run again."""
        self.records = {name: record for name, record in self.records.items() if not record.failures}

    def is_done(self, shard: Shard, target: Path) -> bool:
        """Whether a shard needs no run: it is written down, and its result file is there.

        Raises:
            InputError: A file has changed since.
        """
        record = self.records.get(shard.name)
        if record is None:
            return False
        if record.identity != shard.identity:
            what = "its rows were run already, and it has changed since"
            raise InputError(what, where=f"'{shard.files[0]}'", fix="choose another folder, or add --restart")
        return record.output is None or _size_of(target / record.output) == record.output_bytes


def _size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1


@contextmanager
def open_journal(target: Path, identity: JobIdentity, *, restart: bool = False) -> Iterator[Journal]:
    """The journal of a folder, which is made where there is none; nobody else may have it open.

    Raises:
        UsageError: The folder holds results of another job, or is not empty and has no journal.
        ResourceError: Another batch writes to the folder, or the folder cannot be written.
    """
    path = target / JOURNAL
    try:
        target.mkdir(parents=True, exist_ok=True)
        _require_ours(target)
        opened = open_for_update(path)
    except OSError as error:
        raise UsageError(f"the folder cannot be written: {error.strerror or error}", where=f"'{target}'") from error
    with opened as file:
        _lock(file, target)
        if restart:
            file.truncate(0)
        records = _read_records(file, identity, target)
        yield Journal(file, records)


def _require_ours(target: Path) -> None:
    if (target / JOURNAL).exists() or not any(True for _ in target.iterdir()):
        return
    fix = "choose a folder that is empty or not there"
    raise UsageError("the folder has files that are no results of a batch", where=f"'{target}'", fix=fix)


def _lock(file: BinaryIO, target: Path) -> None:
    try:
        import fcntl
    except ModuleNotFoundError:  # Windows, where whoever opens the folder twice is on their own
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise ResourceError("another batch writes to the folder", where=f"'{target}'", fix="wait for it") from error


def _read_records(file: BinaryIO, identity: JobIdentity, target: Path) -> dict[str, ShardRecord]:
    """The records of a journal; a new one gets its first line, and what a crash cut off is cut away."""
    content = file.read()
    whole = content[: content.rfind(b"\n") + 1]
    file.seek(len(whole))
    file.truncate()
    lines = whole.splitlines()
    if not lines:
        _write_line(file, identity)
        return {}
    _require_same(lines[0], identity, target)
    try:
        records = [_RECORDS.decode(line) for line in lines[1:]]
    except msgspec.DecodeError as error:
        what = "the journal of the folder cannot be read"
        raise InputError(what, where=f"'{target / JOURNAL}'", fix="add --restart") from error
    return {record.name: record for record in records}


def _require_same(line: bytes, identity: JobIdentity, target: Path) -> None:
    try:
        stored = msgspec.json.decode(line, type=JobIdentity)
    except msgspec.DecodeError:
        stored = None
    if stored == identity:
        return
    kind = "plan" if stored is None or stored.plan != identity.plan else "options"
    what = f"the folder holds results of a batch with another {kind.removesuffix('s')}"
    got = None if stored is None or kind == "plan" else stored.settings
    expected = None if got is None else identity.settings
    fix = "choose another folder, or add --restart to run every row again"
    raise UsageError(what, where=f"'{target}'", expected=expected, got=got, fix=fix)


def _write_line(file: BinaryIO, entry: object) -> None:
    file.write(_ENCODER.encode(entry) + b"\n")
    file.flush()
    os.fsync(file.fileno())


def write_errors(target: Path, failures: Iterable[RowFailure]) -> Path | None:
    """Write the rows that failed to ``errors.jsonl``, or remove that where there are none."""
    path = target / ERRORS
    content = b"".join(_ENCODER.encode(failure) + b"\n" for failure in failures)
    if content:
        with replacing(path) as file:
            file.write(content)
        return path
    path.unlink(missing_ok=True)
    return None
