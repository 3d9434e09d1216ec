"""The type that a creator declares decides the type of a field; a value that it cannot hold is an error."""

from __future__ import annotations

import math
from typing import Any, Final

import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import dovetail as dt
from dovetail.plugin.field_values import field_from_value
from dovetail.plugin.fields import element_type
from tests.support.plugins import PlainCreator, ScalePlugin

T = dt.PluginFieldType
INTEGERS: Final = (T.INT4, T.INT8, T.INT16, T.INT32, T.INT64)
FLOATS: Final = (T.FP4, T.FP8, T.FLOAT16, T.BF16, T.FLOAT32, T.FLOAT64)


class Keeping(ScalePlugin):
    """Serializes the fields that it was made of."""

    formats = (dt.TensorFormat.LINEAR,)
    tactics = ()
    fields: Any = ()

    def get_fields_to_serialize(self) -> Any:
        return dt.PluginFieldCollection(list(self.fields))


class Noting(PlainCreator):
    """Declares one field and keeps the fields that it receives in each phase."""

    def __init__(self, declared: Any) -> None:
        super().__init__("TestScale", Keeping)
        self.field_names = dt.PluginFieldCollection([dt.PluginField("k", None, declared)])
        self.seen: dict[Any, Any] = {}

    def create_plugin(self, name: str, fc: Any, phase: Any) -> Any:
        self.seen[dt.TensorRTPhase(phase)] = [field for field in fc if field.name == "k"]
        plugin = Keeping(1.0)
        plugin.fields = list(fc)
        return plugin


def compile_model(declared: Any, value: Any) -> tuple[Any, Any]:
    """The field in the phase of the build, and in that of an engine that was loaded from the plan."""
    node = helper.make_node("TestScale", ["x"], ["y"])
    node.attribute.append(value if isinstance(value, onnx.AttributeProto) else helper.make_attribute("k", value))
    info = helper.make_tensor_value_info
    x, y = info("x", TensorProto.FLOAT, [3]), info("y", TensorProto.FLOAT, [3])
    graph = helper.make_graph([node], "g", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    creator = Noting(declared)
    registry = dt.PluginRegistry()
    registry.register_creator(creator, "")
    dt.compile(model, registry=registry, providers=["cpu"]).close()
    (built,), (loaded,) = creator.seen[dt.TensorRTPhase.BUILD], creator.seen[dt.TensorRTPhase.RUNTIME]
    return built, loaded


def tensor(*numbers: Any, dtype: Any) -> Any:
    return numpy_helper.from_array(np.array(numbers, dtype), "t")


@pytest.mark.parametrize(
    ("declared", "value", "numbers"),
    [
        (T.INT64, 7, [7]),
        (T.INT64, 2**40, [2**40]),
        (T.INT64, [1, -(2**63)], [1, -(2**63)]),
        (T.INT8, -128, [-128]),
        (T.INT16, [1, 2], [1, 2]),
        (T.INT32, 7, [7]),
        (T.INT4, [-8, 7], [-8, 7]),
        (T.FLOAT16, 0.5, [0.5]),
        (T.FLOAT16, 0.1, [float(np.float16(0.1))]),
        (T.BF16, [0.5, -2.0], [0.5, -2.0]),
        (T.FLOAT64, 0.5, [0.5]),
        (T.FLOAT64, math.inf, [math.inf]),
        (T.FP8, 448.0, [448.0]),
        (T.FP4, [6.0, -0.5], [6.0, -0.5]),
        (T.FLOAT32, 3, [3.0]),
        (T.INT32, 3.0, [3]),
        (T.INT64, tensor(1, 2, dtype=np.int8), [1, 2]),
        (T.INT8, tensor(127, dtype=np.uint8), [127]),
        (T.FLOAT32, tensor(1, 0, dtype=np.bool_), [1, 0]),
        (T.FLOAT64, tensor(0.1, dtype=np.float64), [0.1]),
    ],
)
def test_the_declared_type_decides(declared: Any, value: Any, numbers: list[float]) -> None:
    for field in compile_model(declared, value):
        assert field.type is declared
        assert np.asarray(field.read()).astype(np.float64 if declared in FLOATS else np.int64).tolist() == numbers


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        (T.INT32, 2**40),
        (T.INT8, 128),
        (T.INT8, -129),
        (T.INT16, [1, 2**15]),
        (T.INT4, 8),
        (T.INT32, 2.5),
        (T.INT64, math.inf),
        (T.INT64, math.nan),
        (T.INT64, float(2**63)),
        (T.FLOAT16, 1e6),
        (T.FLOAT16, 1e-30),
        (T.FP8, 1e3),
        (T.FP4, math.nan),
        (T.FP4, 100.0),
        (T.FLOAT32, 2**24 + 1),
        (T.FLOAT64, 2**53 + 1),
        (T.INT32, "3"),
        (T.FLOAT32, ["0.5"]),
        (T.CHAR, 3),
        (T.CHAR, [0.5]),
        (T.DIMS, [1] * 9),
        (T.DIMS, "2x3"),
        (T.INT8, tensor(200, dtype=np.uint8)),
        (T.INT64, tensor(2**63, dtype=np.uint64)),
        (T.FLOAT32, tensor(1e300, dtype=np.float64)),
        (T.INT32, helper.make_tensor("t", TensorProto.STRING, [1], [b"3"])),
        (T.UNKNOWN, 2**40),
    ],
)
def test_a_value_that_does_not_fit_is_one_named_error(declared: Any, value: Any) -> None:
    with pytest.raises(dt.ModelError) as caught:
        compile_model(declared, value)
    text = str(caught.value)
    assert "field 'k'" in text
    assert (T.INT32 if declared is T.UNKNOWN else declared).name in text
    assert "TestScale" in text
    assert text.count("fix:") == 1


@pytest.mark.parametrize(
    "value", ["edge", ["ab", "", "c"], helper.make_tensor("t", TensorProto.STRING, [2], [b"a", b"b"])]
)
def test_texts_are_characters_with_final_nul(value: Any) -> None:
    texts = [value] if isinstance(value, str) else [b"a", b"b"] if not isinstance(value, list) else value
    raw = b"".join((text.encode() if isinstance(text, str) else text) + b"\0" for text in texts)
    for field in compile_model(T.CHAR, value):
        assert (field.type, bytes(field.data)) == (T.CHAR, raw)


def test_a_vector_of_integers_is_one_shape() -> None:
    for field in compile_model(T.DIMS, [2, 3, 2**40]):
        assert field.type is T.DIMS
        raw = np.ascontiguousarray(field.buffer).tobytes()
        assert len(raw) == 72
        assert np.frombuffer(raw[:4], np.int32)[0] == 3
        assert np.frombuffer(raw[8:], np.int64)[:3].tolist() == [2, 3, 2**40]


@pytest.mark.parametrize("value", [1, 2**31 - 1, -(2**31)])
def test_an_undeclared_integer_is_int32_whatever_its_value(value: int) -> None:
    for field in compile_model(T.UNKNOWN, value):
        assert (field.type, field.data.tolist()) == (T.INT32, [value])


def test_bytes_of_an_undeclared_uint8_tensor_are_unchanged() -> None:
    built, loaded = compile_model(T.UNKNOWN, tensor(200, 255, dtype=np.uint8))
    for field in (built, loaded):
        assert field.type is T.UNKNOWN
        assert np.ascontiguousarray(field.buffer).tobytes() == bytes([200, 255])


@pytest.mark.parametrize("value", [2**31, -(2**40), 1e300, 2**80])
def test_plain_values_are_never_truncated(value: Any) -> None:
    with pytest.raises(dt.UsageError, match="field 'k'"):
        field_from_value("k", value)


# every declared type with every kind of attribute

POWERS: Final = [sign * 2**bits for bits in (0, 3, 7, 8, 11, 15, 16, 24, 31, 32, 53, 62) for sign in (1, -1)]
BOUNDARIES: Final = sorted({power + step for power in POWERS for step in (-1, 0, 1)} | {0, 2**63 - 1, -(2**63)})
LIMITS: Final = [0.0, -0.0, 0.5, 1.5, 6.0, 448.0, 65504.0, 65520.0, 2.0**31, 2.0**63, 1e-30]
REALS: Final = st.one_of(
    st.sampled_from([*LIMITS, math.inf, -math.inf, math.nan]),
    st.floats(width=32),
    st.integers(-(2**24), 2**24).map(float),
)
NUMBERS: Final = st.one_of(st.sampled_from(BOUNDARIES), st.integers(-(2**63), 2**63 - 1))
ARRAYS: Final = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "f2", "f4", "f8")
TEXTS: Final = st.text(st.characters(min_codepoint=1, max_codepoint=300), max_size=5)


@st.composite
def attributes(draw: Any) -> tuple[str, Any]:
    kind = draw(st.sampled_from(["INT", "INTS", "FLOAT", "FLOATS", "STRING", "STRINGS", "TENSOR"]))
    if kind in ("INT", "INTS"):
        numbers = draw(st.lists(NUMBERS, min_size=1, max_size=3))
        return kind, numbers[0] if kind == "INT" else numbers
    if kind in ("FLOAT", "FLOATS"):
        reals = draw(st.lists(REALS, min_size=1, max_size=3))
        return kind, reals[0] if kind == "FLOAT" else reals
    if kind == "STRING":
        return kind, draw(TEXTS)
    if kind == "STRINGS":
        return kind, draw(st.lists(TEXTS, min_size=1, max_size=3))
    dtype = np.dtype(draw(st.sampled_from(ARRAYS)))
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            return kind, np.array(draw(st.lists(REALS, min_size=1, max_size=3)), np.float64).astype(dtype)
    info = np.iinfo(dtype)
    ends = st.sampled_from([int(info.min), int(info.max), 0, 1])
    drawn = st.one_of(ends, st.integers(int(info.min), int(info.max)))
    return kind, np.array(draw(st.lists(drawn, min_size=1, max_size=3)), dtype)


def holds(declared: Any, number: Any) -> Any:
    """The number that a declared type makes of a number, by definition; None where it cannot hold it."""
    dtype: Any = element_type(declared)
    if declared in INTEGERS or declared is T.DIMS:
        info = ml_dtypes.iinfo(np.int64 if declared is T.DIMS else dtype)
        if isinstance(number, float) and not (math.isfinite(number) and number.is_integer()):
            return None
        return int(number) if int(info.min) <= int(number) <= int(info.max) else None
    with np.errstate(all="ignore"):
        made = float(
            np.array(number, np.float64 if isinstance(number, float) else np.int64).astype(dtype).astype(np.float64)
        )
    if not isinstance(number, float):
        return made if math.isfinite(made) and int(made) == number else None
    if math.isnan(number) or math.isinf(number):
        return made if made == number or (math.isnan(made) and math.isnan(number)) else None
    overflow = {T.FP4: 7.0, T.FP8: 464.0}.get(declared, math.inf)  # NumPy overflows the others to infinity
    return made if math.isfinite(made) and abs(number) < overflow and (made or not number) else None


@given(declared=st.sampled_from([kind for kind in T if kind is not T.UNKNOWN]), attribute=attributes())
def test_a_field_has_its_declared_type_and_value_or_there_is_an_error(
    declared: Any, attribute: tuple[str, Any]
) -> None:
    kind, value = attribute
    sent = numpy_helper.from_array(value, "t") if kind == "TENSOR" else value
    if kind == "FLOATS" or kind == "INTS":
        sent = onnx.helper.make_attribute("k", value, attr_type=getattr(onnx.AttributeProto, kind))
    is_text = kind in ("STRING", "STRINGS")
    wanted: Any = None
    if is_text and declared is T.CHAR:
        texts = [value] if kind == "STRING" else value
        wanted = b"".join(text.encode() + b"\0" for text in texts)
    elif kind == "TENSOR" and declared is T.CHAR and value.dtype in (np.int8, np.uint8):
        wanted = value.tobytes()
    elif not is_text and declared is not T.CHAR:
        vector = np.atleast_1d(np.array(value, np.float32) if kind in ("FLOAT", "FLOATS") else np.array(value))
        wanted = [holds(declared, number) for number in vector.tolist()]
        wanted = None if None in wanted else wanted
    if wanted is None:
        with pytest.raises(dt.ModelError, match=r"field 'k'[^\0]*fix:"):
            compile_model(declared, sent)
        return
    fields = compile_model(declared, sent)
    for field in fields:
        assert field.type is declared
        if declared is T.CHAR:
            assert bytes(field.data if field.data is not None else b"") == wanted
        elif declared is T.DIMS:
            raw = np.ascontiguousarray(field.buffer).tobytes()
            assert np.frombuffer(raw[8:], np.int64)[: len(wanted)].tolist() == wanted
        else:
            read = np.asarray(field.read())
            got = read.astype(np.float64) if declared in FLOATS else read.astype(np.int64)
            np.testing.assert_array_equal(got, np.array(wanted, got.dtype))
