"""Failing models shrink to the node that fails, whatever the failure is, and what comes out always fails."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from dovetail.errors import UsageError
from dovetail.plugin.registry import PluginRegistry, get_plugin_registry
from dovetail.tools.reduce import count_nodes, reduce_model
from dovetail.tools.reduction.cuts import resize
from dovetail.tools.reduction.failing import sign_error
from dovetail.tools.reduction.reduce_failing import Check, ReducedModel, reduce_failing
from dovetail.tools.sides import DovetailSide, OnnxRuntimeSide, read_source, save_model
from tests.support.broken_provider import broken_provider, wrong_gelu_kernels
from tests.support.cli_models import LIBRARY, write_library, write_model

MODELS = Path(__file__).parents[2] / "data" / "models"


def wrong_softmax(x: Any, *, axis: int = -1) -> Any:
    shifted = np.exp(x - x.max(axis=axis, keepdims=True))
    return shifted / shifted.sum(axis=axis, keepdims=True) + np.float32(0.5)


def crashing_softmax(x: Any, *, axis: int = -1) -> Any:
    raise RuntimeError(f"no softmax today for {x.shape}")


def ops_of(reduced: ReducedModel) -> list[str]:
    return [node["op"] for node in reduced.describe_nodes() if node["op"] != "Constant"]


# planted failures


@pytest.mark.parametrize("name", ["bert_eager", "gpt2_dynamic"])
def test_a_wrong_kernel_is_all_that_is_left(name: str) -> None:
    with broken_provider({"Softmax": wrong_softmax}) as providers:
        candidate = DovetailSide(providers=providers)
        reduced = reduce_failing(MODELS / f"{name}.onnx", candidate=candidate, shapes={})
        assert ops_of(reduced) == ["Softmax"]
        assert reduced.failure == "it differs from onnxruntime"
        assert reduced.result.is_complete
        ours = candidate.run(reduced.result.model, reduced.inputs)
        theirs = OnnxRuntimeSide().run(reduced.result.model, reduced.inputs)
    (output,) = theirs
    np.testing.assert_allclose(ours[output] - theirs[output], 0.5, rtol=1e-5)
    assert reduced.result.num_tests < 80
    (taken,) = reduced.inputs.values()
    assert taken.size <= 4


def test_a_crash_is_all_that_is_left() -> None:
    with broken_provider({"Softmax": crashing_softmax}) as providers:
        reduced = reduce_failing(MODELS / "bert_eager.onnx", candidate=DovetailSide(providers=providers))
    assert ops_of(reduced) == ["Softmax"]
    assert "RuntimeError" in reduced.failure or "no softmax today" in reduced.failure


def test_a_plugin_that_fails_to_build(tmp_path: Path) -> None:
    registry = PluginRegistry(parent=get_plugin_registry())
    registry.load_library(write_library(tmp_path, LIBRARY.replace("scale = x.dtype", "1 / 0; scale = x.dtype")))
    model = write_model(tmp_path / "m.onnx")
    reduced = reduce_failing(model, candidate=DovetailSide(registry=registry), against="cpu")
    assert ops_of(reduced) == ["ScaledRelu"]
    assert [value.name for value in reduced.result.model.graph.inputs] == ["t"]


def test_a_wrong_plugin_beside_a_right_one(tmp_path: Path) -> None:
    """What differs is a pass or a partition where both sides use the same plugin, so a command has to judge it."""
    model = write_model(tmp_path / "m.onnx")
    script = tmp_path / "judge.py"
    script.write_text(
        "import sys, onnx\n"
        "ops = [n.op_type for n in onnx.load(sys.argv[1]).graph.node]\n"
        "sys.exit(7 if 'ScaledRelu' in ops else 0)\n"
    )
    registry = PluginRegistry(parent=get_plugin_registry())
    registry.load_library(write_library(tmp_path))
    reduced = reduce_failing(
        model,
        check=Check(command=[sys.executable, str(script), "{model}"]),
        candidate=DovetailSide(registry=registry),
    )
    assert ops_of(reduced) == ["ScaledRelu"]
    assert reduced.failure == "the command ends with code 7"
    assert reduced.result.is_complete


def test_a_command_may_use_the_inputs(tmp_path: Path) -> None:
    """It fails only for certain numbers in what goes in, so recorded values must arrive."""
    script = tmp_path / "judge.py"
    script.write_text(
        "import sys, numpy as np, onnx\n"
        "ops = [n.op_type for n in onnx.load(sys.argv[1]).graph.node]\n"
        "arrays = np.load(sys.argv[2])\n"
        "sys.exit(3 if 'Sqrt' in ops and any(np.isin(arrays[k], (3, 9)).any() for k in arrays) else 0)\n"
    )
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 21]>
        g (float[4] x) => (float[4] y) { a = Mul(x, x)  b = Sqrt(a)  y = Neg(b) }
    """)
    check = Check(command=[sys.executable, str(script), "{model}", "{inputs}"])
    x = np.float32([1, 3, 2, 5])
    reduced = reduce_failing(model, check=check, inputs={"x": x})
    assert ops_of(reduced) == ["Sqrt"]
    assert 9 in reduced.inputs["a"]


def test_a_failure_of_two_nodes_keeps_both() -> None:
    """The wrong kernel is that of a fusion, which needs its whole pattern."""
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 20]>
        pair (float[2, 4] x) => (float[2, 4] y)
        <float half = {0.5}, float one = {1.0}, float root = {1.41421356}> {
            p = Tanh(x)
            a = Div(p, root)
            b = Erf(a)
            c = Add(b, one)
            d = Mul(p, c)
            e = Mul(d, half)
            q = Sigmoid(e)
            y = Neg(q)
        }
    """)

    with broken_provider(wrong_gelu_kernels()) as providers:
        reduced = reduce_failing(model, candidate=DovetailSide(providers=providers))
    assert sorted(ops_of(reduced)) == ["Add", "Div", "Erf", "Mul", "Mul"]


def test_functions_and_bodies_stay_with_their_nodes() -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 18, "local" : 1]>
        g (float[4] x, bool c) => (float[4] y) {
            a = Neg(x)
            b = local.twice(a)
            d = Abs(b)
            y = If (c) <
                then_branch = then () => (float[4] t) { t = Softmax(d) },
                else_branch = other () => (float[4] e) { e = Exp(d) }
            >
        }
        <domain: "local", opset_import: ["" : 18]> twice (v) => (w) { w = Add(v, v) }
    """)

    def has(op: str) -> Any:
        def still_fails(candidate: ir.Model) -> bool:
            onnx.checker.check_model(ir.to_proto(candidate))
            nodes = list(candidate.graph)
            bodies = [
                n for node in nodes for a in node.attributes.values() if a.name.endswith("branch") for n in a.as_graph()
            ]
            return op in {node.op_type for node in (*nodes, *bodies)}

        return still_fails

    source = read_source(model)
    called = reduce_model(source, has("twice")).model
    assert [node.op_type for node in called.graph] == ["twice"]
    assert len(called.functions) == 1
    branch = reduce_model(source, has("Softmax")).model
    assert [node.op_type for node in branch.graph] == ["If"]
    assert {value.name for value in branch.graph.inputs} == {"c", "d"}
    assert not branch.functions


# refusals and bounds


def test_a_model_that_does_not_fail(tmp_path: Path) -> None:
    model = MODELS / "bert_eager.onnx"
    with pytest.raises(UsageError, match="does not fail: it raises nothing and agrees with onnxruntime"):
        reduce_failing(model)
    with pytest.raises(UsageError, match="raises nothing"):
        reduce_failing(model, mode="crash")
    with pytest.raises(UsageError, match="the command ends with code 0"):
        reduce_failing(model, check=Check(command=[sys.executable, "-c", "0"]))
    with pytest.raises(UsageError, match="the command cannot be run"):
        reduce_failing(model, check=Check(command=[str(tmp_path / "none")]))
    with pytest.raises(UsageError, match="there is no mode"):
        reduce_failing(model, mode="fast")
    with pytest.raises(UsageError, match="the model does not fail"):
        reduce_model(read_source(model), lambda _: False)


@pytest.mark.parametrize("max_tests", [2, 3, 5, 9])
def test_the_bound_holds_and_the_result_still_fails(max_tests: int) -> None:
    tried = []

    def still_fails(model: ir.Model) -> bool:
        tried.append(model)
        return any(node.op_type == "Softmax" for node in model.graph)

    result = reduce_model(read_source(MODELS / "gpt2_eager.onnx"), still_fails, max_tests=max_tests)
    assert len(tried) == result.num_tests <= max_tests
    assert not result.is_complete
    assert still_fails(result.model)


def test_an_interrupt_leaves_what_was_found() -> None:
    trials = []

    def still_fails(model: ir.Model) -> bool:
        trials.append(1)
        if len(trials) == 8:
            raise KeyboardInterrupt
        return any(node.op_type == "Softmax" for node in model.graph)

    result = reduce_model(read_source(MODELS / "gpt2_eager.onnx"), still_fails)
    assert not result.is_complete
    assert count_nodes(result.model) < result.num_nodes_before


def test_signatures() -> None:
    assert sign_error(ValueError("node 'a': 3 of (1, 2)")) == sign_error(ValueError("node 'b': 44 of (5,)"))
    assert sign_error(ValueError("a")) != sign_error(TypeError("a"))
    assert sign_error(ValueError("")).head == ""


def test_resizing_cuts_weights_and_inputs() -> None:
    model = read_source(
        onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 21]>
        g (float[2, 3] x) => (float[2, 2] y) <float[3, 2] w = {1, 2, 3, 4, 5, 6}> { y = MatMul(x, w) }
    """)
    )
    small = resize(model, {("x", 1): 1, ("w", 0): 1})
    assert list(small.graph.inputs[0].shape or ()) == [2, 1]
    assert small.graph.initializers["w"].const_value.numpy().tolist() == [[1, 2]]  # type: ignore[union-attr]
    assert model.graph.initializers["w"].const_value.numpy().shape == (3, 2)  # type: ignore[union-attr]
    results = OnnxRuntimeSide().run(small, {"x": np.ones((2, 1), np.float32)})
    assert results["y"].tolist() == [[1, 2], [1, 2]]


# random graphs


@st.composite
def graphs(draw: st.DrawFn) -> tuple[onnx.ModelProto, set[str]]:
    """A random graph of unary and binary nodes, and the names of one to three nodes that make it fail."""
    count = draw(st.integers(1, 14))
    tensors, nodes = ["x"], []
    for index in range(count):
        op, arity = draw(st.sampled_from([("Neg", 1), ("Abs", 1), ("Add", 2), ("Mul", 2), ("Identity", 1)]))
        inputs = [draw(st.sampled_from(tensors)) for _ in range(arity)]
        nodes.append(helper.make_node(op, inputs, [f"t{index}"], name=f"n{index}"))
        tensors.append(f"t{index}")
    read = {name for node in nodes for name in node.input}
    outputs = [name for name in tensors[1:] if name not in read or draw(st.booleans())]
    graph = helper.make_graph(
        nodes,
        "random",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, "n"])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, "n"]) for name in outputs],
    )
    culprits = draw(st.sets(st.integers(0, count - 1), min_size=1, max_size=min(count, 3)))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return model, {f"n{index}" for index in culprits}


@settings(max_examples=40, deadline=None)
@given(graphs())
def test_random_graphs_end_at_their_culprits(case: tuple[onnx.ModelProto, set[str]]) -> None:
    proto, culprits = case

    def still_fails(model: ir.Model) -> bool:
        onnx.checker.check_model(ir.to_proto(model), full_check=True)
        return culprits <= {node.name for node in model.graph}

    result = reduce_model(read_source(proto), still_fails)
    assert {node.name for node in result.model.graph} == culprits
    assert still_fails(result.model)
    assert result.is_complete


@settings(max_examples=10, deadline=None)
@given(graphs(), st.integers(0, 100))
def test_parts_of_random_graphs_run_on_what_was_recorded(case: tuple[onnx.ModelProto, set[str]], seed: int) -> None:
    """Every part computes, from recorded inputs, what the whole model computed."""
    proto, culprits = case
    from dovetail.tools.recording import Recorder

    source = read_source(proto)
    x = np.random.default_rng(seed).normal(size=(2, 3)).astype(np.float32)
    recorder = Recorder(source, {"x": x}, [OnnxRuntimeSide()])
    parts = []

    def still_fails(model: ir.Model) -> bool:
        parts.append(model)
        return culprits <= {node.name for node in model.graph}

    reduce_model(source, still_fails, record=recorder, max_tests=20)
    whole = [part for part in parts if _has_all_elements(part, recorder)]  # cut sizes may be broadcast
    for part in whole[-3:]:
        results = OnnxRuntimeSide().run(part, recorder.feeds_for(part))
        expected = recorder(list(results))
        for name, value in results.items():
            np.testing.assert_array_equal(value, expected[name])


def _has_all_elements(part: ir.Model, recorder: Any) -> bool:
    known = recorder([value.name or "" for value in part.graph.inputs])
    feeds = recorder.feeds_for(part)
    return all(feeds[name].shape == value.shape for name, value in known.items())


def test_saved_models_can_be_read_again(tmp_path: Path) -> None:
    result = reduce_model(
        read_source(MODELS / "vit_eager.onnx"), lambda model: any(n.op_type == "Conv" for n in model.graph)
    )
    save_model(result.model, tmp_path / "small.onnx")
    assert [node.op_type for node in onnx.load(tmp_path / "small.onnx").graph.node] == ["Conv"]
