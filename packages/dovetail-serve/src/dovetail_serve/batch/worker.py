"""A process that runs shards: ``python -m dovetail_serve.batch.worker``, told what to do in JSON lines.

The first line is the job, each other one a shard; for each it answers with a line, the record of the shard or an error.
It ends when nobody talks to it any more, so it never outlives whoever started it.
"""

from __future__ import annotations

import os
import sys
from io import FileIO

import msgspec

from dovetail.errors import DovetailError
from dovetail_serve.batch.engines import load_plan
from dovetail_serve.batch.options import BatchJob
from dovetail_serve.batch.shard_run import ShardRunner
from dovetail_serve.batch.shards import Shard, ShardRecord

__all__ = ["WorkerAnswer", "main"]


class WorkerAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker says of a shard."""

    record: ShardRecord | None = None
    error: str | None = None
    """Why the batch cannot go on."""


def main() -> None:
    """Run shards until the standard input ends."""
    answers = _take_output()
    lines = iter(sys.stdin.buffer)
    try:
        job = msgspec.json.decode(next(lines), type=BatchJob)
        runner = ShardRunner(load_plan(job.plan), job)
        _answer(answers, WorkerAnswer())
        for line in lines:
            _answer(answers, WorkerAnswer(record=runner.run(msgspec.json.decode(line, type=Shard))))
    except DovetailError as error:
        _answer(answers, WorkerAnswer(error=str(error)))
    except BrokenPipeError:  # nobody waits for the answer: the next batch will run the shard again
        return


def _take_output() -> FileIO:
    """The standard output, for answers alone: what plugins print goes to the messages."""
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    return answers


def _answer(answers: FileIO, answer: WorkerAnswer) -> None:
    view = memoryview(msgspec.json.encode(answer) + b"\n")
    while view:
        view = view[answers.write(view) :]


if __name__ == "__main__":
    main()
