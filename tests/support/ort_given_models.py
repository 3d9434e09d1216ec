"""Models for tests of weights that a session's options give: what is given, and what is fed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import dovetail
from tests.support.ort_models import make_model, node, tensor

__all__ = ["GIVEN_CASES", "GivenCase", "replace_weights"]

_X = np.float32([3, -4, 5, 6])
_W, _OTHER = np.float32([1, 2, 3, 4]), np.float32([10, 20, 30, 40])
_BOOL, _INT = TensorProto.BOOL, TensorProto.INT64
_PLUGINS = "trt.plugins"


@dovetail.layer("GivenScale")
def scale(x: Any, w: Any) -> Any:
    """A custom layer with a weight; ONNX Runtime has no kernel for it."""
    return x * w


@dataclass(frozen=True, kw_only=True)
class GivenCase:
    """A model, what the options of a session give in place of its weights, and what is fed to it."""

    name: str
    model: onnx.ModelProto
    given: Mapping[str, Any] = field(default_factory=lambda: {"w": _OTHER})
    feeds: Mapping[str, Any] = field(default_factory=lambda: {"x": _X})
    by_reference: bool = True
    """Whether ONNX Runtime can run the model alone."""
    is_folded: bool = False
    """Whether ONNX Runtime's own optimizers compute with the model's weight, whatever it was given."""


def replace_weights(model: onnx.ModelProto, given: Mapping[str, Any]) -> onnx.ModelProto:
    """The same model with other weights in it, also in its bodies."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    _replace(copy.graph, given)
    return copy


def _replace(graph: onnx.GraphProto, given: Mapping[str, Any]) -> None:
    for weight in graph.initializer:
        if weight.name in given:
            weight.CopyFrom(numpy_helper.from_array(given[weight.name], weight.name))
    for attribute in (attribute for one in graph.node for attribute in one.attribute):
        if attribute.HasField("g"):
            _replace(attribute.g, given)


def _model(nodes: list[Any], weights: Mapping[str, Any] | None = None, **options: Any) -> onnx.ModelProto:
    inputs = options.pop("inputs", [tensor("x", [4])])
    outputs = options.pop("outputs", [tensor("y", None)])
    return make_model(nodes, inputs, outputs, {"w": _W} if weights is None else weights, **options)


def _branch(then: onnx.GraphProto, weights: Mapping[str, Any] | None = None) -> GivenCase:
    other = helper.make_graph([node("Abs", ["x"], ["e"])], "else", [], [tensor("e", [4])])
    chosen = node("If", ["c"], ["y"], then_branch=then, else_branch=other)
    model = _model([chosen], weights, inputs=[tensor("x", [4]), tensor("c", [], _BOOL)])
    return GivenCase(name="", model=model, feeds={"x": _X, "c": np.array(True)})


def _captured() -> GivenCase:
    return _branch(helper.make_graph([node("Mul", ["x", "w"], ["t"])], "then", [], [tensor("t", [4])]))


def _nested() -> GivenCase:
    inner = _captured().model.graph.node[0]
    inner.output[0] = "n"
    return _branch(helper.make_graph([inner, node("Neg", ["n"], ["m"])], "then", [], [tensor("m", [4])]))


def _inside() -> GivenCase:
    own = numpy_helper.from_array(_W, "w")
    body = helper.make_graph([node("Mul", ["x", "w"], ["t"])], "then", [], [tensor("t", [4])], [own])
    return _branch(body, {})


def _loop() -> GivenCase:
    body = helper.make_graph(
        [node("Identity", ["go"], ["on"]), node("Add", ["v", "w"], ["next"])],
        "body",
        [tensor("i", [], _INT), tensor("go", [], _BOOL), tensor("v", [4])],
        [tensor("on", [], _BOOL), tensor("next", [4])],
    )
    nodes = [node("Mul", ["x", "w"], ["a"]), node("Loop", ["n", "", "a"], ["y"], body=body)]
    model = _model(nodes, {"w": _W, "n": np.array(3)})
    return GivenCase(name="", model=model)


def _control_cases() -> list[GivenCase]:
    made = {"captured": _captured(), "nested": _nested(), "inside a body": _inside(), "loop": _loop()}
    return [GivenCase(name=name, model=case.model, given=case.given, feeds=case.feeds) for name, case in made.items()]


def _typed(dtype: str) -> GivenCase:
    x, w, other = (array.astype(dtype) for array in (np.abs(_X), _W > 2, _OTHER))
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    nodes = [node("Concat", ["x", "w"], ["y"], axis=0)]
    model = _model(nodes, {"w": w}, inputs=[tensor("x", [4], kind)], outputs=[tensor("y", [8], kind)])
    return GivenCase(name=dtype, model=model, given={"w": other}, feeds={"x": x})


def _large() -> GivenCase:
    rng = np.random.default_rng(5)
    w, other = (rng.standard_normal((256, 2048), np.float32) for _ in range(2))
    model = _model([node("MatMul", ["x", "w"], ["y"])], {"w": w}, inputs=[tensor("x", ["n", 256])])
    return GivenCase(name="large", model=model, given={"w": other}, feeds={"x": rng.random((3, 256), np.float32)})


def _convolution() -> GivenCase:
    rng = np.random.default_rng(6)
    w, other = (rng.standard_normal((5, 3, 3, 3), np.float32) for _ in range(2))
    bias = {"b": np.float32([1, 2, 3, 4, 5])}
    nodes = [node("Conv", ["x", "w", "b"], ["a"], pads=[1] * 4), node("Relu", ["a"], ["y"])]
    model = _model(nodes, {"w": w} | bias, inputs=[tensor("x", [2, 3, 8, 8])])
    given = {"w": other, "b": bias["b"] * 2}
    feeds = {"x": rng.standard_normal((2, 3, 8, 8), np.float32)}
    return GivenCase(name="convolution", model=model, given=given, feeds=feeds, is_folded=True)


def _plain_cases() -> list[GivenCase]:
    v = np.float32([2, 2, 2, 2])
    several = [node("Mul", ["x", "w"], ["a"]), node("Erf", ["a"], ["b"]), node("Add", ["b", "w"], ["y"])]
    folded = [node("Add", ["w", "v"], ["s"]), node("Mul", ["x", "s"], ["y"])]
    custom = [node("Abs", ["x"], ["a"]), node("GivenScale", ["a", "w"], ["y"], domain=_PLUGINS)]
    mixed = [node("Mul", ["x", "v"], ["a"]), node("Add", ["a", "w"], ["b"]), node("Sub", ["b", "u"], ["y"])]
    used_twice = [node("Mul", ["w", "w"], ["a"]), node("Add", ["a", "x"], ["y"])]
    constant = _model([node("Mul", ["w", "v"], ["y"])], {"w": _W, "v": v}, inputs=[])
    plain, joined = [node("Mul", ["x", "w"], ["y"])], [node("Concat", ["x", "w"], ["y"], axis=0)]
    results = [tensor("y", [4]), tensor("w", [4])]
    return [
        GivenCase(name="plain", model=_model(plain)),
        GivenCase(name="used twice", model=_model(used_twice), is_folded=True),
        GivenCase(name="several parts", model=_model(several)),
        GivenCase(name="folded", model=_model(folded, {"w": _W, "v": v}), is_folded=True),
        GivenCase(name="all folded", model=constant, feeds={}, is_folded=True),
        GivenCase(name="with others", model=_model(mixed, {"v": v, "w": _W, "u": v})),
        GivenCase(name="several", model=_model(mixed, {"v": v, "w": _W, "u": v}), given={"w": _OTHER, "u": _W}),
        GivenCase(name="custom", model=_model(custom, domains=[_PLUGINS]), by_reference=False),
        GivenCase(name="a result", model=_model(plain, outputs=results)),
        GivenCase(name="unknown", model=_model(plain), given={"other": _OTHER}),
        GivenCase(name="an input too", model=_model(plain, inputs=[tensor("x", [4]), tensor("w", [4])])),
        GivenCase(name="empty", model=_model(joined, {"w": _W[:0]}), given={"w": _OTHER[:0]}),
    ]


GIVEN_CASES = (
    *_plain_cases(),
    *_control_cases(),
    *(_typed(dtype) for dtype in ("float16", "float64", "int8", "uint8", "int32", "int64", "bool")),
    _large(),
    _convolution(),
)
