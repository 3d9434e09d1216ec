"""What ``find_support`` says is what a build does: providers, plugins, bodies, and reasons."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

import dovetail as dt
from dovetail.build.assign.support import PLUGIN, find_support
from dovetail.network.importer.importer import import_model
from dovetail.network.plugins import entry_of


@pytest.fixture
def registry() -> Iterator[dt.PluginRegistry]:
    made = dt.PluginRegistry()
    yield made
    made.close()


def _model(*nodes: onnx.NodeProto, opset: int = 18) -> ir.Model:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 4]) for name in ("x", "y"))
    graph = helper.make_graph(list(nodes), "g", [x], [y])
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("acme", 1)]
    return ir.from_proto(onnx.shape_inference.infer_shapes(helper.make_model(graph, opset_imports=opsets)))


def _register(registry: dt.PluginRegistry, name: str) -> None:
    def double(x: Any) -> Any:
        return x + x

    layer = dt.layer(name)(double)
    dt.get_plugin_registry().deregister_creator(layer.creator)
    registry.register_creator(layer.creator)


def _who(model: ir.Model, **arguments: Any) -> list[str | None]:
    return [support.provider for support in find_support(model, providers=["cpu"], **arguments)]


def test_a_kernel_is_named_by_its_provider() -> None:
    model = _model(helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Neg", ["a"], ["y"]))
    assert _who(model) == ["cpu", "cpu"]


def test_an_unknown_operator_is_taken_when_a_plugin_is_registered(registry: dt.PluginRegistry) -> None:
    model = _model(helper.make_node("AcmeTwice", ["x"], ["y"], domain="acme"))
    (support,) = find_support(model, providers=["cpu"], registry=registry)
    assert support.provider is None
    assert "no kernel for acme::AcmeTwice" in support.reason
    _register(registry, "AcmeTwice")
    (support,) = find_support(model, providers=["cpu"], registry=registry)
    assert (support.provider, support.is_plugin) == (PLUGIN, True)


def test_an_operator_of_onnx_is_a_plugin_only_on_request(registry: dt.PluginRegistry) -> None:
    _register(registry, "Relu")
    model = _model(helper.make_node("Relu", ["x"], ["y"]))
    assert _who(model, registry=registry) == ["cpu"]
    assert _who(model, registry=registry, override=["Relu"]) == [PLUGIN]


def test_an_operator_of_onnx_without_a_kernel_is_a_plugin_as_in_a_build(registry: dt.PluginRegistry) -> None:
    model = _model(helper.make_node("Log", ["x"], ["y"]), opset=1)
    assert _who(model, registry=registry) == [None]
    _register(registry, "Log")
    assert _who(model, registry=registry) == [PLUGIN]
    (node,) = import_model(ir.to_proto(model), registry=registry).graph
    assert entry_of(node) is not None


@pytest.mark.parametrize(("op", "expected"), [("Neg", "cpu"), ("Nonsense", None)])
def test_a_node_with_bodies_is_taken_when_all_in_them_is(op: str, expected: str | None) -> None:
    def body(name: str, inner: str) -> onnx.GraphProto:
        out = helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT, ["N", 4])
        return helper.make_graph([helper.make_node(inner, ["x"], [f"{name}_y"])], name, [], [out])

    condition = helper.make_tensor("c", TensorProto.BOOL, [], [True])
    nodes = [
        helper.make_node("Constant", [], ["c"], value=condition),
        helper.make_node("If", ["c"], ["y"], then_branch=body("then", "Relu"), else_branch=body("other", op)),
    ]
    supports = find_support(_model(*nodes), providers=["cpu"])
    assert [support.provider for support in supports] == ["cpu", expected]
    assert expected is not None or "in its body, Nonsense" in supports[1].reason


def test_the_first_provider_that_takes_a_node_is_named() -> None:
    model = _model(helper.make_node("Relu", ["x"], ["y"]))
    assert [s.provider for s in find_support(model, providers=["onnxruntime", "cpu"])] == ["onnxruntime"]


def test_what_is_supported_builds_and_runs() -> None:
    model = _model(helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Neg", ["a"], ["y"]))
    assert all(_who(model))
    x = np.float32([[-1, 2, -3, 4]])
    np.testing.assert_array_equal(dt.compile(model, providers=["cpu"])(x), -np.maximum(x, 0))
