"""Ctrl-C and exit in a layer reach the caller as what they are, and a run that is to end ends between two steps."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

import dovetail as dt
from tests.support import ort_ep
from tests.support.ort_models import make_model, node, tensor

pytestmark = pytest.mark.versions

Open = Callable[..., Any]
PLUGINS = "trt.plugins"
_raised: list[BaseException] = []
_ran: list[float] = []
_on_step: list[Callable[[int], None]] = []


@dt.layer("InterruptsRaise")
def _raise(x: Any) -> Any:
    if _raised:
        raise _raised[0]
    return x + 1


@dt.layer("InterruptsLast")
def _last(x: Any) -> Any:
    _ran.append(float(x[0]))
    return x * 2


@dt.layer("InterruptsStep")
def _step(x: Any) -> Any:
    _ran.append(float(x[0]))
    for tell in _on_step:
        tell(len(_ran))
    return x + 1


@pytest.fixture(autouse=True)
def _nothing_raised() -> None:
    for kept in (_raised, _ran, _on_step):
        kept.clear()


def _model() -> onnx.ModelProto:
    """A layer, integers divided by what it makes, and another layer."""
    steps = [
        node("InterruptsRaise", ["x"], ["a"], domain=PLUGINS),
        node("Cast", ["a"], ["i"], to=TensorProto.INT64),
        node("Div", ["five", "i"], ["d"]),
        node("Cast", ["d"], ["f"], to=TensorProto.FLOAT),
        node("InterruptsLast", ["f"], ["y"], domain=PLUGINS),
    ]
    return make_model(steps, [tensor("x", [2])], [tensor("y", [2])], {"five": np.array([5, 5])}, domains=[PLUGINS])


X = np.zeros(2, np.float32)
ENDS = [KeyboardInterrupt(), KeyboardInterrupt("mine"), SystemExit(3), GeneratorExit()]


@pytest.mark.parametrize("exclude", ["", "Div"], ids=["one partition", "two partitions"])
@pytest.mark.parametrize("error", ENDS, ids=repr)
def test_what_is_no_error_reaches_the_caller(dovetail_session: Open, error: BaseException, exclude: str) -> None:
    session = dovetail_session(_model(), fallback=True, exclude=exclude)
    binding = session.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_output("y")
    for run in (lambda: session.run(None, {"x": X}), lambda: session.run_with_iobinding(binding)):
        np.testing.assert_array_equal(session.run(None, {"x": X})[0], [10, 10])
        _raised.append(error)
        _ran.clear()
        with pytest.raises(type(error)) as caught:
            run()
        assert caught.value is error
        assert not _ran, "no layer runs after it"
        _raised.clear()


def test_another_thread_has_its_own(dovetail_session: Open) -> None:
    session, caught = dovetail_session(_model()), []

    def run() -> None:
        try:
            session.run(None, {"x": X})
        except SystemExit as error:
            caught.append(error.code)

    _raised.append(SystemExit(7))
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert caught == [7]


def test_without_a_caller_in_python_it_is_a_status(dovetail_session: Open) -> None:
    session, done, told = dovetail_session(_model()), threading.Event(), []

    def take(_results: Any, _data: Any, error: str) -> None:
        told.append(error)
        done.set()

    _raised.append(SystemExit(7))
    session.run_async(None, {"x": X}, take, None)
    assert done.wait(10)
    assert "SystemExit: 7" in told[0]


def test_a_layer_that_runs_a_session(dovetail_session: Open) -> None:
    inner = dovetail_session(_model())

    @dt.layer("InterruptsOuter")
    def _outer(x: Any) -> Any:
        return inner.run(None, {"x": x})[0]

    steps = [node("InterruptsOuter", ["x"], ["y"], domain=PLUGINS)]
    outer = dovetail_session(make_model(steps, [tensor("x", [2])], [tensor("y", [2])], domains=[PLUGINS]))
    np.testing.assert_array_equal(outer.run(None, {"x": X})[0], [10, 10])
    _raised.append(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        outer.run(None, {"x": X})


_PROCESS = """
import os, signal, time, numpy as np, dovetail as dt
from tests.ort_ep.lifetime import test_interrupts as cases
from tests.support import ort_ep
ort_ep.register()
session = ort_ep.dovetail_session(cases._model())
{action}
session.run(None, {{"x": cases.X}})
"""
ACTIONS = {
    "exit": ("cases._raised.append(SystemExit(3))", 3),
    "ctrl-c": ("cases._raised.append(KeyboardInterrupt())", -signal.SIGINT),
}


@pytest.mark.parametrize("action", ACTIONS)
def test_the_process_ends_as_it_would_without_onnx_runtime(action: str) -> None:
    code, status = ACTIONS[action]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", _PROCESS.format(action=code)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == status, done.stderr


# runs that are to end


def _chain() -> onnx.ModelProto:
    names = ["x", *(f"v{i}" for i in range(1, 8)), "y"]
    steps = [node("InterruptsStep", [a], [b], domain=PLUGINS) for a, b in itertools.pairwise(names)]
    return make_model(steps, [tensor("x", [2])], [tensor("y", [2])], domains=[PLUGINS])


def _loop() -> onnx.ModelProto:
    steps = [node("InterruptsStep", ["s"], ["t"], domain=PLUGINS), node("Identity", ["c"], ["d"])]
    inputs = [tensor("i", [], TensorProto.INT64), tensor("c", [], TensorProto.BOOL), tensor("s", [2])]
    body = helper.make_graph(steps, "body", inputs, [tensor("d", [], TensorProto.BOOL), tensor("t", [2])])
    loop = node("Loop", ["n", "", "x"], ["y"], body=body)
    return make_model([loop], [tensor("x", [2])], [tensor("y", [2])], {"n": np.array(8)}, domains=[PLUGINS])


@pytest.mark.parametrize("make", [_chain, pytest.param(_loop, marks=ort_ep.needs_bodies)], ids=["steps", "loop"])
def test_a_run_that_is_to_end_ends_between_steps(dovetail_session: Open, make: Callable[[], onnx.ModelProto]) -> None:
    session = dovetail_session(make(), claim="all")
    assert len(session.get_provider_graph_assignment_info()) == 1, "one partition"
    options = ort.RunOptions()
    _ran.clear()  # the build runs each layer once

    def terminate(count: int) -> None:
        options.terminate = count == 3

    _on_step.append(terminate)
    with pytest.raises(Exception, match="terminate flag"):
        session.run(None, {"x": X}, options)
    assert len(_ran) == 3
    _on_step.clear()
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], [8, 8])
    options.terminate = False
    np.testing.assert_array_equal(session.run(None, {"x": X}, options)[0], [8, 8])


def test_other_runs_of_the_session_go_on(dovetail_session: Open) -> None:
    session, results = dovetail_session(_chain(), claim="all"), []
    options, reached, go_on = ort.RunOptions(), threading.Barrier(2, timeout=10), threading.Event()
    waiting = set[int]()

    def meet(_count: int) -> None:
        if threading.get_ident() not in waiting:
            waiting.add(threading.get_ident())
            reached.wait()
            go_on.wait(10)

    def run(chosen: ort.RunOptions | None) -> None:
        try:
            results.append(session.run(None, {"x": X}, chosen)[0].tolist())
        except Exception as error:  # noqa: BLE001 - what it says is checked
            results.append(str(error))

    _on_step.append(meet)
    threads = [threading.Thread(target=run, args=(chosen,)) for chosen in (options, None)]
    for thread in threads:
        thread.start()
    while len(waiting) < 2:
        pass
    options.terminate = True
    go_on.set()
    for thread in threads:
        thread.join()
    told = next(one for one in results if isinstance(one, str))
    assert "terminate flag" in told
    assert [8, 8] in results
