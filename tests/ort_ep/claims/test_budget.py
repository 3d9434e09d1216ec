"""A session's limit on memory decides how many nodes are taken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest

import dovetail as dt
from onnxruntime_ep_dovetail.session.options import read_options
from tests.support.ort_ep import EP, RUNTIME
from tests.support.ort_models import make_model, node, tensor

pytestmark = pytest.mark.versions

KEY = "session.resource_cuda_partitioning_settings"
Open = Callable[..., Any]
WEIGHTS = {f"w{i}": np.full((256, 256), i, np.float32) for i in range(6)}


@dt.layer("BudgetTwice")
def _twice(x: Any) -> Any:
    return x + x


def _chain(last: str = "MatMul") -> onnx.ModelProto:
    """Six products, 257 kB each; the last node may be another one."""
    values = ["x", *(f"v{i}" for i in range(5)), "y"]
    steps = [node("MatMul", [values[i], f"w{i}"], [values[i + 1]]) for i in range(6)]
    if last != "MatMul":
        steps[-1] = node(last, [values[5]], ["y"], domain="trt.plugins")
    domains = ["trt.plugins"] if last != "MatMul" else []
    return make_model(steps, [tensor("x", [1, 256])], [tensor("y", [1, 256])], WEIGHTS, domains=domains)


needs_limits = pytest.mark.skipif(RUNTIME < (1, 26), reason="before 1.26 ONNX Runtime wants a file of statistics too")


@needs_limits
@pytest.mark.parametrize("route", ["compile", "kernels"])
@pytest.mark.parametrize(("limit", "count"), [("100,", 0), ("300,", 1), ("600,", 2), ("10000,", 6), (",", 6)])
def test_nodes_are_taken_as_long_as_they_fit(
    dovetail_session: Open, assigned: Open, limit: str, count: int, route: str
) -> None:
    session = dovetail_session(_chain(), fallback=True, claim="all", route=route, entries={KEY: limit})
    assert len(assigned(session).get(EP, [])) == count
    session.run(None, {"x": np.ones((1, 256), np.float32)})


@needs_limits
def test_plugins_are_taken_whatever_they_cost(dovetail_session: Open, assigned: Open) -> None:
    session = dovetail_session(_chain("BudgetTwice"), fallback=True, claim="all", entries={KEY: "300,"})
    assert assigned(session)[EP] == ["BudgetTwice", "MatMul"]


def test_limits_that_are_none() -> None:
    with pytest.raises(dt.UsageError, match="not a number of kilobytes"):
        read_options({KEY: "much,"})
    with pytest.raises(dt.UsageError, match="no file of statistics is read"):
        read_options({KEY: "300,stats.csv"})
