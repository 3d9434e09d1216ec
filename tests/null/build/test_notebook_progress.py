"""The line that a build leaves in a notebook."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from dovetail.build.notebook_progress import NotebookProgress, is_notebook
from dovetail.build.progress import Phases


class Lines:
    """A place that shows one text at a time."""

    def __init__(self) -> None:
        self.history: list[str] = []
        self.shown = 0

    def show(self, text: str) -> Callable[[str], object]:
        self.shown += 1
        self.history.append(text)
        return self.history.append


def test_one_line_changes_and_stays() -> None:
    lines = Lines()
    ticks = itertools.count()
    phases = Phases(NotebookProgress(lines.show, clock=lambda: float(next(ticks))))
    with phases.phase("Optimise network"):
        pass
    with phases.phase("Build programs", steps=2) as outer:
        with phases.phase("Tune", steps=1) as inner:
            phases.tell_waiting("tactic 3", 4.2)
            inner.step()
        outer.step()
    assert lines.shown == 1
    assert lines.history[0] == "Optimise network"
    assert "Build programs 0/2 > Tune 0/1 > tactic 3 4 s" in lines.history
    assert "Build programs 0/2 > Tune 1/1" in lines.history
    assert lines.history[-1] == "Build, 3.00 s: optimise network 1.00 s, build programs 2.00 s"


def test_a_test_is_no_notebook() -> None:
    assert not is_notebook()
