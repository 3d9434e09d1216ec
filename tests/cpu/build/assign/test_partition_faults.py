"""A provider that cannot compile a partition loses the nodes at fault and keeps the others."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper

import dovetail as dt
from dovetail.provider.interfaces import BuildContext, BuiltPartition
from dovetail.testing import HostDevice, host_device
from tests.support.device_models import WEIGHT, X, build, expected, make_model

NUM_NODES = 24


class _Listener(dt.ILogger):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def log(self, severity: Any, msg: str) -> None:
        self.lines.append(msg)


def _chain() -> onnx.ModelProto:
    """MatMul and Tanh in turn, ``n0`` to ``n23``."""
    names = ["x", *(f"v{i}" for i in range(NUM_NODES - 1)), "y"]
    nodes = [
        helper.make_node(*(("Tanh", [a]) if i % 2 else ("MatMul", [a, "W"])), [b], name=f"n{i}")
        for i, (a, b) in enumerate(pairwise(names))
    ]
    return make_model(nodes, {"x": [3, 8]}, {"y": [3, 8]}, {"W": WEIGHT})


@contextmanager
def _device(refuses: Callable[[Collection[str]], bool]) -> Iterator[tuple[HostDevice, list[list[str]]]]:
    """A device that refuses to compile some sets of nodes, and the sets it was asked to."""
    asked: list[list[str]] = []
    with host_device(compiles=True) as device:
        compile_partition = device.build_partition

        def build_partition(model: ir.Model, context: BuildContext) -> BuiltPartition:
            asked.append([node.name or "" for node in model.graph if node.op_type != "Constant"])
            if refuses(asked[-1]):
                raise ValueError("these it does not like")
            return compile_partition(model, context)

        device.build_partition = build_partition  # type: ignore[method-assign]
        yield device, asked


def _on_cpu(engine: dt.Engine) -> list[str]:
    return [step.name for step in engine.manifest.programs[0].steps if step.provider == "cpu"]


@pytest.mark.parametrize("bad", [["n0"], ["n11"], ["n23"], ["n4", "n5"], ["n1", "n12", "n20"]])
def test_only_nodes_that_fail_go_to_another_provider(bad: list[str]) -> None:
    listener = _Listener()
    with _device(lambda names: not set(bad).isdisjoint(names)) as (_, asked):
        engine = build(_chain(), logger=listener)
        assert _on_cpu(engine) == bad
        np.testing.assert_allclose(engine(X), expected(_chain(), X), rtol=1e-5, atol=1e-6)
    (line,) = [line for line in listener.lines if "cannot compile" in line]
    assert f"'host_device' cannot compile {len(bad)} node(s)" in line
    for name in bad:
        op = "Tanh" if int(name[1:]) % 2 else "MatMul"
        assert f"'{name}' ({op}): build_partition raised ValueError: these it does not like" in line
    assert len(asked) == len({tuple(names) for names in asked})


def test_of_nodes_that_fail_only_together_one_goes() -> None:
    listener = _Listener()
    with _device(lambda names: {"n3", "n18"} <= set(names)):
        engine = build(_chain(), logger=listener)
        assert _on_cpu(engine) == ["n18"]
        np.testing.assert_allclose(engine(X), expected(_chain(), X), rtol=1e-5, atol=1e-6)
    assert any("'n18' (MatMul), together with nodes before it from 'n0' on:" in line for line in listener.lines)


def test_parts_that_compiled_during_the_search_are_used() -> None:
    """The part before n12 is a half that was tried; the one after it never was."""
    with _device(lambda names: "n12" in names) as (_, asked):
        build(_chain())
    whole, *tried, last = asked
    assert len(whole) == NUM_NODES
    assert [f"n{i}" for i in range(12)] in tried
    assert last == [f"n{i}" for i in range(13, NUM_NODES)]


def test_a_device_that_compiles_nothing_is_not_asked_for_ever() -> None:
    nodes = [helper.make_node("Tanh", [f"v{i}"], [f"v{i + 1}"], name=f"n{i}") for i in range(300)]
    model = make_model(nodes, {"v0": [3, 8]}, {"v300": [3, 8]})
    listener = _Listener()
    with _device(lambda names: True) as (_, asked):
        engine = build(model, logger=listener)
        assert len(_on_cpu(engine)) == 300
        assert len(asked) <= 65
    (line,) = [line for line in listener.lines if "cannot compile" in line]
    assert "cannot compile 300 node(s)" in line
    assert "nodes from 'n0' (Tanh) to" in line
    assert "not searched further" in line


def test_a_strict_build_ends_and_names_the_node() -> None:
    with (
        _device(lambda names: "n7" in names),
        pytest.raises(dt.ProviderError, match=r"(?s)'host_device' cannot compile 1 node.*'n7' \(Tanh\)"),
    ):
        build(_chain(), strict=True)


def _batchwise() -> onnx.ModelProto:
    """A chain with an LSTM in the middle whose layout ONNX Runtime has a kernel for that refuses it."""
    weights = {"W": WEIGHT, "w": np.tile(WEIGHT, (4, 1))[None], "r": np.tile(WEIGHT, (4, 1))[None] / 4}
    nodes = [
        *(helper.make_node("MatMul", [f"a{i}", "W"], [f"a{i + 1}"], name=f"before{i}") for i in range(8)),
        helper.make_node("LSTM", ["a8", "w", "r"], ["", "h"], name="lstm", hidden_size=8, layout=1),
        *(helper.make_node("Tanh", [f"b{i}" if i else "h"], [f"b{i + 1}"], name=f"after{i}") for i in range(8)),
    ]
    return make_model(nodes, {"a0": [3, 4, 8]}, {"b8": [3, 1, 8]}, weights)


def test_onnxruntime_loses_the_node_that_it_refuses() -> None:
    pytest.importorskip("onnxruntime", reason="the provider under test")
    listener = _Listener()
    engine = dt.compile(_batchwise(), providers=["onnxruntime", "cpu"], logger=listener)
    steps = [(step.kind, step.provider) for step in engine.manifest.programs[0].steps]
    assert steps == [("partition", "onnxruntime"), ("kernel", "cpu"), ("partition", "onnxruntime")]
    assert any("'lstm' (LSTM)" in line and "layout == 1" in line for line in listener.lines)
    x = np.random.default_rng(0).standard_normal((3, 4, 8)).astype(np.float32) / 100
    np.testing.assert_allclose(engine(x), expected(_batchwise(), x), rtol=1e-5, atol=1e-6)
