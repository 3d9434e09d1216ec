"""Who takes a node: ONNX's operators, ONNX Runtime's, plugins; and what the error says when nobody does."""

from __future__ import annotations

from typing import Any

import onnx
import onnx_ir as ir
import pytest
from onnx import parser

import dovetail as dt
from dovetail.errors import ModelError, UnsupportedOpError
from dovetail.loggers import ILogger, Severity
from dovetail.network.importer.importer import import_model
from dovetail.network.importer.kernels import find_kernel_in
from dovetail.network.plugins import PLUGIN_OP
from tests.support.plugins import PlainCreator, ScalePlugin

HEAD = '<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1, "ai.onnx.ml" : 3, "acme" : 1]>\n'


class Notes(ILogger):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def log(self, severity: Severity, msg: str) -> None:
        self.messages.append(msg)


def make(nodes: str) -> onnx.ModelProto:
    return parser.parse_model(f"{HEAD} agraph (float[2,3] x) => (float y) {{ {nodes} }}")


def registry_with(*names: str, namespace: str = "") -> dt.PluginRegistry:
    registry = dt.PluginRegistry()
    for name in names:
        registry.register_creator(PlainCreator(name, ScalePlugin), namespace)
    return registry


def take(nodes: str, *names: str, **options: Any) -> list[str]:
    options.setdefault("registry", registry_with(*names))
    return [node.op_type for node in import_model(make(nodes), **options).graph]


def without(*ops: str) -> Any:
    find = find_kernel_in()
    return lambda op, domain, opset: op not in ops and find(op, domain, opset)


class TestWhoTakesANode:
    def test_an_operator_of_onnx_runtime_that_has_a_kernel(self) -> None:
        assert take("y = com.microsoft.Gelu(x)", "Gelu") == ["Gelu"]

    def test_the_same_as_a_plugin_when_that_is_asked_for(self) -> None:
        assert take("y = com.microsoft.Gelu(x)", "Gelu", override=["Gelu"]) == [PLUGIN_OP]
        asked = 'y = com.microsoft.Gelu<plugin_namespace = "">(x)'
        assert take(asked, "Gelu") == [PLUGIN_OP]

    @pytest.mark.parametrize("node", ["y = com.microsoft.Gelu(x)", "y = Sin(x)"])
    def test_a_plugin_where_nobody_has_a_kernel(self, node: str) -> None:
        notes = Notes()
        assert take(node, "Gelu", "Sin", kernels=without("Gelu", "Sin"), logger=notes) == [PLUGIN_OP]
        assert any("no provider has a kernel, so the plugin of that name is used" in text for text in notes.messages)

    def test_a_body_comes_before_a_plugin(self) -> None:
        assert PLUGIN_OP not in take("y = Mish(x)", "Mish", kernels=without("Mish"))
        assert take("y = Mish(x)", "Mish", kernels=without("Mish"), override=["Mish"]) == [PLUGIN_OP]

    def test_names_that_onnx_gave_up_are_free(self) -> None:
        """ONNX Runtime still has ``Scale`` and ``Crop`` in the domain of ONNX, which dropped them before opset 10."""
        assert take("y = Scale<factor = 2.0>(x)", "Scale") == [PLUGIN_OP]
        with pytest.raises(UnsupportedOpError, match="no creator is registered for plugin 'Crop'"):
            take("y = Crop(x)")

    def test_a_form_that_does_not_fit_is_found_in_operators_of_onnx_runtime_too(self) -> None:
        with pytest.raises(ModelError) as caught:
            take("a = com.microsoft.Gelu(x, x) y = com.microsoft.FusedMatMul<transa = 1>(a)")
        assert "2 inputs; expected 1 to 1" in str(caught.value)
        assert "1 inputs; expected 2 to 2" in str(caught.value)
        assert "did you mean 'transA'" in str(caught.value)
        assert "com.microsoft::Gelu, opset 1" in str(caught.value)


class TestTypes:
    @pytest.mark.parametrize(
        ("nodes", "dtype", "shape"),
        [
            ("y = com.microsoft.BiasSoftmax<axis = 1, is_inner_broadcast = 0>(x, x)", "FLOAT", "[2,3]"),
            ("y = com.microsoft.Inverse(x)", "FLOAT", "[2,3]"),
            ("y = com.microsoft.FusedGemm(x, t) t = Transpose(x)", "FLOAT", "[2,2]"),
            ("t = Transpose(x) y = com.microsoft.FusedGemm(x, t)", "FLOAT", "[2,2]"),
            ("y = com.microsoft.CDist(x, x)", "FLOAT", "None"),
            ('y = ai.onnx.ml.Normalizer<norm = "L1">(x)', "FLOAT", "[2,3]"),
            ("y = ai.onnx.ml.LinearRegressor<coefficients = [1.0, 2.0, 3.0]>(x)", "FLOAT", "[2,1]"),
        ],
    )
    def test_every_value_has_a_type(self, nodes: str, dtype: str, shape: str) -> None:
        proto = make(nodes)
        proto.graph.output[0].type.tensor_type.ClearField("shape")
        (value,) = import_model(proto, kernels=lambda *_: True).graph.outputs
        assert value.dtype == ir.DataType[dtype]
        assert str(value.shape) == shape

    def test_labels_of_classifiers(self) -> None:
        head = "ai.onnx.ml.LinearClassifier<coefficients = [1.0, 2.0, 3.0]"
        for attribute, kind in (("classlabels_ints = [1, 2]", "INT64"), ('classlabels_strings = ["a", "b"]', "STRING")):
            proto = make(f"t, y = {head}, {attribute}>(x)")
            model = import_model(proto, kernels=lambda *_: True)
            assert model.graph[0].outputs[0].dtype == ir.DataType[kind]


class TestNobody:
    def test_one_error_names_every_node_once(self) -> None:
        chain = " ".join(f"t{n} = acme.MyOp<alpha = 0.5>({'x' if n == 0 else f't{n - 1}'})" for n in range(60))
        proto = make(f'{chain} u = Other<mode = "a">(t59) y = MyOb(u)')
        for index, node in enumerate(proto.graph.node):
            node.name = f"n{index}"
        with pytest.raises(UnsupportedOpError) as caught:
            import_model(proto, registry=registry_with("MyOp2", "Unrelated"))
        text = str(caught.value)
        assert "3 problems" in text
        for index in range(62):
            assert f"node 'n{index}' (" in text
        assert "acme::MyOp, opset 1" in text
        assert "alpha: FLOAT=0.5" in text
        assert "'MyOp2' version '1'" in text
        assert "a creator with name 'Other', plugin_version '1', plugin_namespace ''" in text
        assert "field_names 'mode' (CHAR), whose plugin takes 1 input(s) and 1 output(s)" in text

    def test_versions_and_namespaces_are_different_plugins(self) -> None:
        nodes = 'a = MyOp<plugin_version = "2">(x) y = MyOp<plugin_namespace = "far">(a)'
        with pytest.raises(UnsupportedOpError) as caught:
            take(nodes, "MyOp")
        assert "ask for version '1'" in str(caught.value)
        assert "ask for namespace ''" in str(caught.value)
        assert "plugin_version '2'" in str(caught.value)
        assert "plugin_namespace 'far'" in str(caught.value)

    @pytest.mark.parametrize(
        ("node", "reason"),
        [
            ("y = Nope(x)", "no operator set has the operator"),
            ("y = Swish(x)", "ONNX has the operator since version 24"),
            ("y = com.microsoft.BeamSearch(x)", "ONNX Runtime has the operator, and no provider here runs it"),
        ],
    )
    def test_the_reason(self, node: str, reason: str) -> None:
        with pytest.raises(UnsupportedOpError, match=reason):
            take(node)

    def test_a_domain_that_is_not_imported(self) -> None:
        proto = make("y = acme.MyOp(x)")
        del proto.opset_import[3]
        with pytest.raises(UnsupportedOpError, match="does not import an operator set 'acme'"):
            import_model(proto)

    def test_a_graph_as_an_attribute_is_told_and_is_no_field(self) -> None:
        proto = make("y = MyOp<k = 1>(x)")
        proto.graph.node[0].attribute.append(
            onnx.helper.make_attribute("body", onnx.helper.make_graph([], "g", [], []))
        )
        with pytest.raises(UnsupportedOpError) as caught:
            import_model(proto)
        assert "body: GRAPH" in str(caught.value)
        assert "field_names 'k' (INT32), whose" in str(caught.value)
