"""The channels-last ops against the channels-first kernels between two transposes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.errors import InputError
from dovetail.providers.cpu._numeric import Array
from tests.support.ort_node import run_kernel

NHWC = "com.ms.internal.nhwc"
RNG = np.random.default_rng(7)


def _floats(*shape: int, dtype: Any = np.float32) -> Array:
    return RNG.standard_normal(shape).astype(dtype)


def _check(
    op: str,
    x: Array,
    others: tuple[Array | None, ...] = (),
    attributes: dict[str, Any] | None = None,
    *,
    opset: int = 21,
    outputs: int = 1,
    images: int = 1,
) -> None:
    """``x`` has its channels second."""
    first = run_kernel(op, [x, *others], attributes, domain="", opset=opset, outputs=outputs)
    moved = np.ascontiguousarray(np.moveaxis(x, 1, -1))
    last = run_kernel(op, [moved, *others], attributes, domain=NHWC, opset=opset, outputs=outputs)
    assert len(first) == len(last) == outputs
    for index, (ours, theirs) in enumerate(zip(last, first, strict=True)):
        expected = np.moveaxis(theirs, 1, -1) if index < images else theirs
        assert ours.flags.c_contiguous
        assert ours.dtype == expected.dtype
        np.testing.assert_array_equal(ours, expected)


POOL = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}


@pytest.mark.parametrize("opset", [1, 11, 21])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_conv(opset: int, dtype: Any) -> None:
    x, w, b = _floats(2, 4, 6, 5, dtype=dtype), _floats(6, 2, 3, 2, dtype=dtype), _floats(6, dtype=dtype)
    attributes = {"group": 2, "strides": [2, 1], "pads": [1, 0, 2, 1], "dilations": [1, 2]}
    _check("Conv", x, (w, b), attributes, opset=opset)
    _check("Conv", x, (w,), {"group": 2, "auto_pad": "SAME_UPPER"}, opset=opset)


@pytest.mark.parametrize("rank", [1, 3])
def test_conv_in_other_ranks(rank: int) -> None:
    _check("Conv", _floats(1, 3, *[4] * rank), (_floats(2, 3, *[2] * rank),))


def test_conv_transpose() -> None:
    attributes = {"group": 2, "strides": [2, 3], "pads": [1, 0, 1, 1], "output_padding": [1, 0]}
    _check("ConvTranspose", _floats(2, 4, 3, 5), (_floats(4, 3, 3, 2), _floats(6)), attributes)
    _check("ConvTranspose", _floats(1, 2, 3, 3), (_floats(2, 1, 3, 3),), {"output_shape": [6, 6], "strides": [2, 2]})


@pytest.mark.parametrize("opset", [9, 14, 15])
def test_batch_normalization(opset: int) -> None:
    vectors = (_floats(3), _floats(3), _floats(3), np.abs(_floats(3)))
    _check("BatchNormalization", _floats(2, 3, 4, 5), vectors, {"epsilon": 0.1}, opset=opset)
    if opset >= 14:
        training = {"training_mode": 1, "momentum": 0.4}
        _check("BatchNormalization", _floats(2, 3, 4, 5), vectors, training, opset=opset, outputs=3)


@pytest.mark.parametrize("opset", [1, 8, 12])
def test_max_pool(opset: int) -> None:
    _check("MaxPool", _floats(2, 3, 7, 6), (), POOL, opset=opset)
    if opset >= 8:
        _check("MaxPool", _floats(2, 3, 7, 6), (), POOL | {"storage_order": 1}, opset=opset, outputs=2, images=2)


def test_max_pool_of_bytes_and_with_all_attributes() -> None:
    x = RNG.integers(-128, 127, (1, 2, 6, 6)).astype(np.int8)
    _check("MaxPool", x, (), {"kernel_shape": [2, 2], "dilations": [2, 1], "ceil_mode": 1, "strides": [2, 2]})


@pytest.mark.parametrize("opset", [7, 10, 11, 19])
def test_average_pool(opset: int) -> None:
    _check("AveragePool", _floats(2, 3, 7, 6), (), POOL | {"count_include_pad": 1}, opset=opset)
    if opset >= 19:
        _check("AveragePool", _floats(2, 3, 7, 6), (), POOL | {"ceil_mode": 1, "dilations": [2, 1]}, opset=opset)


@pytest.mark.parametrize("opset", [11, 18])
def test_lp_pool(opset: int) -> None:
    _check("LpPool", _floats(2, 3, 7, 6), (), POOL | {"p": 3}, opset=opset)


@pytest.mark.parametrize("op", ["GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"])
def test_global_pools(op: str) -> None:
    _check(op, _floats(2, 3, 4, 5), (), {"p": 3} if op == "GlobalLpPool" else None)


@settings(max_examples=15, deadline=None)
@given(st.tuples(*[st.integers(1, 5)] * 4), st.integers(1, 3), st.integers(1, 2))
def test_conv_of_any_shape(shape: tuple[int, int, int, int], filters: int, stride: int) -> None:
    attributes = {"pads": [1, 1, 1, 1], "strides": [stride, 1]}
    _check("Conv", _floats(*shape), (_floats(filters, shape[1], 2, 2),), attributes)


@pytest.mark.parametrize(
    ("activation", "parameters", "function"),
    [
        ("Relu", None, lambda y: np.maximum(y, 0)),
        ("LeakyRelu", [0.25], lambda y: np.where(y < 0, 0.25 * y, y)),
        ("Clip", [-0.5, 0.25], lambda y: np.clip(y, -0.5, 0.25)),
        ("HardSigmoid", [0.25, 0.5], lambda y: np.clip(0.25 * y + 0.5, 0, 1)),
        ("Tanh", None, np.tanh),
    ],
)
def test_the_activation_of_a_result(activation: str, parameters: Any, function: Any) -> None:
    x, w = _floats(1, 5, 4, 2), _floats(3, 2, 2, 2)
    (plain,) = run_kernel("Conv", [x, w], domain=NHWC)
    attributes = {"activation": activation} | ({"activation_params": parameters} if parameters else {})
    (y,) = run_kernel("Conv", [x, w], attributes, domain=NHWC)
    np.testing.assert_allclose(y, function(plain), rtol=1e-6)
    (pooled,) = run_kernel("AveragePool", [x], attributes | {"kernel_shape": [1, 1]}, domain=NHWC)
    np.testing.assert_allclose(pooled, function(x), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    "attributes",
    [{"activation": "Gelu"}, {"activation": "Clip"}, {"activation": "Relu", "activation_params": [1.0]}],
)
def test_an_activation_it_does_not_know(attributes: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="activation"):
        run_kernel("Conv", [_floats(1, 5, 4, 2), _floats(3, 2, 2, 2)], attributes, domain=NHWC)


def test_an_image_without_channels() -> None:
    with pytest.raises(InputError, match="channel"):
        run_kernel("GlobalMaxPool", [_floats(3)], domain=NHWC)
