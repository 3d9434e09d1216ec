"""Weights of types that NumPy lacks: mapped from a file, shared from memory, small and large, and replaced."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import dovetail as dt

TYPES = [ml_dtypes.int4, ml_dtypes.uint4, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, np.int8]


def _weight(dtype: Any, rows: int, seed: int) -> Any:
    return np.random.default_rng(seed).integers(0, 7, (rows, rows + 1)).astype(dtype)


def _model(dtype: Any, rows: int) -> onnx.ModelProto:
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [rows, rows + 1]) for name in ("x", "y")]
    constants = [
        numpy_helper.from_array(_weight(dtype, rows, 0), "w"),
        numpy_helper.from_array(np.array(0.5, np.float32), "scale"),
    ]
    nodes = [helper.make_node("DequantizeLinear", ["w", "scale"], ["f"]), helper.make_node("Add", ["x", "f"], ["y"])]
    graph = helper.make_graph(nodes, "weights", ports[:1], ports[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def _compile(dtype: Any, rows: int, *, refit: bool = False) -> Any:
    config = dt.BuilderConfig()
    if refit:
        config.set_flag(dt.BuilderFlag.REFIT)
    engine = dt.compile(_model(dtype, rows), config=config)
    assert {step.kind for step in engine.manifest.programs[0].steps} == {"partition"}
    return engine


@pytest.mark.parametrize("rows", [3, 64], ids=["small", "large"])
@pytest.mark.parametrize("dtype", TYPES, ids=lambda t: np.dtype(t).name)
def test_every_way_of_loading_reads_the_same_numbers(dtype: Any, rows: int, tmp_path: Path) -> None:
    x = np.ones((rows, rows + 1), np.float32)
    expected = x + _weight(dtype, rows, 0).astype(np.float32) * 0.5
    engine = _compile(dtype, rows)
    engine.save(tmp_path / "m.plan")
    shared = dt.Runtime().deserialize_cuda_engine((tmp_path / "m.plan").read_bytes())
    for loaded in (engine, dt.load(tmp_path / "m.plan"), shared):
        np.testing.assert_array_equal(loaded(x), expected)


@pytest.mark.parametrize("rows", [3, 64], ids=["small", "large"])
@pytest.mark.parametrize("dtype", TYPES, ids=lambda t: np.dtype(t).name)
def test_they_can_be_replaced(dtype: Any, rows: int, tmp_path: Path) -> None:
    _compile(dtype, rows, refit=True).save(tmp_path / "m.plan")
    engine = dt.load(tmp_path / "m.plan")
    refitter = dt.Refitter(engine)
    refitter.set_named_weights("w", _weight(dtype, rows, 1))
    assert refitter.refit_cuda_engine()
    x = np.zeros((rows, rows + 1), np.float32)
    np.testing.assert_array_equal(engine(x), _weight(dtype, rows, 1).astype(np.float32) * 0.5)
