"""What a notebook shows: objects that say what they are, and errors with the one line that caused them."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

import dovetail as dt
from dovetail.plugin.check.report import Report
from dovetail.rules import Rule, RuleOutcome, Status
from dovetail.tools.compare import compare_models


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


def _build_tuned() -> dt.Engine:
    network = dt.Builder().create_network()
    network.name = HOSTILE
    x = network.add_input(f"x{HOSTILE}", dt.float32, (2, 3))
    layer = network.add_plugin_v3([x], [], _doubled.plugin())
    layer.name = HOSTILE
    layer.get_output(0).name = f"y{HOSTILE}"
    network.mark_output(layer.get_output(0))
    assert SHOWN in network._repr_html_()
    assert HOSTILE not in network._repr_html_()
    return dt.compile(network)


HOSTILE = "<script>alert(1)</script>"
SHOWN = "&lt;script&gt;alert(1)&lt;/script&gt;"


@dt.layer("notebook::doubled", tactics=("sum", "product"))
def _doubled(x: Any, *, tactic: str = "sum") -> Any:
    return x + x if tactic == "sum" else x * 2


def test_notebooks_show_engines_reports_tables_and_benchmarks() -> None:
    with _build_tuned() as engine:
        pages = {
            "engine": engine._repr_html_(),
            "report": engine.report()._repr_html_(),
            "tuning": engine.tuning._repr_html_(),
            "benchmark": engine.benchmark(warmup_s=0, iterations=3)._repr_html_(),
        }
        assert repr(engine.tuning) == "<TuningTable of 1 layer(s), 2 candidate(s)>"
        (layer,) = engine.tuning
        assert [candidate["name"] for candidate in layer["candidates"]] == ["sum", "product"]
    for page in pages.values():
        assert SHOWN in page
        assert HOSTILE not in page
    assert "float32" in pages["engine"]
    assert "Steps (1)" in pages["engine"]
    assert "Tuning (1)" in pages["report"]
    assert pages["tuning"].count("✓") == 1
    assert "median" in pages["benchmark"]


def test_an_engine_with_nothing_to_tune_says_so() -> None:
    with _engine() as engine:
        assert "Nothing was tuned" in engine.tuning._repr_html_()
        assert (len(engine.tuning), "any shape" in engine._repr_html_()) == (0, True)


def test_a_network_that_is_not_complete_is_shown() -> None:
    network = dt.Builder().create_network()
    assert "0 layer(s)" in network._repr_html_()
    x = network.add_input("x", dt.float32, (-1, 3))
    network.add_identity(x)
    shown = network._repr_html_()
    assert "?x3" in shown
    assert "IDENTITY" in shown


def test_a_check_report_shows_failures_first() -> None:
    rule = Rule(id="R99", title="It keeps its word", why="", fix="keep it", judge=lambda subject: None)
    failed = RuleOutcome(rule=rule, status=Status.FAILED, message=HOSTILE, fix="keep it")
    passed = RuleOutcome(rule=rule, status=Status.PASSED)
    page = Report(subject="a plugin", outcomes=(passed, failed))._repr_html_()
    assert "1 passed, 1 failed, 0 not applicable" in page
    assert page.index(SHOWN) < page.index("Other rules (1)")
    assert HOSTILE not in page
    assert "what happened" not in Report(subject="a plugin", outcomes=(passed,))._repr_html_()


def test_a_comparison_is_shown() -> None:
    network = dt.Builder().create_network()
    x = network.add_input("x", dt.float32, (2, 3))
    network.mark_output(network.add_activation(x, dt.ActivationType.RELU).get_output(0))
    page = compare_models(network.to_model(), against="cpu", layers=True)._repr_html_()
    assert "against cpu: close" in page
    assert "Layers (1)" in page


def test_progress_is_told_and_can_cancel(capsys: pytest.CaptureFixture[str]) -> None:
    class Cancel(dt.IProgressMonitor):
        def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None: ...

        def step_complete(self, phase_name: str, step: int) -> bool:
            return False

        def phase_finish(self, phase_name: str) -> None: ...

    network = dt.Builder().create_network()
    x = network.add_input("x", dt.float32, (2, 3))
    network.mark_output(network.add_identity(x).get_output(0))
    dt.compile(network, progress=True).close()
    assert "Build programs done in" in capsys.readouterr().err
    with pytest.raises(dt.BuildCancelledError, match="the progress monitor cancelled"):
        dt.compile(network, progress=Cancel())


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
