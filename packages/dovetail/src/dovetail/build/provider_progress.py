"""How far a provider is with what it builds: its reports become a phase of the build, which may be cancelled there."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from types import TracebackType
from typing import Final, Self

from dovetail.build.progress import Phase, Phases
from dovetail.errors import DovetailError

__all__ = ["ProviderProgress"]

_MAX_NAME: Final = 200


class ProviderProgress:
    """One phase for one thing that a provider builds, opened by its first report.

    Args:
        phases: Those of the build.
        name: What is built.
    """

    def __init__(self, phases: Phases, name: str) -> None:
        self._phases = phases
        self._name = name[:_MAX_NAME]
        self._stack = ExitStack()
        self._lock = threading.Lock()
        self._phase: Phase | None = None
        self._done = 0
        self.failure: DovetailError | None = None
        """Why the build is to stop, whatever the provider made of the error."""

    def report(self, done: int, total: int) -> None:
        """Take a report; the number of steps is that of the first. Workers of the provider may call it too.

        Raises:
            BuildCancelledError: The build is to stop.
        """
        with self._lock:
            if self.failure is not None:
                raise self.failure
            try:
                self._advance(done, total)
            except DovetailError as error:
                self.failure = error
                raise

    def _advance(self, done: int, total: int) -> None:
        if self._phase is None:
            self._phase = self._stack.enter_context(self._phases.phase(self._name, steps=max(total, 0)))
        while self._done < min(done, self._phase.num_steps):
            self._done += 1
            self._phase.step()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)
