"""The shards of a batch on Ray Data: an engine in each actor, the plan by the object store, records back to the driver.

Ray Data hands shards to actors, starts actors anew that died and has their shards run again. A shard is written under
one name and renamed when it is whole, and the journal has one record of it, so rows that ran twice are there once.
Source and target are folders that every node sees.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import logging
import socket
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from dovetail.errors import DovetailError, InputError, ProviderError
from dovetail.files import append_bytes
from dovetail_serve.batch.engines import load_plan, require_plan
from dovetail_serve.batch.journal import JOURNAL
from dovetail_serve.batch.options import BatchJob
from dovetail_serve.batch.shard_run import ShardRunner
from dovetail_serve.batch.shards import Shard, ShardRecord
from dovetail_serve.batch.worker import WorkerAnswer
from dovetail_serve.batch.workers import fail_shard
from dovetail_serve.ray.cluster import import_ray, locate_plugins

__all__ = ["TRIES_FOLDER", "RayShards"]

TRIES_FOLDER: Final = ".tries"
_TRIES: Final = 5
"""How often a shard is begun: one whose actors die each time is what kills them. Ray itself would never give up."""


class RayShards:
    """Runs shards on the cluster that Ray is connected to; what ``run_batch`` takes as ``run_shards``.

    Args:
        num_cpus: Processors of each actor.
        num_gpus: GPUs of each actor.
    """

    def __init__(self, *, num_cpus: float = 1.0, num_gpus: float = 0.0) -> None:
        self._num_cpus = num_cpus
        self._num_gpus = num_gpus

    def __call__(self, job: BatchJob, shards: Sequence[Shard]) -> Iterator[ShardRecord]:
        """The records of shards, as they are done.

        Raises:
            ProviderError: An actor cannot go on.
        """
        ray = import_ray()
        try:
            for answer in self._start(_make_absolute(job), shards) if shards else ():
                if answer.error is not None or answer.record is None:
                    raise ProviderError(f"an actor cannot go on: {answer.error}")
                yield answer.record
        except ray.exceptions.RayError as error:
            reason = str(error).strip().rpartition("\n")[2][:200]
            raise ProviderError(f"Ray cannot go on: {reason}", fix="run the same command again") from error

    def _start(self, job: BatchJob, shards: Sequence[Shard]) -> Iterator[WorkerAnswer]:
        """The answers of actors, from a pipeline of Ray Data in which each shard is a row."""
        ray = import_ray()
        data = importlib.import_module("ray.data")
        _be_quiet(data.DataContext.get_current())
        plan = ray.put(np.fromfile(require_plan(job.plan), np.uint8))
        rows = [{"shard": msgspec.json.encode(shard).decode()} for shard in shards]
        answers = data.from_items(rows, override_num_blocks=len(rows)).map_batches(
            ShardActor,
            fn_constructor_kwargs={"job": msgspec.json.encode(job).decode(), "plan": plan},
            batch_size=1,
            compute=data.ActorPoolStrategy(size=min(job.options.instances, len(shards))),
            num_cpus=self._num_cpus,
            num_gpus=self._num_gpus,
        )
        for batch in answers.iter_batches(batch_size=1, prefetch_batches=0):
            for text in batch["answer"]:
                yield msgspec.json.decode(str(text).encode(), type=WorkerAnswer)


def _make_absolute(job: BatchJob) -> BatchJob:
    """The job with paths that mean the same on every node."""
    plugins = tuple(text if text.startswith("@") else str(Path(text).resolve()) for text in job.plan.plugins)
    return dataclasses.replace(
        job,
        plan=dataclasses.replace(job.plan, path=str(Path(job.plan.path).resolve()), plugins=plugins),
        source=str(Path(job.source).resolve()),
        target=str(Path(job.target).resolve()),
    )


def _be_quiet(context: Any) -> None:
    """Leave progress to whoever counts rows."""
    context.enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)


class ShardActor:
    """Runs shards with an engine of its own, which is loaded for the first.

    Args:
        job: The job, as JSON.
        plan: The bytes of the plan in the object store.
    """

    def __init__(self, job: str, plan: Any) -> None:
        self._job = msgspec.json.decode(job, type=BatchJob)
        self._plan = plan
        self._runner: ShardRunner | None = None

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, list[str]]:
        """Run shards; the answer says why the batch cannot go on, where it cannot."""
        return {"answer": [msgspec.json.encode(self._run(str(text))).decode() for text in batch["shard"]]}

    def _run(self, text: str) -> WorkerAnswer:
        try:
            self._runner = self._runner or self._load()
            return WorkerAnswer(record=self._try(self._runner, msgspec.json.decode(text, type=Shard)))
        except DovetailError as error:
            return WorkerAnswer(error=str(error))

    def _try(self, runner: ShardRunner, shard: Shard) -> ShardRecord:
        """Run a shard, unless too many actors have died of it: a file of the target has a byte for each that began."""
        tries = Path(self._job.target) / TRIES_FOLDER / hashlib.sha256(shard.name.encode()).hexdigest()[:32]
        tries.parent.mkdir(exist_ok=True)
        if tries.exists() and tries.stat().st_size >= _TRIES:
            return fail_shard(shard, f"the actor that ran it died {_TRIES} times")
        append_bytes(tries, b".")
        record = runner.run(shard)
        tries.unlink(missing_ok=True)
        return record

    def _load(self) -> ShardRunner:
        for folder, name in ((self._job.source, ""), (self._job.target, JOURNAL)):
            if not (Path(folder) / name).exists():
                what = f"the folder is not on the node {socket.gethostname()}"
                raise InputError(what, where=f"'{folder}'", expected="a folder that every node of the cluster sees")
        ray = import_ray()
        content = memoryview(ray.get(self._plan))
        plan = dataclasses.replace(self._job.plan, plugins=locate_plugins(self._job.plan.plugins))
        return ShardRunner(load_plan(plan, content), self._job)
