"""Whether build and run grow with the number of nodes and no faster, on chains and diamonds of 100 to 10,000 nodes.

Every row is a process of its own: it builds the model, runs the engine for the first time, which places values in
memory, and runs it again. The target is that a node of the largest model costs at most twice what it costs in the size
where it is cheapest. The first run is shown and not judged: a full collection of Python's garbage falls into it or
not, and is most of it. Times are those of the thread on its processor, because builds take seconds and other programs
would be timed with them; of the runs the fastest counts. Run it with ``python benchmarks/scaling.py``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["LIMIT", "Row", "judge", "main", "measure"]

SIZES = (100, 1_000, 10_000)
SHAPES = ("chain", "diamond")
PROVIDERS = ("default", "cpu")
LIMIT = 2.0
"""How much a node of a large model may cost, in nodes of a smaller one."""


@dataclass(frozen=True)
class Row:
    """One model on one provider."""

    shape: str
    provider: str
    nodes: int
    build_s: float
    first_us: float
    """The first run, which places values in memory."""
    run_us: float

    @property
    def first_us_per_node(self) -> float:
        """Microseconds of the first run for each node."""
        return self.first_us / self.nodes

    @property
    def build_us_per_node(self) -> float:
        """Microseconds of the build for each node."""
        return self.build_s * 1e6 / self.nodes

    @property
    def run_us_per_node(self) -> float:
        """Microseconds of a run for each node."""
        return self.run_us / self.nodes


def _chain(count: int) -> list[Any]:
    from onnx import helper

    ops = ("Relu", "Neg")
    names = ["x", *(f"v{i}" for i in range(count - 1)), "y"]
    return [helper.make_node(ops[i % 2], [names[i]], [names[i + 1]], name=f"n{i}") for i in range(count)]


def _diamond(count: int) -> list[Any]:
    """A fan of two branches that meet again, one after the other."""
    from onnx import helper

    nodes, source = [], "x"
    while len(nodes) + 3 <= count:
        i = len(nodes)
        nodes.append(helper.make_node("Relu", [source], [f"a{i}"], name=f"a{i}"))
        nodes.append(helper.make_node("Neg", [source], [f"b{i}"], name=f"b{i}"))
        nodes.append(helper.make_node("Add", [f"a{i}", f"b{i}"], [f"s{i}"], name=f"s{i}"))
        source = f"s{i}"
    nodes += _chain_from(source, count - len(nodes))
    nodes[-1].output[0] = "y"
    return nodes


def _chain_from(source: str, count: int) -> Iterator[Any]:
    from onnx import helper

    for i in range(count):
        yield helper.make_node("Neg", [source], [f"t{i}"], name=f"t{i}")
        source = f"t{i}"


def make_model(shape: str, count: int) -> Any:
    """A model of cheap nodes over 16 floats."""
    from onnx import TensorProto, helper

    nodes = _chain(count) if shape == "chain" else _diamond(count)
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 16]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, shape, ports[:1], ports[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def measure(shape: str, provider: str, count: int, runs: int = 15) -> Row:
    """Build and run in this process."""
    import numpy as np

    import dovetail as dt

    model = make_model(shape, count)
    providers = None if provider == "default" else [provider]
    dt.compile(make_model(shape, 4), providers=providers)  # imports and caches
    start = time.thread_time()
    engine = dt.compile(model, providers=providers)
    build_s = time.thread_time() - start
    x = np.ones((1, 16), np.float32)
    start = time.thread_time()
    engine(x)
    first_us = (time.thread_time() - start) * 1e6
    times = []
    for _ in range(runs):
        start = time.thread_time()
        engine(x)
        times.append(time.thread_time() - start)
    return Row(shape, provider, count, build_s, first_us, min(times) * 1e6)


def measure_apart(shape: str, provider: str, count: int) -> Row:
    """The same in a process of its own."""
    command = [sys.executable, __file__, "--worker", shape, provider, str(count)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return Row(**json.loads(done.stdout.splitlines()[-1]))


def judge(rows: Sequence[Row]) -> list[tuple[str, float, bool]]:
    """For each model and provider how much a node of the largest costs, in nodes of the cheapest size; met or not."""
    results = []
    for shape, provider in dict.fromkeys((row.shape, row.provider) for row in rows):
        mine = sorted((r for r in rows if (r.shape, r.provider) == (shape, provider)), key=lambda row: row.nodes)
        for what in ("build", "run"):
            costs = [getattr(row, f"{what}_us_per_node") for row in mine]
            growth = costs[-1] / min(costs)
            results.append((f"{what} of a {shape} on {provider}", growth, growth <= LIMIT))
    return results


def main() -> None:
    """Print the table and the verdicts, or as a worker one row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worker", nargs=3, metavar=("SHAPE", "PROVIDER", "NODES"), help=argparse.SUPPRESS)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--shapes", nargs="+", default=list(SHAPES), choices=SHAPES)
    parser.add_argument("--providers", nargs="+", default=list(PROVIDERS), choices=PROVIDERS)
    parser.add_argument("--json", action="store_true", help="print rows and verdicts as JSON")
    args = parser.parse_args()
    if args.worker:
        shape, provider, nodes = args.worker
        print(json.dumps(asdict(measure(shape, provider, int(nodes)))))
        return
    rows = [measure_apart(s, p, n) for s in args.shapes for p in args.providers for n in args.sizes]
    verdicts = judge(rows)
    if args.json:
        print(json.dumps({"rows": [asdict(row) for row in rows], "verdicts": verdicts}))
        return
    print(f"{'model':<10}{'provider':<10}{'nodes':>8}{'build s':>10}{'us a node':>12}", end="")
    print(f"{'first run ms':>14}{'us a node':>12}{'run us':>12}{'us a node':>12}")
    for row in rows:
        print(
            f"{row.shape:<10}{row.provider:<10}{row.nodes:>8}{row.build_s:>10.2f}{row.build_us_per_node:>12.1f}"
            f"{row.first_us / 1e3:>14.1f}{row.first_us_per_node:>12.2f}{row.run_us:>12.1f}{row.run_us_per_node:>12.3f}"
        )
    for what, growth, is_met in verdicts:
        print(f"{what:<34} {growth:5.2f} times, limit {LIMIT:.0f}: {'met' if is_met else 'MISSED'}")


if __name__ == "__main__":
    main()
