"""Folders of models for the tests of the server: real plans, built once a process."""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import dovetail as dt
from examples.models.make_colours import make_model as make_colours

SLEEP_MS = 200
PLUGIN = """
import time

import dovetail as dt


@dt.layer("Sleep", shape=lambda x, *, ms: x)
def sleep(x, *, ms: int):
    time.sleep(ms / 1000)
    return x
"""


@cache
def _sleep_layer() -> object:
    @dt.layer("Sleep", shape=lambda x, *, ms: x)
    def sleep(x, *, ms: int):
        time.sleep(ms / 1000)
        return x

    return sleep


def make_sleeper(ms: int = SLEEP_MS) -> onnx.ModelProto:
    """``y = x`` after a while."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 2]) for name in "xy")
    node = helper.make_node("Sleep", ["x"], ["y"], domain="test", ms=ms)
    graph = helper.make_graph([node], "sleeper", [x], [y])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("test", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def make_picture() -> onnx.ModelProto:
    """The mean of each channel of an image, to which 1 is added: from ``image`` to ``means``."""
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, ["n", 3, 8, 8])
    means = helper.make_tensor_value_info("means", TensorProto.FLOAT, ["n", 3])
    nodes = [
        helper.make_node("ReduceMean", ["image"], ["mean"], axes=[2, 3], keepdims=0),
        helper.make_node("Add", ["mean", "one"], ["means"]),
    ]
    one = numpy_helper.from_array(np.ones(1, np.float32), "one")
    graph = helper.make_graph(nodes, "picture", [image], [means], [one])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


@cache
def _plan(name: str) -> bytes:
    makers = {"colours": make_colours, "sleeper": make_sleeper, "picture": make_picture}
    if name == "sleeper":
        _sleep_layer()
    config = dt.BuilderConfig()
    config.providers = ("cpu",)
    return bytes(dt.compile(makers[name](), config=config).serialize())


def write_models(folder: Path, *names: str, config: str = "") -> Path:
    """A repository with these models, and a configuration for each."""
    for name in names:
        version = folder / name / "1"
        version.mkdir(parents=True)
        (version / "model.plan").write_bytes(_plan(name))
        (folder / name / "config.toml").write_text(config, encoding="utf-8")
    return folder


def write_plugin(folder: Path) -> Path:
    """The library of the layer of ``sleeper``, for another process."""
    path = folder / "sleep_layer.py"
    path.write_text(PLUGIN, encoding="utf-8")
    return path
