"""Choosing a way: all kernels are compiled side by side, then the core's tuner times what can be chosen between."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from dovetail.errors import BuildError
from dovetail.loggers import Severity
from dovetail.provider.interfaces import BuildContext, Candidate
from dovetail_cuda.compile.request import CompiledCode
from dovetail_cuda.compile.store import KernelStore
from dovetail_cuda.emit.kernels import KernelTable
from dovetail_cuda.lower.tensors import refuse
from dovetail_cuda.run.trial import Trial, TrialBuffer, TrialLaunches, sample
from dovetail_cuda.tune.questions import Question, Way

__all__ = ["Chooser", "ChosenWay"]

MakeTrial = Callable[[Mapping[str, TrialBuffer]], Trial]


@dataclass(frozen=True, kw_only=True)
class ChosenWay:
    """What was chosen."""

    way: Way
    time_us: float | None


class Chooser:
    """Chooses for the regions of one partition; equal questions are asked once.

    Args:
        context: Has the tuner.
        store: Has or compiles kernels.
        make_trial: Places memory on the device.
        shared_bytes: The shared memory that one program may have; ways that need more are left out.
    """

    def __init__(self, context: BuildContext, *, store: KernelStore, make_trial: MakeTrial, shared_bytes: int) -> None:
        self._context = context
        self._store = store
        self._make_trial = make_trial
        self._shared_bytes = shared_bytes
        self._ways: dict[str, list[Way]] = {}
        self._chosen: dict[str, ChosenWay] = {}
        self.compiled: dict[str, CompiledCode] = {}
        """Everything that was compiled, by the key of its request."""

    def prepare(self, questions: Sequence[Question]) -> None:
        """Compile the kernels of all ways of all questions side by side."""
        new = [question for question in questions if question.text not in self._ways]
        proposed = {question.text: list(question.make_ways()) for question in new}
        self._compile([way for ways in proposed.values() for way in ways])
        for text, ways in proposed.items():
            self._ways[text] = [way for way in ways if all(each.make_key() in self.compiled for each in way.requests)]

    def choose(self, question: Question) -> ChosenWay:
        """The fastest right way."""
        if question.text not in self._chosen:
            self.prepare([question])
            self._chosen[question.text] = self._ask(question, self._ways[question.text])
        return self._chosen[question.text]

    def _compile(self, ways: Sequence[Way]) -> None:
        """Compile what is missing; what does not compile is told, and its way left out."""
        requests = {request.make_key(): request for way in ways for request in way.requests}
        missing = [request for key, request in requests.items() if key not in self.compiled]
        for request, made in zip(missing, self._store.try_all(missing, self._context.workers), strict=True):
            if isinstance(made, BuildError):
                self._context.logger.log(Severity.WARNING, f"a candidate is left out: {made}")
            elif made.shared_bytes <= self._shared_bytes:
                self.compiled[request.make_key()] = made

    def _ask(self, question: Question, ways: Sequence[Way]) -> ChosenWay:
        if not ways:
            raise refuse(f"nothing does this: {question.text}")
        if len(ways) == 1:
            return ChosenWay(way=ways[0], time_us=None)
        numbers = _Numbers(question)
        trial = self._make_trial({role: numbers.place(role) for role in question.operands})
        try:
            candidates = [self._make_candidate(trial, way) for way in ways]
            found = self._context.tuner.choose(question.text, candidates, reference=numbers.find_right)
        finally:
            trial.close()
        return ChosenWay(way=next(way for way in ways if way.name == found.name), time_us=found.time_us)

    def _make_candidate(self, trial: Trial, way: Way) -> Candidate:
        def start() -> Callable[[], None]:
            stream = self._context.tuner.stream
            if stream is None:
                raise refuse("ways are timed on a stream")
            return trial.start(self._make_launches(trial, way), stream)

        return Candidate(name=way.name, start=start, results=partial(_collect, trial, start), tolerance=way.tolerance)

    def _make_launches(self, trial: Trial, way: Way) -> TrialLaunches:
        """The launches of a way over the memory of a trial."""
        names = [*trial.roles, *way.temporaries]
        table = KernelTable(self.compiled)
        launches = [
            draft.make_launch(table, [names.index(role) for role in draft.roles], [], []) for draft in way.drafts
        ]
        return TrialLaunches(
            kernels=table.records,
            code=table.code,
            launches=launches,
            temporaries=[(each.size_bytes, each.is_zeroed) for each in way.temporaries.values()],
            scratch_bytes=way.scratch_bytes,
        )


def _collect(trial: Trial, start: Callable[[], Callable[[], None]]) -> Sequence[Any]:
    """Run once and read the results."""
    trial.spoil_outputs()
    start()()
    return trial.read_outputs()


class _Numbers:
    """Numbers for the operands of a question, the same in every build; made when something is timed."""

    def __init__(self, question: Question) -> None:
        self._question = question

    def place(self, role: str) -> TrialBuffer:
        """Memory for an operand."""
        operand = self._question.operands[role]
        make_array = None if operand.kind == "output" else lambda: self._arrays[role]
        is_weight = operand.kind == "weight"
        return TrialBuffer(dtype=operand.dtype, count=operand.count, make_array=make_array, is_weight=is_weight)

    def find_right(self) -> list[Any] | None:
        """What comes of them, where that is known; of many elements some from everywhere."""
        right = self._question.reference(self._arrays)
        return None if right is None else [sample(np.ravel(array)) for array in right]

    @cached_property
    def _arrays(self) -> dict[str, Any]:
        import ml_dtypes  # noqa: F401 - has NumPy know the names of its types

        rng, made = np.random.default_rng(13), {}
        for role, operand in self._question.operands.items():
            if operand.kind != "output":
                drawn = rng.standard_normal(operand.count, np.float32) if operand.array is None else operand.array
                made[role] = np.ascontiguousarray(drawn, np.dtype(operand.dtype))
        return made
