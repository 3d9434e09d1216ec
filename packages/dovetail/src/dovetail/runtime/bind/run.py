"""A program bound to shapes: the one way to run it.

Everything inside is fixed when it is bound: the places of values, the kernels, the plugins with their descriptors. The
memory of inputs and outputs is an argument of each run, and nothing of it is kept alive afterwards. ``engine(x)``, runs
by address, hosts such as ONNX Runtime, profilers and tools that look at every value all use this object.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from dovetail.errors import InputError
from dovetail.plan.manifest import StepRecord
from dovetail.runtime.bind.outputs import Outputs
from dovetail.runtime.bind.views import TensorViews
from dovetail.runtime.closing import close_all
from dovetail.runtime.steps.base import BoundStep
from dovetail.runtime.steps.frame import Frame, Shape
from dovetail.runtime.steps.loop import BoundSteps, Entry, add_checks

if TYPE_CHECKING:
    from dovetail.runtime.bind.instance import ProgramInstance

__all__ = ["BoundRun", "Visit"]

Visit = Callable[["BoundRun"], None]
"""Runs the steps of a bound run one by one, for those who look at each, between its ``begin`` and its ``end``."""


class BoundRun:
    """One program of one context over inputs of certain shapes."""

    def __init__(
        self,
        instance: ProgramInstance,
        frame: Frame,
        entries: Sequence[Entry],
        outputs: Outputs,
        symbols: Sequence[int],
    ) -> None:
        program = instance.program
        self.frame = frame
        self.symbols = symbols
        """The values of the symbols that inputs decide."""
        self.outputs = outputs
        """The outputs of runs with arrays."""
        self.output_shapes: list[Shape | None] = [frame.shapes[index] for index in program.outputs]
        """The logical shape of each output; None where only the run tells."""
        self.instance = instance
        """The program in its context."""
        self._values = frame.values
        self._entries = entries
        scheduled = add_checks(instance.schedule_steps(entries, frame), instance.devices.check)
        steps = BoundSteps(scheduled, instance.silence)
        self._border = instance.bind_border(frame)
        self._run_all: BoundStep = steps.run if self._border is None else partial(self._border.run_around, steps.run)
        self._inputs, self._outputs = program.inputs, program.outputs
        self._ports = (*program.inputs, *program.outputs)
        self._num_inputs = len(program.inputs)
        self._has_aliases = any(tensor.alias is not None for tensor in instance.manifest.outputs)
        self._before = list(frame.values)
        self._loose = [index for index in range(len(program.values)) if index not in frame.fixed]
        self._views: list[TensorViews] | None = None
        self._told: tuple[int, ...] = ()
        """The addresses that the plugins were told of last, by ``on_shape_change``."""
        self._placed: tuple[int, ...] | None = None
        """The addresses whose views are in the frame now; views keep no memory alive, so they may stay there."""
        self._is_plain = False
        """Whether a run by address leaves nothing to be done: all outputs are written where they lie."""

    # runs

    def run(
        self, inputs: Sequence[Any], outputs: Sequence[Any], visit: Visit | None = None, *, keep: bool = False
    ) -> list[Any]:
        """Run once.

        Args:
            inputs: For each input an array as it lies in memory or an object. Where the input lies on a device, the
                array may be the device's or the host's.
            outputs: For each output an array to write to, in the same way; None for one whose step brings the memory.
            visit: Runs the steps in place of the loop over them.
            keep: Whether results that steps of a device bring stay there; else they are copied to the host.

        Returns:
            For each output what was written to, or what its step made.
        """
        values = self._values
        try:
            self._place([*inputs, *outputs], keep)
            self._run_steps(visit)
            results = [values[index] for index in self._outputs]
            return results if self._border is None else self._border.collect(results)
        finally:
            self._clear()

    def execute(self, addresses: tuple[int, ...]) -> Sequence[Any]:
        """Run over memory of the caller's, by the address of each input and then each output.

        An output whose shape only the run tells is not written; it is among what is returned, which is empty where
        there is no such output.
        """
        if addresses != self._placed:
            self._place_addresses(addresses)
        if self._is_plain:
            self._run_steps(None)
            return ()
        try:
            self._run_steps(None)
            results = [self._values[index] for index in self._outputs]
            self._pack_outputs(addresses)
            return results
        finally:
            self._clear()

    def _place(self, arrays: Sequence[Any], keep: bool) -> None:
        """Put the inputs and then the outputs of a run into the frame."""
        values = self._values
        self._placed = None
        for index, array in zip(self._ports, arrays):  # noqa: B905 - counted by who calls
            values[index] = array
        if self._border is not None:
            self._border.place(arrays[: self._num_inputs], arrays[self._num_inputs :], keep=keep)
        for take_addresses in self.frame.placers:
            take_addresses()

    def _clear(self) -> None:
        """Have the frame as it was before the run: nothing of the caller's is kept."""
        values, before = self._values, self._before
        self._placed = None
        if self._border is not None:
            self._border.clear()
        for index in self._loose:
            values[index] = before[index]

    def _run_steps(self, visit: Visit | None) -> None:
        instance = self.instance
        try:
            if instance.announced is not self:
                self._announce()
            walk = visit or instance.profile
            if walk is None:
                self._run_all()
            else:
                walk(self)
        except BaseException as error:  # noqa: BLE001 - it is raised again
            self._clear()
            instance.fail(error, is_loose=self.frame.is_loose)

    def _announce(self) -> None:
        """Tell every plugin its shapes, as the contract asks before the first run and after changes."""
        self.instance.announced = None
        for tell in self.frame.announcers:
            tell()
        self.instance.announced = self

    # by address

    def _place_addresses(self, addresses: tuple[int, ...]) -> None:
        if addresses != self._told:
            if self._has_aliases:
                self._check_aliases(addresses)
            if self.frame.announcers:
                self.instance.announced = None  # the contract: plugins hear of shapes again when an address changed
            self._told = addresses
        views = self._views if self._views is not None else self._make_views()
        self._place([known[address] for known, address in zip(views, addresses)], True)  # noqa: B905 - one a tensor
        self._placed = addresses if self._is_plain else None

    def _pack_outputs(self, addresses: Sequence[int]) -> None:
        """Bring outputs of which two elements share a byte into the caller's memory."""
        views = (self._views or [])[self._num_inputs :]
        for view, address, index in zip(views, addresses[self._num_inputs :], self._outputs, strict=True):
            if view.is_packed and view.has_shape:
                view.pack(address, self._values[index])

    def _make_views(self) -> list[TensorViews]:
        manifest, instance = self.instance.manifest, self.instance
        ports = (*zip(self._inputs, manifest.inputs, strict=True), *zip(self._outputs, manifest.outputs, strict=True))
        self._views = [
            TensorViews(tensor, instance.physical_shape(self.frame, index), instance.devices) for index, tensor in ports
        ]
        callers = {*self._inputs, *self._outputs}
        is_sized = all(view.has_shape and not view.is_packed for view in self._views)
        self._is_plain = is_sized and callers.issuperset(self._loose) and not self.frame.is_loose
        return self._views

    def _check_aliases(self, addresses: Sequence[int]) -> None:
        """An output that shares memory with an input has its address and its size: the caller sized it for that."""
        manifest, count = self.instance.manifest, self._num_inputs
        names = [tensor.name for tensor in manifest.inputs]
        for position, tensor in enumerate(manifest.outputs):
            if tensor.alias is None or self.output_shapes[position] is None:
                continue
            source = names.index(tensor.alias)
            if addresses[count + position] != addresses[source]:
                raise InputError(
                    f"it shares memory with input '{tensor.alias}'",
                    where=f"output '{tensor.name}'",
                    expected="the same address for both",
                    fix=f"call set_tensor_address('{tensor.name}', ...) with the address of '{tensor.alias}'",
                )
            self.instance.check_alias_size(self.frame, self._inputs[source], self._outputs[position])

    # single steps

    def begin(self) -> None:
        """Bring inputs to devices, which is done when this returns; before the single steps."""
        if self._border is not None:
            self._border.upload()
            self._border.wait()

    def end(self) -> None:
        """Bring results to where the caller wants them; after the single steps."""
        if self._border is not None:
            self._border.finish()

    def single_steps(self) -> list[tuple[StepRecord, BoundSteps]]:
        """Each step for itself, done when it returns."""
        singles = self.instance.schedule_singly(self._entries)
        bound = [BoundSteps(entries, self.instance.silence) for entries in singles]
        return list(zip(self.instance.program.steps, bound, strict=True))

    def close(self) -> None:
        """Give back what the steps took for this run."""
        close_all(self.frame.closers)
