"""What the queue, the batches and the threads of a loaded model cost, without HTTP or gRPC.

``python -m benchmarks.serve.pool`` runs real models in a repository of its own, and compares with direct calls of the
same engine in turns, so that a busy machine is busy for both.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

import dovetail as dt
from dovetail_serve.errors import QueueFullError
from dovetail_serve.models.loaded import LoadedModel
from dovetail_serve.options import ServerOptions
from dovetail_serve.protocol.requests import InferRequest
from dovetail_serve.service import InferenceService

WIDTH = 512
ROUNDS = 20


def make_model(layers: int, width: int) -> Any:
    """``layers`` products of a row with a square matrix, and a Relu."""
    rng = np.random.default_rng(0)
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", width]) for name in "xy")
    names = ["x", *(f"h{i}" for i in range(layers))]
    matrices = [rng.normal(0, width**-0.5, (width, width)).astype(np.float32) for _ in range(layers)]
    weights = [numpy_helper.from_array(matrix, f"w{i}") for i, matrix in enumerate(matrices)]
    nodes = [helper.make_node("MatMul", [a, f"w{i}"], [b]) for i, (a, b) in enumerate(pairwise(names))]
    nodes.append(helper.make_node("Relu", [names[-1]], ["y"]))
    graph = helper.make_graph(nodes, "dense", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


def time_call(function: Callable[[], object], count: int) -> float:
    """The median time of a call in microseconds."""
    spans = []
    for _ in range(count):
        start = time.perf_counter_ns()
        function()
        spans.append(time.perf_counter_ns() - start)
    return statistics.median(spans) / 1e3


def find_layers(target_us: float) -> int:
    """How many layers take about so long."""
    engine = dt.compile(make_model(8, WIDTH), providers=["cpu"])
    x = np.ones((1, WIDTH), np.float32)
    time_call(lambda: engine(x), 20)
    return max(1, round(8 * target_us / time_call(lambda: engine(x), 50)))


def write(root: Path, name: str, model: Any, config: str = "") -> None:
    """A model of the repository."""
    (root / name / "1").mkdir(parents=True)
    dt.compile(model, providers=["cpu"]).save(root / name / "1" / "model.plan")
    (root / name / "config.toml").write_text(config)


async def time_infer(service: InferenceService, request: InferRequest, count: int) -> float:
    """The median time of a request in microseconds."""
    spans = []
    for _ in range(count):
        start = time.perf_counter_ns()
        await service.infer(request)
        spans.append(time.perf_counter_ns() - start)
    return statistics.median(spans) / 1e3


async def compare_one_client(service: InferenceService, name: str, x: np.ndarray, count: int) -> str:
    """Direct calls and requests one after the other, in turns."""
    engine = service._slots[name].find("").parts.engine
    direct, served = [], []
    for _ in range(ROUNDS):
        direct.append(time_call(lambda: engine(x), count))
        served.append(await time_infer(service, InferRequest(name, {"x": x}), count))
    a, b = statistics.median(direct), statistics.median(served)
    return f"engine(x) {a:8.1f} us   infer {b:8.1f} us   adds {b - a:7.1f} us"


async def count_rate(service: InferenceService, name: str, x: np.ndarray, clients: int, seconds: float) -> float:
    """Requests a second of so many clients, each with one request at a time."""
    done, end = 0, time.perf_counter() + seconds

    async def ask() -> None:
        nonlocal done
        while time.perf_counter() < end:
            await service.infer(InferRequest(name, {"x": x}))
            done += 1

    await asyncio.gather(*(ask() for _ in range(clients)))
    return done / seconds


def count_calls(engine: Any, x: np.ndarray, seconds: float) -> float:
    """Calls a second of one thread."""
    done, end = 0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        engine(x)
        done += 1
    return done / seconds


async def compare_rates(service: InferenceService, name: str, x: np.ndarray, clients: int) -> str:
    """Direct calls of one thread and requests of many clients, in turns."""
    engine = service._slots[name].find("").parts.engine
    direct, served = [], []
    for _ in range(5):
        direct.append(count_calls(engine, x, 0.5))
        served.append(await count_rate(service, name, x, clients, 0.5))
    a, b = statistics.median(direct), statistics.median(served)
    return f"engine(x) {a:8.0f} /s   {clients} clients {b:8.0f} /s   {b / a:.2f} of it"


async def overload(service: InferenceService, name: str, x: np.ndarray) -> str:
    """Many more clients than may wait: how long those wait that are taken, and how soon the others know."""
    taken, refused, end = [], [], time.perf_counter() + 3

    async def ask() -> None:
        while time.perf_counter() < end:
            start = time.perf_counter_ns()
            try:
                await service.infer(InferRequest(name, {"x": x}))
                taken.append(time.perf_counter_ns() - start)
            except QueueFullError:
                refused.append(time.perf_counter_ns() - start)
                await asyncio.sleep(0.005)

    await asyncio.gather(*(ask() for _ in range(256)))
    taken_ms, refused_ms = (np.percentile(np.array(spans) / 1e6, 99) for spans in (taken, refused))
    return f"{len(taken)} taken, p99 {taken_ms:.1f} ms   {len(refused)} refused, p99 {refused_ms:.3f} ms"


async def main(count: int) -> None:
    """All rows."""
    layers = find_layers(1000)
    small, large = np.ones((1, 16), np.float32), np.ones((1, WIDTH), np.float32)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write(root, "tiny", _relu())
        write(root, "dense", make_model(layers, WIDTH))
        write(root, "batched", make_model(layers, WIDTH), "max_batch_size = 16")
        write(root, "full", make_model(layers, WIDTH), "max_queue_size = 16")
        async with InferenceService(root, ServerOptions(poll_s=0)) as service:
            await service.wait_loaded()
            for found in service.statistics():
                print(f"{found.name}: {found.batching}")
            print("5 us, one client            ", await compare_one_client(service, "tiny", small, count))
            _use_threads(service, "tiny")
            print("5 us, one client, on threads", await compare_one_client(service, "tiny", small, count))
            print("1 ms, one client            ", await compare_one_client(service, "dense", large, count // 20))
            print("1 ms                        ", await compare_rates(service, "dense", large, 64))
            print("1 ms, batches of up to 16   ", await compare_rates(service, "batched", large, 64))
            print("1 ms, 16 may wait           ", await overload(service, "full", large))


def _relu() -> Any:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 16]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "tiny", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


def _use_threads(service: InferenceService, name: str) -> None:
    """Put a model in the place of itself that never runs on the thread of the loop."""
    slot = service._slots[name]
    old = slot.find("")
    parts = replace(old.parts, loop_runner=None)
    slot.swap_in(LoadedModel(parts, asyncio.get_running_loop()), slot.sources["1"])
    old._threads.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=500, help="requests in each of the rounds")
    asyncio.run(main(parser.parse_args().count))
