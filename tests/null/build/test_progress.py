"""Progress: what a monitor is told and in which order, cancelling, broken monitors, and what a terminal shows."""

from __future__ import annotations

import io
import itertools
import re
import subprocess
import sys
import threading

import pytest

import dovetail
from dovetail.build.progress import IProgressMonitor, Phases, PlainProgress, RichProgress, make_progress
from dovetail.errors import BuildCancelledError, BuildError, InternalError, UsageError


class Recorder(IProgressMonitor):
    """Keeps what it is told; says stop at one call, or raises in one method."""

    def __init__(self, *, stop_at: tuple[str, int] | None = None, broken: str = "", answer: object = True) -> None:
        self.calls: list[tuple[object, ...]] = []
        self.stop_at, self.broken, self.answer = stop_at, broken, answer

    def _note(self, *call: object) -> None:
        self.calls.append(call)
        if call[0] == self.broken:
            raise LookupError("broken monitor")

    def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None:
        self._note("phase_start", phase_name, parent_phase, num_steps)

    def step_complete(self, phase_name: str, step: int) -> bool:
        self._note("step_complete", phase_name, step)
        return False if (phase_name, step) == self.stop_at else self.answer  # type: ignore[return-value]

    def phase_finish(self, phase_name: str) -> None:
        self._note("phase_finish", phase_name)


def run_build(phases: Phases, *, error: Exception | None = None) -> None:
    with phases.phase("build", steps=2) as build:
        with phases.phase("tune", steps=3) as tune:
            for _ in range(3):
                tune.step()
            if error:
                raise error
        build.step()
        with phases.phase("write"):
            pass
        build.step()


COMPLETE = [
    ("phase_start", "build", None, 2),
    ("phase_start", "tune", "build", 3),
    ("step_complete", "tune", 0),
    ("step_complete", "tune", 1),
    ("step_complete", "tune", 2),
    ("phase_finish", "tune"),
    ("step_complete", "build", 0),
    ("phase_start", "write", "build", 0),
    ("phase_finish", "write"),
    ("step_complete", "build", 1),
    ("phase_finish", "build"),
]


def test_public_name() -> None:
    assert dovetail.IProgressMonitor is IProgressMonitor


def test_a_monitor_hears_everything_in_order() -> None:
    monitor = Recorder()
    run_build(Phases(monitor))
    assert monitor.calls == COMPLETE


def test_times_are_kept_with_and_without_a_monitor() -> None:
    for monitor in (None, Recorder()):
        ticks = itertools.count()
        phases = Phases(monitor, clock=lambda ticks=ticks: float(next(ticks)))
        run_build(phases)
        assert phases.times == [("build", None, 5.0), ("tune", "build", 1.0), ("write", "build", 1.0)]


def test_a_phase_that_is_open_has_no_time_yet() -> None:
    phases = Phases()
    with phases.phase("build"):
        with phases.phase("tune"):
            pass
        assert [t.name for t in phases.times] == ["tune"]
    assert [t.name for t in phases.times] == ["build", "tune"]


@pytest.mark.parametrize(("stop_at", "heard"), [(("tune", 1), 4), (("tune", 0), 3), (("build", 0), 7)])
def test_false_cancels_and_finishes_every_open_phase(stop_at: tuple[str, int], heard: int) -> None:
    monitor = Recorder(stop_at=stop_at)
    phases = Phases(monitor)
    with pytest.raises(BuildCancelledError, match=f"in phase '{stop_at[0]}', step {stop_at[1]}"):
        run_build(phases)
    still_open = ["tune", "build"] if stop_at[0] == "tune" else ["build"]
    assert monitor.calls == [*COMPLETE[:heard], *(("phase_finish", name) for name in still_open)]
    assert [t.name for t in phases.times] == ["build", "tune"]


def test_the_phases_are_finished_before_the_error_is_raised() -> None:
    monitor = Recorder(stop_at=("tune", 0))
    phases = Phases(monitor)
    with phases.phase("build", steps=2), phases.phase("tune", steps=3) as tune:
        with pytest.raises(BuildCancelledError):
            tune.step()
        assert monitor.calls[-2:] == [("phase_finish", "tune"), ("phase_finish", "build")]
    assert len(monitor.calls) == 5


def test_a_cancelled_build_starts_nothing_more() -> None:
    monitor = Recorder(stop_at=("build", 0))
    phases = Phases(monitor)
    with phases.phase("build", steps=2) as build:
        with pytest.raises(BuildCancelledError):
            build.step()
        with pytest.raises(BuildCancelledError):
            build.step()
        with pytest.raises(BuildCancelledError), phases.phase("write"):
            pytest.fail("the phase must not begin")
    assert monitor.calls == [COMPLETE[0], ("step_complete", "build", 0), ("phase_finish", "build")]


def test_a_build_that_fails_finishes_its_phases() -> None:
    monitor = Recorder()
    with pytest.raises(BuildError, match="no tactic"):
        run_build(Phases(monitor), error=BuildError("no tactic"))
    assert monitor.calls == [*COMPLETE[:6], ("phase_finish", "build")]


@pytest.mark.parametrize("method", ["phase_start", "step_complete", "phase_finish"])
def test_a_monitor_that_raises_is_named_and_left_alone(method: str) -> None:
    monitor = Recorder(broken=method)
    phases = Phases(monitor)
    with pytest.raises(UsageError, match=rf"progress monitor Recorder: {method} raised LookupError: broken") as caught:
        run_build(phases)
    assert isinstance(caught.value.__cause__, LookupError)
    assert [call[0] for call in monitor.calls].count(method) == 1
    assert monitor.calls[-1][0] == method
    assert phases._open == []


def test_a_monitor_that_raises_does_not_hide_the_error_of_the_build() -> None:
    with pytest.raises(BuildError, match="no tactic") as caught:
        run_build(Phases(Recorder(broken="phase_finish")), error=BuildError("no tactic"))
    assert "phase_finish raised LookupError" in caught.value.__notes__[0]


def test_a_monitor_that_forgets_to_answer_is_told() -> None:
    with pytest.raises(UsageError, match="step_complete returned nothing; expected True to go on, False to cancel"):
        run_build(Phases(Recorder(answer=None)))


def test_a_monitor_must_implement_the_three_methods() -> None:
    with pytest.raises(UsageError, match="phase_start raised NotImplementedError: IProgressMonitor must implement"):
        run_build(Phases(IProgressMonitor()))


def test_mistakes_of_the_builder_are_found() -> None:
    phases = Phases()
    with phases.phase("build", steps=1) as build:
        build.step()
        with pytest.raises(InternalError, match="more steps than it said"):
            build.step()
        with pytest.raises(InternalError, match="open already"), phases.phase("build"):
            pytest.fail("the phase must not begin")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_plain_lines() -> None:
    stream = io.StringIO()
    ticks = itertools.count()
    run_build(Phases(PlainProgress(stream, clock=lambda: float(next(ticks)))))
    assert stream.getvalue().splitlines() == [
        "build (2 steps) ...",
        "  tune (3 steps) ...",
        "  tune done in 1.00 s, 3 steps",
        "  write ...",
        "  write done in 1.00 s",
        "build done in 5.00 s, 2 steps",
    ]


def test_plain_lines_of_phases_that_follow_each_other() -> None:
    stream = io.StringIO()
    phases = Phases(PlainProgress(stream))
    for name in ("one", "two", "one"):
        with phases.phase(name):
            pass
    assert len(stream.getvalue().splitlines()) == 6


def screen(text: str) -> list[str]:
    """What is left on a terminal after it has obeyed the cursor: up a line, and erase a line."""
    lines, row = [""], 0
    for token in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|\r|\n|[^\x1b\r\n]+", text):
        if token == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif re.fullmatch(r"\x1b\[\d*A", token):
            row -= int(token[2:-1] or 1)
        elif re.fullmatch(r"\x1b\[\d*K", token):
            lines[row] = ""
        elif token[0] not in "\x1b\r":
            lines[row] += token
    return [line.rstrip() for line in lines if line.strip()]


def test_bars_are_drawn_without_a_thread_and_stay_filled() -> None:
    stream, before = Terminal(), threading.active_count()
    phases = Phases(RichProgress(stream))
    with phases.phase("build [all]", steps=2) as build:
        with phases.phase("tune", steps=3) as tune:
            tune.step()
            assert threading.active_count() == before
            assert "1/3" in screen(stream.getvalue())[1]
            with phases.phase("layer", steps=1) as inner:
                inner.step()
                assert "layer" in screen(stream.getvalue())[2]
            tune.step()
            tune.step()
        build.step()
        build.step()
    lines = screen(stream.getvalue())
    assert [line.split("━")[0].strip() for line in lines] == ["build [all]", "tune"]
    assert ["2/2" in lines[0], "3/3" in lines[1]] == [True, True]


def test_bars_of_phases_that_follow_each_other_are_drawn_once() -> None:
    stream = Terminal()
    phases = Phases(RichProgress(stream))
    for name in ("first", "second", "third"):
        with phases.phase(name):
            pass
    lines = screen(stream.getvalue())
    assert [line.split()[0] for line in lines] == ["first", "second", "third"]
    assert all("1/1" in line for line in lines)


def test_bars_let_go_of_the_terminal_when_the_build_fails() -> None:
    stream = Terminal()
    with pytest.raises(BuildError):
        run_build(Phases(RichProgress(stream)), error=BuildError("no tactic"))
    assert stream.getvalue().rindex("\x1b[?25h") > stream.getvalue().rindex("\x1b[?25l"), "the cursor is back"


def test_the_monitor_suits_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    assert make_progress(Terminal(), quiet=True) is None
    assert isinstance(make_progress(io.StringIO()), PlainProgress)
    assert isinstance(make_progress(Terminal()), RichProgress)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(make_progress(Terminal()), PlainProgress)


@pytest.mark.parametrize("no_color", [False, True])
def test_no_color_is_honoured(monkeypatch: pytest.MonkeyPatch, no_color: bool) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("NO_COLOR", "1") if no_color else monkeypatch.delenv("NO_COLOR", raising=False)
    stream = Terminal()
    run_build(Phases(make_progress(stream)))
    has_color = re.search(r"\x1b\[[0-9;]*3[0-9](;[0-9;]*)?m", stream.getvalue()) is not None
    assert has_color is not no_color


def test_without_rich_there_are_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert isinstance(make_progress(Terminal()), PlainProgress)


def test_rich_is_imported_only_for_bars() -> None:
    code = "import sys, dovetail.build.progress as p; p.make_progress(sys.stderr); print('rich' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
