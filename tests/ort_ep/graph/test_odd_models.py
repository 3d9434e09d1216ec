"""A session with Dovetail in it can be made, and gives what ONNX Runtime alone gives, whatever is in a model."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import dovetail
from tests.support import ort_ep
from tests.support.ort_models import make_model, node, tensor
from tests.support.ort_odd_models import ODD_MODELS

pytestmark = pytest.mark.versions

Open = Callable[..., ort.InferenceSession]
LEVELS = (ort.GraphOptimizationLevel.ORT_ENABLE_ALL, ort.GraphOptimizationLevel.ORT_DISABLE_ALL)
ROUTES = [
    {"route": route, "claim": claim} for route, claim in itertools.product(("compile", "kernels"), ("all", "auto"))
]


@dovetail.layer("OddHalf")
def half(x: Any) -> Any:
    """A custom layer, which ONNX Runtime has no kernel for."""
    return x / 2


def _options(level: Any) -> ort.SessionOptions:
    options = ort_ep.session_options(fallback=True)
    options.log_severity_level = 4
    options.graph_optimization_level = level
    return options


def _run_alone(model: onnx.ModelProto, feeds: dict[str, Any], level: Any) -> list[Any] | None:
    """The results of ONNX Runtime alone; None when it does not take the model, as older ones do not all."""
    try:
        session = ort.InferenceSession(model.SerializeToString(), _options(level), providers=["CPUExecutionProvider"])
    except Exception as error:  # its errors have no class of their own
        if not type(error).__module__.startswith("onnxruntime"):
            raise
        return None
    return list(session.run(None, feeds))


def _compare(got: Any, wanted: Any) -> None:
    assert type(got) is type(wanted)
    if isinstance(wanted, list):
        assert len(got) == len(wanted)
        for one, other in zip(got, wanted, strict=True):
            _compare(one, other)
    elif isinstance(wanted, np.ndarray) and wanted.dtype.kind != "O":
        assert got.dtype == wanted.dtype
        np.testing.assert_allclose(got, wanted, rtol=1e-5, strict=True)
    else:
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("name", ODD_MODELS)
def test_a_session_gives_what_onnxruntime_alone_gives(name: str, dovetail_session: Open) -> None:
    model, feeds = ODD_MODELS[name]()
    expected = {level: _run_alone(model, feeds, level) for level in LEVELS}
    for level, route in itertools.product(LEVELS, ROUTES):
        if expected[level] is not None:
            session = dovetail_session(model, options=_options(level), **route)
            _compare(list(session.run(None, feeds)), expected[level])
    if not any(expected.values()):
        pytest.skip("this ONNX Runtime does not take the model alone")


def test_a_layer_of_forty_inputs(dovetail_session: Open) -> None:
    dovetail.layer("OddSum")(lambda *arrays: sum(arrays[1:], arrays[0]))
    names = [f"x{number}" for number in range(40)]
    inputs, outputs = [tensor(name, [4]) for name in names], [tensor("y", [4])]
    model = make_model([node("OddSum", names, ["y"], domain="trt.plugins")], inputs, outputs, domains=["trt.plugins"])
    feeds = {name: np.full(4, number, np.float32) for number, name in enumerate(names)}
    assert dovetail_session(model).run(None, feeds)[0].tolist() == [780.0] * 4


# results that nobody reads, of operators that nobody else can run


def _custom(*, dead: bool) -> onnx.ModelProto:
    custom = node("OddHalf", ["x"], ["h"], domain="trt.plugins")
    output = tensor("x" if dead else "h", [4])
    return make_model([custom], [tensor("x", [4])], [output], domains=["trt.plugins"])


@pytest.mark.parametrize("route", ["compile", "kernels"])
def test_a_custom_layer_for_nobody(route: str, dovetail_session: Open, assigned: Callable[..., Any]) -> None:
    x = np.float32([1, 2, 3, 4])
    session = dovetail_session(_custom(dead=True), fallback=False, route=route)
    assert assigned(session) == {ort_ep.EP: ["OddHalf"]}
    for _ in range(3):
        assert session.run(None, {"x": x})[0].tolist() == x.tolist()
    live = dovetail_session(_custom(dead=False), fallback=False, route=route)
    assert live.run(None, {"x": x})[0].tolist() == (x / 2).tolist()


@pytest.mark.parametrize("embed", ["0", "1"], ids=["beside", "inside"])
def test_a_custom_layer_for_nobody_in_a_compiled_model(embed: str, dovetail_session: Open, tmp_path: Path) -> None:
    target, x = tmp_path / "c.onnx", np.float32([1, 2, 3, 4])
    entries = {"ep.context_enable": "1", "ep.context_embed_mode": embed, "ep.context_file_path": str(target)}
    dovetail_session(_custom(dead=True), entries=entries)
    assert [one.op_type for one in onnx.load(target).graph.node] == ["EPContext"]
    assert dovetail_session(target, fallback=False).run(None, {"x": x})[0].tolist() == x.tolist()
