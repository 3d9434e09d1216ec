"""Whatever a user gets wrong becomes a status with the whole message, leaves nothing behind, and is not hidden."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import dovetail
from tests.support import ort_ep
from tests.support.ort_ep_models import feeds, plain_model, plugin_model, run_plain, two_part_model
from tests.support.plugins import PlainCreator, ScalePlugin

Session = Callable[..., ort.InferenceSession]
BY_NAME = pytest.mark.parametrize(
    "by_name", [False, pytest.param(True, marks=ort_ep.needs_names)], ids=["device", "name"]
)


@dovetail.layer("ErrorsFails")
def fails(x: Any) -> Any:
    """A layer whose author made a mistake that shows with five rows."""
    if x.shape[0] == 5:
        raise ValueError("five rows are not for me")
    return x


@dovetail.layer("ErrorsNoShape", shape=lambda x: 1 / 0)
def no_shape(x: Any) -> Any:
    """A layer that cannot say what it gives."""
    return x


@dovetail.layer("ErrorsScale")
def scale(x: Any, *, by: float = 1.0) -> Any:
    """A layer with a field."""
    return x * by


BAD_OPTIONS = [
    ({"colour": "red"}, r"unknown option\(s\) colour; expected .*claim, "),
    ({"clam": "all"}, r"unknown option\(s\) clam; expected .*\n  fix: did you mean 'claim'"),
    ({"claim": "most"}, "option ep.dovetailexecutionprovider.claim: not a choice; expected .* got most"),
    ({"graph_capture": "often"}, "not a switch; expected 0 or 1, got often"),
    ({"capture_after_runs": "-1"}, "not a number; expected 0 or more, got -1"),
    ({"providers": "abacus", "claim": "all"}, "there is no provider 'abacus'"),
    ({"providers": ","}, "option ep.dovetailexecutionprovider.providers: no names; expected names, .* got ,"),
    ({"override": "ErorsScale"}, "no plugin 'ErorsScale' is registered\n  fix: did you mean 'ErrorsScale'"),
    ({"arena.max_mem": "lots"}, "arena.max_mem"),
    (
        {"arena.max_mem": "1000"},
        "option ep.dovetailexecutionprovider.arena.max_mem: back end 'cpu' takes memory of the",
    ),
    ({"provider.onnxruntime.threads": "2"}, "the session does not use provider 'onnxruntime'; expected cpu"),
    ({"provider.cpu.layout": "CNHW"}, "no such layout; expected NCHW or NHWC, got CNHW"),
]


@BY_NAME
@pytest.mark.parametrize(("options", "text"), BAD_OPTIONS, ids=[next(iter(case[0])) for case in BAD_OPTIONS])
def test_an_option_that_cannot_be(dovetail_session: Session, options: dict[str, str], text: str, by_name: bool) -> None:
    for fallback in (False, True):
        ort_ep.refuse(
            text, lambda may=fallback: dovetail_session(plain_model(), fallback=may, by_name=by_name, **options)
        )
    session = dovetail_session(plain_model(), claim="all")
    np.testing.assert_allclose(session.run(None, feeds())[0], run_plain(feeds()), rtol=1e-5)


def test_an_entry_that_was_meant_for_us(dovetail_session: Session) -> None:
    ort_ep.refuse(
        "unknown option ep.dovetail.claim; expected ep.dovetailexecutionprovider.<option>",
        lambda: dovetail_session(plain_model(), entries={"ep.dovetail.claim": "all"}, fallback=True),
    )


IDLE_OPTIONS = [
    ({"exclude": "Reluu"}, "exclude: there is no operator 'Reluu'; did you mean 'Relu'?"),
    ({"exclude": "relu"}, "exclude: there is no operator 'relu'; did you mean 'Relu'?"),
    ({"capture_after_runs": "3"}, "capture_after_runs changes nothing without graph_capture=1"),
    ({"exclude": "Softmax,ErrorsScale,FusedMatMul"}, ""),
]


@pytest.mark.parametrize(("options", "text"), IDLE_OPTIONS, ids=range(len(IDLE_OPTIONS)))
def test_an_option_that_changes_nothing_is_told(
    dovetail_session: Session, options: dict[str, str], text: str, capfd: pytest.CaptureFixture[str]
) -> None:
    settings = ort_ep.session_options(fallback=True)
    settings.log_severity_level = 2
    dovetail_session(plain_model(), options=settings, claim="all", **options)
    told = capfd.readouterr().err
    assert text in told
    assert ("Dovetail: option" in told) == bool(text)


def test_a_switch_of_compiled_models_that_is_none(dovetail_session: Session) -> None:
    entries = {"ep.context_embed_mode": "2"}
    ort_ep.refuse(
        "option ep.context_embed_mode: not a switch|ep.context_embed_mode",
        lambda: dovetail_session(plain_model(), entries=entries, claim="all"),
    )


def test_a_plugin_that_raises_when_it_runs(dovetail_session: Session) -> None:
    session = dovetail_session(plugin_model("ErrorsFails"), claim="all")
    good = {"x": feeds(4)["x"]}
    for _ in range(2):
        with pytest.raises(Exception, match=r"PluginError: .*ErrorsFails.*five rows are not for me") as failure:
            session.run(None, {"x": feeds(5)["x"]})
        assert type(failure.value).__name__ == "Fail"
        np.testing.assert_array_equal(session.run(None, good)[0], -np.maximum(good["x"], 0))


class ErrorsStatus(ScalePlugin):
    """Returns a failure and writes nothing while ``status`` says so."""

    formats = (dovetail.TensorFormat.LINEAR,)
    types = (dovetail.float32,)
    tactics = ()
    status = 0

    def __init__(self, factor: float = 1.0, calls: Any = None) -> None:
        super().__init__(factor, calls)
        self.plugin_name = "ErrorsStatus"

    def enqueue(self, *args: Any) -> Any:
        return ErrorsStatus.status or super().enqueue(*args)


@pytest.mark.parametrize("earlier_runs", [0, 1, 4])
def test_a_plugin_that_returns_a_failure_status(
    dovetail_session: Session, monkeypatch: pytest.MonkeyPatch, earlier_runs: int
) -> None:
    creator = PlainCreator("ErrorsStatus", ErrorsStatus)
    dovetail.get_plugin_registry().register_creator(creator, "")
    try:
        session = dovetail_session(plugin_model("ErrorsStatus", factor=1.0), claim="all")
        x = feeds(4)["x"]
        for _ in range(earlier_runs):
            np.testing.assert_array_equal(session.run(None, {"x": x})[0], -np.maximum(x, 0))
        monkeypatch.setattr(ErrorsStatus, "status", 7)
        with pytest.raises(Exception, match=r"ErrorsStatus.*enqueue returned status 7"):
            session.run(None, {"x": x})
        monkeypatch.setattr(ErrorsStatus, "status", 0)
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], -np.maximum(x, 0))
        del session
    finally:
        dovetail.get_plugin_registry().deregister_creator(creator)


def test_a_plugin_that_raises_when_shapes_are_asked(dovetail_session: Session) -> None:
    ort_ep.refuse(
        "ErrorsNoShape.*division by zero", lambda: dovetail_session(plugin_model("ErrorsNoShape"), claim="all")
    )


def test_a_field_that_does_not_fit(dovetail_session: Session) -> None:
    model = plugin_model("ErrorsScale", by="much")
    ort_ep.refuse("by", lambda: dovetail_session(model, claim="all"))


@BY_NAME
def test_an_operator_that_nobody_has(dovetail_session: Session, by_name: bool) -> None:
    model = plugin_model("ErrorsMissing")
    ort_ep.refuse("ErrorsMissing", lambda: dovetail_session(model, fallback=True, by_name=by_name, claim="all"))


def test_a_creator_that_went_after_the_model_was_read(
    dovetail_session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise dovetail.PluginError("no creator is registered", where="plugin 'ErrorsScale'", fix="register it")

    monkeypatch.setattr("onnxruntime_ep_dovetail.session.ep.build_partition", refuse)
    ort_ep.refuse(
        r"Dovetail: plugin 'ErrorsScale': no creator is registered\n  fix: register it",
        lambda: dovetail_session(plugin_model("ErrorsScale"), claim="all"),
    )


def test_shapes_that_do_not_fit(dovetail_session: Session) -> None:
    model = plain_model()
    for value in model.graph.input:
        value.type.tensor_type.ClearField("shape")
    session = dovetail_session(model, claim="all")
    with pytest.raises(Exception, match="InputError") as failure:
        session.run(None, {"x": np.ones((4, 3), np.float32), "z": np.ones((1, 8), np.float32)})
    assert type(failure.value).__name__ in ("Fail", "RuntimeException")
    np.testing.assert_allclose(session.run(None, feeds())[0], run_plain(feeds()), rtol=1e-5)


def test_the_second_partition_cannot_be_built(dovetail_session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    from onnxruntime_ep_dovetail.session import ep

    real, count = ep.build_partition, []

    def build(*arguments: Any, **named: Any) -> Any:
        count.append(1)
        if len(count) == 2:
            raise dovetail.BuildError("no room for the second")
        return real(*arguments, **named)

    monkeypatch.setattr(ep, "build_partition", build)
    ort_ep.refuse(
        "no room for the second",
        lambda: dovetail_session(two_part_model(), fallback=True, claim="all", exclude="Sqrt"),
    )
    assert len(count) == 2


ODD_ERRORS = [
    (MemoryError("a lot"), "Dovetail: MemoryError: a lot"),
    (RecursionError(), "Dovetail: RecursionError"),
    (KeyError("x"), "Dovetail: KeyError: 'x'"),
    (AssertionError(), "Dovetail: AssertionError"),
    (ValueError("zero \0 and \udc80 inside"), r"zero \\0 and \\udc80 inside"),
    (SystemExit(3), "SystemExit: 3"),
    (KeyboardInterrupt(), "KeyboardInterrupt"),
]


@pytest.mark.parametrize("place", ["read_graph", "build_partition"], ids=["claim", "build"])
@pytest.mark.parametrize(("error", "text"), ODD_ERRORS, ids=[type(error).__name__ for error, _ in ODD_ERRORS])
def test_errors_that_nobody_meant(
    dovetail_session: Session, monkeypatch: pytest.MonkeyPatch, place: str, error: BaseException, text: str
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(f"onnxruntime_ep_dovetail.session.ep.{place}", fail)
        for fallback in (True, False):
            ort_ep.refuse(text, lambda may=fallback: dovetail_session(plain_model(), fallback=may, claim="all"))
    session = dovetail_session(plain_model(), claim="all")
    np.testing.assert_allclose(session.run(None, feeds())[0], run_plain(feeds()), rtol=1e-5)


@ort_ep.needs_names
def test_a_failure_is_not_hidden_by_the_session_being_made_again(
    dovetail_session: Session, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """ONNX Runtime's Python part makes a session again on the CPU after some errors, and prints that it does."""
    ort_ep.refuse("unknown option", lambda: dovetail_session(plain_model(), by_name=True, fallback=True, colour="red"))
    assert "Falling back" not in capfd.readouterr().out


def test_failed_sessions_leave_no_memory(dovetail_session: Session) -> None:
    def fail() -> None:
        with pytest.raises(Exception, match="unknown option"):
            dovetail_session(plain_model(), colour="red", claim="all")

    tracemalloc.start()
    for _ in range(40):  # structs of what was released last are kept for a while
        fail()
    gc.collect()
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(20):
        fail()
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 20 * 2000, grown


def test_a_released_session_is_gone_at_once(dovetail_session: Session) -> None:
    before = ort_ep.count_sessions()
    gc.disable()
    try:
        session = dovetail_session(plain_model(), claim="all")
        session.run(None, feeds())
        assert ort_ep.count_sessions() != before
        del session
        assert ort_ep.count_sessions() == before
    finally:
        gc.enable()


def test_an_attribute_that_is_no_text_harms_nobody(dovetail_session: Session) -> None:
    model = plain_model()
    model.graph.node[1].CopyFrom(onnx.helper.make_node("LeakyRelu", ["a"], ["b"], alpha=0.0))
    session = dovetail_session(model, claim="all")
    np.testing.assert_allclose(session.run(None, feeds())[0], run_plain(feeds()), rtol=1e-5)
