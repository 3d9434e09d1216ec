"""Dead code, copies of models, and what holds passes together."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import parser
from onnx.reference import ReferenceEvaluator

import dovetail as dt
from dovetail.errors import InternalError
from dovetail.network.importer.importer import import_model
from dovetail.network.plugins import entry_of
from dovetail.passes import standard_passes
from dovetail.passes.base import Pass, PassResult, run_passes
from dovetail.passes.clone import clone_model
from dovetail.passes.dead_code import DeadCode
from tests.support.plugins import PlainCreator, ScalePlugin

HEADER = '<ir_version: 10, opset_import: ["" : 21]>\n'
WEIGHTS = "<float[4] w = {1, 2, 3, 4}, float[4] v = {5, 6, 7, 8}>"


def make(text: str, **options: Any) -> ir.Model:
    return import_model(parser.parse_model(HEADER + text), **options)


def run(model: ir.Model, **inputs: Any) -> list[Any]:
    proto = onnx.load_from_string(ir.to_proto(model).SerializeToString())
    return list(ReferenceEvaluator(proto).run(None, inputs))


def ops(graph: ir.Graph) -> list[str]:
    return [node.op_type for node in graph]


class TestDeadCode:
    def test_a_chain_that_nobody_reads(self) -> None:
        model = make(f"agraph (float[4] x) => (float[4] y) {WEIGHTS} {{ a = Mul(x, v) b = Neg(a) y = Mul(x, w) }}")
        x = np.arange(4, dtype=np.float32)
        before = run(model, x=x)
        changed = run_passes(model, [DeadCode()], check=True).changed
        assert ops(model.graph) == ["Mul"]
        assert list(model.graph.initializers) == ["w"]
        assert changed == [
            "dead_code: removed node 'Neg' (Neg)",
            "dead_code: removed node 'Mul' (Mul)",
            "dead_code: removed weights 'v'",
        ]
        np.testing.assert_array_equal(before[0], run(model, x=x)[0])

    def test_inputs_stay(self) -> None:
        model = make("agraph (float[4] x, float[4] unused) => (float[4] y) { a = Neg(unused) y = Neg(x) }")
        run_passes(model, [DeadCode()], check=True)
        assert [value.name for value in model.graph.inputs] == ["x", "unused"]
        assert len(model.graph) == 1

    def test_a_node_with_one_output_in_use_stays_whole(self) -> None:
        model = make("agraph (float[4] x) => (float[1] y) <int64[1] k = {1}> { y, i = TopK(x, k) }")
        assert DeadCode()(model).changed == []
        assert len(model.graph[0].outputs) == 2

    def test_weights_that_are_outputs_stay(self) -> None:
        model = make(f"agraph (float[4] x) => (float[4] y, float[4] w) {WEIGHTS} {{ y = Neg(x) }}")
        assert DeadCode()(model).changed == ["removed weights 'v'"]
        assert list(model.graph.initializers) == ["w"]

    def test_bodies(self) -> None:
        model = make(
            f"""agraph (float[4] x, bool c) => (float[4] y) {WEIGHTS}
            {{ a = Neg(x) b = Neg(w)
               y = If (c) <then_branch = t () => (float[4] p) {{ d = Mul(b, a) p = Add(x, w) }},
                           else_branch = e () => (float[4] q) <float[1] z = {{1}}> {{ q = Mul(x, w) }}> }}"""
        )
        run_passes(model, [DeadCode()], check=True)
        assert ops(model.graph) == ["If"]
        assert ops(model.graph[0].attributes["then_branch"].as_graph()) == ["Add"]
        assert not model.graph[0].attributes["else_branch"].as_graph().initializers
        assert list(model.graph.initializers) == ["w"]

    def test_a_dead_body_frees_what_it_read(self) -> None:
        model = make(
            f"""agraph (float[4] x, bool c) => (float[4] y) {WEIGHTS}
            {{ a = Neg(x)
               t = If (c) <then_branch = t () => (float[4] p)
                              {{ p = If (c) <then_branch = u () => (float[4] r) {{ r = Mul(a, w) }},
                                             else_branch = o () => (float[4] s) {{ s = Neg(a) }}> }},
                           else_branch = e () => (float[4] q) {{ q = Mul(x, v) }}>
               y = Neg(x) }}"""
        )
        run_passes(model, [DeadCode()], check=True)
        assert ops(model.graph) == ["Neg"]
        assert not model.graph.initializers


class TestClone:
    TEXT = f"""agraph (float[4] x, bool c) => (float[4] y) {WEIGHTS}
        {{ s = TestScale<factor = 3.0>(x)
           y = If (c) <then_branch = t () => (float[4] p) {{ i = TestScale<factor = 2.0>(s) p = Mul(i, w) }},
                       else_branch = e () => (float[4] q) {{ q = Neg(s) }}> }}"""

    def model(self) -> ir.Model:
        registry = dt.PluginRegistry()
        registry.register_creator(PlainCreator("TestScale", ScalePlugin))
        return make(self.TEXT, registry=registry)

    def test_plugins_notes_and_weights_are_in_the_copy(self) -> None:
        model = self.model()
        model.meta["key"] = "model"
        model.graph.meta["key"] = "graph"
        model.graph[0].metadata_props["dovetail.layer"] = "layer"
        model.graph.inputs[0].metadata_props["note"] = "x"
        copy = clone_model(model)
        mine, theirs = list(model.graph.all_nodes()), list(copy.graph.all_nodes())
        assert len(mine) == len(theirs) == 5
        assert not {id(node) for node in mine} & {id(node) for node in theirs}
        assert [entry_of(node) for node in mine] == [entry_of(node) for node in theirs]
        assert sum(entry_of(node) is not None for node in theirs) == 2
        assert theirs[0].metadata_props["dovetail.layer"] == "layer"
        assert copy.graph.inputs[0].metadata_props["note"] == "x"
        assert (copy.meta["key"], copy.graph.meta["key"]) == ("model", "graph")
        assert copy.graph.initializers["w"].const_value is model.graph.initializers["w"].const_value
        assert [str(value.shape) for value in copy.graph.outputs] == ["[4]"]

    def test_changes_to_the_copy_leave_the_model(self) -> None:
        model = self.model()
        copy = clone_model(model)
        run_passes(copy, standard_passes(keep=frozenset()), check=True)
        copy.graph[0].metadata_props["dovetail.layer"] = "other"
        copy.graph.inputs[0].name = "renamed"
        assert [value.name for value in model.graph.inputs] == ["x", "c"]
        assert "dovetail.layer" not in model.graph[0].metadata_props
        assert sorted(model.graph.initializers) == ["v", "w"]

    def test_plugins_are_never_folded(self) -> None:
        registry = dt.PluginRegistry()
        registry.register_creator(PlainCreator("TestScale", ScalePlugin))
        text = f"agraph (float[4] x) => (float[4] y) {WEIGHTS} {{ s = TestScale<factor = 3.0>(w) y = Mul(x, s) }}"
        model = make(text, registry=registry)
        run_passes(model, standard_passes(keep=frozenset()), check=True)
        assert [entry_of(node) is not None for node in model.graph] == [True, False]


class TestRunning:
    def test_a_pass_that_returns_another_model(self) -> None:
        class Copying(Pass):
            name: ClassVar[str] = "copying"

            def call(self, model: ir.Model) -> PassResult:
                return PassResult(model=clone_model(model))

        with pytest.raises(InternalError, match=r"'copying'.*another model"):
            Copying()(make("agraph (float[4] x) => (float[4] y) { y = Neg(x) }"))

    @pytest.mark.parametrize("harm", ["rename", "unsort", "orphan"])
    def test_a_pass_that_breaks_the_model_is_found(self, harm: str) -> None:
        class Harmful(Pass):
            name: ClassVar[str] = "harmful"

            def call(self, model: ir.Model) -> PassResult:
                first, second = list(model.graph)
                if harm == "rename":
                    model.graph.outputs[0].name = "z"
                elif harm == "unsort":
                    model.graph.remove(first)
                    model.graph.append(first)
                else:
                    second.replace_input_with(0, ir.Value(name="nobody"))
                return PassResult(model=model)

        model = make("agraph (float[4] x) => (float[4] y) { a = Relu(x) y = Neg(a) }")
        with pytest.raises(InternalError, match="after pass 'harmful'"):
            run_passes(model, [Harmful()], check=True)

    def test_checks_run_around_a_pass(self) -> None:
        calls = []

        class Noting(Pass):
            name: ClassVar[str] = "noting"

            def requires(self, model: ir.Model) -> None:
                super().requires(model)
                calls.append("requires")

            def call(self, model: ir.Model) -> PassResult:
                calls.append("call")
                return PassResult(model=model, changed=["one"])

            def ensures(self, model: ir.Model) -> None:
                calls.append("ensures")

        result = run_passes(make("agraph (float[4] x) => (float[4] y) { y = Neg(x) }"), [Noting(), Noting()])
        assert calls == ["requires", "call", "ensures"] * 2
        assert result.changed == ["noting: one", "noting: one"]

    def test_models_with_functions_are_refused(self) -> None:
        text = """<ir_version: 10, opset_import: ["" : 21, "acme" : 1]>
            agraph (float[4] x) => (float[4] y) { y = acme.F(x) }
            <domain: "acme", opset_import: ["" : 21]> F (a) => (r) { r = Neg(a) }"""
        with pytest.raises(InternalError, match="functions must be expanded"):
            DeadCode()(ir.from_proto(parser.parse_model(text)))
