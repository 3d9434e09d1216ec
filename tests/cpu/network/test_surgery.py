"""Parts of models replaced by one node: what is cut, what is refused, and that a plugin then runs in its place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper, parser

import dovetail as dt
from dovetail.cli import main
from dovetail.errors import ModelError, UsageError
from dovetail.network.surgery import replace_pattern, replace_subgraph
from tests.support.plugins import PlainCreator, ScalePlugin

HEAD = '<ir_version: 10, opset_import: ["" : 21]>\n'
CHAIN = """agraph (float[2,3] x, float[2,3] z) => (float[2,3] y) <float[3] w = {1, 2, 3}> {
    a = Mul(x, w) b = Sigmoid(a) c = Mul(a, b) d = Add(c, z) y = Relu(d) }"""


def make(text: str) -> onnx.ModelProto:
    return parser.parse_model(HEAD + text)


def load(text: str) -> ir.Model:
    return ir.from_proto(make(text))


def ops(model: ir.Model) -> list[str]:
    return [node.op_type for node in model.graph]


class TestCuts:
    def test_between_names(self) -> None:
        model = load(CHAIN)
        done = replace_subgraph(model, inputs=["a"], outputs=["c"], op="Sin", attributes={}, name="swish")
        assert ops(model) == ["Mul", "Sin", "Add", "Relu"]
        assert (done.node.name, done.removed, done.weights) == ("swish", ("Sigmoid", "Mul"), ())
        assert done.node.outputs[0].name == "c"
        onnx.checker.check_model(ir.to_proto(model))

    def test_several_inputs_in_order_and_a_weight_that_goes(self) -> None:
        model = load(CHAIN)
        done = replace_subgraph(model, inputs=["z", "x"], outputs=["d"], op="MyOp", domain="acme")
        assert ops(model) == ["MyOp", "Relu"]
        assert [value.name for value in done.node.inputs if value is not None] == ["z", "x"]
        assert done.weights == ("w",)
        assert not model.graph.initializers
        assert model.opset_imports["acme"] == 1

    def test_a_weight_that_is_an_input_stays(self) -> None:
        model = load(CHAIN)
        replace_subgraph(model, inputs=["x", "w", "z"], outputs=["d"], op="MyOp")
        assert list(model.graph.initializers) == ["w"]

    def test_a_weight_that_others_use_stays(self) -> None:
        model = load("agraph (float[3] x) => (float[3] y) <float[3] w = {1, 2, 3}> { a = Mul(x, w) y = Add(a, w) }")
        assert replace_subgraph(model, inputs=["x"], outputs=["a"], op="MyOp").weights == ()
        assert list(model.graph.initializers) == ["w"]

    def test_several_outputs_of_which_one_is_the_model_s(self) -> None:
        text = "agraph (float[3] x) => (float[3] y, float[3] v) { a = Neg(x) y = Relu(a) b = Exp(a) v = Abs(b) }"
        model = load(text)
        replace_subgraph(model, inputs=["x"], outputs=["y", "b"], op="Two")
        assert ops(model) == ["Two", "Abs"]
        assert [value.name for value in model.graph.outputs] == ["y", "v"]

    def test_the_order_is_right_whatever_it_was(self) -> None:
        text = "agraph (float[3] x) => (float[3] v) { a = Neg(x) p = Exp(a) q = Abs(x) r = Add(a, q) v = Mul(p, r) }"
        model = load(text)
        replace_subgraph(model, inputs=["x", "q"], outputs=["a", "r"], op="Two", domain="acme")
        assert ops(model).index("Abs") < ops(model).index("Two") < ops(model).index("Exp")
        onnx.checker.check_model(ir.to_proto(model))

    def test_a_constant_node_goes_with_the_cut(self) -> None:
        model = load(
            "agraph (float[3] x) => (float[3] y) { k = Constant<value_float = 2.0>() a = Mul(x, k) y = Neg(a) }"
        )
        assert replace_subgraph(model, inputs=["x"], outputs=["a"], op="MyOp").weights == ("k",)
        assert ops(model) == ["MyOp", "Neg"]

    def test_inside_a_body(self) -> None:
        text = """agraph (float[3] x, bool c) => (float[3] y) {
            y = If (c) <then_branch = t () => (float[3] p) { a = Neg(x) p = Exp(a) },
                        else_branch = e () => (float[3] q) { q = Abs(x) }> }"""
        model = load(text)
        replace_subgraph(model, inputs=["x"], outputs=["p"], op="MyOp")
        assert [node.op_type for node in model.graph.all_nodes()] == ["If", "MyOp", "Abs"]

    def test_a_body_that_captures_belongs_to_the_cut(self) -> None:
        text = """agraph (float[3] x, bool c) => (float[3] y) {
            a = Neg(x)
            b = If (c) <then_branch = t () => (float[3] p) { p = Exp(a) },
                        else_branch = e () => (float[3] q) { q = Abs(a) }>
            y = Relu(b) }"""
        model = load(text)
        replace_subgraph(model, inputs=["x", "c"], outputs=["b"], op="MyOp")
        assert ops(model) == ["MyOp", "Relu"]
        with pytest.raises(ModelError, match="it also depends on 'x'"):
            replace_subgraph(load(text), inputs=["c"], outputs=["b"], op="MyOp")


class TestLeaks:
    @pytest.mark.parametrize(
        ("inputs", "outputs", "words"),
        [
            (["x"], ["d"], ["it also depends on 'z'"]),
            ([], ["y"], ["depends on 'x'", "depends on 'z'"]),
            (["x"], ["b"], ["'a' is used after it"]),
            (["a"], ["a"], ["nothing between"]),
            (["x", "d"], ["a"], ["input 'd' is made from its outputs"]),
            (["b"], ["c"], ["depends on 'x'", "'a' is used after it"]),
        ],
    )
    def test_every_value_that_leaks_is_named(self, inputs: list[str], outputs: list[str], words: list[str]) -> None:
        model = load(CHAIN)
        before = ir.to_proto(model).SerializeToString()
        with pytest.raises(ModelError, match="not closed") as caught:
            replace_subgraph(model, inputs=inputs, outputs=outputs, op="MyOp")
        for word in words:
            assert word in str(caught.value)
        assert ir.to_proto(model).SerializeToString() == before

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            ({"inputs": ["aa"], "outputs": ["c"]}, "no value 'aa'"),
            ({"inputs": ["a", "a"], "outputs": ["c"]}, "'a' is among the inputs twice"),
            ({"inputs": ["a"], "outputs": []}, "at least one output"),
            ({"inputs": "a", "outputs": ["c"]}, "a list of names"),
            ({"inputs": ["a"], "outputs": ["c"], "attributes": {"k": object()}}, "attribute 'k' cannot be"),
        ],
    )
    def test_calls_that_can_never_be_right(self, arguments: dict[str, Any], words: str) -> None:
        with pytest.raises(UsageError, match=words):
            replace_subgraph(load(CHAIN), op="MyOp", **arguments)

    def test_an_output_that_no_node_makes(self) -> None:
        with pytest.raises(ModelError, match="must be made by nodes"):
            replace_subgraph(load(CHAIN), inputs=["a"], outputs=["x"], op="MyOp")


class TestPatterns:
    def test_every_place(self) -> None:
        def swish(op: Any, x: Any) -> Any:
            return op.Mul(x, op.Sigmoid(x))

        model = load(
            """agraph (float[3] x) => (float[3] y) {
            a = Sigmoid(x) b = Mul(x, a) c = Sigmoid(b) d = Mul(b, c) y = Neg(d) }"""
        )
        assert replace_pattern(model, swish, op="Silu", domain="acme", attributes={"beta": 2.0}) == 2
        assert ops(model) == ["Silu", "Silu", "Neg"]
        assert model.graph[0].domain == "acme"
        assert model.graph[0].attributes["beta"].as_float() == 2.0
        assert model.opset_imports["acme"] == 1
        onnx.checker.check_model(ir.to_proto(model))

    def test_inputs_and_attributes_of_the_pattern(self) -> None:
        def affine(op: Any, x: Any, scale: Any, shift: Any, alpha: Any) -> Any:
            return op.LeakyRelu(op.Add(op.Mul(x, scale), shift), alpha=alpha)

        model = load(
            """agraph (float[3] x, float[3] s, float[3] t) => (float[3] y) {
            a = Mul(x, s) b = Add(a, t) y = LeakyRelu<alpha = 0.25>(b) }"""
        )
        assert replace_pattern(model, affine, op="Affine") == 1
        (node,) = model.graph
        assert [value.name for value in node.inputs if value is not None] == ["x", "s", "t"]
        assert node.attributes["alpha"].as_float() == 0.25

    def test_several_outputs(self) -> None:
        def both(op: Any, x: Any) -> Any:
            return op.Sin(x), op.Cos(x)

        model = load("agraph (float[3] x) => (float[3] y, float[3] z) { y = Sin(x) z = Cos(x) }")
        assert replace_pattern(model, both, op="SinCos") == 1
        assert [len(node.outputs) for node in model.graph] == [2]
        assert [value.name for value in model.graph.outputs] == ["y", "z"]

    def test_nothing_to_replace(self) -> None:
        def pattern(op: Any, x: Any) -> Any:
            return op.Tan(x)

        model = load(CHAIN)
        assert replace_pattern(model, pattern, op="MyOp", domain="acme") == 0
        assert "acme" not in model.opset_imports

    def test_a_condition(self) -> None:
        def neg(op: Any, x: Any) -> Any:
            return op.Neg(x)

        def only_small(context: Any, x: Any, **_: Any) -> bool:
            return x.name == "x"

        model = load("agraph (float[3] x) => (float[3] y) { a = Neg(x) y = Neg(a) }")
        assert replace_pattern(model, neg, op="MyOp", condition=only_small) == 1
        assert ops(model) == ["MyOp", "Neg"]


class TestCommand:
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        target = tmp_path / "m.onnx"
        onnx.save(make(CHAIN), target)
        return target

    def run(self, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
        code = main([*words])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    def test_a_plugin_takes_the_place(self, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        words = [
            "replace",
            str(path),
            "--from",
            "a",
            "--to",
            "c",
            "--op",
            "TestScale",
            "--attr",
            "factor=3.0",
            "--json",
        ]
        code, out, _ = self.run(capsys, *words)
        assert code == 0
        document = json.loads(out)
        assert document["removed_nodes"] == ["Sigmoid", "Mul"]
        assert document["node"]["attributes"] == {"factor": 3.0}
        registry = dt.PluginRegistry()
        registry.register_creator(PlainCreator("TestScale", ScalePlugin), "")
        x, z = np.ones((2, 3), np.float32), np.zeros((2, 3), np.float32)
        engine = dt.compile(path.with_name("m.replaced.onnx"), registry=registry)
        np.testing.assert_allclose(engine(x, z), np.array([[3, 6, 9]] * 2, np.float32))

    def test_what_people_see(self, path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        target = tmp_path / "out" / "n.onnx"
        words = [
            "replace",
            str(path),
            "--from",
            "x,z",
            "--to",
            "d",
            "--op",
            "acme::MyOp",
            "-o",
            str(target),
            "--name",
            "n",
        ]
        code, out, _ = self.run(capsys, *words)
        assert code == 0
        assert "n (acme::MyOp) takes x, z, makes d" in out
        assert "weights that went with them" in out
        assert onnx.load(target).graph.node[0].domain == "acme"

    @pytest.mark.parametrize(
        ("words", "code", "message"),
        [
            (["--from", "x", "--to", "d", "--op", "MyOp"], 2, "it also depends on 'z'"),
            (["--from", "nope", "--to", "d", "--op", "MyOp"], 1, "no value 'nope'"),
            (["--from", "x,,z", "--to", "d", "--op", "MyOp"], 1, "a name is empty"),
            (["--from", "x,z", "--to", "d", "--op", "MyOp", "--attr", "k"], 1, "name=value"),
            (["--from", "x,z", "--to", "d", "--op", "MyOp", "--attr", "k=1", "k=2"], 1, "twice"),
            (["--from", "x,z", "--op", "MyOp"], 1, "required"),
        ],
    )
    def test_refusals(
        self, path: Path, words: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        got, _, err = self.run(capsys, "replace", str(path), *words)
        assert got == code
        assert message in err
        assert not path.with_name("m.replaced.onnx").exists()

    def test_the_model_is_not_overwritten(self, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        words = ["replace", str(path), "--from", "a", "--to", "c", "--op", "MyOp", "-o", str(path)]
        code, _, err = self.run(capsys, *words)
        assert code == 1
        assert "overwritten" in err

    def test_weights_beside_the_model(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        proto = make("agraph (float[3] x) => (float y) { a = Mul(x, w) b = Neg(a) y = Abs(b) }")
        array = np.arange(90_000, dtype=np.float32).reshape(-1, 3)
        proto.graph.initializer.append(numpy_helper.from_array(array, "w"))
        path = tmp_path / "m.onnx"
        onnx.save(proto, path, save_as_external_data=True, location="w.bin", size_threshold=0)
        (tmp_path / "w.bin").chmod(0o644)
        code, _, _ = self.run(capsys, "replace", str(path), "--from", "a", "--to", "b", "--op", "MyOp")
        assert code == 0
        saved = onnx.load(tmp_path / "m.replaced.onnx", load_external_data=False)
        np.testing.assert_array_equal(numpy_helper.to_array(saved.graph.initializer[0]), array)
