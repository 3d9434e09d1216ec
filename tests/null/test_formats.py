"""Layouts: the place of every element against a formula, round trips, padding, sizes and refusals."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.errors import UsageError
from dovetail.formats import (
    formats_for,
    pack,
    pack_nibbles,
    packed_shape,
    reformat,
    size_bytes,
    unpack,
    unpack_nibbles,
)
from dovetail.types import DataType, Dims, TensorFormat

F = TensorFormat
MAJOR = {F.CHW2: (3, 2), F.CHW4: (3, 4), F.CHW16: (3, 16), F.CHW32: (3, 32), F.CDHW32: (4, 32)}
MINOR = {F.HWC: (3, 1), F.HWC8: (3, 8), F.HWC16: (3, 16), F.DHWC: (4, 1), F.DHWC8: (4, 8)}
FREE_CHANNELS = [F.LINEAR, F.DLA_LINEAR, *MAJOR, *MINOR]
MIN_RANK = {F.LINEAR: 0, F.DLA_LINEAR: 3, F.DLA_HWC4: 3} | {f: rank for f, (rank, _) in (MAJOR | MINOR).items()}

dtypes = st.sampled_from(list(DataType))


def place_of(index: tuple[int, ...], format_: TensorFormat) -> tuple[int, ...]:
    """Where a logical element lies, written from the contract's definition of each layout."""
    if format_ in MAJOR:
        rank, lanes = MAJOR[format_]
        before, channel, after = index[:-rank], index[-rank], index[len(index) - rank + 1 :]
        return (*before, channel // lanes, *after, channel % lanes)
    if format_ in MINOR or format_ is F.DLA_HWC4:
        rank = MINOR.get(format_, (3, 4))[0]
        return (*index[:-rank], *index[len(index) - rank + 1 :], index[-rank])
    return index


def random_bytes(shape: tuple[int, ...], dtype: DataType, seed: int = 0) -> npt.NDArray[Any]:
    """Any bit pattern but those a type of that width cannot have."""
    top = {DataType.BOOL: 2, DataType.INT4: 16, DataType.FP4: 16}.get(dtype, 256)
    size = math.prod(shape) * dtype.numpy.itemsize
    raw = np.random.default_rng(seed).integers(1 if top > 2 else 0, top, size, np.uint8)
    return raw.view(dtype.numpy).reshape(shape)


def same_bytes(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


@st.composite
def tensors(draw: st.DrawFn, formats: list[TensorFormat] = FREE_CHANNELS) -> tuple[npt.NDArray[Any], TensorFormat]:
    format_ = draw(st.sampled_from(formats))
    rank = draw(st.integers(MIN_RANK[format_], 6))
    shape = [draw(st.integers(0, 4)) for _ in range(rank)]
    channels = {3: -3, 4: -4}.get(MIN_RANK[format_])
    if channels is not None:
        shape[channels] = draw(st.sampled_from([0, 1, 2, 3, 5, 8, 17, 31, 32, 33, 65]))
    return random_bytes(tuple(shape), draw(dtypes), draw(st.integers(0, 9))), format_


@pytest.mark.parametrize("format_", [*FREE_CHANNELS, F.DLA_HWC4])
@pytest.mark.parametrize("dims", [(2, 3, 2, 3, 2), (1, 4, 3, 2)])
def test_pack_puts_every_element_where_the_contract_says(format_: TensorFormat, dims: tuple[int, ...]) -> None:
    dims = dims if format_ is not F.DLA_HWC4 else (3, 3, 2, 5)
    array = random_bytes(dims, DataType.HALF)
    packed = pack(array, format_)
    seen = np.zeros(packed.shape, np.bool_)
    for index in product(*map(range, dims)):
        assert packed[place_of(index, format_)].tobytes() == array[index].tobytes()
        seen[place_of(index, format_)] = True
    assert seen.sum() == array.size
    assert not packed.view(np.uint16)[~seen].any()


@settings(max_examples=150, deadline=None)
@given(tensors())
def test_pack_then_unpack_gives_the_same_bytes(case: tuple[npt.NDArray[Any], TensorFormat]) -> None:
    array, format_ = case
    packed = pack(array, format_)
    assert packed.dtype == array.dtype
    assert packed.flags.c_contiguous
    assert same_bytes(unpack(packed, format_, array.shape), array)


@settings(max_examples=60, deadline=None)
@given(tensors())
def test_out_is_filled_completely_and_returned(case: tuple[npt.NDArray[Any], TensorFormat]) -> None:
    array, format_ = case
    fresh = pack(array, format_)
    out = np.empty(fresh.shape, array.dtype)  # dirty: what pack leaves out would show
    out.reshape(-1).view(np.uint8)[...] = 0 if array.dtype == np.bool_ else 3
    assert pack(array, format_, out=out) is out
    assert same_bytes(out, fresh)
    back = np.empty(array.shape, array.dtype)
    assert unpack(out, format_, array.shape, out=back) is back
    assert same_bytes(back, array)


@settings(max_examples=80, deadline=None)
@given(tensors([f for f in FREE_CHANNELS if MIN_RANK[f] <= 3]), st.sampled_from(FREE_CHANNELS))
def test_reformat_equals_unpack_then_pack(case: tuple[npt.NDArray[Any], TensorFormat], target: TensorFormat) -> None:
    array, source = case
    if array.ndim < MIN_RANK[target]:
        target = F.LINEAR
    packed, expected = pack(array, source), pack(array, target)
    assert same_bytes(reformat(packed, source, target, array.shape), expected)
    out = np.empty_like(expected)
    assert reformat(packed, source, target, array.shape, out=out) is out
    assert same_bytes(out, expected)


@settings(max_examples=60, deadline=None)
@given(tensors())
def test_strided_sources_and_targets_work(case: tuple[npt.NDArray[Any], TensorFormat]) -> None:
    array, format_ = case
    strided = np.repeat(array, 2, axis=0)[::2] if array.ndim else array
    packed = pack(strided, format_)
    assert same_bytes(packed, pack(array, format_))
    roomy = np.zeros((*packed.shape, 2), packed.dtype)
    pack(array, format_, out=roomy[..., 0])
    assert same_bytes(unpack(roomy[..., 0], format_, array.shape), np.asarray(array, order="C"))
    wide = np.zeros((*array.shape, 2), array.dtype)
    unpack(packed, format_, array.shape, out=wide[..., 1])
    assert same_bytes(wide[..., 1].copy(), array)


def test_dla_hwc4_pads_three_channels_to_four_and_keeps_one() -> None:
    color = random_bytes((2, 3, 4, 5), DataType.INT8)
    assert packed_shape(color.shape, F.DLA_HWC4) == (2, 4, 5, 4)
    assert same_bytes(unpack(pack(color, F.DLA_HWC4), F.DLA_HWC4, color.shape), color)
    grey = random_bytes((1, 4, 5), DataType.INT8)
    assert pack(grey, F.DLA_HWC4).shape == (4, 5, 1)


@pytest.mark.parametrize(
    ("dtype", "width"), [(DataType.FLOAT, 16), (DataType.HALF, 32), (DataType.INT8, 64), (DataType.INT4, 128)]
)
def test_dla_linear_rows_are_64_bytes(dtype: DataType, width: int) -> None:
    assert packed_shape((1, 2, 3, 5), F.DLA_LINEAR, dtype) == (1, 2, 3, width)
    assert size_bytes((1, 2, 3, 5), dtype, F.DLA_LINEAR) == 2 * 3 * 64
    assert pack(random_bytes((1, 2, 3, 5), dtype), F.DLA_LINEAR).shape == (1, 2, 3, width)


@settings(max_examples=60, deadline=None)
@given(tensors())
def test_size_bytes_is_the_size_of_the_packed_array(case: tuple[npt.NDArray[Any], TensorFormat]) -> None:
    array, format_ = case
    dtype = next(d for d in DataType if d.numpy == array.dtype)
    packed = pack(array, format_)
    expected = (packed.size + 1) // 2 if dtype.bits == 4 else packed.nbytes
    assert size_bytes(Dims(array.shape), dtype, format_) == expected
    assert packed_shape(array.shape, format_, dtype) == packed.shape


def test_proposals_follow_the_order_of_the_contract() -> None:
    planes: dict[DataType, tuple[TensorFormat, ...]] = {
        DataType.FLOAT: (F.CHW32, F.HWC),
        DataType.HALF: (F.CHW2, F.HWC8, F.CHW4, F.HWC16, F.CHW16, F.CHW32),
        DataType.INT8: (F.CHW4, F.CHW32, F.HWC16),
        DataType.BF16: (F.CHW2, F.HWC8),
        DataType.FP8: (F.HWC16,),
        DataType.UINT8: (F.HWC,),
    }
    volumes: dict[DataType, tuple[TensorFormat, ...]] = {
        DataType.FLOAT: (F.DHWC,),
        DataType.HALF: (F.DHWC8, F.CDHW32),
        DataType.INT8: (F.CDHW32,),
        DataType.BF16: (F.DHWC8,),
    }
    for dtype in DataType:
        plane, volume = planes.get(dtype, ()), volumes.get(dtype, ())
        for rank in range(9):
            expected = () if rank < 3 else plane if rank < 5 else volume
            assert formats_for(dtype, rank) == (F.LINEAR, *expected)


def test_every_format_but_those_of_a_dla_is_proposed_for_some_tensor() -> None:
    proposed = {form for dtype in DataType for rank in range(9) for form in formats_for(dtype, rank)}
    assert proposed == set(F) - {F.DLA_LINEAR, F.DLA_HWC4}


@pytest.mark.parametrize("dtype", list(DataType), ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("shape", [(3, 4, 5), (2, 3, 4, 5), (2, 3, 4, 5, 6)], ids=len)
def test_what_is_proposed_can_be_laid_out(dtype: DataType, shape: tuple[int, ...]) -> None:
    array = random_bytes(shape, dtype)
    for form in formats_for(dtype, len(shape)):
        packed = pack(array, form)
        assert packed.shape == packed_shape(shape, form, dtype)
        assert same_bytes(unpack(packed, form, shape), array)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 33), st.sampled_from([DataType.INT4, DataType.FP4]))
def test_nibbles_survive_a_round_trip(count: int, dtype: DataType) -> None:
    array = random_bytes((count,), dtype)
    packed = pack_nibbles(array)
    assert packed.nbytes == size_bytes((count,), dtype, F.LINEAR)
    assert same_bytes(unpack_nibbles(packed, dtype, count), array)
    assert same_bytes(unpack_nibbles(packed.tobytes(), dtype, count), array)
    out = np.full(packed.shape, 255, np.uint8)
    assert pack_nibbles(array.reshape(1, -1), out=out) is out
    assert same_bytes(out, packed)


def test_the_first_nibble_is_the_low_half() -> None:
    assert pack_nibbles(np.array([2, -3], DataType.INT4.numpy)).tolist() == [0xD2]
    assert pack_nibbles(np.array([-1], np.int8)).tolist() == [0x0F]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: packed_shape((2, 3), F.CHW4), "CHW4 needs at least 3 dims"),
        (lambda: packed_shape((2, 3, 4), F.DHWC8), "DHWC8 needs at least 4 dims"),
        (lambda: packed_shape((1, -1, 2), F.LINEAR), "not all known"),
        (lambda: packed_shape((1, 2, 3), F.DLA_LINEAR), "pass dtype="),
        (lambda: packed_shape((2, 4, 4), F.DLA_HWC4), "1, 3 or 4 channels"),
        (lambda: packed_shape((2, 4, 4), 99), "unknown tensor format"),  # type: ignore[arg-type]
        (lambda: unpack(np.zeros((1, 2, 2, 2)), F.CHW4, (3, 2, 2)), "wrong shape"),
        (lambda: pack(np.zeros((3, 2, 2)), F.CHW4, out=np.zeros((1, 2, 2, 2))), "out has the wrong shape"),
        (lambda: pack(np.zeros((3, 2, 2)), F.HWC, out=np.zeros((2, 2, 3), np.float32)), "another type"),
        (lambda: reformat(np.zeros((3, 2, 2)), F.HWC, F.CHW4, (3, 2, 1)), "wrong shape"),
        (lambda: pack_nibbles(np.zeros(2, np.int32)), "one-byte elements"),
        (lambda: unpack_nibbles(b"", DataType.INT4, 1), "too few bytes"),
        (lambda: unpack_nibbles(b"", DataType.INT8, 0), "INT4 or FP4"),
    ],
)
def test_impossible_requests_are_refused(call: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        call()
