"""Libraries of TensorRT that scripts open by name."""

from __future__ import annotations

import ctypes

import pytest

from dovetail_tensorrt import trt
from dovetail_tensorrt.libraries import answer_for_libraries


@pytest.mark.parametrize(
    "name",
    [
        "libnvinfer_plugin.so",
        "libnvinfer_plugin.so.10",
        "libnvinfer.so.11.1.0",
        "nvinfer_plugin_10.dll",
        "lib/libnvonnxparser.so",
    ],
)
def test_a_library_of_tensorrt_opens_where_there_is_none(name: str) -> None:
    undo = answer_for_libraries()
    try:
        assert ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)._handle
        assert ctypes.cdll.LoadLibrary(name)._handle
    finally:
        undo()
    with pytest.raises(OSError, match="nv"):
        ctypes.CDLL(name)


def test_opening_the_library_of_plugins_registers_them() -> None:
    undo = answer_for_libraries()
    try:
        ctypes.CDLL("libnvinfer_plugin.so")
    finally:
        undo()
    assert trt.get_plugin_registry().get_creator("EfficientNMS_TRT", "1", "") is not None


@pytest.mark.parametrize("name", ["libmyplugin.so", "libnvinfer_plugin.so.txt", "libnvinfer_lean.so.11"])
def test_other_libraries_are_missed_as_always(name: str) -> None:
    undo = answer_for_libraries()
    try:
        with pytest.raises(OSError, match=name):
            ctypes.CDLL(name)
    finally:
        undo()
