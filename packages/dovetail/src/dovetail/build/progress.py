"""How far a build is: the monitor interface, the phases a builder reports through it, and monitors for a terminal.

A monitor may cancel the build. Whatever happens, every phase that was started is finished, and its time is kept.
"""

from __future__ import annotations

import importlib.util
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TextIO

from dovetail.errors import BuildCancelledError, InternalError, UsageError

if TYPE_CHECKING:
    import rich.progress

__all__ = [
    "IProgressMonitor",
    "Phase",
    "PhaseTime",
    "Phases",
    "PlainProgress",
    "RichProgress",
    "make_progress",
]


class IProgressMonitor:
    """Told of every phase of a build, and asked after every step whether to go on.

    Phases nest: one that has a parent starts and finishes within it. Names are unique among the open phases.
    """

    def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None:
        """A phase begins; ``num_steps`` steps are expected."""
        raise NotImplementedError(f"{type(self).__name__} must implement phase_start")

    def step_complete(self, phase_name: str, step: int) -> bool:
        """Step number ``step``, from 0, is done; True to go on, False to cancel the build."""
        raise NotImplementedError(f"{type(self).__name__} must implement step_complete")

    def phase_finish(self, phase_name: str) -> None:
        """The phase is over, whether or not all its steps were done."""
        raise NotImplementedError(f"{type(self).__name__} must implement phase_finish")

    def still_running(self, what: str, seconds: float) -> None:
        """Something within the open phase takes long; told about once a second. Nothing by default."""


class PhaseTime(NamedTuple):
    """How long a phase took."""

    name: str
    parent: str | None
    seconds: float


class Phase:
    """A phase that is open; made by ``Phases.phase``."""

    def __init__(self, phases: Phases, name: str, parent: str | None, num_steps: int) -> None:
        self.name: Final = name
        self.parent: Final = parent
        self.num_steps: Final = num_steps
        self._phases = phases
        self._done = 0

    def step(self) -> None:
        """Report the next step.

        Raises:
            BuildCancelledError: The monitor said stop; all open phases have been finished.
            UsageError: The monitor raised, or did not answer.
        """
        if self._done >= self.num_steps:
            raise InternalError("a phase has more steps than it said", where=self.name, expected=self.num_steps)
        self._done += 1
        self._phases.report_step(self.name, self._done - 1)


class Phases:
    """The phases of one build: reports them, times them, and turns a monitor's ``False`` into an error.

    >>> phases = Phases()
    >>> with phases.phase("build", steps=1) as build:
    ...     with phases.phase("tune"):
    ...         pass
    ...     build.step()
    >>> [(name, parent) for name, parent, seconds in phases.times]
    [('build', None), ('tune', 'build')]

    Args:
        monitor: Who is told; None for nobody.
        clock: Seconds.
    """

    def __init__(
        self, monitor: IProgressMonitor | None = None, *, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._monitor = monitor
        self._clock = clock
        self._open: list[Phase] = []
        self._starts: list[tuple[Phase, float]] = []
        self._ends: dict[Phase, float] = {}
        self._cancelled: str | None = None

    @property
    def times(self) -> list[PhaseTime]:
        """Name, parent and seconds of every phase that is over, in the order they began."""
        return [
            PhaseTime(phase.name, phase.parent, self._ends[phase] - start)
            for phase, start in self._starts
            if phase in self._ends
        ]

    @contextmanager
    def phase(self, name: str, *, steps: int = 0) -> Iterator[Phase]:
        """A phase for as long as the block runs, within the one that is open already."""
        phase = self._start(name, steps)
        try:
            yield phase
        except BaseException as error:
            self._finish_after(error, phase)
            raise
        self._finish(phase)

    def report_step(self, name: str, step: int) -> None:
        """Tell the monitor of a step; what ``Phase.step`` calls."""
        self._check_not_cancelled()
        answer = self._tell("step_complete", name, step) if self._monitor is not None else True
        if answer is None:
            self._monitor = None
            raise UsageError(
                "step_complete returned nothing", where="progress monitor", expected="True to go on, False to cancel"
            )
        if not answer:
            self._cancelled = f"the progress monitor cancelled the build in phase '{name}', step {step}"
            for phase in reversed(self._open.copy()):
                self._finish(phase)
            self._check_not_cancelled()

    def tell_waiting(self, what: str, seconds: float) -> None:
        """Tell the monitor of something that takes long and is neither a phase nor a step."""
        if isinstance(self._monitor, IProgressMonitor):
            self._tell("still_running", what, seconds)

    def _start(self, name: str, steps: int) -> Phase:
        self._check_not_cancelled()
        if any(phase.name == name for phase in self._open):
            raise InternalError("a phase of this name is open already", where=name)
        phase = Phase(self, name, self._open[-1].name if self._open else None, steps)
        self._starts.append((phase, self._clock()))
        self._open.append(phase)
        try:
            self._tell("phase_start", name, phase.parent, steps)
        except UsageError:
            self._close(phase)
            raise
        return phase

    def _finish(self, phase: Phase) -> None:
        """Once a phase: a cancelled build finishes all of them before its error passes their blocks."""
        if phase not in self._ends:
            self._close(phase)
            self._tell("phase_finish", phase.name)

    def _finish_after(self, error: BaseException, phase: Phase) -> None:
        """Finish while an error passes; the monitor's own error must not hide it."""
        try:
            self._finish(phase)
        except UsageError as second:
            error.add_note(f"while this was reported: {second}")

    def _close(self, phase: Phase) -> None:
        self._ends[phase] = self._clock()
        self._open.remove(phase)

    def _tell(self, method: str, *arguments: Any) -> Any:
        if self._monitor is None:
            return None
        try:
            return getattr(self._monitor, method)(*arguments)
        except Exception as error:
            kind = type(self._monitor).__name__
            self._monitor = None  # it is broken: asking it again would only hide this
            raise UsageError(
                f"{method} raised {type(error).__name__}: {error}",
                where=f"progress monitor {kind}",
                fix="a monitor must not raise; return False from step_complete to cancel a build",
            ) from error

    def _check_not_cancelled(self) -> None:
        if self._cancelled is not None:
            raise BuildCancelledError(self._cancelled)


class PlainProgress(IProgressMonitor):
    """One line when a phase begins and one when it ends; for logs and pipes."""

    def __init__(self, stream: TextIO, *, clock: Callable[[], float] = time.perf_counter) -> None:
        self._stream = stream
        self._clock = clock
        self._open: dict[str, tuple[int, float]] = {}
        self._steps: dict[str, int] = {}
        self._told: dict[str, float] = {}
        """What takes long, and after how many seconds that was told."""

    def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None:
        """Print the name, indented under its parent."""
        depth = self._open[parent_phase][0] + 1 if parent_phase in self._open else 0
        self._open[phase_name] = (depth, self._clock())
        self._steps[phase_name] = 0
        count = f" ({num_steps} steps)" if num_steps else ""
        self._print(depth, f"{phase_name}{count} ...")

    def step_complete(self, phase_name: str, step: int) -> bool:
        """Count; a line a step would be noise."""
        self._steps[phase_name] = step + 1
        return True

    def phase_finish(self, phase_name: str) -> None:
        """Print the time."""
        depth, start = self._open.pop(phase_name)
        count = self._steps.pop(phase_name)
        steps = f", {count} steps" if count else ""
        self._print(depth, f"{phase_name} done in {self._clock() - start:.2f} s{steps}")

    def still_running(self, what: str, seconds: float) -> None:
        """Print what takes long, at first and whenever it has taken twice as long as when it was last told."""
        told_s = self._told.get(what, 0.0)
        if seconds < told_s:
            told_s = 0.0  # it runs again
        if seconds >= 2 * told_s:
            self._told = {what: seconds}
            self._print(len(self._open), f"{what} ... {seconds:.0f} s")

    def _print(self, depth: int, text: str) -> None:
        self._stream.write(f"{'  ' * depth}{text}\n")
        self._stream.flush()


class RichProgress(IProgressMonitor):
    """Bars in a terminal, one a phase; those deep inside vanish when they are done. Needs the package rich.

    Bars are drawn when something happens and never by a thread of their own, which would run while kernels are timed.
    """

    def __init__(self, stream: TextIO, *, color: bool = True) -> None:
        from rich.console import Console

        self._console = Console(file=stream, force_terminal=True, no_color=not color)
        self._bars = self._make_bars()
        self._open: dict[str, tuple[int, Any]] = {}
        self._waiting: Any = None
        """The line of what takes long; it goes when anything else happens."""

    def _make_bars(self) -> rich.progress.Progress:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
        from rich.table import Column

        # A fixed width, because phases that follow each other are separate displays and are to look like one.
        name = TextColumn("{task.description}", table_column=Column(min_width=20, no_wrap=True, overflow="ellipsis"))
        columns = (
            name,
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TextColumn("{task.elapsed:6.2f} s", style="progress.elapsed"),
        )
        return Progress(*columns, console=self._console, auto_refresh=False)

    def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None:
        """Add a bar under its parent's."""
        from rich.markup import escape

        self._drop_waiting()
        if not self._open:
            self._bars = self._make_bars()
            self._bars.start()
        depth = self._open[parent_phase][0] + 1 if parent_phase in self._open else 0
        # A phase without steps is one step, done when it is finished.
        bar = self._bars.add_task("  " * depth + escape(phase_name), total=num_steps or 1, stepless=num_steps == 0)
        self._open[phase_name] = (depth, bar)
        self._bars.refresh()

    def step_complete(self, phase_name: str, step: int) -> bool:
        """Move the bar."""
        self._drop_waiting()
        self._bars.update(self._open[phase_name][1], completed=step + 1, refresh=True)
        return True

    def phase_finish(self, phase_name: str) -> None:
        """Stop the bar's clock, and let go of the terminal after the last."""
        self._drop_waiting()
        depth, bar = self._open.pop(phase_name)
        if self._bars.tasks[self._bars.task_ids.index(bar)].fields["stepless"]:
            self._bars.update(bar, completed=1)
        self._bars.stop_task(bar)
        if depth > 1:
            self._bars.remove_task(bar)
        self._bars.refresh()
        if not self._open:
            self._bars.stop()

    def still_running(self, what: str, seconds: float) -> None:
        """Show what takes long in a line of its own, with its clock."""
        from rich.markup import escape

        if not self._open:
            return
        text = f"{'  ' * len(self._open)}{seconds:.0f} s in {escape(what)}"
        if self._waiting is None:
            self._waiting = self._bars.add_task(text, total=None)
        self._bars.update(self._waiting, description=text, refresh=True)

    def _drop_waiting(self) -> None:
        if self._waiting is not None:
            self._bars.remove_task(self._waiting)
            self._waiting = None


def make_progress(stream: TextIO, *, quiet: bool = False) -> IProgressMonitor | None:
    """The monitor that suits a stream: bars on a terminal, lines elsewhere, nothing when quiet.

    ``NO_COLOR`` takes the colours away; a terminal that cannot move its cursor (``TERM=dumb``) gets lines.
    """
    if quiet:
        return None
    is_terminal = stream.isatty() and os.environ.get("TERM") != "dumb"
    if not is_terminal or importlib.util.find_spec("rich") is None:
        return PlainProgress(stream)
    return RichProgress(stream, color=not os.environ.get("NO_COLOR"))
