"""Rows as JSON lines: an object of values by name on each line; a line of white space is no row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec

from dovetail.decoding import decode
from dovetail.errors import DovetailError, InputError
from dovetail.files import open_regular
from dovetail.inputs.element_values import convert_value
from dovetail_serve.batch.options import BatchOptions
from dovetail_serve.batch.rows import Array, Row, RowForm, require_dims
from dovetail_serve.batch.shards import Shard
from dovetail_serve.batch.tables.base import RowRange

__all__ = ["LineTable"]

_MOST_BYTES: Final = 64 << 20
"""One line."""
_DECODER: Final = msgspec.json.Decoder()
_MARK: Final = b"\xef\xbb\xbf"
"""The byte order mark that some programs begin UTF-8 with."""


class LineTable:
    """Lines of one file."""

    def split(self, path: Path, form: RowForm, options: BatchOptions) -> Sequence[RowRange]:
        """The shards of a file, with the place of each: lines are counted and not decoded."""
        ranges: list[RowRange] = []
        offset, count = 0, 0
        with _opening(path) as file:
            for start, _ in _find_lines(file):
                if count == options.shard_rows:
                    ranges.append(RowRange(len(ranges) * options.shard_rows, count, offset))
                    count = 0
                offset = start if count == 0 else offset
                count += 1
        return [*ranges, RowRange(len(ranges) * options.shard_rows, count, offset)] if count else ranges

    def read(self, root: Path, shard: Shard, form: RowForm, options: BatchOptions) -> Iterator[Row]:
        """The rows of a shard."""
        with _opening(root / shard.files[0]) as file:
            file.seek(shard.offset)
            lines = _find_lines(file)
            for index in range(shard.first_row, shard.first_row + shard.num_rows):
                where = f"'{shard.files[0]}', row {index}"
                found = next(lines, None)
                if found is None:
                    raise InputError("the file became shorter while it was read", where=f"'{shard.files[0]}'")
                try:
                    yield _read_row(index, found[1], form, options, where)
                except DovetailError as error:
                    yield Row(index, {}, {}, str(error))


def _opening(path: Path) -> BinaryIO:
    try:
        return open_regular(path, follow=True)
    except OSError as error:
        raise InputError(f"the file cannot be read: {error.strerror or error}", where=f"'{path}'") from error


def _find_lines(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """The place and text of each line that is no white space; one byte over the limit of one that is too long."""
    start = file.tell()
    while line := file.readline(_MOST_BYTES + 1):
        length = len(line)
        while length > _MOST_BYTES and not line.endswith(b"\n") and (rest := file.readline(_MOST_BYTES)):
            length += len(rest)
            if rest.endswith(b"\n"):
                break
        text = line.removeprefix(_MARK) if start == 0 else line
        if text and not text.isspace():
            yield start, text
        start += length


def _read_row(index: int, line: bytes, form: RowForm, options: BatchOptions, where: str) -> Row:
    if len(line) > _MOST_BYTES:
        raise InputError("the line is too long", where=where, expected=f"at most {_MOST_BYTES} bytes")
    content = decode(_DECODER, line, lambda reason: InputError(f"this is no JSON: {reason}", where=where))
    if not isinstance(content, Mapping):
        raise InputError("this holds no values by name", where=where, expected='{"name": value}')
    for name in (*(spec.name for spec in form.inputs), *options.keep):
        if name not in content:
            raise InputError(f"there is no '{name}'", where=where, got=", ".join(map(str, content))[:100])
    return Row(index, _convert_row(content, form, where), {name: content[name] for name in options.keep})


def _convert_row(content: Mapping[str, Any], form: RowForm, where: str) -> dict[str, Array]:
    values: dict[str, Array] = {}
    for spec in form.inputs:
        place = f"{where}, input '{spec.name}'"
        values[spec.name] = convert_value(content[spec.name], spec, where=place)
        require_dims(values[spec.name].shape, spec, place)
    return values
