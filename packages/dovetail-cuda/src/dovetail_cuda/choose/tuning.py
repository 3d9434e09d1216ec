"""A partition of a plan that was built where its device was not, tuned on the device by what the plan carries."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import msgspec

from dovetail.errors import PlanCorruptError, ProviderError, ResourceError
from dovetail.provider.interfaces import BuildReport, NodeReport, StoredPartition, TuneContext, TunedPartition
from dovetail_cuda.choose.asking import Answer, Asker
from dovetail_cuda.choose.assembly import assemble
from dovetail_cuda.choose.carried import check_way, count_bytes, read_candidates
from dovetail_cuda.choose.libraries import Libraries
from dovetail_cuda.choose.records import NodeNote, OpenLaunches, QuestionRecord, list_code
from dovetail_cuda.choose.reference import compute_reference
from dovetail_cuda.run.convolutions import BuiltConvPlan, Convolution
from dovetail_cuda.run.cublaslt import ProductLibrary
from dovetail_cuda.run.payload import LaunchList
from dovetail_cuda.run.records import require
from dovetail_cuda.run.trial import Trial, TrialBuffer
from dovetail_cuda.run.variants import Payload, Variant, count_workspace, read_payload, write_payload

__all__ = ["TuningTools", "tune_partition"]


@dataclass(frozen=True, kw_only=True)
class TuningTools:
    """What ways are tried with."""

    capability: int
    open_products: Callable[[], ProductLibrary]
    find_conv_plans: Callable[[Convolution], Sequence[BuiltConvPlan]]
    make_trial: Callable[[Mapping[str, TrialBuffer], bool], Trial]
    """Places memory; the second argument says whether weights are to be found in no cache."""


def tune_partition(stored: StoredPartition, context: TuneContext, tools: TuningTools) -> TunedPartition:
    """Choose ways for every set of shapes that the partition has launches for.

    Raises:
        PlanCorruptError: What the plan carries cannot be.
        ProviderError: It is for another device.
    """
    carried = {} if stored.candidates is None else stored.candidates.code
    whole = replace(stored, code={**stored.code, **carried})
    payload = read_payload(stored)
    candidates = read_candidates(whole, len(payload.variants))
    _check_device(candidates.capability, tools.capability)
    tuner = _PartitionTuner(whole, context, tools)
    made = [tuner.tune(each) for each in candidates.variants]
    variants = [
        Variant(values=before.values, launches=each.launches)
        for before, each in zip(payload.variants, made, strict=True)
    ]
    tuned = msgspec.structs.replace(payload, variants=variants)
    written, names = write_payload(tuned), _list_names(tuned)
    added = {name: code for name, code in tuner.made.items() if name in names and name not in whole.code}
    code = {**whole.code, **{name: memoryview(code) for name, code in added.items()}}
    read_payload(replace(whole, payload=memoryview(written), code=code))  # as it will be when it is loaded
    others = [_report(note, note.tactic, None) for note in candidates.others]
    return TunedPartition(
        payload=written,
        code=[name for name in names if name not in added],
        added=added,
        workspace_bytes=count_workspace(tuned),
        report=BuildReport(nodes=[*(node for each in made for node in each.nodes), *others]),
    )


def _list_names(payload: Payload) -> list[str]:
    """The names of the code that a partition needs."""
    kernels = [] if payload.template is None else payload.template.kernels
    names = [name for each in payload.variants for name in list_code(each.launches.launches, each.launches.kernels)]
    return list(dict.fromkeys([*names, *(kernel.code for kernel in kernels)]))


def _check_device(compiled: int, here: int) -> None:
    if compiled != here:
        raise ProviderError(
            "the candidates are compiled for another device",
            where="provider 'cuda'",
            expected=f"sm_{here}",
            got=f"sm_{compiled}",
            fix=f"build the plan with --target sm_{here}",
        )


def _report(note: NodeNote, tactic: str, time_us: float | None) -> NodeReport:
    return NodeReport(
        name=note.name, op=note.op, layers=note.layers, made_by=note.made_by, tactic=tactic, time_us=time_us
    )


@dataclass(frozen=True, kw_only=True)
class _TunedLaunches:
    """Launches for one set of shapes, and what was chosen for them."""

    launches: LaunchList
    nodes: Sequence[NodeReport]


class _PartitionTuner:
    """Tunes the variants of one partition."""

    def __init__(self, stored: StoredPartition, context: TuneContext, tools: TuningTools) -> None:
        self._code: dict[str, Any] = dict(stored.code)
        self._stored = replace(stored, code=self._code)
        self._context, self._tools = context, tools
        self._libraries = Libraries(tools.open_products, tools.find_conv_plans)

    @property
    def made(self) -> Mapping[str, bytes]:
        """Code that libraries have made, by name."""
        return self._libraries.code

    def tune(self, launches: OpenLaunches) -> _TunedLaunches:
        """The launches of the fastest right ways."""
        complete = self._complete(launches)
        answers = [self._ask(question, complete, n) for n, question in enumerate(complete.questions)]
        nodes = []
        for task in complete.tasks:
            answer = answers[task.question]
            tactic = complete.questions[task.question].ways[answer.way].name
            nodes.append(_report(task.note, tactic, answer.time_us))
        return _TunedLaunches(launches=assemble(complete, [answer.way for answer in answers]), nodes=nodes)

    def _ask(self, question: QuestionRecord, launches: OpenLaunches, number: int) -> Answer:
        self._context.report(number, len(launches.questions))
        asker = Asker(
            tuner=self._context.tuner,
            make_trial=lambda buffers: self._tools.make_trial(buffers, launches.is_cold),
            kernels=launches.kernels,
            code=self._code,
        )
        counts = [operand.count for operand in question.operands]
        return asker.ask(question, partial(compute_reference, question.reference, counts))

    def _complete(self, launches: OpenLaunches) -> OpenLaunches:
        """The same with the ways that are possible here."""
        questions = [self._libraries.complete(question) for question in launches.questions]
        self._code |= self._libraries.code
        for question in questions:
            self._check(question, launches)
        return msgspec.structs.replace(launches, questions=questions)

    def _check(self, question: QuestionRecord, launches: OpenLaunches) -> None:
        """Check ways before any of them is tried."""
        where = f"step {self._stored.name[:200]!a}, {question.text[:200]!a}"
        memory_bytes, needed = self._context.device.memory_bytes, count_bytes(question)
        if memory_bytes is not None and needed > memory_bytes:
            raise ResourceError("no memory to time a way", where=where, expected=memory_bytes, got=needed)
        try:
            require(question.ways, "none of its ways is possible here")
            for way in question.ways if question.operands else ():
                check_way(way, question, launches, self._stored)
        except ValueError as error:
            raise PlanCorruptError(f"a candidate cannot be: {error}", where=where, fix="build the plan again") from None
