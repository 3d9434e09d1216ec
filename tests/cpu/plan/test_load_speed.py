"""Loading a plan stays fast. The limits are several times what an ordinary machine needs."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from dovetail.plan.container import Blob, PlanFile, digest_blob, plan_bytes, verify_blob, write_plan


def _best_of_5_s(work: Callable[[], object]) -> float:
    times = []
    for _ in range(5):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def test_64_mb_open_and_verify_under_150_ms(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    arrays = {f"w{i}": rng.integers(0, 256, 8_000_000, np.uint8) for i in range(8)}
    digests = {name: digest_blob(array, "xxh3") for name, array in arrays.items()}
    blobs = [Blob(name=name, dtype="U8", shape=array.shape, data=array) for name, array in arrays.items()]
    write_plan(tmp_path / "m.plan", json.dumps(digests).encode(), blobs)

    def open_and_verify() -> None:
        with PlanFile.open(tmp_path / "m.plan") as file:
            file.verify_padding()
            for name, digest in json.loads(file.manifest).items():
                verify_blob(name, file.blob(name), "xxh3", digest)

    assert _best_of_5_s(open_and_verify) < 0.15


def test_10_000_blobs_are_parsed_under_250_ms() -> None:
    raw = plan_bytes(b"{}", [Blob(name=f"layer.{i}.w", dtype="U8", shape=(64,), data=bytes(64)) for i in range(10_000)])
    assert _best_of_5_s(lambda: PlanFile.from_bytes(raw).close()) < 0.25


def test_a_header_of_another_writer_is_searched_for_keys_in_reasonable_time() -> None:
    raw = plan_bytes(b"{}", [Blob(name=f"layer.{i}.w", dtype="U8", shape=(64,), data=bytes(64)) for i in range(10_000)])
    start = 8 + int.from_bytes(raw[:8], "little")
    # A space between two tokens, and padding to the next boundary: the short proof that no key came twice fails.
    spaced = raw[8:start].rstrip(b" ").replace(b'"__metadata__":', b'"__metadata__": ', 1)
    spaced = spaced.ljust(len(spaced) - (len(spaced) + 8) % -64)
    respelled = len(spaced).to_bytes(8, "little") + spaced + raw[start:]
    assert _best_of_5_s(lambda: PlanFile.from_bytes(respelled).close()) < 0.5
