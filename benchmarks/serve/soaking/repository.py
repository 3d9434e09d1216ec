"""The models of the soak: their outputs say which plan computed them."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import dovetail as dt

WIDTH = 64
GENERATIONS = 4
PLUGIN = """
import time

import dovetail as dt


@dt.layer("Sleep", shape=lambda x, *, ms: x)
def sleep(x, *, ms: int):
    time.sleep(ms / 1000)
    return x
"""
LIMITED_QUEUE = 16
LIMITED_MS = 5


def make_model(generation: int) -> onnx.ModelProto:
    """``y = 2 x + generation``: a client can tell which plan has answered."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", WIDTH]) for name in "xy")
    weights = {"w": 2 * np.eye(WIDTH, dtype=np.float32), "b": np.full(WIDTH, generation, np.float32)}
    node = helper.make_node("Gemm", ["x", "w", "b"], ["y"])
    initializers = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph([node], "soak", [x], [y], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


def make_sleeper() -> onnx.ModelProto:
    """``y = x`` after a while that takes no processor."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", WIDTH]) for name in "xy")
    node = helper.make_node("Sleep", ["x"], ["y"], domain="soak", ms=LIMITED_MS)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("soak", 1)]
    graph = helper.make_graph([node], "sleeper", [x], [y])
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


class SoakRepository:
    """A folder with two models, one of which changes under load."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.plugin = folder / "sleep_layer.py"
        self.models = folder / "models"
        self.plugin.write_text(PLUGIN, encoding="utf-8")
        dt.get_plugin_registry().load_library(self.plugin)
        self._plans = [_compile(make_model(number)) for number in range(GENERATIONS)]
        self._write("changing", self._plans[0], "max_batch_size = 16\ninstances = 2\n")
        self._write("limited", _compile(make_sleeper()), f"max_queue_size = {LIMITED_QUEUE}\n")

    def _write(self, name: str, plan: bytes, config: str) -> None:
        (self.models / name / "1").mkdir(parents=True)
        (self.models / name / "1" / "model.plan").write_bytes(plan)
        (self.models / name / "config.toml").write_text(config, encoding="utf-8")

    def replace(self, generation: int) -> None:
        """Put another plan in the place of the one that is served."""
        self._replace(self._plans[generation])

    def damage(self) -> None:
        """Put half a plan in the place of the one that is served."""
        self._replace(self._plans[0][: len(self._plans[0]) // 2])

    def _replace(self, data: bytes) -> None:
        target = self.models / "changing" / "1" / "model.plan"
        new = target.with_name(f"new-{time.monotonic_ns()}.tmp")
        new.write_bytes(data)
        new.replace(target)


def _compile(model: onnx.ModelProto) -> bytes:
    config = dt.BuilderConfig()
    config.providers = ("cpu",)
    return bytes(dt.compile(model, config=config).serialize())
