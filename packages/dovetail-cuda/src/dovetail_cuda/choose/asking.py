"""Asking the tuner of the core: the ways of a question are tried over memory of the device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from dovetail.errors import ProviderError
from dovetail.provider.interfaces import Candidate, Tuner
from dovetail_cuda.choose.records import QuestionRecord, UsedKernels, WayRecord, list_code
from dovetail_cuda.run.payload import KernelRecord
from dovetail_cuda.run.trial import Trial, TrialBuffer, TrialLaunches, sample

__all__ = ["Answer", "Asker", "MakeTrial", "Reference"]

MakeTrial = Callable[[Mapping[str, TrialBuffer]], Trial]
"""Places memory on the device."""
Reference = Callable[[Sequence[Any]], Sequence[Any] | None]
"""The right outputs, where they are known, for the arrays of inputs and weights, None in the places of outputs."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The way that was chosen, by its number."""

    way: int
    time_us: float | None


@dataclass(frozen=True, kw_only=True)
class Asker:
    """Asks about ways whose kernels are compiled."""

    tuner: Tuner
    make_trial: MakeTrial
    kernels: Sequence[KernelRecord]
    code: Mapping[str, Any]
    """Of these kernels and of libraries, by name."""

    def ask(self, question: QuestionRecord, reference: Reference) -> Answer:
        """The fastest right way; a single one is not tried."""
        if len(question.ways) == 1:
            return Answer(way=0, time_us=None)
        numbers = _Numbers(question, reference)
        trial = self.make_trial({str(role): numbers.place(role) for role in range(question.num_roles)})
        try:
            candidates = [self._make_candidate(trial, way) for way in question.ways]
            found = self.tuner.choose(question.text, candidates, reference=numbers.find_right)
        finally:
            trial.close()
        return Answer(way=[way.name for way in question.ways].index(found.name), time_us=found.time_us)

    def _make_candidate(self, trial: Trial, way: WayRecord) -> Candidate:
        def start() -> Callable[[], None]:
            stream = self.tuner.stream
            if stream is None:
                raise ProviderError("ways are timed on a stream", where="provider 'cuda'")
            return trial.start(self._make_launches(way), stream)

        return Candidate(name=way.name, start=start, results=partial(_collect, trial, start), tolerance=way.tolerance)

    def _make_launches(self, way: WayRecord) -> TrialLaunches:
        """The launches of a way with the kernels of its own."""
        used = UsedKernels(self.kernels)
        launches = used.renumber(way.launches)
        return TrialLaunches(
            kernels=used.records,
            code={name: self.code[name] for name in list_code(launches, used.records)},
            launches=launches,
            temporaries=[(each.size_bytes, each.is_zeroed) for each in way.temporaries],
            scratch_bytes=way.scratch_bytes,
        )


def _collect(trial: Trial, start: Callable[[], Callable[[], None]]) -> Sequence[Any]:
    """Run once and read the results."""
    trial.spoil_outputs()
    start()()
    return trial.read_outputs()


class _Numbers:
    """Numbers for the operands of a question, the same in every build; made when something is timed."""

    def __init__(self, question: QuestionRecord, reference: Reference) -> None:
        self._question = question
        self._reference = reference

    def place(self, role: int) -> TrialBuffer:
        """Memory for an operand."""
        operand = self._question.operands[role]
        make_array = None if operand.kind == "output" else lambda: self._arrays[role]
        is_weight = operand.kind == "weight"
        return TrialBuffer(dtype=operand.dtype, count=operand.count, make_array=make_array, is_weight=is_weight)

    def find_right(self) -> list[Any] | None:
        """What comes of them, where that is known; of many elements some from everywhere."""
        right = self._reference(self._arrays)
        return None if right is None else [sample(np.ravel(array)) for array in right]

    @cached_property
    def _arrays(self) -> list[Any]:
        import ml_dtypes  # noqa: F401 - has NumPy know the names of its types

        rng, made = np.random.default_rng(13), []
        for operand in self._question.operands:
            is_read = operand.kind != "output"
            drawn = rng.standard_normal(operand.count, np.float32).astype(operand.dtype) if is_read else None
            made.append(drawn)
        return made
