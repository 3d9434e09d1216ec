"""Tuning for providers: the candidates of a question that a provider has while it builds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from dovetail.build.tune.agree import Result, describe_arrays
from dovetail.build.tune.candidates import Outcome, TimedCandidate, candidate_record, pick_best
from dovetail.build.tune.keys import make_choice_key
from dovetail.build.tune.session import identify
from dovetail.build.tune.tuner import CandidateTuner
from dovetail.errors import BuildError, ProviderError
from dovetail.plan.manifest import LayerRecord
from dovetail.provider.contract.building import RightOutputs
from dovetail.provider.interfaces import Candidate, Chosen, Provider, Stream, Tuner

__all__ = ["ProviderTuner", "TuningTables"]


class TuningTables:
    """What providers asked in one build, each question of a profile once."""

    def __init__(self) -> None:
        self._tables: dict[tuple[str, int, str], LayerRecord] = {}

    def add(self, provider: Provider, table: LayerRecord) -> None:
        """Keep the table of a question."""
        self._tables[provider.id, table.profile, table.name] = table

    @property
    def records(self) -> list[LayerRecord]:
        """All tables, in the order they were first asked for."""
        return list(self._tables.values())


class ProviderTuner(Tuner):
    """Answers the questions of one provider while it builds for one profile."""

    def __init__(self, provider: Provider, tuner: CandidateTuner, tables: TuningTables, *, profile: int = 0) -> None:
        self._provider = provider
        self._tuner = tuner
        self._tables = tables
        self._profile = profile

    @property
    def stream(self) -> Stream | None:
        """The stream, made when it is first asked for."""
        return self._tuner.find_lane(self._provider).stream

    def choose(self, question: str, candidates: Sequence[Candidate], *, reference: RightOutputs = None) -> Chosen:
        """Choose the fastest candidate that is right, and put the table into the plan."""
        where = f"provider '{self._provider.id}', {question}"
        _check_names(candidates, where)
        limit = self._tuner.options.max_tactics
        tried = candidates[:limit] if limit > 0 else candidates
        made = [self._make_candidate(number, proposal, question) for number, proposal in enumerate(tried)]
        outcomes = self._time(where, made, reference) if self._provider.is_here else self._tuner.choose_untimed(made)
        best = pick_best(outcomes.items())
        table = _make_table(question, self._profile, tried, outcomes, best)
        self._tables.add(self._provider, table)
        if best is None:
            raise _no_candidate(where, table)
        return Chosen(name=tried[best].name, time_us=outcomes[best].time_us)

    def _time(self, where: str, candidates: Sequence[TimedCandidate], reference: RightOutputs) -> dict[int, Outcome]:
        def find_right() -> Result | None:
            right = reference() if callable(reference) else reference
            return None if right is None else describe_arrays(right)

        lane = self._tuner.find_lane(self._provider)
        return self._tuner.tune(where, candidates, lane, reference=None if reference is None else find_right)

    def _make_candidate(self, number: int, proposal: Candidate, question: str) -> TimedCandidate:
        started = _StartedProposal(proposal)
        device, version = identify(self._provider)
        key = make_choice_key(
            device=device,
            provider=self._provider.name,
            provider_version=version,
            question=question,
            candidate=proposal.name,
        )
        return TimedCandidate(
            id=number,
            label=proposal.name,
            prepare=started.prepare,
            run=started.run,
            key=key,
            compute=None if proposal.results is None else started.compute,
            close=proposal.close,
        )


class _StartedProposal:
    """A candidate of a provider that is made ready once, when it is first needed."""

    def __init__(self, proposal: Candidate) -> None:
        self._proposal = proposal
        self._run: Callable[[], None] | None = None

    def prepare(self) -> None:
        if self._run is None:
            run: object = self._proposal.start()
            if not callable(run):
                raise ProviderError(
                    "start gave nothing to run",
                    where=f"candidate '{self._proposal.name}'",
                    expected="a function without arguments",
                    got=type(run).__name__,
                )
            self._run = run

    def run(self) -> None:
        assert self._run is not None  # noqa: S101 - prepared before every burst
        self._run()

    def compute(self) -> Result:
        assert self._proposal.results is not None  # noqa: S101 - the others are not compared
        self.prepare()
        results: object = self._proposal.results()
        if not isinstance(results, list | tuple):
            raise ProviderError(
                "results gave no arrays",
                where=f"candidate '{self._proposal.name}'",
                expected="a list of arrays of the host",
                got=type(results).__name__,
            )
        return describe_arrays(results, tolerance=self._proposal.tolerance)


def _check_names(candidates: Sequence[Candidate], where: str) -> None:
    names = [candidate.name for candidate in candidates]
    if not names:
        raise BuildError("there is no candidate", where=where)
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise ProviderError("two candidates have one name", where=where, got=", ".join(doubled))


def _make_table(
    question: str, profile: int, tried: Sequence[Candidate], outcomes: Mapping[int, Outcome], best: int | None
) -> LayerRecord:
    rows = [
        candidate_record(outcomes[number], name=proposal.name, tactic=number, chosen=number == best)
        for number, proposal in enumerate(tried)
    ]
    return LayerRecord(name=question, profile=profile, candidates=rows)


def _no_candidate(where: str, table: LayerRecord) -> BuildError:
    rows = "\n".join(f"  {row.name}: {row.status} ({row.reason})" for row in table.candidates)
    return BuildError(f"no candidate works\n{rows}", where=where)
