"""Tensors of the protocol and arrays, both ways, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dovetail_serve.errors import RequestError, TooLargeError
from dovetail_serve.tensors.datatypes import BYTES, DATATYPES, datatype_from_name, name_from_dtype
from dovetail_serve.tensors.raw import array_from_raw, array_from_strings, raw_from_array
from dovetail_serve.tensors.shapes import count_elements
from dovetail_serve.tensors.values import array_from_json, is_finite, values_from_array

NUMERIC = [name for name in DATATYPES if name != "BYTES"]
SHAPES = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)


@st.composite
def tensors(draw: Any) -> tuple[str, Any]:
    name = draw(st.sampled_from(list(DATATYPES)))
    shape = draw(SHAPES)
    count = int(np.prod(shape))
    if name == "BYTES":
        return name, array_from_strings(draw(st.lists(st.binary(max_size=9), min_size=count, max_size=count)), shape)
    if name == "BF16":
        floats = draw(hnp.arrays(np.float32, shape, elements=st.floats(width=32)))
        with np.errstate(all="ignore"):
            return name, floats.astype(ml_dtypes.bfloat16)
    return name, draw(hnp.arrays(DATATYPES[name].dtype, shape))


def same(got: Any, sent: Any) -> None:
    assert got.dtype == sent.dtype
    assert got.shape == sent.shape
    if sent.dtype == object:
        assert got.tolist() == sent.tolist()
    else:
        assert got.tobytes() == sent.tobytes()


@given(tensors(), st.integers(0, 7))
def test_raw_bytes_both_ways(case: tuple[str, Any], offset: int) -> None:
    name, array = case
    raw = memoryview(bytes(offset) + bytes(raw_from_array(array)))[offset:]
    got = array_from_raw(raw, array.shape, array.size, DATATYPES[name], "x")
    same(got, array)
    assert got.flags.aligned


def test_raw_bytes_are_not_copied() -> None:
    body = bytes(64)
    got = array_from_raw(memoryview(body), (16,), 16, DATATYPES["FP32"], "x")
    assert np.shares_memory(got, np.frombuffer(body, np.uint8))
    assert not got.flags.writeable
    array = np.ones((4, 4), np.float32)
    assert np.shares_memory(np.frombuffer(raw_from_array(array), np.uint8), array)


def test_what_is_not_contiguous_is_written_in_order() -> None:
    array = np.arange(6, dtype=np.int16).reshape(2, 3).T
    assert bytes(raw_from_array(array)) == array.tobytes()


@given(tensors(), st.booleans())
def test_json_both_ways(case: tuple[str, Any], nested: bool) -> None:
    name, array = case
    if name == "BYTES":
        array = array_from_strings([each.hex().encode() for each in array.ravel()], array.shape)
    if not is_finite(array):
        return
    values = values_from_array(array, "y")
    if nested and array.ndim and array.size:
        values = np.array(values, object).reshape(array.shape).tolist()
    got = array_from_json(json.dumps(values).encode(), array.shape, array.size, DATATYPES[name], "x")
    same(got, array)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("INT8", b"[1, 200]"),
        ("UINT8", b"[-1, 2]"),
        ("UINT64", b"[0, 18446744073709551616]"),
        ("INT64", b"[9223372036854775808, 0]"),
        ("INT32", b"[1.5, 2]"),
        ("INT32", b'["1", 2]'),
        ("INT32", b"[true, 2]"),
        ("FP32", b"[null, 2]"),
        ("BOOL", b"[2, 0]"),
        ("BYTES", b"[1, 2]"),
        ("FP32", b"[[1], [2], [3]]"),
        ("FP32", b"[[1, 2], 3]"),
        ("FP32", b'{"a": 1, "b": 2}'),
        ("FP32", b"[1, 2, 3]"),
        ("FP32", b"1,2"),
        ("FP32", b"[" * 100_000 + b","),
        ("BYTES", b'["a"]'),
    ],
)
def test_values_that_do_not_fit(name: str, text: bytes) -> None:
    with pytest.raises(RequestError, match="input 'x'"):
        array_from_json(text, (2,), 2, DATATYPES[name], "input 'x'")


def test_half_precision() -> None:
    got = array_from_json(b"[0.1, 65504]", (2,), 2, DATATYPES["FP16"], "x")
    assert got.tolist() == [np.float16(0.1), 65504]


@pytest.mark.parametrize("shape", [[-1], [2**62, 4], [10**30], [0, 2**63], [1] * 40, [2**31, 2**31, 2**31, 0]])
def test_hostile_shapes(shape: list[int]) -> None:
    with pytest.raises((RequestError, TooLargeError), match="input 'x'"):
        count_elements(shape, DATATYPES["INT8"], 1 << 20, "input 'x'")


@pytest.mark.parametrize(
    "raw", [b"\x05\0\0\0abc", b"\xff\xff\xff\xffabc", b"\1\0", b"\1\0\0\0a" * 3, b"", b"\1\0\0\0a\1"]
)
def test_strings_that_do_not_fit(raw: bytes) -> None:
    with pytest.raises(RequestError, match="2 strings"):
        array_from_raw(memoryview(raw), (2,), 2, BYTES, "input 'x'")


def test_booleans_that_are_none() -> None:
    with pytest.raises(RequestError, match="neither 0 nor 1"):
        array_from_raw(memoryview(b"\0\2"), (2,), 2, DATATYPES["BOOL"], "input 'x'")


@pytest.mark.parametrize("dtype", [ml_dtypes.float8_e4m3fn, ml_dtypes.int4, np.complex64])
def test_types_that_the_protocol_lacks(dtype: Any) -> None:
    with pytest.raises(RequestError, match="add a Cast"):
        name_from_dtype(np.dtype(dtype), "output 'y'")


@pytest.mark.parametrize("name", ["FP8", "INT4", "fp32", ""])
def test_names_that_the_protocol_lacks(name: str) -> None:
    with pytest.raises(RequestError, match="FP32"):
        datatype_from_name(name, "input 'x'")


@pytest.mark.parametrize("name", NUMERIC)
def test_every_datatype_has_its_name(name: str) -> None:
    assert name_from_dtype(DATATYPES[name].dtype) == name


def test_bytes_that_are_no_text() -> None:
    with pytest.raises(RequestError, match="ask for binary data"):
        values_from_array(array_from_strings([b"\xff"], (1,)), "output 'y'")


@pytest.mark.parametrize(("name", "value"), [("FP16", "1e6"), ("BF16", "1e39"), ("FP32", "-1e39"), ("INT8", "300")])
def test_values_that_a_type_cannot_hold_are_refused(name: str, value: str) -> None:
    with pytest.raises(RequestError, match="a value does not fit the datatype"):
        array_from_json(f"[1, {value}]".encode(), (2,), 2, DATATYPES[name], "input 'x'")
