"""The plugin under check: how new objects of it are made, and the facts that rules share."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import msgspec
import numpy as np

from dovetail.errors import DovetailError
from dovetail.plugin.check.discovery import Discovery, Wish, discover
from dovetail.plugin.check.evidence import Evidence, Log
from dovetail.plugin.check.field_values import (
    copy_fields,
    declared_fields,
    find_misread,
    guess_fields,
    make_fields,
    vary_field,
)
from dovetail.plugin.check.fresh_runs import FreshResult, FreshRun, run_fresh
from dovetail.plugin.check.host.calls import CallbackRaised, call, read
from dovetail.plugin.check.host.descriptors import Combination
from dovetail.plugin.check.host.hostile import FILL_A, FILL_B, Fill
from dovetail.plugin.check.host.late_writes import KeptMemory
from dovetail.plugin.check.host.runs import Run, disagreement, find_gaps
from dovetail.plugin.check.isolation.fresh import FreshProcesses
from dovetail.plugin.check.lifecycle import Life, Prepared
from dovetail.plugin.check.plugin_object import Specimen, examine
from dovetail.plugin.check.problem import Case, InputCase
from dovetail.plugin.check.progress import progress
from dovetail.plugin.check.traits import show_fields
from dovetail.plugin.check.widen import Widened, widen_sizes, widen_types
from dovetail.plugin.fields import (
    PluginField,
    PluginFieldCollection,
    PluginFieldType,
    decode_fields,
    encode_fields,
    iterate_fields,
)
from dovetail.rules import Blocked, Broken, NotApplicable
from dovetail.types import TensorRTPhase

__all__ = ["Cell", "CheckedPlugin"]

T = TypeVar("T")

_LAYER_NAME: Final = "checked"
_MOST_RESULT_BYTES: Final = 512 << 20
_MANY_RUNS: Final = 20
_LATE_S: Final = 0.01
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


class CheckedPlugin:
    """A creator, or a function that makes plugins, with what the user said about its inputs.

    Args:
        creator: The creator; None when there is only a function.
        make_plugin: The function, where there is no creator.
        fields: Field values by name.
        wish: Input shapes and types, as far as the user gave them.
        seed: Decides the numbers in the inputs.
        strict: Whether the strict set is judged too.
    """

    def __init__(
        self,
        *,
        creator: Any = None,
        make_plugin: Callable[[], Any] | None = None,
        fields: Mapping[str, Any] | None = None,
        wish: Wish,
        seed: int = 0,
        strict: bool = False,
    ) -> None:
        self.creator, self._make_plugin = creator, make_plugin
        self.wish, self.seed, self.strict = wish, seed, strict
        self.log = Log()
        self.known: dict[str, Any] = {}
        self.memory = KeptMemory()
        self.widened: Widened | None = None
        self.notes: list[str] = []
        self._made: list[Specimen] = []
        self._memory: list[PluginFieldCollection] = []
        self._fresh: FreshProcesses | None = None
        self._guesses: list[PluginFieldCollection] = []
        self.given = frozenset(fields or ())
        self.other_fields: PluginFieldCollection | None = None
        self.fields = make_fields(declared_fields(creator) if creator is not None else {}, fields or {})

    # objects

    def create(self, phase: TensorRTPhase, fields: PluginFieldCollection) -> Specimen:
        """Have the creator make an object.

        Raises:
            CallbackRaised: The creator, or the object when asked for its capabilities, raised.
            Broken: What came back is not a usable plugin.
        """
        if self._make_plugin is not None:
            plugin = call(_PluginFactory(self._make_plugin), "create_plugin")
        else:
            plugin = call(self.creator, "create_plugin", _LAYER_NAME, fields, phase)
        specimen = examine(plugin, phase, made_by="create_plugin")
        self.keep(specimen)
        return specimen

    def make(self) -> Specimen:
        """A new build-phase object, whose field memory stays as it is."""
        _ = self.origin  # decides which fields are given
        self._memory.append(copy_fields(self.fields))
        try:
            return self.create(TensorRTPhase.BUILD, self._memory[-1])
        except Broken as broken:
            raise Blocked(f"{broken}, see R01 and R02") from None

    @Evidence
    def origin(self) -> Specimen:
        """The first object; where declared fields turn out to be required, they are guessed here."""
        self._memory.append(copy_fields(self.fields))
        try:
            return self.create(TensorRTPhase.BUILD, self._memory[-1])
        except Broken as broken:
            raise Blocked(f"{broken}, see R01 and R02") from None
        except CallbackRaised as raised:
            return self._create_with_guesses(raised)

    def _create_with_guesses(self, raised: CallbackRaised) -> Specimen:
        declared = {} if self.creator is None else declared_fields(self.creator)
        missing = {name: kind for name, kind in declared.items() if self.fields.find(name) is None}
        if missing and raised.method == "create_plugin":
            guesses = [PluginFieldCollection([*self.fields, *guess]) for guess in guess_fields(missing)]
            self._guesses = [guess for guess in guesses if self._can_create(guess)]
        if not self._guesses:
            raise raised
        self.fields = self._guesses[0]
        return self.create(TensorRTPhase.BUILD, self.fields)

    def _can_create(self, fields: PluginFieldCollection) -> bool:
        try:
            self.create(TensorRTPhase.BUILD, fields)
        except (Broken, CallbackRaised):
            return False
        return True

    def keep(self, specimen: Specimen) -> None:
        """Remember an object so that it is destroyed in the end."""
        self._made.append(specimen)

    def destroy_all(self) -> None:
        """Let go of every object that is left, the newest first; what ``destroy`` raises is judged by its rule."""
        done: set[int] = {id(specimen.plugin) for specimen in self._made if specimen.is_destroyed}
        for specimen in reversed(self._made):
            if id(specimen.plugin) not in done:
                done.add(id(specimen.plugin))
                with suppress(CallbackRaised):
                    call(specimen.plugin, "destroy")

    # fresh processes

    def open_fresh_processes(self) -> None:
        """Keep a copy of this process as it is now, before the plugin does anything."""
        self._fresh = FreshProcesses(self._serve_fresh_run)

    def _serve_fresh_run(self, request: bytes) -> bytes:
        """Run in a process in which nothing else ran."""
        wanted = msgspec.json.decode(request, type=FreshRun)
        self.fields = decode_fields(wanted.fields)
        self.known["origin"] = None
        return msgspec.msgpack.encode(run_fresh(self._make_life(wanted.problem), wanted))

    def ask_fresh(
        self,
        cell: Cell,
        *,
        is_watched: bool = False,
        variables: Mapping[str, str | None] | None = None,
        fields: PluginFieldCollection | None = None,
    ) -> FreshResult:
        """Run a cell as the first thing in a new process.

        Raises:
            NotApplicable: There are no such processes here.
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
            variables=dict(variables or {}),
        )
        return msgspec.msgpack.decode(self._fresh.ask(msgspec.json.encode(request)), type=FreshResult)

    # facts

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
        return Life(self.make, problem, seed=self.seed, keep=self.keep, memory=self.memory)

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
        """How a run of one object changes when it ran other inputs before."""
        if self.stale_difference:
            raise Blocked("addresses of an earlier call are used, see R64")
        case = self.main_cell.case
        fresh = self.life.prepare()
        fresh.reshape(case)
        expected = fresh.run(case, variant=1)
        prepared = self.life.prepare()
        prepared.reshape(case)
        first = prepared.run(case)
        found = disagreement(prepared.run(case, variant=1), expected)
        if found:
            return f"inputs A, then B: {found} on a new object"
        found = disagreement(prepared.run(case), first)
        if found:
            return f"inputs A, then B, then A again: {found} the first time"
        try:
            for _ in range(_MANY_RUNS):
                found = disagreement(prepared.run(case), first)
        except CallbackRaised as raised:
            return f"inputs A, up to {_MANY_RUNS} times more: {raised}"
        if found:
            return f"inputs A, {_MANY_RUNS} times more: {found} the first time"
        return self._find_same_memory_difference(expected)

    def _find_same_memory_difference(self, expected: Run) -> str | None:
        """How a run changes when other numbers lie where those of the run before were."""
        case = self.main_cell.case
        prepared = self.life.prepare()
        prepared.reshape(case)
        bench = prepared.bench(case)
        prepared.run_bench(bench, case)
        self.memory.drop(bench)
        bench.refill(prepared.bench(case, variant=1))
        found = disagreement(prepared.run_bench(bench, case), expected)
        return f"inputs A, then B in the same memory: {found} on a new object" if found else None

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

    # serialization

    def require_creator(self) -> None:
        """Leave a rule about creators out when there is none."""
        if self.creator is None:
            raise NotApplicable("there is no creator")

    def serialize(self, specimen: Specimen) -> list[dict[str, Any]]:
        """The fields of an object in the form that a plan stores.

        Raises:
            Broken: What ``get_fields_to_serialize`` gave cannot be stored.
        """
        returned = call(specimen.runtime, "get_fields_to_serialize")
        if returned is not None and not isinstance(returned, list | tuple):
            raise Broken(f"get_fields_to_serialize returned {returned!r}, expected a PluginFieldCollection")
        try:
            fields = list(iterate_fields(returned))
            encoded = encode_fields(fields, where="get_fields_to_serialize")
            decode_fields(encoded)
        except (DovetailError, TypeError, ValueError, AttributeError) as error:
            raise Broken(f"get_fields_to_serialize gave what a plan cannot store: {_one_line(error)}") from None
        misread = next((text for text in map(find_misread, fields) if text), None)
        if misread:
            raise Broken(
                f"get_fields_to_serialize: {misread}",
                fix="declare the type that the array has, or convert it first: array.astype(np.int32)",
            )
        return encoded

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


class _PluginFactory:
    """A function that makes plugins, called as a creator is so that what it raises is reported the same way."""

    def __init__(self, make_plugin: Callable[[], Any]) -> None:
        self._make_plugin = make_plugin

    def create_plugin(self) -> Any:
        return self._make_plugin()


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())
