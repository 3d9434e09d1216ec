"""Dovetail's layers in ONNX Runtime's trace."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

import dovetail
from tests.support import ort_ep
from tests.support.ort_ep_models import feeds, plain_model, plugin_model, run_plain, two_part_model

Session = Callable[..., ort.InferenceSession]
pytestmark = [
    pytest.mark.versions,
    pytest.mark.skipif(ort_ep.RUNTIME < (1, 25), reason="plugins take part in profiles from 1.25 on"),
]


@dovetail.layer("TraceTwice")
def twice(x: Any) -> Any:
    return x + x


@pytest.fixture
def options(registration: str, tmp_path: Path) -> ort.SessionOptions:
    made = ort_ep.session_options(fallback=False)
    made.enable_profiling = True
    made.profile_file_prefix = str(tmp_path / "trace")
    return made


def events(session: ort.InferenceSession) -> list[dict[str, Any]]:
    """What Dovetail added to the trace."""
    found: list[dict[str, Any]] = json.loads(Path(session.end_profiling()).read_text())
    return [event for event in found if event["cat"] == "Kernel"]


def layers(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [event for event in found if "layer" in event["args"]]


def test_every_run_shows_its_layers(dovetail_session: Session, options: ort.SessionOptions) -> None:
    session = dovetail_session(plain_model(), options=options, claim="all")
    for rows in (4, 4, 2):
        np.testing.assert_allclose(session.run(None, feeds(rows))[0], run_plain(feeds(rows)), rtol=1e-5)
    found = events(session)
    parts = [event for event in found if event["name"].startswith("partition ")]
    assert len(parts) == 3
    assert [event["args"]["layers"] for event in parts] == ["3"] * 3
    names = [(event["args"]["layer"], event["args"]["op_name"]) for event in layers(found)]
    assert names == [("product", "MatMul"), ("bend", "Relu"), ("shift", "Add")] * 3
    assert {event["name"] for event in layers(found)} == {"product (MatMul)", "bend (Relu)", "shift (Add)"}


def test_layers_lie_in_their_partition_in_their_node(dovetail_session: Session, options: ort.SessionOptions) -> None:
    session = dovetail_session(plain_model(), options=options, claim="all")
    session.run(None, feeds())
    everything = json.loads(Path(session.end_profiling()).read_text())
    node = next(event for event in everything if event["cat"] == "Node")
    part = next(event for event in everything if event["name"].startswith("partition "))
    assert part["name"].removeprefix("partition ") == node["name"].removesuffix("_kernel_time")
    inner = layers([event for event in everything if event["cat"] == "Kernel"])
    assert all(event["args"]["partition"] in part["name"] for event in inner)
    assert {(event["pid"], event["tid"]) for event in (*inner, part)} == {(os.getpid(), node["tid"])}
    slack_us = 200  # the clocks are read one after the other, and times are whole microseconds
    for event in inner:
        assert event["ts"] >= part["ts"] - 1
        assert event["ts"] + event["dur"] <= part["ts"] + part["dur"] + 1
    assert abs(part["ts"] - node["ts"]) < slack_us


def test_custom_layers_are_in_the_trace(dovetail_session: Session, options: ort.SessionOptions) -> None:
    session = dovetail_session(plugin_model("TraceTwice"), options=options, claim="all")
    session.run(None, {"x": feeds()["x"]})
    assert ("custom", "TraceTwice") in [(e["args"]["layer"], e["args"]["op_name"]) for e in layers(events(session))]


def test_two_partitions_have_two_events(dovetail_session: Session, tmp_path: Path) -> None:
    options = ort_ep.session_options(fallback=True)
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "trace")
    session = dovetail_session(two_part_model(), options=options, claim="all", exclude="Sqrt")
    session.run(None, {"x": feeds()["x"]})
    found = events(session)
    assert len([event for event in found if event["name"].startswith("partition ")]) == 2
    assert len({event["args"]["partition"] for event in layers(found)}) == 2


def test_threads_do_not_mix(dovetail_session: Session, options: ort.SessionOptions) -> None:
    session = dovetail_session(plain_model(), options=options, claim="all")
    threads = [threading.Thread(target=lambda: [session.run(None, feeds()) for _ in range(5)]) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = events(session)
    parts = [event for event in found if event["name"].startswith("partition ")]
    assert len(parts) == 15
    for part in parts:
        end = part["ts"] + part["dur"]
        inside = [e for e in layers(found) if e["tid"] == part["tid"] and part["ts"] - 1 <= e["ts"] <= end + 1]
        assert [event["args"]["op_name"] for event in inside] == ["MatMul", "Relu", "Add"]


def test_without_profiling_nothing_is_timed(dovetail_session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("a layer was timed")

    monkeypatch.setattr("onnxruntime_ep_dovetail.session.profiling.LayerClock.report_layer_span", refuse)
    session = dovetail_session(plain_model(), claim="all")
    session.run(None, feeds())


def test_after_the_end_runs_are_fast_again(
    dovetail_session: Session, options: ort.SessionOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = dovetail_session(plain_model(), options=options, claim="all")
    session.run(None, feeds())
    assert layers(events(session))
    test_without_profiling_nothing_is_timed(lambda *_, **__: session, monkeypatch)


def test_a_session_that_ends_while_it_profiles(dovetail_session: Session, options: ort.SessionOptions) -> None:
    before = ort_ep.count_sessions()
    session = dovetail_session(plain_model(), options=options, claim="all")
    session.run(None, feeds())
    del session
    assert ort_ep.count_sessions() == before
