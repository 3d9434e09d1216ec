"""From a folder of files to shards: which files have rows, how many, and which rows belong together."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, islice
from pathlib import Path
from typing import Final

import xxhash

from dovetail.errors import InputError, UsageError
from dovetail_serve.batch.options import BatchOptions
from dovetail_serve.batch.rows import RowForm
from dovetail_serve.batch.shards import Shard
from dovetail_serve.batch.tables.base import RowTable
from dovetail_serve.batch.tables.kinds import KINDS, make_tables, table_kind

__all__ = ["BatchPlan", "plan_batch"]

_MOST_FILES: Final = 1_000_000
_PROBED_ROWS: Final = 8


@dataclass(frozen=True, kw_only=True)
class BatchPlan:
    """All that a batch has to do."""

    root: Path
    """What the files of shards are relative to."""
    shards: Sequence[Shard]
    skipped: Sequence[str]
    """Files that have no rows."""

    @property
    def num_rows(self) -> int:
        """The rows of all shards."""
        return sum(shard.num_rows for shard in self.shards)


def plan_batch(source: Path, target: Path, form: RowForm, options: BatchOptions) -> BatchPlan:
    """The shards of a folder, or of one file.

    Raises:
        UsageError: There is no such folder, or results would land among the inputs.
        InputError: There are no rows, or a file as a whole does not fit the model.
    """
    root = source if source.is_dir() else source.parent
    _require_apart(source, target)
    names = sorted(_find_names(source))
    known = [name for name in names if table_kind(name) is not None]
    if not known or len(known) > _MOST_FILES:
        expected = f"files of the kinds {', '.join(KINDS)}"
        got = f"{len(known)} files" if known else None
        raise InputError(
            "there are no rows to run" if not known else "there are too many files",
            where=f"'{source}'",
            expected=expected,
            got=got,
        )
    tables = make_tables()
    shards = [*_plan_tables(root, known, form, options, tables), *_plan_pictures(root, known, form, options, tables)]
    plan = BatchPlan(root=root, shards=shards, skipped=[name for name in names if table_kind(name) is None])
    if not plan.num_rows:
        raise InputError("there are no rows to run", where=f"'{source}'", got="files without rows")
    _probe(plan, form, options, tables)
    return plan


def _require_apart(source: Path, target: Path) -> None:
    if not source.exists():
        raise UsageError("there is no such file or folder", where=f"'{source}'", fix="check the path")
    inputs, results = source.resolve(), target.resolve()
    if source.is_dir() and (results == inputs or inputs in results.parents):
        raise UsageError(
            "results would land among the inputs", where=f"'{target}'", expected=f"a folder outside '{source}'"
        )


def _find_names(source: Path) -> Iterator[str]:
    """The files, relative to the folder; hidden ones are left out, and links to folders are not followed."""
    if source.is_file():
        yield source.name
        return
    for folder, folders, files in os.walk(source):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in files:
            if not name.startswith("."):
                yield (Path(folder) / name).relative_to(source).as_posix()


def _plan_tables(
    root: Path, names: Sequence[str], form: RowForm, options: BatchOptions, tables: dict[str, RowTable]
) -> Iterator[Shard]:
    for name in names:
        kind = table_kind(name)
        if kind is None or kind == "pictures":
            continue
        identity = _identify(root, [name])
        for index, rows in enumerate(tables[kind].split(root / name, form, options)):
            yield Shard(name=f"{name}.{index:05}", files=(name,), identity=identity, **rows._asdict())


def _plan_pictures(
    root: Path, names: Sequence[str], form: RowForm, options: BatchOptions, tables: dict[str, RowTable]
) -> Iterator[Shard]:
    """Images of one folder, in the order of their names."""
    pictures = [name for name in names if table_kind(name) == "pictures"]
    if pictures:
        tables["pictures"].split(root / pictures[0], form, options)
    for folder, found in groupby(pictures, key=lambda name: name.rpartition("/")[0]):
        for index, part in enumerate(_chunk(list(found), options.shard_rows)):
            name = f"{folder}/images.{index:05}" if folder else f"images.{index:05}"
            yield Shard(name=name, files=tuple(part), identity=_identify(root, part), first_row=0, num_rows=len(part))


def _chunk(names: Sequence[str], most: int) -> list[Sequence[str]]:
    return [names[start : start + most] for start in range(0, len(names), most)]


def _identify(root: Path, names: Sequence[str]) -> str:
    """A digest of names, sizes and times of change: the contents may be terabytes."""
    digest = xxhash.xxh3_128()
    for name in names:
        try:
            status = (root / name).stat()
        except OSError as error:
            raise InputError(f"the file cannot be read: {error.strerror or error}", where=f"'{name}'") from error
        digest.update(repr((name, status.st_size, status.st_mtime_ns)).encode())
    return str(digest.hexdigest())


def _probe(plan: BatchPlan, form: RowForm, options: BatchOptions, tables: dict[str, RowTable]) -> None:
    """Read the first rows of each format: where none of them fits, none of the others will."""
    for kind, shards in _group_by_kind(plan.shards).items():
        found = chain.from_iterable(tables[kind].read(plan.root, shard, form, options) for shard in shards)
        rows = list(islice(found, _PROBED_ROWS))
        if all(row.error is not None for row in rows):
            raise InputError(f"none of the first {len(rows)} row(s) can be read: {rows[0].error}")


def _group_by_kind(shards: Sequence[Shard]) -> dict[str, list[Shard]]:
    groups: dict[str, list[Shard]] = {}
    for shard in shards:
        kind = table_kind(shard.files[0])
        if kind is not None and shard.num_rows:
            groups.setdefault(kind, []).append(shard)
    return groups
