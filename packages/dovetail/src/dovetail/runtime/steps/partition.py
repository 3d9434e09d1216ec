"""A compiled partition as a step: its provider runs it over the values of the frame.

Results that leave the engine and have no memory yet are made by the provider and belong to the caller; everything
else is written where the plan has room for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from dovetail.errors import DovetailError, ProviderError
from dovetail.plan.manifest import ProgramRecord, StepRecord
from dovetail.provider.calls import call, first_line
from dovetail.provider.interfaces import LoadedPartition, Provider
from dovetail.runtime.devices.streams import ContextDevices
from dovetail.runtime.steps.base import BoundStep, Step, argument_getter
from dovetail.runtime.steps.binding import make_bind_context
from dovetail.runtime.steps.frame import Frame, Shape, Workspace

__all__ = ["PartitionLease", "PartitionStep", "results_of_partitions"]


class PartitionLease:
    """A loaded partition, for whoever may run it."""

    __slots__ = ("__weakref__", "partition", "provider", "weights")

    def __init__(self, partition: LoadedPartition, provider: str, weights: Mapping[str, str]) -> None:
        self.partition = partition
        self.provider = provider
        self.weights = weights
        """Name -> blob."""

    @property
    def close(self) -> Callable[[], object]:
        """The call that closes the partition; it does not hold the lease."""
        return partial(call, self.provider, "close of a partition", self.partition.close)


class PartitionStep(Step):
    """One partition in one context."""

    def __init__(self, record: StepRecord, provider: Provider, lease: PartitionLease, devices: ContextDevices) -> None:
        super().__init__(record)
        self._owner = provider
        self._lease = lease
        self._devices = devices
        self._fetch = argument_getter(record.inputs)
        self._outputs = record.outputs

    def find_workspace_bytes(self, shapes: Sequence[Shape | None] | None) -> int:
        """What its provider says of inputs of these shapes."""
        given = [None if shapes is None else shapes[index] for index in self.record.inputs]
        return call(self.provider, "workspace_bytes", self._lease.partition.workspace_bytes, given)

    def bind(self, frame: Frame) -> BoundStep:
        """The partition over a frame, with bindings of its own."""
        workspace = frame.workspaces.get(self, Workspace())
        context = make_bind_context(self.record, frame, workspace, self._owner, self._devices)
        bound = call(self.provider, "bind", self._lease.partition.bind, context)
        frame.closers.append(bound.close)
        frame.interruptible.append(bound.make_interruptible)
        if bound.is_capturable:
            frame.capturable.add(self)
        values, fetch, outputs, run_bound = frame.values, self._fetch, self._outputs, bound.run

        def run() -> None:
            results = [values[index] for index in outputs]
            try:
                run_bound(fetch(values), results)
            except DovetailError:
                raise
            except Exception as error:
                raise self._describe(error) from error
            for index, result in zip(outputs, results):  # noqa: B905 - counted in the plan
                values[index] = result

        return run

    def _describe(self, error: Exception) -> ProviderError:
        """What the provider raised, as an error of this step."""
        return ProviderError(f"it failed: {first_line(error)}", where=f"step '{self.name}'")


def results_of_partitions(program: ProgramRecord) -> frozenset[int]:
    """The outputs on the host that a partition makes and nobody else reads, where all its results are such.

    Nothing is allocated for them before a run: the provider's own memory goes to the caller as it is.
    """
    steps = program.steps
    leaving = {index for index in program.outputs if not program.values[index].memory}
    read = {index for step in steps for index in (*step.inputs, *step.shape_inputs)}
    read |= {outside for step in steps for body in step.bodies for outside, _ in body.captures}
    free = [
        step.outputs
        for step in steps
        if step.kind == "partition" and leaving.issuperset(step.outputs) and read.isdisjoint(step.outputs)
    ]
    return frozenset(index for results in free for index in results)
