"""A plan with 200 MB of weights: loaded in well under a second with every digest checked, and mapped, not copied."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import dovetail as dt

SHAPE = (5, 10_000_000)
SIZE_BYTES = 4 * 50_000_000
STATM = Path("/proc/self/statm")
SMAPS = Path("/proc/self/smaps_rollup")


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One plan of five weights, each looked at by one kernel that takes a column of it."""
    builder = dt.Builder()
    network = builder.create_network()
    x = network.add_input("x", dt.float32, (1,))
    total = x
    for row in range(SHAPE[0]):
        weights = network.add_constant((SHAPE[1],), np.zeros(SHAPE[1], np.float32)).get_output(0)
        column = network.add_slice(weights, (row,), (1,), (1,)).get_output(0)
        total = network.add_elementwise(total, column, dt.ElementWiseOperation.SUM).get_output(0)
    network.mark_output(total)
    config = builder.create_builder_config()
    config.set_flag(dt.BuilderFlag.REFIT)  # or the slices of constants would be folded into constants
    path = tmp_path_factory.mktemp("big") / "big.plan"
    path.write_bytes(builder.build_serialized_network(network, config))
    yield path
    path.unlink()


def _anonymous_bytes() -> int:
    """Memory of this process that is no file's; pages of a mapped file can be dropped at any time and do not count."""
    if not SMAPS.exists():
        pytest.skip("this system does not tell which memory is a file's")
    lines = dict(line.split(":") for line in SMAPS.read_text().splitlines()[1:])
    return int(lines["Anonymous"].split()[0]) * 1024


def test_the_plan_is_as_large_as_its_weights(plan: Path) -> None:
    assert SIZE_BYTES < plan.stat().st_size < SIZE_BYTES + 2**20


def test_it_loads_in_well_under_a_second(plan: Path) -> None:
    times = []
    for _ in range(3):
        start, used = time.perf_counter(), time.process_time()
        with dt.load(plan) as engine:
            # On a busy machine the processor time is the truer one.
            times.append(min(time.perf_counter() - start, time.process_time() - used))
            assert len(engine.manifest.blobs) >= SHAPE[0]
    assert min(times) < 0.5


def test_weights_are_mapped_and_not_copied(plan: Path) -> None:
    dt.load(plan).close()  # imports and caches are paid for
    gc.collect()
    before = _anonymous_bytes()
    engine = dt.load(plan)
    np.testing.assert_array_equal(engine(np.ones(1, np.float32)), 1.0)
    grown = _anonymous_bytes() - before
    assert grown < SIZE_BYTES // 20
    big = [a for a in (engine.blobs.array(name) for name in engine.manifest.blobs) if a.nbytes > 2**20]
    assert sum(array.nbytes for array in big) == SIZE_BYTES
    assert not any(array.flags.owndata or array.flags.writeable for array in big)


def test_two_engines_share_the_memory_of_one_file(plan: Path) -> None:
    gc.collect()
    before = _anonymous_bytes()
    engines = [dt.load(plan) for _ in range(4)]
    assert _anonymous_bytes() - before < SIZE_BYTES // 10
    for engine in engines:
        engine.close()


def test_a_flipped_bit_in_the_weights_is_found(plan: Path) -> None:
    with plan.open("r+b") as file:
        file.seek(SIZE_BYTES // 2)
        file.write(b"\1")
    try:
        with pytest.raises(dt.PlanCorruptError, match="does not match its xxh3 digest"):
            dt.load(plan)
    finally:
        with plan.open("r+b") as file:
            file.seek(SIZE_BYTES // 2)
            file.write(b"\0")
    dt.load(plan).close()
