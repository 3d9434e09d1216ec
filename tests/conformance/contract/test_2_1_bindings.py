"""Rule 2.1: how the small types behave: enums, Dims, Weights, host memory, fields, expressions, helper functions."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest

import dovetail as trt
from tests.conformance.contract.authors import Messages, Plus, PlusCreator, build, load, one_plugin

T = trt.PluginFieldType


# enums


@pytest.mark.parametrize(
    "enum",
    [trt.DataType, trt.TensorFormat, trt.PluginFieldType, trt.DimensionOperation, trt.BuilderFlag, trt.PreviewFeature],
    ids=lambda e: e.__name__,
)
def test_enums_behave_as_scripts_expect(enum: Any) -> None:
    for name, member in enum.__members__.items():
        assert member.name == name
        assert int(member) == member.value
        assert 1 << int(member) == 2**member.value
        assert {member: 1}[member] == 1
        assert member == member.value
        assert enum(member.value) is member
    assert len(enum.__members__.items()) == len(enum)


def test_module_aliases() -> None:
    pairs = "float32 FLOAT float16 HALF bfloat16 BF16 int8 INT8 int32 INT32 int64 INT64 bool BOOL uint8 UINT8 fp8 FP8"
    names = (pairs + " int4 INT4 fp4 FP4 e8m0 E8M0").split()
    for alias, member in zip(names[::2], names[1::2], strict=True):
        assert getattr(trt, alias) is trt.DataType[member]


def test_itemsize_in_the_documented_order() -> None:
    order = (trt.float32, trt.float16, trt.bfloat16, trt.int8, trt.int32, trt.int64, trt.bool, trt.uint8, trt.fp8)
    assert [dtype.itemsize for dtype in order] == [4, 2, 2, 1, 4, 8, 1, 1, 1]
    assert trt.int4.itemsize == trt.fp4.itemsize == 0.5


def test_nptype_and_volume() -> None:
    known = {
        trt.float32: np.float32,
        trt.float16: np.float16,
        trt.int8: np.int8,
        trt.int32: np.int32,
        trt.int64: np.int64,
        trt.bool: np.bool_,
        trt.uint8: np.uint8,
    }
    for dtype, expected in known.items():
        assert trt.nptype(dtype) is expected
    for dtype in set(trt.DataType) - set(known):
        with pytest.raises(TypeError):
            trt.nptype(dtype)
    assert trt.volume((2, 3, 4)) == 24
    assert trt.volume(trt.Dims([2, 5])) == 10
    assert trt.volume([]) == 1


# Dims


class TestDims:
    @pytest.mark.parametrize("source", [(1, -1, 3), [1, -1, 3], np.array([1, -1, 3]), trt.Dims((1, -1, 3))])
    def test_from_any_sequence(self, source: Any) -> None:
        dims = trt.Dims(source)
        assert dims == (1, -1, 3)
        assert dims == [1, -1, 3]
        assert dims == trt.Dims([1, -1, 3])
        assert dims != (1, 3)
        assert dims != (1, -1)

    def test_as_a_sequence(self) -> None:
        dims = trt.Dims((1, 2, 3, 4))
        assert (len(dims), dims[0], dims[-1], list(dims), tuple(dims)) == (4, 1, 4, [1, 2, 3, 4], (1, 2, 3, 4))
        assert dims[1:3] == (2, 3)
        assert type(dims[1:3]) is tuple
        assert type(dims[:]) is tuple
        assert str(dims) == "(1, 2, 3, 4)"
        assert 3 in dims
        dims[0] = 9
        dims[-1] = 8
        assert dims == (9, 2, 3, 8)
        with pytest.raises(IndexError):
            _ = dims[4]
        a, *_, b = dims
        assert (a, b) == (9, 8)

    def test_eight_at_most(self) -> None:
        assert trt.Dims.MAX_DIMS == 8
        assert len(trt.Dims(range(8))) == 8
        with pytest.raises(trt.UsageError):
            trt.Dims(range(9))

    def test_invalid_dims_have_no_length(self) -> None:
        invalid = trt.Dims.invalid()
        with pytest.raises(ValueError, match="invalid"):
            len(invalid)
        with pytest.raises(ValueError, match="invalid"):
            tuple(invalid)
        assert invalid != ()

    def test_the_sized_kinds(self) -> None:
        assert trt.Dims2(3, 4) == trt.Dims2((3, 4)) == (3, 4)
        assert trt.Dims3(1, 2, 3) == (1, 2, 3)
        assert trt.Dims4([1, 2, 3, 4]) == (1, 2, 3, 4)
        size = trt.DimsHW(5, 6)
        assert (size.h, size.w) == (5, 6)
        size.h = 7
        assert size == (7, 6)
        assert trt.Permutation([0, 2, 1])[1] == 2

    @pytest.mark.parametrize("shape", [(2, 3), [2, 3], np.array([2, 3]), trt.Dims((2, 3)), np.zeros((2, 3)).shape])
    def test_any_sequence_where_dims_are_expected(self, shape: Any) -> None:
        network = trt.Builder(Messages()).create_network()
        assert network.add_input("x", trt.float32, shape).shape == (2, 3)
        profile = trt.OptimizationProfile()
        profile.set_shape("x", shape, shape, shape)
        assert [tuple(d) for d in profile.get_shape("x")] == [(2, 3)] * 3


# Weights and host memory


class TestWeights:
    def test_from_an_array_without_a_copy(self) -> None:
        array = np.arange(6, dtype=np.float32).reshape(2, 3)
        weights = trt.Weights(array)
        assert (weights.dtype, weights.size, weights.nbytes, len(weights)) == (trt.float32, 6, 24, 6)
        array[0, 0] = 99
        assert weights.numpy().reshape(-1)[0] == 99

    def test_from_an_address(self) -> None:
        array = np.arange(4, dtype=np.int32)
        weights = trt.Weights(trt.int32, array.ctypes.data, 4)
        assert weights.numpy().tolist() == [0, 1, 2, 3]
        array[1] = 7
        assert weights.numpy()[1] == 7

    def test_of_a_type_alone(self) -> None:
        weights = trt.Weights(trt.float16)
        assert (weights.dtype, weights.size, weights.nbytes) == (trt.float16, 0, 0)

    def test_arrays_serve_wherever_weights_are_expected(self) -> None:
        def fill(network: Any) -> Any:
            x = network.add_input("x", trt.float32, (2, 3))
            ones = network.add_constant((2, 3), np.ones((2, 3), np.float32)).get_output(0)
            twos = network.add_constant((2, 3), trt.Weights(np.full((2, 3), 2, np.float32))).get_output(0)
            total = network.add_elementwise(ones, twos, trt.ElementWiseOperation.SUM).get_output(0)
            return network.add_elementwise(x, total, trt.ElementWiseOperation.SUM).get_output(0)

        np.testing.assert_array_equal(load(build(fill))(np.zeros((2, 3), np.float32)), 3)


def test_a_plan_is_bytes_with_a_size() -> None:
    plan: Any = build(one_plugin(Plus()))
    assert plan
    assert isinstance(plan, trt.IHostMemory)
    assert plan.nbytes == len(plan) == len(bytes(plan)) == memoryview(plan).nbytes
    assert isinstance(plan.dtype, trt.DataType)
    stream = io.BytesIO()
    stream.write(plan)
    for form in (plan, bytes(plan), bytearray(plan), memoryview(plan), stream.getvalue()):
        engine = load(form, PlusCreator())
        assert isinstance(engine, trt.ICudaEngine)
    again = engine.serialize()
    assert isinstance(again, trt.IHostMemory)
    assert again.nbytes > 0
    np.testing.assert_array_equal(load(again, PlusCreator())(np.zeros((2, 3), np.float32)), 1)


def test_with_is_a_warning_and_has_no_effect() -> None:
    plan: Any = build(one_plugin(Plus()))
    builder = trt.Builder(Messages())
    things = [
        trt.Logger(),
        builder,
        builder.create_network(),
        builder.create_builder_config(),
        trt.Runtime(Messages()),
        plan,
    ]
    for thing in things:
        with pytest.warns(DeprecationWarning, match="no context manager"), thing as same:
            assert same is thing
    assert builder.create_network().num_layers == 0


def test_names_for_annotations_and_isinstance() -> None:
    builder = trt.Builder(Messages())
    assert isinstance(builder.create_network(), trt.INetworkDefinition)
    assert isinstance(builder.create_builder_config(), trt.IBuilderConfig)
    assert isinstance(builder.create_optimization_profile(), trt.IOptimizationProfile)
    assert isinstance(builder.create_builder_config().create_timing_cache(b""), trt.ITimingCache)
    assert isinstance(builder.get_plugin_registry(), trt.IPluginRegistry)
    assert isinstance(builder.create_network().add_input("x", trt.float32, (1,)), trt.ITensor)
    engine = load(build(one_plugin(Plus())), PlusCreator())
    assert isinstance(engine.create_execution_context(), trt.IExecutionContext)


def test_addresses_and_streams_are_anything_that_is_an_int() -> None:
    class Pointer:
        def __init__(self, value: int) -> None:
            self.value = value

        def __int__(self) -> int:
            return self.value

    engine = load(build(one_plugin(Plus())), PlusCreator())
    context = engine.create_execution_context()
    x, y = np.zeros((2, 3), np.float32), np.zeros((2, 3), np.float32)
    context.set_tensor_address("x", Pointer(x.ctypes.data))
    context.set_tensor_address("y0", np.uint64(y.ctypes.data))
    assert context.execute_async_v3(Pointer(0))
    assert (y == 1).all()
    y[...] = 0
    assert context.execute_v2([Pointer(x.ctypes.data), Pointer(y.ctypes.data)])
    assert (y == 1).all()


# fields


class TestPluginField:
    def test_defaults(self) -> None:
        empty = trt.PluginField()
        assert (empty.name, empty.type, empty.size) == ("", T.UNKNOWN, 0)
        named = trt.PluginField("alpha")
        assert (named.name, named.type) == ("alpha", T.UNKNOWN)
        data = trt.PluginField("alpha", np.array([1.0], np.float32))
        assert data.type == T.UNKNOWN

    def test_the_buffer_is_not_copied(self) -> None:
        array = np.array([1, 2, 3], np.int32)
        field = trt.PluginField("a", array, T.INT32)
        array[0] = 50
        assert field.data.tolist() == [50, 2, 3]

    def test_the_buffer_is_kept_alive(self) -> None:
        import gc

        field = trt.PluginField("a", np.full(1000, 3, np.float32), T.FLOAT32)
        gc.collect()
        assert (field.data == 3).all()

    @pytest.mark.parametrize(
        ("array", "kind", "dtype"),
        [
            (np.array([1], np.int32), T.INT32, np.int32),
            (np.array([1], np.int8), T.INT8, np.int8),
            (np.array([1], np.int8), T.UNKNOWN, np.int8),
            (np.array([1], np.int16), T.INT16, np.int16),
            (np.array([1], np.float32), T.FLOAT32, np.float32),
            (np.array([1], np.float64), T.FLOAT64, np.float64),
            (np.array([1], np.int64), T.INT64, np.int64),
        ],
        ids=lambda value: getattr(value, "name", ""),
    )
    def test_data_is_an_array_of_the_fields_type(self, array: Any, kind: Any, dtype: Any) -> None:
        field = trt.PluginField("a", array, kind)
        assert field.data.dtype == dtype
        assert field.size == 1
        assert field.data[0] == 1

    @pytest.mark.parametrize("count", [1, 2])
    def test_a_wider_buffer_is_reinterpreted_not_converted(self, count: int) -> None:
        field = trt.PluginField("axis", np.arange(5, 5 + count), T.INT32)  # int64, as NumPy makes it
        assert field.size == count
        assert field.data.tolist() == [5, 0][:count]

    def test_a_wider_buffer_survives_a_plan_as_what_it_read_as(self) -> None:
        class Hardmax(Plus):
            def get_fields_to_serialize(self) -> Any:
                return trt.PluginFieldCollection([trt.PluginField("axis", np.array([5]), T.INT32)])

        creator = PlusCreator()
        load(build(one_plugin(Hardmax())), creator)
        [field] = creator.created[0][1]
        assert (field.size, field.data.tolist(), field.data.item()) == (1, [5], 5)

    @pytest.mark.parametrize(
        "data", [b"edge", bytearray(b"edge"), np.frombuffer(b"edge", np.int8), np.array([b"edge"])]
    )
    def test_text(self, data: Any) -> None:
        field = trt.PluginField("mode", data, T.CHAR)
        assert field.data.dtype == np.int8
        assert bytes(field.data).decode() == "edge"
        assert field.data.tobytes().decode("utf-8") == "edge"

    def test_data_is_a_copy(self) -> None:
        given = np.array([1, 2], np.int32)
        field = trt.PluginField("axes", given, T.INT32)
        kept = field.data
        given[:] = 9
        assert kept.tolist() == [1, 2]
        assert field.data.tolist() == [9, 9]

    def test_bytes_of_any_kind(self) -> None:
        import struct

        field = trt.PluginField("blob", struct.pack("<if", 3, 0.5), T.UNKNOWN)
        assert field.size == 8
        assert struct.unpack("<if", field.data.tobytes()) == (3, 0.5)

    def test_dims_have_no_array(self) -> None:
        field = trt.PluginField("d", np.array([1, 2], np.int32), T.DIMS)
        with pytest.raises(AttributeError):
            _ = field.data

    def test_members_can_be_set(self) -> None:
        field = trt.PluginField()
        field.name, field.type, field.data = "b", T.FLOAT32, np.array([2.5], np.float32)
        assert (field.name, field.size, field.data[0]) == ("b", 1, 2.5)

    def test_what_has_no_buffer_is_refused(self) -> None:
        with pytest.raises((trt.PluginError, TypeError)):
            trt.PluginField("a", 3.0, T.FLOAT32)

    def test_a_collection_is_a_list(self) -> None:
        fields = [trt.PluginField("a"), trt.PluginField("b")]
        collection = trt.PluginFieldCollection(fields)
        assert len(collection) == 2
        assert collection[0] is fields[0]
        assert collection[-1].name == "b"
        assert [f.name for f in collection] == ["a", "b"]
        collection.append(trt.PluginField("c"))
        assert len(collection) == 3


# expressions as lists


class TestDimsExprs:
    def test_the_three_ways_to_make_one(self) -> None:
        builder = trt.IExprBuilder()
        three = builder.constant(3)
        assert len(trt.DimsExprs()) == 0
        assert len(trt.DimsExprs(4)) == 4
        assert len(trt.DimsExprs(np.int64(2))) == 2
        assert trt.DimsExprs([three])[0] is three
        source = trt.DimsExprs([three, three])
        copy = trt.DimsExprs(source)
        copy[0] = builder.constant(5)
        assert source[0] is three

    def test_as_a_list(self) -> None:
        builder = trt.IExprBuilder()
        dims = trt.DimsExprs(3)
        for i in range(len(dims)):
            dims[i] = builder.constant(i)
        dims[-1] = builder.constant(9)
        assert [d.get_constant_value() for d in dims] == [0, 1, 9]
        assert dims[-1].get_constant_value() == 9
        with pytest.raises(IndexError):
            _ = dims[3]


def test_a_logger_of_ones_own_hears_the_build() -> None:
    class Loud(Plus):
        tactics = (1, 2)

        def compute(self, *args: Any) -> None:
            if self.tactic == 2:
                raise RuntimeError("no such kernel")
            super().compute(*args)

    logger = Messages()
    build(one_plugin(Loud()), logger=logger)
    assert any("no such kernel" in text for _, text in logger.messages)
    assert all(isinstance(severity, trt.ILogger.Severity) for severity, _ in logger.messages)
    assert trt.Logger(trt.Logger.ERROR).min_severity == trt.Logger.Severity.ERROR
    assert trt.Logger().min_severity == trt.Logger.WARNING
