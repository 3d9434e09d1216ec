"""Pooling over regions: hand-made values, empty regions and batch indices from data."""

from __future__ import annotations

import numpy as np
import pytest

from dovetail.errors import InputError
from dovetail.providers.cpu.kernels import load_kernels
from dovetail.providers.cpu.kernels.onnx.regions import max_roi_pool, roi_align
from dovetail.providers.cpu.registry import registry

load_kernels()
IMAGE = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)


def test_max_roi_pool_splits_a_region_into_bins() -> None:
    rois = np.array([[0, 0, 0, 3, 3], [0, 1, 1, 1, 1], [0, 0, 0, 6, 6]], np.float32)
    y = max_roi_pool(IMAGE, rois, pooled_shape=[2, 2])
    assert y[:, 0].tolist() == [[[5, 7], [13, 15]], [[5, 5], [5, 5]], [[15, 15], [15, 15]]]
    assert max_roi_pool(IMAGE, rois[:1], pooled_shape=[1, 1], spatial_scale=0.5).item() == 10


def test_max_roi_pool_outside_is_zero() -> None:
    assert max_roi_pool(IMAGE, np.array([[0, 8, 8, 9, 9]], np.float32), pooled_shape=[1, 1]).item() == 0


@pytest.mark.parametrize("bad", [1, -1])
def test_batch_index_must_exist(bad: int) -> None:
    with pytest.raises(InputError, match="op MaxRoiPool: index is out of range"):
        max_roi_pool(IMAGE, np.array([[bad, 0, 0, 1, 1]], np.float32), pooled_shape=[1, 1])
    with pytest.raises(InputError, match="op RoiAlign: index is out of range"):
        roi_align(IMAGE, np.zeros((1, 4), np.float32), np.array([bad]))


def test_roi_align_of_one_sample_is_bilinear() -> None:
    rois = np.array([[1, 1, 2, 2]], np.float32)
    y = roi_align(IMAGE, rois, np.array([0]), sampling_ratio=1)
    # Half a pixel is taken off the centre (1.5, 1.5), which leaves the element at (1, 1).
    assert y.item() == 5.0
    older = registry.find("RoiAlign", "", 10)
    assert older is not None
    assert older.function(IMAGE, rois, np.array([0]), sampling_ratio=1).item() == 7.5


def test_empty_and_far_regions() -> None:
    rois = np.array([[2, 2, 2, 2], [90, 90, 91, 91]], np.float32)
    y = roi_align(IMAGE, rois, np.array([0, 0]))
    assert y.reshape(-1).tolist() == [0, 0]
    assert roi_align(IMAGE, np.zeros((0, 4), np.float32), np.zeros(0, np.int64)).shape == (0, 1, 1, 1)
    with pytest.raises(InputError, match="a region is not finite"):
        roi_align(IMAGE, np.array([[0, 0, np.inf, 1]], np.float32), np.array([0]))
