"""What partitions read and write: arrays of any address and shape, results that belong to the caller, every type."""

from __future__ import annotations

import gc
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import dovetail as dt
from dovetail.errors import DovetailError, ProviderError

PROVIDERS = ["openvino", "cpu"]
SIZES = {"small": 8, "large": 8 * 1024}
"""With 16 columns: below and above what is copied in place of being handed over."""


def parse(text: str, opset: int = 21) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": {opset}, "test": 1]> g {text}')


def steps_of(engine: Any) -> list[tuple[str, str]]:
    return [(step.kind, step.provider) for step in engine.manifest.programs[0].steps]


def compile_whole(text: str, opset: int = 21) -> Any:
    engine = dt.compile(parse(text, opset), providers=PROVIDERS)
    assert steps_of(engine) == [("partition", "openvino")]
    return engine


@dt.layer("TestOpenVinoCopy")
def _copy(x: Any) -> Any:
    return x.copy()


def _around_a_plugin(rows: Any) -> Any:
    """y0 = 2x and y1 = 4x, in partitions around an operator that copies: what lies between has memory of the plan."""
    nodes = "a = Add(x, x)  b = test.TestOpenVinoCopy(a)  y0 = Relu(b)  y1 = Add(b, b)"
    model = parse(f"(float[{rows}, 16] x) => (float[{rows}, 16] y0, float[{rows}, 16] y1) {{ {nodes} }}")
    engine = dt.compile(model, providers=PROVIDERS)
    assert steps_of(engine) == [("partition", "openvino"), ("plugin", "cpu"), ("partition", "openvino")]
    return engine


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("is_new", [True, False], ids=["new inputs", "the same input"])
def test_results_belong_to_the_caller(size: str, is_new: bool) -> None:
    engine, kept = _around_a_plugin(SIZES[size]), []
    x = np.zeros((SIZES[size], 16), np.float32)
    for number in range(4):
        x = np.full_like(x, number) if is_new else x
        x[...] = number
        kept.append(engine(x))
    for number, results in enumerate(kept):
        np.testing.assert_array_equal(results["y0"], np.full_like(x, 2 * number))
        np.testing.assert_array_equal(results["y1"], np.full_like(x, 4 * number))
    assert len({array.ctypes.data for results in kept for array in results.values()}) == 8


def test_shapes_may_change_with_every_run() -> None:
    engine = _around_a_plugin("n")
    for rows in (1, 3, 3, 1, 2000, 2000, 3, 0, 3):
        x = np.full((rows, 16), rows, np.float32)
        np.testing.assert_array_equal(engine(x)["y1"], 4 * x)


def test_a_shape_that_only_the_run_tells() -> None:
    engine = compile_whole("(float[n] x) => (int64[1, k] y) { y = NonZero(x) }")
    for x in ([0, 1, 2], [0, 0, 0], [1], [3, 0, 3, 0, 3]):
        np.testing.assert_array_equal(engine(np.float32(x)), np.array(np.nonzero(np.float32(x))))


@pytest.mark.parametrize("size", SIZES)
def test_inputs_that_are_not_plain_memory(size: str) -> None:
    engine = compile_whole("(float[n, m] x) => (float[n, m] y) { y = Neg(x) }")
    x = np.arange(SIZES[size] * 16, dtype=np.float32).reshape(SIZES[size], 16)
    np.testing.assert_array_equal(engine(x.T), -x.T)
    np.testing.assert_array_equal(engine(x[::2]), -x[::2])
    x.flags.writeable = False
    np.testing.assert_array_equal(engine(x), -x)


def test_no_array_of_a_caller_is_kept() -> None:
    engine = compile_whole("(float[n, 16] x) => (float[n, 16] y) { y = Neg(x) }")
    x = np.ones((SIZES["large"], 16), np.float32)
    gone = weakref.ref(x)
    engine(x)
    del x
    gc.collect()
    assert gone() is None


def test_memory_of_the_caller_is_written() -> None:
    engine = compile_whole("(float[4, 16] x) => (float[4, 16] y) { y = Neg(x) }")
    context = engine.create_execution_context()
    x, targets = np.ones((4, 16), np.float32), [np.zeros((4, 16), np.float32) for _ in range(3)]
    for number, target in enumerate([*targets, *targets]):
        x[...] = number
        context.set_tensor_address("x", x.ctypes.data)
        context.set_tensor_address("y", target.ctypes.data)
        assert context.execute_async_v3(0)
        np.testing.assert_array_equal(target, np.full_like(x, -number))
    np.testing.assert_array_equal(engine(x), -x)


TYPES = [np.float32, np.float16, ml_dtypes.bfloat16, np.int8, np.uint8, np.int16, np.uint16, np.int32, np.int64]


@pytest.mark.parametrize("dtype", TYPES, ids=lambda dtype: np.dtype(dtype).name)
@pytest.mark.parametrize("rows", [2, 3000], ids=["small", "large"])
def test_types_that_cross_a_border(dtype: Any, rows: int) -> None:
    number = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    ports = [helper.make_tensor_value_info(name, number, ["n", 8]) for name in "xy"]
    nodes = [helper.make_node("Transpose", ["x"], ["h"]), helper.make_node("Transpose", ["h"], ["y"], perm=[1, 0])]
    graph = helper.make_graph(nodes, "types", ports[:1], ports[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    engine = dt.compile(model, providers=PROVIDERS)
    assert steps_of(engine) == [("partition", "openvino")]
    x = np.arange(rows * 8).reshape(rows, 8).astype(dtype)
    result = engine(x)
    assert result.dtype == x.dtype
    np.testing.assert_array_equal(result, x)


def test_integers_that_do_not_fit_32_bits_are_an_error() -> None:
    engine = compile_whole("(int64[n] x) => (int64[1, n] y) <int64[1] axes = {0}> { y = Unsqueeze(x, axes) }")
    np.testing.assert_array_equal(engine(np.array([2**31 - 1, -(2**31)])), [[2**31 - 1, -(2**31)]])
    for wrong in ([2**31], [0, -(2**31) - 1]):
        with pytest.raises(ProviderError, match="OpenVINO computes in 32 bits; expected smaller integers, got"):
            engine(np.array(wrong))


def test_an_error_of_openvino_is_one_line() -> None:
    engine = compile_whole("(float[n] x, float[m] y) => (float[k] z) { z = Add(x, y) }")
    with pytest.raises(DovetailError) as caught:
        engine(np.ones(2, np.float32), np.ones(3, np.float32))
    assert "\n" not in str(caught.value).split("\n  fix:")[0]


# weights


def _with_weight(rows: int) -> onnx.ModelProto:
    model = parse(f"(float[n, {rows}] x) => (float[n, 8] y) {{ y = MatMul(x, w) }}")
    model.graph.initializer.append(numpy_helper.from_array(_weight(rows, 0), "w"))
    return model


def _weight(rows: int, seed: int) -> Any:
    return np.random.default_rng(seed).standard_normal((rows, 8)).astype(np.float32)


@pytest.mark.parametrize("rows", [4, 4096], ids=["small", "large"])
def test_every_way_of_loading_reads_the_same_weights(rows: int, tmp_path: Path) -> None:
    engine = dt.compile(_with_weight(rows), providers=PROVIDERS)
    engine.save(tmp_path / "m.plan")
    shared = dt.Runtime().deserialize_cuda_engine((tmp_path / "m.plan").read_bytes())
    x = np.ones((2, rows), np.float32)
    for one in (engine, dt.load(tmp_path / "m.plan"), shared):
        np.testing.assert_allclose(one(x), x @ _weight(rows, 0), rtol=1e-4, atol=1e-4)


def test_a_large_weight_is_stored_once(tmp_path: Path) -> None:
    dt.compile(_with_weight(4096), providers=PROVIDERS).save(tmp_path / "m.plan")
    size_bytes = _weight(4096, 0).nbytes
    assert size_bytes < (tmp_path / "m.plan").stat().st_size < 1.2 * size_bytes


@pytest.mark.parametrize("rows", [4, 4096], ids=["small", "large"])
def test_weights_can_be_replaced(rows: int, tmp_path: Path) -> None:
    config = dt.BuilderConfig()
    config.set_flag(dt.BuilderFlag.REFIT)
    dt.compile(_with_weight(rows), providers=PROVIDERS, config=config).save(tmp_path / "m.plan")
    engine = dt.load(tmp_path / "m.plan")
    refitter = dt.Refitter(engine)
    refitter.set_named_weights("w", _weight(rows, 1))
    assert refitter.refit_cuda_engine()
    x = np.ones((2, rows), np.float32)
    np.testing.assert_allclose(engine(x), x @ _weight(rows, 1), rtol=1e-4, atol=1e-4)


# control flow and threads


def test_control_flow_is_taken_whole() -> None:
    branches = "then_branch = t () => (float[n] a) { a = Neg(x) }, else_branch = e () => (float[n] b) { b = Abs(x) }"
    engine = compile_whole(f"(bool c, float[n] x) => (float[n] y) {{ y = If <{branches}> (c) }}")
    x = np.float32([1, -2])
    np.testing.assert_array_equal(engine(np.array(True), x), -x)
    np.testing.assert_array_equal(engine(np.array(False), x), abs(x))


def test_threads_run_at_the_same_time() -> None:
    engine = _around_a_plugin("n")

    def run(number: int) -> bool:
        x = np.full((1 + number % 7, 16), number, np.float32)
        return bool((engine(x)["y1"] == 4 * x).all())

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(run, range(40)))
