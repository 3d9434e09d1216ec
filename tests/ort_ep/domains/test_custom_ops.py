"""Plugins as operators of ONNX Runtime: in which domains, by which route, and what ONNX Runtime learns of results."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import dovetail as dt
import onnxruntime_ep_dovetail
from tests.support.ort_ep import EP, RUNTIME, needs_names, session_options
from tests.support.ort_models import make_model, node, tensor

pytestmark = pytest.mark.versions

X = np.arange(6, dtype=np.float32).reshape(2, 3)

Open = Callable[..., Any]


@dt.layer("DomainsTwice")
def _twice(x: Any) -> Any:
    return x + x


@dt.layer("DomainsSplit", outputs=2, shape=lambda x: (x, x))
def _split(x: Any, *, by: float = 1.0) -> Any:
    return x + by, x - by


def _model(domain: str) -> onnx.ModelProto:
    steps = [node("DomainsTwice", ["x"], ["y"], domain=domain)]
    return make_model(steps, [tensor("x", ["n", 3])], [tensor("y", None)], domains=[domain] if domain else [])


def _with_library() -> ort.SessionOptions:
    options = session_options(fallback=False)
    options.register_custom_ops_library(onnxruntime_ep_dovetail.get_library_path())
    return options


@pytest.mark.parametrize("domain", ["", "trt.plugins", "dovetail.plugins"])
def test_domains_that_are_always_served(dovetail_session: Open, assigned: Open, domain: str) -> None:
    session = dovetail_session(_model(domain), fallback=False)
    assert assigned(session) == {EP: ["DomainsTwice"]}
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], 2 * X)


@needs_names
@pytest.mark.parametrize("domain", ["", "dovetail.plugins"])
def test_sessions_by_name_get_the_domains_from_the_library(dovetail_session: Open, assigned: Open, domain: str) -> None:
    session = dovetail_session(_model(domain), options=_with_library(), by_name=True)
    assert assigned(session) == {EP: ["DomainsTwice"]}
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], 2 * X)


@needs_names
def test_sessions_by_name_without_the_library_do_not_know_the_operator(dovetail_session: Open) -> None:
    with pytest.raises(Exception, match="No Op registered for DomainsTwice"):
        dovetail_session(_model(""), by_name=True)


@pytest.mark.skipif(RUNTIME < (1, 28), reason="ONNX Runtime takes a domain twice from 1.28 on")
def test_the_library_beside_a_device_does_no_harm(dovetail_session: Open, assigned: Open) -> None:
    session = dovetail_session(_model("dovetail.plugins"), options=_with_library())
    assert assigned(session) == {EP: ["DomainsTwice"]}


def test_domains_that_are_added(dovetail_session: Open, assigned: Open) -> None:
    with pytest.raises(Exception, match=r"com\.example\.added"):
        dovetail_session(_model("com.example.added"))
    onnxruntime_ep_dovetail.add_domains("com.example.added")
    session = dovetail_session(_model("com.example.added"), fallback=False)
    assert assigned(session) == {EP: ["DomainsTwice"]}


def test_domains_from_the_environment(dovetail_session: Open, assigned: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOVETAIL_EP_DOMAINS", "com.example.one, com.example.two")
    for domain in ("com.example.one", "com.example.two"):
        session = dovetail_session(_model(domain), fallback=False)
        assert assigned(session) == {EP: ["DomainsTwice"]}


def test_plugins_registered_later_are_there_for_the_next_session(dovetail_session: Open, assigned: Open) -> None:
    steps = [node("DomainsLate", ["x"], ["y"], domain="dovetail.plugins")]
    model = make_model(steps, [tensor("x", ["n", 3])], [tensor("y", None)], domains=["dovetail.plugins"])
    with pytest.raises(Exception, match="DomainsLate"):
        dovetail_session(model)

    @dt.layer("DomainsLate")
    def _late(x: Any) -> Any:
        return x * 7

    session = dovetail_session(model, fallback=False)
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], 7 * X)


def test_attributes_and_several_results(dovetail_session: Open, assigned: Open) -> None:
    steps = [node("DomainsSplit", ["x"], ["a", "b"], domain="dovetail.plugins", by=2.0), node("Mul", ["a", "b"], ["y"])]
    model = make_model(steps, [tensor("x", ["n", 3])], [tensor("y", None)], domains=["dovetail.plugins"])
    session = dovetail_session(model)
    assert assigned(session) == {EP: ["DomainsSplit"], "CPUExecutionProvider": ["Mul"]}
    np.testing.assert_allclose(session.run(None, {"x": X})[0], (X + 2) * (X - 2))


def test_onnx_runtime_learns_types_and_shapes_of_results(dovetail_session: Open) -> None:
    session = dovetail_session(_model("dovetail.plugins"))
    (output,) = session.get_outputs()
    assert (output.type, output.shape) == ("tensor(float)", ["n", 3])


_FIRST_THE_LIBRARY = """
import numpy as np, onnxruntime as ort, onnxruntime_ep_dovetail
from tests.ort_ep.domains import test_custom_ops as cases
from tests.support import ort_ep
options = cases._with_library()
ort_ep.register()
session = ort_ep.dovetail_session(cases._model("dovetail.plugins"), options=options, by_name=True)
np.testing.assert_array_equal(session.run(None, {"x": cases.X})[0], 2 * cases.X)
print(ort_ep.assigned(session))
"""


@needs_names
def test_the_library_before_the_registration() -> None:
    """The other order, in a process of its own."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", _FIRST_THE_LIBRARY]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str({EP: ["DomainsTwice"]})


def test_without_the_execution_provider_the_session_says_so() -> None:
    options = session_options(fallback=True)
    options.register_custom_ops_library(onnxruntime_ep_dovetail.get_library_path())
    model = _model("dovetail.plugins").SerializeToString()
    with pytest.raises(Exception, match="DomainsTwice"):
        ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


# inputs that a node leaves out


@dt.layer("DomainsAddUp", shape=lambda x, b, c: x)
def _add_up(x: Any, b: Any, c: Any) -> Any:
    return x + sum(part for part in (b, c) if part.size)


@dt.layer("DomainsAddAll", shape=lambda x, *more: x)
def _add_all(x: Any, *more: Any) -> Any:
    return x + sum(part for part in more if part.size)


ABSENT = [
    ("DomainsAddUp", ["x", "", "b"], 1),
    ("DomainsAddUp", ["x", "b", ""], 1),
    ("DomainsAddUp", ["x", "", ""], 0),
    ("DomainsAddAll", ["x", "", "b", "", "b"], 2),
    ("DomainsAddAll", ["x", *["", "b"] * 10], 10),
]


@pytest.mark.parametrize("claim", ["custom", "all"])
@pytest.mark.parametrize(("op", "inputs", "count"), ABSENT, ids=range(len(ABSENT)))
def test_inputs_that_are_left_out(dovetail_session: Open, op: str, inputs: list[str], count: int, claim: str) -> None:
    steps = [node("Neg", ["a"], ["b"]), node(op, inputs, ["y"], domain="trt.plugins")]
    given = [tensor("x", ["n", 3]), tensor("a", ["n", 3])]
    model = make_model(steps, given, [tensor("y", None)], domains=["trt.plugins"])
    session = dovetail_session(model, fallback=True, claim=claim)
    np.testing.assert_allclose(session.run(None, {"x": X, "a": X})[0], X - count * X)


# a plugin that cannot say its shapes


def _no_shape(*_: Any) -> Any:
    raise ValueError("this layer has no shape today")


@dt.layer("DomainsMarks", shape=_no_shape, types=lambda x: dt.bool)
def _marks(x: Any) -> Any:
    return x > 0


@dt.layer("DomainsPair", outputs=2, shape=_no_shape, types=lambda x: (dt.float32, dt.int64))
def _pair(x: Any) -> Any:
    return x, x.astype(np.int64)


UNKNOWN = [
    [node("DomainsMarks", ["x"], ["m"], domain="trt.plugins"), node("Not", ["m"], ["y"])],
    [node("DomainsPair", ["x"], ["f", "i"], domain="trt.plugins"), node("Gather", ["f", "i"], ["y"])],
    [node("DomainsPair", ["x"], ["f", "i"], domain="trt.plugins"), node("Mod", ["i", "i"], ["y"])],
]


@pytest.mark.parametrize("claim", ["custom", "all"])
@pytest.mark.parametrize("steps", UNKNOWN, ids=["truth", "index", "integer"])
def test_what_a_plugin_says_when_it_has_no_shape_is_heard(dovetail_session: Open, steps: Any, claim: str) -> None:
    """Whatever reads its results: ONNX Runtime must not be the first to complain, of a type that was made up."""
    y = onnx.ValueInfoProto(name="y")
    model = make_model(steps, [tensor("x", ["n", 3])], [y], domains=["trt.plugins"])
    with pytest.raises(Exception, match="this layer has no shape today"):
        dovetail_session(model, fallback=True, claim=claim)


_ends: list[BaseException] = []


@dt.layer("DomainsEnds", shape=lambda x: _end_once() or x)
def _ends_once(x: Any) -> Any:
    return x


def _end_once() -> None:
    if _ends:
        raise _ends.pop()


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)], ids=repr)
def test_a_plugin_that_is_interrupted_while_shapes_are_asked_ends_the_session(
    dovetail_session: Open, error: BaseException
) -> None:
    steps = [node("DomainsEnds", ["x"], ["y"], domain="trt.plugins")]
    model = make_model(steps, [tensor("x", ["n", 3])], [tensor("y", None)], domains=["trt.plugins"])
    _ends.append(error)
    with pytest.raises(Exception, match=type(error).__name__):
        dovetail_session(model, fallback=True)
    np.testing.assert_array_equal(dovetail_session(model, fallback=True).run(None, {"x": X})[0], X)


# attributes


@dt.layer("DomainsTuned")
def _tuned(x: Any, *, by: float = 1.0, mode: str = "plain") -> Any:
    return x * by


@pytest.mark.parametrize(
    ("attributes", "told"),
    [({}, ""), ({"by": 2.0}, ""), ({"bye": 2.0}, "has no field for attribute(s) 'bye'; it has 'by', 'mode'")],
    ids=["none", "known", "unknown"],
)
def test_attributes_are_told_when_nobody_reads_them_and_not_when_they_have_defaults(
    dovetail_session: Open, attributes: dict[str, Any], told: str, capfd: pytest.CaptureFixture[str]
) -> None:
    steps = [node("DomainsTuned", ["x"], ["y"], domain="trt.plugins", **attributes)]
    model = make_model(steps, [tensor("x", ["n", 3])], [tensor("y", None)], domains=["trt.plugins"])
    session = dovetail_session(model, fallback=False)
    np.testing.assert_allclose(session.run(None, {"x": X})[0], X * attributes.get("by", 1.0))
    said = "".join(capfd.readouterr())
    assert told in said
    assert ("[W]" in said) == bool(told)
