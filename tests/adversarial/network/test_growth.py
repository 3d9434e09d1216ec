"""What a small model can make a build allocate: nodes by calls, bytes by constants that are worked out."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import dovetail
from dovetail.errors import ResourceError
from dovetail.growth import GrowthLimits
from dovetail.network.importer.importer import import_model
from dovetail.passes import standard_passes
from dovetail.passes.base import run_passes
from dovetail.passes.constant_folding import weight_bytes
from tests.support.growing_models import calling_twice, doubling, just_under_the_limit

ROOT = Path(__file__).parents[3]


@pytest.mark.skipif(sys.platform == "win32", reason="the memory of a process is asked for as POSIX has it")
@pytest.mark.parametrize(("name", "provider"), [("doubling", "onnxruntime"), ("just under the limit", "onnxruntime")])
def test_a_build_stays_below_a_gigabyte(name: str, provider: str) -> None:
    command = [sys.executable, "-m", "tests.support.growing_models", name, provider]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=100)
    assert int(done.stdout) < 1024


@pytest.mark.parametrize(
    "make", [doubling, lambda: doubling("Concat", 20), just_under_the_limit, lambda: just_under_the_limit("Expand")]
)
def test_all_folded_constants_together_have_one_budget(make: object) -> None:
    model = import_model(make())  # type: ignore[operator]
    run_passes(model, standard_passes(keep=frozenset(), limits=GrowthLimits(bytes=40 << 20)))
    assert weight_bytes(model) <= 42 << 20


def test_what_dies_on_the_way_is_given_back() -> None:
    model = import_model(doubling("Add", 200))
    run_passes(model, standard_passes(keep=frozenset(), limits=GrowthLimits(bytes=64)))
    assert [node.op_type for node in model.graph] == ["Add"]


def test_calls_without_end_are_refused_at_once() -> None:
    start = time.perf_counter()
    with pytest.raises(ResourceError, match=r"expand to 1,152,921,504,606,846,976 nodes; expected at most") as caught:
        import_model(calling_twice(60))
    assert time.perf_counter() - start < 5
    assert "growth_limits" in str(caught.value)


def test_just_below_the_node_limit_takes_seconds() -> None:
    start = time.perf_counter()
    model = import_model(calling_twice(12))
    assert len(list(model.graph)) == 4096
    assert len({node.name for node in model.graph}) == 4096
    assert time.perf_counter() - start < 20


def test_the_limits_can_be_set() -> None:
    config = dovetail.BuilderConfig()
    config.growth_limits = GrowthLimits(nodes=0)
    with pytest.raises(ResourceError):
        dovetail.compile(calling_twice(12), providers=["cpu"], config=config)
    config.growth_limits = GrowthLimits(nodes=100)
    engine = dovetail.compile(calling_twice(4), providers=["cpu"], config=config)
    np.testing.assert_array_equal(engine(np.ones(3, np.float32)), np.ones(3, np.float32))
