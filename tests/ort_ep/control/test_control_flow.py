"""If, Loop and Scan on both routes: whole, with a body that is partly ONNX Runtime's, nested, reading outer scopes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.support.ort_control_models import CONTROL_CASES, ControlCase, branch_model, loop_model
from tests.support.ort_ep import EP, RUNTIME, reference_session
from tests.support.ort_models import make_model, node, tensor

pytestmark = pytest.mark.versions

CPU = "CPUExecutionProvider"
Open = Callable[..., Any]
by_case = pytest.mark.parametrize("case", CONTROL_CASES, ids=lambda case: case.name)
whole_bodies = pytest.mark.skipif(RUNTIME < (1, 27), reason="ONNX Runtime hands over what bodies read from 1.27 on")


def _check(session: Any, case: ControlCase) -> None:
    reference = reference_session(case.model)
    for feeds in case.feeds:
        for ours, theirs in zip(session.run(None, feeds), reference.run(None, feeds), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def _case(name: str) -> ControlCase:
    return next(case for case in CONTROL_CASES if case.name == name)


@whole_bodies
@by_case
def test_bodies_that_are_all_ours_are_one_partition(case: ControlCase, dovetail_session: Open, assigned: Open) -> None:
    session = dovetail_session(case.model, claim="all")
    assert assigned(session) == {EP: list(case.whole)}
    assert len(session.get_provider_graph_assignment_info()) == 1
    _check(session, case)


@by_case
def test_kernels_run_bodies_node_by_node(case: ControlCase, dovetail_session: Open, assigned: Open) -> None:
    session = dovetail_session(case.model, claim="all", route="kernels")
    assert assigned(session) == {EP: sorted((*case.whole, *case.inside))}
    _check(session, case)


@pytest.mark.parametrize("route", ["compile", "kernels"])
@pytest.mark.parametrize(
    ("name", "excluded"), [("if", "Relu"), ("loop", "Tanh"), ("scan", "Mul"), ("nested", "MatMul"), ("nested", "Exp")]
)
def test_an_excluded_operator_leaves_the_rest_of_its_body(
    name: str, excluded: str, route: str, dovetail_session: Open, assigned: Open
) -> None:
    case = _case(name)
    session = dovetail_session(case.model, claim="all", route=route, exclude=excluded, fallback=True)
    found = assigned(session)
    around = {"If", "Loop", "Scan"} if route == "compile" else set()
    assert excluded in found[CPU]
    assert set(found[CPU]) <= {excluded, *around}
    assert excluded not in found[EP]
    assert found[EP]
    _check(session, case)


def test_a_control_node_itself_can_be_excluded(dovetail_session: Open, assigned: Open) -> None:
    case = _case("loop")
    for route in ("compile", "kernels"):
        session = dovetail_session(case.model, claim="all", route=route, exclude="Loop", fallback=True)
        assert assigned(session)[CPU] == ["Loop"]
        _check(session, case)


@whole_bodies
def test_an_inner_node_is_whole_where_the_one_around_it_is_not(dovetail_session: Open, assigned: Open) -> None:
    case = _case("nested")
    session = dovetail_session(case.model, claim="all", exclude="Exp", fallback=True)
    assert assigned(session) == {EP: ["Abs", "Loop", "Neg"], CPU: ["Exp", "If"]}
    _check(session, case)


def test_sequences_in_a_loop_stay_with_onnxruntime(dovetail_session: Open, assigned: Open) -> None:
    body = helper.make_graph(
        [
            node("Identity", ["go"], ["go_on"]),
            node("Mul", ["x", "x"], ["d"]),
            node("SequenceInsert", ["q", "d"], ["q_out"]),
        ],
        "body",
        [
            tensor("i", [], TensorProto.INT64),
            tensor("go", [], TensorProto.BOOL),
            helper.make_tensor_sequence_value_info("q", TensorProto.FLOAT, None),
        ],
        [
            tensor("go_on", [], TensorProto.BOOL),
            helper.make_tensor_sequence_value_info("q_out", TensorProto.FLOAT, None),
        ],
    )
    nodes = [
        node("SequenceConstruct", ["x"], ["q0"]),
        node("Loop", ["n", "", "q0"], ["q1"], body=body),
        node("ConcatFromSequence", ["q1"], ["y"], axis=0),
    ]
    model = make_model(nodes, [tensor("x", ["N", 4]), tensor("n", [], TensorProto.INT64)], [tensor("y", ["K", 4])])
    feeds = {"x": np.ones((2, 4), np.float32) * 3, "n": np.array(2)}
    for route in ("compile", "kernels"):
        session = dovetail_session(model, claim="all", route=route, fallback=True)
        assert {"Mul"} <= set(assigned(session)[EP])
        np.testing.assert_array_equal(session.run(None, feeds)[0], reference_session(model).run(None, feeds)[0])


@pytest.mark.parametrize("route", ["compile", "kernels"])
def test_what_is_in_the_body_of_a_function_is_taken_once_that_is_a_loop(
    route: str, dovetail_session: Open, assigned: Open
) -> None:
    inner = [node("Abs", ["v"], ["n"]), node("Neg", ["n"], ["w"])]
    body = helper.make_graph(inner, "body", [tensor("v", ["N", 4])], [tensor("w", ["N", 4])])
    nodes = [
        node("SequenceConstruct", ["x", "x"], ["q"]),
        node("SequenceMap", ["q"], ["r"], body=body),
        node("ConcatFromSequence", ["r"], ["y"], axis=0),
    ]
    model = make_model(nodes, [tensor("x", ["N", 4])], [tensor("y", ["K", 4])], opset=18)
    session = dovetail_session(model, claim="all", route=route, fallback=True)
    assert {"Abs", "Neg"} <= set(assigned(session)[EP])
    x = np.arange(8, dtype=np.float32).reshape(2, 4) - 3
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], np.concatenate([-abs(x), -abs(x)]))


def test_an_error_in_a_body_names_the_node(dovetail_session: Open) -> None:
    then = make_model([node("MatMul", ["x", "z"], ["t"])], [], [tensor("t", None)]).graph
    other = make_model([node("Add", ["x", "z"], ["e"])], [], [tensor("e", None)]).graph
    inputs = [tensor("x", ["a", "b"]), tensor("z", ["c", "d"]), tensor("c", [], TensorProto.BOOL)]
    model = make_model([node("If", ["c"], ["y"], then_branch=then, else_branch=other)], inputs, [tensor("y", None)])
    wrong = np.ones((2, 3), np.float32)
    session = dovetail_session(model, claim="all", route="kernels")
    with pytest.raises(Exception, match="op MatMul: inner sizes differ"):
        session.run(None, {"x": wrong, "z": wrong, "c": np.array(True)})
    assert session.run(None, {"x": wrong, "z": wrong, "c": np.array(False)})[0].tolist() == [[2.0] * 3] * 2


@pytest.mark.parametrize("model", [branch_model(), loop_model()], ids=["if", "loop"])
def test_control_flow_stays_where_nothing_is_asked_for(model: Any, dovetail_session: Open, assigned: Open) -> None:
    assert EP not in assigned(dovetail_session(model))
    assert EP not in assigned(dovetail_session(model, route="kernels"))
