"""Resize in its older forms, on empty and odd inputs, and on types that it only moves."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from dovetail.errors import InputError
from dovetail.provider.kernels import KernelFunction
from dovetail.providers.cpu.kernels import load_kernels
from dovetail.providers.cpu.kernels.onnx.resize import resize
from dovetail.providers.cpu.registry import registry

load_kernels()
ROW = np.array([[1, 2, 3, 4]], np.float32)


def _kernel(op: str, opset: int) -> KernelFunction:
    found = registry.find(op, "", opset)
    assert found is not None
    return found.function


def test_opset_10_starts_at_the_left_edge() -> None:
    scales = np.array([1, 2], np.float32)
    assert _kernel("Resize", 10)(ROW, scales).tolist() == [[1, 1, 2, 2, 3, 3, 4, 4]]
    assert _kernel("Resize", 10)(ROW, scales, mode="linear").tolist() == [[1, 1.5, 2, 2.5, 3, 3.5, 4, 4]]
    assert _kernel("Upsample", 9)(ROW, scales, mode="bilinear").tolist() == [[1, 1.5, 2, 2.5, 3, 3.5, 4, 4]]
    assert _kernel("Upsample", 7)(ROW, scales=[1.0, 2.0]).tolist() == [[1, 1, 2, 2, 3, 3, 4, 4]]


def test_opset_11_knows_half_pixels_of_tensorflow() -> None:
    y = _kernel("Resize", 11)(
        ROW,
        None,
        np.array([1, 0.5], np.float32),
        coordinate_transformation_mode="tf_half_pixel_for_nn",
        nearest_mode="floor",
    )
    assert y.tolist() == [[2, 4]]


def test_sizes_follow_float32_as_shape_inference_does() -> None:
    # 10 * 0.7 is just below 7 in float64, and 7 in float32.
    y = resize(np.zeros((10,), np.float32), None, np.array([0.7], np.float32))
    assert y.shape == (7,)


@pytest.mark.parametrize("dtype", [object, ml_dtypes.int4, np.bool_, np.complex64, ml_dtypes.bfloat16])
def test_nearest_moves_every_type(dtype: type) -> None:
    x = np.array(["1", "0"] if dtype is object else [1, 0], dtype=dtype)
    y = resize(x, None, None, np.array([4]), nearest_mode="floor")
    assert y.dtype == x.dtype
    assert y.tolist() == x[[0, 0, 0, 1]].tolist()


def test_integers_are_rounded_and_saturate() -> None:
    x = np.array([0, 255, 255, 0], np.uint8)
    y = resize(x, None, np.array([3.0], np.float32), mode="cubic")
    assert y.dtype == np.uint8
    assert y.max() == 255
    assert y.min() == 0
    assert resize(np.array([0, 3], np.int32), None, None, np.array([3]), mode="linear").tolist() == [0, 2, 3]


def test_identity_is_a_copy_and_empty_stays_empty() -> None:
    y = resize(ROW, None, np.array([1, 1], np.float32))
    assert np.array_equal(y, ROW)
    assert not np.shares_memory(y, ROW)
    assert resize(np.zeros((0, 2), np.float32), None, np.array([1, 2], np.float32), mode="linear").shape == (0, 4)
    assert resize(ROW, None, None, np.array([1, 0]), mode="linear").shape == (1, 0)


def test_antialias_keeps_the_mean() -> None:
    x = np.random.default_rng(0).standard_normal(64)
    y = resize(x, None, None, np.array([8]), mode="linear", antialias=1, exclude_outside=1)
    assert abs(y[1:-1].mean() - x[8:-8].mean()) < 0.05


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((None, None, None), "neither 'scales' nor 'sizes' is given"),
        ((None, np.array([1], np.float32), None), "'scales' has the wrong length; expected 2, got 1"),
        ((None, np.array([1, -1], np.float32), None), "'scales' must be positive"),
        ((None, np.array([1, np.nan], np.float32), None), "'scales' must be positive"),
        ((None, None, np.array([1, -1])), "'sizes' must not be negative"),
    ],
)
def test_what_does_not_fit_is_refused(arguments: tuple[object, ...], message: str) -> None:
    with pytest.raises(InputError, match=f"op Resize: {message}"):
        resize(ROW, *arguments)


def test_unknown_modes_are_refused() -> None:
    sizes = np.array([1, 8])
    with pytest.raises(InputError, match="op Resize: 'mode' is unknown; got area"):
        resize(ROW, None, None, sizes, mode="area")
    with pytest.raises(InputError, match="'nearest_mode' is unknown"):
        resize(ROW, None, None, sizes, nearest_mode="up")
    with pytest.raises(InputError, match="'coordinate_transformation_mode' is unknown"):
        resize(ROW, None, None, sizes, coordinate_transformation_mode="middle")
    with pytest.raises(InputError, match="only 'nearest' takes this type"):
        resize(np.array(["a"], dtype=object), None, None, np.array([2]), mode="linear")
    with pytest.raises(InputError, match="axis 0 is empty and cannot be enlarged"):
        resize(np.zeros(0, np.float32), None, None, np.array([2]))
