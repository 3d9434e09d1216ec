"""Values at their limits across the C++ interface: dimensions of 64 bits, fields without data, large serialization."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from fractions import Fraction
from math import ceil, floor

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import dovetail as dt
from dovetail.errors import DovetailError, PluginError
from dovetail.expr import Symbol, evaluate
from dovetail.plugin.libraries import PluginLibrary
from dovetail.plugin.registry import get_plugin_registry
from tests.support.native_libraries import Compile

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
OPERATIONS = dt.DimensionOperation
EXACT = {
    OPERATIONS.SUM: lambda a, b: a + b,
    OPERATIONS.PROD: lambda a, b: a * b,
    OPERATIONS.MAX: max,
    OPERATIONS.MIN: min,
    OPERATIONS.SUB: lambda a, b: a - b,
    OPERATIONS.EQUAL: lambda a, b: int(a == b),
    OPERATIONS.LESS: lambda a, b: int(a < b),
    OPERATIONS.FLOOR_DIV: lambda a, b: floor(Fraction(a, b)),
    OPERATIONS.CEIL_DIV: lambda a, b: ceil(Fraction(a, b)),
}
"""The nine operations in exact arithmetic."""
EDGES = [
    0,
    1,
    -1,
    2,
    -2,
    3,
    2**31,
    2**32,
    -(2**31),
    2**62,
    -(2**62),
    INT64_MAX,
    INT64_MAX - 1,
    INT64_MIN,
    INT64_MIN + 1,
]
NUMBERS = st.one_of(st.sampled_from(EDGES), st.integers(-20, 20), st.integers(INT64_MIN, INT64_MAX))


def exact(operation: dt.DimensionOperation, a: int, b: int) -> int | None:
    """The value in exact arithmetic; None where there is none of 64 bits."""
    if b == 0 and operation in (OPERATIONS.FLOOR_DIV, OPERATIONS.CEIL_DIV):
        return None
    value = int(EXACT[operation](a, b))
    return value if INT64_MIN <= value <= INT64_MAX else None


@pytest.fixture(scope="module")
def library(compile_library: Compile) -> Iterator[PluginLibrary]:
    registry = get_plugin_registry()
    loaded = registry.load_library(compile_library("values"))
    yield loaded
    registry.deregister_library(loaded)


def make(library: PluginLibrary, operation: int, a: int, b: int) -> dt.IPluginV3:
    fields = [
        dt.PluginField("operation", np.array([operation], np.int32), dt.PluginFieldType.INT32),
        dt.PluginField("a", np.array([a], np.int64), dt.PluginFieldType.INT64),
        dt.PluginField("b", np.array([b], np.int64), dt.PluginFieldType.INT64),
        dt.PluginField("none", None, dt.PluginFieldType.FLOAT32),
    ]
    plugin: dt.IPluginV3 = library.creators[0].create_plugin(
        "p", dt.PluginFieldCollection(fields), dt.TensorRTPhase.BUILD
    )
    return plugin


def compute_in_cpp(library: PluginLibrary, operation: dt.DimensionOperation, a: int, b: int) -> int:
    plugin = make(library, operation, a, b)
    build = plugin.get_capability_interface(dt.PluginCapabilityType.BUILD)
    (shape,) = build.get_output_shapes([], [], dt.IExprBuilder())
    assert [dim.get_constant_value() for dim in shape[1:]] == [a, b]
    value: int = shape[0].get_constant_value()
    return value


def compute_in_python(operation: dt.DimensionOperation, a: int, b: int) -> int:
    builder = dt.IExprBuilder()
    value: int = builder.operation(operation, builder.constant(a), builder.constant(b)).get_constant_value()
    return value


@pytest.mark.parametrize("operation", OPERATIONS)
@settings(max_examples=120, deadline=None)
@given(a=NUMBERS, b=NUMBERS)
@example(INT64_MAX, INT64_MAX)
@example(INT64_MIN, -1)
@example(INT64_MIN, 1)
@example(INT64_MIN, INT64_MIN)
@example(INT64_MAX, -1)
@example(-1, INT64_MIN)
@example(7, 0)
def test_operations_are_exact_or_an_error_in_cpp_and_python(
    library: PluginLibrary, operation: dt.DimensionOperation, a: int, b: int
) -> None:
    expected = exact(operation, a, b)
    for compute in (lambda *numbers: compute_in_cpp(library, *numbers), compute_in_python):
        if expected is None:
            with pytest.raises(DovetailError, match=r"64 bits|divides by zero"):
                compute(operation, a, b)
        else:
            assert compute(operation, a, b) == expected


def test_an_overflow_in_cpp_names_plugin_operation_and_operands(library: PluginLibrary) -> None:
    with pytest.raises(PluginError, match="Arithmetic: getOutputShapes threw an exception: IExpr") as e:
        compute_in_cpp(library, OPERATIONS.PROD, INT64_MAX, INT64_MAX)
    assert f"kPROD of {INT64_MAX} and {INT64_MAX} does not fit into 64 bits" in str(e.value)


def test_a_value_that_overflows_in_a_run_is_an_error() -> None:
    builder = dt.IExprBuilder()
    product = builder.operation(OPERATIONS.PROD, Symbol("n"), Symbol("m"))
    assert product is not None
    assert evaluate(product, {"n": 2**31, "m": 2**31}) == 2**62
    with pytest.raises(DovetailError, match="a dimension expression overflows 64 bits"):
        evaluate(product, {"n": 2**32, "m": 2**31})


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 2**200])
def test_a_constant_of_more_than_64_bits_is_an_error(value: int) -> None:
    with pytest.raises(DovetailError, match="does not fit 64 bits"):
        dt.IExprBuilder().constant(value)


def build_plan(library: PluginLibrary) -> bytes:
    builder = dt.Builder()
    network = builder.create_network()
    layer = network.add_plugin_v3([network.add_input("x", dt.float32, (2, 3))], [], make(library, 0, 1, 2))
    network.mark_output(layer.get_output(0))
    return bytes(builder.build_serialized_network(network, builder.create_builder_config()))


def test_a_field_without_data_arrives_as_null_with_length_0(library: PluginLibrary) -> None:
    probe = ctypes.CDLL(library.path)
    probe.noneData.restype = probe.noneLength.restype = ctypes.c_int64
    plugin = make(library, 0, 1, 2)
    assert (probe.noneData(), probe.noneLength()) == (0, 0)
    runtime = plugin.get_capability_interface(dt.PluginCapabilityType.RUNTIME)
    (field,) = [field for field in runtime.get_fields_to_serialize() if field.name == "none"]
    assert (field.data, field.size) == (None, 0)


def test_a_field_without_data_stays_null_in_a_plan(library: PluginLibrary) -> None:
    probe = ctypes.CDLL(library.path)
    probe.noneData.restype = probe.noneLength.restype = ctypes.c_int64
    plan = build_plan(library)
    x = np.ones((2, 3), np.float32)
    np.testing.assert_array_equal(dt.Runtime().deserialize_cuda_engine(plan)(x), x)
    assert (probe.noneData(), probe.noneLength()) == (0, 0)


def test_an_empty_text_is_not_null(library: PluginLibrary) -> None:
    probe = ctypes.CDLL(library.path)
    probe.noneData.restype = probe.noneLength.restype = ctypes.c_int64
    empty = dt.PluginField("none", b"", dt.PluginFieldType.CHAR)
    library.creators[0].create_plugin("p", dt.PluginFieldCollection([empty]), dt.TensorRTPhase.BUILD)
    assert (probe.noneData(), probe.noneLength()) == (1, 0)


@pytest.mark.parametrize("size", [2**31, 2**32, 2**32 + 8, 2**63, 2**64 - 1])
def test_serialization_of_more_than_a_field_holds_is_refused(library: PluginLibrary, size: int) -> None:
    set_size = ctypes.CDLL(library.path).setSerializationSize
    set_size.argtypes = (ctypes.c_uint64,)
    plugin = library.creators[1].create_plugin("p", dt.PluginFieldCollection(), dt.TensorRTPhase.BUILD)
    runtime = plugin.get_capability_interface(dt.PluginCapabilityType.RUNTIME)
    set_size(size)
    try:
        with pytest.raises(PluginError, match="getSerializationSize returned more than 2147483647 bytes") as caught:
            runtime.get_fields_to_serialize()
        assert "Large: getFieldsToSerialize threw" in str(caught.value)
    finally:
        set_size(3)
    (field,) = runtime.get_fields_to_serialize()
    assert field.size == 3
