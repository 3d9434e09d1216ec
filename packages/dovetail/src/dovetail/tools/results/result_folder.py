"""A folder of results, one file a sample, that knows what each was computed from, so that a run can be taken up again.

A journal beside the results has a line for each: what was run, on what, and a digest of the file. A result is used
again when all three are as they were; one that is damaged, or of another model or input, is computed anew.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import xxhash

from dovetail.errors import ResourceError, UsageError
from dovetail.files import append_bytes, is_out_of_space, open_regular, read_bytes, replacing
from dovetail.tools.results.saved_outputs import pack_outputs

__all__ = ["JOURNAL", "ResultFolder", "digest_feeds"]

JOURNAL: Final = "results.jsonl"
_MOST_JOURNAL_BYTES: Final = 1 << 30
_PART_BYTES: Final = 1 << 20


class _Line(msgspec.Struct, frozen=True):
    """One line of the journal."""

    sample: str
    key: str
    file: str
    digest: str


_DECODER: Final = msgspec.json.Decoder(_Line)


class ResultFolder:
    """Results by the name of their sample.

    Args:
        path: The folder, which is made when the first result is written.
        option: The option that names it, for messages.
    """

    def __init__(self, path: Path, *, option: str) -> None:
        self._path = path
        self._option = option
        self._lines = _read_journal(path / JOURNAL)

    def find(self, sample: str, key: str) -> Path | None:
        """The file of a result that is there and was computed from the same; None where there is none."""
        line = self._lines.get(sample)
        if line is None or line.key != key or line.file != _file_name(sample):
            return None
        path = self._path / line.file
        return path if _digest_file(path) == line.digest else None

    def write(self, sample: str, key: str, outputs: Mapping[str, Any]) -> Path:
        """Store a result, and then that it is there.

        Raises:
            UsageError: The folder cannot be written to.
            ResourceError: The disk is full.
        """
        content = pack_outputs(outputs)
        path = self._path / _file_name(sample)
        line = _Line(sample, key, path.name, xxhash.xxh3_128_hexdigest(content))
        try:
            self._path.mkdir(parents=True, exist_ok=True)
            with replacing(path) as file:
                file.write(content)
            append_bytes(self._path / JOURNAL, msgspec.json.encode(line) + b"\n")
        except OSError as error:
            kind = ResourceError if is_out_of_space(error) else UsageError
            what = f"'{path}' cannot be written: {error.strerror or error}"
            raise kind(what, where=self._option, fix="choose another place") from error
        self._lines[sample] = line
        return path


def digest_feeds(identity: str, feeds: Mapping[str, Any]) -> str:
    """A digest of what is run and what it is run on."""
    digest = xxhash.xxh3_128(identity.encode())
    for name, value in feeds.items():
        digest.update(json.dumps(name).encode())
        _update(digest, value)
    return digest.hexdigest()


def _update(digest: Any, value: Any) -> None:
    if isinstance(value, list | tuple):
        digest.update(f"sequence {len(value)}".encode())
        for item in value:
            _update(digest, item)
    elif isinstance(value, Mapping):
        digest.update(repr(sorted(value.items(), key=repr)).encode())
    elif value is not None:
        array = np.asarray(value)
        digest.update(f"{array.dtype.name} {array.shape}".encode())
        digest.update(repr(array.tolist()).encode() if array.dtype.kind in "OU" else array.tobytes())


def _file_name(sample: str) -> str:
    """A name that stays in the folder."""
    return re.sub(r"[/\\\0]", "_", sample).lstrip(".")[:200] + ".npz"


def _read_journal(path: Path) -> dict[str, _Line]:
    """What the journal knows, the latest of each sample; a line that was cut off when a run ended is no line."""
    try:
        content = read_bytes(path, _MOST_JOURNAL_BYTES)
    except OSError:
        return {}
    lines: dict[str, _Line] = {}
    for text in content.splitlines():
        try:
            line = _DECODER.decode(text)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            continue
        lines[line.sample] = line
    return lines


def _digest_file(path: Path) -> str | None:
    digest = xxhash.xxh3_128()
    try:
        with open_regular(path) as file:
            while part := file.read(_PART_BYTES):
                digest.update(part)
    except OSError:
        return None
    return str(digest.hexdigest())
