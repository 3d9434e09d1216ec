"""Sessions of models with functions, also while freed memory is filled with rubbish: nothing is read that was freed."""

from __future__ import annotations

import gc
import logging
import os
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

import numpy as np
import pytest
from onnxruntime.capi import onnxruntime_pybind11_state as ort_state

from onnxruntime_ep_dovetail.graph.read import ReadGraph
from onnxruntime_ep_dovetail.kernels import impl
from onnxruntime_ep_dovetail.session.ep import Ep
from tests.support.ort_ep import reference_session
from tests.support.ort_ep_models import feeds as plain_feeds
from tests.support.ort_ep_models import plain_model, run_plain
from tests.support.run_functions import MODELS, feeds, function_model

pytestmark = pytest.mark.versions

ROOT = Path(__file__).resolve().parents[3]
ROUTES = ("kernels", "compile")
Open = Callable[..., Any]


@pytest.mark.parametrize("filler", ["165", pytest.param("1", marks=pytest.mark.slow)])
def test_nothing_freed_is_read(filler: str) -> None:
    environment = {**os.environ, "MALLOC_PERTURB_": filler, "PYTHONMALLOC": "malloc", "ORT_DISABLE_TELEMETRY": "1"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))
    command = [sys.executable, "-X", "faulthandler", "-m", "tests.support.run_functions", *ROUTES]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=ROOT, check=False)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("name", MODELS)
def test_functions_give_what_onnxruntime_gives(dovetail_session: Open, name: str, route: str) -> None:
    model = function_model(MODELS[name])
    session = dovetail_session(model, fallback=True, claim="all", route=route)
    for seed in range(3):
        (expected,) = reference_session(model).run(None, feeds(seed))
        np.testing.assert_allclose(session.run(None, feeds(seed))[0], expected, rtol=1e-5)


def test_kernels_keep_no_views_of_weights(dovetail_session: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    models: list[weakref.ref[Any]] = []
    read = impl.read_kernel

    def watch(*arguments: Any) -> Any:
        node = read(*arguments)
        models.append(weakref.ref(node.model))
        return node

    monkeypatch.setattr(impl, "read_kernel", watch)
    session = dovetail_session(plain_model(), claim="all", route="kernels")
    gc.collect()
    assert models
    assert not any(model() for model in models)
    np.testing.assert_allclose(session.run(None, plain_feeds())[0], run_plain(plain_feeds()), rtol=1e-5)


def test_a_failure_keeps_no_graph(
    dovetail_session: Open, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Ep, "choose", lambda *_: 1 / 0)
    with caplog.at_level(logging.DEBUG, "onnxruntime_ep_dovetail"), pytest.raises(ort_state.Fail, match="ZeroDivision"):
        dovetail_session(plain_model(), claim="all")
    frames = [frame for record in caplog.records if record.exc_info for frame in _frames(record.exc_info[2])]
    assert frames
    assert not [frame for frame in frames if any(isinstance(held, ReadGraph) for held in frame.f_locals.values())]


def _frames(trace: TracebackType | None) -> Iterator[FrameType]:
    while trace is not None:
        yield trace.tb_frame
        trace = trace.tb_next
