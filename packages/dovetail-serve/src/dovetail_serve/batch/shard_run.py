"""One shard through an engine: rows in, batches of rows of one shape, results in the order of the rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dovetail.errors import DovetailError, ResourceError
from dovetail_serve.batch.options import BatchJob
from dovetail_serve.batch.outputs import RowResult, write_results
from dovetail_serve.batch.rows import Row, RowForm, find_row_form
from dovetail_serve.batch.shards import RowFailure, Shard, ShardRecord
from dovetail_serve.batch.tables.kinds import make_tables, output_format, table_kind

if TYPE_CHECKING:
    from dovetail.runtime.engine import Engine

__all__ = ["ShardRunner"]

Array = npt.NDArray[Any]


class ShardRunner:
    """Runs shards of one job, one after the other.

    Args:
        engine: The engine of the job's plan.
        job: The job.
    """

    def __init__(self, engine: Engine, job: BatchJob) -> None:
        self._run = engine.run
        self._job = job
        self._form = find_row_form(engine.manifest, job.options.batch_size)
        self._tables = make_tables()
        source = Path(job.source)
        self._root = source if source.is_dir() else source.parent

    def run(self, shard: Shard) -> ShardRecord:
        """Run a shard and write its results.

        Raises:
            ResourceError: The results cannot be written.
        """
        start = time.perf_counter()
        batches = RowBatches(self._run, self._form)
        for row in self._read(shard):
            batches.add(row)
        results, failures = batches.finish()
        output, size = self._write(shard, results)
        return ShardRecord(
            name=shard.name,
            identity=shard.identity,
            num_rows=shard.num_rows,
            output=output,
            output_bytes=size,
            failures=tuple(_name_failure(shard, index, failures[index]) for index in sorted(failures)),
            seconds=time.perf_counter() - start,
        )

    def _read(self, shard: Shard) -> Iterator[Row]:
        """The rows of a shard; where the file fails as a whole, each row that is left has its error."""
        index, table = shard.first_row, self._tables[table_kind(shard.files[0]) or ""]
        try:
            for row in table.read(self._root, shard, self._form, self._job.options):
                yield row
                index = row.index + 1
        except DovetailError as error:
            for left in range(index, shard.first_row + shard.num_rows):
                yield Row(left, {}, {}, str(error))

    def _write(self, shard: Shard, results: Sequence[RowResult]) -> tuple[str | None, int]:
        if not results:
            return None, 0
        kind = self._job.options.format or output_format(shard.files[0])
        name = f"{shard.name}.{kind}"
        path = Path(self._job.target) / name
        try:
            return name, write_results(path, results, kind)
        except OSError as error:
            what = f"results cannot be written: {error.strerror or error}"
            raise ResourceError(what, where=f"'{path}'", fix="make room, and run the same command again") from error


def _name_failure(shard: Shard, index: int, error: str) -> RowFailure:
    is_picture = table_kind(shard.files[0]) == "pictures"
    return RowFailure(file=shard.files[index if is_picture else 0], row=0 if is_picture else index, error=error)


class RowBatches:
    """Puts rows of one shape together and runs them; a batch that fails is run again row by row.

    Args:
        run: Runs the engine over arrays by name.
        form: What a row is.
    """

    def __init__(self, run: Callable[[Mapping[str, Array]], Mapping[str, Array]], form: RowForm) -> None:
        self._run = run
        self._form = form
        self._waiting: dict[tuple[tuple[int, ...], ...], list[Row]] = {}
        self._results: dict[int, RowResult] = {}
        self._failures: dict[int, str] = {}

    def add(self, row: Row) -> None:
        """Take one more row."""
        if row.error is not None:
            self._failures[row.index] = row.error
            return
        key = tuple(row.values[spec.name].shape for spec in self._form.inputs)
        waiting = self._waiting.setdefault(key, [])
        waiting.append(row)
        if len(waiting) >= self._form.most_rows:
            self._run_rows(self._waiting.pop(key))

    def finish(self) -> tuple[list[RowResult], dict[int, str]]:
        """Run what waits; the results in the order of rows, and why the others have none."""
        for rows in self._waiting.values():
            self._run_rows(rows)
        self._waiting = {}
        return [self._results[index] for index in sorted(self._results)], self._failures

    def _run_rows(self, rows: Sequence[Row]) -> None:
        try:
            outputs = self._run(self._join(rows))
            parts = [self._take(outputs, place) for place in range(len(rows))]
        except Exception as error:  # noqa: BLE001 - plugins may raise anything, and one row must not stop the others
            self._isolate(rows, error)
            return
        for row, part in zip(rows, parts, strict=True):
            self._results[row.index] = RowResult(row.index, part, row.kept)

    def _isolate(self, rows: Sequence[Row], error: Exception) -> None:
        if len(rows) == 1:
            is_ours = isinstance(error, DovetailError)
            self._failures[rows[0].index] = str(error) if is_ours else f"{type(error).__name__}: {error}"
            return
        for row in rows:
            self._run_rows([row])

    def _join(self, rows: Sequence[Row]) -> dict[str, Array]:
        """The inputs of a run; fewer rows than a run must have are filled up with the last."""
        if not self._form.has_batch_axis:
            return dict(rows[0].values)
        filled = [*rows, *[rows[-1]] * (self._form.least_rows - len(rows))]
        return {spec.name: np.stack([row.values[spec.name] for row in filled]) for spec in self._form.inputs}

    def _take(self, outputs: Mapping[str, Array], place: int) -> dict[str, Array]:
        has_axis = self._form.has_batch_axis
        return {
            name: np.asarray(array)[place, ...] if has_axis else np.asarray(array) for name, array in outputs.items()
        }
