"""Matrix products at their edges: vectors, empty sums, integers, quantization a row and a column."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from dovetail.errors import InputError
from dovetail.providers.cpu.kernels.onnx.matmul import det, einsum, gemm, matmul, matmul_integer, qlinear_matmul


def test_vectors_give_an_array_without_axes() -> None:
    y = matmul(np.array([1, 2], np.float16), np.array([3, 4], np.float16))
    assert isinstance(y, np.ndarray)
    assert (y.shape, y.dtype, y.item()) == ((), np.float16, 11)


def test_empty_sums_and_batches() -> None:
    assert matmul(np.zeros((2, 0), np.float32), np.zeros((0, 3), np.float32)).tolist() == [[0] * 3] * 2
    assert matmul(np.zeros((0, 2, 3), np.float32), np.zeros((3, 4), np.float32)).shape == (0, 2, 4)
    assert gemm(np.zeros((0, 2), np.float32), np.zeros((2, 3), np.float32), np.zeros(3, np.float32)).shape == (0, 3)


def test_float16_sums_do_not_overflow_on_the_way() -> None:
    a = np.array([[300.0, 300.0]], np.float16)
    b = np.array([[300.0], [-300.0]], np.float16)
    assert matmul(a, b).item() == 0.0


def test_wrong_inner_sizes_are_refused() -> None:
    with pytest.raises(InputError, match="op MatMul: inner sizes differ; expected 3, got 2"):
        matmul(np.zeros((2, 3)), np.zeros((2, 3)))
    with pytest.raises(InputError, match="op MatMul: a scalar is not a matrix"):
        matmul(np.zeros(()), np.zeros((2, 3)))
    with pytest.raises(InputError, match="op Gemm: inner sizes differ"):
        gemm(np.zeros((2, 3)), np.zeros((2, 3)))
    with pytest.raises(InputError, match="op MatMulInteger: inner sizes differ"):
        matmul_integer(np.zeros((2, 3), np.int8), np.zeros((2, 3), np.int8))


def test_gemm_scales_integers_by_fractions() -> None:
    a, b, c = np.array([[3]], np.int32), np.array([[5]], np.int32), np.array([4], np.int32)
    y = gemm(a, b, c, alpha=0.5, beta=0.25)
    assert (y.dtype, y.item()) == (np.int32, 8)


def test_einsum_gives_a_new_array_and_names_a_bad_equation() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    y = einsum(x, equation="i j -> j i")
    assert y.tolist() == x.T.tolist()
    assert not np.shares_memory(x, y)
    assert einsum(x, equation="ij->").shape == ()
    with pytest.raises(InputError, match="op Einsum: equation 'ij,ij,->ij' does not fit"):
        einsum(x, x, equation="ij,ij,->ij")
    with pytest.raises(InputError, match="op Einsum: equation 'ij,jk' does not fit"):
        einsum(x, x, equation="ij,jk")


def test_integer_product_subtracts_a_zero_point_a_row_and_a_column() -> None:
    a, b = np.array([[10, 20], [30, 40]], np.uint8), np.array([[1, 2], [3, 4]], np.int8)
    y = matmul_integer(a, b, np.array([10, 30], np.uint8), np.array([1, 2], np.int8))
    expected = (a.astype(int) - [[10], [30]]) @ (b.astype(int) - [1, 2])
    assert y.dtype == np.int32
    assert y.tolist() == expected.tolist()
    assert matmul_integer(np.array([255], np.uint8), np.array([255], np.uint8)).shape == ()


def test_quantized_product_of_rows_saturates() -> None:
    a, b = np.array([[100], [1]], np.int8), np.array([[100]], np.int8)
    zero, one = np.array(0, np.int8), np.array(1, np.float32)
    rows = np.array([1.0, 0.015], np.float32)
    y = qlinear_matmul(a, rows, np.zeros(2, np.int8), b, one, zero, one, np.array(5, np.int8))
    # 1.5 rounds to even.
    assert y.tolist() == [[127], [7]]


def test_quantized_product_of_float8() -> None:
    a = np.array([[1.5, 2.0]], ml_dtypes.float8_e4m3fn)
    zero = np.array(0, ml_dtypes.float8_e4m3fn)
    scales = [np.array(v, np.float16) for v in (2.0, 1.0, 0.5)]
    y = qlinear_matmul(a, scales[0], zero, a.T, scales[1], zero, scales[2], zero)
    assert (y.dtype, float(y.item())) == (a.dtype, 24.0)  # 25 lies halfway, and 24 is even
    assert np.isfinite(qlinear_matmul(a, np.array(1e6, np.float32), zero, a.T, scales[1], zero, scales[2], zero).item())


def test_determinant() -> None:
    x = np.array([[1, 2], [3, 4]], np.float32)
    y = det(x)
    assert y.shape == ()
    assert y.dtype == np.float32
    np.testing.assert_allclose(y, -2, rtol=1e-6)
    with pytest.raises(InputError, match="op Det: matrices must be square"):
        det(np.zeros((2, 3), np.float32))
