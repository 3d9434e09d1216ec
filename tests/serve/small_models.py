"""Small real models for the tests of the repository and of loaded models, and a gate to hold runs with."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

import dovetail as dt
from dovetail_serve.models.loaded import ModelParts
from dovetail_serve.models.loading import LoadOptions, load_parts
from dovetail_serve.protocol.requests import InferRequest
from dovetail_serve.repository.scan import scan_model
from dovetail_serve.repository.settings import read_settings


class Gate:
    """Lets tests hold the runs of the layer ``Gated`` back, and see what ran."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.is_open = threading.Event()
        self.is_open.set()
        self.seen: list[list[float]] = []
        self.sleep_s = 0.0

    def shut(self) -> None:
        self.is_open.clear()

    def open(self) -> None:
        self.is_open.set()

    def pass_through(self, x: np.ndarray) -> None:
        self.seen.append(np.asarray(x).reshape(-1).tolist())
        assert self.is_open.wait(30), "nobody opened the gate"
        if self.sleep_s:
            time.sleep(self.sleep_s)
        if (np.asarray(x) < 0).any():
            raise ValueError("a secret at /etc/passwd")


GATE = Gate()


@cache
def _register() -> object:
    @dt.layer("Gated", shape=lambda x: x)
    def gated(x):
        GATE.pass_through(x)
        return x

    return gated


def make_model(
    op: str = "Relu", *, size: int | str = 4, rank: int = 2, batch: int | str = "n", domain: str = "", opset: int = 17
) -> onnx.ModelProto:
    """``y = op(x)`` over floats, with a first dimension that varies unless it is given."""
    dims = [batch, *([size] * (rank - 1))]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name in "xy")
    graph = helper.make_graph([helper.make_node(op, ["x"], ["y"], domain=domain)], "small", [x], [y])
    opsets = [helper.make_opsetid("", opset), *([helper.make_opsetid(domain, 1)] if domain else [])]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def make_gated() -> onnx.ModelProto:
    """``y = x`` through the gate, one number a sample."""
    _register()
    return make_model("Gated", size=1, domain="test")


def make_adder() -> onnx.ModelProto:
    """``total = ids + mask`` over ``n x length``, and ``peak``, the largest of each row of ``ids``."""
    dims = ["n", "length"]
    ids, mask, total = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name in ("ids", "mask", "total")
    )
    peak = helper.make_tensor_value_info("peak", TensorProto.FLOAT, ["n", 1])
    nodes = [
        helper.make_node("Add", ["ids", "mask"], ["total"]),
        helper.make_node("ReduceMax", ["ids"], ["peak"], axes=[1], keepdims=1),
    ]
    graph = helper.make_graph(nodes, "adder", [ids, mask], [total, peak])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


def make_upper() -> onnx.ModelProto:
    """Texts in capitals."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.STRING, ["n"]) for name in "xy")
    node = helper.make_node("StringNormalizer", ["x"], ["y"], case_change_action="UPPER", is_case_sensitive=1)
    graph = helper.make_graph([node], "upper", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


def make_doubler() -> onnx.ModelProto:
    """Every row twice: an output that varies in its first dimension, and has no row for each sample."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["m", 4])
    graph = helper.make_graph([helper.make_node("Concat", ["x", "x"], ["y"], axis=0)], "doubler", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


_MAKERS: dict[str, Callable[[], onnx.ModelProto]] = {
    "relu": make_model,
    "neg": lambda: make_model("Neg"),
    "fixed": lambda: make_model(batch=3),
    "gated": make_gated,
    "adder": make_adder,
    "upper": make_upper,
    "doubler": make_doubler,
}


@cache
def make_plan(kind: str) -> bytes:
    """The plan of one of the models above."""
    return bytes(dt.compile(_MAKERS[kind](), providers=["cpu"]).serialize())


def write_model(root: Path, name: str, kind: str = "relu", *, version: int = 1, config: str = "") -> Path:
    """A model in a repository; the path of its plan."""
    folder = root / name / str(version)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.plan").write_bytes(make_plan(kind))
    if config:
        (root / name / "config.toml").write_text(config, encoding="utf-8")
    return folder / "model.plan"


def load_model(root: Path, name: str, scratch: Path) -> ModelParts:
    """What loading makes of the first version of a model."""
    files = scan_model(root, name)
    return load_parts(files, files.versions["1"], read_settings(files.config, name), LoadOptions(scratch=scratch))


def request(model: str, value: float = 1.0, *, shape: tuple[int, ...] = (1, 4), **others) -> InferRequest:
    """A request for one of the models with an input ``x``."""
    return InferRequest(model, {"x": np.full(shape, value, np.float32)}, **others)
