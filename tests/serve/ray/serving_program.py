"""Replicas under load: one is killed, a plan is replaced, a damaged one comes, requests pile up. WORK_FOLDER."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import dovetail as dt
from dovetail.cli.targets import make_registry
from dovetail.errors import ProviderError
from dovetail_serve.options import ServerOptions
from dovetail_serve.ray import Deployment, RayOptions, connecting, deploy
from tests.serve.ray.clients import Load, Sent, ask
from tests.serve.repositories import PLUGIN, make_sleeper


def write_plan(path: Path, factor: float) -> None:
    """Put a plan of ``y = factor * x`` into place, whole."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 2]) for name in "xy")
    weights = numpy_helper.from_array(np.array([factor], np.float32), "k")
    graph = helper.make_graph([helper.make_node("Mul", ["x", "k"], ["y"])], "scale", [x], [y], [weights])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    put(path, lambda place: dt.compile(model, providers=["cpu"]).save(place))


def write_sleeper(path: Path, library: Path) -> None:
    library.write_text(PLUGIN)
    source = path.with_suffix(".source")
    source.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(make_sleeper(150), source)
    put(path, lambda place: dt.compile(source, registry=make_registry([str(library)]), providers=["cpu"]).save(place))
    source.unlink()
    (path.parents[1] / "config.toml").write_text("instances = 1\nmax_queue_size = 200\n")


def put(path: Path, write: Callable[[Path], object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name("new")
    write(new)
    new.replace(path)


def wait_for(what: str, is_so: Callable[[], bool], seconds: float = 180) -> float:
    start = time.monotonic()
    while not is_so():
        assert time.monotonic() < start + seconds, f"{what} takes longer than {seconds} s"
        time.sleep(0.05)
    return time.monotonic() - start


def p99(sent: Sequence[Sent]) -> float:
    return float(np.percentile([each.seconds for each in sent], 99)) if sent else 0.0


def _refused(sent: Sent) -> tuple[str, ...]:
    return sent.refused_by


def _broken(sent: Sent) -> tuple[str, ...]:
    return sent.broken_by


def kill_one(deployment: Deployment, load: Load) -> dict[str, Any]:
    """Kill a replica under load; its port answers again after a while."""
    victim = deployment.replicas[1]
    assert victim is not None
    time.sleep(3)
    before = list(load.sent)
    begin = time.monotonic()
    os.kill(victim.pid, signal.SIGKILL)

    def is_back() -> bool:
        return any(each.url == victim.http and each.time_s > begin + 0.5 for each in load.sent[len(before) :])

    back_s = wait_for("a replica that was killed", is_back)
    time.sleep(3)
    during = load.sent[len(before) :]
    refused, broken = ([url for each in during for url in urls(each)] for urls in (_refused, _broken))
    windows = {
        second: p99([each for each in during if second <= each.time_s - begin < second + 1])
        for second in range(int(during[-1].time_s - begin))
    }
    calm = max(2 * p99(before), 0.05)
    slow = [second for second, value in windows.items() if value > calm]
    return {
        "requests": len(during),
        "failed": list(load.failed),
        "lost_by_others": sum(url != victim.http for url in (*refused, *broken)),
        "refused": len(refused),
        "broken": len(broken),
        "p99_before_ms": p99(before) * 1e3,
        "p99_first_second_ms": windows.get(0, 0.0) * 1e3,
        "p99_worst_ms": max(windows.values()) * 1e3,
        "slow_seconds": slow,
        "back_after_s": back_s,
    }


def replace_plan(deployment: Deployment, load: Load, path: Path) -> dict[str, Any]:
    """Replace the plan under load; replicas take it one after the other."""
    start = len(load.sent)
    begin = time.monotonic()
    write_plan(path, 3.0)
    urls = set(deployment.http_urls)

    def is_everywhere() -> bool:
        return {each.url for each in load.sent[start:] if each.value == 3.0} == urls

    wait_for("the new plan", is_everywhere)
    time.sleep(1)
    during = load.sent[start:]
    first = {url: min(each.time_s for each in during if each.url == url and each.value == 3.0) for url in urls}
    return {
        "requests": len(during),
        "failed": list(load.failed),
        "lost": sum(len(_refused(each) + _broken(each)) for each in during),
        "values": sorted({each.value for each in during}),
        "p99_ms": p99(during) * 1e3,
        "first_after_s": sorted(when - begin for when in first.values()),
    }


def damage_plan(deployment: Deployment, load: Load, path: Path) -> dict[str, Any]:
    """A damaged plan is refused by the first replica, and all go on with the one they have."""
    start = len(load.sent)
    put(path, lambda place: place.write_bytes(path.read_bytes()[:-30]))
    try:
        deployment.update("scale")
        refused = ""
    except ProviderError as error:
        refused = str(error)
    time.sleep(2)
    during = load.sent[start:]
    write_plan(path, 3.0)
    return {"refused": refused, "values": sorted({each.value for each in during}), "failed": list(load.failed)}


def pile_up(deployment: Deployment) -> dict[str, Any]:
    """Requests wait, so there is another replica; nothing waits, so there is one less."""
    answers: list[float] = []
    threads = [
        threading.Thread(target=lambda turn=turn: answers.append(ask(deployment.http_urls[turn % 2], "sleeper")))
        for turn in range(80)
    ]
    for thread in threads:
        thread.start()
    most = wait_for("another replica", lambda: len(deployment.replicas) == 3)
    for thread in threads:
        thread.join()
    wait_for("it takes requests", lambda: len(deployment.http_urls) == 3 or len(deployment.replicas) == 2)
    fewer = wait_for("one less", lambda: len(deployment.replicas) == 2)
    return {"answers": len(answers), "grown_after_s": most, "shrunk_after_s": fewer}


def main() -> None:
    logging.basicConfig(level=logging.INFO)
    folder = Path(sys.argv[1])
    plan, library = folder / "models" / "scale" / "1" / "model.plan", folder / "sleep_layer.py"
    write_plan(plan, 2.0)
    write_sleeper(folder / "models" / "sleeper" / "1" / "model.plan", library)
    placement = RayOptions(
        replicas=2, max_replicas=3, num_cpus=0.5, queue_per_replica=10, quiet_s=3, poll_s=0.5, plugins=(str(library),)
    )
    results: dict[str, Any] = {}
    with connecting("local", num_cpus=2, plugins=placement.plugins):
        deployment = deploy(folder / "models", ServerOptions(http_port=8100, grpc_port=8101), placement=placement)
        deployment.wait_until_ready(300)
        results["states"] = [[entry.state for entry in state.models] for state in deployment.replicas if state]
        urls = deployment.http_urls
        with Load(lambda: urls, "scale") as load:
            results["kill"] = kill_one(deployment, load)
            deployment.wait_until_ready(300)
            results["replace"] = replace_plan(deployment, load, plan)
            results["damage"] = damage_plan(deployment, load, plan)
        results["pile"] = pile_up(deployment)
        late: list[float] = []
        thread = threading.Thread(target=lambda: late.append(ask(urls[0], "sleeper")))
        thread.start()
        time.sleep(0.05)
        results["drained"] = deployment.stop()
        thread.join()
        results["late"] = late
    (folder / "results.json").write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
