"""Weights that a session's options give in place of the model's are those that it computes with, whoever runs them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import numpy_helper
from onnx.external_data_helper import set_external_data

from tests.support import ort_ep
from tests.support.ort_devices import devices_in_ort
from tests.support.ort_given_models import GIVEN_CASES, GivenCase, replace_weights
from tests.support.ort_models import make_model, node, tensor

pytestmark = pytest.mark.versions

Open = Callable[..., ort.InferenceSession]
ROUTES = {
    f"{route}-{claim}": {"route": route, "claim": claim}
    for route, claim in itertools.product(("compile", "kernels"), ("all", "auto"))
}
by_case = pytest.mark.parametrize("case", GIVEN_CASES, ids=lambda case: case.name)
by_route = pytest.mark.parametrize("route", ROUTES.values(), ids=list(ROUTES))
X, W, OTHER = np.float32([1, 2]), np.float32([1, 2]), np.float32([10, 20])


def _case(name: str) -> GivenCase:
    return next(case for case in GIVEN_CASES if case.name == name)


def _plain() -> onnx.ModelProto:
    return make_model([node("Mul", ["x", "w"], ["y"])], [tensor("x", [2])], [tensor("y", [2])], {"w": W})


class Given:
    """Options that give weights, and the values, which must outlive a session."""

    def __init__(
        self,
        weights: Mapping[str, Any],
        *,
        fallback: bool = True,
    ) -> None:
        self.options = ort_ep.session_options(fallback=fallback)
        self.values = {name: ort.OrtValue.ortvalue_from_numpy(weight) for name, weight in weights.items()}
        for name, value in self.values.items():
            self.options.add_initializer(name, value)


def _expect(case: GivenCase, open_session: Open) -> list[Any]:
    model = replace_weights(case.model, case.given)
    session = ort_ep.reference_session(model) if case.by_reference else open_session(model)
    return session.run(None, case.feeds)


def _check(session: ort.InferenceSession, case: GivenCase, expected: list[Any]) -> None:
    for _ in range(3):
        for got, wanted in zip(session.run(None, case.feeds), expected, strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)


@by_route
@pytest.mark.parametrize("case", [case for case in GIVEN_CASES if not case.is_folded], ids=lambda case: case.name)
def test_a_session_computes_with_what_it_was_given(
    case: GivenCase, route: Mapping[str, str], dovetail_session: Open
) -> None:
    given = Given(case.given)
    session = dovetail_session(case.model, options=given.options, **route)
    _check(session, case, _expect(case, dovetail_session))


@pytest.mark.parametrize("route", ["compile", "kernels"])
@pytest.mark.parametrize("name", ["plain", "several", "with others", "custom", "large", "int64", "convolution"])
def test_what_reads_given_weights_is_still_taken(
    name: str, route: str, dovetail_session: Open, assigned: Callable[..., Any]
) -> None:
    case = _case(name)
    given = Given(case.given, fallback=False)
    session = dovetail_session(case.model, options=given.options, claim="all", route=route)
    assert set(assigned(session)) == {ort_ep.EP}
    _check(session, case, _expect(case, dovetail_session))


@by_route
def test_partitions_on_both_sides_of_another_node(route: Mapping[str, str], dovetail_session: Open) -> None:
    case = _case("several parts")
    given = Given(case.given)
    session = dovetail_session(case.model, options=given.options, exclude="Erf", **route)
    _check(session, case, _expect(case, dovetail_session))


@by_route
@by_case
def test_without_optimizations(case: GivenCase, route: Mapping[str, str], dovetail_session: Open) -> None:
    given = Given(case.given)
    given.options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = dovetail_session(case.model, options=given.options, **route)
    _check(session, case, _expect(case, dovetail_session))


@ort_ep.needs_names
def test_a_session_that_names_the_provider(dovetail_session: Open) -> None:
    case, given = _case("plain"), Given({"w": _case("plain").given["w"]}, fallback=False)
    session = dovetail_session(case.model, options=given.options, by_name=True, claim="all")
    _check(session, case, _expect(case, dovetail_session))


def test_sessions_share_what_they_are_given(dovetail_session: Open) -> None:
    given, other, model = Given({"w": OTHER}), Given({"w": OTHER * 2}), _plain()
    sessions = [dovetail_session(model, options=one.options, claim="all") for one in (given, other)]
    sessions += [dovetail_session(model, claim="all"), ort.InferenceSession(model.SerializeToString(), given.options)]
    results = [session.run(None, {"x": X})[0].tolist() for session in sessions]
    assert results == [[10, 40], [20, 80], [1, 4], [10, 40]]


def test_sizes_that_change_from_run_to_run(dovetail_session: Open) -> None:
    case = _case("large")
    given = Given(case.given, fallback=False)
    session = dovetail_session(case.model, options=given.options, claim="all")
    for rows in (1, 7, 2, 0):
        x = np.random.default_rng(rows).random((rows, 256), np.float32)
        np.testing.assert_allclose(session.run(None, {"x": x})[0], x @ case.given["w"], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("wrong", [np.float32([1, 2, 3]), np.float64([1, 2])], ids=["shape", "type"])
@pytest.mark.parametrize("route", ["compile", "kernels"])
def test_what_does_not_fit_is_refused(wrong: Any, route: str, dovetail_session: Open) -> None:
    given = Given({"w": wrong}, fallback=False)

    def run() -> None:
        dovetail_session(_plain(), options=given.options, claim="all", route=route).run(None, {"x": X})

    with pytest.raises(Exception, match=r"(?i)shape|type|broadcast"):
        run()


@pytest.mark.parametrize("route", ["compile", "kernels"])
@pytest.mark.parametrize("name", ["plain", "large", "with others", "int64"])
def test_on_a_device_onnxruntime_keeps_the_weights_of_the_model(name: str, route: str, registration: str) -> None:
    """It takes only a value that lies where the weight would, and says so in its log; Python can make none there."""
    case = _case(name)
    own = GivenCase(name=name, model=case.model, given={}, feeds=case.feeds)
    with devices_in_ort() as (device,):
        given = Given(case.given)
        given.options.add_provider_for_devices([device.ep_device], {"route": route})
        session = ort.InferenceSession(case.model.SerializeToString(), given.options)
        assert set(ort_ep.assigned(session)) == {ort_ep.EP}
        _check(session, own, _expect(own, ort_ep.dovetail_session))
        del session


def test_convolutions_with_channels_last(dovetail_session: Open) -> None:
    case, given = _case("convolution"), Given(_case("convolution").given)
    given.options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    session = dovetail_session(case.model, options=given.options, claim="all", route="kernels", prefer_nhwc="1")
    _check(session, case, _expect(case, dovetail_session))


# inputs that have a value in the model


@by_route
@pytest.mark.parametrize("name", ["an input too"])
def test_a_run_may_bring_another_value(name: str, route: Mapping[str, str], dovetail_session: Open) -> None:
    case = _case(name)
    for given in (Given({}), Given(case.given)):
        session = dovetail_session(case.model, options=given.options, **route)
        fed = {**case.feeds, "w": np.float32([5, 6, 7, 8])}
        assert session.run(None, fed)[0].tolist() == (fed["x"] * fed["w"]).tolist()
        default = case.given["w"] if given.values else np.float32([1, 2, 3, 4])
        assert session.run(None, case.feeds)[0].tolist() == (fed["x"] * default).tolist()


@by_route
@pytest.mark.parametrize("name", ["captured", "nested", "loop", "custom", "folded", "several parts"])
def test_the_same_where_weights_are_read_otherwise(name: str, route: Mapping[str, str], dovetail_session: Open) -> None:
    case = _case(name)
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    model.graph.input.append(tensor("w", [4]))
    session = dovetail_session(model, fallback=True, **route)
    fed = session.run(None, {**case.feeds, "w": case.given["w"]})
    for got, wanted in zip(fed, _expect(case, dovetail_session), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5)
    own = GivenCase(name="", model=case.model, given={}, feeds=case.feeds, by_reference=case.by_reference)
    for got, wanted in zip(session.run(None, case.feeds), _expect(own, dovetail_session), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5)


# weights beside the model


def _external(case: GivenCase, folder: Path) -> onnx.ModelProto:
    """The model with those of its weights that are given in a file that is not there."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    for weight in (one for one in model.graph.initializer if one.name in case.given):
        size = numpy_helper.to_array(weight).nbytes
        weight.raw_data = b""
        set_external_data(weight, f"{weight.name}.bin", 0, size)
        weight.ClearField("raw_data")
    onnx.save(model, folder / "m.onnx")
    return model


EXTERNAL = pytest.mark.parametrize("name", ["plain", "large", "captured", "several parts", "int64", "custom", "folded"])


@by_route
@EXTERNAL
def test_external_weights_by_name(name: str, route: Mapping[str, str], dovetail_session: Open, tmp_path: Path) -> None:
    case, options = _case(name), ort_ep.session_options(fallback=True)
    values = [ort.OrtValue.ortvalue_from_numpy(array) for array in case.given.values()]
    options.add_external_initializers(list(case.given), values)
    _external(case, tmp_path)
    session = dovetail_session(tmp_path / "m.onnx", options=options, **route)
    _check(session, case, _expect(case, dovetail_session))


@by_route
@EXTERNAL
def test_external_weights_by_file(name: str, route: Mapping[str, str], dovetail_session: Open, tmp_path: Path) -> None:
    case, options = _case(name), ort_ep.session_options(fallback=True)
    files = {f"{weight}.bin": array.tobytes() for weight, array in case.given.items()}
    options.add_external_initializers_from_files_in_memory(
        list(files), list(files.values()), [len(content) for content in files.values()]
    )
    session = dovetail_session(_external(case, tmp_path), options=options, **route)
    _check(session, case, _expect(case, dovetail_session))


# compiled models

REFUSAL = r"weight 'w': .*the session's options bring another value\n  fix: put the value into the model"


def _compile(options: ort.SessionOptions, model: onnx.ModelProto) -> bytes:
    options.add_provider_for_devices(ort_ep.devices(), {"claim": "all"})
    compiler = ort.ModelCompiler(options, model.SerializeToString(), embed_compiled_data_into_model=True)
    return bytes(compiler.compile_to_bytes())


def test_a_compiled_model_cannot_hold_what_a_session_was_given(registration: str, tmp_path: Path) -> None:
    given = Given({"w": OTHER})
    with pytest.raises(Exception, match=REFUSAL):
        _compile(given.options, _plain())
    entries = {"ep.context_enable": "1", "ep.context_file_path": str(tmp_path / "c.onnx")}
    for key, value in entries.items():
        given.options.add_session_config_entry(key, value)
    ort_ep.refuse(REFUSAL, lambda: ort.InferenceSession(_plain().SerializeToString(), given.options))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "name",
    ["plain", "large", *(pytest.param(name, marks=ort_ep.needs_bodies) for name in ("captured", "nested", "loop"))],
)
def test_a_compiled_model_takes_no_other_weights_than_it_has(
    name: str, dovetail_session: Open, registration: str
) -> None:
    case = _case(name)
    compiled = _compile(ort_ep.session_options(fallback=True), case.model)
    given, unrelated = Given(case.given), Given({"other": OTHER})
    assert [one.op_type for one in onnx.load_model_from_string(compiled).graph.node] == ["EPContext"]
    ort_ep.refuse(REFUSAL, lambda: dovetail_session(compiled, options=given.options))
    session = dovetail_session(compiled, options=unrelated.options)
    own = GivenCase(name="", model=case.model, given={}, feeds=case.feeds)
    _check(session, own, _expect(own, dovetail_session))


def test_external_weights_are_in_a_compiled_model(registration: str, dovetail_session: Open, tmp_path: Path) -> None:
    case, options = _case("plain"), ort_ep.session_options(fallback=True)
    options.add_external_initializers(["w"], [ort.OrtValue.ortvalue_from_numpy(case.given["w"])])
    session = dovetail_session(_compile(options, _external(case, tmp_path)))
    _check(session, case, _expect(case, dovetail_session))


def test_an_input_with_a_value_stays_outside_of_a_compiled_model(registration: str, dovetail_session: Open) -> None:
    """ONNX Runtime keeps the value of such an input as a weight of the compiled model."""
    case, given = _case("an input too"), Given(_case("an input too").given)
    own = GivenCase(name="", model=case.model, given={}, feeds=case.feeds)
    compiled = _compile(given.options, case.model)
    _check(dovetail_session(compiled, fallback=False), own, _expect(own, dovetail_session))
    again = Given(case.given)
    _check(dovetail_session(compiled, options=again.options), case, _expect(case, dovetail_session))
