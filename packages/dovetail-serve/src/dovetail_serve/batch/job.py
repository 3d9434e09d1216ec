"""A batch from beginning to end: what is left to do is run, written down, and counted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from dovetail.errors import UsageError
from dovetail.plan.manifest import Manifest
from dovetail_serve.batch.engines import digest_plan, load_plan, read_manifest
from dovetail_serve.batch.journal import JobIdentity, Journal, open_journal, write_errors
from dovetail_serve.batch.options import FORMATS, BatchJob, BatchOptions
from dovetail_serve.batch.plan import BatchPlan, plan_batch
from dovetail_serve.batch.rows import find_row_form
from dovetail_serve.batch.shard_run import ShardRunner
from dovetail_serve.batch.shards import Shard, ShardRecord
from dovetail_serve.batch.tables.kinds import table_kind
from dovetail_serve.batch.workers import run_in_processes

__all__ = ["BatchResult", "RunShards", "run_batch"]

RunShards = Callable[[BatchJob, Sequence[Shard]], Iterator[ShardRecord]]
"""Runs shards somewhere and gives their records as they are done."""
Tell = Callable[[int, int], None]
"""Told how many rows are done, and of how many."""


@dataclass(frozen=True, kw_only=True)
class BatchResult:
    """What a batch has done."""

    num_rows: int
    num_reused: int
    """Rows whose results were there already."""
    num_failed: int
    """Rows without a result, now and before."""
    outputs: Sequence[str]
    """The result files in the target folder, in the order of the inputs."""
    errors: str | None
    """The file with the rows that failed."""
    skipped: Sequence[str]
    """Files of the source that have no rows."""


def run_batch(
    job: BatchJob,
    *,
    restart: bool = False,
    retry_failed: bool = False,
    run_shards: RunShards | None = None,
    tell: Tell = lambda done, total: None,
) -> BatchResult:
    """Run every row of the source that has no result yet.

    A batch that is stopped, by whatever, goes on where it was when it is run again with the same arguments.

    Args:
        job: What to run.
        restart: Whether results that are there are made anew.
        retry_failed: Whether shards with rows that failed are run again.
        run_shards: Where shards run; in this process, or ``job.options.instances`` of them, by default.
        tell: Told how far it is.

    Raises:
        UsageError: Options do not fit the model, or the folder holds results of another job.
        InputError: A file does not fit the model, or too many rows failed.
    """
    _check_options(job.options)
    with _planning(job, run_shards) as (plan, run_planned):
        identity = JobIdentity(plan=digest_plan(job.plan), settings=_describe_settings(job.options))
        with open_journal(Path(job.target), identity, restart=restart) as journal:
            if retry_failed:
                journal.forget_failed()
            left = [shard for shard in plan.shards if not journal.is_done(shard, Path(job.target))]
            try:
                _run_left(journal, plan, left, run_planned(job, left), job.options, tell)
            finally:
                errors = _write_failures(journal, plan, Path(job.target))
            return _summarize(journal, plan, left, errors)


@contextmanager
def _planning(job: BatchJob, run_shards: RunShards | None) -> Iterator[tuple[BatchPlan, RunShards]]:
    """What there is to do, and what does it; the engine that runs here is loaded before the first file is read."""
    if run_shards is not None:
        yield _plan(job, read_manifest(job.plan)), run_shards
        return
    with load_plan(job.plan) as engine:
        plan = _plan(job, engine.manifest)
        if job.options.instances == 1:
            runner = ShardRunner(engine, job)
            yield plan, lambda _, shards: map(runner.run, shards)
        else:
            yield plan, run_in_processes


def _plan(job: BatchJob, manifest: Manifest) -> BatchPlan:
    form = find_row_form(manifest, job.options.batch_size)
    _check_images(job.options, [spec.name for spec in form.inputs])
    plan = plan_batch(Path(job.source), Path(job.target), form, job.options)
    _check_keep(job.options, plan)
    return plan


def _run_left(
    journal: Journal,
    plan: BatchPlan,
    left: Sequence[Shard],
    records: Iterator[ShardRecord],
    options: BatchOptions,
    tell: Tell,
) -> None:
    total, done = plan.num_rows, plan.num_rows - sum(shard.num_rows for shard in left)
    failed = 0
    tell(done, total)
    for record in records:
        journal.add(record)
        done, failed = done + record.num_rows, failed + len(record.failures)
        tell(done, total)
        if options.max_failures is not None and failed > options.max_failures:
            raise UsageError(
                f"{failed} rows failed, the last with: {record.failures[-1].error}",
                where="--max-failures",
                expected=f"at most {options.max_failures}",
                fix="see errors.jsonl; the same command goes on with the rows that are left",
            )


def _check_options(options: BatchOptions) -> None:
    for name in ("batch_size", "shard_rows", "instances"):
        number = getattr(options, name)
        if number is not None and number < 1:
            raise UsageError("there must be at least one", where=name, expected="a number above 0", got=number)
    if options.format is not None and options.format not in FORMATS:
        raise UsageError("there is no such format", where="format", expected=", ".join(FORMATS), got=options.format)


def _check_images(options: BatchOptions, names: Sequence[str]) -> None:
    for name in options.images:
        if name not in names:
            raise UsageError(f"there is no input '{name}'", where="images", expected=", ".join(names))


def _check_keep(options: BatchOptions, plan: BatchPlan) -> None:
    """Columns can be kept where there are columns."""
    for shard in plan.shards if options.keep else ():
        if table_kind(shard.files[0]) not in ("lines", "parquet"):
            expected = "JSON lines or parquet"
            raise UsageError("this has no columns to keep", where=f"'{shard.files[0]}'", expected=expected)


def _describe_settings(options: BatchOptions) -> str:
    """The options that results depend on."""
    settings = {
        "format": options.format,
        "shard_rows": options.shard_rows,
        "keep": options.keep,
        "images": options.images,
    }
    return msgspec.json.encode(settings).decode()


def _write_failures(journal: Journal, plan: BatchPlan, target: Path) -> Path | None:
    records = [journal.records[shard.name] for shard in plan.shards if shard.name in journal.records]
    failures = [failure for record in records for failure in record.failures]
    return write_errors(target, failures)


def _summarize(journal: Journal, plan: BatchPlan, left: Sequence[Shard], errors: Path | None) -> BatchResult:
    records = [journal.records[shard.name] for shard in plan.shards]
    return BatchResult(
        num_rows=plan.num_rows,
        num_reused=plan.num_rows - sum(shard.num_rows for shard in left),
        num_failed=sum(len(record.failures) for record in records),
        outputs=[record.output for record in records if record.output is not None],
        errors=None if errors is None else str(errors),
        skipped=plan.skipped,
    )
