"""From a model that fails to the smallest that still fails.

Outputs are left out first, then nodes, wherever they are: what a node that stays read from one that went becomes an
input with the value it had, or a constant. Then axes of inputs and weights are cut. Every step is tried before it is
taken, so that what is held always fails; the number of trials is bounded, so that it always ends.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import onnx_ir as ir

from dovetail.errors import UsageError
from dovetail.tools.reduction.cuts import CutKind, Record, cut_model, keep_outputs, resize
from dovetail.tools.reduction.ddmin import minimize

__all__ = ["ReducePhase", "ReduceResult", "reduce_model"]

StillFails = Callable[[ir.Model], bool]

_MAX_TESTS: Final = 1000
_SMALL_NODES: Final = 16
"""Sizes are cut one axis at a time only in models this small."""


@dataclass(frozen=True, kw_only=True)
class ReducePhase:
    """What one kind of reduction achieved."""

    name: str
    num_nodes: int
    """That were left after it."""
    num_tests: int


@dataclass(frozen=True, kw_only=True)
class ReduceResult:
    """The smallest model found."""

    model: ir.Model
    """It fails: that was the last thing tried with it."""
    num_nodes_before: int
    num_nodes: int
    num_tests: int
    phases: tuple[ReducePhase, ...]
    is_complete: bool
    """Whether nothing more could be left out; False when trials or time ran out, or somebody interrupted."""


def reduce_model(
    model: ir.Model,
    still_fails: StillFails,
    *,
    record: Record | None = None,
    max_tests: int = _MAX_TESTS,
    max_seconds: float = math.inf,
    on_phase: Callable[[ReducePhase], object] | None = None,
) -> ReduceResult:
    """Shrink a model as long as it fails.

    Args:
        model: A model that fails; it is left as it is.
        still_fails: Whether a model fails in the way that is looked for. A new input is called like the tensor that it
            replaces; one whose shape is smaller than what the tensor held stands for the first elements.
        record: Gives what tensors of the model held in a run, so that new inputs get their types and shapes.
        max_tests: How many models to try at most.
        max_seconds: After how long to begin no further trial.
        on_phase: Told when a phase has ended.

    Raises:
        UsageError: The model does not fail.
    """
    reducer = _Reducer(still_fails, record or _know_nothing, max_tests, time.monotonic() + max_seconds)
    if not reducer.is_failing(model):
        raise UsageError("the model does not fail, so there is nothing to reduce", where="reduce")
    reducer.best = _with_types(model)
    if reducer.best is not model and not reducer.is_failing(reducer.best):
        reducer.best = model
    is_complete = reducer.run(on_phase or (lambda _: None))
    return ReduceResult(
        model=reducer.best,
        num_nodes_before=count_nodes(model),
        num_nodes=count_nodes(reducer.best),
        num_tests=reducer.num_tests,
        phases=tuple(reducer.phases),
        is_complete=is_complete,
    )


def count_nodes(model: ir.Model) -> int:
    """The nodes of the main graph that compute something."""
    return len(_nodes(model))


def _nodes(model: ir.Model) -> list[ir.Node]:
    return [node for node in model.graph if node.op_type != "Constant"]


def _know_nothing(names: Collection[str]) -> Mapping[str, Any]:
    return {}


def _with_types(model: ir.Model) -> ir.Model:
    """A copy that says the type of every tensor for which ONNX can tell; the model itself when it cannot at all."""
    from onnx_ir.passes.common import ShapeInferencePass

    copy = model.clone()
    try:
        return ShapeInferencePass(check_type=False, strict_mode=False, data_prop=False)(copy).model
    except Exception:  # noqa: BLE001 - models that fail are what this is about; without types, less can be cut
        return model


class _OutOfTrials(Exception):
    """The bound is reached; what was found so far stands."""


class _Reducer:
    """The smallest failing model so far, and the trials that led there."""

    def __init__(self, still_fails: StillFails, record: Record, max_tests: int, deadline: float) -> None:
        self.best: ir.Model
        self.num_tests = 0
        self.phases: list[ReducePhase] = []
        self._still_fails = still_fails
        self._record = record
        self._max_tests = max_tests
        self._deadline = deadline

    def is_failing(self, model: ir.Model) -> bool:
        if self.num_tests >= self._max_tests or time.monotonic() > self._deadline:
            raise _OutOfTrials
        self.num_tests += 1
        return self._still_fails(model)

    def _accept(self, model: ir.Model | None) -> bool:
        """Try a model, and hold it when it fails."""
        if model is None or not self.is_failing(model):
            return False
        self.best = model
        return True

    def run(self, on_phase: Callable[[ReducePhase], object]) -> bool:
        """All phases; False when they had to end early."""
        try:
            for name, phase in self._plan():
                before = self.num_tests
                phase()
                self.phases.append(
                    ReducePhase(name=name, num_nodes=count_nodes(self.best), num_tests=self.num_tests - before)
                )
                on_phase(self.phases[-1])
        except (_OutOfTrials, KeyboardInterrupt):
            return False
        return True

    def _plan(self) -> Iterator[tuple[str, Callable[[], object]]]:
        """What to try, in order; what depends on how much is left is decided when it comes to it."""
        yield "outputs", self._drop_outputs
        for cut in CutKind:
            if count_nodes(self.best) > 1:
                yield f"nodes, with {cut.value} at the cuts", partial(self._drop_nodes, cut)
        yield "outputs of what is left", self._drop_outputs
        yield "sizes", self._shrink_sizes

    # outputs and nodes

    def _drop_outputs(self) -> None:
        base = self.best
        names = [value.name or "" for value in base.graph.outputs]
        if len(names) > 1:
            minimize(names, lambda kept: self._accept(keep_outputs(base, kept)))

    def _drop_nodes(self, cut: CutKind) -> None:
        base = self.best
        minimize(_nodes(base), lambda kept: self._accept(cut_model(base, kept, cut, self._record)))

    # sizes

    def _shrink_sizes(self) -> None:
        """Cut all axes of one size together, which keeps products possible, then each axis alone."""
        for size in sorted(set(_axes(self.best).values()), reverse=True):
            self._shrink_axes(size, [key for key, found in _axes(self.best).items() if found == size])
        if count_nodes(self.best) <= _SMALL_NODES:
            for key, size in _axes(self.best).items():
                self._shrink_axes(size, [key])

    def _shrink_axes(self, size: int, keys: Sequence[tuple[str, int]]) -> None:
        for smaller in dict.fromkeys((1, 2, 4, size // 2)):
            if 0 < smaller < size and self._accept(resize(self.best, dict.fromkeys(keys, smaller))):
                return


def _axes(model: ir.Model) -> dict[tuple[str, int], int]:
    """The axes of inputs and weights that could be smaller, with their sizes."""
    found: dict[tuple[str, int], int] = {}
    for value in (*model.graph.inputs, *model.graph.initializers.values()):
        for axis, dim in enumerate(value.shape or ()):
            if isinstance(dim, int) and dim > 1:
                found[value.name or "", axis] = dim
    return found
