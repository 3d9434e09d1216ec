"""Models with bodies for tests inside ONNX Runtime, each with feeds that go through every one of its bodies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from tests.support.ort_models import make_model, node, tensor

__all__ = ["CONTROL_CASES", "ControlCase", "branch_model", "loop_model"]

_RNG = np.random.default_rng(3)
_X = _RNG.standard_normal((3, 4)).astype(np.float32)
_WEIGHTS = {"W": _RNG.standard_normal((4, 4)).astype(np.float32), "B": _RNG.standard_normal(4).astype(np.float32)}
_ROWS = ["N", 4]
_BOOL, _INT = TensorProto.BOOL, TensorProto.INT64

Feeds = Mapping[str, Any]


@dataclass(frozen=True)
class ControlCase:
    """A model, what is fed to it, and where its operators are."""

    name: str
    model: onnx.ModelProto
    feeds: Sequence[Feeds]
    whole: tuple[str, ...]
    """The operators of the outermost graph, sorted."""
    inside: tuple[str, ...]
    """Those of the bodies."""


def _body(
    nodes: list[onnx.NodeProto],
    outputs: list[Any],
    inputs: Sequence[Any] = (),
    weights: Mapping[str, Any] | None = None,
) -> onnx.GraphProto:
    return make_model(nodes, inputs, outputs, weights).graph


def branch_model() -> onnx.ModelProto:
    """``If`` between two nodes: its bodies read a value and weights of the graph around them."""
    then = _body([node("MatMul", ["a", "W"], ["t0"]), node("Relu", ["t0"], ["t"])], [tensor("t", _ROWS)])
    other = _body([node("Add", ["a", "B"], ["e0"]), node("Sigmoid", ["e0"], ["e"])], [tensor("e", _ROWS)])
    nodes = [
        node("Abs", ["x"], ["a"]),
        node("If", ["c"], ["y0"], then_branch=then, else_branch=other),
        node("Neg", ["y0"], ["y"]),
    ]
    return make_model(nodes, [tensor("x", _ROWS), tensor("c", [], _BOOL)], [tensor("y", _ROWS)], _WEIGHTS)


def loop_model() -> onnx.ModelProto:
    """``Loop`` with a carried value, a result an iteration, and a value and a weight of the graph around it."""
    body = _body(
        [
            node("Identity", ["go"], ["go_on"]),
            node("MatMul", ["v", "W"], ["v1"]),
            node("Tanh", ["v1"], ["v2"]),
            node("Add", ["v2", "a"], ["v_out"]),
            node("ReduceSum", ["v_out"], ["s"], keepdims=0),
        ],
        [tensor("go_on", [], _BOOL), tensor("v_out", _ROWS), tensor("s", [])],
        [tensor("i", [], _INT), tensor("go", [], _BOOL), tensor("v", _ROWS)],
    )
    nodes = [
        node("Abs", ["x"], ["a"]),
        node("Loop", ["n", "", "a"], ["y0", "sums"], body=body),
        node("Neg", ["y0"], ["y"]),
    ]
    outputs = [tensor("y", _ROWS), tensor("sums", ["K"])]
    return make_model(nodes, [tensor("x", _ROWS), tensor("n", [], _INT)], outputs, {"W": _WEIGHTS["W"]})


def _scan_model() -> onnx.ModelProto:
    """Over the last axis, so that what goes in and what comes out is transposed."""
    body = _body(
        [node("Add", ["acc", "e"], ["sum"]), node("Mul", ["sum", "B"], ["o"]), node("Identity", ["sum"], ["next"])],
        [tensor("next", [4]), tensor("o", [4])],
        [tensor("acc", [4]), tensor("e", [4])],
    )
    axes = {"num_scan_inputs": 1, "scan_input_axes": [1], "scan_output_axes": [1]}
    nodes = [node("Scan", ["z", "x"], ["last", "ys"], body=body, **axes)]
    inputs = [tensor("z", [4]), tensor("x", [4, "N"])]
    return make_model(nodes, inputs, [tensor("last", [4]), tensor("ys", [4, "N"])], {"B": _WEIGHTS["B"]})


def _growing_model() -> onnx.ModelProto:
    """A carried value that has another shape after each iteration."""
    body = _body(
        [
            node("Identity", ["go"], ["go_on"]),
            node("Concat", ["v", "x"], ["v_out"], axis=0),
            node("Shape", ["v_out"], ["s"]),
        ],
        [tensor("go_on", [], _BOOL), tensor("v_out", ["M2", 4]), tensor("s", [2], _INT)],
        [tensor("i", [], _INT), tensor("go", [], _BOOL), tensor("v", ["M", 4])],
    )
    nodes = [node("Loop", ["n", "", "x"], ["y", "sizes"], body=body)]
    outputs = [tensor("y", ["K", 4]), tensor("sizes", ["n", 2], _INT)]
    return make_model(nodes, [tensor("x", _ROWS), tensor("n", [], _INT)], outputs)


def _constant_model() -> onnx.ModelProto:
    """Bodies without inputs: one result is a constant node's, the other a weight of the body."""
    ones = helper.make_tensor("value", TensorProto.FLOAT, [1, 4], [1.0] * 4)
    then = _body([node("Constant", [], ["t"], value=ones)], [tensor("t", [1, 4])])
    other = _body([], [tensor("e", [1, 4])], weights={"e": np.full((1, 4), 3, np.float32)})
    nodes = [node("If", ["c"], ["y0"], then_branch=then, else_branch=other), node("Sub", ["y0", "x"], ["y"])]
    return make_model(nodes, [tensor("x", _ROWS), tensor("c", [], _BOOL)], [tensor("y", _ROWS)])


def _overridden_model() -> onnx.ModelProto:
    """A weight that a caller may replace, read in bodies and around them."""
    then = _body([node("Identity", ["a"], ["t"])], [tensor("t", _ROWS)])
    other = _body([node("Mul", ["a", "P"], ["e"])], [tensor("e", _ROWS)])
    nodes = [
        node("Add", ["x", "P"], ["a"]),
        node("If", ["c"], ["y0"], then_branch=then, else_branch=other),
        node("Sub", ["y0", "P"], ["y"]),
    ]
    inputs = [tensor("x", _ROWS), tensor("c", [], _BOOL), tensor("P", [4])]
    return make_model(nodes, inputs, [tensor("y", _ROWS)], {"P": np.arange(4, dtype=np.float32)})


def _nested_model() -> onnx.ModelProto:
    """``If`` in ``Loop`` in ``If``; the innermost read the loop's value, the outermost graph's, and its weights."""
    even = _body([node("Mul", ["v", "B"], ["t"])], [tensor("t", _ROWS)])
    odd = _body([node("Add", ["v", "a"], ["e0"]), node("MatMul", ["e0", "W"], ["e"])], [tensor("e", _ROWS)])
    body = _body(
        [
            node("Identity", ["go"], ["go_on"]),
            node("Mod", ["i", "two"], ["m"]),
            node("Cast", ["m"], ["is_odd"], to=_BOOL),
            node("If", ["is_odd"], ["w"], then_branch=even, else_branch=odd),
            node("Tanh", ["w"], ["v_out"]),
        ],
        [tensor("go_on", [], _BOOL), tensor("v_out", _ROWS)],
        [tensor("i", [], _INT), tensor("go", [], _BOOL), tensor("v", _ROWS)],
    )
    then = _body([node("Loop", ["n", "", "a"], ["looped"], body=body)], [tensor("looped", _ROWS)])
    other = _body([node("Exp", ["a"], ["grown"])], [tensor("grown", _ROWS)])
    nodes = [
        node("Abs", ["x"], ["a"]),
        node("If", ["c"], ["y0"], then_branch=then, else_branch=other),
        node("Neg", ["y0"], ["y"]),
    ]
    inputs = [tensor("x", _ROWS), tensor("n", [], _INT), tensor("c", [], _BOOL)]
    return make_model(nodes, inputs, [tensor("y", _ROWS)], {**_WEIGHTS, "two": np.int64(2)})


def _switches(**more: Any) -> list[Feeds]:
    return [{"x": _X, "c": np.array(switch), **more} for switch in (True, False)]


def _counts(*counts: int) -> list[Feeds]:
    return [{"x": _X, "n": np.array(count)} for count in counts]


_IN_LOOP = ("Add", "Identity", "MatMul", "ReduceSum", "Tanh")
_IN_NEST = ("Add", "Cast", "Exp", "Identity", "If", "Loop", "MatMul", "Mod", "Mul", "Tanh")
CONTROL_CASES = (
    ControlCase("if", branch_model(), _switches(), ("Abs", "If", "Neg"), ("Add", "MatMul", "Relu", "Sigmoid")),
    ControlCase("loop", loop_model(), _counts(3, 0, 1), ("Abs", "Loop", "Neg"), _IN_LOOP),
    ControlCase(
        "scan",
        _scan_model(),
        [{"z": np.zeros(4, np.float32), "x": _RNG.standard_normal((4, n)).astype(np.float32)} for n in (3, 5)],
        ("Scan",),
        ("Add", "Identity", "Mul"),
    ),
    ControlCase("growing", _growing_model(), _counts(2, 0), ("Loop",), ("Concat", "Identity", "Shape")),
    ControlCase("constant", _constant_model(), _switches(), ("If", "Sub"), ()),
    ControlCase(
        "overridden",
        _overridden_model(),
        [*_switches(), *_switches(P=np.ones(4, np.float32))],
        ("Add", "If", "Sub"),
        ("Identity", "Mul"),
    ),
    ControlCase("nested", _nested_model(), _switches(n=np.array(3)), ("Abs", "If", "Neg"), _IN_NEST),
)
