"""The life of a plugin with one set of inputs: declared, asked for formats, configured, attached, run.

Every object is new, and on the way from its creation to a run it meets only the callbacks that the contract calls in
that order. So a fault in one callback shows in the rule that owns it, and the others are judged without it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from dovetail.errors import DovetailError
from dovetail.expr import evaluate
from dovetail.formats import formats_for
from dovetail.plugin.check.cases.problem import Case, InputCase, make_inputs
from dovetail.plugin.check.evidence import Evidence, Log
from dovetail.plugin.check.host.calls import CallbackRaised, call, journal, read
from dovetail.plugin.check.host.descriptors import Combination, Descriptors
from dovetail.plugin.check.host.device_memory import CheckedDevice
from dovetail.plugin.check.host.hostile import FILL_A, Fill, GuardedBuffer, HostContext, HostExprBuilder
from dovetail.plugin.check.host.late_writes import KeptMemory
from dovetail.plugin.check.host.proposals import Choice, FormatAnswer, FormatSearch, ask, search
from dovetail.plugin.check.host.runs import Run, RunBench
from dovetail.plugin.check.layer import (
    DeclaredLayer,
    find_size_tensor_fault,
    read_num_outputs,
    read_output_shapes,
    read_output_types,
)
from dovetail.plugin.check.plugin_object import Specimen, examine
from dovetail.plugin.handle import is_success
from dovetail.plugin.interfaces import IPluginV3OneBuildV2
from dovetail.rules import Blocked, Broken
from dovetail.types import DataType, TensorRTPhase, volume

__all__ = ["WORKSPACE_LIMIT", "Life", "Prepared"]

WORKSPACE_LIMIT: Final = 1 << 40
"""Bytes that no plugin needs: a size that was computed from dimensions which are not known is often larger."""
_STATUS_METHODS: Final = frozenset({"configure_plugin", "set_tactic", "on_shape_change", "enqueue"})
_MOST_COMBINATIONS: Final = 9
_MOST_TACTICS: Final = 8


class Life:
    """One plugin with one problem.

    Args:
        make: Creates a new build-phase object.
        problem: The inputs.
        seed: Decides the numbers in the inputs.
        keep: Told of every object that a callback returned, so that it is destroyed in the end.
        memory: Keeps the memory of runs that are over.
        device: Where the plugin runs; None for the host.
    """

    def __init__(
        self,
        make: Callable[[], Specimen],
        problem: InputCase,
        *,
        seed: int,
        keep: Callable[[Specimen], None],
        memory: KeptMemory,
        device: CheckedDevice | None = None,
    ) -> None:
        self.make, self.problem, self.seed, self.keep, self.memory = make, problem, seed, keep, memory
        self.device = device
        self.log = Log()
        self.known: dict[str, Any] = {}

    def with_problem(self, problem: InputCase) -> Life:
        """The same plugin with other inputs."""
        return Life(self.make, problem, seed=self.seed, keep=self.keep, memory=self.memory, device=self.device)

    # what the plugin declares

    @Evidence
    def num_outputs(self) -> int:
        """How many outputs there are."""
        try:
            return read_num_outputs(self.make().build)
        except Broken as broken:
            raise Blocked(f"{broken}, see R06") from None

    @Evidence
    def types(self) -> tuple[DataType, ...]:
        """The declared types of the outputs."""
        count = self.num_outputs
        returned = self.ask_types(self.make().build)
        try:
            return read_output_types(returned, count)
        except Broken:
            raise Blocked("the output types are malformed, see R07") from None

    @Evidence
    def layer(self) -> DeclaredLayer:
        """The declared outputs."""
        types = self.types
        builder = HostExprBuilder()
        returned = self.ask_shapes(self.make_typed().build, builder)
        try:
            for case in self.problem.cases:
                shapes = read_output_shapes(returned, len(types), self.problem.symbol_values(case))
        except Broken:
            raise Blocked("the output shapes are malformed, see R08") from None
        layer = DeclaredLayer(types, shapes)
        if builder.misuse or find_size_tensor_fault(layer):
            raise Blocked("a size tensor is misused, see R10")
        return layer

    def make_typed(self) -> Specimen:
        """A new object that was asked for the types of its outputs, as the network does first."""
        specimen = self.make()
        self.ask_types(specimen.build)
        return specimen

    def make_declared(self) -> Specimen:
        """A new object that was asked for types and shapes, as every one is that meets a later build callback."""
        specimen = self.make()
        self.declare(specimen)
        return specimen

    def declare(self, specimen: Specimen) -> None:
        """Ask an object for types and shapes."""
        _ = self.layer
        self.ask_types(specimen.build)
        self.ask_shapes(specimen.build, HostExprBuilder())

    def ask_types(self, build: Any) -> Any:
        """Call ``get_output_data_types``, with the ranks of the inputs where the plugin wants them."""
        ranks = [[len(shape) for shape in self.problem.main]] if getattr(build, "takes_ranks", False) else []
        return call(build, "get_output_data_types", list(self.problem.types), *ranks)

    def ask_shapes(self, build: Any, builder: HostExprBuilder) -> Any:
        """Call ``get_output_shapes`` with new expressions."""
        return call(build, "get_output_shapes", self.problem.input_exprs(), self.problem.shape_input_exprs(), builder)

    @Evidence
    def aliases(self) -> tuple[int, ...]:
        """For each output the input whose memory it shares, or -1; an invalid one counts as -1."""
        build = self.make_declared().build
        if not isinstance(build, IPluginV3OneBuildV2):
            return (-1,) * self.num_outputs
        aliases: list[int] = []
        for index in range(self.num_outputs):
            found = call(build, "get_aliased_input", index)
            is_valid = found not in aliases and self._can_alias(index, found)
            aliases.append(found if is_valid else -1)
        return tuple(aliases)

    def _can_alias(self, index: int, alias: Any) -> bool:
        if not isinstance(alias, int) or not 0 <= alias < len(self.problem.main):
            return False
        shapes = [self.descriptors.largest_shapes(case)[index] for case in self.problem.cases]
        fits = all(volume(s) <= volume(case[alias]) for s, case in zip(shapes, self.problem.cases, strict=True))
        return fits and self.layer.types[index] == self.problem.types[alias]

    # formats

    @Evidence
    def search(self) -> FormatSearch:
        """The enumeration of formats with the declared types."""
        found = self.search_formats(self.make_declared())
        for answer in found.answers:
            if answer.raised is not None and not answer.reads:
                self.log.raised.append(answer.raised)
            if answer.mutation:
                self.log.mutations.append(answer.mutation)
        return found

    def search_formats(self, specimen: Specimen, *, types: Sequence[Sequence[DataType]] | None = None) -> FormatSearch:
        """Enumerate formats on an object, with the declared types or with several types to a position."""
        layer = self.layer
        ranks = [len(shape) for shape in (*self.problem.main, *layer.shapes)]
        by_position = types or [[dtype] for dtype in (*self.problem.types, *layer.types)]
        options: list[list[Choice]] = [
            [(dtype, layout) for dtype in dtypes for layout in formats_for(dtype, rank)]
            for dtypes, rank in zip(by_position, ranks, strict=True)
        ]
        limit = read(specimen.build, "format_combination_limit")
        usable_limit = limit if isinstance(limit, int) and limit > 0 else 100
        return search(specimen.build, options, self.descriptors.describe, len(self.problem.main), limit=usable_limit)

    def ask_again(self, specimen: Specimen, answer: FormatAnswer) -> FormatAnswer:
        """Put a question of an enumeration once more."""
        positions = len(self.problem.main) + len(self.layer.shapes)
        return ask(specimen.build, answer.choices, self.descriptors.describe, len(self.problem.main), positions)

    @Evidence
    def combinations(self) -> tuple[Combination, ...]:
        """The accepted combinations that are run, in the order they were accepted."""
        aliases, count = self.aliases, len(self.problem.main)
        found = [tuple(layout for _, layout in choices) for choices in self.search.accepted]
        usable = [
            formats
            for formats in found
            if all(alias < 0 or formats[alias] == formats[count + i] for i, alias in enumerate(aliases))
        ]
        if not usable:
            past = any(answer.reads for answer in self.search.answers)
            raise Blocked("no combination of formats was accepted, see " + ("R12" if past else "R14 and R15"))
        step = -(-len(usable) // _MOST_COMBINATIONS)  # some of all kinds, the first among them
        return tuple(usable[::step])

    @property
    def formats(self) -> Combination:
        """The combination that most rules run: the first that was accepted."""
        return self.combinations[0]

    # descriptors

    @Evidence
    def descriptors(self) -> Descriptors:
        """What the callbacks are told about each tensor."""
        return Descriptors(self.problem, self.layer, is_on_device=self.device is not None)

    # tactics and runs

    @Evidence
    def main_tactics(self) -> tuple[int, ...]:
        """The tactics of the combination that most rules run."""
        return self._ask_tactics(self.formats)

    @Evidence
    def tactics(self) -> dict[Combination, tuple[int, ...]]:
        """The tactics of each combination."""
        others = {formats: self._ask_tactics(formats) for formats in self.combinations[1:]}
        return {self.formats: self.main_tactics} | others

    def _ask_tactics(self, formats: Combination) -> tuple[int, ...]:
        """The tactics of one combination; only 0 where none is advertised."""
        attached = self.attach(self.make_declared())
        self.configure(attached, formats)
        returned = call(attached.build, "get_valid_tactics")
        listed = list(returned) if isinstance(returned, Sequence | np.ndarray) else []
        numbers = dict.fromkeys(int(t) for t in listed if isinstance(t, int | np.integer))
        return tuple(numbers)[:_MOST_TACTICS] or (0,)

    @property
    def tactic(self) -> int:
        """The tactic that most rules run."""
        return self.main_tactics[0]

    @Evidence
    def sample(self) -> Run:
        """The run that other runs are compared with: first combination, first tactic, main case."""
        prepared = self.prepare()
        prepared.reshape(self.problem.main)
        return prepared.run(self.problem.main)

    def attach(self, specimen: Specimen, context: HostContext | None = None) -> Specimen:
        """Attach an object to a context of its own."""
        plugin = call(specimen.runtime, "attach_to_context", context or HostContext())
        phase = TensorRTPhase.RUNTIME if specimen.build is None else TensorRTPhase.BUILD
        return self._adopt(plugin, phase, "attach_to_context", "R29")

    def clone(self, specimen: Specimen) -> Specimen:
        """Clone an object."""
        return self._adopt(call(specimen.plugin, "clone"), TensorRTPhase.BUILD, "clone", "R24")

    def _adopt(self, plugin: Any, phase: TensorRTPhase, made_by: str, owner: str) -> Specimen:
        try:
            specimen = examine(plugin, phase, made_by=made_by)
        except Broken as broken:
            raise Blocked(f"{broken}, see {owner}") from None
        self.keep(specimen)
        return specimen

    def configure(self, specimen: Specimen, formats: Combination) -> None:
        """Tell an object a combination."""
        self.tell(specimen.build, "configure_plugin", *self.descriptors.for_build(formats))

    def prepare(
        self,
        *,
        source: Specimen | None = None,
        context: HostContext | None = None,
        formats: Combination | None = None,
        tactic: int | None = None,
    ) -> Prepared:
        """Bring a build-phase object to where it can run: attached, configured, with a tactic and a workspace."""
        formats = formats or self.formats
        if tactic is None:
            tactic = self.tactic if formats == self.formats else self.tactics[formats][0]
        attached = self.attach(source or self.make_declared(), context)
        self.configure(attached, formats)
        self.tell(attached.runtime, "set_tactic", tactic)
        return Prepared(self, attached, formats, tactic, self.ask_workspace_bytes(attached, formats))

    def ask_workspace_bytes(self, specimen: Specimen, formats: Combination) -> int:
        """How much workspace an object asks for; 0 where the answer is no size."""
        size = self.tell(specimen.build, "get_workspace_size", *self.descriptors.for_build(formats))
        return max(int(size), 0) if _is_number(size) and size <= WORKSPACE_LIMIT else 0

    def tell(self, target: Any, method: str, *args: Any) -> Any:
        """Call a callback; note what it changes in its arguments and a status that is not zero."""
        before = [repr(arg) for arg in args]
        result = call(target, method, *args)
        for index, (old, arg) in enumerate(zip(before, args, strict=True)):
            if repr(arg) != old:
                self.log.mutations.append(f"{method} changed its argument {index + 1}: {old} -> {arg!r}")
        if method in _STATUS_METHODS and not is_success(result):
            self.log.statuses.append(f"{method} returned {result}")
        return result


def _is_number(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


@dataclass
class Prepared:
    """An attached object that can run."""

    life: Life
    specimen: Specimen
    formats: Combination
    tactic: int
    workspace_bytes: int

    def retune(self, tactic: int) -> None:
        """Give the object another tactic."""
        self.life.tell(self.specimen.runtime, "set_tactic", tactic)
        self.tactic, self.workspace_bytes = tactic, self.life.ask_workspace_bytes(self.specimen, self.formats)

    def reshape(self, case: Case) -> None:
        """Tell the object the shapes of the runs to come."""
        self.life.tell(self.specimen.runtime, "on_shape_change", *self.life.descriptors.for_run(self.formats, case))

    def describe(self, case: Case) -> str:
        """A run with these shapes, in words."""
        types = dict.fromkeys(dtype.name for dtype in self.life.problem.types)
        formats = " ".join(layout.name for layout in self.formats)
        sizes = ", ".join(map(str, case)) or "none"
        return f"inputs {sizes} of {' '.join(types) or 'no type'}, formats {formats}, tactic {self.tactic}"

    def bench(
        self,
        case: Case,
        *,
        variant: int = 0,
        fill: Fill = FILL_A,
        is_workspace_null: bool = False,
        is_aliased: bool = True,
        workspace: GuardedBuffer | None = None,
        arrays: Sequence[npt.NDArray[Any]] | None = None,
    ) -> RunBench:
        """Lay out the memory of a run.

        Args:
            case: The shapes of the inputs.
            variant: Selects the numbers in the inputs.
            fill: Contents of outputs and workspace.
            is_workspace_null: Whether the plugin gets a null pointer for the workspace.
            is_aliased: Whether aliased outputs share the memory of their inputs.
            workspace: The workspace of another run, as it was left; None for new memory.
            arrays: The inputs, instead of made-up ones.
        """
        life = self.life
        input_descs, output_descs = life.descriptors.for_run(self.formats, case)
        if arrays is None:
            arrays = make_inputs(life.problem, case, seed=life.seed + 1000 * variant)
        try:
            return RunBench(
                input_descs=input_descs,
                output_descs=output_descs,
                arrays=arrays,
                largest_shapes=life.descriptors.largest_shapes(case),
                aliases=life.aliases if is_aliased else (-1,) * len(output_descs),
                workspace_bytes=self.workspace_bytes,
                fill=fill,
                is_workspace_null=is_workspace_null,
                device=life.device,
                shared_workspace=workspace,
            )
        except MemoryError:
            raise Blocked(f"there is no memory for a run with a workspace of {self.workspace_bytes} bytes") from None

    def run(self, case: Case, *, variant: int = 0, fill: Fill = FILL_A, is_workspace_null: bool = False) -> Run:
        """Run once and collect what is to be seen."""
        bench = self.bench(case, variant=variant, fill=fill, is_workspace_null=is_workspace_null)
        return self.run_bench(bench, case)

    def run_bench(self, bench: RunBench, case: Case) -> Run:
        """Run on memory that is laid out."""
        journal().situation = self.describe(case)
        try:
            self.life.tell(self.specimen.runtime, "enqueue", *bench.arguments())
            bench.fetch()
        except DovetailError as error:  # of the device: what a callback raises comes as CallbackRaised
            raise CallbackRaised("enqueue", error, "in work that was put on the device") from error
        run = self.collect(bench, case)
        self.life.memory.keep(bench, self.describe(case))
        return run

    def run_again(self, bench: RunBench, case: Case, *, fill: Fill | None = None) -> Run:
        """Run once more on memory of an earlier run, with its inputs.

        Args:
            bench: The memory.
            case: The shapes of the inputs.
            fill: Contents of outputs and workspace; None leaves both as the earlier run did.
        """
        self.life.memory.drop(bench)
        bench.restore(fill)
        return self.run_bench(bench, case)

    def run_over(self, workspace: GuardedBuffer | None, case: Case, *, variant: int = 0) -> Run:
        """Run once with the workspace of other runs, as they left it; with new memory if there is none."""
        bench = self.bench(case, variant=variant, workspace=workspace)
        run = self.run_bench(bench, case)
        self.life.memory.drop(bench)  # the next run may write the workspace
        return run

    def new_workspace(self) -> GuardedBuffer:
        """Allocate a workspace for runs that share it."""
        return GuardedBuffer("the workspace", self.workspace_bytes, fill=FILL_A.workspace, device=self.life.device)

    def collect(self, bench: RunBench, case: Case) -> Run:
        """What a run left behind; sizes outside their bounds are cut so that the arrays can be read."""
        layer, values = self.life.layer, self.life.problem.symbol_values(case)
        sizes = {index: bench.read_size(index) for index in layer.size_tensors}
        bounds = {index: evaluate(size.upper, values) for index, size in layer.size_tensors.items()}
        cut = {index: min(max(size, 0), bounds[index]) for index, size in sizes.items()}
        return bench.finish(sizes, bounds, layer.final_shapes(values, cut))
