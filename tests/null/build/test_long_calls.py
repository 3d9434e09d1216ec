"""Something that takes long is told with its name and for how long it has run."""

from __future__ import annotations

import io
import time

import pytest

from dovetail.build.progress import IProgressMonitor, Phases, PlainProgress, RichProgress
from dovetail.build.tune import worker as worker_module
from dovetail.build.tune.worker import CallTimeoutError, TimingWorker


@pytest.fixture
def _quick_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_module, "_PATIENCE_S", 0.05)
    monkeypatch.setattr(worker_module, "_TICK_S", 0.05)


@pytest.mark.usefixtures("_quick_ticks")
def test_the_waiting_thread_is_told_of_a_long_call() -> None:
    with TimingWorker() as worker:
        ticks: list[float] = []
        worker.on_wait = ticks.append
        assert worker.call(lambda: 1, 5.0) == 1
        assert ticks == []
        worker.call(lambda: time.sleep(0.3), 5.0)
        assert len(ticks) >= 2
        assert ticks == sorted(ticks)
        with pytest.raises(CallTimeoutError):
            worker.call(lambda: [time.sleep(0.01) for _ in range(200)], 0.2)


def test_logs_get_a_line_whenever_the_time_has_doubled() -> None:
    stream = io.StringIO()
    monitor = PlainProgress(stream)
    phases = Phases(monitor)
    with phases.phase("Tune", steps=1):
        for seconds in range(2, 20):
            phases.tell_waiting("tactic 2 'slow' of 'custom'", float(seconds))
        phases.tell_waiting("tactic 2 'slow' of 'custom'", 2.0)
    lines = [line for line in stream.getvalue().splitlines() if "slow" in line]
    assert lines == [f"  tactic 2 'slow' of 'custom' ... {n} s" for n in (2, 4, 8, 16, 2)]


def test_a_terminal_has_a_line_that_ticks_and_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("rich")
    monkeypatch.setenv("COLUMNS", "80")
    stream = io.StringIO()
    phases = Phases(RichProgress(stream, color=False))
    with phases.phase("Tune", steps=1) as phase:
        phases.tell_waiting("tactic 2 'slow' of 'custom'", 2.0)
        phases.tell_waiting("tactic 2 'slow' of 'custom'", 3.0)
        assert "2 s in tactic 2 'slow' of 'custom'" in stream.getvalue()
        assert "3 s in tactic 2 'slow' of 'custom'" in stream.getvalue()
        end = len(stream.getvalue())
        phase.step()
    assert "slow" not in stream.getvalue()[end:]


def test_a_monitor_of_somebody_else_need_not_know() -> None:
    class Monitor(IProgressMonitor):
        def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None: ...

        def step_complete(self, phase_name: str, step: int) -> bool:
            return True

        def phase_finish(self, phase_name: str) -> None: ...

    with Phases(Monitor()).phase("Tune"):
        Phases(Monitor()).tell_waiting("something", 2.0)
