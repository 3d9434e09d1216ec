"""The wire format: what is written is read back and is what onnx reads, and no bytes make a reader go astray."""

from __future__ import annotations

import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.protobuf import Field, MalformedMessageError, read_fields, write_bytes, write_header, write_number

NUMBERS = st.integers(1, 2**29 - 1)


def _read(data: bytes) -> list[Field]:
    return list(read_fields(memoryview(data)))


@given(fields=st.lists(st.tuples(NUMBERS, st.binary(max_size=300) | st.integers(0, 2**64 - 1))))
def test_fields_are_read_where_they_were_written(fields: list[tuple[int, bytes | int]]) -> None:
    parts = [write_bytes(n, what) if isinstance(what, bytes) else write_number(n, what) for n, what in fields]
    data = b"".join(parts)
    found = _read(data)
    assert [field.number for field in found] == [number for number, _ in fields]
    assert [data[field.start : field.end] for field in found] == parts
    contents = [data[field.content : field.end] for field in found if field.has_length]
    assert contents == [what for _, what in fields if isinstance(what, bytes)]


def test_onnx_reads_what_was_written() -> None:
    data = write_number(1, 300) + write_number(2, 1) + write_header(8, 5) + b"hello" + write_bytes(9, b"\0" * 200)
    tensor = onnx.TensorProto.FromString(data)
    assert (list(tensor.dims), tensor.data_type, tensor.name) == ([300], 1, "hello")
    assert tensor.raw_data == bytes(200)


def test_numbers_of_fixed_size_are_passed_over() -> None:
    data = bytes([1 << 3 | 5]) + bytes(4) + bytes([2 << 3 | 1]) + bytes(8) + write_number(3, 1)
    assert [(field.number, field.has_length) for field in _read(data)] == [(1, False), (2, False), (3, False)]


def test_a_part_of_the_bytes_ends_where_it_is_said_to() -> None:
    data = memoryview(b"before" + write_bytes(1, b"ab") + write_bytes(2, b"c"))
    assert [field.number for field in read_fields(data, 6, 10)] == [1]
    with pytest.raises(MalformedMessageError):
        list(read_fields(data, 6, 9))


@pytest.mark.parametrize(
    "data",
    [
        b"\x80",
        write_header(1, 3) + b"ab",
        bytes([1 << 3 | 5]) + bytes(3),
        bytes([1 << 3 | 3]),
        b"\x02\x00",
        b"\xff" * 11,
        b"\x82\x80\x80\x80\x10\x00",
    ],
    ids=["no end", "cut short", "fixed, cut short", "a group", "number 0", "endless", "a tag of 33 bits"],
)
def test_what_is_no_message_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedMessageError):
        _read(data)


@given(data=st.binary(max_size=60))
def test_any_bytes_are_read_whole_or_refused(data: bytes) -> None:
    try:
        found = _read(data)
    except MalformedMessageError:
        return
    assert [field.start for field in found] + [len(data)] == [0, *(field.end for field in found)]
