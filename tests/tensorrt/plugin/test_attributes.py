"""Attributes as fields: what goes into a plan comes out of it, whatever the value."""

from __future__ import annotations

import sys
import typing
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from dovetail import PluginField, PluginFieldType
from dovetail.plugin.fields import decode_fields, encode_fields
from dovetail_tensorrt.trt.plugin.attributes import AttributeType, read_annotation

ELEMENTS = ["int8", "int16", "int32", "int64", "float16", "float32", "float64", "bool"]
scalars = st.one_of(
    st.tuples(st.just(int), st.integers(-(2**63), 2**63 - 1)),
    st.tuples(st.just(float), st.floats(allow_nan=False)),
    st.tuples(st.just(bool), st.booleans()),
    st.tuples(st.just(str), st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]))),
    st.tuples(st.just(bytes), st.binary()),
)
rows = st.sampled_from(ELEMENTS).flatmap(
    lambda name: st.tuples(
        st.just(name),
        arrays.arrays(np.dtype(name), st.integers(0, 5), elements={"allow_nan": False} if "float" in name else None),
    )
)


def through_a_plan(kind: AttributeType, value: Any) -> Any:
    (field,) = decode_fields(encode_fields([kind.to_field("a", value)], where="here"))
    return kind.from_field(field, "here")


@given(scalars)
def test_single_values_come_back(pair: tuple[type, Any]) -> None:
    kind, value = AttributeType(pair[0]), pair[1]
    assert kind.check("a", value, "here") == value
    found = through_a_plan(kind, value)
    assert found == value
    assert type(found) is pair[0]


@given(rows)
def test_arrays_come_back(pair: tuple[str, Any]) -> None:
    name, value = pair
    kind = AttributeType(np.ndarray, name)
    found = through_a_plan(kind, kind.check("a", value, "here"))
    assert found.dtype == value.dtype
    np.testing.assert_array_equal(found, value)


def test_fields_of_onnx_nodes_are_narrower() -> None:
    def read(kind: Any, data: Any, field_type: PluginFieldType) -> Any:
        found = read_annotation(kind)
        assert found is not None
        return found.from_field(PluginField("a", data, field_type), "here")

    assert read(int, np.array([7], np.int32), PluginFieldType.INT32) == 7
    assert read(float, np.array([0.5], np.float32), PluginFieldType.FLOAT32) == 0.5
    assert read(bool, np.array([1], np.int32), PluginFieldType.INT32) is True
    assert read(str, bytearray(b"same\0"), PluginFieldType.CHAR) == "same"
    with pytest.raises(ValueError, match="no single value"):
        read(int, np.array([7, 8], np.int32), PluginFieldType.INT32)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="aliases of this kind are of Python 3.12")
def test_an_array_by_an_alias_that_has_a_name() -> None:
    element = typing.TypeVar("element", bound=np.generic)
    array = typing.TypeAliasType("array", np.ndarray[typing.Any, np.dtype[element]], type_params=(element,))
    found = read_annotation(array[np.int32])
    assert found is not None
    assert found.text == "NDArray[int32]"
