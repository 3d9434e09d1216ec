"""String constants in a plan: what goes in comes out, and bytes that are no strings are refused."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dovetail.errors import PlanCorruptError
from dovetail.plan.strings import pack_strings, unpack_strings
from dovetail.plan.value_types import ValueType, parse_value_type

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


@given(hnp.arrays(object, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3), elements=TEXT))
def test_strings_come_back(array: np.ndarray) -> None:  # type: ignore[type-arg]
    result = unpack_strings(memoryview(pack_strings(array)), "blob")
    assert result.shape == array.shape
    assert result.tolist() == array.tolist()


@given(st.data())
def test_changed_bytes_give_strings_or_an_error(data: st.DataObject) -> None:
    packed = bytearray(pack_strings(np.array([["ab", "é"], ["", "x"]], dtype=object)))
    for _ in range(data.draw(st.integers(1, 3))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    raw = bytes(packed[: data.draw(st.integers(0, len(packed)))])
    with contextlib.suppress(PlanCorruptError):
        assert unpack_strings(memoryview(raw), "blob").size <= len(raw) // 8


def _words(*numbers: int, text: bytes = b"") -> memoryview:
    return memoryview(np.array(numbers, "<u8").tobytes() + text)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (_words(), "without a rank"),
        (_words(33), "without a rank"),
        (_words(2**63), "without a rank"),
        (_words(3, 1), "without a shape"),
        (_words(1, 2**62, 0), "without offsets"),
        (_words(3, 0, 2**40, 2**40, 0), "without offsets"),
        (_words(1, 2, 0, 1), "without offsets"),
        (_words(1, 1, 0, 2, text=b"a"), "do not fit"),
        (_words(1, 1, 1, 1, text=b"a"), "do not fit"),
        (_words(1, 2, 0, 5, 1, text=b"a"), "do not fit"),
        (_words(1, 1, 0, 1, text=b"ab"), "do not fit"),
        (_words(1, 1, 0, 1, text=b"\xff"), "not UTF-8"),
    ],
)
def test_bytes_that_are_no_strings(data: memoryview, expected: str) -> None:
    with pytest.raises(PlanCorruptError, match=expected):
        unpack_strings(data, "blob 'x'")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tensor(string)", ValueType("object")),
        ("seq(tensor(bfloat16))", ValueType("bfloat16", is_sequence=True)),
        ("optional(tensor(string))", ValueType("object", is_optional=True)),
        ("optional(seq(tensor(int64)))", ValueType("int64", is_sequence=True, is_optional=True)),
    ],
)
def test_types_that_objects_have(text: str, expected: ValueType) -> None:
    assert parse_value_type(text) == expected


@pytest.mark.parametrize(
    "text", ["", "tensor(float)", "seq(seq(tensor(float)))", "optional(tensor(float)", "map(int64)"]
)
def test_types_that_objects_do_not_have(text: str) -> None:
    with pytest.raises(PlanCorruptError, match="no such type"):
        parse_value_type(text)
