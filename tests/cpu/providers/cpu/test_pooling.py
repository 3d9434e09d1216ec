"""Pooling against plain loops, padding that never wins or counts, and MaxUnpool's indices."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.errors import InputError
from dovetail.providers.cpu._numeric import Array
from dovetail.providers.cpu.kernels.onnx.pooling import (
    average_pool,
    global_average_pool,
    global_lp_pool,
    global_max_pool,
    lp_pool,
    max_pool,
    max_unpool,
)


def _windows(x: Array, attributes: dict[str, Any], outputs: tuple[int, ...]) -> Array:
    """The elements of every window, NaN for what is padding, 1e9 for what lies past the padding."""
    kernel, pads, rank = attributes["kernel_shape"], attributes["pads"], x.ndim - 2
    found = np.full((*x.shape[:2], *outputs, *kernel), np.nan)
    for n, c, *place in itertools.product(*map(range, found.shape)):
        at, tap = place[:rank], place[rank:]
        axes = zip(at, attributes["strides"], tap, attributes["dilations"], pads[:rank], strict=True)
        where = [a * s + t * d - p for a, s, t, d, p in axes]
        if all(0 <= i < size for i, size in zip(where, x.shape[2:], strict=True)):
            found[n, c, *place] = x[n, c, *where]
        elif any(i >= size + end for i, size, end in zip(where, x.shape[2:], pads[rank:], strict=True)):
            found[n, c, *place] = 1e9
    return found.reshape(*found.shape[: 2 + rank], -1)


@st.composite
def _pools(draw: st.DrawFn) -> tuple[Array, dict[str, Any]]:
    rank = draw(st.integers(1, 2))
    kernel = draw(st.lists(st.integers(1, 3), min_size=rank, max_size=rank))
    dilations = draw(st.lists(st.integers(1, 2), min_size=rank, max_size=rank))
    sizes = [draw(st.integers((k - 1) * d + 1, 7)) for k, d in zip(kernel, dilations, strict=True)]
    # A window must hold an element: padding stays smaller than the kernel.
    pads = [draw(st.integers(0, k - 1)) for k in kernel * 2]
    attributes = {
        "kernel_shape": kernel,
        "dilations": dilations,
        "pads": pads,
        "strides": draw(st.lists(st.integers(1, 3), min_size=rank, max_size=rank)),
        "ceil_mode": draw(st.integers(0, 1)),
    }
    x = np.random.default_rng(draw(st.integers(0, 99))).standard_normal((1, 2, *sizes))
    return x, attributes


@settings(max_examples=30)
@given(_pools())
def test_max_pool_is_the_largest_element_and_knows_where(drawn: tuple[Array, dict[str, Any]]) -> None:
    x, attributes = drawn
    y = max_pool(x, **attributes)
    windows = _windows(x, attributes, y.shape[2:])
    inside = np.where(windows == 1e9, np.nan, windows)
    visible = ~np.isnan(inside).all(axis=-1)
    expected = np.max(np.where(np.isnan(inside), -np.inf, inside), axis=-1)
    np.testing.assert_array_equal(y, expected)
    values, indices = max_pool(x, **attributes, num_outputs=2)
    np.testing.assert_array_equal(values, expected)
    np.testing.assert_array_equal(x.reshape(-1)[indices[visible]], values[visible])


@settings(max_examples=30)
@given(_pools(), st.booleans())
def test_average_pool_counts_elements_or_padding_but_nothing_past_it(
    drawn: tuple[Array, dict[str, Any]], include: bool
) -> None:
    x, attributes = drawn
    y = average_pool(x, **attributes, count_include_pad=int(include))
    windows = _windows(x, attributes, y.shape[2:])
    real = ~np.isnan(windows) & (windows != 1e9)
    total = np.where(real, windows, 0).sum(axis=-1)
    count = (windows != 1e9).sum(axis=-1) if include else real.sum(axis=-1)
    np.testing.assert_allclose(y, total / np.maximum(count, 1), atol=1e-12)


@settings(max_examples=15)
@given(_pools(), st.integers(1, 3))
def test_lp_pool_is_the_norm(drawn: tuple[Array, dict[str, Any]], p: int) -> None:
    x, attributes = drawn
    y = lp_pool(x, **attributes, p=p)
    windows = _windows(x, attributes, y.shape[2:])
    real = ~np.isnan(windows) & (windows != 1e9)
    expected = (np.abs(np.where(real, windows, 0)) ** p).sum(axis=-1) ** (1 / p)
    np.testing.assert_allclose(y, expected, atol=1e-12)


def test_lowest_values_beat_padding() -> None:
    x = np.full((1, 1, 2), -128, np.int8)
    y, indices = max_pool(x, kernel_shape=[2], pads=[1, 1], num_outputs=2)
    assert y.tolist() == [[[-128, -128, -128]]]
    assert indices.tolist() == [[[0, 0, 1]]]


def test_nan_wins_and_is_found() -> None:
    x = np.array([[[1, np.nan, 3]]], np.float32)
    y, indices = max_pool(x, kernel_shape=[3], num_outputs=2)
    assert np.isnan(y).all()
    assert indices.item() == 1


def test_column_major_indices() -> None:
    x = np.arange(6, dtype=np.float32).reshape(1, 1, 2, 3)
    assert max_pool(x, kernel_shape=[2, 2], num_outputs=2, storage_order=1)[1].tolist() == [[[[3, 5]]]]


def test_batch_of_none() -> None:
    x = np.zeros((0, 2, 4, 4), np.float32)
    assert max_pool(x, kernel_shape=[2, 2]).shape == (0, 2, 3, 3)
    assert [part.shape for part in max_pool(x, kernel_shape=[2, 2], num_outputs=2)] == [(0, 2, 3, 3)] * 2
    assert average_pool(x, kernel_shape=[2, 2]).shape == (0, 2, 3, 3)
    assert global_average_pool(x).shape == (0, 2, 1, 1)


def test_global_pools() -> None:
    x = np.array([[[[1, -2], [3, 4]]]], np.float32)
    assert global_average_pool(x).tolist() == [[[[1.5]]]]
    assert global_max_pool(x).tolist() == [[[[4.0]]]]
    np.testing.assert_allclose(global_lp_pool(x), [[[[30**0.5]]]], rtol=1e-6)
    assert global_lp_pool(x, p=1).tolist() == [[[[10.0]]]]
    with pytest.raises(InputError, match="op GlobalMaxPool: a spatial axis is empty"):
        global_max_pool(np.zeros((1, 1, 0), np.float32))


def test_unpool_undoes_max_pool() -> None:
    x = np.random.default_rng(0).permutation(32).reshape(1, 2, 4, 4).astype(np.float32) + 1
    y, indices = max_pool(x, kernel_shape=[2, 2], strides=[2, 2], num_outputs=2)
    back = max_unpool(y, indices, kernel_shape=[2, 2], strides=[2, 2])
    assert np.array_equal(max_pool(back, kernel_shape=[2, 2], strides=[2, 2]), y)
    assert np.array_equal(back[back > 0], x.reshape(-1)[np.sort(indices.reshape(-1))])


@pytest.mark.parametrize("bad", [16, -17])
def test_unpool_refuses_indices_outside(bad: int) -> None:
    x = np.zeros((1, 1, 2, 2), np.float32)
    with pytest.raises(InputError, match=r"op MaxUnpool: index is out of range; expected -16\.\.15"):
        max_unpool(x, np.full(x.shape, bad), kernel_shape=[2, 2], strides=[2, 2])
    with pytest.raises(InputError, match="'output_shape' is too small"):
        max_unpool(x, np.zeros(x.shape, np.int64), np.array([1, 1, 2, 2]), kernel_shape=[2, 2], strides=[2, 2])
