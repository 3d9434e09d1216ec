"""Shards in several processes of this machine, each with an engine; one that dies is replaced, its shard run again."""

from __future__ import annotations

import contextlib
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from dovetail.errors import BuildError, DovetailError, ProviderError
from dovetail_serve.batch.options import BatchJob
from dovetail_serve.batch.shards import RowFailure, Shard, ShardRecord
from dovetail_serve.batch.worker import WorkerAnswer

__all__ = ["fail_shard", "run_in_processes"]

_TRIES: Final = 3
"""How often a shard is begun: one whose workers die each time is what kills them."""


def run_in_processes(job: BatchJob, shards: Sequence[Shard]) -> Iterator[ShardRecord]:
    """The records of shards, as they are done.

    Raises:
        ProviderError: A worker cannot go on.
    """
    pool = _WorkerPool(job, shards)
    try:
        yield from pool.run()
    finally:
        pool.close()


def fail_shard(shard: Shard, error: str) -> ShardRecord:
    """The record of a shard of which no row could be run."""
    is_table = len(shard.files) == 1
    failures = [
        RowFailure(
            file=shard.files[0 if is_table else place], row=shard.first_row + place if is_table else 0, error=error
        )
        for place in range(shard.num_rows)
    ]
    return ShardRecord(
        name=shard.name, identity=shard.identity, num_rows=shard.num_rows, output=None, failures=tuple(failures)
    )


class _WorkerDiedError(Exception):
    """A process ended in the middle of a shard."""


class _WorkerPool:
    """A thread for each process hands it shards and waits for its answers."""

    def __init__(self, job: BatchJob, shards: Sequence[Shard]) -> None:
        self._job = job
        self._shards: queue.SimpleQueue[Shard] = queue.SimpleQueue()
        for shard in shards:
            self._shards.put(shard)
        self._count = len(shards)
        self._done: queue.SimpleQueue[ShardRecord | DovetailError] = queue.SimpleQueue()
        self._workers: list[_WorkerProcess] = []
        self._lock = threading.Lock()
        self._is_closed = False

    def run(self) -> Iterator[ShardRecord]:
        for _ in range(min(self._job.options.instances, self._count)):
            threading.Thread(target=self._drive, daemon=True).start()
        for _ in range(self._count):
            done = self._done.get()
            if isinstance(done, DovetailError):
                raise done
            yield done

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            for worker in self._workers:
                worker.kill()

    def _drive(self) -> None:
        worker: _WorkerProcess | None = None
        try:
            while not self._is_closed:
                shard = self._shards.get_nowait()
                record, worker = self._run_shard(shard, worker)
                self._done.put(record)
        except queue.Empty:
            if worker is not None:
                worker.finish()
        except _WorkerDiedError:  # it was killed because the batch is over
            return
        except DovetailError as error:
            self._done.put(error)

    def _run_shard(self, shard: Shard, worker: _WorkerProcess | None) -> tuple[ShardRecord, _WorkerProcess | None]:
        for _ in range(_TRIES):
            try:
                worker = worker or self._start_worker()
                return worker.run(shard), worker
            except _WorkerDiedError:
                worker = None
                if self._is_closed:
                    raise
        return fail_shard(shard, f"the process that ran it died {_TRIES} times"), None

    def _start_worker(self) -> _WorkerProcess:
        with self._lock:
            if self._is_closed:
                raise _WorkerDiedError
            worker = _WorkerProcess()
            self._workers.append(worker)
        worker.begin(self._job)
        return worker


class _WorkerProcess:
    """One process, spoken to in JSON lines; Ctrl-C does not reach it."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "dovetail_serve.batch.worker"]
        self._process = subprocess.Popen(  # noqa: S603 - our own module
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )

    def begin(self, job: BatchJob) -> None:
        self._ask(job)

    def run(self, shard: Shard) -> ShardRecord:
        record = self._ask(shard).record
        if record is None:
            raise BuildError("a worker gave no record", where=shard.name)
        return record

    def finish(self) -> None:
        """Let it end by itself."""
        self._close_pipes()
        self._process.wait()

    def kill(self) -> None:
        """End it now; a result file that it was writing has no name yet."""
        self._process.kill()
        self._process.wait()
        self._close_pipes()

    def _close_pipes(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):  # what was not sent yet has nobody to go to
                    pipe.close()

    def _ask(self, question: BatchJob | Shard) -> WorkerAnswer:
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise _WorkerDiedError
        try:
            stdin.write(msgspec.json.encode(question) + b"\n")
            stdin.flush()
            line = stdout.readline()
        except (OSError, ValueError):
            line = b""
        if not line.endswith(b"\n"):
            self.kill()
            raise _WorkerDiedError
        answer = msgspec.json.decode(line, type=WorkerAnswer)
        if answer.error is not None:
            raise ProviderError(f"a worker cannot go on: {answer.error}")
        return answer
