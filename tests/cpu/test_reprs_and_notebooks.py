"""What a notebook shows: objects that say what they are, and errors with the one line that caused them."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

import dovetail as dt


def _engine() -> dt.Engine:
    network = dt.Builder().create_network()
    network.name = "small"
    x = network.add_input("x", dt.float32, (-1, 3))
    network.mark_output(network.add_activation(x, dt.ActivationType.RELU).get_output(0))
    return dt.compile(network)


def test_objects_say_what_they_are() -> None:
    builder = dt.Builder()
    network = builder.create_network()
    network.name = "small"
    assert repr(network) == "<Network 'small': no inputs -> no outputs, 0 layer(s)>"
    x = network.add_input("x", dt.float32, (-1, 3))
    network.mark_output(network.add_identity(x).get_output(0))
    assert repr(network).startswith("<Network 'small': 'x' -> '")
    assert repr(network).endswith("', 1 layer(s)>")
    config = dt.BuilderConfig()
    assert repr(config) == "<BuilderConfig: no flags; 0 profile(s)>"
    config.set_flag(dt.BuilderFlag.REFIT)
    config.providers = ["cpu"]
    profile = dt.OptimizationProfile()
    assert repr(profile) == "<OptimizationProfile without bounds>"
    profile.set_shape("x", (1, 3), (2, 3), (8, 3))
    assert repr(profile) == "<OptimizationProfile x: 1x3:2x3:8x3>"
    config.add_optimization_profile(profile)
    assert repr(config) == "<BuilderConfig: REFIT; 1 profile(s); providers=['cpu']>"
    registry = dt.PluginRegistry()
    assert repr(registry) == "<PluginRegistry of 0 creator(s), libraries: 0>"
    assert "PluginRegistry of 0 creator(s)" in repr(builder)
    assert repr(dt.Runtime()).startswith("<Runtime that allows device code, with <PluginRegistry of 0")


def test_a_context_says_what_it_runs_on() -> None:
    with _engine() as engine:
        context = engine.create_execution_context()
        assert repr(context) == "<ExecutionContext of engine 'small', profile 0, x: ?>"
        context.set_input_shape("x", (2, 3))
        context.name = "mine"
        assert repr(context) == "<ExecutionContext 'mine' of engine 'small', profile 0, x: (2, 3)>"


def _render(error: BaseException) -> list[str]:
    """What IPython does with an exception that knows how to show itself."""
    lines: list[str] = error._render_traceback_()  # type: ignore[attr-defined]
    return lines


def test_an_error_shows_the_line_that_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DOVETAIL_TRACEBACK", raising=False)

    def work() -> None:
        engine(np.zeros((2, 4), np.float32))

    with _engine() as engine, pytest.raises(dt.InputError) as caught:
        work()
    shown = _render(caught.value)
    (place,) = [line for line in shown if line.lstrip().startswith("File ")]
    assert place.endswith(", in work")
    assert __file__ in place
    assert shown[-1].startswith("dovetail.errors.InputError: ") or "fix:" in shown[-1]
    monkeypatch.setenv("DOVETAIL_TRACEBACK", "1")
    assert len([line for line in _render(caught.value) if line.lstrip().startswith("File ")]) > 2


def test_an_error_that_was_not_raised_has_no_line() -> None:
    assert _render(dt.UsageError("no", fix="yes")) == ["dovetail.errors.UsageError: no", "  fix: yes"]


def test_ipython_shows_it_so(capsys: pytest.CaptureFixture[str]) -> None:
    shell: Any = pytest.importorskip("IPython.core.interactiveshell").InteractiveShell.instance()
    shell.run_cell("import dovetail; dovetail.load('none.plan')")
    shown = capsys.readouterr().out
    assert "container.py" not in shown
    assert "plan cannot be read" in shown
    assert sys.modules["IPython"]
