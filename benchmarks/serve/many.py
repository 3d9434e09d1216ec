"""Calls a second of 64 clients beside one thread that calls the engine: ``python -m benchmarks.serve.many``.

The model takes about a millisecond on one thread and 110 KB of input. The clients are one process, and while the engine
is called directly a process beside it is as busy as they were, so that both have the same machine. In turns.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.serve.__main__ import grpc_request, http_request
from benchmarks.serve.servers import FEATURES

ROWS = 430
SHAPE = [ROWS, FEATURES]
UNITS = 1024
CONFIG = "threads = 1\nmax_queue_size = 256\n"


def save_plan(path: Path) -> None:
    """Build two products of rows with matrices that stay in the caches."""
    from onnx import TensorProto, helper, numpy_helper

    import dovetail as dt

    rng = np.random.default_rng(0)
    weights = [rng.normal(0, 0.05, size).astype(np.float32) for size in ((SHAPE[1], UNITS), (UNITS, SHAPE[1]))]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPE) for name in "xy")
    nodes = [
        helper.make_node("MatMul", ["x", "w0"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MatMul", ["r", "w1"], ["y"]),
    ]
    constants = [numpy_helper.from_array(each, f"w{i}") for i, each in enumerate(weights)]
    graph = helper.make_graph(nodes, "g", [x], [y], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    path.parent.mkdir(parents=True)
    dt.compile(model).save(path)


def call_directly(plan: Path, seconds: float) -> float:
    """Calls a second of one thread."""
    import dovetail as dt

    engine = dt.load(plan, provider_options={"onnxruntime": {"threads": "1"}})
    x = np.zeros(SHAPE, np.float32)
    for _ in range(50):
        engine(x)
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        engine(x)
        count += 1
    return count / (time.perf_counter() - start)


def be_busy(share: float, seconds: float) -> None:
    """Use a share of a core, in slices of a millisecond."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        begun = time.perf_counter()
        while time.perf_counter() - begun < 0.001 * share:
            pass
        time.sleep(0.001 * (1 - share))


class HttpCaller:
    """Sends the same request over one connection."""

    def __init__(self, port: int) -> None:
        self._port, self._request = port, http_request(ROWS)

    async def open(self) -> None:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)

    async def call(self) -> None:
        self._writer.write(self._request)
        head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        assert head.startswith(b"http/1.1 200"), head
        await self._reader.readexactly(int(head.split(b"\r\ncontent-length: ")[1].split(b"\r\n")[0]))


class GrpcCaller:
    """Sends the same message over a channel of its own."""

    def __init__(self, port: int) -> None:
        self._port, self._request = port, grpc_request(ROWS)

    async def open(self) -> None:
        import grpc

        self._channel = grpc.aio.insecure_channel(f"127.0.0.1:{self._port}")
        self._method = self._channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")

    async def call(self) -> None:
        await self._method(self._request)


async def call_server(way: str, port: int, clients: int, seconds: float) -> tuple[float, float]:
    """Calls a second of all clients, and which share of a core they used."""
    callers = [(HttpCaller if way == "http" else GrpcCaller)(port) for _ in range(clients)]
    for caller in callers:
        await caller.open()
        await caller.call()
    begun, used, end = time.perf_counter(), time.process_time(), time.perf_counter() + seconds
    counts = await asyncio.gather(*(_keep_calling(caller, end) for caller in callers))
    took = time.perf_counter() - begun
    return sum(counts) / took, (time.process_time() - used) / took


async def _keep_calling(caller: Any, end: float) -> int:
    count = 0
    while time.perf_counter() < end:
        await caller.call()
        count += 1
    return count


def ask(*words: object) -> Any:
    """What this program prints as JSON when it does one part, in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.serve.many", "--part", *map(str, words)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def compare(folder: Path, plan: Path, way: str, clients: int, seconds: float) -> tuple[float, float]:
    """Calls a second over the server and directly."""
    from dovetail_serve.options import ServerOptions
    from dovetail_serve.server import Server

    with Server(folder, ServerOptions(http_port=0, grpc_port=0)) as server:
        port = server.http_port if way == "http" else server.grpc_port
        served, share = ask("clients", way, port, clients, seconds)
    beside = [sys.executable, "-m", "benchmarks.serve.many", "--part", "busy", str(min(share, 1.0)), str(seconds + 5)]
    with subprocess.Popen(beside) as busy:
        direct = ask("direct", plan, seconds)
        busy.kill()
    return served, direct


def do_part(words: list[str]) -> None:
    name, *how = words
    if name == "clients":
        print(json.dumps(asyncio.run(call_server(how[0], int(how[1]), int(how[2]), float(how[3])))))
    elif name == "direct":
        print(json.dumps(call_directly(Path(how[0]), float(how[1]))))
    else:
        be_busy(float(how[0]), float(how[1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--part", nargs="*", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        do_part(options.part)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plan = folder / "half" / "1" / "model.plan"
        save_plan(plan)
        (folder / "half" / "config.toml").write_text(CONFIG, encoding="utf-8")
        alone_ms = 1e3 / ask("direct", plan, 1.0)
        print(f"calls a second of a model of {alone_ms:.2f} ms, {options.clients} clients")
        print(f"{'':6}{'served':>9}{'direct':>9}{'quotient':>10}")
        for way in ("http", "grpc"):
            turns = [compare(folder, plan, way, options.clients, options.seconds) for _ in range(options.turns)]
            served, direct = (statistics.median(column) for column in zip(*turns, strict=True))
            print(f"{way:6}{served:>9.0f}{direct:>9.0f}{statistics.median(a / b for a, b in turns):>10.2f}", flush=True)


if __name__ == "__main__":
    main()
