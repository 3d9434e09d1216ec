"""A compiled partition as a step: its provider runs it over the values of the frame.

Results that leave the engine and have no memory yet are made by the provider and belong to the caller; everything
else is written where the plan has room for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dovetail.errors import DovetailError, ProviderError
from dovetail.plan.manifest import StepRecord, ValueRecord
from dovetail.provider.calls import first_line
from dovetail.runtime.steps import Frame, argument_getter, is_placed

__all__ = ["SubgraphStep", "results_of_subgraphs"]


class SubgraphStep:
    """One partition in one context."""

    __slots__ = ("_fetch", "_fetch_results", "_made", "_only", "_outputs", "_run", "name")

    def __init__(
        self,
        record: StepRecord,
        values: Sequence[ValueRecord],
        run: Callable[[Sequence[Any], list[Any]], None],
    ) -> None:
        self.name = record.name
        self._run = run
        self._fetch = argument_getter(record.inputs)
        self._fetch_results = argument_getter(record.outputs)
        self._outputs = record.outputs
        self._only = record.outputs[0] if len(record.outputs) == 1 else None
        self._made = frozenset(i for i in record.outputs if not is_placed(values, i))
        """Values that are new in every run; what an earlier run left in their slots is not to be written over."""

    def __call__(self, frame: Frame) -> None:
        """Run the partition once."""
        for index in self._made:
            frame[index] = None
        only = self._only
        results = [*self._fetch_results(frame)] if only is None else [frame[only]]
        try:
            self._run(self._fetch(frame), results)
        except DovetailError:
            raise
        except Exception as error:
            raise self.describe(error) from error
        if only is not None:
            frame[only] = results[0]
            return
        for index, result in zip(self._outputs, results, strict=True):
            frame[index] = result

    def bind_alone(self) -> Callable[[Sequence[Any]], list[Any]]:
        """The partition without a frame: all inputs in, new results out. Who calls it describes what fails."""
        return getattr(self._run, "make", None) or self._make

    def _make(self, inputs: Sequence[Any]) -> list[Any]:
        results: list[Any] = [None] * len(self._outputs)
        self._run(inputs, results)
        return results

    def describe(self, error: Exception) -> ProviderError:
        """What the provider raised, as an error of this step."""
        return ProviderError(f"it failed: {first_line(error)}", where=f"step '{self.name}'")


def results_of_subgraphs(steps: Sequence[StepRecord], outputs: Sequence[int]) -> frozenset[int]:
    """The outputs of an engine that a partition makes and nobody else reads, where all its results are such.

    Nothing is allocated for them before a run: the provider's own memory goes to the caller as it is.
    """
    leaving = set(outputs)
    read = {index for step in steps for index in (*step.inputs, *step.shape_inputs)}
    read |= {outside for step in steps for body in step.bodies for outside, _ in body.captures}
    free = [
        step.outputs
        for step in steps
        if step.kind == "subgraph" and leaving.issuperset(step.outputs) and read.isdisjoint(step.outputs)
    ]
    return frozenset(index for results in free for index in results)
