"""Optional limits of a run: time and memory, with an error that names them and an engine that still runs afterwards."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser

import dovetail
from dovetail.errors import ResourceError, UsageError

PROVIDERS = ["cpu", "onnxruntime"]
LOOP = """<ir_version: 10, opset_import: ["" : 21]> g (float[N] x, int64 n) => (float[N] y, float[M,N] z) {
    y, z = Loop (n, "", x) <body = b (int64 i, bool k, float[N] v) => (bool k2, float[N] v2, float[N] o) {
        k2 = Identity(k) v2 = Neg(v) o = Abs(v) }> }"""
WIDE = """<ir_version: 10, opset_import: ["" : 21]> g (float[N] x, int64[1] s) => (float[N] y) {
    a = Expand(x, s) b = ReduceSum<keepdims = 0>(a) y = Add(x, b) }"""


def _engine(text: str, provider: str, **options: Any) -> dovetail.Engine:
    model: onnx.ModelProto = parser.parse_model(text)
    return dovetail.compile(model, providers=[provider], **options)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_run_without_end_ends_in_time(provider: str) -> None:
    engine = _engine(
        LOOP.replace(", float[M,N] z", "").replace("y, z =", "y =").replace(", float[N] o)", ")"), provider
    )
    one = np.ones(2, np.float32)
    engine.run_limits = dovetail.RunLimits(time_s=0.5)
    start = time.perf_counter()
    with pytest.raises(ResourceError, match=r"the run takes longer than its limit; expected at most 0\.5 s"):
        engine(one, np.array(2**62))
    assert time.perf_counter() - start < 10
    np.testing.assert_array_equal(engine(one, np.array(3)), -one)
    engine.run_limits = None
    np.testing.assert_array_equal(engine(one, np.array(2)), one)


def test_what_a_loop_collects_is_counted() -> None:
    engine = _engine(LOOP, "cpu")
    engine.run_limits = dovetail.RunLimits(memory_bytes=1 << 20)
    with pytest.raises(ResourceError, match="take more memory than its limit"):
        engine(np.ones(1000, np.float32), np.array(2**62))
    assert engine(np.ones(1000, np.float32), np.array(4))["z"].shape == (4, 1000)


def test_memory_is_refused_before_it_is_taken() -> None:
    engine = _engine(WIDE, "cpu")
    engine.run_limits = dovetail.RunLimits(memory_bytes=1 << 20)
    with pytest.raises(ResourceError, match="take more memory than its limit"):
        engine(np.ones(1, np.float32), np.array([1 << 20]))
    with pytest.raises(ResourceError, match="take more memory than its limit"):
        engine(np.ones(300_000, np.float32), np.array([300_000]))
    assert engine(np.ones(1, np.float32), np.array([10])) == [11]


def test_the_memory_of_a_profile_is_counted_too() -> None:
    text = '<ir_version: 10, opset_import: ["" : 21]> g (float[N] x) => (float[N] y) { a = Neg(x) y = Abs(a) }'
    engine = _engine(text, "cpu", shapes={"x": ((1,), (8,), (1 << 22,))})
    engine.run_limits = dovetail.RunLimits(memory_bytes=1 << 20)
    with pytest.raises(ResourceError, match="take more memory than its limit"):
        engine(np.ones(8, np.float32))


@pytest.mark.parametrize("limits", [{"time_s": 0}, {"memory_bytes": -1}, {"time_s": float("nan")}])
def test_a_limit_is_a_positive_number(limits: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="not a limit"):
        dovetail.RunLimits(**limits)
