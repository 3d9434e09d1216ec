"""What a build without named providers says where ONNX Runtime is not installed."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import dovetail as dt
from dovetail.build import builder


class Log(dt.ILogger):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def log(self, severity: Any, msg: str) -> None:
        if severity <= dt.Logger.WARNING:
            self.lines.append(msg)


def _model(op: str) -> onnx.ModelProto:
    ports = [helper.make_tensor_value_info(name, 1, [4, 4]) for name in "xy"]
    inputs = ["x", "x"] if op == "MatMul" else ["x"]
    graph = helper.make_graph([helper.make_node(op, inputs, ["y"])], "g", ports[:1], ports[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


@pytest.mark.parametrize(
    ("op", "providers", "is_told"), [("MatMul", None, True), ("Relu", None, False), ("MatMul", ["cpu"], False)]
)
def test_slow_kernels_are_told_of(monkeypatch: pytest.MonkeyPatch, op: str, providers: Any, is_told: bool) -> None:
    monkeypatch.setattr(builder, "default_providers", lambda: ("cpu",))
    log = Log()
    engine = dt.compile(_model(op), providers=providers, logger=log)
    assert engine(np.ones((4, 4), np.float32)).shape == (4, 4)
    assert any("dovetail-engine[onnxruntime]" in line for line in log.lines) == is_told
