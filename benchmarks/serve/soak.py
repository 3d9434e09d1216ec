"""A server under load for a long time: reloads, cancels, overload, and SIGTERM at the end.

``python -m benchmarks.serve.soak --minutes 30`` starts ``dovetail serve`` in a process of its own, loads it over HTTP
and gRPC, and ends with a table. The code is 1 where a request was lost, a response wrong, or memory grew.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from benchmarks.serve.soaking.clients import GrpcClient, HttpClient, Tally, keep_asking, keep_leaving
from benchmarks.serve.soaking.repository import GENERATIONS, LIMITED_QUEUE, SoakRepository

RELOAD_S = 4.0
SAMPLE_S = 2.0
GROWTH = 1.05
OVERLOAD_S = 8.0
WARM_UP_S = 1.0
"""Until every client has a connection."""
PAUSE_S = 0.004
"""Between requests of one client, so that the server and its clients fit on the machine."""


def start_server(repository: SoakRepository) -> tuple[subprocess.Popen[str], dict[str, Any]]:
    """The process, and the document that it prints when its models are loaded."""
    words = [
        "serve",
        str(repository.models),
        "--plugins",
        str(repository.plugin),
        "--http-port",
        "0",
        "--grpc-port",
        "0",
    ]
    command = [sys.executable, "-m", "dovetail", *words, "--json", "--quiet", "--poll", "0.5"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    text = ""
    assert process.stdout is not None
    for line in process.stdout:
        text += line
        if line == "}\n":
            return process, json.loads(text)
    raise SystemExit(f"error: the server did not start\n{text}")


def read_rss_mb(pid: int) -> float:
    """The memory that a process has in use."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS:"))


async def keep_reloading(repository: SoakRepository, url: str, until: asyncio.Event) -> dict[str, int]:
    """Replace the plan again and again, every fifth time by a damaged one, and see what the index says of it."""
    counts = {"reloads": 0, "damaged": 0, "damaged that were told": 0}
    async with httpx.AsyncClient(base_url=url) as client:
        for number in range(1, 1_000_000):
            if await _wait(until, RELOAD_S):
                return counts
            if number % 5:
                repository.replace(number % GENERATIONS)
                counts["reloads"] += 1
                continue
            repository.damage()
            counts["damaged"] += 1
            await _wait(until, RELOAD_S)
            index = (await client.post("/v2/repository/index")).json()
            (entry,) = [each for each in index if each["name"] == "changing"]
            counts["damaged that were told"] += entry["state"] == "READY" and bool(entry["reason"])
    return counts


async def keep_sampling(pid: int, until: asyncio.Event) -> list[float]:
    """The memory of the server over time."""
    found = [read_rss_mb(pid)]
    while not await _wait(until, SAMPLE_S):
        found.append(read_rss_mb(pid))
    return found


async def _wait(until: asyncio.Event, seconds: float) -> bool:
    try:
        await asyncio.wait_for(until.wait(), seconds)
    except TimeoutError:
        return False
    return True


async def measure_overload(url: str, clients: int) -> Tally:
    """So many clients of a model that takes one at a time and lets few wait."""
    tally, until = Tally(), asyncio.Event()
    open_clients = [HttpClient(url) for _ in range(clients)]
    work = [asyncio.create_task(keep_asking(client, "limited", tally, until)) for client in open_clients]
    await asyncio.sleep(WARM_UP_S)
    tally.times_ms.clear()
    await asyncio.sleep(OVERLOAD_S)
    until.set()
    await asyncio.gather(*work)
    for client in open_clients:
        await client.close()
    return tally


async def load(
    server: dict[str, Any], process: subprocess.Popen[str], repository: SoakRepository, seconds: float
) -> Any:
    """Everything at once for so long, and then SIGTERM in the middle of it."""
    tally, until = Tally(), asyncio.Event()
    makers: list[Callable[[], Any]] = [partial(HttpClient, server["http"]), partial(GrpcClient, server["grpc"])]
    clients = [make() for make in makers for _ in range(4)]
    asking = [asyncio.create_task(keep_asking(each, "changing", tally, until, PAUSE_S)) for each in clients]
    leaving_until = asyncio.Event()
    leaving = [asyncio.create_task(keep_leaving(make, tally, leaving_until)) for make in makers]
    reloading = asyncio.create_task(keep_reloading(repository, server["http"], leaving_until))
    sampling = asyncio.create_task(keep_sampling(process.pid, leaving_until))
    await asyncio.sleep(seconds)
    leaving_until.set()
    counts, rss, *_ = await asyncio.gather(reloading, sampling, *leaving)
    tally.ending_since = time.perf_counter()
    process.send_signal(signal.SIGTERM)
    code = await asyncio.to_thread(process.wait, 60)
    until.set()
    await asyncio.gather(*asking)
    for each in clients:
        await each.close()
    return tally, counts, rss, code


def show(rows: list[tuple[str, str, bool]]) -> int:
    """The table; the code says whether all of it is good."""
    width = max(len(name) for name, _, _ in rows)
    for name, text, is_good in rows:
        print(f"{name:<{width}}  {text}{'' if is_good else '   <- NOT GOOD'}")
    return 0 if all(is_good for _, _, is_good in rows) else 1


def p99(values: list[float]) -> float:
    """The time that one of a hundred takes longer than."""
    return statistics.quantiles(values, n=100)[98] if len(values) > 1 else 0.0


def judge_overload(usual: Tally, over: Tally) -> list[tuple[str, str, bool]]:
    """Accepted requests of an overloaded model against those of a busy one, and how soon others are refused."""
    before, after = p99(usual.times_ms["http answered"]), p99(over.times_ms["http answered"])
    refused = over.times_ms.get("http refused", [])
    ratio = after / before
    median, worst = statistics.median(refused), p99(refused)
    return [
        ("p99 of accepted, queue just full", f"{before:.1f} ms", not usual.ends["http refused"]),
        ("p99 of accepted, four times the clients", f"{after:.1f} ms, {ratio:.2f} times", ratio <= 2),
        ("refused", f"{len(refused)} in {median:.2f} ms (median), {worst:.2f} ms (p99)", worst < 10),
    ]


def judge_soak(tally: Tally, counts: dict[str, int], rss: list[float], code: int) -> list[tuple[str, str, bool]]:
    """What must be so after a soak."""
    warm = rss[len(rss) // 3 :]
    early, late = (statistics.median(part) for part in (warm[: len(warm) // 4 or 1], warm[-(len(warm) // 4 or 1) :]))
    times = [time for end in ("http answered", "grpc answered") for time in tally.times_ms.get(end, [])]
    rows = [(end, str(count), True) for end, count in sorted(tally.ends.items())]
    return [
        *rows,
        ("p50 and p99 of answered", f"{statistics.median(times):.2f} ms, {p99(times):.2f} ms", True),
        *((name, str(count), True) for name, count in counts.items()),
        ("damaged plans that were not told", str(counts["damaged"] - counts["damaged that were told"]),
         counts["damaged"] == counts["damaged that were told"]),
        ("lost", f"{len(tally.lost)} {tally.lost[:3] or ''}", not tally.lost),
        ("wrong", f"{len(tally.wrong)} {tally.wrong[:3] or ''}", not tally.wrong),
        ("exit code after SIGTERM under load", str(code), code == 0),
        ("memory of the server", f"{early:.0f} MB early, {late:.0f} MB late", late <= early * GROWTH),
    ]  # fmt: skip


def main() -> int:
    """Soak, and judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    seconds = parser.parse_args().minutes * 60
    with tempfile.TemporaryDirectory() as name:
        repository = SoakRepository(Path(name))
        process, server = start_server(repository)
        try:
            usual = asyncio.run(measure_overload(server["http"], LIMITED_QUEUE))
            over = asyncio.run(measure_overload(server["http"], 4 * LIMITED_QUEUE))
            tally, counts, rss, code = asyncio.run(load(server, process, repository, seconds))
        finally:
            process.kill()
    return show([*judge_overload(usual, over), *judge_soak(tally, counts, rss, code)])


if __name__ == "__main__":
    sys.exit(main())
