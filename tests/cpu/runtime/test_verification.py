"""Weights of partitions are checked while they are loaded: damage is found, and nothing is left behind."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import dovetail as dt
from dovetail.runtime.verification import verify_meanwhile, weights_of_partitions


def _model() -> onnx.ModelProto:
    weight = numpy_helper.from_array(np.arange(64 * 64, dtype=np.float32).reshape(64, 64), "w")
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 64]) for n in ("x", "y")]
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", ports[:1], ports[1:], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


def test_damage_in_a_weight_that_only_a_partition_reads_is_found(tmp_path: Path) -> None:
    engine = dt.compile(_model())
    assert weights_of_partitions(engine.manifest)
    path = tmp_path / "m.plan"
    engine.save(path)
    data = bytearray(path.read_bytes())
    data[-1000] ^= 1
    path.write_bytes(data)
    for load in (lambda: dt.load(path), lambda: dt.Runtime().deserialize_cuda_engine(bytes(data))):
        with pytest.raises(dt.PlanCorruptError, match="does not match its xxh3 digest"):
            load()


def test_what_the_cpu_reads_is_checked_before(tmp_path: Path) -> None:
    assert not weights_of_partitions(dt.compile(_model(), providers=["cpu"]).manifest)


def test_the_failure_of_the_check_comes_first_and_undoes() -> None:
    undone: list[int] = []

    def fail() -> None:
        raise ValueError("damaged")

    with pytest.raises(ValueError, match="damaged"):
        verify_meanwhile(fail, lambda: 5, undone.append)
    assert undone == [5]
    with pytest.raises(ValueError, match="damaged"):
        verify_meanwhile(fail, lambda: 1 // 0, undone.append)
    with pytest.raises(ZeroDivisionError):
        verify_meanwhile(lambda: None, lambda: 1 // 0, undone.append)
    assert verify_meanwhile(lambda: None, lambda: 7, undone.append) == 7
    assert undone == [5]
