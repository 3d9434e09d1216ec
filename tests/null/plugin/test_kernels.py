"""Launches of kernels that plugins bring: stored, read back, computed for shapes, and refused where they are wrong."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.errors import PlanCorruptError, PluginError
from dovetail.expr import Constant, DimensionOperation, Expr, Operation, SizeTensor, evaluate
from dovetail.plugin.kernels import KernelLaunch, decode_launch, encode_launch

ONE = Constant(1)
RANKS = (2, 1)
dims = st.sampled_from([KernelLaunch.name_dimension(i, axis) for i, rank in enumerate(RANKS) for axis in range(rank)])
exprs = st.recursive(
    st.integers(0, 9).map(Constant) | dims,
    lambda inner: st.builds(
        Operation,
        st.sampled_from([DimensionOperation.SUM, DimensionOperation.PROD, DimensionOperation.MAX]),
        inner,
        inner,
    ),
    max_leaves=4,
)


def make(grid: Expr = ONE, block: Expr = ONE, *arguments: Expr, name: str = "k") -> KernelLaunch:
    return KernelLaunch(
        name=name,
        code=b"code",
        grid=(grid, ONE, ONE),
        block=(block, ONE, ONE),
        shared_bytes=Constant(0),
        arguments=arguments,
    )


@given(exprs, exprs, st.tuples(st.integers(0, 30), st.integers(0, 30), st.integers(0, 30)))
def test_a_launch_comes_back_and_is_computed_for_shapes(grid: Any, argument: Any, sizes: tuple[int, int, int]) -> None:
    stored = decode_launch(encode_launch(make(grid, ONE, argument), "here"), "here")
    values = {"input0.0": sizes[0], "input0.1": sizes[1], "input1.0": sizes[2]}
    shape = stored.at([sizes[:2], sizes[2:]], "here")
    assert stored.name == "k"
    assert shape.grid[0] == evaluate(grid, values)
    assert shape.arguments == (evaluate(argument, values),)
    assert shape.is_empty == (shape.grid[0] == 0)


@pytest.mark.parametrize(
    ("launch", "expected"),
    [
        (make(Constant(-1)), "cannot be launched"),
        (make(Constant(2**31)), "cannot be launched"),
        (make(ONE, Constant(0)), "cannot be launched"),
        (make(ONE, Constant(1025)), "cannot be launched"),
        (make(ONE, ONE, Constant(2**31)), "does not fit 32 bits"),
        (make(KernelLaunch.name_dimension(5, 0)), "has no value"),
        (make(Operation(DimensionOperation.FLOOR_DIV, ONE, KernelLaunch.name_dimension(0, 0))), "divides by zero"),
    ],
)
def test_launches_that_no_device_takes_are_refused(launch: KernelLaunch, expected: str) -> None:
    stored = decode_launch(encode_launch(launch, "here"), "here")
    with pytest.raises(PluginError, match=expected):
        stored.at([(0, 4), (3,)], "here")


@pytest.mark.parametrize("launch", [make(name=""), make(SizeTensor(0, ONE, ONE)), make(3)])  # type: ignore[arg-type]
def test_what_a_plan_could_not_run_is_not_stored(launch: KernelLaunch) -> None:
    with pytest.raises(PluginError):
        encode_launch(launch, "here")


@pytest.mark.parametrize(
    "change",
    [
        {"name": ""},
        {"name": "k" * 5000},
        {"grid": [1, 1]},
        {"grid": [1, 1, {"a": 1}]},
        {"block": [1, 1, ["pow", 1, 2]]},
        {"shared_bytes": True},
        {"arguments": [1] * 5000},
        {"more": 1},
    ],
)
def test_damaged_launches_are_refused(change: dict[str, Any]) -> None:
    document = json.loads(encode_launch(make(), "here")) | change
    with pytest.raises(PlanCorruptError, match="launch of a kernel is malformed"):
        decode_launch(msgspec.json.encode(document), "step 'a'")
