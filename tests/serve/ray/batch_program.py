"""A batch on a Ray cluster of its own, whose actors are killed now and then: PLAN IN OUT LIBRARY SHARD_ROWS KILLS."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
import time
from pathlib import Path

from dovetail_serve.batch import run_batch
from dovetail_serve.ray.cluster import connecting
from dovetail_serve.ray.shards import RayShards
from tests.serve.batch.support import make_job


def find_actors() -> list[int]:
    """The processes of actors."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                command = (folder / "cmdline").read_bytes()
            except OSError:
                continue
            if command.startswith(b"ray::MapWorker"):
                found.append(int(folder.name))
    return found


def kill_some(count: int, told: list[int], busy: threading.Event) -> None:
    """Kill an actor after each step of progress, so many times."""
    while len(told) < count and busy.wait(300):
        busy.clear()
        for pid in random.sample(find_actors(), 1):
            os.kill(pid, signal.SIGKILL)
            told.append(pid)


def main() -> None:
    plan, source, target, library = map(Path, sys.argv[1:5])
    shard_rows, kills = int(sys.argv[5]), int(sys.argv[6])
    job = make_job(plan, source, target, plugins=[library], shard_rows=shard_rows, instances=2, max_failures=None)
    killed: list[int] = []
    busy = threading.Event()
    steps = 0

    def tell(done: int, total: int) -> None:
        nonlocal steps
        steps += 1
        if steps % 7 == 3:
            busy.set()

    with connecting("local", num_cpus=2, plugins=job.plan.plugins):
        threading.Thread(target=kill_some, args=(kills, killed, busy), daemon=True).start()
        start = time.perf_counter()
        result = run_batch(job, run_shards=RayShards(num_cpus=0.5), tell=tell)
        seconds = time.perf_counter() - start
    document = {
        "rows": result.num_rows,
        "reused": result.num_reused,
        "failed": result.num_failed,
        "killed": len(killed),
        "seconds": seconds,
    }
    print(json.dumps(document), flush=True)


if __name__ == "__main__":
    main()
