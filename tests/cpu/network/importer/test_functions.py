"""Functions of a model, called in every way that ONNX allows, compiled and run on the ``cpu`` provider."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser

import dovetail as dt
from dovetail.errors import ModelError
from dovetail.network.importer.importer import import_model

X = np.random.default_rng(0).normal(size=(2, 3)).astype(np.float32)
TRUE, FALSE = np.array(True), np.array(False)


def make(text: str, opset: int = 21) -> onnx.ModelProto:
    return parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}, "acme" : 1]>\n{text}')


def function(body: str, opset: int = 21) -> str:
    return f'<domain: "acme", opset_import: ["" : {opset}, "acme" : 1]> {body}\n'


def run(text: str, *feeds: Any, opset: int = 21) -> Any:
    return dt.compile(make(text, opset), providers=["cpu"])(*feeds)


def leaky(slope: float) -> Any:
    return np.where(X < 0, slope * X, X)


LEAKY = function("F <k: float = 0.25> (a) => (r) { r = LeakyRelu<alpha = @k>(a) }")


def call(text: str, functions: str) -> str:
    return f"agraph (float[2,3] x) => (float y) {{ {text} }} {functions}"


class TestAttributes:
    def test_defaults_and_values(self) -> None:
        np.testing.assert_allclose(run(call("y = acme.F(x)", LEAKY), X), leaky(0.25), rtol=1e-6)
        np.testing.assert_allclose(run(call("y = acme.F<k = 0.5>(x)", LEAKY), X), leaky(0.5), rtol=1e-6)

    def test_one_without_a_default_that_is_not_given_is_the_operator_s(self) -> None:
        text = function("F <k> (a) => (r) { r = LeakyRelu<alpha = @k>(a) }")
        np.testing.assert_allclose(run(call("y = acme.F(x)", text), X), leaky(0.01), rtol=1e-6)

    def test_passed_on_through_functions(self) -> None:
        text = function("G <j> (a) => (r) { r = acme.F<k = @j>(a) }") + LEAKY
        np.testing.assert_allclose(run(call("y = acme.G<j = 0.5>(x)", text), X), leaky(0.5), rtol=1e-6)
        np.testing.assert_allclose(run(call("y = acme.G(x)", text), X), leaky(0.25), rtol=1e-6)

    def test_inside_a_body(self) -> None:
        text = function(
            """F <k> (a, c) => (r) { r = If (c) <then_branch = t () => (p) { p = LeakyRelu<alpha = @k>(a) },
                                                 else_branch = e () => (q) { q = Neg(a) }> }"""
        )
        model = f"agraph (float[2,3] x, bool c) => (float y) {{ y = acme.F<k = 0.5>(x, c) }} {text}"
        np.testing.assert_allclose(run(model, X, TRUE), leaky(0.5), rtol=1e-6)
        np.testing.assert_allclose(run(model, X, FALSE), -X)


class TestInputs:
    CLIP = function("F (a, low, high) => (r) { r = Clip(a, low, high) }")

    def test_left_out(self) -> None:
        np.testing.assert_array_equal(run(call("y = acme.F(x)", self.CLIP), X), X)

    def test_left_out_in_between(self) -> None:
        text = f'agraph (float[2,3] x, float h) => (float y) {{ y = acme.F(x, "", h) }} {self.CLIP}'
        np.testing.assert_array_equal(run(text, X, np.float32(0.1)), np.minimum(X, np.float32(0.1)))

    def test_left_out_and_used_in_a_body(self) -> None:
        text = function(
            """F (a, c, low) => (r) { r = If (c) <then_branch = t () => (p) { p = Clip(a, low) },
                                                   else_branch = e () => (q) { q = Neg(a) }> }"""
        )
        model = f"agraph (float[2,3] x, bool c) => (float y) {{ y = acme.F(x, c) }} {text}"
        np.testing.assert_array_equal(run(model, X, TRUE), X)

    def test_too_many(self) -> None:
        with pytest.raises(ModelError, match="call site has 4 inputs but function defines at most 3"):
            import_model(make(call("y = acme.F(x, x, x, x)", self.CLIP)))

    def test_too_many_outputs(self) -> None:
        with pytest.raises(ModelError, match="cannot be expanded"):
            import_model(make(f"agraph (float[2,3] x) => (float y, float z) {{ y, z = acme.F(x) }} {self.CLIP}"))


class TestBodies:
    CAPTURE = function(
        """F (a, c) => (r) { t = Neg(a) r = If (c) <then_branch = u () => (p) { p = Add(t, a) },
                                                    else_branch = e () => (q) { q = Mul(t, t) }> }"""
    )

    def test_a_body_that_uses_values_of_its_function(self) -> None:
        text = f"agraph (float[2,3] x, bool c) => (float y) {{ t = acme.F(x, c) y = acme.F(t, c) }} {self.CAPTURE}"
        np.testing.assert_allclose(run(text, X, FALSE), X**4, rtol=1e-5)
        np.testing.assert_allclose(run(text, X, TRUE), np.zeros_like(X))

    def test_a_call_in_a_body(self) -> None:
        text = f"""agraph (float[2,3] x, bool c) => (float y) {{
            y = If (c) <then_branch = u () => (p) {{ p = acme.F(x, c) }},
                        else_branch = e () => (q) {{ q = Neg(x) }}> }} {self.CAPTURE}"""
        np.testing.assert_allclose(run(text, X, TRUE), np.zeros_like(X))

    def test_every_name_is_one_value_s(self) -> None:
        text = f"agraph (float[2,3] x, bool c) => (float y) {{ t = acme.F(x, c) y = acme.F(t, c) }} {self.CAPTURE}"
        model = import_model(make(text))
        names = [value.name for node in model.graph.all_nodes() for value in node.outputs]
        assert len(set(names)) == len(names)
        nodes = [node.name for node in model.graph.all_nodes()]
        assert len(set(nodes)) == len(nodes)


class TestOverloads:
    def test_functions_of_one_name(self) -> None:
        proto = make(
            call(
                "t = acme.F(x) y = acme.F(t)",
                function("F (a) => (r) { r = Neg(a) }") + function("G (a) => (r) { r = Add(a, a) }"),
            )
        )
        proto.functions[1].name, proto.functions[1].overload, proto.graph.node[0].overload = "F", "two", "two"
        np.testing.assert_allclose(dt.compile(proto, providers=["cpu"])(X), -2 * X)


class TestOpsets:
    def test_another_version_where_nothing_changed(self) -> None:
        text = call("y = acme.F(x)", function("F (a) => (r) { r = Relu(a) }", opset=13))
        np.testing.assert_array_equal(run(text, X), np.maximum(X, 0))
        assert import_model(make(text)).opset_imports[""] == 21

    def test_the_model_takes_the_function_s_version_where_that_fits(self) -> None:
        text = call(
            "y = acme.F<k = [1]>(x)", function("F <k> (a) => (r) { r = ReduceSum<axes = @k, keepdims = 0>(a) }", 11)
        )
        np.testing.assert_allclose(run(text, X), X.sum(1), rtol=1e-5)
        assert import_model(make(text)).opset_imports[""] == 11

    def test_an_older_function_is_converted(self) -> None:
        text = function(
            "F <k> (a) => (r) { b = LeakyRelu<alpha = @k>(a) r = ReduceSum<axes = [1], keepdims = 0>(b) }", 11
        )
        model = call("g = Gelu(x) t = acme.F<k = 0.5>(x) y = Identity(t)", text)
        np.testing.assert_allclose(run(model, X), leaky(0.5).sum(1), rtol=1e-5)

    def test_an_older_model_is_converted(self) -> None:
        text = call(
            "t = acme.F(x) y = ReduceSum<axes = [1], keepdims = 0>(t)",
            function("F (a) => (r) { r = HardSwish(a) }", 14),
        )
        expected = (X * np.clip(X / 6 + 0.5, 0, 1)).sum(1)
        np.testing.assert_allclose(run(text, X, opset=11), expected, rtol=1e-4, atol=1e-5)

    def test_what_cannot_be_converted(self) -> None:
        text = function("F <k> (a) => (r) { r = GroupNormalization<num_groups = 1>(a, a, a) }", 18)
        with pytest.raises(ModelError) as caught:
            import_model(make(call("t = acme.F<k = 1>(x) y = GroupNormalization<num_groups = 1>(t, t, t)", text)))
        assert "function 'F'" in str(caught.value)
        assert "version 18 of operator set ''" in str(caught.value)
        assert "GroupNormalization" in str(caught.value)

    def test_other_domains(self) -> None:
        text = '<domain: "acme", opset_import: ["" : 21, "acme" : 7, "other" : 3]> F (a) => (r) { r = Neg(a) }'
        np.testing.assert_array_equal(run(call("y = acme.F(x)", text), X), -X)


class TestProblems:
    def test_what_nobody_calls_may_be_wrong(self) -> None:
        np.testing.assert_array_equal(run(call("y = Neg(x)", function("F (a) => (r) { r = Nope(a) }")), X), -X)

    def test_the_place_is_told(self) -> None:
        text = function(
            """F (a, c) => (r) { s = Relu(a, a) r = If (c) <then_branch = u () => (p) { p = Nope(a) },
                                                               else_branch = e () => (q) { q = Neg(a, a) }> }"""
        )
        proto = make(f"agraph (float[2,3] x, bool c) => (float y) {{ y = acme.F(x, c) }} {text}")
        proto.functions[0].node[1].name = "choose"
        with pytest.raises(ModelError) as caught:
            import_model(proto)
        message = str(caught.value)
        assert "3 problems" in message
        assert "(Nope, opset 21), in then_branch of node 'choose', in function 'F'" in message
        assert "(Neg, opset 21), in else_branch of node 'choose', in function 'F'" in message
        assert "(Relu, opset 21), in function 'F'" in message

    def test_functions_and_operators_are_told_together(self) -> None:
        text = call("t = acme.A(x) u = Relu(t, t) y = Nope(u)", function("A (a) => (r) { r = acme.A(a) }"))
        with pytest.raises(ModelError) as caught:
            import_model(make(text))
        assert "3 problems" in str(caught.value)

    def test_all_shapes_that_do_not_fit(self) -> None:
        text = """agraph (float[2,3] x, float[4,5] z, bool c) => (float y) {
            a = Add(x, z) b = MatMul(x, z)
            y = If (c) <then_branch = t () => (float p) { p = Mul(x, z) },
                        else_branch = e () => (float q) { q = Neg(x) }> }"""
        proto = make(text)
        proto.graph.node[2].name = "choose"
        with pytest.raises(ModelError) as caught:
            import_model(proto)
        assert "3 problems" in str(caught.value)
        assert "node 'Add' (Add, opset 21): shapes do not fit" in str(caught.value)
        assert "(Mul, opset 21), in then_branch of node 'choose': shapes do not fit" in str(caught.value)

    def test_damage_and_operators_are_told_together(self) -> None:
        proto = make(
            "agraph (float[2,3] x) => (float y) { t = Relu(x, x) u = Nope<k = 1>(q) y = LeakyRelu<alfa = 1.0>(u) }"
        )
        with pytest.raises(ModelError) as caught:
            import_model(proto)
        message = str(caught.value)
        assert "4 problems" in message
        for words in ("'q' is made by nothing", "2 inputs; expected 1 to 1", "Nope", "did you mean 'alpha'"):
            assert words in message
