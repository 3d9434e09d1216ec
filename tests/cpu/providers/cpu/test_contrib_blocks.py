"""Weights in blocks of a few bits: MatMulNBits, MatMulBnb4 and GatherBlockQuantized against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.errors import InputError
from dovetail.providers.cpu._numeric import Array
from dovetail.providers.cpu.kernels.contrib.blocks import unpack_bits
from tests.support.ort_node import check_node, run_kernel

RNG = np.random.default_rng(13)


def _floats(*shape: int, dtype: Any = np.float32) -> Array:
    return RNG.standard_normal(shape).astype(dtype)


def _bytes(*shape: int) -> Array:
    return RNG.integers(0, 256, shape).astype(np.uint8)


def _weights(bits: int, k: int, n: int, block: int, dtype: Any = np.float32) -> tuple[Array, Array]:
    blocks = -(-k // block)
    return _bytes(n, blocks, block * bits // 8), (RNG.random((n, blocks)) * 0.1).astype(dtype)


def _attributes(bits: int, k: int, n: int, block: int, **more: int) -> dict[str, Any]:
    return {"K": k, "N": n, "bits": bits, "block_size": block, **more}


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize(("k", "block"), [(32, 16), (40, 16), (100, 32), (256, 128)])
@pytest.mark.parametrize("zeros", ["none", "packed", "real"])
def test_matmul_nbits(bits: int, k: int, block: int, zeros: str) -> None:
    n, blocks = 5, -(-k // block)
    b, scales = _weights(bits, k, n, block)
    points = None
    if zeros == "packed":
        points = _bytes(n, -(-blocks * bits // 8))
    elif zeros == "real":
        points = (RNG.random((n, blocks)) * 2**bits).astype(np.float32)
    inputs = [_floats(2, 3, k), b, scales, points]
    attributes = _attributes(bits, k, n, block)
    if bits == 8 and zeros == "real":  # ONNX Runtime has no kernel for these
        (y,) = run_kernel("MatMulNBits", inputs, attributes)
        assert points is not None
        weights = (b.reshape(n, -1)[:, :k] - np.repeat(points, block, 1)[:, :k]) * np.repeat(scales, block, 1)[:, :k]
        assert inputs[0] is not None
        np.testing.assert_allclose(y, inputs[0] @ weights.T, rtol=1e-4, atol=1e-4)
        return
    check_node("MatMulNBits", inputs, attributes, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_matmul_nbits_with_constant_weights_bias_and_accuracy(bits: int) -> None:
    b, scales = _weights(bits, 64, 8, 32)
    inputs = [_floats(3, 64), b, scales, None, None, _floats(8)]
    check_node("MatMulNBits", inputs, _attributes(bits, 64, 8, 32), constants=(1, 2, 5), rtol=1e-3, atol=1e-3)
    # ONNX Runtime may compute in int8 here, which is why the tolerance is that of a quantized input.
    level = _attributes(bits, 64, 8, 32, accuracy_level=4)
    scale = 0.05 * 2 ** (bits - 1)
    check_node("MatMulNBits", inputs, level, constants=(1, 2, 5), rtol=0.05, atol=scale)


def test_matmul_nbits_in_halves_and_with_flat_scales() -> None:
    b, scales = _weights(4, 48, 6, 16, np.float16)
    points = _bytes(6, 2)
    inputs = [_floats(2, 48, dtype=np.float16), b, scales, points, None, _floats(6, dtype=np.float16)]
    check_node("MatMulNBits", inputs, _attributes(4, 48, 6, 16), rtol=1e-2, atol=2e-2)
    flat = [_floats(2, 48), b, scales.astype(np.float32).reshape(-1), points.reshape(-1)]
    check_node("MatMulNBits", flat, _attributes(4, 48, 6, 16), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("padded", [False, True])
def test_matmul_nbits_with_columns_out_of_order(padded: bool) -> None:
    b, scales = _weights(4, 40, 5, 16)
    groups = RNG.integers(0, 3, 48 if padded else 40).astype(np.int32)
    check_node(
        "MatMulNBits", [_floats(2, 40), b, scales, None, groups], _attributes(4, 40, 5, 16), rtol=1e-4, atol=1e-4
    )


def test_matmul_nbits_with_columns_out_of_order_and_zero_points() -> None:
    """ONNX Runtime's CPU leaves zero points out when there are groups; the definition of the op does not."""
    b, scales = _weights(4, 40, 5, 16)
    groups, points = RNG.integers(0, 3, 40).astype(np.int32), RNG.integers(0, 16, (5, 3)).astype(np.uint8)
    packed = np.stack([points[:, 0] | points[:, 1] << 4, points[:, 2]], axis=1)
    (y,) = run_kernel(
        "MatMulNBits", [np.eye(40, dtype=np.float32), b, scales, packed, groups], _attributes(4, 40, 5, 16)
    )
    numbers = np.stack([b & 15, b >> 4], axis=-1).reshape(5, 48)[:, :40].astype(np.float32)
    np.testing.assert_allclose(y.T, (numbers - points[:, groups]) * scales[:, groups], rtol=1e-6)


@pytest.mark.parametrize("group", [3, -1])
def test_matmul_nbits_refuses_a_group_that_does_not_exist(group: int) -> None:
    b, scales = _weights(4, 40, 5, 16)
    with pytest.raises(InputError, match="out of range"):
        run_kernel(
            "MatMulNBits", [_floats(2, 40), b, scales, None, np.full(40, group, np.int32)], _attributes(4, 40, 5, 16)
        )


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"bits": 3}, "bits"),
        ({"block_size": 8}, "block_size"),
        ({"block_size": 48}, "block_size"),
        ({"weight_prepacked": 1}, "weight_prepacked"),
        ({"accuracy_level": 9}, "accuracy_level"),
        ({"N": 6}, "'B'"),
        ({"K": 39}, "'K'"),
    ],
)
def test_matmul_nbits_refuses_attributes(change: dict[str, int], what: str) -> None:
    b, scales = _weights(4, 40, 5, 16)
    with pytest.raises(InputError, match=what):
        run_kernel("MatMulNBits", [_floats(2, 40), b, scales], _attributes(4, 40, 5, 16) | change)


def test_matmul_nbits_refuses_shapes() -> None:
    b, scales = _weights(4, 40, 5, 16)
    attributes = _attributes(4, 40, 5, 16)
    for inputs, what in [
        ([b, scales[:, :2]], "scales"),
        ([b, scales, _bytes(5, 3)], "zero_points"),
        ([b, scales, _floats(5, 2)], "zero_points"),
        ([b, scales, None, np.zeros(3, np.int32)], "g_idx"),
        ([b, scales, None, None, _floats(4)], "bias"),
    ]:
        with pytest.raises(InputError, match=what):
            run_kernel("MatMulNBits", [_floats(2, 40), *inputs], attributes)


@settings(max_examples=20, deadline=None)
@given(st.sampled_from([2, 4, 8]), st.integers(1, 4), st.integers(1, 5))
def test_unpacking_is_the_inverse_of_packing(bits: int, rows: int, count: int) -> None:
    numbers = np.random.default_rng(rows).integers(0, 2**bits, (rows, count * 8 // bits)).astype(np.uint8)
    grouped = numbers.reshape(rows, count, 8 // bits).astype(int)
    packed = sum(grouped[..., i] << (bits * i) for i in range(8 // bits))
    np.testing.assert_array_equal(unpack_bits(np.asarray(packed).astype(np.uint8), bits), numbers)


@pytest.mark.parametrize("quant_type", [0, 1])
@pytest.mark.parametrize(("k", "n", "block"), [(32, 4, 16), (24, 6, 32), (64, 3, 64)])
def test_matmul_bnb4(quant_type: int, k: int, n: int, block: int) -> None:
    blocks = -(-n * k // block)
    inputs = [_floats(2, 3, k), _bytes(-(-n * k // 2)), RNG.random(blocks).astype(np.float32)]
    attributes = {"K": k, "N": n, "block_size": block, "quant_type": quant_type}
    check_node("MatMulBnb4", inputs, attributes, rtol=1e-4, atol=1e-4)
    for change, what in ({"quant_type": 2}, "quant_type"), ({"transB": 0}, "transB"), ({"block_size": 5}, "block_size"):
        with pytest.raises(InputError, match=what):
            run_kernel("MatMulBnb4", inputs, attributes | change)
    with pytest.raises(InputError, match="absmax"):
        run_kernel("MatMulBnb4", [*inputs[:2], inputs[2][:-1]], attributes)


def _small(dtype: Any, *shape: int) -> Array:
    limits = ml_dtypes.iinfo(dtype)
    return RNG.integers(limits.min, limits.max + 1, shape).astype(dtype)


INDICES = [np.array([[0, -1], [2, 1]]), np.array(1), np.array([2, 0, -3], np.int32)]


@pytest.mark.parametrize("dtype", [ml_dtypes.uint4, ml_dtypes.int4])
@pytest.mark.parametrize("indices", INDICES, ids=["matrix", "scalar", "int32"])
@pytest.mark.parametrize(("along", "blocked"), [(0, 1), (1, 0), (0, 0), (1, 2), (-1, 1), (2, -1)])
@pytest.mark.parametrize("has_zeros", [False, True])
def test_gather_of_small_integers(dtype: Any, indices: Array, along: int, blocked: int, has_zeros: bool) -> None:
    shape = [3, 5, 40]
    shape[blocked % 3] = 40
    if along % 3 != 2 and blocked % 3 != 2:
        shape[2] = 6
    groups = list(shape)
    groups[blocked] = 3
    scales = RNG.random(groups).astype(np.float32)
    zeros = _small(dtype, *groups) if has_zeros else None
    attributes = {"gather_axis": along, "quantize_axis": blocked, "block_size": 16}
    check_node("GatherBlockQuantized", [_small(dtype, *shape), indices, scales, zeros], attributes, constants=(0, 2, 3))


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("has_zeros", [False, True])
@pytest.mark.parametrize("indices", INDICES, ids=["matrix", "scalar", "int32"])
def test_gather_of_packed_bytes(bits: int, has_zeros: bool, indices: Array) -> None:
    per = 8 // bits
    scales = RNG.random((5, 3)).astype(np.float32)
    zeros = _bytes(5, -(-3 // per)) if has_zeros else None
    attributes = {"bits": bits, "block_size": 16}
    check_node("GatherBlockQuantized", [_bytes(5, 40 // per), indices, scales, zeros], attributes, constants=(0, 2, 3))


@pytest.mark.parametrize(
    "dtype",
    [
        *(ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2, ml_dtypes.float8_e5m2fnuz),
        ml_dtypes.float4_e2m1fn,
    ],
)
@pytest.mark.parametrize(("block", "groups"), [(16, (5, 2)), (0, (5, 1)), (0, (1, 1))])
def test_gather_of_small_floats(dtype: Any, block: int, groups: tuple[int, int]) -> None:
    scales = RNG.random(groups).astype(np.float32)
    inputs = [_floats(5, 32).astype(dtype), np.array([4, 0, -2]), scales]
    check_node("GatherBlockQuantized", inputs, {"block_size": block}, constants=(0, 2))


def test_gather_outside_the_table_gives_zeros() -> None:
    inputs = [_small(ml_dtypes.uint4, 5, 40), np.array([7, 2, -6, 4]), RNG.random((5, 3)).astype(np.float32)]
    (y,) = check_node("GatherBlockQuantized", inputs, {"block_size": 16}, constants=(0, 2))
    assert not y[[0, 2]].any()
    assert y[[1, 3]].any()


def test_gather_in_halves() -> None:
    inputs = [_small(ml_dtypes.uint4, 5, 40), np.array([1, 2]), RNG.random((5, 3)).astype(np.float16)]
    check_node("GatherBlockQuantized", inputs, {"block_size": 16}, constants=(0, 2), rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize(
    ("attributes", "what"),
    [
        ({"block_size": 8}, "block_size"),
        ({"block_size": 0}, "block_size"),
        ({"gather_axis": 2}, "axis"),
        ({"quantize_axis": -3}, "axis"),
        ({"bits": 3}, "bits"),
        ({"gather_axis": 1, "quantize_axis": 1}, "gather_axis"),
        ({"quantize_axis": 0}, "quantize_axis"),
    ],
)
def test_gather_refuses_attributes(attributes: dict[str, int], what: str) -> None:
    inputs = [_bytes(5, 20), np.array([1]), RNG.random((5, 3)).astype(np.float32)]
    with pytest.raises(InputError, match=what):
        run_kernel("GatherBlockQuantized", inputs, {"block_size": 16} | attributes)


def test_gather_refuses_shapes() -> None:
    data, indices, scales = _small(ml_dtypes.uint4, 5, 40), np.array([1]), RNG.random((5, 3)).astype(np.float32)
    for inputs, what in [
        ([data, indices, scales[:, :2]], "scales"),
        ([data, indices, scales, _small(ml_dtypes.uint4, 5, 2)], "zero_points"),
        ([data.astype(ml_dtypes.float8_e5m2), indices, scales, scales.astype(ml_dtypes.float8_e5m2)], "zero_points"),
    ]:
        with pytest.raises(InputError, match=what):
            run_kernel("GatherBlockQuantized", inputs, {"block_size": 16})
