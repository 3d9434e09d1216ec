"""Convolutions against plain loops, in every rank, and where the shapes do not fit."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.errors import InputError
from dovetail.providers.cpu._numeric import Array
from dovetail.providers.cpu.kernels.onnx.convolution import (
    conv,
    conv_integer,
    conv_transpose,
    deform_conv,
    qlinear_conv,
)


def _conv_by_loops(x: Array, w: Array, pads: list[int], strides: list[int], dilations: list[int], group: int) -> Array:
    """The sum as the definition writes it, one output element at a time."""
    rank = x.ndim - 2
    padded = np.pad(x, [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:], strict=True)])
    sizes = [
        (n - (k - 1) * d - 1) // s + 1
        for n, k, d, s in zip(padded.shape[2:], w.shape[2:], dilations, strides, strict=True)
    ]
    y = np.zeros((x.shape[0], w.shape[0], *sizes))
    per_group = w.shape[0] // group
    for n, m, *at in itertools.product(*map(range, y.shape)):
        for c, *tap in itertools.product(*map(range, w.shape[1:])):
            place = [a * s + t * d for a, s, t, d in zip(at, strides, tap, dilations, strict=True)]
            y[n, m, *at] += padded[n, m // per_group * w.shape[1] + c, *place] * w[m, c, *tap]
    return y


@st.composite
def _convolutions(draw: st.DrawFn) -> dict[str, Any]:
    rank = draw(st.integers(1, 3))
    small = st.lists(st.integers(1, 2), min_size=rank, max_size=rank)
    group, channels, filters = draw(st.integers(1, 2)), draw(st.integers(1, 2)), draw(st.integers(1, 2))
    kernel, dilations = draw(small), draw(small)
    sizes = [draw(st.integers((k - 1) * d + 1, 5)) for k, d in zip(kernel, dilations, strict=True)]
    pads = draw(st.lists(st.integers(0, 2), min_size=2 * rank, max_size=2 * rank))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    return {
        "x": rng.standard_normal((draw(st.integers(1, 2)), channels * group, *sizes)),
        "w": rng.standard_normal((filters * group, channels, *kernel)),
        "attributes": {"pads": pads, "strides": draw(small), "dilations": dilations, "group": group},
    }


@settings(max_examples=25)
@given(_convolutions())
def test_conv_is_its_definition(drawn: dict[str, Any]) -> None:
    x, w, attributes = drawn["x"], drawn["w"], drawn["attributes"]
    np.testing.assert_allclose(conv(x, w, **attributes), _conv_by_loops(x, w, **attributes), atol=1e-12)


@settings(max_examples=25)
@given(_convolutions())
def test_conv_transpose_is_the_adjoint_of_conv(drawn: dict[str, Any]) -> None:
    x, w, attributes = drawn["x"], drawn["w"], drawn["attributes"]
    forward = conv(x, w, **attributes)
    y = np.random.default_rng(0).standard_normal(forward.shape)
    back = conv_transpose(y, w, **{**attributes, "pads": None})
    pads, rank = attributes["pads"], x.ndim - 2
    padded = np.pad(x, [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:], strict=True)])
    # The last elements may be in no window, and then they are missing from the result.
    reached = padded[tuple(slice(n) for n in back.shape)]
    np.testing.assert_allclose(np.vdot(forward, y), np.vdot(reached, back), atol=1e-10)


@settings(max_examples=25)
@given(_convolutions(), st.integers(0, 1))
def test_pads_cut_the_transposed_result(drawn: dict[str, Any], extra: int) -> None:
    x, attributes = drawn["x"], {**drawn["attributes"], "group": 1, "output_padding": [extra] * (drawn["x"].ndim - 2)}
    w = np.random.default_rng(1).standard_normal((x.shape[1], 2, *(3,) * (x.ndim - 2)))
    full = conv_transpose(x, w, **{**attributes, "pads": None})
    pads, rank = [min(pad, 1) for pad in attributes["pads"]], x.ndim - 2
    cut = tuple(slice(pads[i], n - pads[rank + i]) for i, n in enumerate(full.shape[2:]))
    y = conv_transpose(x, w, **{**attributes, "pads": pads})
    np.testing.assert_array_equal(y, full[:, :, *cut])
    assert full.shape[2:] == tuple(
        s * (n - 1) + extra + 2 * d + 1
        for s, n, d in zip(attributes["strides"], x.shape[2:], attributes["dilations"], strict=True)
    )


def test_bias_is_added_to_each_filter() -> None:
    y = conv(np.zeros((1, 1, 2), np.float32), np.ones((2, 1, 1), np.float32), np.array([1, 2], np.float32))
    assert y.tolist() == [[[1, 1], [2, 2]]]


@pytest.mark.parametrize(("auto_pad", "first"), [("SAME_UPPER", 1.0), ("SAME_LOWER", 0.0)])
def test_same_padding_puts_the_odd_element_where_it_says(auto_pad: str, first: float) -> None:
    x, w = np.array([[[1, 2, 3]]], np.float32), np.array([[[1, 0]]], np.float32)
    y = conv(x, w, auto_pad=auto_pad)
    assert y.shape == x.shape
    assert y[0, 0, 0] == first


def test_batch_of_none_and_no_outputs() -> None:
    w = np.ones((4, 3, 3, 3), np.float32)
    assert conv(np.zeros((0, 3, 8, 8), np.float32), w).shape == (0, 4, 6, 6)
    assert conv_transpose(np.zeros((0, 4, 2, 2), np.float32), w).shape == (0, 3, 4, 4)
    assert conv(np.zeros((2, 0, 3, 3), np.float32), np.zeros((4, 0, 3, 3), np.float32)).tolist() == [[[[0]]] * 4] * 2


def test_bytes_are_summed_exactly_and_wrap_in_32_bits() -> None:
    x, w = np.full((1, 4096, 1), 255, np.uint8), np.full((1, 4096, 1), 255, np.uint8)
    assert conv_integer(x, w).item() == 4096 * 255 * 255
    low = conv_integer(x.view(np.int8), w, np.int8(127), np.array([255], np.uint8))
    assert low.dtype == np.int32
    assert low.item() == 0


def test_quantized_conv_takes_a_scale_a_filter_and_saturates() -> None:
    one = np.array(1, np.float32)
    y = qlinear_conv(
        np.full((1, 1, 1), 100, np.uint8),
        one,
        np.array(0, np.uint8),
        np.array([[[1]], [[1]], [[-1]]], np.int8),
        np.array([0.5, 9.0, 1.0], np.float32),
        np.zeros(3, np.int8),
        one,
        np.array(3, np.uint8),
        np.array([1, 0, 0], np.int32),
    )
    # 50.5 rounds to even before the zero point is added.
    assert y.reshape(-1).tolist() == [53, 255, 0]


def test_deform_conv_without_offsets_is_conv() -> None:
    rng = np.random.default_rng(1)
    x, w = rng.standard_normal((2, 4, 5, 6)), rng.standard_normal((6, 2, 3, 2))
    attributes = {"group": 2, "strides": [2, 1], "pads": [1, 0, 1, 1], "dilations": [1, 2]}
    y = conv(x, w, **attributes)
    offset = np.zeros((2, 2 * 6 * 2, *y.shape[2:]))
    np.testing.assert_allclose(deform_conv(x, w, offset, offset_group=2, **attributes), y, atol=1e-12)


def test_deform_conv_reads_zero_far_outside_and_takes_volumes() -> None:
    x, w = np.ones((1, 1, 2, 2, 2), np.float32), np.ones((1, 1, 1, 1, 1), np.float32)
    offset = np.zeros((1, 3, 2, 2, 2), np.float32)
    offset[0, 0, 0] = 1e30
    offset[0, 1, 1] = np.nan
    assert deform_conv(x, w, offset).reshape(-1).tolist() == [0.0] * 8


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"group": 2}, "op Conv: channels do not fit; expected 6, got 3"),
        ({"kernel_shape": [2, 2]}, "op Conv: 'kernel_shape' differs from the filters"),
        ({"pads": [1, 1]}, "op Conv: 'pads' has the wrong length; expected 4, got 2"),
        ({"pads": [-1, 0, 0, 0]}, "op Conv: 'pads' must not be negative"),
        ({"strides": [0, 1]}, "op Conv: kernel, strides and dilations must be positive"),
        ({"dilations": [9, 1]}, "op Conv: the kernel is larger than the padded input"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        conv(np.zeros((1, 3, 5, 5), np.float32), np.zeros((2, 3, 3, 3), np.float32), **attributes)
    assert message in str(caught.value)


def test_transposed_shapes_that_do_not_fit_are_refused() -> None:
    x, w = np.zeros((1, 2, 2), np.float32), np.zeros((2, 1, 2), np.float32)
    with pytest.raises(InputError, match="'pads' must leave an output"):
        conv_transpose(x, w, pads=[3, 3])
    with pytest.raises(InputError, match="channels do not fit"):
        conv_transpose(x, np.zeros((3, 1, 2), np.float32))
    with pytest.raises(InputError, match="'output_shape' has the wrong length"):
        conv_transpose(np.zeros((1, 2, 2, 2), np.float32), np.zeros((2, 1, 2, 2), np.float32), output_shape=[4])
