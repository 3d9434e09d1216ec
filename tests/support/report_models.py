"""A model with something for every part of a report: modules, fusions, a plugin with tactics, branches, bad names."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from dovetail.cli import main
from tests.support.cli_models import write_library

__all__ = ["FORMULA", "HOSTILE", "build_plan", "write_chain", "write_report_model"]

HOSTILE = '</script><img src=x onerror="window.attacked=1"><svg onload=window.attacked=1>&"\'`'
"""The name of the plugin layer."""
FORMULA = "=cmd|' /C calc'!A0"
"""The name of the last sum."""
_CHANNELS = 4


def write_report_model(path: Path) -> Path:
    """Write the model: a block of convolutions, the plugin, a branch, a sum and a cast."""
    rng = np.random.default_rng(0)
    weights = {
        "conv.w": rng.standard_normal((_CHANNELS, _CHANNELS, 3, 3), dtype=np.float32),
        **{f"norm.{n}": np.ones(_CHANNELS, np.float32) for n in range(4)},
        "limit": np.zeros((), np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "conv.w"], ["c"], name="/stem/conv/Conv", pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["c", *(f"norm.{n}" for n in range(4))], ["n"], name="/stem/norm/Norm"),
        helper.make_node("Relu", ["n"], ["r"], name="/stem/act/Relu"),
        helper.make_node("ScaledRelu", ["r"], ["p"], name=HOSTILE, domain="acme", alpha=2.0, plugin_namespace="acme"),
        helper.make_node("ReduceSum", ["p"], ["s"], name="/gate/ReduceSum", keepdims=0),
        helper.make_node("Greater", ["s", "limit"], ["g"], name="/gate/Greater"),
        helper.make_node("If", ["g"], ["b"], name="/gate/If", then_branch=_body("Tanh"), else_branch=_body("Neg")),
        helper.make_node("Add", ["b", "p"], ["a"], name=FORMULA),
        helper.make_node("Cast", ["a"], ["y"], name="/out/Cast", to=TensorProto.FLOAT16),
    ]
    dims = ["n", _CHANNELS, 8, 8]
    graph = helper.make_graph(
        nodes,
        "mixed",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT16, dims)],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return _save(graph, path)


def _body(op: str) -> onnx.GraphProto:
    output = helper.make_tensor_value_info(f"{op}_out", TensorProto.FLOAT, ["n", _CHANNELS, 8, 8])
    return helper.make_graph([helper.make_node(op, ["p"], [output.name], name=f"/gate/{op}")], op, [], [output])


def write_chain(path: Path, length: int) -> Path:
    """Write a long chain of layers in modules of ten."""
    nodes = [
        helper.make_node("Sigmoid", [f"t{n}"], [f"t{n + 1}"], name=f"/stack/block.{n // 10}/Sigmoid_{n}")
        for n in range(length)
    ]
    tensors = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in ("t0", f"t{length}")]
    return _save(helper.make_graph(nodes, "chain", tensors[:1], tensors[1:]), path)


def _save(graph: onnx.GraphProto, path: Path) -> Path:
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("acme", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), path)
    return path


def build_plan(folder: Path, name: str, *words: str) -> Path:
    """Build the model for two profiles, with its plugin, and with further words of the command line."""
    plan = folder / name
    library, model = write_library(folder), write_report_model(folder / "mixed.onnx")
    bounds = ["--shapes", "x:1x4x8x8:2x4x8x8:4x4x8x8", "--profile", "x:4x4x8x8:8x4x8x8:16x4x8x8"]
    command = ["build", str(model), "--plugins", str(library), "-o", str(plan), "--quiet", "--detailed", *bounds]
    assert main([*command, *words]) == 0
    return plan
