"""How long a plan takes to load: a gigabyte opened and verified, and a header of ten thousand blobs.

Run it with ``python benchmarks/plan_load.py``; ``--size-mb`` and ``--rounds`` change the work. The file was just
written, so it is read from the page cache: the time is what Dovetail adds, and not the disk's.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import safetensors.numpy

from dovetail.plan.container import Blob, PlanFile, digest_blob, plan_bytes, verify_blob, write_plan

BLOBS = 64
TARGET_S_PER_GB = 0.4


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
    small = plan_bytes(b"{}", [Blob(name=f"b.{i}", dtype="U8", shape=(1,), data=b"x") for i in range(10_000)])
    _print_row("parse 10,000 blobs and as many pads", _best_s(lambda: PlanFile.from_bytes(small).close(), args.rounds))
    verdict = "met" if verified_s / size_bytes * 1e9 < TARGET_S_PER_GB else "MISSED"
    print(f"target: open and verify under {TARGET_S_PER_GB} s a GB: {verdict}")


if __name__ == "__main__":
    main()
