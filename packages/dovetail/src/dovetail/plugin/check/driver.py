"""The plugin under check, with the facts that rules share."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

from dovetail.plugin.check.evidence import Evidence
from dovetail.plugin.check.history import find_memory_difference
from dovetail.plugin.check.host.calls import CallbackRaised, read
from dovetail.plugin.check.host.descriptors import Combination
from dovetail.plugin.check.host.runs import disagreement, find_gaps, unwritten
from dovetail.plugin.check.lifecycle import Prepared
from dovetail.plugin.check.lives import Cell, PluginLives, run_new
from dovetail.plugin.check.plugin_object import Specimen
from dovetail.plugin.fields import (
    PluginFieldCollection,
    decode_fields,
)
from dovetail.rules import Blocked, Broken, NotApplicable
from dovetail.types import TensorRTPhase

__all__ = ["Cell", "CheckedPlugin", "run_new"]

T = TypeVar("T")

_LATE_S: Final = 0.01


class CheckedPlugin(PluginLives):
    """A plugin under check, with the facts about it that several rules need."""

    def live(self) -> None:
        """Take the plugin through its whole life once, so that the log has whatever it raises on the way."""
        for name in ("origin", "life", "matrix", "side_cells", "serialized"):
            with suppress(Blocked):
                getattr(self, name)
        for name in ("search", "aliases", "tactics", "sample"):
            with suppress(Blocked):
                getattr(self.life, name)
        for name in ("timing_cache_id", "metadata_string"):
            try:
                with suppress(Blocked):
                    read(self.make().build, name)
            except CallbackRaised as raised:
                self.log.raised.append(raised)

    # results

    @Evidence
    def repeat_difference(self) -> str | None:
        """How a second new object differs from the first with the same inputs and the same garbage."""
        cell = self.main_cell
        again = self.run_new(cell.case, formats=cell.formats, tactic=cell.tactic)
        return disagreement(again, cell.first)

    @Evidence
    def is_same_in_fresh_processes(self) -> bool:
        """Whether the main run gives the same in two new processes, where such can be had."""
        try:
            first, second = (self.ask_fresh(self.main_cell) for _ in range(2))
        except NotApplicable:
            return False
        like = self.main_cell.first
        return not (first.raised or second.raised) and disagreement(first.as_run(like), second.as_run(like)) is None

    @Evidence
    def hollow_output(self) -> str | None:
        """The first output of the main run that has nothing finite to compare, in words."""
        hollow = [(i, coverage) for i, coverage in find_gaps(self.main_cell.first) if coverage.is_hollow]
        return f"output {hollow[0][0]}: {hollow[0][1].describe()}" if hollow else None

    def note_gaps(self) -> None:
        """Note for each case what comparisons of results could not see."""
        try:
            first_cells = {cell.case: cell for cell in reversed(self.matrix)}
        except (NotApplicable, Broken, CallbackRaised):
            return  # nothing ran, so nothing was compared
        for case, cell in first_cells.items():
            for index, coverage in find_gaps(cell.first):
                inputs = ", ".join(map(str, case)) or "none"
                self.notes.append(f"inputs {inputs}, output {index}: {coverage.describe()}")

    @Evidence
    def late_write(self) -> str | None:
        """Which memory changed after ``enqueue`` had returned."""
        _ = self.matrix
        return self.memory.find_late_write()

    def require_finished(self) -> None:
        """Block a rule that looks at results when the plugin goes on writing after ``enqueue``."""
        if self.late_write and not self.writes_stale_memory:
            raise Blocked("enqueue goes on after it has returned, see R62")

    def require_repeatable(self) -> None:
        """Block a rule that compares results of new objects when those differ anyway."""
        self.require_finished()
        if self.repeat_difference:
            raise Blocked("new objects give different results, see R46")

    @Evidence
    def writes_stale_memory(self) -> bool:
        """Whether a second run writes the memory of the first; then nothing goes on after ``enqueue`` by itself."""
        case = self.main_cell.case
        prepared = self.life.prepare()
        prepared.reshape(case)
        old = prepared.bench(case)
        prepared.run_bench(old, case)
        time.sleep(_LATE_S)
        if self.memory.has_changed(old):
            return False
        prepared.run(case, variant=1)
        return self.memory.has_changed(old)

    @Evidence
    def stale_difference(self) -> str | None:
        """How a run changes when the memory of the runs before it is used by others, and only then."""
        self.require_repeatable()
        if self.writes_stale_memory:
            return "the second run wrote the memory of the first, not its own as"
        case = self.main_cell.case
        prepared = self.life.prepare()
        prepared.reshape(case)
        benches = [prepared.bench(case) for _ in range(2)]
        first, second = (prepared.run_bench(bench, case) for bench in benches)
        if disagreement(second, first):
            return None  # the run depends on the one before it, wherever that was
        for bench in benches:
            self.memory.drop(bench)
            bench.overwrite()
        return disagreement(prepared.run(case), first)

    @Evidence
    def memory_difference(self) -> str | None:
        """How a run of one object changes with the runs before it."""
        if self.stale_difference:
            raise Blocked("addresses of an earlier call are used, see R64")
        return find_memory_difference(self)

    def remember(self, name: str, find: Callable[[], T]) -> T:
        """A fact that two rules need and no other, found out once."""
        if name not in self.known:
            self.known[name] = find()
        found: T = self.known[name]
        return found

    def require_stateless(self) -> None:
        """Block a rule that runs one object several times when the runs influence each other anyway."""
        if self.memory_difference:
            raise Blocked("a run depends on the one before, see R47")

    @Evidence
    def depends_on_garbage(self) -> bool:
        """Whether first runs differ with the bytes in outputs and workspace, which R44 and R45 report."""
        return any(
            unwritten(cell.first, cell.second) or disagreement(cell.second, cell.first) for cell in self.all_cells
        )

    @property
    def depends_on_earlier_runs(self) -> bool:
        """Whether runs of one object influence each other, which R47 and R64 report."""
        try:
            self.require_stateless()
        except Blocked:
            return True
        return False

    @Evidence
    def has_working_attach(self) -> bool:
        """That ``attach_to_context`` gives new objects; the rules about attached objects need it."""
        specimen = self.make()
        first, second = self.life.attach(specimen), self.life.attach(specimen)
        if len({id(s.plugin) for s in (specimen, first, second)}) < 3:
            raise Blocked("attach_to_context does not give a new object each time, see R29")
        return True

    @Evidence
    def has_working_clone(self) -> bool:
        """That ``clone`` gives new objects; the rules about clones need it."""
        specimen = self.make()
        if self.life.clone(specimen).plugin is specimen.plugin:
            raise Blocked("clone returned the object itself, see R24")
        return True

    # stored plans

    @Evidence
    def serialized(self) -> list[dict[str, Any]]:
        """The fields that a plan would store for the plugin as it was built."""
        prepared = self.life.prepare()
        try:
            return self.serialize(prepared.specimen)
        except Broken:
            raise Blocked("the fields cannot be stored, see R34") from None

    @Evidence
    def has_working_revival(self) -> bool:
        """That the creator makes a runtime-phase object from the stored fields."""
        self.require_creator()
        try:
            self.revive()
        except (Broken, CallbackRaised):
            raise Blocked("create_plugin(RUNTIME) fails, see R36") from None
        return True

    def revive(self, fields: PluginFieldCollection | None = None) -> Specimen:
        """A runtime-phase object from the stored fields, as a loaded plan makes it."""
        fields = decode_fields(self.serialized) if fields is None else fields
        self._memory.append(fields)
        return self.create(TensorRTPhase.RUNTIME, fields)

    def deploy(self, specimen: Specimen, formats: Combination, tactic: int) -> Prepared:
        """Bring a runtime-phase object to where it can run: it gets its tactic, is attached, and never configured."""
        life = self.life
        life.tell(specimen.runtime, "set_tactic", tactic)
        workspace_bytes = life.prepare(formats=formats, tactic=tactic).workspace_bytes
        return Prepared(life, life.attach(specimen), formats, tactic, workspace_bytes)

    def advertised_tactics(self) -> Sequence[int]:
        """The tactics of the main combination; a rule about tactics is left out when there is none."""
        tactics = [tactic for tactic in self.life.tactics[self.life.formats] if tactic]
        if not tactics:
            raise NotApplicable("the plugin advertises no tactics")
        return tactics
