"""The Python side of the C++ header: memory by address, in every type and shape."""

from __future__ import annotations

import ctypes
from functools import cache

import ml_dtypes  # noqa: F401 - gives NumPy the names of narrow types
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, helper

import dovetail as dt
from dovetail.element_types import BY_NAME
from dovetail.errors import InputError, UsageError
from dovetail.runtime.embedded.engine import EmbeddedEngine, open_engine
from dovetail.runtime.embedded.outputs import OutputResult

TYPES = ("float32", "float64", "float16", "bfloat16", "int8", "uint16", "int32", "int64", "bool")


def _open(model: ModelProto) -> EmbeddedEngine:
    """Compile a model, and load its plan from memory."""
    plan = np.frombuffer(dt.compile(model, providers=["cpu"]).serialize(), np.uint8)
    return open_engine((plan.ctypes.data, plan.nbytes), False, True, [], {}, None)


@cache
def _double(dtype: str) -> EmbeddedEngine:
    """Two of x, one after the other."""
    kind = BY_NAME[dtype].onnx_number
    ports = [[helper.make_tensor_value_info(name, kind, [rows, 2])] for name, rows in (("x", "n"), ("y", "m"))]
    graph = helper.make_graph([helper.make_node("Concat", ["x", "x"], ["y"], axis=0)], "double", *ports)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    return _open(model)


def _read(result: OutputResult, dtype: str) -> np.ndarray:
    data = ctypes.string_at(result.address, result.size_bytes)
    return np.frombuffer(data, np.dtype(dtype)).reshape(result.shape)


@given(dtype=st.sampled_from(TYPES), rows=st.lists(st.integers(0, 4), min_size=1, max_size=4), keeps=st.booleans())
def test_runs_over_any_type_and_shape(dtype: str, rows: list[int], keeps: bool) -> None:
    context, kept = _double(dtype).make_context(), []
    inputs = [np.arange(2 * count).reshape(count, 2).astype(dtype) for count in rows]
    for x in inputs:
        context.set_input(0, x.ctypes.data, x.nbytes, x.shape, False)
        context.run(0)
        if keeps:
            kept.append((context.take_output(1), np.concatenate([x, x])))
    if not keeps:
        kept.append((context.take_output(1), np.concatenate([inputs[-1]] * 2)))
    for result, expected in kept:
        np.testing.assert_array_equal(_read(result, dtype).astype(np.float64), expected.astype(np.float64))
    context.close()


def test_memory_of_the_caller_is_checked_in_bytes() -> None:
    context = _double("float16").make_context()
    x, y = np.ones((3, 2), np.float16), np.zeros((6, 2), np.float16)
    with pytest.raises(InputError, match="the memory is too small; expected 12 bytes, got 11"):
        context.set_input(0, x.ctypes.data, 11, x.shape, False)
    context.set_input(0, x.ctypes.data, 12, x.shape, False)
    context.set_output(1, y.ctypes.data, 23, False)
    with pytest.raises(InputError, match="expected 24 bytes, got 23"):
        context.run(0)
    context.set_output(1, y.ctypes.data, 24, False)
    context.run(0)
    np.testing.assert_array_equal(y, 1)


def test_a_result_is_given_once() -> None:
    context = _double("int8").make_context()
    x = np.ones((1, 2), np.int8)
    context.set_input(0, x.ctypes.data, 2, x.shape, False)
    context.run(0)
    context.take_output(1)
    with pytest.raises(UsageError, match="there is no result"):
        context.take_output(1)


def test_an_allocator_gives_memory_for_a_type_that_plugins_lack() -> None:
    graph = helper.make_graph(
        [helper.make_node("Compress", ["x", "keep"], ["y"])],
        "compress",
        [
            helper.make_tensor_value_info("x", TensorProto.DOUBLE, [4]),
            helper.make_tensor_value_info("keep", TensorProto.BOOL, [4]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.DOUBLE, ["n"])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    engine = _open(model)
    context = engine.make_context()
    x, keep = np.arange(4, dtype=np.float64), np.array([True, False, False, True])
    context.set_input(0, x.ctypes.data, 32, x.shape, False)
    context.set_input(1, keep.ctypes.data, 4, keep.shape, False)
    context.run(0)
    np.testing.assert_array_equal(_read(context.take_output(2), "float64"), [0, 3])


def test_texts_have_no_address() -> None:
    ports = [[helper.make_tensor_value_info(name, TensorProto.STRING, [2])] for name in "xy"]
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "texts", *ports)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    engine = _open(model)
    assert engine.describe()[2][0][2:4] == ("tensor(string)", 0)
    with pytest.raises(UsageError, match="which has no address"):
        engine.make_context().set_input(0, 0, 0, (2,), False)


def _identity(dtype: str) -> EmbeddedEngine:
    ports = [[helper.make_tensor_value_info(name, BY_NAME[dtype].onnx_number, ["n", 3])] for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "identity", *ports)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)])
    return _open(model)


@pytest.mark.parametrize("dtype", ["int4", "uint4", "float4_e2m1fn"])
def test_elements_of_four_bits_lie_two_to_a_byte(dtype: str) -> None:
    """Bytes after the tensor are neither read nor written."""
    context = _identity(dtype).make_context()
    x, y = np.array([0x21, 0x43, 0x65, 0x07, 0x0E, 0xFF], np.uint8), np.full(16, 0xEE, np.uint8)
    context.set_input(0, x.ctypes.data, 5, (3, 3), False)
    context.set_output(1, y.ctypes.data, 5, False)
    context.run(0)
    assert y[:5].tolist() == x[:5].tolist()
    assert (y[5:] == 0xEE).all()
    context.close()
