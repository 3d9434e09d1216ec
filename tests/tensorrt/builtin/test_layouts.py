"""Packed formats and INT8: on the host and in the interpreter, against what the plain format gives."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest

from dovetail.formats import pack, unpack
from dovetail.plugin.arrays import address_of
from dovetail.types import DataType, PluginTensorDesc, TensorFormat
from tests.tensorrt.builtin.problems import Problem
from tests.tensorrt.builtin.references import disentangled_attention, instance_normalization
from tests.tensorrt.builtin.running import create

RNG = np.random.default_rng(2)


def _run(plugin: Any, descs: tuple[list[PluginTensorDesc], list[PluginTensorDesc]], arrays: Any, where: str) -> None:
    if where == "host":
        plugin.enqueue(*descs, *([address_of(array) for array in each] for each in arrays), 0, 0)
        return
    if importlib.util.find_spec("triton") is None:
        pytest.skip("needs Triton: make test-cuda has it")
    from tests.tensorrt.builtin.interpreted import run_described

    run_described(plugin, *descs, *arrays)


@pytest.mark.parametrize("where", ["host", "kernel"])
@pytest.mark.parametrize("channels", [3, 8, 33])
@pytest.mark.parametrize(
    ("dtype", "layout"),
    [(DataType.HALF, TensorFormat.DHWC8), (DataType.INT8, TensorFormat.CDHW32)],
)
def test_instance_normalization_of_packed_volumes(
    dtype: DataType, layout: TensorFormat, channels: int, where: str
) -> None:
    fields = {
        "scales": tuple(RNG.normal(size=channels).tolist()),
        "bias": tuple(RNG.normal(size=channels).tolist()),
        "epsilon": 1e-3,
        "relu": 1,
        "alpha": 0.5,
    }
    shape = (2, channels, 2, 3, 4)
    is_int = dtype is DataType.INT8
    values = RNG.integers(-100, 100, shape).astype(np.int8) if is_int else RNG.normal(size=shape).astype(np.float16)
    plugin = create(Problem("InstanceNormalization_TRT", fields, [], "3"))
    descs = [PluginTensorDesc(shape, dtype, layout, scale) for scale in (0.25, 0.5)]
    given = np.ascontiguousarray(pack(values, layout))
    made = np.full_like(given, 77)
    _run(plugin, ([descs[0]], [descs[1]]), ([given], [made]), where)
    (expected,) = instance_normalization([values * 0.25 if is_int else values], fields)
    got = unpack(made, layout, shape).astype(np.float64)
    if is_int:
        np.testing.assert_allclose(got, np.clip(np.rint(expected / 0.5), -128, 127), atol=1)
    else:
        np.testing.assert_allclose(got, expected, rtol=4e-3, atol=8e-3)
    np.testing.assert_array_equal(made, pack(unpack(made, layout, shape), layout))  # what fills vectors up is zero


@pytest.mark.parametrize("where", ["host", "kernel"])
def test_disentangled_attention_of_int8(where: str) -> None:
    plugin = create(Problem("DisentangledAttention_TRT", {"span": 4, "factor": 0.5}, []))
    scales = (0.5, 0.25, 0.125, 0.75)
    shapes = ((2, 9, 9), (2, 9, 8), (2, 9, 8), (2, 9, 9))
    given = [RNG.integers(-50, 50, shape).astype(np.int8) for shape in shapes[:3]]
    made = np.full(shapes[3], 77, np.int8)
    descs = [PluginTensorDesc(s, DataType.INT8, TensorFormat.LINEAR, k) for s, k in zip(shapes, scales, strict=True)]
    _run(plugin, (descs[:3], descs[3:]), (given, [made]), where)
    real = [array * scale for array, scale in zip(given, scales, strict=False)]
    (expected,) = disentangled_attention(real, {"span": 4, "factor": 0.5})
    np.testing.assert_allclose(made, np.rint(expected / 0.75), atol=1)
