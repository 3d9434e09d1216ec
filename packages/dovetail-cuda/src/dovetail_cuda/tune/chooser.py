"""Choosing a way: all kernels are compiled side by side, then the core's tuner times what can be chosen between."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from dovetail.errors import BuildError
from dovetail.loggers import Severity
from dovetail.provider.interfaces import BuildContext
from dovetail_cuda.choose.asking import Asker, MakeTrial, Reference
from dovetail_cuda.choose.records import (
    ConvolutionOffer,
    OperandRecord,
    QuestionRecord,
    ReferenceRecord,
    TemporaryRecord,
    WayRecord,
)
from dovetail_cuda.choose.reference import compute_reference
from dovetail_cuda.compile.request import CompiledCode
from dovetail_cuda.compile.store import KernelStore
from dovetail_cuda.emit.kernels import KernelTable
from dovetail_cuda.graph.rounding import find_rounding
from dovetail_cuda.lower.tensors import refuse
from dovetail_cuda.tune.questions import Question, Task, Way

__all__ = ["Chooser", "ChosenWay"]


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
        self.kernels = KernelTable(self.compiled)
        """The kernels of all ways that records were made of."""

    def prepare(self, questions: Sequence[Question]) -> None:
        """Compile the kernels of all ways of all questions side by side."""
        new = [question for question in questions if question.text not in self._ways]
        proposed = {question.text: list(question.make_ways()) for question in new}
        self._compile([way for ways in proposed.values() for way in ways])
        for text, ways in proposed.items():
            self._ways[text] = [way for way in ways if all(each.make_key() in self.compiled for each in way.requests)]

    def choose(self, task: Task) -> ChosenWay:
        """The fastest right way of those that can be launched."""
        question = task.question
        if question.text not in self._chosen:
            self.prepare([question])
            ways = [way for way in self._ways[question.text] if way.is_complete]
            self._chosen[question.text] = self._ask(task, ways)
        return self._chosen[question.text]

    def describe(self, task: Task) -> QuestionRecord:
        """The question of a task with all its ways, also those for which a library must still be asked."""
        return self._describe(task, self._ways[task.question.text])

    def _compile(self, ways: Sequence[Way]) -> None:
        """Compile what is missing; what does not compile is told, and its way left out."""
        requests = {request.make_key(): request for way in ways for request in way.requests}
        missing = [request for key, request in requests.items() if key not in self.compiled]
        for request, made in zip(missing, self._store.try_all(missing, self._context.workers), strict=True):
            if isinstance(made, BuildError):
                self._context.logger.log(Severity.WARNING, f"a candidate is left out: {made}")
            elif made.shared_bytes <= self._shared_bytes and not made.scratch_bytes:
                self.compiled[request.make_key()] = made

    def _ask(self, task: Task, ways: Sequence[Way]) -> ChosenWay:
        if not ways:
            raise refuse(f"nothing does this: {task.question.text}")
        if len(ways) == 1:
            return ChosenWay(way=ways[0], time_us=None)
        record = self._describe(task, ways)
        asker = Asker(
            tuner=self._context.tuner,
            make_trial=self._make_trial,
            kernels=self.kernels.records,
            code=self.kernels.code,
        )
        answer = asker.ask(record, _find_reference(task, record))
        return ChosenWay(way=ways[answer.way], time_us=answer.time_us)

    # records

    def _describe(self, task: Task, ways: Sequence[Way]) -> QuestionRecord:
        question, roles = task.question, list(task.places)
        operands = [question.operands[role] for role in roles] if question.operands else []
        rounding = find_rounding(task.region)
        return QuestionRecord(
            text=question.text,
            num_roles=len(roles),
            operands=[OperandRecord(count=each.count, dtype=each.dtype, kind=each.kind) for each in operands],
            ways=[self._describe_way(way, roles, rounding) for way in ways],
            reference=_describe_product(question, roles),
            convolution=_describe_convolution(question, roles, rounding),
        )

    def _describe_way(self, way: Way, roles: Sequence[str], rounding: float) -> WayRecord:
        names = [*roles, *way.temporaries]
        numbers = [[names.index(role) for role in draft.roles] for draft in way.drafts]
        temporaries = way.temporaries.values()
        return WayRecord(
            name=way.name,
            launches=[
                draft.make_launch(self.kernels, buffers, [], [])
                for draft, buffers in zip(way.drafts, numbers, strict=True)
            ],
            temporaries=[TemporaryRecord(size_bytes=each.size_bytes, is_zeroed=each.is_zeroed) for each in temporaries],
            scratch_bytes=way.scratch_bytes,
            tolerance=max(way.tolerance, rounding),
            rank=way.rank,
        )


def _describe_product(question: Question, roles: Sequence[str]) -> ReferenceRecord | None:
    if question.product is None:
        return None
    product, named = question.product
    return ReferenceRecord(product=product, roles=[roles.index(role) for role in named])


def _describe_convolution(question: Question, roles: Sequence[str], rounding: float) -> ConvolutionOffer | None:
    ask = question.convolution
    if ask is None:
        return None
    return ConvolutionOffer(
        convolution=ask.convolution,
        roles=[roles.index(role) for role in ask.roles],
        image_offset=ask.image_offset,
        tolerance=max(ask.tolerance, rounding),
    )


def _find_reference(task: Task, record: QuestionRecord) -> Reference:
    """What tells right results: the question itself, or the product that it is."""
    if record.reference is not None:
        return partial(compute_reference, record.reference, [operand.count for operand in record.operands])

    def compute(arrays: Sequence[Any]) -> Sequence[Any] | None:
        pairs = zip(task.places, arrays, strict=True)
        given: Mapping[str, Any] = {role: array for role, array in pairs if array is not None}
        return task.question.reference(given)

    return compute
