"""Fields of every type, from Python to a C++ plugin and back, under both layouts of shapes."""

from __future__ import annotations

import ctypes
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import dovetail as dt
from dovetail.errors import PluginError
from dovetail.plugin.native.layout import NativeDims
from dovetail.plugin.registry import PluginRegistry
from tests.support.native_libraries import VERSION_8, Compile

KINDS = dt.PluginFieldType
VALUES: dict[dt.PluginFieldType, np.ndarray] = {
    KINDS.FLOAT16: np.array([1.5, -2], np.float16),
    KINDS.FLOAT32: np.array([1.5, np.inf], np.float32),
    KINDS.FLOAT64: np.array([1e300]),
    KINDS.INT8: np.array([-128, 127], np.int8),
    KINDS.INT16: np.array([-32768], np.int16),
    KINDS.INT32: np.array([2**31 - 1], np.int32),
    KINDS.INT64: np.array([-(2**63)], np.int64),
    KINDS.BF16: np.array([1.5, 3e38], ml_dtypes.bfloat16),
    KINDS.FP8: np.array([448, -0.5], ml_dtypes.float8_e4m3fn),
    KINDS.INT4: np.array([-8, 7, 3], ml_dtypes.int4),
    KINDS.FP4: np.array([6, -0.5, 1], ml_dtypes.float4_e2m1fn),
    KINDS.CHAR: np.frombuffer(b"text", np.int8),
    KINDS.UNKNOWN: np.frombuffer(b"\x00\xff\x01", np.int8),
}


LAYOUTS = [(VERSION_8,), pytest.param((), marks=pytest.mark.slow)]
"""What to compile with: shapes of 32 bits, and shapes of 64, which the other tests have too."""


def make(path: Any, fields: list[dt.PluginField]) -> list[dt.PluginField]:
    """The fields of a plugin that was made from these."""
    registry = PluginRegistry()
    library = registry.load_library(path)
    plugin = library.creators[0].create_plugin("p", dt.PluginFieldCollection(fields), dt.TensorRTPhase.BUILD)
    return list(plugin.get_capability_interface(dt.PluginCapabilityType.RUNTIME).get_fields_to_serialize())


@pytest.mark.parametrize("options", LAYOUTS)
def test_fields_of_all_types_come_back(compile_library: Compile, options: tuple[str, ...]) -> None:
    given = [dt.PluginField(kind.name, values, kind) for kind, values in VALUES.items()]
    stored = make(compile_library("echo", *options), given)
    assert [(field.name, field.type) for field in stored] == [(field.name, field.type) for field in given]
    for field, values in zip(stored, VALUES.values(), strict=True):
        np.testing.assert_array_equal(field.read().view(np.uint8), values.view(np.uint8), err_msg=field.name)


@pytest.mark.parametrize("options", LAYOUTS)
def test_shapes_come_back_in_the_layout_of_python(compile_library: Compile, options: tuple[str, ...]) -> None:
    shapes = (NativeDims * 2)(NativeDims(2, (ctypes.c_int64 * 8)(3, -1)), NativeDims(0))
    field = dt.PluginField("shapes", bytes(shapes), KINDS.DIMS)
    (stored,) = make(compile_library("echo", *options), [field])
    assert stored.buffer is not None
    assert [NativeDims.from_buffer_copy(stored.buffer, at).rank for at in (0, ctypes.sizeof(NativeDims))] == [2, 0]
    assert list(NativeDims.from_buffer_copy(stored.buffer).sizes)[:2] == [3, -1]


def test_a_size_of_64_bits_is_refused_by_headers_of_version_8(compile_library: Compile) -> None:
    field = dt.PluginField("shape", bytes(NativeDims(1, (ctypes.c_int64 * 8)(2**40))), KINDS.DIMS)
    with pytest.raises(PluginError, match="a size that the headers of version 8 cannot say"):
        make(compile_library("echo", VERSION_8), [field])
    with pytest.raises(PluginError, match="holds no whole shapes"):
        make(compile_library("echo", VERSION_8), [dt.PluginField("shape", b"short", KINDS.DIMS)])
