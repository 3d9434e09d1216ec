"""How long a plan takes to load: a gigabyte opened and verified, an engine of that size made ready, and a long header.

Run it with ``python benchmarks/plan_load.py``; ``--size-mb`` and ``--rounds`` change the work. The file was just
written, so it is read from the page cache: the time is what Dovetail adds, and not the disk's.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import safetensors.numpy

import dovetail as dt
from dovetail.plan.container import Blob, PlanFile, digest_blob, plan_bytes, verify_blob, write_plan
from dovetail.plan.manifest import encode_manifest

__all__ = ["TARGET_S_PER_GB", "build_engine_plan", "main", "time_fresh_process"]

BLOBS = 64
TARGET_S_PER_GB = 0.4
FRESH_PROCESS = """
import sys, time
import numpy as np, dovetail as dt
wall, processor = time.perf_counter(), time.process_time()
engine = dt.load(sys.argv[1])
engine(np.zeros(1, np.float32))
print(time.perf_counter() - wall, time.process_time() - processor)
"""


def _make_plan(path: Path, size_bytes: int) -> None:
    rng = np.random.default_rng(0)
    arrays = {f"layer.{i}.weight": rng.integers(0, 256, size_bytes // BLOBS, np.uint8) for i in range(BLOBS)}
    manifest = {name: digest_blob(array, "xxh3") for name, array in arrays.items()}
    blobs = [Blob(name=name, dtype="U8", shape=array.shape, data=array) for name, array in arrays.items()]
    write_plan(path, json.dumps(manifest).encode(), blobs)


def _open(path: Path) -> None:
    PlanFile.open(path).close()


def _open_and_verify(path: Path) -> None:
    with PlanFile.open(path) as file:
        file.verify_padding()
        for name, digest in json.loads(file.manifest).items():
            verify_blob(name, file.blob(name), "xxh3", digest)


def _open_and_digest_sha256(path: Path) -> None:
    with PlanFile.open(path) as file:
        for name in file.blobs:
            digest_blob(file.blob(name), "sha256")


def build_engine_plan(path: Path, size_bytes: int) -> None:
    """Build a real engine whose kernels look at one element of each weight, so that loading is all there is to time."""
    rng = np.random.default_rng(0)
    builder = dt.Builder()
    network = builder.create_network()
    total = network.add_input("x", dt.float32, (1,))
    for _ in range(BLOBS):
        weight = rng.random(size_bytes // BLOBS // 4, np.float32)
        constant = network.add_constant(weight.shape, weight).get_output(0)
        element = network.add_slice(constant, (0,), (1,), (1,)).get_output(0)
        total = network.add_elementwise(total, element, dt.ElementWiseOperation.SUM).get_output(0)
    network.mark_output(total)
    config = builder.create_builder_config()
    config.set_flag(dt.BuilderFlag.REFIT)  # or the slices of constants would be folded
    config.providers = ("cpu",)
    plan = builder.build_plan(network, config)
    write_plan(path, encode_manifest(plan.manifest), plan.blobs)


def _load_to_ready(path: Path) -> None:
    with dt.load(path) as engine, engine.create_execution_context():
        pass


def _load_and_run(path: Path) -> None:
    with dt.load(path) as engine:
        engine(np.zeros(1, np.float32))


def time_fresh_process(path: Path, rounds: int, *, byte_code: bool = True) -> tuple[float, float]:
    """Best seconds from ``import dovetail`` done to the first result, of wall and of processor time.

    Each round is a process of its own. With ``byte_code`` the modules are compiled beforehand, as they are in an
    installed package; without, every process compiles all it imports.
    """
    with tempfile.TemporaryDirectory() as cache:
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
        environment |= {"PYTHONPYCACHEPREFIX": cache} if byte_code else {"PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-c", FRESH_PROCESS, str(path)]
        runs = [
            subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
            for _ in range(rounds + byte_code)
        ]
    walls, processors = zip(*(map(float, done.stdout.split()) for done in runs[byte_code:]), strict=True)
    return min(walls), min(processors)


def _time_engine(path: Path, size_bytes: int, rounds: int) -> dict[str, float]:
    """Print the rows about an engine and return those that have a limit."""
    build_engine_plan(path, size_bytes)
    ready_s = _best_s(lambda: _load_to_ready(path), rounds)
    _print_row("dovetail.load to a context that can run", ready_s, size_bytes)
    _print_row("dovetail.load to the first result", _best_s(lambda: _load_and_run(path), rounds), size_bytes)
    fresh_s, processor_s = time_fresh_process(path, rounds)
    _print_row("fresh process, load to the first result", fresh_s, size_bytes)
    _print_row("the same, processor time", processor_s, size_bytes)
    bare_s, _ = time_fresh_process(path, rounds, byte_code=False)
    _print_row("fresh process without byte code", bare_s, size_bytes)
    # Loading waits for nothing, so on a busy machine processor time says more than the wall clock.
    ready_fresh_s = min(fresh_s, processor_s)
    return {"load to ready in a warm process": ready_s, "load to the first result in a fresh process": ready_fresh_s}


def _best_s(work: Callable[[], object], rounds: int) -> float:
    best = float("inf")
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best


def _print_row(what: str, seconds: float, size_bytes: int | None = None) -> None:
    rate = f"{size_bytes / seconds / 1e9:8.1f} GB/s" if size_bytes else ""
    print(f"{what:<44}{seconds * 1e3:10.1f} ms  {rate}")


def main() -> None:
    """Write the plan, time what a reader does with it, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size-mb", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    size_bytes = args.size_mb * 1_000_000
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "m.plan")
        _make_plan(path, size_bytes)
        print(f"{args.size_mb} MB in {BLOBS} blobs, page cache warm, best of {args.rounds}")
        _print_row("open", _best_s(lambda: _open(path), args.rounds))
        verified_s = _best_s(lambda: _open_and_verify(path), args.rounds)
        _print_row("open and verify every blob, xxh3", verified_s, size_bytes)
        _print_row("open and digest every blob, sha256", _best_s(lambda: _open_and_digest_sha256(path), 1), size_bytes)
        copied_s = _best_s(lambda: safetensors.numpy.load_file(path), args.rounds)
        _print_row("safetensors.numpy.load_file, nothing verified", copied_s, size_bytes)
        path.unlink()
        timed_s = {"open and verify": verified_s, **_time_engine(path, size_bytes, args.rounds)}
    small = plan_bytes(b"{}", [Blob(name=f"b.{i}", dtype="U8", shape=(1,), data=b"x") for i in range(10_000)])
    _print_row("parse 10,000 blobs and as many pads", _best_s(lambda: PlanFile.from_bytes(small).close(), args.rounds))
    for what, seconds in timed_s.items():
        verdict = "met" if seconds / size_bytes * 1e9 < TARGET_S_PER_GB else "MISSED"
        print(f"target: {what} under {TARGET_S_PER_GB} s a GB: {verdict}")


if __name__ == "__main__":
    main()
