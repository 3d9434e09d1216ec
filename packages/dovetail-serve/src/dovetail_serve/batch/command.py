"""``dovetail batch``: a plan over a folder of files, to a folder of results, on one machine or on Ray."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from dovetail.cli.answers import Document, Reply
from dovetail.cli.options import add_image, add_trust, finish_command, non_negative_float, positive_int, seed
from dovetail.cli.screen import Screen
from dovetail.cli.settings import add_provider_options
from dovetail.errors import UsageError
from dovetail.loggers import Severity

if TYPE_CHECKING:
    from dovetail_serve.batch.job import BatchResult, RunShards
    from dovetail_serve.batch.options import BatchJob

__all__ = ["EXIT_FAILED_ROWS", "declare", "run"]

EXIT_FAILED_ROWS: Final = 4
"""Every row was taken, and some have no result."""
_SHOWN: Final = 10


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    finish_command(parser, run)
    parser.add_argument("plan", metavar="PLAN", help="the plan to run")
    parser.add_argument("source", metavar="IN", help="a folder, or one file: .npy, .npz, .jsonl, .parquet, images")
    parser.add_argument("target", metavar="OUT", help="a folder for the results; what is done there is not run again")
    add_trust(parser)
    add_provider_options(parser)
    add_image(parser)
    _declare_rows(parser)
    _declare_ray(parser)


def _declare_rows(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--batch-size", type=positive_int, metavar="N", help="the most rows of one run")
    parser.add_argument(
        "--shard-rows", type=positive_int, default=1024, metavar="N", help="the most rows of a result file (1024)"
    )
    parser.add_argument(
        "--instances", type=positive_int, metavar="N", help="processes or Ray actors, each with an engine (1)"
    )
    parser.add_argument("--format", choices=("npz", "jsonl", "parquet"), help="of results (that of the inputs)")
    parser.add_argument(
        "--keep", nargs="+", action="extend", default=[], metavar="COLUMN", help="columns that results have too"
    )
    parser.add_argument(
        "--max-failures", type=seed, default=1000, metavar="N", help="stop after so many rows that failed (1000)"
    )
    parser.add_argument("--restart", action="store_true", help="run every row again")
    parser.add_argument("--retry-failed", action="store_true", help="run shards again in which rows failed")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")


def _declare_ray(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--ray", metavar="ADDRESS", help="run on this Ray cluster: host:port, auto, or local for one of its own"
    )
    parser.add_argument("--cpus", type=non_negative_float, metavar="N", help="with --ray: processors of each actor (1)")
    parser.add_argument("--gpus", type=non_negative_float, metavar="N", help="with --ray: GPUs of each actor (0)")


def run(args: argparse.Namespace) -> Reply:
    """Run what is left to run."""
    from dovetail_serve.batch.job import run_batch

    job = _read_job(args)
    with _choosing(args) as run_shards, _progress(quiet=args.quiet) as tell:
        result = run_batch(job, restart=args.restart, retry_failed=args.retry_failed, run_shards=run_shards, tell=tell)
    _tell_skipped(result)
    document = {
        "rows": result.num_rows,
        "reused": result.num_reused,
        "failed": result.num_failed,
        "folder": args.target,
        "files": list(result.outputs),
        "errors": result.errors,
        "skipped": list(result.skipped),
    }
    return Reply(document=document, show=_show, exit_code=EXIT_FAILED_ROWS if result.num_failed else 0)


def _read_job(args: argparse.Namespace) -> BatchJob:
    from dovetail.cli.feeds import read_images
    from dovetail_serve.batch.engines import read_manifest
    from dovetail_serve.batch.options import BatchJob, BatchOptions, PlanSource

    plan = PlanSource(
        path=args.plan,
        plugins=tuple(args.plugins),
        provider_options=tuple(args.provider_option),
        allow_host_code=args.host_code,
        allow_device_code=not args.no_device_code,
    )
    names = [tensor.name for tensor in read_manifest(plan).inputs] if args.image else []
    options = BatchOptions(
        batch_size=args.batch_size,
        shard_rows=args.shard_rows,
        instances=args.instances or 1,
        format=args.format,
        keep=tuple(args.keep),
        max_failures=args.max_failures,
        images=read_images(args.image, names),
    )
    return BatchJob(plan=plan, source=args.source, target=args.target, options=options)


@contextmanager
def _choosing(args: argparse.Namespace) -> Iterator[RunShards | None]:
    """Where shards run: here, or on a cluster that is connected to for as long as the batch runs."""
    if args.ray is None:
        for option in ("cpus", "gpus"):
            if getattr(args, option) is not None:
                raise UsageError("this is for actors of Ray", where=f"--{option}", fix="add --ray ADDRESS")
        yield None
        return
    from dovetail_serve.ray.cluster import connecting
    from dovetail_serve.ray.shards import RayShards

    with connecting(args.ray, plugins=args.plugins, num_cpus=args.instances):
        yield RayShards(num_cpus=1.0 if args.cpus is None else args.cpus, num_gpus=args.gpus or 0.0)


@contextmanager
def _progress(*, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """A bar on a terminal; that a batch was stopped is told with what is done."""
    from dovetail.cli.progress import make_monitor
    from dovetail.cli.streams import messages

    monitor, is_open, last = make_monitor(quiet=quiet, verbose=False), False, (0, 0)

    def tell(done: int, total: int) -> None:
        nonlocal is_open, last
        last = (done, total)
        if monitor is None:
            return
        if not is_open:
            monitor.phase_start("rows", None, total)
            is_open = True
        if done:
            monitor.step_complete("rows", done - 1)

    try:
        yield tell
    except KeyboardInterrupt:
        print(f"{last[0]} of {last[1]} rows are done; the same command goes on with the others", file=messages())
        raise
    finally:
        if monitor is not None and is_open:
            monitor.phase_finish("rows")


def _tell_skipped(result: BatchResult) -> None:
    from dovetail.cli.targets import StderrLogger

    if result.skipped:
        names = ", ".join(result.skipped[:5])
        what = f"{len(result.skipped)} file(s) have no rows and are left out: {names}"
        StderrLogger().log(Severity.WARNING, what)


def _show(document: Document, screen: Screen) -> None:
    reused = f"; {document['reused']} were run before" if document["reused"] else ""
    screen.title(f"{document['rows'] - document['failed']} of {document['rows']} rows have results{reused}")
    for name in document["files"][:_SHOWN]:
        screen.line(f"{document['folder']}/{name}")
    if len(document["files"]) > _SHOWN:
        screen.line(f"... and {len(document['files']) - _SHOWN} more files")
    if document["errors"] is not None:
        failed = "1 row" if document["failed"] == 1 else f"{document['failed']} rows"
        screen.line(f"{failed} failed: {document['errors']}")
