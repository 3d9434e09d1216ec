"""New shapes, slices and frames: older forms, tensors without axes or elements, every type, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dovetail.errors import InputError, ProviderError
from dovetail.provider.kernels import KernelFunction
from dovetail.providers.cpu._numeric import Array
from dovetail.providers.cpu.kernels import load_kernels
from dovetail.providers.cpu.kernels.onnx.filling import (
    constant,
    constant_of_shape,
    eye_like,
    range_of,
    shape_of,
    size_of,
)
from dovetail.providers.cpu.kernels.onnx.shaping import (
    concat,
    depth_to_space,
    expand,
    flatten,
    reshape,
    space_to_depth,
    split,
    squeeze,
    tile,
    transpose,
    unsqueeze,
)
from dovetail.providers.cpu.kernels.onnx.slicing import center_crop_pad, pad, reverse_sequence, slice_of, trilu
from dovetail.providers.cpu.registry import registry

load_kernels()
SCALAR = np.array(7, np.int64)
EVERY_TYPE = (np.float64, np.int8, np.bool_, np.complex64, object, ml_dtypes.bfloat16, ml_dtypes.int4)


def _kernel(op: str, opset: int) -> KernelFunction:
    found = registry.find(op, "", opset)
    assert found is not None
    return found.function


def _ints(*values: int) -> Array:
    return np.array(values, dtype=np.int64)


MOVES: dict[str, Callable[[Array], Any]] = {
    "Reshape": lambda x: reshape(x, _ints(3, -1)),
    "Flatten": lambda x: flatten(x),
    "Transpose": lambda x: transpose(x),
    "Squeeze": lambda x: squeeze(x[None], _ints(0)),
    "Unsqueeze": lambda x: unsqueeze(x, _ints(-1)),
    "Expand": lambda x: expand(x, _ints(2, 1, 1)),
    "Tile": lambda x: tile(x, _ints(1, 2)),
    "Concat": lambda x: concat(x, x, axis=-1),
    "Split": lambda x: split(x, axis=1, num_outputs=2)[0],
    "Slice": lambda x: slice_of(x, _ints(-1), _ints(-9), _ints(0), _ints(-1)),
    "Pad constant": lambda x: pad(x, _ints(1, 0, 0, 1)),
    "Pad edge": lambda x: pad(x, _ints(1, 0, 0, 1), mode="edge"),
    "CenterCropPad": lambda x: center_crop_pad(x, _ints(4, 1)),
    "Trilu": lambda x: trilu(x),
    "ReverseSequence": lambda x: reverse_sequence(x, _ints(1, 2, 2)),
}


@pytest.mark.parametrize("op", MOVES)
@pytest.mark.parametrize("dtype", EVERY_TYPE)
def test_every_type_is_moved(op: str, dtype: type) -> None:
    """What is done to integers is done to every type, with its own zero where one is put in."""
    numbers = np.array([[1, 0, 1], [1, 1, 0]])
    zero, one = ("", "a") if dtype is object else (0, 1)
    x = np.where(numbers == 1, np.array(one, dtype=dtype), np.array(zero, dtype=dtype))
    y = MOVES[op](x)
    assert y.dtype == np.dtype(dtype)
    assert not np.shares_memory(x, y)
    assert (y == np.array(one, dtype=dtype)).tolist() == (MOVES[op](numbers) == 1).tolist()


def test_tensors_without_axes_stay_so() -> None:
    for y in (
        reshape(np.array([7]), np.zeros(0, np.int64)),
        transpose(SCALAR),
        squeeze(SCALAR),
        expand(SCALAR, np.zeros(0, np.int64)),
        tile(SCALAR, np.zeros(0, np.int64)),
        pad(SCALAR, np.zeros(0, np.int64)),
        slice_of(SCALAR, np.zeros(0, np.int64), np.zeros(0, np.int64)),
        squeeze(np.array([[7]])),
        pad(SCALAR, np.zeros(0, np.int64), mode="edge"),
        center_crop_pad(SCALAR, np.zeros(0, np.int64)),
    ):
        assert isinstance(y, np.ndarray)
        assert (y.shape, y.item()) == ((), 7)
    assert flatten(SCALAR, axis=0).shape == (1, 1)
    assert unsqueeze(SCALAR, _ints(0, -1)).shape == (1, 1)
    assert size_of(SCALAR).shape == ()
    assert shape_of(SCALAR).tolist() == []


def test_older_forms_take_attributes() -> None:
    x = np.arange(6, dtype=np.float32).reshape(1, 2, 3)
    assert _kernel("Squeeze", 11)(x, axes=[0]).shape == (2, 3)
    assert _kernel("Unsqueeze", 11)(x, axes=[0, 4]).shape == (1, 1, 2, 3, 1)
    assert [part.shape for part in _kernel("Split", 11)(x, axis=2, split=[1, 2], num_outputs=2)] == [
        (1, 2, 1),
        (1, 2, 2),
    ]
    assert _kernel("Slice", 9)(x, starts=[1], ends=[9], axes=[1]).tolist() == [[[3, 4, 5]]]
    assert _kernel("Pad", 2)(x, pads=[0, 0, 1, 0, 0, 0], value=9.0)[0, :, 0].tolist() == [9, 9]
    assert _kernel("Shape", 1)(x).tolist() == [1, 2, 3]


@given(hnp.array_shapes(max_dims=3, max_side=3, min_side=0), st.data())
def test_slice_clamps_its_bounds(shape: tuple[int, ...], data: st.DataObject) -> None:
    x = np.arange(np.prod(shape)).reshape(shape)
    bounds = [data.draw(st.lists(st.integers(-5, 5), min_size=x.ndim, max_size=x.ndim)) for _ in range(2)]
    steps = data.draw(st.lists(st.sampled_from([-2, -1, 1, 2]), min_size=x.ndim, max_size=x.ndim))
    expected = x
    for axis, (start, end, step) in enumerate(zip(*bounds, steps, strict=True)):
        size = x.shape[axis]
        low, high = (0, size) if step > 0 else (-1, size - 1)
        first = np.clip(start + size * (start < 0), 0, high)
        chosen = list(range(first, np.clip(end + size * (end < 0), low, high), step)) if size else []
        expected = expected.take(np.array(chosen, dtype=np.int64), axis=axis)
    assert np.array_equal(slice_of(x, _ints(*bounds[0]), _ints(*bounds[1]), None, _ints(*steps)), expected)
    everything = slice_of(x, _ints(0), _ints(2**63 - 1), _ints(0))
    backwards = slice_of(x, _ints(2**63 - 1), _ints(-(2**63)), _ints(-x.ndim), _ints(-1))
    assert np.array_equal(everything, x)
    assert np.array_equal(backwards, x[::-1])


@given(hnp.array_shapes(max_dims=2, max_side=4), st.sampled_from(["constant", "edge", "reflect", "wrap"]), st.data())
def test_pad_is_numpy_pad(shape: tuple[int, ...], mode: str, data: st.DataObject) -> None:
    x = np.arange(np.prod(shape)).reshape(shape) + 1
    widths = [data.draw(st.lists(st.integers(0, 5), min_size=x.ndim, max_size=x.ndim)) for _ in range(2)]
    expected = np.pad(x, list(zip(*widths, strict=True)), mode=mode)  # type: ignore[call-overload]
    assert np.array_equal(pad(x, _ints(*widths[0], *widths[1]), mode=mode), expected)


def test_pad_cuts_and_names_axes() -> None:
    x = np.arange(6).reshape(2, 3)
    assert pad(x, _ints(-1, 1), np.array(9), _ints(-1)).tolist() == [[1, 2, 9], [4, 5, 9]]
    assert pad(x, _ints(-2, 1), None, _ints(1), mode="edge").tolist() == [[2, 2], [5, 5]]
    assert pad(np.zeros((0, 2)), _ints(1, 0, 1, 0)).shape == (2, 2)
    with pytest.raises(InputError, match="op Pad: 'pads' cut off more than there is"):
        pad(x, _ints(-2, -2), None, _ints(1))
    with pytest.raises(InputError, match="op Pad: axis 0 is empty and has no edge to pad with"):
        pad(np.zeros((0, 2)), _ints(1, 0, 1, 0), mode="edge")
    with pytest.raises(InputError, match="op Pad: 'mode' is unknown"):
        pad(x, _ints(0, 0, 0, 0), mode="mirror")


def test_reshape_keeps_infers_and_refuses() -> None:
    x = np.zeros((0, 4))
    assert reshape(x, _ints(0, 2, 2)).shape == (0, 2, 2)
    assert reshape(x, _ints(3, 0), allowzero=1).shape == (3, 0)
    for shape, message in (
        ((-1, -1), "only one size may be -1"),
        ((5, -1), "sizes do not divide the input"),
        ((2, 2), "the count of elements would change; expected 6, got 4"),
        ((2, 3, 0), "0 stands for an axis the input lacks"),
        ((0, -1), "sizes do not divide the input"),
    ):
        with pytest.raises(InputError, match=f"op Reshape: {message}"):
            reshape(np.zeros((2, 3)), _ints(*shape), allowzero=int(shape == (0, -1)))


def test_split_makes_the_last_part_smaller() -> None:
    assert [part.size for part in split(np.arange(7), num_outputs=3)] == [3, 3, 1]
    assert [part.size for part in split(np.arange(5), num_outputs=4)] == [2, 2, 1, 0]
    assert [part.size for part in split(np.arange(3), _ints(0, 3), num_outputs=2)] == [0, 3]
    with pytest.raises(InputError, match="op Split: sizes do not add up to the axis; expected 3"):
        split(np.arange(3), _ints(1, 1), num_outputs=2)
    with pytest.raises(InputError, match="op Split: sizes and outputs differ"):
        split(np.arange(3), _ints(1, 2), num_outputs=3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: squeeze(np.zeros((2, 1)), _ints(0)), r"op Squeeze: axes \[0\] are not of size one"),
        (lambda: unsqueeze(np.zeros(2), _ints(0, 0)), "op Unsqueeze: an axis is named twice"),
        (lambda: transpose(np.zeros((2, 1)), perm=[0, 0]), "op Transpose: 'perm' is no order of the axes"),
        (lambda: expand(np.zeros((2, 3)), _ints(4, 3)), "op Expand: shapes do not broadcast"),
        (lambda: tile(np.zeros(2), _ints(1, 1)), "op Tile: 'repeats' has the wrong length"),
        (lambda: concat(np.zeros((2, 3)), np.zeros((3, 2)), axis=0), "op Concat: inputs differ off the axis"),
        (lambda: flatten(np.zeros(2), axis=2), "op Flatten: axis is out of range"),
        (lambda: slice_of(np.zeros(2), _ints(0), _ints(1), _ints(0), _ints(0)), "op Slice: 'steps' must not be zero"),
        (lambda: slice_of(np.zeros(2), _ints(0), _ints(1), _ints(1)), "op Slice: axis is out of range"),
        (lambda: depth_to_space(np.zeros((1, 3, 1, 1)), blocksize=2), "op DepthToSpace: 3 channels do not divide"),
        (lambda: space_to_depth(np.zeros((1, 1, 3, 2)), blocksize=2), "op SpaceToDepth: height and width do not"),
        (lambda: center_crop_pad(np.zeros(2), _ints(-1)), "op CenterCropPad: 'shape' must not be negative"),
        (lambda: trilu(np.zeros(2)), "op Trilu: the input must have two axes"),
        (lambda: reverse_sequence(np.zeros((2, 1)), _ints(3)), r"op ReverseSequence: a length is out of range"),
        (lambda: reverse_sequence(np.zeros((2, 1)), _ints(-1)), r"op ReverseSequence: a length is out of range"),
        (lambda: constant_of_shape(_ints(-1)), "op ConstantOfShape: sizes must not be negative"),
        (lambda: range_of(SCALAR, SCALAR, SCALAR * 0), "op Range: 'delta' must not be zero"),
        (lambda: constant(), "op Constant: exactly one value must be given"),
        (lambda: eye_like(np.zeros(2)), "op EyeLike: the input must be a matrix"),
    ],
)
def test_what_does_not_fit_is_refused(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_space_and_depth_undo_each_other(mode: str) -> None:
    x = np.arange(2 * 8 * 3 * 2).reshape(2, 8, 3, 2)
    assert np.array_equal(space_to_depth(depth_to_space(x, blocksize=2, mode=mode), blocksize=2, mode=mode), x)


def test_range_counts_exactly() -> None:
    whole = range_of(np.array(2**62), np.array(-(2**62)), np.array(-(2**62)))
    assert whole.tolist() == [2**62, 0]
    assert range_of(np.array(5, np.int16), np.array(1, np.int16), np.array(1, np.int16)).shape == (0,)
    steps = range_of(*(np.array(v, ml_dtypes.bfloat16) for v in (256, 264, 2)))
    assert steps.astype(np.float32).tolist() == [256, 258, 260, 262]
    with pytest.raises(InputError, match="op Range: the count of elements is not finite"):
        range_of(*(np.array(v, np.float32) for v in (0, np.inf, 1)))


def test_constants() -> None:
    assert constant(value_floats=[1.0, 2.0]).dtype == np.float32
    assert constant(value_int=3).shape == ()
    assert constant(value_strings=["a", "b"]).tolist() == ["a", "b"]
    value = np.array([1], ml_dtypes.int4)
    assert constant_of_shape(_ints(2, 0), value=value).dtype == value.dtype
    assert constant_of_shape(np.zeros(0, np.int64)).shape == ()
    found = registry.find("Constant", "", 13)
    assert found is not None
    with pytest.raises(ProviderError, match="sparse_value"):
        found.bind({"sparse_value": None}, 1)


def test_extreme_diagonals_keep_everything_or_nothing() -> None:
    x = np.ones((2, 3))
    for k in (2**63 - 1, -(2**63)):
        upper, lower = trilu(x, np.array(k)), trilu(x, np.array(k), upper=0)
        assert (upper.all(), lower.any()) == ((False, True) if k > 0 else (True, False))
    assert eye_like(x, k=1, dtype=16).dtype == ml_dtypes.bfloat16
