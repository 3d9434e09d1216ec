"""The lives of a plugin under check: inputs that it accepts, varied as far as it goes along, and all their runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np

from dovetail.plugin.check.cases.discovery import Discovery, discover
from dovetail.plugin.check.cases.field_values import (
    declared_fields,
    vary_field,
)
from dovetail.plugin.check.cases.problem import Case, InputCase
from dovetail.plugin.check.cases.widen import widen_sizes, widen_types
from dovetail.plugin.check.evidence import Evidence
from dovetail.plugin.check.host.calls import CallbackRaised
from dovetail.plugin.check.host.descriptors import Combination
from dovetail.plugin.check.host.hostile import FILL_A, FILL_B, Fill
from dovetail.plugin.check.host.runs import Run, disagreement, find_gaps
from dovetail.plugin.check.isolation.fresh import FreshProcesses
from dovetail.plugin.check.isolation.fresh_runs import FreshResult, FreshRun, run_fresh
from dovetail.plugin.check.lifecycle import Life
from dovetail.plugin.check.objects import PluginObjects
from dovetail.plugin.check.progress import progress
from dovetail.plugin.check.traits import show_fields
from dovetail.plugin.fields import (
    PluginField,
    PluginFieldCollection,
    PluginFieldType,
    decode_fields,
    encode_fields,
)
from dovetail.plugin.native.call_memory import use_call_memory
from dovetail.rules import Blocked, Broken, NotApplicable

__all__ = ["Cell", "PluginLives", "run_new"]

_MOST_RESULT_BYTES: Final = 512 << 20
_MOST_VARIED_FIELDS: Final = 12
_MOST_SIDE_COMBINATIONS: Final = 3


@dataclass(frozen=True)
class Cell:
    """One combination, tactic and case, run on two new objects whose outputs and workspace held different bytes."""

    formats: Combination
    tactic: int
    case: Case
    first: Run
    second: Run
    life: Life
    is_main: bool = True

    @property
    def nbytes(self) -> int:
        """The memory that the results take."""
        return sum(output.nbytes for run in (self.first, self.second) for output in run.outputs)

    def describe(self) -> str:
        """Which run this is."""
        formats = " ".join(layout.name for layout in self.formats)
        types = "" if self.is_main else f" of {' '.join(dtype.name for dtype in self.life.problem.types)}"
        return f"inputs {', '.join(map(str, self.case)) or 'none'}{types}, formats {formats}, tactic {self.tactic}"


class PluginLives(PluginObjects):
    """The plugin with inputs that it accepts, and a run of everything that it offers."""

    # fresh processes

    def open_fresh_processes(self) -> None:
        """Keep a copy of this process as it is now, before the plugin does anything."""
        self._fresh = FreshProcesses(self._serve_fresh_run)

    def _serve_fresh_run(self, request: bytes) -> bytes:
        """Run in a process in which nothing else ran."""
        wanted = msgspec.json.decode(request, type=FreshRun)
        self.fields = decode_fields(wanted.fields)
        self.known["origin"] = None
        self.known["device"] = self.offered_device if wanted.is_on_device else None
        with use_call_memory(self.new_call_memory):
            return msgspec.msgpack.encode(run_fresh(self._make_life(wanted.problem), wanted, self.create))

    def ask_fresh(
        self,
        cell: Cell,
        *,
        is_watched: bool = False,
        is_protected: bool = False,
        stored: list[dict[str, Any]] | None = None,
        variables: Mapping[str, str | None] | None = None,
        fields: PluginFieldCollection | None = None,
        guarded: Sequence[str] | None = None,
        orphaned: str = "",
        keeps_original: bool = False,
    ) -> FreshResult:
        """Run a cell as the first thing in a new process; see `FreshRun` for the arguments.

        Raises:
            NotApplicable: There are no such processes here.
            Blocked: The process ended before the run did.
        """
        if self._fresh is None:
            raise NotApplicable("this process cannot be copied, or the check was told to stay in it")
        request = FreshRun(
            fields=encode_fields(self.fields if fields is None else fields, where="the fields of the check"),
            problem=self.life.problem,
            formats=cell.formats,
            tactic=cell.tactic,
            case=cell.case,
            is_watched=is_watched,
            is_protected=is_protected,
            is_on_device=self.device is not None,
            stored=stored,
            workspace_bytes=self.life.prepare(formats=cell.formats, tactic=cell.tactic).workspace_bytes,
            variables=dict(variables or {}),
            guarded=None if guarded is None else list(guarded),
            orphaned=orphaned,
            keeps_original=keeps_original,
        )
        return msgspec.msgpack.decode(self._fresh.ask(msgspec.json.encode(request)), type=FreshResult)

    # lives and runs

    @Evidence
    def life(self) -> Life:
        """The plugin with inputs that it accepts."""
        self.make()
        best, best_fields = self._discover(), self.fields
        for guess in self._guesses[1:]:
            if best.reached.is_complete:
                break
            self.fields = guess
            other = self._discover()
            if other.reached > best.reached:
                best, best_fields = other, guess
        self.fields = best_fields
        if self._guesses:
            self.notes.append(f"create_plugin needs fields that were not given; used {self._show_fields()}")
        self.notes.extend(best.notes)
        life = self._widen(best.life) if best.reached.is_complete else best.life
        life.log.raised[:0] = self.log.raised
        self.log = life.log
        return life

    def _discover(self) -> Discovery:
        return discover(self._make_life, self.wish)

    def _make_life(self, problem: InputCase) -> Life:
        return Life(self.make, problem, seed=self.seed, keep=self.keep, memory=self.memory, device=self.device)

    def _show_fields(self) -> str:
        return show_fields(encode_fields(self.fields, where="the fields of the check"))

    def _widen(self, life: Life) -> Life:
        """Vary fields, sizes and types, as far as the plugin goes along."""
        if self.creator is not None:
            life = self._vary_fields(life)
        widened = widen_sizes(life)
        if self.wish.types is None:
            widen_types(widened)
        self.widened = widened
        self.notes.extend(widened.describe(life.problem))
        return widened.life

    def _vary_fields(self, life: Life) -> Life:
        """Give fields that were left at their defaults other values, one by one, where the plugin runs with them."""
        declared = declared_fields(self.creator)
        before, unset = self.fields, [name for name in declared if name not in self.given][:_MOST_VARIED_FIELDS]
        known = self._known_values(life) if unset else {}
        for name in unset:
            for value in vary_field(name, declared[name], known.get(name)):
                varied = self._try_fields(life, _with_field(self.fields, value))
                if varied is not None and (name in known or disagreement(varied.sample, life.sample)):
                    life = varied
                    break
        if self.fields is not before:
            self.other_fields = before
            self.notes.append(f"fields changed from their defaults by the checker: {self._show_fields()}")
        return life

    def _known_values(self, life: Life) -> dict[str, np.ndarray[Any, Any]]:
        """The values of the fields that the plugin serializes under the names that the creator declares."""
        try:
            fields = decode_fields(self.serialize(life.prepare().specimen))
        except (Broken, CallbackRaised):
            return {}
        plain = [field for field in fields if field.type is not PluginFieldType.DIMS]
        return {field.name: field.data for field in plain if field.data is not None}

    def _try_fields(self, life: Life, fields: PluginFieldCollection) -> Life | None:
        """The life with other fields, which stay when the plugin runs with them and has numbers to show."""
        before, self.fields = self.fields, fields
        varied = life.with_problem(life.problem)
        with suppress(Blocked, Broken, CallbackRaised):
            is_hollow = any(coverage.is_hollow for _, coverage in find_gaps(varied.sample))
            if progress(varied).is_complete and not is_hollow:
                return varied
        self.fields = before
        return None

    def describe_inputs(self) -> str:
        """The inputs of the checks, and whether the user chose them."""
        text = self.life.problem.describe()
        return text if self.wish.cases is not None else f"{text}, which the checker guessed"

    @Evidence
    def matrix(self) -> tuple[Cell, ...]:
        """A run of every combination, tactic and case, twice with different garbage in outputs and workspace."""
        cells = self._run_cells(self.life)
        if not cells:
            raise Blocked("no run succeeded, see R18 and R40")
        return tuple(cells)

    @Evidence
    def side_cells(self) -> tuple[Cell, ...]:
        """The same runs with other types and, where every dimension is a constant, with other sizes."""
        return tuple(cell for life in self.other_lives for cell in self._run_cells(life, is_main=False))

    @property
    def other_lives(self) -> Sequence[Life]:
        """The plugin with other types and, where every dimension is a constant, with other sizes."""
        _ = self.life
        return () if self.widened is None else self.widened.others

    @property
    def all_cells(self) -> tuple[Cell, ...]:
        """Every run that there is."""
        return (*self.matrix, *self.side_cells)

    def _run_cells(self, life: Life, *, is_main: bool = True) -> list[Cell]:
        wanted = [
            (formats, tactic, case)
            for formats, tactics in list(life.tactics.items())[: None if is_main else _MOST_SIDE_COMBINATIONS]
            for tactic in tactics
            for case in life.problem.full_cases
        ]
        cells: list[Cell] = []
        for number, (formats, tactic, case) in enumerate(wanted):
            if sum(cell.nbytes for cell in cells) > _MOST_RESULT_BYTES:
                self.notes.append(f"{len(wanted) - number} of {len(wanted)} runs left out: the results fill the memory")
                break
            try:
                first, second = (run_new(life, case, formats=formats, tactic=tactic, fill=f) for f in (FILL_A, FILL_B))
            except CallbackRaised as raised:
                raised.situation = f"inputs {life.problem.describe()}, run with {', '.join(map(str, case))}"
                self.log.raised.append(raised)
            else:
                cells.append(Cell(formats, tactic, case, first, second, life, is_main))
        return cells

    def run_new(
        self,
        case: Case,
        *,
        formats: Combination | None = None,
        tactic: int | None = None,
        fill: Fill = FILL_A,
        is_workspace_null: bool = False,
    ) -> Run:
        """Run a new object once."""
        return run_new(self.life, case, formats=formats, tactic=tactic, fill=fill, is_workspace_null=is_workspace_null)

    @property
    def main_cell(self) -> Cell:
        """The run that others are compared with."""
        cell = self.matrix[0]
        if cell.case != self.life.problem.main:
            raise Blocked("the main case did not run, see R40")
        return cell


def run_new(
    life: Life,
    case: Case,
    *,
    formats: Combination | None = None,
    tactic: int | None = None,
    fill: Fill = FILL_A,
    is_workspace_null: bool = False,
) -> Run:
    """Run a new object once."""
    prepared = life.prepare(formats=formats, tactic=tactic)
    prepared.reshape(case)
    return prepared.run(case, fill=fill, is_workspace_null=is_workspace_null)


def _with_field(fields: PluginFieldCollection, field: PluginField) -> PluginFieldCollection:
    return PluginFieldCollection([*(item for item in fields if item.name != field.name), field])
