"""The progress of a build in a notebook: one line that changes, and stays as what was done and how long it took."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from dovetail import markup
from dovetail.build.progress import IProgressMonitor

__all__ = ["NotebookProgress", "is_notebook"]


def is_notebook() -> bool:
    """Whether this runs in the kernel of a notebook; IPython is not imported to find out."""
    interactive: Any = sys.modules.get("IPython.core.getipython") or sys.modules.get("IPython")
    shell = interactive.get_ipython() if interactive is not None else None
    return getattr(shell, "kernel", None) is not None


class _ProgressLine(str):
    """A line as the front end wants it: HTML where it shows that, else the text."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return markup.line(self)


class NotebookProgress(IProgressMonitor):
    """Shows the open phases and their steps in one line, and at the end the time of each phase.

    Args:
        show: Shows a text, and gives what shows another one in its place.
        clock: Seconds.
    """

    def __init__(
        self,
        show: Callable[[str], Callable[[str], object]] | None = None,
        *,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._show = show or _show_line
        self._clock = clock
        self._update: Callable[[str], object] | None = None
        self._open: dict[str, tuple[int, float]] = {}
        """How many steps each open phase has, and when it began."""
        self._done: dict[str, float] = {}
        """The seconds of the outer phases that are over."""
        self._steps: dict[str, int] = {}

    def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None:
        """Show the phase behind those that are open."""
        self._open[phase_name] = (num_steps, self._clock())
        self._steps[phase_name] = 0
        self._tell(self._open_text())

    def step_complete(self, phase_name: str, step: int) -> bool:
        """Count."""
        self._steps[phase_name] = step + 1
        self._tell(self._open_text())
        return True

    def phase_finish(self, phase_name: str) -> None:
        """Show what is done when no phase is open any more."""
        _, start = self._open.pop(phase_name)
        if self._open:
            self._tell(self._open_text())
        else:
            self._done[phase_name] = self._clock() - start
            self._tell(self._done_text())

    def still_running(self, what: str, seconds: float) -> None:
        """Show what takes long behind the open phases."""
        self._tell(f"{self._open_text()} > {what} {seconds:.0f} s")

    def _open_text(self) -> str:
        return " > ".join(
            f"{name} {self._steps[name]}/{count}" if count else name for name, (count, _) in self._open.items()
        )

    def _done_text(self) -> str:
        phases = ", ".join(f"{name.lower()} {seconds:.2f} s" for name, seconds in self._done.items())
        return f"Build, {sum(self._done.values()):.2f} s: {phases}"

    def _tell(self, text: str) -> None:
        if self._update is None:
            self._update = self._show(text)
        else:
            self._update(text)


def _show_line(text: str) -> Callable[[str], object]:
    from IPython.display import display  # it is there: a kernel runs this

    handle: Any = display(_ProgressLine(text), display_id=True)
    return lambda changed: handle.update(_ProgressLine(changed))
