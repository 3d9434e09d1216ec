"""SAME padding with dilated or sparse windows: ONNX Runtime is used only where it follows ONNX."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import dovetail as dt

OPS = ["Conv", "ConvTranspose", "MaxPool", "AveragePool", "LpPool", "ConvInteger"]


def _model(op: str, *, auto_pad: str, size: Any, kernel: int, stride: int, dilation: int) -> Any:
    attributes: dict[str, Any] = {"auto_pad": auto_pad, "strides": [stride], "dilations": [dilation]}
    is_integer = op == "ConvInteger"
    weights = []
    if op.startswith("Conv"):
        values = np.arange(2 * 2 * kernel).reshape(2, 2, kernel) - kernel
        weights = [numpy_helper.from_array(values.astype(np.int8 if is_integer else np.float32), "w")]
    else:
        attributes["kernel_shape"] = [kernel]
    node = helper.make_node(op, ["x", *(weight.name for weight in weights)], ["y"], **attributes)
    graph = helper.make_graph(
        [node],
        "same",
        [helper.make_tensor_value_info("x", TensorProto.UINT8 if is_integer else TensorProto.FLOAT, [1, 2, size])],
        [helper.make_tensor_value_info("y", TensorProto.INT32 if is_integer else TensorProto.FLOAT, None)],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)


def _check(op: str, length: int, **settings_: Any) -> None:
    model = _model(op, **settings_)
    x = (np.arange(2 * length).reshape(1, 2, length) * 7 % 11).astype(np.uint8 if op == "ConvInteger" else np.float32)
    expected = dt.compile(model, providers=["cpu"])(x)
    result = dt.compile(model, providers=["onnxruntime", "cpu"])(x)
    assert result.shape == expected.shape
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("op", OPS)
def test_dilated_windows_are_padded_by_their_dilated_size(op: str, auto_pad: str) -> None:
    _check(op, 9, auto_pad=auto_pad, size=9, kernel=3, stride=2, dilation=2)


@pytest.mark.parametrize("op", ["MaxPool", "ConvTranspose"])
def test_windows_with_gaps_between_them_have_the_size_that_onnx_says(op: str) -> None:
    _check(op, 9, auto_pad="SAME_UPPER", size=9, kernel=2, stride=3, dilation=1)


@settings(max_examples=25, deadline=None)
@given(
    op=st.sampled_from(OPS),
    auto_pad=st.sampled_from(["SAME_UPPER", "SAME_LOWER"]),
    size=st.integers(6, 13),
    kernel=st.integers(1, 3),
    stride=st.integers(1, 4),
    dilation=st.integers(1, 3),
    is_dynamic=st.booleans(),
)
def test_same_padding_is_the_same_with_and_without_onnxruntime(
    op: str, auto_pad: str, size: int, kernel: int, stride: int, dilation: int, is_dynamic: bool
) -> None:
    dim = "n" if is_dynamic else size
    _check(op, size, auto_pad=auto_pad, size=dim, kernel=kernel, stride=stride, dilation=dilation)
