"""Rule 1.7: descriptors, fields and enums as values: their members, numbers and defaults."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dovetail as trt
from dovetail.formats import packed_shape
from dovetail.plugin import as_array
from tests.conformance.contract.authors import Plus, PlusCreator, build, details, load, one_plugin

F = trt.TensorFormat
T = trt.PluginFieldType


@pytest.mark.parametrize(
    ("enum", "names"),
    [
        (trt.DataType, "FLOAT HALF INT8 INT32 BOOL UINT8 FP8 BF16 INT64 INT4 FP4 E8M0"),
        (
            trt.TensorFormat,
            "LINEAR CHW2 HWC8 CHW4 CHW16 CHW32 DHWC8 CDHW32 HWC DLA_LINEAR DLA_HWC4 HWC16 DHWC",
        ),
        (
            trt.PluginFieldType,
            "FLOAT16 FLOAT32 FLOAT64 INT8 INT16 INT32 CHAR DIMS UNKNOWN BF16 INT64 FP8 INT4 FP4",
        ),
        (trt.TensorRTPhase, "BUILD RUNTIME"),
        (
            trt.ErrorCode,
            """SUCCESS UNSPECIFIED_ERROR INTERNAL_ERROR INVALID_ARGUMENT INVALID_CONFIG FAILED_ALLOCATION
            FAILED_INITIALIZATION FAILED_EXECUTION FAILED_COMPUTATION INVALID_STATE UNSUPPORTED_STATE""",
        ),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_enums_have_the_contracts_names_and_numbers(enum: Any, names: str) -> None:
    assert {member.name: member.value for member in enum} == {name: i for i, name in enumerate(names.split())}


def test_error_codes_have_both_names() -> None:
    assert trt.ErrorCodeTRT is trt.ErrorCode


def test_a_tensor_descriptor() -> None:
    desc = trt.PluginTensorDesc()
    assert desc.scale == -1.0
    desc.dims, desc.type, desc.format, desc.scale = (1, -1, 3), trt.float16, F.HWC8, 0.5
    assert desc.dims == (1, -1, 3)
    assert isinstance(desc.dims, trt.Dims)
    assert (desc.type, desc.format, desc.scale) == (trt.float16, F.HWC8, 0.5)
    desc.dims[1] = 7
    assert desc.dims == (1, 7, 3)


def test_a_dynamic_descriptor() -> None:
    dynamic = trt.DynamicPluginTensorDesc()
    dynamic.desc = trt.PluginTensorDesc()
    dynamic.min, dynamic.opt, dynamic.max = (1,), [2], np.array([3])
    assert (dynamic.min, dynamic.opt, dynamic.max) == ((1,), (2,), (3,))
    assert isinstance(dynamic.max, trt.Dims)


def test_descriptors_in_callbacks_are_of_the_right_class() -> None:
    class Checking(Plus):
        def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> bool:
            assert all(type(d) is trt.DynamicPluginTensorDesc for d in in_out)
            return super().supports_format_combination(pos, in_out, num_inputs)

        def configure_plugin(self, inp: Any, out: Any) -> None:
            assert all(type(d) is trt.DynamicPluginTensorDesc for d in (*inp, *out))

        def get_workspace_size(self, inp: Any, out: Any) -> int:
            assert all(type(d) is trt.DynamicPluginTensorDesc for d in (*inp, *out))
            return 0

        def on_shape_change(self, inp: Any, out: Any) -> None:
            assert all(type(d) is trt.PluginTensorDesc for d in (*inp, *out))

        def compute(self, input_desc: Any, output_desc: Any, *rest: Any) -> None:
            assert all(type(d) is trt.PluginTensorDesc for d in (*input_desc, *output_desc))
            super().compute(input_desc, output_desc, *rest)

    x = np.zeros((2, 3), np.float32)
    np.testing.assert_array_equal(load(build(one_plugin(Checking())), PlusCreator(Checking))(x), x + 1)


@pytest.mark.parametrize("dtype", [trt.float32, trt.float16, trt.int32, trt.uint8], ids=lambda d: d.name)
def test_the_scale_is_minus_one_unless_the_type_is_int8(dtype: Any) -> None:
    trace: list[Any] = []
    load(build(one_plugin(Plus(1.0, trace), (2, 3), dtype)), PlusCreator(Plus, trace))(np.zeros((2, 3), dtype.numpy))
    for inputs, outputs in details(trace, "configure_plugin"):
        assert {d.desc.scale for d in (*inputs, *outputs)} == {-1.0}
    for inputs, outputs in details(trace, "on_shape_change"):
        assert {d.scale for d in (*inputs, *outputs)} == {-1.0}


def test_int8_scales_come_from_quantize_layers() -> None:
    class Copy(Plus):
        def compute(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any) -> None:
            as_array(outputs[0], output_desc[0])[...] = as_array(inputs[0], input_desc[0])

    def fill(network: Any) -> Any:
        x = network.add_input("x", trt.float32, (2, 3))
        scale = network.add_constant((), np.array(0.5, np.float32)).get_output(0)
        quantized = network.add_quantize(x, scale, trt.int8).get_output(0)
        y = network.add_plugin_v3([quantized], [], Copy(1.0, trace)).get_output(0)
        return network.add_dequantize(y, scale, trt.float32).get_output(0)

    trace: list[Any] = []
    engine = load(build(fill), PlusCreator(Copy))
    [x], [y] = details(trace, "configure_plugin")[0]
    assert (x.desc.type, y.desc.type) == (trt.int8, trt.int8)
    assert (x.desc.scale, y.desc.scale) == (0.5, 0.5)
    x = np.array([[1, 2, 3], [-1, -2, -3]], np.float32)
    np.testing.assert_array_equal(engine(x), x)


@pytest.mark.parametrize(
    ("fmt", "dims", "physical"),
    [
        (F.LINEAR, (2, 3, 4, 5), (2, 3, 4, 5)),
        (F.CHW2, (2, 3, 4, 5), (2, 2, 4, 5, 2)),
        (F.HWC8, (2, 3, 4, 5), (2, 4, 5, 8)),
        (F.CHW4, (2, 5, 4, 5), (2, 2, 4, 5, 4)),
        (F.CHW16, (2, 3, 4, 5), (2, 1, 4, 5, 16)),
        (F.CHW32, (2, 33, 4, 5), (2, 2, 4, 5, 32)),
        (F.DHWC8, (2, 3, 6, 4, 5), (2, 6, 4, 5, 8)),
        (F.CDHW32, (2, 3, 6, 4, 5), (2, 1, 6, 4, 5, 32)),
        (F.HWC, (2, 3, 4, 5), (2, 4, 5, 3)),
        (F.HWC16, (2, 17, 4, 5), (2, 4, 5, 32)),
        (F.DHWC, (2, 3, 6, 4, 5), (2, 6, 4, 5, 3)),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_formats_lay_memory_out_as_the_table_says(fmt: Any, dims: Any, physical: Any) -> None:
    assert packed_shape(dims, fmt) == physical


# fields


FIELDS: dict[str, tuple[Any, Any]] = {
    "half": (np.array([1.5, -2], np.float16), T.FLOAT16),
    "single": (np.array([0.25, 3], np.float32), T.FLOAT32),
    "double": (np.array([1e300]), T.FLOAT64),
    "i8": (np.array([-3, 4], np.int8), T.INT8),
    "i16": (np.array([-300], np.int16), T.INT16),
    "i32": (np.array([2**31 - 1, -5], np.int32), T.INT32),
    "text": (b"nearest\0", T.CHAR),
    "dims": (np.array([2, 3, 4], np.int64), T.DIMS),
    "blob": (b"\x00\xff\x80raw", T.UNKNOWN),
    "brain": (np.array([1, 2], np.uint16), T.BF16),
    "i64": (np.array([2**62, -1], np.int64), T.INT64),
    "f8": (np.array([7, 9], np.uint8), T.FP8),
    "i4": (np.array([1, 2], np.int8), T.INT4),
    "f4": (np.array([1, 2], np.int8), T.FP4),
    "empty": (np.array([], np.float32), T.FLOAT32),
    "matrix": (np.arange(6, dtype=np.int32).reshape(2, 3), T.INT32),
}
READABLE = {T.FLOAT32, T.FLOAT64, T.INT8, T.INT16, T.INT32, T.INT64, T.CHAR, T.UNKNOWN}


def test_fields_of_every_type_survive_a_plan() -> None:
    class Loaded(Plus):
        def get_fields_to_serialize(self) -> Any:
            return trt.PluginFieldCollection([trt.PluginField(n, d, t) for n, (d, t) in FIELDS.items()])

    creator = PlusCreator(Plus)
    load(build(one_plugin(Loaded())), creator)
    given = {f.name: f for f in creator.created[0][1]}
    assert list(given) == list(FIELDS)
    for name, (data, kind) in FIELDS.items():
        assert given[name].type == kind
        raw = bytes(data) if isinstance(data, bytes) else data.tobytes()
        if kind in READABLE:
            assert given[name].data.tobytes() == raw
            assert given[name].data.ndim == 1
            assert given[name].size == given[name].data.size
    assert given["i32"].data.tolist() == [2**31 - 1, -5]
    assert given["i64"].data.tolist() == [2**62, -1]
    assert given["blob"].size == 6
    assert bytes(given["text"].data).rstrip(b"\0").decode() == "nearest"


@pytest.mark.parametrize("fields", [None, [], (), trt.PluginFieldCollection()])
def test_a_plugin_may_serialize_nothing(fields: Any) -> None:
    class Bare(Plus):
        def get_fields_to_serialize(self) -> Any:
            return fields

    creator = PlusCreator(Bare)
    load(build(one_plugin(Bare())), creator)
    assert creator.created[0][1] == []


def test_serialized_fields_need_not_be_those_the_creator_names() -> None:
    class Other(Plus):
        def get_fields_to_serialize(self) -> Any:
            return [trt.PluginField("something else", np.array([1], np.int32), T.INT32)]

    creator = PlusCreator(Other)
    load(build(one_plugin(Other())), creator)
    assert [f.name for f in creator.created[0][1]] == ["something else"]


@pytest.mark.parametrize("fields", [3, ["x"], [None], [trt.PluginField("", b"")]], ids=repr)
def test_what_is_no_field_is_refused(fields: Any) -> None:
    class Wrong(Plus):
        def get_fields_to_serialize(self) -> Any:
            return fields

    with pytest.raises(trt.PluginError, match="field"):
        build(one_plugin(Wrong()))


def test_memory_of_fields_may_go_after_the_build_asked_for_them() -> None:
    class Fleeting(Plus):
        def get_fields_to_serialize(self) -> Any:
            data = np.array([9.0], np.float32)
            self.kept = data
            return [trt.PluginField("addend", data, T.FLOAT32)]

        def destroy(self) -> None:
            if hasattr(self, "kept"):
                self.kept[...] = -1

    creator = PlusCreator(Plus)
    load(build(one_plugin(Fleeting())), creator)
    assert creator.created[0][3].addend == 9.0
