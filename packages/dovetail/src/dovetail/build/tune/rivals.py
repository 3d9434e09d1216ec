"""Rivals: where several providers can take the nodes of a network, whole assignments are timed against each other.

Each provider that was asked for comes first in the order in turn, and the others take what it leaves. Every assignment
becomes a plan, and plans are timed in turn, round by round: the engine of one is closed before that of another is
opened, because thread pools spin for a while after a run, and two of them in one process would slow each other down.
Child processes would keep pools apart too, but plugins and providers that a program registered exist in its own
process alone.
"""

from __future__ import annotations

import copy
import hashlib
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from dovetail._unset_dims import tell_unset
from dovetail.build.config import BuilderConfig, BuilderFlag
from dovetail.build.planner import build_plan
from dovetail.build.progress import Phases
from dovetail.build.request import BuildRequest, BuiltPlan
from dovetail.build.shapes import dims_of, find_unset_symbols
from dovetail.build.tune.agree import Result, describe_arrays
from dovetail.build.tune.cache import TimingCache
from dovetail.build.tune.candidates import Outcome, TimedCandidate, candidate_record, pick_best
from dovetail.build.tune.clocks import HostTimer, Lane
from dovetail.build.tune.inputs import draw_all_inputs
from dovetail.build.tune.keys import make_assignment_key
from dovetail.build.tune.session import CacheSession
from dovetail.build.tune.tuner import CandidateTuner, tuner_options
from dovetail.errors import BuildCancelledError, BuildError, DovetailError
from dovetail.expr import symbols_of
from dovetail.loggers import ILogger, Severity
from dovetail.passes.clone import clone_model
from dovetail.plan.container import write_plan
from dovetail.plan.limits import MAX_NAME_CHARS
from dovetail.plan.manifest import LayerRecord, Manifest, NoteRecord, encode_manifest
from dovetail.plan.walk import walk_steps
from dovetail.provider.loader import get_provider
from dovetail.runtime.description import PlanDescription
from dovetail.runtime.engine import Engine

__all__ = ["NOTE", "OpenPlan", "build_fastest", "find_orders"]

_PLACE: Final = re.compile(r" \([^()]*:\d+\)$")
"""The file and line at the end of a reason."""
NOTE: Final = "rivals: "
"""How the note of a plan begins that says who was timed, and who won."""
_QUESTION: Final = "the whole network"
_WARM_UP_RUNS: Final = 3
"""Shapes are bound in the first run of an engine and graphs are captured in the second."""
_MAX_ROUNDS: Final = 7
"""An engine is opened in every round, so there are fewer and longer ones than for a layer."""
_BURST_US: Final = 50_000.0

OpenPlan = Callable[[Path, Manifest], Engine]
"""Makes an engine of a plan that was just written."""


def find_orders(providers: Sequence[str]) -> list[tuple[str, ...]]:
    """The orders to try: the one that was asked for, and each other provider put first.

    >>> find_orders(["a", "b", "cpu"])
    [('a', 'b', 'cpu'), ('b', 'a', 'cpu'), ('cpu', 'a', 'b')]
    """
    names = tuple(dict.fromkeys(providers))
    return [(name, *(other for other in names if other != name)) for name in names]


def build_fastest(request: BuildRequest, phases: Phases, open_plan: OpenPlan) -> BuiltPlan:
    """Build every assignment and keep the fastest that is right, with the reason in the plan.

    Raises:
        BuildError: No assignment can be timed; the reasons are in the message.
    """
    with tempfile.TemporaryDirectory(prefix="dovetail-rivals-") as folder:
        contest = _Contest(request, phases, open_plan, Path(folder))
        try:
            return contest.decide(find_orders(request.providers))
        finally:
            contest.close()


@dataclass(frozen=True, kw_only=True)
class _Rival:
    """One assignment: the order it comes from, and its plan, in memory and in a file."""

    order: tuple[str, ...]
    plan: BuiltPlan
    path: Path
    digest: str

    @property
    def name(self) -> str:
        """The provider that comes first."""
        return self.order[0]

    @property
    def assignment(self) -> list[tuple[str, ...]]:
        """Steps with their providers, without copies: the first provider decides in which memory callers bind."""
        steps = [step for program in self.plan.manifest.programs for step in walk_steps(program)]
        return [(s.provider, s.kind, s.op, s.name, str(s.tactic)) for s in steps if s.kind != "copy"]


class _Contest:
    """The rivals of one network."""

    def __init__(self, request: BuildRequest, phases: Phases, open_plan: OpenPlan, folder: Path) -> None:
        logger = _OnceLogger(request.logger)
        self._request = replace(request, config=_trial_config(request.config), logger=logger)
        self._strips = request.config.get_flag(BuilderFlag.STRIP_PLAN)
        self._phases = phases
        self._folder = folder
        self._session = CacheSession(self._request.config, logger)
        self._tuner = CandidateTuner(tuner_options(request.config), self._session, logger, phases)
        self._stage = _Stage(open_plan)

    def close(self) -> None:
        """Close what is open and keep the timings."""
        self._stage.clear()
        self._tuner.close()
        self._session.close()

    def decide(self, orders: Sequence[tuple[str, ...]]) -> BuiltPlan:
        """The plan of the winner."""
        rivals, lost = self._build_all(orders)
        if len(rivals) == 1:
            return self._finish(rivals[0], _tell_single(rivals[0], lost), None)
        self._tell_unset()
        self._stage.inputs = draw_all_inputs(rivals[0].plan.manifest, self._request.config.rival_inputs)
        with self._phases.phase("Time rivals", steps=1) as phase:
            outcomes = self._time(rivals)
            phase.step()
        best = pick_best(outcomes.items())
        note = _describe(rivals, outcomes, lost)
        if best is None:
            raise BuildError(
                f"no assignment of nodes to providers works: {note}",
                where=_QUESTION,
                fix="set the shapes that it runs with (--shapes), and BuilderConfig.rival_inputs where numbers matter",
            )
        note = f"{note}: {rivals[best].name}"
        self._request.logger.log(Severity.INFO, f"{NOTE}{note}")
        return self._finish(rivals[best], note, _make_table(rivals, outcomes, best))

    # building

    def _build_all(self, orders: Sequence[tuple[str, ...]]) -> tuple[list[_Rival], dict[str, str]]:
        """Assignments that differ, and why the others do not count; where none can be built, the first error."""
        rivals: list[_Rival] = []
        lost: dict[str, str] = {}
        first: DovetailError | None = None
        for order in orders:
            try:
                rival = self._build(order)
            except BuildCancelledError:
                raise
            except DovetailError as error:
                first = first or error
                lost[order[0]] = f"cannot be built ({error.what.splitlines()[0]})"
                continue
            same = next((other for other in rivals if other.assignment == rival.assignment), None)
            if same is None:
                rivals.append(rival)
            else:
                lost[rival.name] = f"the same as {same.name}"
        if not rivals and first is not None:
            raise first
        return rivals, lost

    def _build(self, order: tuple[str, ...]) -> _Rival:
        with self._phases.phase(f"Build with {order[0]} first", steps=1) as phase:
            plan = self._build_plan(order, self._request.config)
            path = self._folder / f"{len(list(self._folder.iterdir()))}.plan"
            with path.open("xb") as file:
                write_plan(file, encode_manifest(plan.manifest), plan.blobs)
            phase.step()
        return _Rival(order=order, plan=plan, path=path, digest=_digest(plan.manifest))

    def _build_plan(self, order: tuple[str, ...], config: BuilderConfig) -> BuiltPlan:
        model = clone_model(self._request.model)
        return build_plan(replace(self._request, model=model, config=config, order=order), self._phases)

    def _finish(self, rival: _Rival, note: str, table: LayerRecord | None) -> BuiltPlan:
        plan = rival.plan
        if self._strips:
            config = copy.copy(self._request.config)
            config.set_flag(BuilderFlag.STRIP_PLAN)
            plan = self._build_plan(rival.order, config)
        tuning = plan.manifest.tuning if table is None else [*plan.manifest.tuning, table]
        told = NoteRecord(text=f"{NOTE}{note}".replace("\0", "?")[:MAX_NAME_CHARS], provider=rival.name)
        notes = [told, *plan.manifest.notes]
        return BuiltPlan(msgspec.structs.replace(plan.manifest, tuning=tuning, notes=notes), plan.blobs)

    # timing

    def _tell_unset(self) -> None:
        if self._request.config.profiles:
            return
        inputs = self._request.model.graph.inputs
        symbols = [symbols_of(dim) for value in inputs for dim in dims_of(value) or () if dim is not None]
        unset = find_unset_symbols(inputs, frozenset().union(*symbols))
        tell_unset(unset, self._request.logger, strict=self._request.config.strict)

    def _time(self, rivals: Sequence[_Rival]) -> dict[int, Outcome]:
        lane = Lane(provider=get_provider("cpu"), stream=None, clock=HostTimer())
        candidates = [self._make_candidate(number, rival) for number, rival in enumerate(rivals)]
        return self._tuner.time(_QUESTION, candidates, lane, max_rounds=_MAX_ROUNDS, target_burst_us=_BURST_US)

    def _make_candidate(self, number: int, rival: _Rival) -> TimedCandidate:
        return TimedCandidate(
            id=number,
            label=f"{rival.name} first",
            prepare=lambda: self._stage.show(rival),
            run=self._stage.run,
            key=self._make_key(rival),
            compute=lambda: self._stage.compute(rival),
            close=self._stage.clear,
        )

    def _make_key(self, rival: _Rival) -> str:
        devices = [(d.provider, d.fingerprint, d.version) for d in rival.plan.manifest.devices]
        used = {device[0] for device in devices}
        options = {name: chosen for name, chosen in self._request.config.provider_options.items() if name in used}
        text = msgspec.json.encode(options, order="deterministic").decode()
        return make_assignment_key(devices=devices, options=text, digest=rival.digest)


class _Stage:
    """The engine that is open: one at a time."""

    def __init__(self, open_plan: OpenPlan) -> None:
        self._open_plan = open_plan
        self._rival: _Rival | None = None
        self._engine: Engine | None = None
        self.inputs: list[list[Any]] = []
        """What the network gets, for each profile."""
        self._runs: list[Callable[[Sequence[Any]], list[Any]]] = []
        """A run over the tuned shapes of each profile."""
        self._timed: list[list[Any]] = []
        """What timed runs get, and may write over."""

    def show(self, rival: _Rival) -> None:
        """Open the engine of a rival, unless it is open, and warm it up."""
        if self._rival is rival:
            return
        self.clear()
        self._engine = self._open_plan(rival.path, rival.plan.manifest)
        self._runs = [self._bind(self._engine, profile) for profile in range(len(self.inputs))]
        self._timed = self._copy_inputs(rival)
        for _ in range(_WARM_UP_RUNS):
            self.run()
        self._rival = rival

    def _bind(self, engine: Engine, profile: int) -> Callable[[Sequence[Any]], list[Any]]:
        context = engine.create_execution_context()
        if engine.manifest.profiles:
            context.set_optimization_profile_async(profile)
        return context.run

    def _copy_inputs(self, rival: _Rival) -> list[list[Any]]:
        plan = PlanDescription(rival.plan.manifest)
        return [plan.copy_updated(arrays) for arrays in self.inputs]

    def run(self) -> None:
        """Run the open engine over all profiles."""
        for run, arrays in zip(self._runs, self._timed, strict=True):
            run(arrays)

    def compute(self, rival: _Rival) -> Result:
        """What a rival computes."""
        self.show(rival)
        given = self._copy_inputs(rival)
        results = [value for run, arrays in zip(self._runs, given, strict=True) for value in run(arrays)]
        return describe_arrays([value for value in results if isinstance(value, np.ndarray)])

    def clear(self) -> None:
        """Close the open engine; its threads end with it."""
        engine, self._engine, self._rival, self._runs = self._engine, None, None, []
        if engine is not None:
            engine.close()


class _OnceLogger(ILogger):
    """Passes every message on once: every assignment of a network gives rise to the same ones."""

    def __init__(self, logger: ILogger) -> None:
        super().__init__()
        self._logger = logger
        self._told: set[tuple[Severity, str]] = set()

    def log(self, severity: Severity, msg: str) -> None:
        if (severity, msg) not in self._told:
            self._told.add((severity, msg))
            self._logger.log(severity, msg)


def _trial_config(config: BuilderConfig) -> BuilderConfig:
    """The same settings with a timing cache, so that a layer is timed once and not for each assignment.

    A plan without its weights cannot be timed, so none is stripped before it has won.
    """
    shared = copy.copy(config)
    shared.clear_flag(BuilderFlag.STRIP_PLAN)
    if config.get_timing_cache() is None:
        shared.set_timing_cache(TimingCache())
    return shared


def _digest(manifest: Manifest) -> str:
    """What stands for everything that is run: how it was chosen is left out, and blobs are there by their digests."""
    plain = msgspec.structs.replace(manifest, tuning=[], build={}, notes=[])
    return hashlib.sha256(encode_manifest(plain)).hexdigest()


# for people


def _tell_single(rival: _Rival, lost: Mapping[str, str]) -> str:
    others = ", ".join(f"{name} {reason}" for name, reason in lost.items())
    return f"nothing to time: {others}" if others else f"nothing to time: {rival.name} is alone"


def _describe(rivals: Sequence[_Rival], outcomes: Mapping[int, Outcome], lost: Mapping[str, str]) -> str:
    parts = [f"{rival.name} {_describe_outcome(outcomes[number])}" for number, rival in enumerate(rivals)]
    return ", ".join([*parts, *(f"{name} {reason}" for name, reason in lost.items())])


def _describe_outcome(outcome: Outcome) -> str:
    text = "" if outcome.time_us is None else f"{outcome.time_us / 1e3:.3g} ms"
    # A plan is read on other machines: where in which file something was raised means nothing there.
    reason = _PLACE.sub("", outcome.reason or "")
    return text if outcome.is_usable else f"{text} {outcome.status} ({reason})".strip()


def _make_table(rivals: Sequence[_Rival], outcomes: Mapping[int, Outcome], best: int) -> LayerRecord:
    rows = [
        candidate_record(outcomes[number], name=", ".join(rival.order), tactic=number, chosen=number == best)
        for number, rival in enumerate(rivals)
    ]
    return LayerRecord(name=_QUESTION, profile=0, candidates=rows)
