"""Which layer is the first to diverge: every intermediate tensor as an output of both sides, some at a time.

A tensor that is an output cannot vanish in a fusion, so marking all of them can make a difference disappear. When the
model's own outputs differ and no marked layer does, single tensors are marked instead, by halving, which leaves
everything else fused as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import onnx_ir as ir

from dovetail.errors import DovetailError
from dovetail.tools.differences import TensorDifference, Tolerance, ValueRange, compare_values, describe_range
from dovetail.tools.marks import MarkedLayer, list_layers, mark_outputs
from dovetail.tools.sides import Side

__all__ = ["Divergence", "LayerDifference", "LayersResult", "compare_layers"]

_MARKED_AT_ONCE: Final = 256
"""How many tensors are kept in memory on both sides at a time."""


@dataclass(frozen=True, kw_only=True)
class LayerDifference:
    """One layer, with the results of both sides."""

    index: int
    name: str
    op: str
    domain: str
    outputs: tuple[TensorDifference, ...]
    is_close: bool
    is_verified: bool = True
    """False where nothing differs, but an output has no finite element to compare."""

    @property
    def differs(self) -> bool:
        """Whether an output does."""
        return not self.is_close and self.is_verified


@dataclass(frozen=True, kw_only=True)
class Divergence:
    """A layer whose results are not close, and what went into it."""

    layer: LayerDifference
    inputs: tuple[ValueRange, ...]
    """As the reference has them."""
    input_errors: tuple[TensorDifference, ...]
    """Of those inputs that other layers made."""


@dataclass(frozen=True, kw_only=True)
class LayersResult:
    """All layers, and the first one that diverges."""

    layers: tuple[LayerDifference, ...]
    divergence: Divergence | None
    notes: tuple[str, ...]


def compare_layers(
    model: ir.Model,
    feeds: Mapping[str, Any],
    *,
    candidate: Side,
    reference: Side,
    tolerance: Tolerance,
    outputs_differ: bool,
    marked_at_once: int = _MARKED_AT_ONCE,
) -> LayersResult:
    """Compare every intermediate tensor of a model.

    Args:
        model: The model as its file has it.
        feeds: Inputs by name.
        candidate: What is judged.
        reference: What is right.
        tolerance: How far off is still close.
        outputs_differ: Whether the outputs of the model as it is are known to differ.
        marked_at_once: How many tensors to look at in one run.
    """
    job = _LayerJob(model, feeds, candidate, reference, tolerance)
    layers = list_layers(model)
    differences = job.compare_all(layers, marked_at_once)
    found = [_join(layer, differences) for layer in layers]
    first = next((layer for layer, difference in zip(layers, found, strict=True) if difference.differs), None)
    if first is None and outputs_differ:
        first = job.find_hidden(layers)
        job.notes.append(_explain_hidden(first))
        differences = {} if first is None else job.compare_all([first], marked_at_once)
    divergence = None if first is None else job.find_origin(first, differences, layers)
    job.notes += _note_hollow(found)
    return LayersResult(layers=tuple(found), divergence=divergence, notes=tuple(job.notes))


def _note_hollow(layers: Sequence[LayerDifference]) -> list[str]:
    """Name the first layer whose results are alike but have nothing finite in them: what follows has its NaN."""
    hollow = [layer for layer in layers if not layer.is_verified]
    if not hollow:
        return []
    have = "has" if len(hollow) == 1 else "have"
    text = f"{len(hollow)} of {len(layers)} layers {have} no finite element to compare"
    return [f"{text}, first '{hollow[0].name}' ({hollow[0].op})"]


def _explain_hidden(first: MarkedLayer | None) -> str:
    text = "with every layer as an output nothing differs, so a pass or fusion that this prevents makes the difference"
    if first is None:
        return f"{text}; switch passes off to find it, or reduce the model"
    return f"{text}; with one tensor marked at a time, it first shows at '{first.name}'"


@dataclass
class _LayerJob:
    model: ir.Model
    feeds: Mapping[str, Any]
    candidate: Side
    reference: Side
    tolerance: Tolerance
    notes: list[str] = field(default_factory=list)

    def compare_all(self, layers: Sequence[MarkedLayer], at_once: int) -> dict[str, TensorDifference]:
        names = [name for layer in layers for name in layer.outputs]
        found: dict[str, TensorDifference] = {}
        for chunk in _chunks(names, at_once):
            found |= self._compare_marked(chunk)
        return found

    def _compare_marked(self, names: Sequence[str]) -> dict[str, TensorDifference]:
        """Compare these tensors; one that cannot be an output of its own is left out, and noted."""
        try:
            ours, theirs = self._run(names)
        except DovetailError as error:
            if len(names) == 1:
                self.notes.append(f"tensor '{names[0]}' cannot be looked at: {str(error).splitlines()[0][:200]}")
                return {}
            half = len(names) // 2
            return self._compare_marked(names[:half]) | self._compare_marked(names[half:])
        return {name: compare_values(name, ours[name], theirs[name], self.tolerance) for name in names}

    def _run(self, names: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any]]:
        marked = mark_outputs(self.model, names)
        return self.candidate.run(marked, self.feeds), self.reference.run(marked, self.feeds)

    def find_hidden(self, layers: Sequence[MarkedLayer]) -> MarkedLayer | None:
        """The first layer that differs when it alone is marked, if those after it do too."""
        visible = [layer for layer in layers if layer.outputs]
        position = _bisect(len(visible), lambda index: self._differs_alone(visible[index]))
        return None if position is None else visible[position]

    def _differs_alone(self, layer: MarkedLayer) -> bool:
        found = self._compare_marked(layer.outputs)
        return any(difference.differs for difference in found.values())

    def find_origin(
        self, layer: MarkedLayer, results: Mapping[str, TensorDifference], layers: Sequence[MarkedLayer]
    ) -> Divergence:
        """The layer to blame: one that differs, or else makes what differs, while what goes into it is still right.

        What is fused depends on what is marked. So a layer may differ in a run where the one before it was not marked,
        and be right once it is given what the reference has.
        """
        makers = {name: maker for maker in layers for name in maker.outputs}
        divergence = self.look_closely(layer, results)
        while (wrong := next((found for found in divergence.input_errors if found.differs), None)) is not None:
            maker = makers.get(wrong.name)
            if maker is None:
                break
            text = f"'{layer.name}' differs too, but its input '{wrong.name}' already does"
            self.notes.append(f"{text}, which '{maker.name}' makes")
            layer = maker
            divergence = self.look_closely(maker, {wrong.name: wrong})
        return divergence

    def look_closely(self, layer: MarkedLayer, results: Mapping[str, TensorDifference]) -> Divergence:
        """Run once more for what goes into a layer."""
        made = {value.name for node in self.model.graph for value in node.outputs}
        names = [name for name in layer.inputs if name in made]
        try:
            ours, theirs = self._run(names)
        except DovetailError as error:
            self.notes.append(f"the inputs of '{layer.name}' cannot be looked at: {str(error).splitlines()[0][:200]}")
            ours, theirs, names = {}, {}, []
        known = [(name, self._value_of(name, theirs)) for name in layer.inputs if name in names or name not in made]
        return Divergence(
            layer=_join(layer, results),
            inputs=tuple(describe_range(name, value) for name, value in known),
            input_errors=tuple(compare_values(name, ours[name], theirs[name], self.tolerance) for name in names),
        )

    def _value_of(self, name: str, results: Mapping[str, Any]) -> Any:
        if name in results:
            return results[name]
        if name in self.feeds:
            return self.feeds[name]
        weight = self.model.graph.initializers.get(name)
        return None if weight is None or weight.const_value is None else weight.const_value.numpy()


def _join(layer: MarkedLayer, differences: Mapping[str, TensorDifference]) -> LayerDifference:
    outputs = tuple(differences[name] for name in layer.outputs if name in differences)
    return LayerDifference(
        index=layer.index,
        name=layer.name,
        op=layer.op,
        domain=layer.domain,
        outputs=outputs,
        is_close=all(output.is_close for output in outputs),
        is_verified=all(output.is_verified for output in outputs) or any(output.differs for output in outputs),
    )


def _chunks(names: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    for start in range(0, len(names), size):
        yield names[start : start + size]


def _bisect(count: int, is_true: Callable[[int], bool]) -> int | None:
    """The first number for which it is true, taking it to stay true from there on; None when it is not at the end.

    >>> _bisect(10, lambda n: n >= 7)
    7
    """
    if not count or not is_true(count - 1):
        return None
    low, high = -1, count - 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_true(middle) else (middle, high)
    return high
