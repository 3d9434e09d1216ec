"""The activations, matrix products and convolutions of com.microsoft against ONNX Runtime.

BiasSplitGelu, BiasAdd, BiasSoftmax, GemmFastGelu, NhwcConv and NhwcFusedConv have no CPU kernel there: they are held to
compositions of NumPy and of ops that ONNX Runtime has.
"""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from dovetail.errors import InputError
from dovetail.providers.cpu._numeric import Array
from tests.support.ort_node import check_node, compare, run_kernel, run_ort

RNG = np.random.default_rng(3)


def _floats(*shape: int, dtype: Any = np.float32) -> Array:
    return RNG.standard_normal(shape).astype(dtype)


def _gelu(x: Array) -> Array:
    wide = x.astype(np.float64)
    return np.vectorize(lambda v: 0.5 * v * (1 + math.erf(v / math.sqrt(2))))(wide)


@pytest.mark.parametrize("op", ["Gelu", "FastGelu", "QuickGelu"])
@pytest.mark.parametrize("shape", [(2, 3, 8), (5,)])
def test_gelu_forms(op: str, shape: tuple[int, ...]) -> None:
    check_node(op, [3 * _floats(*shape)])


def test_gelu_forms_with_bias_and_alpha() -> None:
    check_node("QuickGelu", [_floats(3, 4)], {"alpha": 0.7})
    check_node("FastGelu", [_floats(2, 3, 8), _floats(8)])
    check_node("BiasGelu", [_floats(2, 3, 8), _floats(8)])


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64])
def test_gelu_in_other_types(dtype: Any) -> None:
    x = _floats(4, 6, dtype=dtype)
    for op in ("Gelu", "FastGelu", "QuickGelu", "BiasGelu"):
        inputs = [x, _floats(6, dtype=dtype)] if op == "BiasGelu" else [x]
        (narrow,) = run_kernel(op, inputs)
        (wide,) = run_kernel(op, [array.astype(np.float64) for array in inputs])
        assert narrow.dtype == x.dtype
        np.testing.assert_allclose(narrow.astype(np.float64), wide, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("op", ["FastGelu", "BiasGelu"])
def test_a_bias_of_another_length(op: str) -> None:
    with pytest.raises(InputError, match="bias"):
        run_kernel(op, [_floats(2, 4), _floats(2, 1)])


def test_bias_split_gelu_and_bias_add_are_their_formulas() -> None:
    x, bias = _floats(2, 3, 8), _floats(8)
    (y,) = run_kernel("BiasSplitGelu", [x, bias])
    moved = x + bias
    np.testing.assert_allclose(y, moved[..., :4] * _gelu(moved[..., 4:]), atol=1e-6)
    skip = _floats(2, 3, 8)
    (total,) = run_kernel("BiasAdd", [x, bias, skip])
    np.testing.assert_allclose(total, x + bias + skip, atol=1e-6)
    with pytest.raises(InputError, match="even"):
        run_kernel("BiasSplitGelu", [_floats(1, 3), _floats(3)])
    with pytest.raises(InputError, match="skip"):
        run_kernel("BiasAdd", [x, bias, skip[:1]])


@pytest.mark.parametrize(
    ("shape", "bias", "axis", "inner"),
    [
        ((2, 3, 4, 5), (5,), 3, 0),
        ((2, 3, 4, 5), (1, 1, 4, 5), -1, 0),
        ((2, 3, 4, 5), (2, 1, 1, 5), 3, 1),
        ((2, 6), (6,), 1, 0),
    ],
)
def test_bias_softmax_is_softmax_of_the_sum(
    shape: tuple[int, ...], bias: tuple[int, ...], axis: int, inner: int
) -> None:
    x, b = _floats(*shape), _floats(*bias)
    (y,) = run_kernel("BiasSoftmax", [x, b], {"axis": axis, "is_inner_broadcast": inner})
    expected = run_ort("Softmax", [x + b], {"axis": axis}, domain="")[0]
    assert expected is not None
    np.testing.assert_allclose(y, expected, atol=1e-6)


def test_bias_softmax_refuses_a_bias_that_does_not_fit() -> None:
    for inner in (0, 1):
        with pytest.raises(InputError, match="bias"):
            run_kernel("BiasSoftmax", [_floats(2, 3, 4), _floats(3, 1)], {"axis": 2, "is_inner_broadcast": inner})


@pytest.mark.parametrize("trans_a", [0, 1])
@pytest.mark.parametrize("trans_b", [0, 1])
@pytest.mark.parametrize("batch", [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_fused_matmul(trans_a: int, trans_b: int, batch: tuple[int, int]) -> None:
    def factor(rows: int, columns: int, turned: int, moved: int) -> Array:
        matrix = (columns, rows) if turned else (rows, columns)
        return _floats(matrix[0], 2, 3, matrix[1]) if moved else _floats(2, 3, *matrix)

    attributes = {"transA": trans_a, "transB": trans_b, "transBatchA": batch[0], "transBatchB": batch[1], "alpha": 0.5}
    check_node("FusedMatMul", [factor(4, 5, trans_a, batch[0]), factor(5, 6, trans_b, batch[1])], attributes)


def test_fused_matmul_in_other_ranks() -> None:
    check_node("FusedMatMul", [_floats(4, 5), _floats(5, 6)])
    check_node("FusedMatMul", [_floats(3, 4, 5), _floats(5, 6)], {"alpha": 2.0})
    check_node("FusedMatMul", [_floats(5), _floats(5, 6)])
    check_node("FusedMatMul", [_floats(4, 5), _floats(5)])
    check_node("TransposeMatMul", [_floats(5, 4), _floats(6, 5)], {"transA": 1, "transB": 1, "alpha": 3.0})
    with pytest.raises(InputError, match="inner sizes"):
        run_kernel("FusedMatMul", [_floats(4, 5), _floats(4, 6)])
    with pytest.raises(InputError, match="batch transpose"):
        run_kernel("FusedMatMul", [_floats(4, 5), _floats(5, 6)], {"transBatchA": 1})


GEMM_ACTIVATIONS = [
    *("Relu", "Tanh", "Sigmoid", "LeakyRelu", "Elu", "Selu", "Celu", "Softsign", "Softplus", "ThresholdedRelu"),
    *("HardSigmoid", "ParametricSoftplus", "ScaledTanh"),
]


@pytest.mark.parametrize("activation", GEMM_ACTIVATIONS)
def test_fused_gemm(activation: str) -> None:
    parameters = {"activation_alpha": 0.3, "activation_beta": 0.7, "activation_gamma": 1.2}
    attributes = {"activation": activation, "alpha": 0.5, "beta": 2.0, "transA": 1, "transB": 1, **parameters}
    check_node("FusedGemm", [_floats(3, 2), _floats(4, 3), _floats(4)], attributes)
    check_node("FusedGemm", [_floats(2, 3), _floats(3, 4)], {"activation": activation, **parameters})


def test_fused_gemm_refuses_what_it_does_not_know() -> None:
    factors = [_floats(2, 3), _floats(3, 4)]
    with pytest.raises(InputError, match="activation"):
        run_kernel("FusedGemm", factors, {"activation": "Clip"})
    with pytest.raises(InputError, match="activation"):
        run_kernel("FusedGemm", factors)
    with pytest.raises(InputError, match="alpha"):
        run_kernel("FusedGemm", factors, {"activation": "LeakyRelu"})


def test_gemm_fast_gelu_is_its_parts() -> None:
    x, w, bias = _floats(2, 3, 4), _floats(4, 5), _floats(5)
    for given in ((), (bias,)):
        expected = run_ort("FastGelu", [x @ w, *given])[0]
        assert expected is not None
        (y,) = run_kernel("GemmFastGelu", [x, w, *given])
        np.testing.assert_allclose(y, expected, atol=1e-5)


CONV_ACTIVATIONS = [
    *(("Relu", None), ("Tanh", None), ("Sigmoid", None), ("HardSwish", None), ("LeakyRelu", [0.3])),
    *(("Clip", [-0.5, 0.5]), ("HardSigmoid", [0.3, 0.6])),
]


@pytest.mark.parametrize(("activation", "parameters"), CONV_ACTIVATIONS)
@pytest.mark.parametrize("extra", ["", "B", "Z", "BZ"])
def test_fused_conv(activation: str, parameters: list[float] | None, extra: str) -> None:
    x, w = _floats(2, 4, 6, 5), _floats(6, 2, 3, 2)
    attributes: dict[str, Any] = {"group": 2, "strides": [2, 1], "pads": [1, 0, 2, 1], "dilations": [1, 2]}
    bias = _floats(6) if "B" in extra else None
    residual = _floats(2, 6, 4, 4) if "Z" in extra else None
    attributes |= {"activation": activation} | ({"activation_params": parameters} if parameters else {})
    check_node("FusedConv", [x, w, bias, residual], attributes)


def test_fused_conv_without_activation_and_what_it_refuses() -> None:
    x, w = _floats(1, 2, 5, 5), _floats(3, 2, 3, 3)
    check_node("FusedConv", [x, w], {"auto_pad": "SAME_LOWER", "kernel_shape": [3, 3]})
    with pytest.raises(InputError, match="'Z'"):
        run_kernel("FusedConv", [x, w, None, _floats(1, 3, 1, 1)], {"activation": "Relu"})
    with pytest.raises(InputError, match="activation_params"):
        run_kernel("FusedConv", [x, w], {"activation": "LeakyRelu"})


def test_channels_last_convolutions_are_conv_between_transposes() -> None:
    x, w, bias, residual = _floats(2, 6, 5, 4), _floats(3, 2, 3, 2), _floats(3), _floats(2, 6, 5, 3)
    attributes = {"group": 1, "pads": [1, 0, 1, 1]}
    w = _floats(3, 4, 3, 2)
    first = np.moveaxis(x, -1, 1).copy()
    expected = run_ort("Conv", [first, w, bias], attributes, domain="")[0]
    assert expected is not None
    (y,) = run_kernel("NhwcConv", [x, w, bias], attributes)
    compare(y, np.moveaxis(expected, 1, -1), rtol=1e-5, atol=1e-5)
    (fused,) = run_kernel("NhwcFusedConv", [x, w, bias, residual], attributes | {"activation": "Relu"})
    compare(fused, np.maximum(y + residual, 0), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize(
    "attributes",
    [
        {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]},
        {"kernel_shape": [2, 2], "dilations": [2, 1], "ceil_mode": 1, "strides": [2, 2]},
        {"kernel_shape": [3, 3], "auto_pad": "SAME_UPPER"},
    ],
)
def test_nhwc_max_pool(dtype: Any, attributes: dict[str, Any]) -> None:
    limits = np.iinfo(dtype)
    x = RNG.integers(limits.min, limits.max, (2, 7, 6, 3), endpoint=True).astype(dtype)
    check_node("NhwcMaxPool", [x], attributes)


def test_conv_transpose_with_dynamic_pads() -> None:
    x, w, bias = _floats(2, 4, 3, 5), _floats(4, 3, 3, 2), _floats(6)
    attributes = {"group": 2, "strides": [2, 3], "output_padding": [1, 0]}
    check_node("ConvTransposeWithDynamicPads", [x, w, np.array([1, 0, 1, 1]), bias], attributes)
    check_node("ConvTransposeWithDynamicPads", [x, w, np.array([0, 0, 0, 0])], {"group": 2})
    with pytest.raises(InputError, match="pads"):
        run_kernel("ConvTransposeWithDynamicPads", [x, w, np.array([1])], {"group": 2})
