"""The ops of com.microsoft on quantized tensors against ONNX Runtime.

Its CPU kernels round in their own order, so that an element in a hundred may be one step off. On a CPU without VNNI
they also saturate sums of two products of uint8 and int8, so signed factors stay within seven bits. What has no CPU
kernel there (QLinearReduceMean, MulInteger, ReduceSumInteger, absent zero points) is held to exact integer arithmetic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from dovetail.errors import InputError
from dovetail.providers.cpu._numeric import Array
from tests.support.ort_node import check_node, run_kernel, run_ort

RNG = np.random.default_rng(11)
BYTES = [np.uint8, np.int8]


def _bytes(dtype: Any, *shape: int) -> Array:
    limits = np.iinfo(dtype)
    return RNG.integers(limits.min, limits.max, shape, endpoint=True).astype(dtype)


def _factor(dtype: Any, *shape: int) -> Array:
    """The right factor of a product, in seven bits when it is signed."""
    return _bytes(dtype, *shape) // np.int8(2) if dtype == np.int8 else _bytes(dtype, *shape)


def _floats(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def _scale(value: Any) -> Array:
    return np.array(value, np.float32)


def _check(
    op: str,
    inputs: Sequence[Array | None],
    attributes: Mapping[str, Any] | None = None,
    *,
    constants: Sequence[int] = (),
    off: float = 0.01,
) -> None:
    """Equal, but for a share ``off`` of elements that may be one step away."""
    (theirs,) = run_ort(op, inputs, attributes, constants=constants)
    (ours,) = run_kernel(op, inputs, attributes)
    assert theirs is not None
    assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
    steps = np.abs(ours.astype(int) - theirs.astype(int))
    assert steps.max(initial=0) <= 1
    assert np.count_nonzero(steps) <= off * steps.size


@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("op", ["QLinearAdd", "QLinearMul"])
@pytest.mark.parametrize("shapes", [((3, 40), (3, 40)), ((3, 1, 5), (4, 1)), ((2, 3), ()), ((), (2, 3))])
def test_sums_and_products(dtype: Any, op: str, shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    left, right = (_bytes(dtype, *shape) for shape in shapes)
    zeros = [np.array(value, dtype) for value in (7, 100, 20)]
    scale = 0.0317 if op == "QLinearAdd" else 0.4127
    _check(op, [left, _scale(0.0213), zeros[0], right, _scale(0.0519), zeros[1], _scale(scale), zeros[2]])


@pytest.mark.parametrize("op", ["QLinearAdd", "QLinearMul"])
def test_an_absent_zero_point_is_zero(op: str) -> None:
    x, zero = _bytes(np.int8, 4, 5), np.zeros((), np.int8)
    present = run_kernel(op, [x, _scale(0.02), zero, x, _scale(0.05), zero, _scale(0.1), zero])
    absent = run_kernel(op, [x, _scale(0.02), None, x, _scale(0.05), None, _scale(0.1)])
    np.testing.assert_array_equal(present, absent)
    with pytest.raises(InputError, match="broadcast"):
        run_kernel(op, [x, _scale(0.02), None, x[:3], _scale(0.05), None, _scale(0.1)])
    with pytest.raises(InputError, match="one element"):
        run_kernel(op, [x, _scale([0.02, 0.02]), None, x, _scale(0.05), None, _scale(0.1)])
    with pytest.raises(InputError, match="type"):
        run_kernel(op, [x, _scale(0.02), np.zeros((), np.uint8), x, _scale(0.05), None, _scale(0.1)])


@pytest.mark.parametrize("dtype", BYTES)
def test_activations(dtype: Any) -> None:
    x = _bytes(dtype, 6, 50)
    shared = [x, _scale(0.04), np.array(10, dtype)]
    _check("QLinearSigmoid", [*shared, _scale(1 / 256), np.array(0, dtype)])
    _check("QLinearLeakyRelu", [*shared, _scale(0.03), np.array(5, dtype)])
    _check("QLinearLeakyRelu", [*shared, _scale(0.03), np.array(5, dtype)], {"alpha": 0.3})


@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("opset", [12, 13])
@pytest.mark.parametrize("axis", [-1, 1, 0])
def test_softmax(dtype: Any, opset: int, axis: int) -> None:
    x, zero = _bytes(dtype, 3, 4, 30), np.array(np.iinfo(dtype).min, dtype)
    inputs = [x, _scale(0.02), np.array(3, dtype), _scale(1 / 256), zero]
    _check("QLinearSoftmax", inputs, {"axis": axis, "opset": opset}, off=0.03)


@pytest.mark.parametrize("dtype", BYTES)
def test_where_and_concat(dtype: Any) -> None:
    zeros = [np.array(value, dtype) for value in (7, 100, 20)]
    condition = RNG.integers(0, 2, (3, 20)).astype(bool)
    x, y = _bytes(dtype, 3, 20), _bytes(dtype, 1, 20)
    _check("QLinearWhere", [condition, x, _scale(0.1), zeros[0], y, _scale(0.2), zeros[1], _scale(0.15), zeros[2]])
    _check("QLinearWhere", [condition, x, _scale(0.1), zeros[0], y, _scale(0.2), zeros[1], _scale(0.1), zeros[0]])
    parts = [x, _scale(0.1), zeros[0], _bytes(dtype, 3, 5), _scale(0.2), zeros[1]]
    _check("QLinearConcat", [_scale(0.15), zeros[2], *parts], {"axis": 1}, constants=(0, 1, 3, 4, 6, 7))
    _check("QLinearConcat", [_scale(0.1), zeros[0], *parts], {"axis": -1})


def test_concat_refuses_misfits() -> None:
    x, zero = _bytes(np.uint8, 3, 4), np.array(1, np.uint8)
    with pytest.raises(InputError, match="outside the axis"):
        run_kernel("QLinearConcat", [_scale(0.1), zero, x, _scale(1), zero, x[:2], _scale(1), zero], {"axis": 1})
    with pytest.raises(InputError, match="each"):
        run_kernel("QLinearConcat", [_scale(0.1), zero, x, _scale(1)], {"axis": 1})
    with pytest.raises(InputError, match="type"):
        run_kernel("QLinearConcat", [_scale(0.1), zero.astype(np.int8), x, _scale(1), zero], {"axis": 1})


@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("last", [0, 1])
def test_pools(dtype: Any, last: int) -> None:
    x = _bytes(dtype, 2, 7, 6, 5)
    shared = [x, _scale(0.0731), np.array(12, dtype), _scale(0.0617), np.array(9, dtype)]
    _check("QLinearGlobalAveragePool", shared, {"channels_last": last})
    for attributes in (
        {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]},
        {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1], "count_include_pad": 1},
        {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1},
        {"kernel_shape": [3, 3], "auto_pad": "SAME_UPPER"},
    ):
        _check("QLinearAveragePool", shared, attributes | {"channels_last": last})


@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("axes", [[1], [0, -1], []])
def test_reduce_mean_is_the_mean(keepdims: int, axes: list[int]) -> None:
    x = _bytes(np.int8, 3, 4, 5)
    inputs = [x, _scale(0.5), np.array(2, np.int8), _scale(0.25), np.array(3, np.int8)]
    (y,) = run_kernel("QLinearReduceMean", inputs, {"axes": axes, "keepdims": keepdims})
    mean = np.mean((x.astype(float) - 2) * 0.5, axis=tuple(axes) or None, keepdims=bool(keepdims))
    np.testing.assert_array_equal(y, np.clip(np.rint(mean / 0.25) + 3, -128, 127))


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("dtype", BYTES)
def test_conv(last: int, per_channel: bool, dtype: Any) -> None:
    x = _bytes(dtype, 2, 6, 5, 4) if last else _bytes(dtype, 2, 4, 6, 5)
    w_scale = _scale(np.linspace(0.01, 0.03, 6)) if per_channel else _scale(0.02)
    w_zero = np.zeros(6 if per_channel else (), np.int8)
    bias = RNG.integers(-50, 50, 6).astype(np.int32)
    inputs = [
        *(x, _scale(0.05), np.array(7, dtype), _factor(np.int8, 6, 2, 3, 2), w_scale, w_zero),
        *(_scale(0.4), np.array(30, dtype), bias),
    ]
    attributes = {"channels_last": last, "group": 2, "pads": [1, 0, 1, 1], "strides": [2, 1], "kernel_shape": [3, 2]}
    _check("QLinearConv", inputs, attributes, constants=(3, 4, 5, 8))


COLUMNS = [(_scale(0.1), 3), (_scale([0.1, 0.2, 0.3, 0.4]), [1, 2, 3, 4])]


@pytest.mark.parametrize(("b_scale", "b_zero"), COLUMNS)
@pytest.mark.parametrize("kinds", [(np.uint8, np.int8), (np.uint8, np.uint8), (np.int8, np.int8)])
def test_matmul_integer_to_float(b_scale: Array, b_zero: Any, kinds: tuple[Any, Any]) -> None:
    left, right = _bytes(kinds[0], 2, 5, 3), _factor(kinds[1], 3, 4)
    zeros = np.array(7, kinds[0]), np.array(b_zero, kinds[1])
    for inputs in (
        [left, right, _scale(0.05), b_scale, *zeros, _floats(4)],
        [left, right, _scale([0.05]), b_scale, None, zeros[1]],
        [left, right, _scale(0.05), b_scale],
    ):
        check_node("MatMulIntegerToFloat", inputs, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(("b_scale", "b_zero"), COLUMNS)
@pytest.mark.parametrize("kind", BYTES)
def test_dynamic_quantize_matmul(b_scale: Array, b_zero: Any, kind: Any) -> None:
    right, zero = _factor(kind, 3, 4), np.array(b_zero, kind)
    for inputs in ([_floats(2, 5, 3), right, b_scale, zero, _floats(4)], [_floats(5, 3), right, b_scale]):
        check_node("DynamicQuantizeMatMul", inputs, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(("b_scale", "b_zero"), COLUMNS)
@pytest.mark.parametrize("kinds", [(np.uint8, np.int8), (np.uint8, np.uint8), (np.int8, np.int8)])
@pytest.mark.parametrize("turned", [0, 1])
def test_qgemm(b_scale: Array, b_zero: Any, kinds: tuple[Any, Any], turned: int) -> None:
    left = _bytes(kinds[0], *((3, 5) if turned else (5, 3)))
    right = _factor(kinds[1], *((4, 3) if turned else (3, 4)))
    factors = [left, _scale(0.05), np.array(7, kinds[0]), right, b_scale, np.array(b_zero, kinds[1])]
    attributes = {"alpha": 0.5, "transA": turned, "transB": turned}
    addend = RNG.integers(-99, 99, (1, 4)).astype(np.int32)
    check_node("QGemm", [*factors, addend], attributes, rtol=1e-5, atol=1e-4)
    check_node("QGemm", factors, attributes, rtol=1e-5, atol=1e-4)
    _check("QGemm", [*factors, addend, _scale(0.7), np.array(11, kinds[0])], attributes)
    _check("QGemm", [*factors, None, _scale(0.7), np.array(11, kinds[0])], attributes | {"alpha": 1.0})


def test_products_refuse_misfits() -> None:
    left, right, zero = _bytes(np.uint8, 5, 3), _bytes(np.int8, 3, 4), np.array(0, np.int8)
    with pytest.raises(InputError, match="b_scale"):
        run_kernel("MatMulIntegerToFloat", [left, right, _scale(1), _scale([1, 2])])
    with pytest.raises(InputError, match="inner sizes"):
        run_kernel("MatMulIntegerToFloat", [left, right[:2], _scale(1), _scale(1)])
    with pytest.raises(InputError, match="a_scale"):
        run_kernel("MatMulIntegerToFloat", [left, right, _scale([1, 2]), _scale(1)])
    with pytest.raises(InputError, match="bias"):
        run_kernel("MatMulIntegerToFloat", [left, right, _scale(1), _scale(1), None, None, _floats(3)])
    factors = [left, _scale(1), np.array(7, np.uint8), right, _scale(1), zero]
    with pytest.raises(InputError, match="together"):
        run_kernel("QGemm", [*factors, None, _scale(1)])
    with pytest.raises(InputError, match="'C'"):
        run_kernel("QGemm", [*factors, np.zeros((2, 4), np.int32)])


def test_integer_products_and_sums_are_exact() -> None:
    check_node("MatMulInteger16", [_bytes(np.int16, 2, 3, 5), _bytes(np.int16, 5, 4)], rtol=0, atol=0)
    (unsigned,) = run_kernel("MatMulInteger16", [_bytes(np.uint16, 2, 3), _bytes(np.uint16, 3, 4)])
    assert unsigned.dtype == np.uint32
    a, b = _bytes(np.int8, 3, 4), _bytes(np.int8, 4)
    (product,) = run_kernel("MulInteger", [a, np.array(3, np.int8), b, np.array(-5, np.int8)])
    np.testing.assert_array_equal(product, (a.astype(int) - 3) * (b.astype(int) + 5))
    assert product.dtype == np.int32
    np.testing.assert_array_equal(run_kernel("MulInteger", [a, None, b])[0], a.astype(int) * b)
    with pytest.raises(InputError, match="broadcast"):
        run_kernel("MulInteger", [a, None, b[:3]])
    for x, kind in ((a, np.int32), (a.view(np.uint8), np.uint32)):
        (total,) = run_kernel("ReduceSumInteger", [x], {"axes": [-1], "keepdims": 1})
        assert total.dtype == kind
        np.testing.assert_array_equal(total, x.astype(int).sum(axis=1, keepdims=True))


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint16, np.int16])
def test_quantization_of_its_own(dtype: Any) -> None:
    x = 9 * _floats(4, 3)
    scales, zeros = _scale([0.1, 0.2, 0.3]), np.array([1, 2, 3], dtype)
    _check("QuantizeLinear", [x, scales, zeros], {"axis": 1})
    _check("QuantizeLinear", [x.T.copy(), scales, zeros], {"axis": 0})
    _check("QuantizeLinear", [x, scales[1:2], zeros[1:2]])
    quantized = _bytes(dtype, 4, 3)
    check_node("DequantizeLinear", [quantized, scales, zeros], {"axis": -1})
    check_node("DequantizeLinear", [quantized, scales[:1], zeros[:1]])
    check_node("DequantizeLinear", [quantized, scales[:1]])


@pytest.mark.parametrize("dtype", [ml_dtypes.uint4, ml_dtypes.int4])
def test_quantization_to_four_bits(dtype: Any) -> None:
    x, scale, zero = 3 * _floats(4, 6), _scale(0.5), np.array(3, dtype)
    (y,) = run_kernel("QuantizeLinear", [x, scale, zero])
    limits = ml_dtypes.iinfo(dtype)
    np.testing.assert_array_equal(y.astype(int), np.clip(np.rint(x / 0.5) + 3, limits.min, limits.max))
    (real,) = run_kernel("DequantizeLinear", [y, scale, zero])
    np.testing.assert_array_equal(real, (y.astype(np.float32) - 3) * 0.5)
    with pytest.raises(InputError, match="scale"):
        run_kernel("QuantizeLinear", [x, _scale([1, 2, 3]), None], {"axis": 1})
